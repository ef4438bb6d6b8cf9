"""Fixtures that several of these modules share. A failed test also reports how much CPU it had."""

from __future__ import annotations

import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from fakes.dashboards import watch
from fakes.needs import need_javac
from fakes.report_browser import browser, look, shared_pages, visit
from fakes.stand import FAKES
from powerband.processes.ports import pick_port
from powerband.search.noise import cpu_times

__all__ = ["browser", "look", "shared_pages", "visit", "watch"]

_BEFORE = pytest.StashKey[dict[str, float]]()


@pytest.fixture
def url(engine: Path, no_process_left: None) -> Iterator[str]:
    """The URL of a reference server that answers at once."""
    port = pick_port()
    with subprocess.Popen([engine, "serve", "--port", str(port)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert b"listening" in server.stdout.readline()
        yield f"http://127.0.0.1:{port}/"
        server.terminate()


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the class `LeakyServer`."""
    need_javac()
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-d", folder, FAKES / "LeakyServer.java"], check=True, timeout=120)
    return folder


@pytest.fixture(autouse=True)
def quick_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests marked `crowded` compile JVM code with C1 alone, since C2 costs more than it gains in a JVM that lives for
    seconds."""
    if request.node.get_closest_marker("crowded"):
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEFORE] = cpu_times()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _BEFORE in item.stash:
        now, before = cpu_times(), item.stash[_BEFORE]
        busy, stolen = (now[name] - before[name] for name in ("busy", "steal"))
        report.sections.append(("host", f"the hypervisor took {stolen / max(1.0, busy + stolen):.0%} of the busy time"))
    return report
