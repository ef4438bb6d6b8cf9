"""The servers in `examples/` that need a build are built as their pages say, and measured by the commands of these
pages, only shorter. Needs Node and npm, or a JDK of 21 or later and Maven: skipped without, unless
POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.guides import (
    PAUSING,
    answered,
    block_of,
    by_level,
    knobs,
    levelled,
    load,
    most,
    serving,
    sets,
    shorter,
    shown,
    typed,
    words_of,
)
from fakes.needs import need_jdk, need_node
from fakes.pages import ROOT
from fakes.smoke import CALM
from powerband.processes.ports import pick_port

pytestmark = [
    pytest.mark.long,
    pytest.mark.e2e,
    pytest.mark.crowded,
    pytest.mark.usefixtures("engine", "no_process_left"),
]

LONGER = ("--duration", "1s", "--warmup", "1s")


def built(name: str, checkout: Path, command: str) -> Path:
    """A copy of an example in a checkout, without what was built in it before, after this command of a page."""
    artefacts = shutil.ignore_patterns("node_modules", "target")
    folder = Path(shutil.copytree(ROOT / "examples" / name, checkout / "examples" / name, ignore=artefacts))
    subprocess.run(["bash", "-ec", command], cwd=checkout, check=True, capture_output=True, timeout=600)
    return folder


def joined(trials: list[dict[str, Any]], users: int) -> bool:
    """Whether most of the users joined at each number of processes, and no more: a busy machine may keep some
    waiting."""
    return all(users / 2 < metrics["joined_users"] <= users for metrics in by_level(trials, "processes").values())


def test_the_websocket_server(tmp_path: Path) -> None:
    """The server is measured by the page's command, by its file, and while it already runs."""
    need_node()
    folder = built("ws-server", tmp_path, typed("websocket.md", "cd examples"))
    command = shorter(shown("websocket.md", "tune"), {"processes": "1,2"}, *LONGER)
    trials = answered(folder, *command)
    assert set(by_level(trials, "processes")) == {1, 2}
    assert joined(trials, 64)

    (folder / "my-websocket.yaml").write_text(block_of("websocket.md", "name: my-websocket"))
    options = ("factors.processes=[2]", "load.users=50", "load.duration=1s", "measure.warmup=1s", "measure.repeats=1")
    trials = answered(folder, "run", "my-websocket.yaml", "--format", "json", *CALM, *sets(*options))
    assert joined(trials, 50)

    port = pick_port()
    joining, pace = words_of("websocket.md", "--users"), words_of("websocket.md", "--pace")
    running = words_of("websocket.md", "powerband load ws:")
    given = [word.replace("2000", "20").replace("6s", "100ms") for word in (*running[2:], *joining, *pace)]
    given = [word.replace(":8000/", f":{port}/") for word in given]
    with serving(folder, port, "node", "server.js", str(port), "1"):
        load(folder, *given)


def test_the_spring_boot_application(tmp_path: Path) -> None:
    """The server is tuned by the page's command, with all that the page adds to it, and by a knob that is set while it
    runs. A request takes 20 ms, so a limit of 1 allows at most 50 requests a second."""
    need_jdk(maven=True)
    folder = built("boot-app", tmp_path, typed("jvm-servers.md", "cd examples"))
    command = shown("jvm-servers.md", "tune")
    (backlog,), (virtual, virtual_threads), (pool,), jvm, *_ = knobs("jvm-servers.md")
    levels = {"backlog": "50", "pool": "4", "heap": "256m", "cpus": "2", "gc": "Serial"}
    factors = [word for name, level in levels.items() for word in ("-P", f"{name}={level}")]
    jar = command.index("-jar")
    options = [word for span in jvm for word in span]
    every = [*command[:jar], *options, *command[jar:], *backlog, *virtual_threads, *pool]
    # By default the server gets all CPUs only after a first trial that is then discarded.
    given = [*factors, *levelled(virtual, {"virtual": "true"}), *LONGER, *PAUSING, "--cpus", "all"]
    trials = answered(folder, *shorter(every, {"threads": "64"}, *given))
    assert set(by_level(trials, "threads")) == {64}

    options = (
        "factors.limit=[1, 32]",
        "load.duration=3s",
        "measure.warmup=2s",
        "measure.repeats=1",
        "measure.slots=false",
        "host.cpus=all",
        "subject.ready.timeout=2m",
    )
    found = by_level(answered(folder, "run", "live-limit.yaml", "--format", "json", *CALM, *sets(*options)), "limit")
    assert 0 < found[1]["goodput_per_s"] <= most(50, 100, 3.0)
    assert found[32]["goodput_per_s"] > 2 * found[1]["goodput_per_s"]
    # A late load engine keeps some of them from sending their next request.
    assert 50 < found[1]["app_busy_threads"] <= 110, "all users wait in a thread of Tomcat's"
