"""The numbers of CPUs that runtimes are documented to count, and executables that do not have the form of elf(5)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from powerband.processes import runtimes
from powerband.processes.elf import Elf, ElfError
from powerband.processes.runtimes import Process, gomaxprocs, runtime_views, view_of

DOTNET = "7f00-7f01 r-xp 0 08:01 1 /usr/share/dotnet/shared/10.0.12/libcoreclr.so\n"


def process(
    folder: Path, allowed: int = 8, quota: float | None = None, environment: Mapping[str, str] | None = None
) -> Process:
    return Process(1, folder, environment or {}, 16, allowed, quota)


@pytest.mark.parametrize(
    ("information", "quota", "environment", "cpus"),
    [
        (b"\xff Go buildinf: go1.26.8", None, {}, 8),
        (b"go1.26.8", 2.5, {}, 3),  # rounded up
        (b"go1.25", 0.5, {}, 2),  # at least two
        (b"go1.26.8", 20.0, {}, 8),  # never more than the affinity
        (b"go1.24.9", 2.5, {}, 8),  # before Go 1.25 a quota had no effect
        (b"go1.26.8 build\tDefaultGODEBUG=containermaxprocs=0", 2.5, {}, 8),
        (b"go1.26.8", 2.5, {"GODEBUG": "gctrace=1,containermaxprocs=0"}, 8),
        (b"nonsense", 2.5, {}, 8),
    ],
)
def test_go_takes_the_affinity_and_since_its_version_25_the_quota(
    information: bytes, quota: float | None, environment: dict[str, str], cpus: int, tmp_path: Path
) -> None:
    assert gomaxprocs(process(tmp_path, 8, quota, environment), information) == cpus


def test_go_on_one_cpu_with_a_quota_has_one(tmp_path: Path) -> None:
    assert gomaxprocs(process(tmp_path, 1, 0.5), b"go1.26.8") == 1


def planted(folder: Path, mapped: str) -> Path:
    """A folder like /proc/PID with the executable of this Python."""
    (folder / "maps").write_text(mapped)
    (folder / "exe").symlink_to(Path("/proc/self/exe").readlink())
    return folder


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["go", "run", ".", "8080"], False),
        (["/usr/local/go/bin/go", "-C", "server", "run", "."], False),
        (["/tmp/go-build1/b001/exe/server", "8080"], True),
        (["server", "run"], True),
        ([], True),
    ],
)
def test_go_run_is_no_server_beside_the_one_that_it_started(
    words: list[str], seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elf, "section", lambda _, name: b"go1.26.8")
    monkeypatch.setattr(Elf, "symbol", lambda _, name: None)
    folder = planted(tmp_path, "")
    (folder / "cmdline").write_text("".join(f"{word}\0" for word in words))
    view = view_of(process(folder, 4), time.monotonic())
    assert (view is not None and (view.runtime, view.cpus) == ("Go", 4)) == seen


@pytest.mark.parametrize(
    ("version", "asked", "cpus", "source"),
    [("3.13", "5", 5, "set"), ("3.12", "5", 16, "derived"), ("3.13", "default", 16, "derived")],
)
def test_python_heeds_its_variable_since_3_13(version: str, asked: str, cpus: int, source: str, tmp_path: Path) -> None:
    folder = planted(tmp_path, f"7f00-7f01 r-xp 0 08:01 1 /usr/lib/libpython{version}.so.1.0\n")
    view = view_of(process(folder, environment={"PYTHON_CPU_COUNT": asked}), time.monotonic())
    assert view is not None and (view.runtime, view.cpus, view.source) == ("Python", cpus, source)


@pytest.mark.parametrize(("quota", "cpus", "usable"), [(None, 8, 8), (9.0, 8, 8), (2.0, None, 2)])
def test_node_takes_the_affinity_and_under_a_quota_it_is_not_known(
    quota: float | None, cpus: int | None, usable: float, tmp_path: Path
) -> None:
    """The release of libuv decides whether a quota counts, so the number of CPUs under a quota is unknown."""
    folder = planted(tmp_path, "7f00-7f01 r-xp 0 08:01 1 /usr/lib/libnode.so.108\n")
    view = view_of(process(folder, quota=quota, environment={"UV_THREADPOOL_SIZE": "5000"}), time.monotonic())
    assert view is not None and (view.runtime, view.cpus, view.usable) == ("Node.js", cpus, usable)
    assert view.chosen == {"UV_THREADPOOL_SIZE": "1024"}


@pytest.mark.parametrize(
    ("environment", "quota", "cpus", "source"),
    [
        ({}, None, 8, "derived"),
        ({}, 2.5, 3, "derived"),
        ({"DOTNET_PROCESSOR_COUNT": "10"}, 2.5, 10, "set"),
        ({"COMPlus_PROCESSOR_COUNT": "3"}, None, 3, "set"),
        ({"DOTNET_PROCESSOR_COUNT": "none"}, None, 8, "derived"),
    ],
)
def test_net_takes_the_affinity_and_the_quota(
    environment: dict[str, str], quota: float | None, cpus: int, source: str, tmp_path: Path
) -> None:
    folder = planted(tmp_path, DOTNET)
    view = view_of(process(folder, quota=quota, environment=environment), time.monotonic())
    assert view is not None and (view.runtime, view.cpus, view.source) == (".NET", cpus, source)


@pytest.mark.parametrize(("thread", "collector"), [(".NET Server GC", "Server"), (".NET TP Worker", "Workstation")])
def test_the_collector_of_net_is_known_by_its_threads(thread: str, collector: str, tmp_path: Path) -> None:
    folder = planted(tmp_path, DOTNET)
    for number, name in enumerate(("dotnet", thread)):
        (folder / "task" / str(number)).mkdir(parents=True)
        (folder / "task" / str(number) / "comm").write_text(f"{name}\n")
    view = view_of(process(folder), time.monotonic())
    assert view is not None and view.says == f"Environment.ProcessorCount 8 and the {collector} collector"


def test_this_process_is_seen_once_and_what_has_ended_not_at_all() -> None:
    pids = [os.getpid(), 2**22 + 1]
    (view,) = runtime_views(pids, working=pids)
    assert (view.runtime, view.processes, view.usable) == ("Python", 1, len(os.sched_getaffinity(0)))
    assert (view.cpus, view.source) == (os.cpu_count(), "derived")


def test_a_process_that_works_is_seen_also_if_its_runtime_is_not_known() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            pids = [os.getpid(), other.pid]
            assert [view.runtime for view in runtime_views(pids)] == ["Python"]
            assert [view.runtime for view in runtime_views(pids, working=[os.getpid()])] == ["Python"]
            assert {view.runtime for view in runtime_views(pids, working=pids)} == {"Python", ""}
        finally:
            other.kill()


@pytest.mark.parametrize(
    ("error", "seen"), [(FileNotFoundError, 0), (ProcessLookupError, 0), (PermissionError, 1), (ElfError, 1)]
)
def test_a_process_that_works_and_cannot_be_read_is_seen_unless_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], seen: int
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(runtimes, "view_of", fails)
    assert len(runtime_views([os.getpid()], working=[os.getpid()])) == seen


def test_no_other_variable_is_kept() -> None:
    found = Process.of(os.getpid())
    assert set(found.environment) <= {"GODEBUG", "GOMAXPROCS", "PYTHON_CPU_COUNT", "UV_THREADPOOL_SIZE"}


def test_an_executable_has_its_sections_and_one_without_symbols_says_so() -> None:
    with Elf(Path(sys.executable)) as exe:
        assert b"Py_BytesMain" in (exe.section(".dynstr") or b"")
        assert exe.section(".none") is None
        assert exe.symbol("runtime.gomaxprocs") is None


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(58), b"\x7fELF\x01\x01" + bytes(58)])
def test_what_is_no_such_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "exe"
    path.write_bytes(data)
    with pytest.raises(ElfError):
        Elf(path)


def test_one_that_was_cut_or_altered_is_refused_or_read(tmp_path: Path) -> None:
    whole = Path("/bin/true").read_bytes()
    path = tmp_path / "exe"
    for length in range(0, len(whole), max(1, len(whole) // 50)):
        path.write_bytes(whole[:length])
        with pytest.raises(ElfError):
            Elf(path)
    for at in range(64):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            with Elf(path) as exe:
                exe.section(".dynstr")
                exe.symbol("main")
        except ElfError:
            pass
