"""Real servers in which something grows with each request get a warning with the time to its limit; caches and heaps
that fill up get none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import powerband
from fakes.needs import need_jdk, need_node, without
from fakes.real_builds import java_classes
from fakes.stand import FAKES
from powerband.model.plan import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

LONG = pytest.mark.long
RUNS, ALARMS_MOST = 20, 1  # docs/methods/lasting.md has both
RATE_PER_S = 400
METRICS = {
    "memory": ("memory_growth_bytes_per_s", "memory grows by "),
    "threads": ("threads_growth_per_s", "threads grow by "),
    "descriptors": ("descriptors_growth_per_s", "file descriptors grow by "),
}


# What grows must do so in each part of the window, which on a busy machine stands still now and then.
ALL_THROUGH = "6s"


def measured(folder: Path, command: Sequence[str | Path], duration: str = "2s") -> powerband.Run:
    case = {
        "name": "growing",
        "subject": {"command": [str(word) for word in command]},
        # A busy machine too keeps so coarse a schedule.
        "load": {"rate": RATE_PER_S, "arrivals": "constant", "precision": "50ms", "duration": duration, "drain": "1s"},
        "measure": {"warmup": "300ms", "repeats": 2, "foreign_cpu_max": "100%", "steal_max": "100%"},
    }
    return powerband.run(case, runs=folder)


def python(what: str) -> list[str | Path]:
    return [sys.executable, FAKES / "growing_server.py", "{port}", what]


def accused(run: powerband.Run) -> list[str]:
    return [warning for warning in run.analysis.warnings if "may not last" in warning]


def grows(run: powerband.Run, what: str, each: float, *, rel: float = 0.3) -> None:
    """Checks that the resource grows by `each` a request, and that a warning says so, with the time to a limit; other
    tests may free the memory that this one takes."""
    metric, said = METRICS[what]
    (row,) = run.analysis.settings
    served = row.estimates["achieved_rate_per_s"].value
    assert row.estimates[metric].value == pytest.approx(served * each, rel=rel)
    (warning,) = accused(run)
    assert said in warning and (what == "memory" or ", " in warning.split(said)[1]), warning


@pytest.mark.crowded
@pytest.mark.parametrize(
    ("what", "each"),
    [pytest.param("threads", 1 / 20, marks=LONG), ("descriptors", 1)],
)
def test_what_grows_with_each_request_is_told(what: str, each: float, tmp_path: Path) -> None:
    run = measured(tmp_path, python(what), ALL_THROUGH)
    grows(run, what, each)
    if what == "descriptors":
        said = METRICS[what][1]
        assert said.capitalize() in run.answer.sentences[0] and "used up in " in run.answer.sentences[0]


@pytest.mark.crowded
@LONG
def test_a_queue_that_grows_is_told(tmp_path: Path) -> None:
    """The server answers 200/s at most: it has one slot, and a request takes 5 ms."""
    run = measured(tmp_path, python("queue"), ALL_THROUGH)
    (row,) = run.analysis.settings
    served = row.estimates["achieved_rate_per_s"].value
    assert row.estimates["queue_growth_per_s"].value == pytest.approx(RATE_PER_S - served, rel=0.3)
    assert "the queue of unanswered requests grows by " in accused(run)[0]


@pytest.mark.crowded
def test_a_cache_that_fills_is_not_accused(tmp_path: Path) -> None:
    assert not accused(measured(tmp_path, python("cache")))


@pytest.mark.crowded
@LONG
def test_a_leak_of_node(tmp_path: Path) -> None:
    need_node()
    run = measured(tmp_path, ["node", FAKES / "leaky_server.js", "{port}", "64"], ALL_THROUGH)
    grows(run, "memory", 65536, rel=0.5)


@pytest.fixture(scope="module")
def go_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        without("no Go here: install Debian's package golang-go")
    program = tmp_path_factory.mktemp("go") / "leaky_server"
    subprocess.run(["go", "build", "-o", program, FAKES / "leaky_server.go"], check=True, timeout=120)
    return program


@pytest.mark.crowded
@LONG
def test_leaks_of_go(go_server: Path, tmp_path: Path) -> None:
    """Each request opens a connection to the server itself, which takes two descriptors, and some 30 kB of buffers and
    stacks at its two ends."""
    run = measured(tmp_path, [go_server, "{port}", "memory", "connections"], ALL_THROUGH)
    grows(run, "descriptors", 2)
    grows(run, "memory", 65536 + 30_000, rel=0.6)


@pytest.mark.crowded
@LONG
def test_garbage_of_go_is_not_accused(go_server: Path, tmp_path: Path) -> None:
    assert not accused(measured(tmp_path, [go_server, "{port}"]))


def sessions(folder: Path) -> Path:
    """The class path of a server that keeps data of each request."""
    need_jdk()
    subprocess.run(["javac", "-d", folder, FAKES / "LeakyServer.java"], check=True, timeout=120)
    return folder


@LONG
@pytest.mark.parametrize("most", [None, pytest.param("100", marks=pytest.mark.crowded)])
def test_a_jvm_that_leaks_is_told_and_one_that_fills_its_old_generation_is_not(
    most: str | None, tmp_path: Path
) -> None:
    """Replaced sessions survive young collections, and no full collection happens in so short a window. A JVM that
    warms up has this too. By default a full collection may leave 5 % of the old generation as dead wood, which would
    count as living (docs/methods/lasting.md)."""
    options = ["-Xmx1g", "-Xmn2m", "-XX:+UseSerialGC", "-XX:MarkSweepDeadRatio=0", "-cp", sessions(tmp_path)]
    command = ["java", *options, "LeakyServer", "{port}", "64", *([most] if most else [])]
    run = measured(tmp_path / "runs", command, "2s" if most else ALL_THROUGH)
    growths = [trial.metrics.get("memory_growth_bytes_per_s") for trial in run.analysis.trials]
    if most:
        # On a busy machine a trial may have too few collections to know.
        assert 0.0 in growths and not any(growths) and not accused(run)
        return
    grows(run, "memory", 65536, rel=0.5)
    assert "full in " in run.answer.sentences[0]


@pytest.mark.crowded
def test_a_soak_shows_that_a_leak_goes_on(tmp_path: Path) -> None:
    case = {
        "name": "soaked",
        "subject": {"command": [str(word) for word in python("memory")]},
        "load": {"rate": RATE_PER_S, "arrivals": "constant", "precision": "50ms", "duration": "1s"},
        "measure": {"warmup": "300ms", "repeats": 2, "foreign_cpu_max": "100%", "steal_max": "100%"},
        "design": {"soak": "6s"},
    }
    run = powerband.run(case, runs=tmp_path)
    soak = run.analysis.soak
    assert soak is not None and soak.lasts is False
    # A soak that a busy machine spoils is repeated.
    stages = [trial.stage for trial in run.analysis.trials]
    assert stages == sorted(stages, key=[Stage.COMPARE, Stage.SOAK].index) and stages.count(Stage.COMPARE) >= 2
    assert run.analysis.trials[-1].warmup_s == pytest.approx(3, abs=0.2)
    memory = next(figure for figure in soak.figures if figure.metric == "rss_bytes_max")
    assert memory.before is not None and memory.soaked > memory.before
    assert "to the end memory grows by " in run.answer.sentences[0]
    # A run that is read back gives the same sentences.
    assert powerband.read(run.path).answer.sentences == run.answer.sentences


@pytest.mark.table
@pytest.mark.parametrize("server", ["a JVM that warms up", "a heap that grows to its bound", "a cache that fills"])
def test_what_fills_up_is_hardly_ever_accused(server: str, tmp_path: Path) -> None:
    """Each run takes two minutes. The heap begins at 16 MiB and grows to its maximum of 256 MiB."""
    if server == "a cache that fills":
        command = python("cache")
    elif server == "a JVM that warms up":
        need_jdk()
        command = ["java", "-cp", java_classes(), "Server", "{port}", "cpu", "1", "4"]
    else:
        heap = ["-Xms16m", "-Xmx256m", "-XX:+UseG1GC", "-cp", sessions(tmp_path)]
        command = ["java", *heap, "LeakyServer", "{port}", "64", "100"]
    alarms = [accused(measured(tmp_path / f"run-{number}", command)) for number in range(RUNS)]
    sys.stderr.write(f"{server}: {sum(map(bool, alarms))} of {RUNS} runs raised an alarm\n")
    assert sum(map(bool, alarms)) <= ALARMS_MOST, alarms
