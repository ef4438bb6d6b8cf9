"""Finds the parts of a measured window in which other programs hardly ran, and the rates served in them.

In: the probe's samples and the engines' intervals, both of a tenth of a second. Out: a `QuietTime`. Not here: whether
a comparison takes it instead of the whole window (`analyze/trial/disturbance.py`).
Derivation: docs/methods/disturbance.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerband.readings.fleet import SECOND_NS, MergedFleet
from powerband.readings.probe_samples import Array, Counters, ProbeSamples
from powerband.wire.load_events import EngineInterval

LOUD_CORES = 0.25
"""A sample of 0.1 s is loud if more cores than this were used by others or stolen. The kernel counts in ticks of 10 ms,
so that up to 0.25 is seen on few CPUs where nothing else runs."""
CONTRAST = 1.5  # times that, on average over loud samples: less is the noise of a program that runs all the time
NOISE = 4.0  # standard deviations of the noise of ticks: a sample that shows more was loud
ERRORS = 2.0  # standard errors
LEAST_SAMPLES = 3
Marks = np.ndarray[Any, np.dtype[np.bool_]]
FINE_NS = 150_000_000  # longer samples and intervals mix quiet time and loud time


@dataclass(frozen=True)
class QuietTime:
    """The quiet parts of a window, taken together, `seconds` in all. `goodput_per_s`, `achieved_per_s`: the rates of ok
    and of all ended requests in them. `foreign`, `stolen`: CPU time of other programs, and stolen time, per second of
    quiet time. `error`: the standard error of `goodput_per_s` as a share of it, from the scatter of the samples.
    `rise`: the share by which more was served in the last third than in the first, less two standard errors; 0 if it is
    too short to tell."""

    seconds: float
    foreign: float
    stolen: float
    goodput_per_s: float
    achieved_per_s: float
    error: float
    rise: float

    @property
    def held_up(self) -> float:
        """The highest share of the quiet time that other programs and the hypervisor can have held up."""
        return min(1.0, self.foreign + self.stolen)


def quiet_time_of(
    probe: ProbeSamples, intervals: Iterable[EngineInterval], fleet: MergedFleet, settle_ns: float
) -> QuietTime | None:
    """Returns the quiet time of the window: all samples but the loud ones, one before each of these, and those within
    `settle_ns` after it (one at least), in which requests that it held up still end. None if fewer than three samples
    remain, if the loud ones are not loud enough (`CONTRAST`), if others did not certainly use less in it than in the
    whole window, or if the readings are too coarse.

    The noise of the ticks grows with the number of CPUs: chosen are then samples that show less than was used. So what
    others used is the mean of all samples between such ones, those that are loud by no more than noise (`NOISE`) among
    them."""
    at = probe.host.at_ns
    served = _served(intervals, at)
    busy, steal = (probe.host.steps(f"cpu_{kind}_ns", at) for kind in ("busy", "steal"))
    trees = [tree.steps(f"cpu_{kind}_ns", at) for tree in probe.trees.values() for kind in ("user", "system")]
    used = [each for each in trees if each is not None]
    if served is None or busy is None or steal is None or len(used) < len(trees):
        return None
    passed = np.diff(at)
    foreign = busy - np.sum(used, axis=0) - probe.own_cores * passed
    if (interrupts := probe.host.steps("cpu_interrupts_ns", at)) is not None:  # they are in no process's CPU
        foreign -= interrupts
    others = foreign + steal
    with np.errstate(invalid="ignore"):
        loud = ~(others <= LOUD_CORES * passed) | (passed > FINE_NS)  # unknown (NaN) counts as loud
    within = (at[:-1] >= fleet.start_ns) & (at[1:] <= fleet.end_ns)
    heard = loud & within & ~np.isnan(others)
    if others[heard].sum() < CONTRAST * LOUD_CORES * passed[heard].sum():
        return None
    beside = _beside(loud, max(1, math.ceil(settle_ns / float(np.median(passed)))))
    ok, ended = served
    quiet = ~loud & ~beside & within & ~np.isnan(ok)
    lasted = float(passed[quiet].sum())
    if quiet.sum() < LEAST_SAMPLES or not ok[quiet].sum():
        return None
    known = within & ~np.isnan(others)
    between = _between(others, passed, known & ~beside & (passed <= FINE_NS))
    if not _is_less(others, passed, between, known):
        return None
    rates, rested = ok[quiet] / passed[quiet], float(passed[between].sum())
    return QuietTime(
        seconds=lasted / SECOND_NS,
        foreign=max(0.0, float(foreign[between].sum()) / rested),
        stolen=float(steal[between].sum()) / rested,
        goodput_per_s=float(ok[quiet].sum()) / lasted * SECOND_NS,
        achieved_per_s=float(ended[quiet].sum()) / lasted * SECOND_NS,
        error=float(rates.std(ddof=1) / rates.mean() / math.sqrt(rates.size)),
        rise=_rise(rates),
    )


def _beside(loud: Marks, after: int) -> Marks:
    """Marks the sample before each loud one, and so many after it."""
    beside: Marks = np.append(loud[1:], False)
    for turns in range(1, after + 1):
        beside[turns:] |= loud[:-turns]
    return beside


def _between(others: Array, passed: Array, some: Marks) -> Marks:
    """Those of `some` samples that show no more than `LOUD_CORES`, or no more than the noise explains. Its deviation is
    that of the samples below the median, since others only add to what is used."""
    cores = others[some] / passed[some]
    middle = float(np.median(cores))
    noise = math.sqrt(2 * float(np.mean(np.minimum(cores - middle, 0) ** 2)))
    between = some.copy()
    between[some] = cores <= max(LOUD_CORES, middle + NOISE * noise)
    return between


def _is_less(others: Array, passed: Array, some: Marks, known: Marks) -> bool:
    """True if others certainly used less in `some` samples than on average in all that are `known`."""
    cores = others[some] / passed[some]
    error = ERRORS * cores.std(ddof=1) / math.sqrt(cores.size)
    return bool(cores.mean() + error < others[known].sum() / passed[known].sum())


def _rise(rates: Array) -> float:
    third = rates.size // 3
    if third < 2:
        return 0.0
    first, last = rates[:third], rates[-third:]
    error = math.sqrt((first.var(ddof=1) + last.var(ddof=1)) / third)
    return float((last.mean() - first.mean() - 2 * error) / first.mean()) if first.mean() else 0.0


def _served(intervals: Iterable[EngineInterval], at: Array) -> tuple[Array, Array] | None:
    """The number of requests that ended ok, and of all that ended, from each time to the next: spread evenly over each
    interval and summed over engines; NaN before the first interval and after the last of any engine. None if there are
    no intervals, or one is too long."""
    ends: dict[int, list[int]] = {}
    counts: dict[int, list[tuple[int, int]]] = {}
    for event in intervals:
        if event["end_ns"] - event["start_ns"] > FINE_NS:
            return None
        engine = event.get("engine", 0)
        ends.setdefault(engine, [event["start_ns"]]).append(event["end_ns"])
        outcomes = event["outcomes"]
        counts.setdefault(engine, [(0, 0)]).append((outcomes.get("ok", 0), sum(outcomes.values())))
    if not ends:
        return None
    ok, ended = (
        np.sum([_steps(ends[engine], [count[kind] for count in counts[engine]], at) for engine in ends], axis=0)
        for kind in (0, 1)
    )
    return ok, ended


def _steps(ends: list[int], counts: list[int], at: Array) -> Array:
    known = Counters(np.array(ends, dtype=float), {"count": np.cumsum(counts).astype(float)})
    steps = known.steps("count", at)
    assert steps is not None, "each engine has the start of its first interval and its end"
    return steps
