"""Divides the machine's CPUs among subject, engine and probe: disjoint sets if there are enough cores. Pure.

In: the topology from the host facts, and what the experiment asks for. Out: three CPU lists; an empty list means
unpinned.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from powerband.base.errors import ExperimentError
from powerband.model.host_use import HostUse, Pinning


@dataclass(frozen=True)
class CpuSplit:
    """The CPUs of each part, in rising order: `subject` those of the server, `engine` of the load generator, `probe` of
    the probe, which may be the load generator's. An empty tuple: not pinned, so any CPU. `machine`: all that may be
    used, if the server is in a container, whose CPUs powerband does not choose."""

    subject: tuple[int, ...] = ()
    engine: tuple[int, ...] = ()
    probe: tuple[int, ...] = ()
    machine: tuple[int, ...] = ()

    @property
    def all(self) -> tuple[int, ...]:
        """The CPUs of the whole trial, in rising order; empty if nothing is pinned."""
        return tuple(sorted({*self.subject, *self.engine, *self.probe, *self.machine}))


def cpu_split(cores: Sequence[Sequence[int]], use: HostUse, engine_threads: int = 1) -> CpuSplit:
    """Returns the CPUs of each part. `cores`: the CPUs that may be used, grouped by physical core (SMT siblings
    together). `engine_threads` 0: nothing drives the subject, so it may use all CPUs unless the experiment asks for a
    pinning.

    With `auto`, nothing is pinned on a single CPU. Of two or three cores, the last one drives and watches, and the rest
    serve. Of four or more, a quarter drive (as many as the engine has threads if those are more, but at most half);
    from eight cores on, the probe has one of its own. If a CPU quota exceeds the subject's CPUs, all parts share all
    CPUs. Subject and engine never share a core, SMT siblings included; only if the two siblings of one core are all
    there is does each side get one of them. Whether a server gets all CPUs instead is decided once per run, in
    `search/cpu_choice.py`. Raises ExperimentError for CPUs that this machine does not have."""
    available = sorted(cpu for core in cores for cpu in core)
    if isinstance(use.pinning, Pinning):
        return _pinned(use.pinning, available)
    groups = [tuple(core) for core in cores] if len(cores) > 1 else [(cpu,) for cpu in available]
    if use.cpus not in ("auto", "all"):
        return _for_server(use.cpus, groups, available)
    if use.pinning == "off" or use.cpus == "all" or len(available) < 2 or engine_threads == 0:
        return CpuSplit()
    count = len(groups)
    driving = 1 if count < 4 else min(max(count // 4, engine_threads), count // 2)
    watching = 1 if count >= 8 else 0
    subject = groups[: count - driving - watching]
    if use.cpu_quota is not None and len(_flat(subject)) < min(math.ceil(use.cpu_quota), len(available)):
        return CpuSplit()
    engine = groups[count - driving - watching : count - watching]
    probe = groups[count - watching :] if watching else engine
    return CpuSplit(_flat(subject), _flat(engine), _flat(probe))


def _for_server(asked: int | str, groups: Sequence[tuple[int, ...]], available: Sequence[int]) -> CpuSplit:
    """Gives the server the CPUs that were asked for, whole cores first, and engine and probe the cores that it does not
    touch, or else the free CPUs of its cores. If nothing is left, all share."""
    if isinstance(asked, int):
        subject = tuple(sorted([cpu for group in groups for cpu in group][:asked]))
        if asked > len(available):
            raise ExperimentError(f"there are {len(available)} CPUs, not {asked}", key="host.cpus")
    else:
        subject = _available_cpus(asked, available, "host.cpus")
    rest = _flat(group for group in groups if not set(group) & set(subject))
    rest = rest or tuple(cpu for cpu in available if cpu not in subject)
    return CpuSplit(subject, rest, rest) if rest else CpuSplit()


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parses a CPU list as the kernel writes it: `0-2,5` becomes (0, 1, 2, 5). Raises ValueError."""
    return tuple(sorted({cpu for part in _ranges(text) for cpu in part}))


def _ranges(text: str) -> list[range]:
    """Returns the parts of a CPU list, which may be too long to be listed. Raises ValueError."""
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    found = [re.fullmatch(r"(\d+)(?:-(\d+))?", piece) for piece in pieces]
    parts = [range(int(match[1]), int(match[2] or match[1]) + 1) for match in found if match]
    if len(parts) < len(pieces) or not all(parts):
        raise ValueError(f"{text!r} is no list of CPUs: write 0-3,6")
    return parts


def _pinned(pinning: Pinning, available: Sequence[int]) -> CpuSplit:
    """Gives each part the CPUs that `host.pinning` names; the probe those of the engine if none are named for it."""

    def cpus(role: str, text: str) -> tuple[int, ...]:
        return _available_cpus(text, available, f"host.pinning.{role}")

    engine = cpus("engine", pinning.engine)
    probe = engine if pinning.probe is None else cpus("probe", pinning.probe)
    return CpuSplit(cpus("subject", pinning.subject), engine, probe)


def _available_cpus(text: str, available: Sequence[int], key: str) -> tuple[int, ...]:
    """Returns the CPUs of a list in the experiment. Raises ExperimentError with its `key` if it names none, or one that
    may not be used."""
    try:
        parts = _ranges(text)
    except ValueError as error:
        raise ExperimentError(str(error), key=key) from error
    if not parts:
        raise ExperimentError("no CPU is named: write 0-3,6", key=key)
    for cpu in itertools.chain(*parts):
        if cpu not in available:
            raise ExperimentError(
                f"CPU {cpu} is not there or not allowed; this process may use {format_cpu_list(available)}", key=key
            )
    return parse_cpu_list(text)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Writes a CPU list as the kernel does: (0, 1, 2, 5) becomes `0-2,5`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][-1] == cpu - 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _flat(groups: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(sorted(cpu for group in groups for cpu in group))
