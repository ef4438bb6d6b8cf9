"""Run directories on file systems that lack something: read-only, without locks, without hard links, without a sync of
folders; and a clock that is set during a run."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fakes.finished_run import MADE, MadeUpTrials, new_run, run_to_its_end
from fakes.lock_owner import killed_owner
from fakes.tmpfs import tmpfs
from powerband.base.errors import MeasurementError, UsageError
from powerband.cli import powerband
from powerband.live.growing_files import is_held
from powerband.report.html.report import write_report
from powerband.search.session import analyse_run
from powerband.store import RunDir


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[RunDir]:
    """A finished run on a tmpfs that was made read-only."""
    with tmpfs() as folder:
        run = new_run(folder)
        run_to_its_end(run)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        yield run


def test_a_read_only_run_is_read_and_not_gone_on_with(read_only: RunDir) -> None:
    path = str(read_only.path)
    for arguments in (["report", path], ["compare", path, path], ["export", path]):
        done = CliRunner().invoke(powerband, arguments)
        assert done.exit_code in (0, 5) and "Traceback" not in done.output, (arguments, done.output)
    told = CliRunner().invoke(powerband, ["report", path])
    assert "Use threads=4" in told.output and "Report:" not in told.output
    assert "no report.html: cannot write to" in told.output and "Read-only file system" in told.output
    assert f"then `powerband report {path}`" in told.output and "powerband resume" not in told.output
    with pytest.raises(MeasurementError, match=r"Read-only file system.*make it writable, then `powerband resume"):
        run_to_its_end(read_only)
    with pytest.raises(MeasurementError, match=r"cannot begin a run in .*Read-only.*choose another folder"):
        new_run(read_only.path.parent)


class Lacking:
    """A function that fails as those of `os` and `fcntl` may on a network file system."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise OSError(self.number, os.strerror(self.number))


@pytest.fixture(params=[errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS], ids=errno.errorcode.get)
def without_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", Lacking(request.param))


@pytest.mark.usefixtures("without_locks")
def test_without_locks_two_powerbands_of_one_machine_are_kept_apart(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with run.locked():
        assert is_held(run.path / ".lock")
        with pytest.raises(UsageError, match=f"another powerband is running {run.path}"), run.locked():
            pass
    assert not is_held(run.path / ".lock")
    with run.locked():
        pass


@pytest.mark.usefixtures("without_locks")
def test_without_locks_a_killed_owner_locks_nobody_out(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with killed_owner(run, locks=False), pytest.raises(UsageError, match="another powerband"), run.locked():
        pass
    with run.locked():
        pass


def test_a_network_file_system_without_links_locks_and_synced_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = new_run(tmp_path)
    wanted = run_to_its_end(whole)
    fsync = os.fsync

    def files_alone(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    monkeypatch.setattr(fcntl, "flock", Lacking(errno.ENOLCK))
    for name in ("link", "symlink", "fchmod"):
        monkeypatch.setattr(os, name, Lacking(errno.EPERM))
    run = new_run(tmp_path)
    assert run_to_its_end(run) == wanted
    assert write_report(run, wanted).is_file()


def test_two_powerbands_on_one_run(tmp_path: Path) -> None:
    """The second powerband is refused, and the first does not notice."""
    run = new_run(tmp_path)
    refused = []

    def second(_: object) -> None:
        done = CliRunner().invoke(powerband, ["resume", str(run.path)])
        assert isinstance(done.exception, UsageError), done.output
        refused.append(str(done.exception))

    trials = MadeUpTrials(second)
    run_to_its_end(run, trials)
    assert len(refused) == len(trials.done) == len(run.records())
    assert all("another powerband is running" in said for said in refused)


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0, -4e9])
def test_a_clock_that_is_set_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    wanted = run_to_its_end(new_run(tmp_path))
    now, now_ns, ahead_s = time.time, time.time_ns, 0.0

    def jump(_: object) -> None:
        nonlocal ahead_s
        ahead_s += jump_s

    monkeypatch.setattr(time, "time", lambda: max(0.0, now() + ahead_s))
    monkeypatch.setattr(time, "time_ns", lambda: max(0, now_ns() + round(ahead_s * 1e9)))
    run = new_run(tmp_path)
    assert run_to_its_end(run, MadeUpTrials(jump)) == wanted
    assert analyse_run(MADE, run) == wanted
