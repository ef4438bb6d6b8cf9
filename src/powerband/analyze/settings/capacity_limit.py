"""Names what limits a setting's capacity: the resource that is full there, or answers that are slow before any is full.

In: a setting's search. Out: the bottleneck for its row. Close to the most that the server gives, the first look under a
full load shows best what gives way; far below it, only trials at about that rate do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from powerband.analyze.settings.capacity import Search, holds
from powerband.analyze.settings.why import commonest
from powerband.base.units import format_value, share
from powerband.model.bottlenecks import BottleneckName
from powerband.model.plan import Stage
from powerband.model.results import Bottleneck, TrialResult

FULL = 0.85
"""A capacity of at least this share of what the server gives at full load ends because the server is full."""
AROUND = 0.15
"""Trials within this share of the capacity show what limits it."""
TELLING = 0.02  # of the time: less is not what a hundredth of the requests waits for


def limit_of(search: Search) -> Bottleneck | None:
    """The bottleneck at a setting's capacity; None if too little was seen to name one, such as no first look."""
    if search.first_look is None:
        return None
    looks = [trial for trial in search.trials if trial.valid and trial.stage is Stage.SATURATE]
    looks = [trial for trial in looks if trial.window_s is None] or looks  # shorter ones show less
    if not search.answers or search.nowhere or search.everywhere:
        return commonest(looks or search.near_edge())
    rate = float(np.exp(search.edge.quantile(0.5)))
    if looks and rate >= FULL * search.most_per_s:
        return commonest(looks)
    around = _around(search, rate)
    found = commonest(around)
    if found is None or found.name is not BottleneckName.NONE:
        return found or commonest(looks)
    return _slow_answers(search, rate, around)


def _around(search: Search, rate_per_s: float) -> list[TrialResult]:
    """The valid trials at about this rate that missed the conditions; else those that held; else those of
    `near_edge`."""
    tried = [trial for trial in search.trials if trial.valid and trial.stage is Stage.CAPACITY and trial.rate_per_s]
    around = [trial for trial in tried if abs((trial.rate_per_s or 0.0) / rate_per_s - 1) <= AROUND]
    return [trial for trial in around if holds(search.experiment, trial) is False] or around or search.near_edge()


def _slow_answers(search: Search, rate_per_s: float, around: Sequence[TrialResult]) -> Bottleneck:
    def middle(metric: str) -> float:
        return float(np.median([trial.metrics.get(metric, 0.0) for trial in around]))

    conditions = " and ".join(constraint.text for constraint in search.objective.constraints)
    most = format_value(search.most_per_s, "per_s")
    evidence = [
        f"the SLO ({conditions}) stops holding at {share(rate_per_s / search.most_per_s)} of the {most} that it serves "
        "at most"
    ]
    if any("subject_cpu_share" in trial.metrics for trial in around):
        evidence.append(f"the server uses {share(middle('subject_cpu_share'))} of its CPU time there")
    for metric, words in (
        ("jvm_safepoint_share", "safepoints stop all Java threads {} of the time"),
        ("gc_cpu_share", "its garbage collector uses {} of its CPU time"),
        ("psi_io_share", "something on this machine waited for a disk {} of the time"),
    ):
        if (part := middle(metric)) >= TELLING:
            evidence.append(words.format(share(part)))
    return Bottleneck(BottleneckName.SLOW_ANSWERS, tuple(evidence), BottleneckName.SLOW_ANSWERS.advice)
