"""Shares out the error among the looks at a race, so that all looks together spend no more than was asked for.

In: the most blocks that a race may take. Out: a `Glance`, with which the intervals of one look are worked out. Why
these shares, their source, and what else was tried: docs/methods/racing.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from powerband.model.experiment import Experiment

FIRST_WEIGHT = 0.5  # two blocks have one degree of freedom each
LAST_WEIGHT = 4.0  # its verdicts are final
SCREEN_SHARE = 0.2
"""The share of the whole error that looks at short trials may spend, where a race begins with them. The looks at the
race have the rest. Arbitrary: settings that are far behind need little."""
SCREEN_LOOKS = 2  # after two blocks of short trials, and after a third


@dataclass(frozen=True)
class Glance:
    """One of the looks at a race. `share`: the part of the whole error that it may spend; `live`: the number of
    settings that are still in the race."""

    share: float
    live: int


def share_of(look_after: int, blocks_most: int) -> float:
    """The share of the whole error for the look after so many blocks, in a race of `blocks_most` at most.

    Error spending over looks (Lan & DeMets 1983), fixed before the race: by the union bound the chance that any look is
    wrong is no more than the whole error, whatever the looks lead to. The last look, whose verdicts are final, gets
    most; the first, after two blocks with one degree of freedom each, half of a usual one."""
    first, between = (FIRST_WEIGHT, blocks_most - 3) if blocks_most > 2 else (0.0, 0)
    return _weight(max(2, look_after), blocks_most) / (first + between + LAST_WEIGHT)


def rounds_most(experiment: Experiment, window_ns: int | None = None) -> int:
    """The most rounds of a race whose trials measure for `window_ns`; None: for `load.duration`. Shorter trials leave
    time for more than `measure.repeats`. Such a trial is taken to last for twice its measured time: it measures for as
    long as its start, warm-up and stop take (`search/screening.py`)."""
    full_ns = experiment.load.duration_ns
    own_ns = full_ns if window_ns is None else min(window_ns, full_ns)
    return experiment.measure.repeats * (full_ns + own_ns) // (2 * own_ns)


def share_at(experiment: Experiment, look_after: int, *, screened: bool = False, window_ns: int | None = None) -> float:
    """The share of the whole error for the look after so many blocks of an experiment; 1 for a plan that is fixed
    beforehand, which has one look, at its end. `screened`: True for a look at the short trials that a race begins with;
    `window_ns`: the measured time of its full trials, None: that of the experiment."""
    if not experiment.is_race:
        return 1.0
    if screened:
        return SCREEN_SHARE / SCREEN_LOOKS
    left = 1.0 if experiment.screened_ns is None else 1 - SCREEN_SHARE
    return left * share_of(look_after, rounds_most(experiment, window_ns))


def _weight(blocks: int, blocks_most: int) -> float:
    if blocks >= blocks_most:
        return LAST_WEIGHT
    return FIRST_WEIGHT if blocks == 2 else 1.0
