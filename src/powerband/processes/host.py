"""Collects the facts about this machine that a result depends on, for `host.json`, from /proc and /sys. Nothing is
changed.

A fact that cannot be read is None, never a guess. Every file is read below a root folder, so that tests can plant one.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from powerband.base.version import __version__
from powerband.processes.cgroups import quota_of
from powerband.processes.cpus import parse_cpu_list

_GIT_WITHIN_S = 5.0  # arbitrary: the largest checkouts take about a second
_DOCUMENTATION = (":(top,exclude)docs", ":(top,exclude)*.md")
PERF_CAPABILITIES = (38, 21)  # CAP_PERFMON, CAP_SYS_ADMIN


def host_facts(engine: Path | None = None, root: Path = Path("/"), command: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the facts as plain JSON types. `engine`: the binary whose version is wanted; `command`: what was typed,
    without secrets. Takes a few ms. docs/reference/run-directory.md describes each field."""
    read = _HostReader(root)
    load, uptime = ((read.text(path) or "").split() for path in ("proc/loadavg", "proc/uptime"))
    capabilities = int(read.field("proc/self/status", "CapEff") or "0", 16)
    return {
        "format": 1,
        "wall_s": round(time.time(), 3),
        "hostname": socket.gethostname(),
        "kernel": f"{platform.system()} {platform.release()}",
        "kernel_build": platform.version(),
        "machine": platform.machine(),
        "distribution": read.field("etc/os-release", "PRETTY_NAME"),
        "virtualisation": _virtualisation(read),
        "container": _container(read),
        "cpu": _cpu(read),
        "memory": _memory(read),
        "limits": _limits(read),
        "network": _network(read),
        "clock_source": read.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "psi": read.text("proc/pressure/cpu") is not None,
        "perf_event_paranoid": read.number("proc/sys/kernel/perf_event_paranoid"),
        # True if this process's capabilities lift what `perf_event_paranoid` forbids.
        "perf_permitted": any(capabilities >> bit & 1 for bit in PERF_CAPABILITIES),
        "load_average": [float(field) for field in load[:3]] or None,
        "uptime_s": float(uptime[0]) if uptime else None,
        "versions": versions(engine),
        "command": list(command),
        "commit": commit_here(),
    }


def versions(engine: Path | None) -> dict[str, str | None]:
    """Returns the versions of powerband, its engine and Python."""
    return {
        "powerband": __version__,
        "engine": None if engine is None else engine_version(engine),
        "python": platform.python_version(),
    }


def commit_here() -> str | None:
    """Returns the commit of the current folder's git checkout, in 12 digits, with `-dirty` if one of its files was
    changed, documentation apart; None if there is no checkout, or if git does not answer."""

    def git(*words: str) -> str:
        asked = ("git", "--no-optional-locks", *words)
        done = subprocess.run(asked, capture_output=True, errors="replace", timeout=_GIT_WITHIN_S, check=True)
        return done.stdout.strip()

    try:
        commit = git("describe", "--always", "--abbrev=12", "--exclude=*")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", *_DOCUMENTATION)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def usable_cores(root: Path = Path("/")) -> list[list[int]]:
    """Returns the CPUs that this process may use, grouped by physical core."""
    return _cores(_HostReader(root), sorted(os.sched_getaffinity(0)))


def engine_version(engine: Path) -> str | None:
    """Returns the output of `powerband-engine --version`; None if it cannot be run."""
    try:
        done = subprocess.run([engine, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


class _HostReader:
    """Reads files below a root; a file that is missing or not readable is None."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = self.text(path)
        return int(text) if text and re.fullmatch(r"-?\d+", text) else None

    def field(self, path: str, name: str) -> str | None:
        """Returns the value of the first `name : value` or `name=value` line."""
        match = re.search(rf"^{re.escape(name)}\s*[:=]\s*(.*)$", self.text(path) or "", re.MULTILINE)
        return match[1].strip().strip('"') if match else None


def _cpu(read: _HostReader) -> dict[str, Any]:
    allowed = sorted(os.sched_getaffinity(0))
    online = read.text("sys/devices/system/cpu/online")
    governors = {read.text(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor") for cpu in allowed}
    khz_max = read.number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    turbo_off = read.number("sys/devices/system/cpu/intel_pstate/no_turbo")
    return {
        "model": read.field("proc/cpuinfo", "model name") or read.field("proc/cpuinfo", "Model"),
        "online": len(parse_cpu_list(online)) if online else os.cpu_count(),
        "allowed": allowed,
        "cores": _cores(read, allowed),
        "smt": read.text("sys/devices/system/cpu/smt/control"),
        "mhz_max": None if khz_max is None else khz_max // 1000,
        "governor": ", ".join(sorted(filter(None, governors))) or None,
        "turbo": None if turbo_off is None else turbo_off == 0,
        "cgroup_cpus_max": quota_of(root=read.root),
    }


def _cores(read: _HostReader, allowed: list[int]) -> list[list[int]]:
    """Groups the allowed CPUs by physical core; each is alone if the kernel does not show it."""
    cores: list[list[int]] = []
    seen: set[int] = set()
    for cpu in allowed:
        if cpu in seen:
            continue
        text = read.text(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings = [other for other in parse_cpu_list(text) if other in allowed] if text else [cpu]
        seen.update(siblings)
        cores.append(siblings)
    return cores


def _memory(read: _HostReader) -> dict[str, Any]:
    def size(name: str) -> int | None:
        text = read.field("proc/meminfo", name)
        return int(text.split()[0]) * 1024 if text else None

    return {
        "total_bytes": size("MemTotal"),
        "available_bytes": size("MemAvailable"),
        "swap_bytes": size("SwapTotal"),
        "transparent_hugepages": _chosen(read.text("sys/kernel/mm/transparent_hugepage/enabled")),
    }


def _chosen(text: str | None) -> str | None:
    """Returns the chosen word: `madvise` of `always [madvise] never`."""
    match = re.search(r"\[(\w+)\]", text or "")
    return match[1] if match else None


def _limits(read: _HostReader) -> dict[str, Any]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return {
        "descriptors_soft": soft,
        "descriptors_hard": hard,
        "descriptors_system": read.number("proc/sys/fs/file-max"),
        "processes": None if processes == resource.RLIM_INFINITY else processes,
        "threads_system": read.number("proc/sys/kernel/threads-max"),
    }


def _network(read: _HostReader) -> dict[str, Any]:
    ports = (read.text("proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return {
        "somaxconn": read.number("proc/sys/net/core/somaxconn"),
        "tcp_max_syn_backlog": read.number("proc/sys/net/ipv4/tcp_max_syn_backlog"),
        "local_ports": [int(port) for port in ports] if len(ports) == 2 else None,
        "tcp_tw_reuse": read.number("proc/sys/net/ipv4/tcp_tw_reuse"),
    }


def _virtualisation(read: _HostReader) -> str | None:
    """Returns the name that the hypervisor gives itself; `yes` if only the CPU flag shows it; None on bare metal."""
    flags = read.field("proc/cpuinfo", "flags") or ""
    product = read.text("sys/class/dmi/id/product_name")
    hypervisor = read.text("sys/hypervisor/type")
    if "hypervisor" not in flags.split() and not hypervisor:
        return None
    return hypervisor or product or "yes"


def _container(read: _HostReader) -> str | None:
    if (read.root / ".dockerenv").exists():
        return "docker"
    if (read.root / "run/.containerenv").exists():
        return "podman"
    return os.environ.get("container") if read.root == Path("/") else None  # noqa: SIM112 - systemd's spelling
