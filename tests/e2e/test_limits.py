"""Limits of CPU and memory that powerband sets: a real server gets no more than its limit, the report says if the limit
made it slow or killed it, and no cgroup is left behind. Needs cgroups that this user may make."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fakes.cgroups import limited as of_some
from fakes.disturbance import disturbed_by, undisturbed
from fakes.needs import need_root, without
from fakes.smoke import LATE
from fakes.stand import CALM, FAKES, MS, experiment, run_one, short_load
from powerband.analyze.trial.measure import measure
from powerband.base.errors import MeasurementError
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Measure, Ready, Subject
from powerband.model.host_use import HostUse
from powerband.model.results import TrialResult
from powerband.processes import cgroups
from powerband.processes.cgroups import limited, remove_abandoned
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left", "none_left")]

GUNICORN = (sys.executable, "-m", "gunicorn", "-b", "127.0.0.1:{port}")
KEEPER = """
kept = []
def app(environ, start_response):
    kept.append(bytearray(b"x" * (8 << 20)))
    start_response("200 OK", [("Content-Length", "3")])
    return [b"ok\\n"]
"""
# Of its processes only the first keeps memory: of many kills some hit gunicorn's parent, while the memory
# of another is still being freed.
ONE_KEEPER = f"""
import os
try:
    os.close(os.open("kept", os.O_CREAT | os.O_EXCL))
    keeps = True
except FileExistsError:
    keeps = False
{KEEPER.replace("    kept.append", "    keeps and kept.append")}"""
NOBODY = 65534


@pytest.fixture
def none_left() -> Iterator[None]:
    try:
        with limited(HostUse(cpu_quota=1.0, memory_limit_bytes=1 << 30)):
            pass
    except MeasurementError as error:
        without(str(error))
    yield
    assert not ours()


def ours() -> list[Path]:
    """Cgroups of this process, and of powerband processes that have ended."""
    found = [cgroups._hierarchy(name) for name in ("cpu", "memory")]
    folders = {folder for each in found if each is not None for folder in each.folders}
    named = [path for folder in folders for path in folder.glob("powerband-*")]
    # Another powerband may have removed its own, and ended, meanwhile.
    return [path for path in named if is_left(path.name) and path.exists()]


def is_left(name: str) -> bool:
    ours = cgroups._OURS.fullmatch(name)
    return ours is not None and (ours[2] == str(os.getpid()) or not cgroups._lives(ours[2], ours[3]))


def computing(folder: Path, quota: float) -> TrialResult:
    """Measures a trial of gunicorn with two processes; each request computes for 2 ms."""
    command = (*GUNICORN, "--chdir", str(FAKES / "real"), "-w", "2", "wsgi_app:app")
    case = Experiment(
        name="limited",
        subject=Subject(name="gunicorn", command=command, env={"PLANT": "cpu"}, ready=Ready(timeout_ns=20_000 * MS)),
        factors={"host.cpu_quota": (quota,)},
        load=short_load(users=16, duration_ns=1_500 * MS),
        measure=Measure(warmup_ns=500 * MS, slots=False, **CALM),
    )
    record = run_one(case, folder)
    return measure(TrialDir(folder / "0001"), record, case)


def held_up_by(result: TrialResult) -> str:
    """The disturbance of a trial as `disturbed_by`, or the note that its load engine was late; empty if there is
    neither."""
    late = (problem.message for problem in result.problems if problem.code in LATE)
    return disturbed_by(result.metrics) or next(late, "")


def test_a_server_gets_the_cpus_of_its_quota_and_is_told_that_it_is_the_limit(tmp_path: Path) -> None:
    folders = iter(range(9))

    def both(_: object) -> tuple[TrialResult, TrialResult]:
        at = tmp_path / str(next(folders))
        return computing(at / "half", 0.5), computing(at / "whole", 1.0)

    half, whole = undisturbed(both, lambda found: "; ".join(filter(None, map(held_up_by, found))))
    assert half.valid and whole.valid, (half.problems, whole.problems)
    used = [result.metrics["subject_cpu_cores"] for result in (half, whole)]
    assert 0.4 < used[0] < 0.56 and 1.5 < used[1] / used[0] < 2.4, used
    assert [result.metrics["cpu_quota_cores"] for result in (half, whole)] == [0.5, 1.0]
    assert half.metrics["cpu_throttled_share"] > 0.5
    assert half.bottleneck is not None and half.bottleneck.name == BottleneckName.CPU_QUOTA


@pytest.mark.crowded
def test_a_server_that_dies_of_its_memory_limit_says_so(tmp_path: Path) -> None:
    program = (
        "import sys; from wsgiref.simple_server import make_server; from keeper import app; "
        "make_server('127.0.0.1', int(sys.argv[1]), app).serve_forever()"
    )
    (tmp_path / "keeper.py").write_text(KEEPER)
    subject = Subject(name="keeper", command=(sys.executable, "-c", program, "{port}"), cwd=str(tmp_path))
    case = experiment(subject, short_load(duration_ns=5_000 * MS), host=HostUse(memory_limit_bytes=64 << 20))
    record = run_one(case, tmp_path)
    assert record.failure is not None and record.failure.code == "died", record.failure
    assert "killed by SIGKILL" in record.failure.message
    assert "wanted more than its memory limit of 64.0 MiB (host.memory_limit)" in record.failure.message
    assert record.memory_kills == 1


@pytest.mark.crowded
def test_a_server_that_loses_a_process_to_its_memory_limit_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "keeper.py").write_text(ONE_KEEPER)
    command = (*GUNICORN, "--chdir", str(tmp_path), "keeper:app")
    host = HostUse(memory_limit_bytes=128 << 20)
    case = experiment(Subject(name="gunicorn", command=command), short_load(duration_ns=2_000 * MS), host=host)
    record = run_one(case, tmp_path)
    assert record.failure is None and record.memory_kills
    result = measure(TrialDir(tmp_path / "0001"), record, case)
    said = [problem.message for problem in result.problems if problem.code == "memory_kills" and problem.fatal]
    assert said and f"killed {record.memory_kills} of the server's processes" in said[0]
    assert "limit of 128 MiB" in said[0]


# Alone: any other powerband that sets a limit is the next one, too.
def test_what_a_killed_powerband_left_is_removed_by_the_next(tmp_path: Path) -> None:
    options = ("--cpu-quota", "0.5", "--memory-limit", "256MiB", "--duration", "60s", "--runs", str(tmp_path))
    server = ("--", "{engine}", "serve", "--port", "{port}", "--threads", "{threads}")
    command = [sys.executable, "-m", "powerband", "tune", "-P", "threads=1,2", *options, *server]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as powerband:
        deadline_s = time.monotonic() + 60
        # A server enters all of its cgroups at once; those made before, to see whether limits can be set, stay empty.
        while not entered(powerband.pid):
            assert powerband.poll() is None and time.monotonic() < deadline_s, powerband.communicate()[1]
            time.sleep(0.01)
        made = made_by(powerband.pid)
        powerband.kill()
    deadline_s = time.monotonic() + 20
    while entered(powerband.pid) and time.monotonic() < deadline_s:
        time.sleep(0.02)  # the keeper ends the server
    assert made and made == made_by(powerband.pid)
    remove_abandoned()
    assert not made_by(powerband.pid)


def entered(pid: int) -> bool:
    """Whether a process is in one of the cgroups that this powerband made."""
    for folder in made_by(pid):
        with suppress(OSError):  # removed meanwhile
            if (folder / "cgroup.procs").read_text():
                return True
    return False


def made_by(pid: int) -> list[Path]:
    """The cgroups that this powerband made and that are still there."""
    found = [cgroups._hierarchy(name) for name in ("cpu", "memory")]
    folders = {folder for each in found if each is not None for folder in each.folders}
    return sorted(path for folder in folders for path in folder.glob(f"powerband-*-{pid}-*"))


# Alone: others may enable controllers of version 2 meanwhile, and keep them enabled.
def test_a_cgroup_of_version_2_is_made_entered_and_leaves_nothing_enabled() -> None:
    """The cgroup uses a controller that version 1 does not hold here, so that it is a real one on machines with both
    versions."""
    hierarchy = cgroups._hierarchy("hugetlb")
    if hierarchy is None or not hierarchy.is_v2:
        without("no controller of cgroups of version 2 is free here")
    enabled = [(folder / "cgroup.subtree_control").read_text() for folder in hierarchy.folders]
    with cgroups._made(hierarchy, ["hugetlb"]) as group:
        assert (group / "cgroup.controllers").read_text().split() == ["hugetlb"]
        with subprocess.Popen(["sh", "-c", f"echo $$ > {group}/cgroup.procs; exec sleep 60"]) as left:
            deadline_s = time.monotonic() + 30
            while str(left.pid) not in (group / "cgroup.procs").read_text() and time.monotonic() < deadline_s:
                time.sleep(0.01)
            cgroups._remove(group)
            assert left.wait(timeout=10) == -9
    assert not group.exists()
    assert [(folder / "cgroup.subtree_control").read_text() for folder in hierarchy.folders] == enabled


@pytest.mark.crowded
def test_who_may_make_no_cgroup_is_told_what_to_do() -> None:
    need_root()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with limited(HostUse(cpu_quota=0.5)):
                pass
        except MeasurementError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        said = told.read()
    os.waitpid(child, 0)
    assert said.startswith("host.cpu_quota cannot be set here: ") and "as a user of systemd" in said


@pytest.mark.crowded
def test_a_quota_of_powerband_itself_is_read_as_the_cpus_that_there_are() -> None:
    program = "from powerband.processes.host import host_facts; print(host_facts()['cpu']['cgroup_cpus_max'])"
    with of_some((sys.executable, "-c", program), cpus=1.5) as command:
        assert subprocess.check_output(command, text=True) == "1.5\n"
