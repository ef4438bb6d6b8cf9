"""Converts timers: to the pause before a request, or to a rate.

JMeter adds up all timers in scope. The sum is exact if at most one of them is random. Several random timers, and the
two distributions that experiment files do not have, are replaced by a uniform distribution with equal mean and
deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from powerband.jmx.plan_findings import Findings, decimal, whole
from powerband.jmx.tree import Element
from powerband.jmx.values import Values

MS_NS = 1_000_000
LONGEST_MS = 24 * 3600 * 1000  # a day, the load engine's own limit
PACED = ("ConstantThroughputTimer", "PreciseThroughputTimer")
_MODES = {
    "this thread only": 0,
    "all active threads": 1,
    "all active threads in current thread group": 2,
    "all active threads (shared)": 3,
    "all active threads in current thread group (shared)": 4,
    "ThisThreadOnly": 0,
    "AllActiveThreads": 1,
    "AllActiveThreadsInCurrentThreadGroup": 2,
    "AllActiveThreads_Shared": 3,
    "AllActiveThreadsInCurrentThreadGroup_Shared": 4,
    **{f"calcMode.{number + 1}": number for number in range(5)},
    **{str(number): number for number in range(5)},
    "": 0,
}


@dataclass(frozen=True)
class Pause:
    """A pause, uniformly distributed between `low_ns` and `high_ns`."""

    low_ns: int = 0
    high_ns: int = 0

    @property
    def is_constant(self) -> bool:
        """True if the pause is always as long."""
        return self.low_ns == self.high_ns


@dataclass(frozen=True)
class Rate:
    """A rate of `per_s` requests per second, `of_each_thread` or of all together. `arrivals`: how they are spaced."""

    per_s: float
    of_each_thread: bool
    arrivals: Literal["constant", "poisson"]


def pause_before(timers: Sequence[Element], actions: Sequence[Element], values: Values, findings: Findings) -> Pause:
    """The sum of all timers that pause before a request, and of the Flow Control Actions directly before it."""
    pauses = [_action(action, values, findings) for action in actions]
    random: list[Element] = []
    for timer in timers:
        pause = None if timer.kind in PACED else _pause(timer, values, findings)
        if pause is not None:
            pauses.append(pause)
            random += [] if pause.is_constant else [timer]
    if len(random) < 2:
        return Pause(sum(pause.low_ns for pause in pauses), sum(pause.high_ns for pause in pauses))
    for timer in random:
        findings.note(
            "The sum of several random timers becomes one uniform pause of the same mean and standard deviation.", timer
        )
    return _sum(pauses)


def rate_of(timer: Element, values: Values, findings: Findings) -> Rate | None:
    """The rate of a throughput timer; None, with a refusal, if it has none."""
    throughput = findings.number(timer, values, "throughput", "the throughput", kind=decimal, default=0.0)
    if throughput == 0:
        findings.refuse(timer, "its throughput is 0", "set the throughput")
    if not throughput:
        return None
    if timer.kind == "ConstantThroughputTimer":
        return _constant_rate(timer, throughput, values, findings)
    return _precise_rate(timer, throughput, values, findings)


def _constant_rate(timer: Element, per_min: float, values: Values, findings: Findings) -> Rate | None:
    mode = findings.text(timer, values, timer.text_of("calcMode"), "its mode")
    if mode is not None and mode not in _MODES:
        findings.refuse(timer, f"its mode is {mode!r}, which is not known", "choose the mode again in JMeter")
    return None if mode not in _MODES else Rate(per_min / 60, _MODES[mode] == 0, "constant")


def _precise_rate(timer: Element, throughput: float, values: Values, findings: Findings) -> Rate | None:
    period_s = findings.number(timer, values, "throughputPeriod", "the throughput period", kind=whole, default=3600)
    batch = findings.number(timer, values, "batchSize", "the batch size", kind=whole, default=1)
    if period_s == 0:
        findings.refuse(timer, "its throughput period is 0 s", "set the throughput period")
    if batch is not None and batch > 1:
        findings.refuse(timer, f"requests come in batches of {batch}", "set the number of threads in the batch to 1")
    if not period_s:
        return None
    findings.note(
        "A Precise Throughput Timer sends an exact number of requests in its test duration; powerband's arrivals are "
        "Poisson at the same rate, and their number varies as chance has it.",
        timer,
    )
    return Rate(throughput / period_s, False, "poisson")


def _action(action: Element, values: Values, findings: Findings) -> Pause:
    """The pause of a Flow Control Action."""
    if action.text_of("ActionProcessor.action", "0") != "1":
        findings.refuse(
            action,
            "it stops users, or leaves out a part of a loop, and a scenario's steps always follow one another",
            "leave it out by name; only its Pause can be converted",
        )
        return Pause()
    ms = findings.number(action, values, "ActionProcessor.duration", "the duration", kind=whole, default=0)
    if ms is not None and ms > LONGEST_MS:
        findings.refuse(action, "it pauses for more than a day", "set a shorter duration")
        return Pause()
    return _between(ms or 0, ms or 0)


def _pause(timer: Element, values: Values, findings: Findings) -> Pause | None:
    offset_ms = findings.number(timer, values, "ConstantTimer.delay", "the delay", kind=decimal, default=0.0)
    range_ms: float | None = 0.0
    if timer.kind != "ConstantTimer":
        range_ms = findings.number(timer, values, "RandomTimer.range", "the random delay", kind=decimal, default=0.0)
    if offset_ms is None or range_ms is None:
        return None
    if offset_ms + 8 * range_ms > LONGEST_MS:
        findings.refuse(timer, "it pauses for more than a day", "set a shorter delay")
        return None
    match timer.kind:
        case "ConstantTimer" | "UniformRandomTimer":
            return _between(offset_ms, offset_ms + range_ms)
        case "GaussianRandomTimer":
            mean_ms, deviation_ms = _folded(offset_ms, range_ms)
        case _:
            mean_ms, deviation_ms = offset_ms + round(range_ms), math.sqrt(round(range_ms))
    if deviation_ms:
        findings.note(
            "The pauses of a Gaussian or a Poisson Random Timer become uniform ones of the same mean, and, where 0 "
            "leaves room for it, the same standard deviation.",
            timer,
        )
    low_ms = max(0.0, mean_ms - math.sqrt(3) * deviation_ms)
    return _between(low_ms, 2 * mean_ms - low_ms)


def _sum(pauses: Sequence[Pause]) -> Pause:
    """The uniform pause with the mean and variance of the sum of independent pauses."""
    mean_ns = sum(pause.low_ns + pause.high_ns for pause in pauses) / 2
    half_ns = math.hypot(*(pause.high_ns - pause.low_ns for pause in pauses)) / 2
    return _between((mean_ns - half_ns) / MS_NS, (mean_ns + half_ns) / MS_NS)


def _between(low_ms: float, high_ms: float) -> Pause:
    """The pause in whole milliseconds, JMeter's smallest unit."""
    return Pause(round(low_ms) * MS_NS, round(high_ms) * MS_NS)


def _folded(mean: float, deviation: float) -> tuple[float, float]:
    """Mean and standard deviation of |N(mean, deviation)|: JMeter takes the absolute value of its random numbers."""
    if deviation == 0:
        return mean, 0.0
    z = mean / deviation
    folded = deviation * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + mean * math.erf(z / math.sqrt(2))
    return folded, math.sqrt(max(0.0, mean**2 + deviation**2 - folded**2))
