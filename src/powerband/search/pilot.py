"""Measures the smallest difference that this machine can detect: an A/A pilot that starts the reference server
repeatedly.

In: nothing but the engine. Out: a `Pilot`: the noise between starts, and the smallest difference that a usual plan
detects in spite of it. Not here: other problems of the machine (`powerband.doctor`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from powerband.analyze.stats.intervals import DF_MANY, SMALL_SAMPLE
from powerband.analyze.stats.special import student_t, studentised_range
from powerband.analyze.stats.spending import Glance
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Experiment, Measure, Subject
from powerband.model.load import Load
from powerband.model.plan import Setting, TrialSpec
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.store import TrialDir
from powerband.trials.trial import run_trial

PILOT_TRIALS = 6  # 40 s: a standard deviation of six is known to a factor of 0.6 to 2.5 (chi-squared, 95 %)
PILOT_RETRIES = 3  # arbitrary: a machine that spoils more than a third of the trials is not quiet
PILOT_SECONDS = 3  # as with `--profile quick`
PLAN_SETTINGS = 6  # a usual sweep: 1 to 32, doubling
PLAN_BLOCKS = 5  # the default of measure.repeats
RACE_FINDS = 0.03  # the default margin
LARGEST_GAP = 1.1  # between two of n normal differences, in standard deviations: 1.0 to 1.2 for n of 2 to 10
BLOCKS_MAX = 500  # arbitrary: eight hours with 6 settings and trials of 10 s


@dataclass(frozen=True)
class Pilot:
    """The result of an A/A test, in which the same setting is measured repeatedly. `trials`, `invalid`: numbers of
    valid and of invalid trials. `sd`: standard deviation of the log of the goodput; None if there were too few trials.
    `smallest_difference`: half-width of the simultaneous intervals that a plan of 6 settings in 5 blocks has with this
    noise, as a ratio (0.05: 5 %); smaller differences stay inconclusive. `race_blocks`: the maximum of blocks that a
    race of 6 settings needs to detect `RACE_FINDS` nearly always; None if no race of reasonable length does.
    `interrupted`: not all trials were run, so there is no result."""

    trials: int
    invalid: int
    sd: float | None
    smallest_difference: float | None
    interrupted: bool = False
    race_blocks: int | None = None


def run_pilot(
    directory: Path,
    stop: StopRequest,
    starting: Callable[[str], None] = lambda what: None,
) -> Pilot:
    """Runs six valid trials of a CPU-bound reference server, where noise shows most; about 40 s. Invalid trials are run
    again, at most three times in all. Trials stay in `directory`; `starting` is called with the name of each trial
    before it starts.

    Raises MeasurementError if no engine is found or the disk is full."""
    command = ("{engine}", "serve", "--port", "{port}", "--model", "fixed", "--threads", "8", "--cpu", "200us")
    made = Experiment(
        name="doctor",
        subject=Subject(name="reference", command=command),
        load=Load(users=16, duration=PILOT_SECONDS * 10**9),
        measure=Measure(warmup_max=5_000_000_000),
    )
    goodputs: list[float] = []
    invalid = 0
    for number in range(1, PILOT_TRIALS + PILOT_RETRIES + 1):
        if len(goodputs) == PILOT_TRIALS:
            break
        starting(f"trial {len(goodputs) + 1} of {PILOT_TRIALS}")
        spec, trial = TrialSpec(number, number - 1, 1, Setting(()), number), TrialDir(directory / f"{number:04d}")
        record = run_trial(made, spec, trial, steady=lambda _series: True, observer=Observer(), stop=stop)
        result = measure(trial, record, made)
        if stop.requested:
            return Pilot(len(goodputs), invalid, None, None, interrupted=True)
        if result.valid and result.metrics.get("goodput_per_s", 0) > 0:
            goodputs.append(result.metrics["goodput_per_s"])
        invalid += not result.valid
    return pilot_of(goodputs, invalid)


def pilot_of(goodputs: Sequence[float], invalid: int = 0) -> Pilot:
    """The pilot's result, from the goodputs of its valid trials. The standard deviation is computed from successive
    differences (von Neumann 1941), so that drift, which blocks cancel, does not count."""
    if len(goodputs) < 3:
        return Pilot(len(goodputs), invalid, None, None)
    logs = np.log(goodputs)
    sd = math.sqrt(float((np.diff(logs) ** 2).mean()) / 2)
    race_blocks = blocks_to_find(RACE_FINDS, sd, PLAN_SETTINGS, race=True)
    return Pilot(len(goodputs), invalid, sd, smallest_difference(sd), race_blocks=race_blocks)


def smallest_difference(
    sd: float,
    settings: int = PLAN_SETTINGS,
    blocks: int = PLAN_BLOCKS,
    confidence: float = 0.95,
    *,
    most: int | None = None,
) -> float:
    """Half-width, as a ratio, of the simultaneous intervals of a plan with equal noise in all settings, or of a race of
    at most `most` blocks after `blocks` of them; see `intervals.compare_with_leader`. Needs at least 2 settings and 2
    blocks."""
    error = 1 - confidence if most is None else Glance.of(blocks, most, settings).level(1 - confidence)
    if settings == 2:
        critical = student_t(1 - error, blocks - 1) + LARGEST_GAP / (2 * math.sqrt(blocks))
    else:
        df = min(DF_MANY, float((settings - 1) * (blocks - 1)))
        critical = studentised_range(1 - error, settings, df) * (1 + SMALL_SAMPLE / (blocks - 1))
        critical = max(critical, student_t(confidence, blocks - 1))  # few blocks give a poor estimate of the noise
    return math.expm1(critical * sd * math.sqrt(2 / blocks))


def blocks_to_find(
    difference: float, sd: float, settings: int, confidence: float = 0.95, *, race: bool = False
) -> int | None:
    """The fewest blocks that find a true `difference` nearly always: their `smallest_difference`, which they find half
    of the time, is at most half of it. None if `BLOCKS_MAX` are too few. `race`: for a race whose maximum of blocks is
    that number."""

    def found(blocks: int) -> bool:
        most = blocks if race else None
        return 2 * smallest_difference(sd, settings, blocks, confidence, most=most) <= difference

    if not found(BLOCKS_MAX):
        return None
    return 2 + bisect_left(range(2, BLOCKS_MAX), True, key=found)
