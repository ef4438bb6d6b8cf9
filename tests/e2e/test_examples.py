"""The servers in `examples/` that need a build are built as their pages say, and measured by the commands of these
pages, only shorter. Needs Node and npm, or a JDK of 21 or later and Maven: skipped without, unless
POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.needs import need_jdk, need_node
from fakes.pages import ROOT, commands
from fakes.smoke import CALM, LATE, exit_code

pytestmark = [
    pytest.mark.long,
    pytest.mark.e2e,
    pytest.mark.crowded,
    pytest.mark.usefixtures("engine", "no_process_left"),
]

SHORT = ("--duration", "3s", "--warmup", "3s", "--repeats", "1", "--order", "blocks", "--format", "json")


def copied(name: str, folder: Path) -> Path:
    """A copy of an example without what was built in it before."""
    built = shutil.ignore_patterns("node_modules", "target")
    return Path(shutil.copytree(ROOT / "examples" / name, folder / name, ignore=built))


def measured(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Runs a command and returns its trials, which were all measured, with every request answered. A busy machine may
    leave some users waiting for the whole of so short a window."""
    command = [sys.executable, "-m", "powerband", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    analysis = json.loads(done.stdout)
    # A busy machine may make all trials invalid.
    assert done.returncode == exit_code(analysis, {*LATE, "host_foreign", "host_steal"}), done.stderr
    trials: list[dict[str, Any]] = analysis["trials"]
    for trial in trials:
        assert trial["status"] == "measured", trial["problems"]
        metrics = trial["metrics"]
        assert metrics["error_rate"] == pytest.approx(metrics.get("users_unserved_share", 0.0)), trial["problems"]
        assert metrics["goodput_per_s"] > 0
    return trials


def shown(page: str, start: Sequence[str], levels: str, *more: str) -> list[str]:
    """The command of a page that begins with `start`, with these levels in place of its own, shorter, and with more
    options."""
    (given,) = [given for given in commands((ROOT / "docs" / page).read_text()) if given[: len(start)] == list(start)]
    at, server = given.index("-P") + 1, given.index("--")
    assert given[at] != levels
    return [*given[:at], levels, *given[at + 1 : server], *SHORT, *more, *given[server:]]


def levels(trials: Sequence[dict[str, Any]], factor: str) -> set[Any]:
    return {trial["setting"]["levels"][factor] for trial in trials}


def test_the_websocket_server(tmp_path: Path) -> None:
    need_node()
    folder = copied("ws-server", tmp_path)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True, capture_output=True, timeout=300)
    trials = measured(folder, *shown("websocket.md", ["tune", "-P", "processes=1,2,4"], "processes=1,2"))
    assert levels(trials, "processes") == {1, 2}
    assert all(trial["metrics"]["joined_users"] == 64 for trial in trials)


def test_the_spring_boot_application(tmp_path: Path) -> None:
    """The server is tuned by an option of its command line, and by a knob that is set while it runs. A request takes 20
    ms, so a limit of 1 allows at most 50 requests a second."""
    need_jdk(maven=True)
    folder = copied("boot-app", tmp_path)
    subprocess.run(["mvn", "-q", "-B", "package"], cwd=folder, check=True, capture_output=True, timeout=600)
    # By default the server gets all CPUs only after a first trial that is then discarded.
    command = shown("jvm-servers.md", ["tune", "-P", "threads=8..128"], "threads=4,64", "--cpus", "all")
    trials = measured(folder, *command)
    assert levels(trials, "threads") == {4, 64}
    options = (
        "factors.limit=[1, 32]",
        "load.duration=5s",
        "measure.warmup=3s",
        "measure.repeats=1",
        "measure.slots=false",
        "host.cpus=all",
    )
    words = [*CALM, *(word for option in options for word in ("--set", option))]
    trials = measured(folder, "run", "live-limit.yaml", "--format", "json", *words)
    found = {trial["setting"]["levels"]["limit"]: trial["metrics"] for trial in trials}
    assert 0 < found[1]["goodput_per_s"] <= 52 and found[32]["goodput_per_s"] > 2 * found[1]["goodput_per_s"]
    assert found[1]["app_busy_threads"] == pytest.approx(100, rel=0.1), "all users wait in a thread of Tomcat's"
