"""Real servers in which something grows with each request: told with the time to its limit; what fills up is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import powerband
from fakes.needs import need_jdk, need_node
from fakes.stand import FAKES

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

PYTHON = [sys.executable, str(FAKES / "growing_server.py"), "{port}"]


def measured(folder: Path, command: list[str], **load: Any) -> powerband.Run:
    case = {
        "name": "growing",
        "subject": {"command": command},
        "load": {"users": 8, "duration": "7s", **load},
        "measure": {"warmup": "1s", "repeats": 2, "foreign_cpu_max": "100%", "steal_max": "100%"},
    }
    return powerband.run(case, runs=folder)


def value(run: powerband.Run, metric: str) -> float:
    (row,) = run.analysis.settings
    return row.estimates[metric].value


@pytest.mark.parametrize(
    ("what", "metric", "said"),
    [
        ("memory", "memory_growth_bytes_per_s", "memory grows by "),
        ("threads", "threads_growth_per_s", "threads grow by "),
        ("descriptors", "descriptors_growth_per_s", "file descriptors grow by "),
    ],
)
def test_what_grows_with_each_request_is_told(what: str, metric: str, said: str, tmp_path: Path) -> None:
    run = measured(tmp_path, [*PYTHON, what])
    rate = value(run, "goodput_per_s")
    each = {"memory": 8192, "threads": 1 / 20, "descriptors": 1}[what]
    assert value(run, metric) == pytest.approx(rate * each, rel=0.3)
    (warning,) = [warning for warning in run.analysis.warnings if "may not last" in warning]
    assert said in warning
    # No limit of threads is known; that of descriptors is near, that of memory as far as the machine is large.
    if what == "descriptors":
        assert said in run.answer.sentences[0] and "used up in " in run.answer.sentences[0]


@pytest.mark.parametrize("what", ["nothing", "cache"])
def test_what_does_not_grow_for_ever_is_not_accused(what: str, tmp_path: Path) -> None:
    run = measured(tmp_path, [*PYTHON, what], users=32)
    assert value(run, "memory_growth_bytes_per_s") == 0
    assert not [warning for warning in run.analysis.warnings if "may not last" in warning]


def test_a_leak_of_node(tmp_path: Path) -> None:
    need_node()
    run = measured(tmp_path, ["node", str(FAKES / "leaky_server.js"), "{port}", "8"], think="5ms")
    assert value(run, "memory_growth_bytes_per_s") == pytest.approx(8192 * value(run, "goodput_per_s"), rel=0.5)


@pytest.mark.parametrize(("kib", "leaks"), [(64, True), (0, False)])
def test_a_jvm_that_warms_up_is_not_accused_and_one_that_leaks_is(kib: int, leaks: bool, tmp_path: Path) -> None:
    need_jdk()
    subprocess.run(["javac", "-d", tmp_path, FAKES / "LeakyServer.java"], check=True, timeout=120)
    options = ["-Xmx2g", "-Xmn4m", "-XX:+UseSerialGC", "-cp", str(tmp_path)]
    run = measured(tmp_path / "runs", ["java", *options, "LeakyServer", "{port}", str(kib)])
    found = [warning for warning in run.analysis.warnings if "memory grows by " in warning]
    assert bool(found) == leaks, (found, [trial.metrics.get("jvm_gc_per_s") for trial in run.analysis.trials])
