"""Each process of a run is killed by SIGKILL, alone and in pairs, in each phase of a trial, with the effect that
`fakes/faults.py` lists."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fakes import run_trials
from fakes.faults import CASES, CONTROL, LOST, MEASURED, Fault, kill, pairs_left_out
from fakes.stand import FAKES
from powerband.store import RunDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

SHORT = ("wait=400ms", "ignore-sigterm", "grace=0.6", "pace=0.6", "go-on")
# The phase of the kill lasts much longer than a busy machine may delay the kill, which ends it.
LONG = {
    "launch": ("begins=15",),
    "warmup": ("wait=15s",),  # until the first answer
    "measure": ("pace=30",),
    "drain": ("wait=1s", "threads=1"),  # of four users each waits for those before
    "stop": ("grace=30",),
}


def each(fault: Fault, phase: str) -> object:
    alone, measured = len(fault.victims) == 1, phase == "measure"
    marks = [] if alone and measured else [pytest.mark.long if alone or measured else pytest.mark.table]
    return pytest.param(fault, phase, id=f"{fault.name}-{phase}", marks=marks)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of everything that the test starts; it must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def one_trial(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one finished trial."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    _, errors = start(folder, "trials=1").communicate(timeout=120)
    assert len(RunDir(folder).records()) == 1, errors
    return folder


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(FAKES / "run_trials.py"), str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize(("fault", "phase"), [each(*case) for case in CASES])
def test_what_a_kill_does(one_trial: Path, tmp_path: Path, fault: Fault, phase: str) -> None:
    folder = Path(shutil.copytree(one_trial, tmp_path / "run"))
    with start(folder, "trials=2", *SHORT, *LONG[phase]) as run:
        assert run.stdout is not None
        assert any(line == f"{phase}\n" for line in run.stdout), f"there was no phase {phase}"
        kill(run.pid, fault.victims)
        _, errors = run.communicate(timeout=120)
        assert run.returncode == (-9 if CONTROL in fault.victims else 0), errors
    files = sorted(path.name for path in folder.rglob("*") if path.name.endswith(".tmp"))
    records = RunDir.open(folder).records()
    assert outcome(records[1:]) in fault.outcomes
    assert all(record.failure is None or record.failure.message for record in records)
    assert records[0] == RunDir(one_trial).records()[0]
    assert files == []
    run_trials.run(
        folder, {"trials": "2", "go-on": ""}
    )  # in this process, since another start of Python costs more than the trial
    assert [record.status for record in RunDir.open(folder).records()] == ["measured", "measured"]


def outcome(records: Sequence[TrialRecord]) -> str:
    if not records:
        return LOST
    (record,) = records
    return MEASURED if record.failure is None else record.failure.code


def test_every_pair_has_a_case() -> None:
    assert pairs_left_out() == set()
