"""Warns of measured windows that may miss steps of a scenario: users who were not spread over all its steps when the
window began go through them together, and a window shorter than a pass sees only those where they are.

In: the experiment and the settings that were tried. Out: a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from powerband.base.units import format_duration
from powerband.model.experiment import Experiment
from powerband.model.load import Load
from powerband.model.plan import Setting, Stage


def unseen_steps(experiment: Experiment, settings: Sequence[Setting]) -> Iterator[str]:
    """Yields a warning if the window of any of these settings may miss steps."""
    if len(experiment.load.scenario) == 1:
        return
    those = settings if experiment.load_varies else settings[:1]
    loads = [load for load in map(experiment.load_for, those) if _may_miss(experiment, load)]
    if not loads:
        return
    load = max(loads, key=lambda each: each.whole_pass_ns)
    whole_ns = load.whole_pass_ns
    # Users without a fixed warm-up are spread over a minute at most; those who begin all at once are not.
    in_vain = experiment.measure.burst_ns or load.duration_ns + load.pass_ns < whole_ns
    waits = "" if in_vain else "set measure.warmup to auto, or "
    yield (
        f"the measured window ({format_duration(load.duration_ns)}) is shorter than one pass through the scenario "
        f"({format_duration(whole_ns)} of pauses), and users were not spread over all steps when it began: it may show "
        f"some steps too often and others not at all; {waits}set load.duration (--duration) to "
        f"{format_duration(whole_ns)} or longer"
    )


def _may_miss(experiment: Experiment, load: Load) -> bool:
    """True if users are not spread over all steps when the window begins, and it is too short for all to come by. A
    warm-up of no fixed length (None) waits until they are spread, unless they are to begin all at once; a ramp of a
    pass or longer spreads them itself. Users with a set number of requests have a window that lasts until the last."""
    warmup_ns = experiment.warmup_ns_of(Stage.COMPARE, load)
    in_warmup = not experiment.measure.burst_ns and (warmup_ns is None or warmup_ns >= load.spread_ns)
    spread = in_warmup or load.joining_ns >= load.pass_ns
    seen_ns = load.duration_ns + (max(load.pass_ns, load.joining_ns) if spread else 0)
    return load.requests_per_user is None and seen_ns < load.whole_pass_ns
