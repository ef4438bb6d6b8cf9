"""Finds conditions of this machine that prevent good measurements, with advice. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from powerband.analyze.trial.disturbance import QUIET_SHARE, QUIETER
from powerband.base.errors import MeasurementError, SubjectError
from powerband.base.units import format_duration
from powerband.loads.engine_specs import most_connections
from powerband.model.experiment import FOREIGN_CPU_MAX, STEAL_MAX
from powerband.model.host_use import HostUse
from powerband.processes.cgroups import limited
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import raising_descriptors
from powerband.processes.host import engine_version, host_facts
from powerband.search.noise import MachineNoise, probe_noise
from powerband.trials.instruments.link import check_link

_DESCRIPTORS_WANTED = 10_000  # as many connections as one engine opens by default (`MAX_IN_FLIGHT`)
PARANOID_MAX = 1  # context switches happen in the kernel, which a stricter setting hides


class CheckStatus(StrEnum):
    """The outcome of one check of the machine."""

    OK = "ok"
    WARNING = "warning"  # measurements work, but see the advice
    FAILURE = "failure"  # powerband cannot measure here


@dataclass(frozen=True)
class Finding:
    """The result of one check. `name`: what was checked; `status`: the outcome; `found`: the figures, in words;
    `advice`: what to do, empty if all is well."""

    name: str
    status: CheckStatus
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """All checks, in a fixed order. Takes about 4 s."""
    facts = host_facts()
    return [
        _engine(),
        *_cpu(facts),
        *_limits(facts),
        *_observability(facts),
        *_link(),
        _cgroups(),
        *_noise(probe_noise()),
    ]


def _finding(name: str, good: bool, found: str, advice: str) -> Finding:
    return Finding(name, CheckStatus.OK if good else CheckStatus.WARNING, found, "" if good else advice)


def _engine() -> Finding:
    try:
        path = find_engine()
    except MeasurementError as error:
        return Finding("engine", CheckStatus.FAILURE, "not found", str(error))
    version = engine_version(path)
    if version is None:
        return Finding(
            "engine", CheckStatus.FAILURE, f"{path} does not run", "install powerband again: it builds the engine"
        )
    return Finding("engine", CheckStatus.OK, f"{version} at {path}")


def _cpu(facts: Mapping[str, Any]) -> Iterator[Finding]:
    cpu = facts["cpu"]
    cores, quota = len(cpu["cores"]), cpu["cgroup_cpus_max"]
    usable = cores if quota is None else min(cores, quota)
    yield _finding(
        "cores",
        usable >= 2,
        f"{cores} ({cpu['model'] or 'unknown model'})" + (f", of which a quota allows {quota:g}" if quota else ""),
        "with less than two cores server and load generator take them from each other: results show that mixture",
    )
    yield _finding(
        "CPU quota",
        quota is None or quota >= len(cpu["allowed"]),
        f"{quota:g} CPUs of {len(cpu['allowed'])}" if quota else "none",
        "a quota stops all threads for the rest of each period once it is used up, which looks like a slow server: "
        "give whole CPUs instead (`--cpuset-cpus` of docker and podman, cpuset.cpus of a cgroup)",
    )
    governor = cpu["governor"]
    yield _finding(
        "frequency governor",
        governor in (None, "performance"),
        governor or "none visible",
        "the clock follows the load, so light loads look slow: `cpupower frequency-set -g performance`",
    )
    busy = (facts["load_average"] or [0.0])[0]
    yield _finding(
        "load average",
        busy < max(0.5, usable / 4),
        f"{busy:.2f}",
        "other programs are busy: end them, or expect trials that are invalid and repeated",
    )


def _limits(facts: Mapping[str, Any]) -> Iterator[Finding]:
    limits, network = facts["limits"], facts["network"]
    descriptors = limits["descriptors_hard"]
    most = None if descriptors is None else most_connections(descriptors)
    held = "" if most is None else f", {most:,} connections for the load generator as a whole"
    yield _finding(
        "descriptors",
        descriptors is None or descriptors >= _DESCRIPTORS_WANTED,
        f"{descriptors} for each process{held}" if descriptors else "no limit",
        "a load of many users needs more processes of the load generator: raise the limit "
        f"({raising_descriptors(_DESCRIPTORS_WANTED)}; limits.conf for good)",
    )
    low, high = network["local_ports"] or (32768, 60999)
    yield _finding(
        "local ports",
        high - low >= 20_000,
        f"{low} to {high}",
        "a connection for each request runs out of ports: `sysctl net.ipv4.ip_local_port_range='10000 65000'`",
    )
    backlog = network["somaxconn"]
    yield _finding(
        "accept queue",
        backlog is None or backlog >= 1024,
        f"net.core.somaxconn {backlog}",
        "bursts of connections are refused before the server sees them: `sysctl net.core.somaxconn=4096`",
    )


def _observability(facts: Mapping[str, Any]) -> Iterator[Finding]:
    paranoid, permitted = facts["perf_event_paranoid"], facts["perf_permitted"]
    found = f"perf_event_paranoid {paranoid}" + (", which does not bind this user" if permitted else "")
    cure = f"`sysctl kernel.perf_event_paranoid={PARANOID_MAX}`"
    if paranoid is None:  # the sign of a kernel without perf_event_open(2)
        found, cure = "no perf events in this kernel", "nothing else is lost"
    yield _finding(
        "exact context switches",
        paranoid is not None and (permitted or paranoid <= PARANOID_MAX),
        found,
        f"switches of exited threads cannot be counted: {cure}",
    )
    yield _finding(
        "pressure (PSI)",
        bool(facts["psi"]),
        "readable" if facts["psi"] else "absent",
        "the kernel does not report how long work waited for CPU, memory, disk",
    )


def _link() -> Iterator[Finding]:
    """The check of the link. Yields nothing without an engine, since a missing engine is a finding of its own."""
    try:
        yield Finding("link", CheckStatus.OK, check_link(find_engine()))
    except SubjectError as error:
        yield Finding("link", CheckStatus.WARNING, "none", f"only servers with `services: link` need one: {error}")
    except MeasurementError:
        return


def _cgroups() -> Finding:
    made, refused = [], []
    for what, asked in (("CPU quotas", {"cpu_quota": 1}), ("memory limits", {"memory_limit": "1GiB"})):
        try:
            with limited(HostUse.model_validate(asked)):
                made.append(what)
        except MeasurementError as error:
            refused.append(str(error))
    if not refused:
        return Finding("limits", CheckStatus.OK, f"cgroups for {' and '.join(made)} can be made")
    advice = f"needed only by experiments that ask for one: {'; '.join(refused)}"
    return Finding("limits", CheckStatus.WARNING, f"only {made[0]}" if made else "none", advice)


def _noise(noise: MachineNoise) -> Iterator[Finding]:
    """Findings on each source of noise; the thresholds of steal and foreign CPU derive from those of the validity
    checks."""

    def late(p50: float, p99: float) -> str:
        return f"{format_duration(p50)} late at the median, {format_duration(p99)} at p99"

    yield _finding(
        "wake-up",
        noise.wake_ns_p50 < 50_000,
        late(noise.wake_ns_p50, noise.wake_ns_p99),
        "response times at low concurrency show this delay and not the server's: compare settings, not absolute times",
    )
    yield _finding(
        "timers",
        noise.timer_late_ns_p99 < 500_000,
        late(noise.timer_late_ns_p50, noise.timer_late_ns_p99),
        "an open load leaves late by as much: see send_lag in each trial",
    )
    yield _finding(
        "CPU speed",
        noise.speed_sd < 0.02,
        f"the same work varies by {100 * noise.speed_sd:.1f} %, at worst {100 * noise.speed_worst:.1f} % slower",
        "plan more rounds (measure.repeats); fix the clock frequency where that can be done",
    )
    yield _finding(
        "steal",
        noise.steal_share < STEAL_MAX / 4,
        f"the hypervisor took {100 * noise.steal_share:.2f} % of the CPU time",
        "intervals grow by what it can have cost, and where times are compared, trials do not count above "
        f"{100 * STEAL_MAX:.0f} % (measure.steal_max): run {QUIETER}, or on a machine with whole CPUs",
    )
    yield _finding(
        "foreign CPU",
        noise.foreign_share < QUIET_SHARE,
        f"other programs used {100 * noise.foreign_share:.1f} % of the CPUs",
        "intervals grow by what they can have cost, and where times are compared, trials do not count above "
        f"{100 * FOREIGN_CPU_MAX:.0f} % (measure.foreign_cpu_max): end those programs",
    )
