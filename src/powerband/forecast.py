"""How long a run will take, from its experiment alone. An estimate for people; nothing depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from powerband.experiment import Experiment, Load

_START_NS = 500_000_000  # until a lean server is ready
_END_NS = 500_000_000  # drain, stop, and writing down
_STEADY_AFTER_NS = 2_000_000_000  # what an automatic warm-up takes beyond its minimum, where nothing is slow to settle


@dataclass(frozen=True)
class Forecast:
    """`expected_ns` for a server that starts within a second and settles soon; `longest_ns` with the longest warm-up
    everywhere and the whole retry budget spent (a server may still be slower to start)."""

    trials: int
    expected_ns: int
    longest_ns: int


def forecast(experiment: Experiment) -> Forecast:
    """Over all blocks of all settings."""
    loads = [experiment.load_for(setting) for setting in experiment.settings()]
    blocks = experiment.measure.repeats
    expected = blocks * sum(_trial_ns(experiment, load, longest=False) for load in loads)
    longest = blocks * sum(_trial_ns(experiment, load, longest=True) for load in loads)
    return Forecast(blocks * len(loads), expected, round(longest * (1 + experiment.measure.retry_budget)))


def _trial_ns(experiment: Experiment, load: Load, *, longest: bool) -> int:
    measure = experiment.measure
    warmup = measure.warmup_ns
    if warmup is None:
        soon = measure.warmup_min_ns + _STEADY_AFTER_NS
        warmup = measure.warmup_max_ns if longest else min(soon, measure.warmup_max_ns)
    return _START_NS + load.ramp_ns + warmup + load.duration_ns + _END_NS
