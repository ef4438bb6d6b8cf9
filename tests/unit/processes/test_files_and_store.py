from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.lock_owner import killed_owner
from fakes.needs import without
from powerband.base.errors import MeasurementError, UsageError
from powerband.model.plan import Setting, TrialSpec
from powerband.processes.engine_process import EngineProcess
from powerband.processes.line_file import LineFile
from powerband.store import (
    DamagedError,
    Failure,
    RunDir,
    SubjectAddress,
    TrialDir,
    TrialRecord,
    disk_error,
    read_json_lines,
    slug,
    snapshot_file,
)

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
        pytest.raises(MeasurementError, match=r"/dev/full: No space left on device: free some space"),
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
    with pytest.raises(
        MeasurementError, match=r"cannot write to .*: its folder is not there, or was removed meanwhile"
    ):
        LineFile(tmp_path / "missing" / "events.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasurementError, match="cannot write to"):
        TrialDir(tmp_path / "file" / "0001").begin(SPEC)
    with pytest.raises(MeasurementError, match="cannot write to"):
        TrialDir(tmp_path / "missing").write_record(record())
    with pytest.raises(MeasurementError, match=r"cannot begin a run in .*: choose another folder with --runs"):
        RunDir.create(tmp_path / "file", "name", "", {})


def test_a_full_disk_says_how_this_very_run_goes_on(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "x", "name: x\n", {})
    trial = run.trial(1)
    with pytest.raises(MeasurementError, match=f"free some space, then `powerband resume {run.path}`"):
        trial.write_record(record())
    with pytest.raises(MeasurementError, match=f"cannot write to {trial.engine_log}.*resume {run.path}`"):
        EngineProcess(["true"], trial.engine_log)


def test_one_powerband_at_a_time_runs_a_run(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "x", "name: x\n", {})
    with run.locked(), pytest.raises(UsageError, match=f"another powerband is running {run.path}"), run.locked():
        pass
    with run.locked():
        pass


def test_a_killed_owner_locks_nobody_out(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "x", "name: x\n", {})
    with killed_owner(run, locks=True), pytest.raises(UsageError, match="another powerband"), run.locked():
        pass
    with run.locked():
        pass


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "its format is 2, and this version reads 1"),
        ({"format": None}, "its format is None"),
        ({"spec": {}}, "is damaged"),
        ({"failure": "died"}, "is damaged"),
    ],
)
def test_a_record_of_another_version_or_damaged(tmp_path: Path, change: dict[str, object], said: str) -> None:
    directory = TrialDir(tmp_path)
    directory.record.write_text(json.dumps({**record().to_json(), **change}))
    with pytest.raises(UsageError, match=said):
        directory.read_record()
    directory.record.write_text("[]")
    with pytest.raises(UsageError, match="is damaged"):
        directory.read_record()


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
    assert run.planned() == {1: SPEC}


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


def test_a_damaged_line_is_said_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "probe.jsonl"
    file.write_bytes(b'{"a": 1}\n{"a": \xff\xfe\n{"a": 3}\n')
    with pytest.raises(DamagedError, match=r"probe\.jsonl, line 2, is damaged"):
        list(read_json_lines(file))
    assert list(read_json_lines(file, damaged=lambda error: None)) == [{"a": 1}, {"a": 3}]


def test_nobody_else_can_read_a_run(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "x", "name: x\n", {})
    trial = run.trial(1)
    trial.begin(SPEC)
    trial.write_address(SubjectAddress("http://127.0.0.1:1"))
    run.append_plan(SPEC)
    with run.locked(), LineFile(trial.events) as events, EngineProcess(["true"], trial.engine_log):
        events.write(b"{}\n")
    snapshot_file(trial.snapshots, "before", 1).parent.mkdir()
    for written_by_others in (trial.log, snapshot_file(trial.snapshots, "before", 1)):
        written_by_others.write_text("what others write")
        written_by_others.chmod(0o644)
    trial.write_record(record())
    open_to = {path: path.stat().st_mode & 0o777 for path in (run.path, *run.path.rglob("*"))}
    assert {mode for path, mode in open_to.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in open_to.items() if path.is_dir() and path != trial.snapshots} == {0o700}
    assert trial.read_record() == record()


def as_nobody(call: str, path: str | Path) -> subprocess.CompletedProcess[str]:
    """Evaluates `call`, in which `path` stands for the path, as another user."""
    if os.geteuid() != 0:
        without("only root can become another user")
    code = (
        "import os, sys; from pathlib import Path; from powerband.store import RunDir; os.setuid(65534)\n"
        f"path = Path(sys.argv[1]); {call}"
    )
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)


def test_a_folder_that_may_be_entered_but_not_listed() -> None:
    """The test runs as another user, since root may list every folder."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o333)
        done = as_nobody("RunDir.create(path, 'x', 'name: x', {})", folder)
    assert done.returncode == 0, done.stderr


def test_a_run_of_another_user_is_not_taken_for_no_run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run = RunDir.create(Path(folder), "x", "name: x", {})
        done = as_nobody("RunDir.open(path)", run.path)
    assert "UsageError" in done.stderr and "chown -R" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.EROFS, "make it writable"),
        (errno.EACCES, "make it writable"),
        (errno.ENOSPC, "free some"),
        (errno.EEXIST, "move away the file"),
        (errno.ENOTDIR, "move away the file"),
    ],
)
def test_a_disk_that_refuses_is_said_with_its_cure(tmp_path: Path, number: int, cure: str) -> None:
    run = RunDir.create(tmp_path, "x", "name: x\n", {})
    said = str(disk_error(run.plan, OSError(number, os.strerror(number))))
    assert cure in said and f"`powerband resume {run.path}`" in said
