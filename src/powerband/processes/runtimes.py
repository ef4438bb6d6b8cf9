"""Finds how many CPUs the runtimes of a subject's processes believe to have: JVM, Go, .NET, Node.js, Python.

In: pids. Out: views (`model/runtime.py`). A runtime is recognised by what is mapped into the process or exported by its
executable, never by its name. A JVM is asked. Go's number is read from its memory if its symbols are there. All others
follow from the environment, the CPU affinity and the cgroup's quota, as each runtime documents it. A process that
cannot be looked at has no known runtime; that is no error here. Of an environment, only the few variables named here
are read.
Sources: docs/methods/cpus.md.
"""

from __future__ import annotations

import math
import os
import re
import struct
import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from powerband.model.runtime import RuntimeView
from powerband.processes.cgroups import quota_of
from powerband.processes.elf import Elf, ElfError
from powerband.processes.go_memory import GO_SECTION, GO_VERSION, PROCESSES_MAX, loaded_at
from powerband.processes.jvm_attach import NotAnsweredError, answer_of

_DOTNET_COUNTS = ("DOTNET_PROCESSOR_COUNT", "COMPlus_PROCESSOR_COUNT")  # the first one that is set counts
_VARIABLES = ("GODEBUG", "GOMAXPROCS", "PYTHON_CPU_COUNT", "UV_THREADPOOL_SIZE", *_DOTNET_COUNTS)
_ANSWERS_S = 5.0  # for all JVMs together, as for thread names
_GO_SYMBOL = "runtime.gomaxprocs"
_NODE_SYMBOL = b"\0_ZN4node5StartEiPPc\0"  # node::Start(int, char**)
_PYTHON_SYMBOL = b"\0Py_BytesMain\0"
_COLLECTOR = re.compile(r"-XX:\+Use(\w+)GC\b")
_PROCESSORS = re.compile(r"^CPU:.*\(initial active (\d+)\)", re.MULTILINE)
_GO_QUOTA_LEAST = 2  # Go rounds a smaller quota up to two
_GO_QUOTA_FROM = (1, 25)  # the first version of Go that obeys a quota
_GO_MOST = 1 << 16  # arbitrary: a number beyond any machine's CPUs was read from the wrong place
_PYTHON_VERSION = re.compile(r"python3\.(\d+)")
_PYTHON_ASKED_FROM = 13  # the first 3.x with PYTHON_CPU_COUNT
_SERVER_COLLECTOR, _DOTNET_MOST = ".NET Server GC", 0xFFFF
_NODE_THREADS, _NODE_THREADS_MOST = 4, 1024  # libuv's default and limit
_OTHER = RuntimeView("", 1, "", None, "", 0.0)


@dataclass(frozen=True)
class Process:
    """The kernel's facts about a process that determine its runtime's view. `pid`, and its `folder` below /proc.
    `environment`: the few variables that runtimes obey, as far as they are set. `online`: CPUs of the machine;
    `allowed`: those of its affinity mask; `quota`: CPUs that its cgroup allows, None if there is no limit."""

    pid: int
    folder: Path
    environment: Mapping[str, str]
    online: int
    allowed: int
    quota: float | None

    @classmethod
    def of(cls, pid: int) -> Process:
        """Reads the facts of a process. Raises OSError if it may not be looked at, or has ended."""
        folder = Path("/proc", str(pid))
        pairs = (entry.partition(b"=") for entry in (folder / "environ").read_bytes().split(b"\0"))
        found = {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}
        environment = {name: found[name] for name in _VARIABLES if name in found}
        allowed = len(os.sched_getaffinity(pid))
        return cls(pid, folder, environment, os.cpu_count() or allowed, allowed, quota_of(pid))

    @property
    def usable(self) -> float:
        """CPUs that it may use on average: those of its affinity mask, or its quota if that is less."""
        return self.allowed if self.quota is None else min(self.allowed, self.quota)

    @property
    def exe(self) -> Path:
        """The executable, as a link below /proc."""
        return self.folder / "exe"

    def number(self, name: str) -> int | None:
        """Returns the value of a variable that is a positive whole number; None for any other."""
        text = self.environment.get(name, "").strip()
        return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None

    def view(self, runtime: str, call: str, cpus: int | None, source: str, **chosen: str) -> RuntimeView:
        """Returns the view of this one process; the arguments are fields of `RuntimeView`."""
        return RuntimeView(runtime, 1, call, cpus, source, self.usable, chosen)


def runtime_views(pids: Iterable[int], working: Container[int] = ()) -> tuple[RuntimeView, ...]:
    """Returns the views of the first 64 processes; equal views are merged. `working`: the processes that do the work:
    if none of the runtimes is known of such a one, it has a view without a name, and any other process has none, nor
    has one that has ended. Asks JVMs, which costs each some milliseconds, so it must not be called while anything is
    measured."""
    found: list[RuntimeView] = []
    deadline_s = time.monotonic() + _ANSWERS_S
    for pid in sorted(pids)[:PROCESSES_MAX]:
        view = _view_or(_OTHER if pid in working else None, pid, deadline_s)
        if view is None:
            continue
        same = next((at for at, other in enumerate(found) if replace(other, processes=1) == view), None)
        if same is None:
            found.append(view)
        else:
            found[same] = replace(found[same], processes=found[same].processes + 1)
    return tuple(found)


def _view_or(other: RuntimeView | None, pid: int, deadline_s: float) -> RuntimeView | None:
    """The view of one process; `other` if its runtime is not known, None if it has ended."""
    try:
        return view_of(Process.of(pid), deadline_s) or other
    except (FileNotFoundError, ProcessLookupError):
        return None
    except (OSError, ElfError, struct.error):
        return other


def view_of(process: Process, deadline_s: float) -> RuntimeView | None:
    """Returns the view of one process; None if it has none of the runtimes that are known here, or is `go run`, which
    waits for the program that it has built. Raises OSError, ElfError or struct.error if the process or its executable
    cannot be read."""
    mapped = (process.folder / "maps").read_text(errors="replace")
    if "/libjvm.so" in mapped:
        return _jvm(process, deadline_s)
    if "/libcoreclr.so" in mapped:
        return _dotnet(process)
    with Elf(process.exe) as exe:
        information = exe.section(GO_SECTION)
        if information is not None:
            return None if _is_go_run(process) else _go(process, exe, information)
        exported = exe.section(".dynstr") or b""
    if _NODE_SYMBOL in exported or "/libnode.so" in mapped:
        return _node(process)
    if _PYTHON_SYMBOL in exported or "/libpython3" in mapped:
        return _python(process, mapped)
    return None


def _jvm(process: Process, deadline_s: float) -> RuntimeView:
    """Reads what availableProcessors gave at the start from `VM.info`, and the chosen collector from `VM.flags`."""
    flags = _answer(process.pid, "VM.flags", deadline_s)
    info = _answer(process.pid, "VM.info", deadline_s) if flags else ""
    collector, processors = _COLLECTOR.search(flags), _PROCESSORS.search(info)
    chosen = {} if collector is None else {"collector": collector[1]}
    if processors is not None:
        return process.view("JVM", "availableProcessors", int(processors[1]), "asked", **chosen)
    return process.view("JVM", "availableProcessors", math.ceil(process.usable), "derived", **chosen)


def _answer(pid: int, command: str, deadline_s: float) -> str:
    """Returns the JVM's answer; empty if it cannot be asked, or does not answer in time."""
    with suppress(NotAnsweredError):
        return answer_of(pid, "jcmd", command, deadline_s=deadline_s)
    return ""


def _is_go_run(process: Process) -> bool:
    words = (process.folder / "cmdline").read_bytes().split(b"\0")
    return Path(os.fsdecode(words[0])).name == "go" and b"run" in words[1:4]  # `go -C folder run`


def _go(process: Process, exe: Elf, information: bytes) -> RuntimeView:
    call = "GOMAXPROCS"
    now = _in_memory(process, exe)
    if now is not None:
        return process.view("Go", call, now, "read")
    if (asked_for := process.number("GOMAXPROCS")) is not None:
        return process.view("Go", call, asked_for, "set")
    return process.view("Go", call, gomaxprocs(process, information), "derived")


def gomaxprocs(process: Process, information: bytes) -> int:
    """Returns the default of a Go program (`runtime/debug.go`, `runtime/cgroup_linux.go` of Go 1.26): its affinity;
    from Go 1.25 on no more than the quota rounded up, but at least two. `information`: the section `.go.buildinfo`,
    which contains Go's version and, for a module written for an older one, `containermaxprocs=0`."""
    version = GO_VERSION.search(information)
    new = version is not None and (int(version[1]), int(version[2])) >= _GO_QUOTA_FROM
    debug = process.environment.get("GODEBUG", "").encode() + information
    if process.quota is None or not new or b"containermaxprocs=0" in debug:
        return process.allowed
    return min(process.allowed, max(_GO_QUOTA_LEAST, math.ceil(process.quota)))


def _in_memory(process: Process, exe: Elf) -> int | None:
    """Returns the current value of `runtime.gomaxprocs`; None if there are no symbols, or if the memory may not be
    read."""
    address = exe.symbol(_GO_SYMBOL)
    if address is None:
        return None
    with suppress(OSError, ValueError, struct.error):
        if exe.movable:
            address += loaded_at(process.folder) - exe.first_address
        with (process.folder / "mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            (value,) = struct.unpack("<i", memory.read(4))
        return value if 0 < value <= _GO_MOST else None
    return None


def _dotnet(process: Process) -> RuntimeView:
    """`Environment.ProcessorCount` is the affinity, at most the quota rounded up, or else what the variable says. Only
    the server collector has threads of its own for each heap; on one CPU .NET does not use it even if asked to."""
    server = any(_SERVER_COLLECTOR in name.read_text(errors="replace") for name in process.folder.glob("task/*/comm"))
    chosen = {"collector": "Server" if server else "Workstation"}
    asked_for = next((count for name in _DOTNET_COUNTS if (count := process.number(name))), None)
    if asked_for is not None and asked_for <= _DOTNET_MOST:
        return process.view(".NET", "Environment.ProcessorCount", asked_for, "set", **chosen)
    return process.view(".NET", "Environment.ProcessorCount", math.ceil(process.usable), "derived", **chosen)


def _node(process: Process) -> RuntimeView:
    """`uv_available_parallelism` is the affinity; whether a quota counts depends on the release of libuv."""
    limited = process.quota is not None and process.quota < process.allowed
    threads = min(process.number("UV_THREADPOOL_SIZE") or _NODE_THREADS, _NODE_THREADS_MOST)
    return process.view(
        "Node.js",
        "os.availableParallelism()",
        None if limited else process.allowed,
        "derived",
        UV_THREADPOOL_SIZE=str(threads),
    )


def _python(process: Process, mapped: str) -> RuntimeView:
    """`os.cpu_count()` counts the machine's CPUs, whatever the affinity; from Python 3.13 on PYTHON_CPU_COUNT overrides
    it."""
    version = _PYTHON_VERSION.search(mapped)
    asked_for = process.number("PYTHON_CPU_COUNT")
    if asked_for is not None and version is not None and int(version[1]) >= _PYTHON_ASKED_FROM:
        return process.view("Python", "os.cpu_count()", asked_for, "set")
    return process.view("Python", "os.cpu_count()", process.online, "derived")
