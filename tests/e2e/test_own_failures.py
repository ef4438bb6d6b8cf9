"""Failures that are not the subject's: the engine or the probe dies, the disk is full, there are too few descriptors or
processes, there is no engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.needs import without
from fakes.stand import FAKES, MS, Watcher, experiment, reference, run_one, short_load
from fakes.tmpfs import tmpfs
from powerband.base.errors import MeasurementError, SubjectError
from powerband.processes.engine_fleet import find_engine
from powerband.processes.failures import Code
from powerband.processes.ports import pick_port
from powerband.readings.fleet import merge_fleet
from powerband.store import RunDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

DISK_BYTES = 1_048_576
FEW = """
name: few
subject: {command: ["{engine}", serve, --port, "{port}", --threads, "{threads}", --wait, 10ms]}
factors: {threads: [4]}
load: {users: 600, duration: 500ms, timeout: 2s, connect_timeout: 2s}
measure: {warmup: 300ms, repeats: 1, slots: false, foreign_cpu_max: 100%, steal_max: 100%}
"""


@pytest.fixture
def fake_engine(engine: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the engine's `load` behave as scripted; its `probe` and `serve` stay real."""

    def use(how: str) -> None:
        monkeypatch.setenv("FAKE_ENGINE_REAL", str(engine))
        monkeypatch.setenv("FAKE_ENGINE", how)
        monkeypatch.setenv("POWERBAND_ENGINE", str(FAKES / "fake_engine.py"))

    return use


def failure_of(record: TrialRecord) -> tuple[str, str]:
    assert record.status == "failed"
    assert record.failure is not None
    return record.failure.code, record.failure.message


def test_the_scripted_engine_is_taken_for_a_real_one(tmp_path: Path, fake_engine: Callable[[str], None]) -> None:
    fake_engine("ok")
    watcher = Watcher()
    assert run_one(experiment(reference()), tmp_path, watcher=watcher).status == "measured"
    assert watcher.intervals[0] == (1000.0, 5 * MS, 5)


def test_an_engine_that_crashes(tmp_path: Path, fake_engine: Callable[[str], None]) -> None:
    fake_engine("crash")
    code, message = failure_of(run_one(experiment(reference()), tmp_path))
    assert code == Code.ENGINE_FAILED
    assert "exit code 70" in message
    assert (tmp_path / "0001" / "engine.log").read_text() == "fake engine: going down\n"


def test_an_engine_that_says_why_it_cannot(tmp_path: Path, fake_engine: Callable[[str], None]) -> None:
    fake_engine("limit")
    code, message = failure_of(run_one(experiment(reference()), tmp_path))
    assert code == Code.DESCRIPTOR_LIMIT
    assert "5 connections need 60 descriptors" in message


class KillAt(Watcher):
    """Kills a process of the trial with SIGKILL when the measured window begins."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self.program = program

    def phase(self, name: str) -> None:
        super().phase(name)
        if name == "measure":
            for pid in children_of(os.getpid()):
                if self.program in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(("program", "code"), [("load", Code.ENGINE_FAILED), ("probe", Code.PROBE_FAILED)])
def test_engine_or_probe_killed_in_the_middle(tmp_path: Path, program: str, code: Code) -> None:
    case = experiment(reference(), short_load(duration_ns=20_000 * MS))
    found, message = failure_of(run_one(case, tmp_path, watcher=KillAt(program)))
    assert found == code
    assert "signal 9" in message


def test_no_engine_lists_the_paths_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERBAND_ENGINE", str(tmp_path / "nowhere"))
    with pytest.raises(MeasurementError, match="nowhere"):
        run_one(experiment(reference()), tmp_path)
    assert not (tmp_path / "0001").exists()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A small file system of its own."""
    with tmpfs(str(DISK_BYTES)) as folder:
        yield folder


def fill(folder: Path, left: int) -> Path:
    """Writes a file that leaves only `left` bytes of the file system free."""
    filler = folder / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(folder).free - left))
    return filler


def refused(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == MeasurementError.exit_code, done.stderr
    assert "cannot write to" in done.stderr and "powerband resume" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_ends_the_run_which_goes_on_once_there_is_room_again(small_disk: Path) -> None:
    """The disk has room for the first trial, and for a few lines of the files of the second."""
    folder = small_disk / "run"
    command = [sys.executable, str(FAKES / "run_trials.py"), str(folder)]
    assert subprocess.run([*command, "trials=1"], timeout=120, check=False).returncode == 0
    filler = fill(small_disk, left=8192)
    refused(subprocess.run([*command, "trials=2"], capture_output=True, text=True, timeout=120, check=False))
    assert shutil.disk_usage(small_disk).free == 0
    assert [record.status for record in RunDir.open(folder).records()] == ["measured"]
    filler.unlink()
    resumed = subprocess.run([*command, "trials=2"], capture_output=True, text=True, timeout=120, check=False)
    assert (resumed.returncode, resumed.stdout.splitlines()[0]) == (0, "trial 2")
    assert [record.status for record in RunDir.open(folder).records()] == ["measured", "measured"]


@pytest.mark.parametrize("left", [0, 4096, 65536])
def test_a_disk_without_room_for_a_run_is_said(small_disk: Path, left: int) -> None:
    """The disk has room for nothing, for the experiment's file, or for a part of the first trial."""
    fill(small_disk, left)
    command = [sys.executable, "-m", "powerband", "run", "quickstart", "--profile", "smoke", "--runs", str(small_disk)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == MeasurementError.exit_code, done.stderr
    assert "powerband: cannot " in done.stderr and "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_may_not_grow_ends_the_run_and_finished_trials_are_kept(tmp_path: Path) -> None:
    """The size of a file can be limited for any user."""
    folder = tmp_path / "run"
    command = [sys.executable, str(FAKES / "run_trials.py"), str(folder), "trials=2", "file-limit=4096", "pace=1"]
    refused(subprocess.run(command, capture_output=True, text=True, timeout=120, check=False))
    assert [record.status for record in RunDir.open(folder).records()] == ["measured"]


@contextmanager
def few_processes(most: int) -> Iterator[list[str]]:
    """Yields the beginning of a command; the command and everything it starts may have at most `most` processes and
    threads."""
    hierarchy = Path("/sys/fs/cgroup/pids" if Path("/sys/fs/cgroup/pids").is_dir() else "/sys/fs/cgroup")
    group = hierarchy / f"powerband-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(most))
    except OSError as error:
        without(f"no group of processes can be made here: {error}")
    try:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        until_s = time.monotonic() + 20.0  # what was killed may end late
        while (group / "cgroup.procs").read_text() and time.monotonic() < until_s:
            time.sleep(0.02)
        group.rmdir()  # refused while a process is left in it


@contextmanager
def few_files(most: int) -> Iterator[list[str]]:
    yield ["prlimit", f"--nofile={most}"]


@pytest.mark.parametrize(
    "limited", [partial(few_files, 8), partial(few_files, 12), partial(few_processes, 3), partial(few_processes, 6)],
    ids=["8 files", "12 files", "3 processes", "6 processes"],
)  # fmt: skip
def test_what_the_system_refuses_is_said_and_the_run_goes_on_later(
    limited: Callable[[], AbstractContextManager[list[str]]], tmp_path: Path
) -> None:
    powerband = [sys.executable, "-m", "powerband"]
    tune = ("tune", "-P", "threads=1", "--duration", "300ms", "--warmup", "100ms", "--repeats", "1", "--users", "2")
    server = ("--", "{engine}", "serve", "--port", "{port}", "--threads", "{threads}")
    with limited() as prefix:
        done = subprocess.run(
            [*prefix, *powerband, *tune, "--runs", str(tmp_path), *server],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode in (MeasurementError.exit_code, SubjectError.exit_code), done.stderr
    assert "Traceback" not in done.stderr and "defect" not in done.stderr
    (run,) = tmp_path.glob("*-tune")
    # A failed trial is kept with its reason; one that had not begun is run by `resume`.
    assert all(record.failure is not None and record.failure.message for record in RunDir.open(run).records())
    resumed = subprocess.run([*powerband, "resume", str(run)], capture_output=True, text=True, timeout=120, check=False)
    assert resumed.returncode in (0, MeasurementError.exit_code, SubjectError.exit_code), resumed.stderr
    assert RunDir.open(run).records()


def test_a_run_with_256_descriptors_says_beforehand_and_afterwards_that_they_are_too_few(tmp_path: Path) -> None:
    """The engines share the users. The server cannot serve more users than it has descriptors, whatever the machine
    does meanwhile."""
    file = tmp_path / "few.yaml"
    file.write_text(FEW)
    command = [sys.executable, "-m", "powerband", "run", str(file), "--format", "json", "--runs", str(tmp_path)]
    with few_files(256) as prefix:
        done = subprocess.run([*prefix, *command], capture_output=True, text=True, timeout=120, check=False)
    assert "600 users take 3 processes of the load generator, each with 256 descriptors." in done.stderr
    assert "One process of the server may open 256 descriptors too: 600 users need several processes" in done.stderr
    assert done.returncode == 1, "no setting serves all users"
    analysis = json.loads(done.stdout)
    assert analysis["answer"]["kind"] == "none_feasible"
    *_, trial = analysis["trials"]  # a trial in which the load engine was late is repeated
    assert trial["metrics"]["users_unserved_share"] > 1 - 256 / 600 and trial["metrics"]["descriptors_max"] <= 256
    assert trial["bottleneck"]["name"] == "descriptors" and "`ulimit -n " in trial["bottleneck"]["advice"]


def test_a_descriptor_limit_of_256_is_passed_by_a_fleet(tmp_path: Path) -> None:
    result = with_descriptor_limit(256, tmp_path, "users=600")
    assert result["engines"] == 3
    assert result["ok"] >= 600
    assert set(result["outcomes"]) == {"ok"}
    assert result["connections"] == 600


def test_what_no_fleet_can_hold_is_said_with_the_limit_that_would_do(tmp_path: Path) -> None:
    result = with_descriptor_limit(256, tmp_path, "users=100000")
    assert "256 descriptors" in result["error"]
    assert "--nofile=1611" in result["error"]


def with_descriptor_limit(limit: int, tmp_path: Path, *options: str) -> dict[str, Any]:
    """Runs `load` in a process with this hard limit on descriptors, against a server without it."""
    port = pick_port()
    server = subprocess.Popen([find_engine(), "serve", "--port", str(port)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert b"listening" in server.stdout.readline()
        command = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", sys.executable]
        script = [str(FAKES / "run_load.py"), f"http://127.0.0.1:{port}/", *options]
        done = subprocess.run([*command, *script], capture_output=True, text=True, timeout=120, check=True)
    finally:
        server.terminate()
        server.communicate()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, found);
    if (!failed && clock == CLOCK_REALTIME) {
        struct timespec passed;
        real(CLOCK_MONOTONIC, &passed);
        found->tv_sec += passed.tv_nsec < 500000000 ? 86400 : -86400;
    }
    return failed;
}
"""


def test_a_wall_clock_that_is_set_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock is set by two days, to and fro, twice a second, for powerband, engine, probe and subject alike."""
    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    compiled = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "clock.c", "-ldl"], check=False)
    assert compiled.returncode == 0
    monkeypatch.setenv("LD_PRELOAD", str(library))
    told = "import time; times = [(time.sleep(0.1), time.time())[1] for _ in range(15)]; print(max(times) - min(times))"
    seen = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout
    assert float(seen) > 86_400, "the clock is set to and fro"
    folder = tmp_path / "run"
    command = [sys.executable, str(FAKES / "run_trials.py"), str(folder), "trials=2", "pace=1.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for record in RunDir.open(folder).records():
        (summary,) = record.engines
        assert record.status == "measured"
        assert abs((summary["measure_end_ns"] - summary["measure_start_ns"]) / 1e9 - 1.2) < 5
        fleet = merge_fleet(record.engines)
        assert fleet is not None
        times = fleet.times("response_time_ns")
        assert 1.9 * MS <= times.quantile(0.0) <= times.maximum < 60_000 * MS
