"""Is this machine fit to measure on, and how small a difference can it find? For `powerband doctor`.

In: the facts of `run/host.py`, some seconds of probing, an A/A pilot. Out: a `Diagnosis`: findings, each with what was
seen and what to do next, and the smallest difference that the default plan can expect to find. Judging is split from
probing (`noise.py`), so that every finding can be tested with planted figures. Nothing is changed on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from powerband.analyze.honesty import FOREIGN_SHARE_MAX, FOREIGN_SHARE_NOTE, STEAL_MAX
from powerband.analyze.intervals import SMALL_SAMPLE
from powerband.analyze.measure import measure
from powerband.analyze.special import studentised_range
from powerband.experiment import Experiment, Load, Measure, Subject
from powerband.observer import Observer
from powerband.plan import Setting, TrialSpec
from powerband.run.stop import StopRequest
from powerband.run.trial import run_trial
from powerband.search.noise import Noise, probe_noise
from powerband.store import TrialDir
from powerband.units import format_duration

Level = Literal["ok", "note", "bad"]

PILOT_TRIALS = 6
PILOT_SECONDS = 3
PLAN_SETTINGS = 6
PLAN_BLOCKS = 5
DESCRIPTORS_WANTED = 4096
SOMAXCONN_WANTED = 1024
PORTS_WANTED = 16_000
SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies"})


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `seen` says what, with its figure; `remedy` is the next action, absent where all is well."""

    code: str
    level: Level
    seen: str
    remedy: str | None = None


@dataclass(frozen=True)
class Pilot:
    """A/A: the same setting again and again. `smallest_difference`: half-width of the simultaneous intervals that
    a plan of 6 settings in 5 blocks has with this noise, as a ratio (0.05: 5 %); less stays inconclusive."""

    trials: int
    invalid: int
    sd: float | None
    smallest_difference: float | None


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]
    pilot: Pilot | None

    @property
    def fit(self) -> bool:
        """Whether nothing stands in the way of measuring."""
        return not any(finding.level == "bad" for finding in self.findings)


def diagnose(
    facts: Mapping[str, Any],
    *,
    directory: Path | None = None,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Diagnosis:
    """Probes the machine for some 5 s; with a `directory` for its trials also runs the pilot, some 40 s."""
    noise = probe_noise()
    pilot = None if directory is None else _run_pilot(directory, observer or Observer(), stop)
    return Diagnosis(findings(facts, noise), pilot)


def findings(facts: Mapping[str, Any], noise: Noise) -> tuple[Finding, ...]:
    """Judges facts and noise, in the order in which a person would mend things."""
    found = (_noise_findings(noise), _limit_findings(facts), _kernel_findings(facts))
    return tuple(finding for part in found for finding in part)


def _noise_findings(noise: Noise) -> list[Finding]:
    def times(p50: float, p99: float) -> str:
        return f"{format_duration(p50)} (p99 {format_duration(p99)})"

    graded = (
        (
            Finding(
                "wake_up", "ok", f"a thread wakes {times(noise.wake_ns_p50, noise.wake_ns_p99)} after it is called"
            ),
            (noise.wake_ns_p50, 50_000, 500_000),
            "response times at low concurrency show the machine's wake-ups, not the server: compare settings, do not "
            "quote absolute times",
        ),
        (
            Finding("timers", "ok", f"1 ms timers come {times(noise.timer_late_ns_p50, noise.timer_late_ns_p99)} late"),
            (noise.timer_late_ns_p99, 500_000, 5_000_000),
            "an open load leaves late by as much: see send_lag in each trial",
        ),
        (
            Finding(
                "cpu_speed",
                "ok",
                f"the same work varies by {noise.speed_sd:.1%} in time (at worst {noise.speed_worst:.1%} slower)",
            ),
            (noise.speed_sd, 0.02, 0.10),
            "set the governor to performance where that can be done, and plan more blocks (measure.repeats)",
        ),
        (
            Finding("steal", "ok", f"the hypervisor took {noise.steal_share:.2%} of the CPU time"),
            (noise.steal_share, 0.005, STEAL_MAX),
            "run when the host is quieter, or on a dedicated machine",
        ),
        (
            Finding("foreign_cpu", "ok", f"other programs used {noise.foreign_share:.1%} of the CPUs"),
            (noise.foreign_share, FOREIGN_SHARE_NOTE, FOREIGN_SHARE_MAX),
            "stop them: trials under such load are invalid",
        ),
    )
    return [_graded(finding, limits, remedy) for finding, limits, remedy in graded]


def _graded(finding: Finding, limits: tuple[float, float, float], remedy: str) -> Finding:
    """`limits`: the value, and what it must pass for a note and for a bad finding."""
    value, note, bad = limits
    if value <= note:
        return finding
    return Finding(finding.code, "bad" if value > bad else "note", finding.seen, remedy)


def _noted(code: str, seen: str, *, well: bool, remedy: str) -> Finding:
    return Finding(code, "ok" if well else "note", seen, None if well else remedy)


def _limit_findings(facts: Mapping[str, Any]) -> Iterator[Finding]:
    limits, network = facts.get("limits") or {}, facts.get("network") or {}
    if (hard := limits.get("descriptors_hard")) is not None:
        yield _noted(
            "descriptors",
            f"a process may open {hard} descriptors",
            well=hard < 0 or hard >= DESCRIPTORS_WANTED,  # below zero: no limit
            remedy="raise it (ulimit -Hn, or LimitNOFILE= of the service): each connection takes one, on both sides",
        )
    if ports := network.get("local_ports"):
        count = ports[1] - ports[0] + 1
        yield _noted(
            "ports",
            f"{count} local ports for connections",
            well=count >= PORTS_WANTED,
            remedy="widen net.ipv4.ip_local_port_range, or use keep_alive",
        )
    if (backlog := network.get("somaxconn")) is not None:
        yield _noted(
            "somaxconn",
            f"accept queues hold at most {backlog} connections",
            well=backlog >= SOMAXCONN_WANTED,
            remedy=f"raise net.core.somaxconn to {SOMAXCONN_WANTED}: bursts of connections overflow the accept queue",
        )


def _kernel_findings(facts: Mapping[str, Any]) -> Iterator[Finding]:
    psi, paranoid = bool(facts.get("psi")), facts.get("perf_event_paranoid")
    yield _noted(
        "psi",
        f"the kernel {'gives' if psi else 'does not give'} pressure stall information",
        well=psi,
        remedy="boot with psi=1 to see CPU and memory pressure in reports",
    )
    yield _noted(
        "perf",
        f"kernel.perf_event_paranoid is {paranoid}",
        well=paranoid is not None and paranoid <= 2,
        remedy="set it to 2 or lower: context switches of threads that have exited are then exact",
    )
    if (source := facts.get("clock_source")) is not None:
        yield _noted(
            "clock",
            f"the clock source is {source}",
            well=source not in SLOW_CLOCKS,
            remedy="boot with clocksource=tsc where the CPU has an invariant TSC: this one is slow to read",
        )
    yield from _cpu_findings(facts.get("cpu") or {})


def _cpu_findings(cpu: Mapping[str, Any]) -> Iterator[Finding]:
    if (governor := cpu.get("governor")) is not None:
        yield _noted(
            "governor",
            f"the CPU frequency governor is {governor}",
            well=governor == "performance",
            remedy="set it to performance while measuring",
        )
    if (quota := cpu.get("cgroup_cpus_max")) is not None:
        yield _noted(
            "cgroup",
            f"a cgroup quota allows {quota:g} CPUs: whatever uses more is stopped for part of each period",
            well=False,
            remedy="lift the quota while measuring",
        )
    if len(cpu.get("cores") or ()) == 1:
        seen = "there is one core: the subject and the engine take turns on it"
        yield Finding("one_core", "bad", seen, "use a machine with two cores or more")


def _run_pilot(directory: Path, observer: Observer, stop: StopRequest | None) -> Pilot:
    """The reference subject, CPU-bound, where noise shows most; each trial a fresh start, as in a real plan."""
    command = ("{engine}", "serve", "--port", "{port}", "--model", "fixed", "--threads", "8", "--cpu", "200us")
    made = Experiment(
        name="doctor",
        subject=Subject(name="reference", command=command),
        load=Load(users=16, duration=PILOT_SECONDS * 10**9),
        measure=Measure(warmup_max=5_000_000_000),
    )
    own_stop = stop or StopRequest()
    goodputs, invalid = [], 0
    try:
        for number in range(1, PILOT_TRIALS + 1):
            if own_stop.requested:
                break
            spec, trial = TrialSpec(number, number - 1, 1, Setting(()), number), TrialDir(directory / f"{number:04d}")
            record = run_trial(made, spec, trial, steady=_soon, observer=observer, stop=own_stop)
            result = measure(trial, record, made)
            if result.status == "measured" and result.metrics.get("goodput_per_s", 0) > 0:
                goodputs.append(result.metrics["goodput_per_s"])
            invalid += not result.valid
    finally:
        if stop is None:
            own_stop.close()
    return pilot_of(goodputs, invalid)


def _soon(_series: object) -> bool:
    return True


def pilot_of(goodputs: Sequence[float], invalid: int = 0) -> Pilot:
    """What the default plan can tell with this noise. The standard deviation is taken of successive differences (von
    Neumann 1941), so that drift, which blocks take out, does not count."""
    if len(goodputs) < 3:
        return Pilot(len(goodputs), invalid, None, None)
    logs = np.log(goodputs)
    sd = math.sqrt(float((np.diff(logs) ** 2).mean()) / 2)
    return Pilot(len(goodputs), invalid, sd, smallest_difference(sd))


def smallest_difference(sd: float, settings: int = PLAN_SETTINGS, blocks: int = PLAN_BLOCKS) -> float:
    """Half-width, as a ratio, of the simultaneous 95 % intervals of a plan; see `intervals.compare_with_leader`."""
    critical = studentised_range(0.95, settings, float((settings - 1) * (blocks - 1)))
    return math.expm1(critical * (1 + SMALL_SAMPLE / (blocks - 1)) * sd * math.sqrt(2 / blocks))
