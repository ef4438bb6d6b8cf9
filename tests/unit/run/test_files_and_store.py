from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.errors import MeasurementError, UsageError
from powerband.plan import Setting, TrialSpec
from powerband.run.files import LineFile
from powerband.store import Failure, RunDir, TrialDir, TrialRecord, read_json_lines, slug

SPEC = TrialSpec(number=1, block=0, attempt=1, setting=Setting((("threads", 4), ("mode", "a,b"))), seed=9)


def record(status: str = "measured", failure: Failure | None = None) -> TrialRecord:
    return TrialRecord(
        spec=SPEC,
        status=status,
        failure=failure,
        wall_ns=1,
        monotonic_ns=2,
        phases={"launched": 3},
        warmup_ended_by="steady",
        engines=({"type": "summary"},),
        subject={"pid": 1},
        cpus={"subject": [0]},
    )


def test_a_full_disk_is_said_in_one_sentence() -> None:
    with (
        pytest.raises(MeasurementError, match=r"/dev/full: No space left on device.*resume"),
        LineFile(Path("/dev/full")) as file,
    ):
        file.write(b"x" * 100)
        file.flush()


def test_a_full_disk_is_noticed_at_the_end_at_the_latest() -> None:
    with pytest.raises(MeasurementError, match="No space left"), LineFile(Path("/dev/full")) as file:
        file.write(b"x")


def test_an_error_on_the_way_is_not_hidden_by_the_disk() -> None:
    with pytest.raises(ZeroDivisionError), LineFile(Path("/dev/full")) as file:
        file.write(b"x")
        raise ZeroDivisionError


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="cannot write to"):
        LineFile(tmp_path / "missing" / "events.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasurementError, match="cannot write to"):
        TrialDir(tmp_path / "file" / "0001").begin(SPEC)
    with pytest.raises(MeasurementError, match="cannot write to"):
        TrialDir(tmp_path / "missing").write_record(record())
    with pytest.raises(MeasurementError, match="cannot write to"):
        RunDir.create(tmp_path / "file", "name", "", {})


@pytest.mark.parametrize("failure", [None, Failure("died", "it ended")])
def test_a_record_reads_back_as_written(tmp_path: Path, failure: Failure | None) -> None:
    directory = TrialDir(tmp_path / "0001")
    directory.begin(SPEC)
    directory.write_record(record("failed" if failure else "measured", failure))
    assert directory.read_record() == record("failed" if failure else "measured", failure)


def test_a_trial_without_record_did_not_happen(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "My run: 1", "name: x\n", {"cpu": 1})
    assert run.path.name.endswith("-my-run-1")
    run.trial(1).begin(SPEC)
    assert run.records() == []
    run.trial(1).write_record(record())
    assert [one.spec for one in RunDir.open(run.path).records()] == [SPEC]


def test_the_plan_reads_back_and_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "x", "", {})
    run.append_plan(SPEC)
    with run.plan.open("a") as file:
        file.write('{"number": 2, "blo')
    assert run.planned() == [SPEC]


def test_two_runs_in_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    assert len({RunDir.create(tmp_path, "x", "", {}).path for _ in range(3)}) == 3


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run directory"):
        RunDir.open(tmp_path)


@given(st.text())
def test_a_slug_is_a_safe_file_name(name: str) -> None:
    safe = slug(name)
    assert 1 <= len(safe) <= 40
    assert os.path.basename(safe) == safe  # noqa: PTH119
    assert not safe.startswith((".", "-"))


@given(st.integers(0, 200))
def test_truncating_a_stream_anywhere_leaves_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, at: int) -> None:
    path = tmp_path_factory.mktemp("stream") / "events.jsonl"
    whole = b"".join(b'{"number":%d}\n' % number for number in range(15))
    path.write_bytes(whole[:at])
    assert [event["number"] for event in read_json_lines(path)] == list(range(whole[:at].count(b"\n")))
