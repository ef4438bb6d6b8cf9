"""Fixtures for all tests: the path of the engine, a stop request, and a check that a test leaves no process behind."""

from __future__ import annotations

import gc
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from powerband.base.errors import MeasurementError
from powerband.base.machine import cache_folder
from powerband.processes.engine_fleet import find_engine
from powerband.processes.stop_request import StopRequest

MARK = "POWERBAND_TEST_MARK"

# A command that a test starts in another folder has to run this code and this engine, too.
for name in ("PYTHONPATH", "POWERBAND_ENGINE"):
    if paths := os.environ.get(name):
        os.environ[name] = os.pathsep.join(str(Path(path).absolute()) for path in paths.split(os.pathsep))

# A busy machine must not fail a property, so no example has a time limit, nor has what it is made of.
settings.register_profile("powerband", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("powerband")


E2E = Path(__file__).parent / "e2e"
BUILT = cache_folder() / "subjects"
GO_BUILT = os.environ.get("GOCACHE", str(cache_folder().parent / "go-build"))


def pytest_collection() -> None:
    """Collected tests live to the end of the run, so that the garbage collector leaves them out."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises UsageError if a test outside `tests/e2e` is marked e2e: `make test` finds such tests only there."""
    for item in items:
        if item.get_closest_marker("e2e") and not item.path.is_relative_to(E2E):
            raise pytest.UsageError(f"{item.nodeid} is marked e2e: it belongs into {E2E}")


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Points the cache at an empty folder, so that no forecast rests on what this machine measured before. The built
    subjects, which are keyed by a hash of their sources, and Go's build cache, which holds its compiled standard
    library, stay shared between all tests and the user."""
    home = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setenv("GOCACHE", GO_BUILT)
    if not (built := home / "powerband" / "subjects").is_symlink():
        BUILT.mkdir(parents=True, exist_ok=True)
        built.parent.mkdir(parents=True, exist_ok=True)
        built.symlink_to(BUILT)


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    request = StopRequest()
    yield request
    request.close()


@pytest.fixture(scope="session")
def engine() -> Path:
    """The path of the real engine: $POWERBAND_ENGINE or the installed one."""
    problem = ""
    try:
        return find_engine()
    except MeasurementError as error:
        problem = str(error)
    pytest.fail(f"this test needs the engine: {problem}", pytrace=False)


@pytest.fixture
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Marks every process that the test starts, by an environment variable, and fails if one of them outlives the
    test."""
    mark = f"{MARK}={uuid.uuid4()}"
    monkeypatch.setenv(MARK, mark.partition("=")[2])
    yield
    deadline = time.monotonic() + 60.0  # a process of the lowest priority ends late on a busy machine
    while (left := marked_processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"left behind: {left}"


def marked_processes(mark: str) -> dict[int, str]:
    """Command lines of all living processes that were started with this entry in their environment."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found
