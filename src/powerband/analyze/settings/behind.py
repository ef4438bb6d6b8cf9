"""Judges whether a server keeps up with the rate that it is offered: one that does not meets a limit on response times
only as long as its trials are short.

In: the judgement on the constraints, the setting's trials. Out: the judgement, with the limits on times that a server
which falls behind will break. A capacity search asks the same of each trial (`capacity.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from powerband.analyze.settings.capacity import KEPT_UP
from powerband.analyze.settings.constraints import Compliance
from powerband.base.units import share
from powerband.loads.measured import RESPONSE, in_flight_chance_per_s
from powerband.model.experiment import Experiment
from powerband.model.results import TrialResult

SURELY = 3  # trials that all fall behind: in one or two a pause at the window's end may be the cause


def with_behind(experiment: Experiment, found: Compliance, results: Sequence[TrialResult]) -> Compliance:
    """The judgement on a setting by its valid trials. Limits on response times are missed where the server falls behind
    its rate in each of `SURELY` trials or more, and open with fewer."""
    limits = [
        each.text
        for each in experiment.objective.constraints
        if each.metric.startswith(RESPONSE) and each.op in ("<", "<=")
    ]
    behind = min((_behind(experiment, result) for result in results), default=0.0) if limits else 0.0
    if not behind:
        return found
    broken = {reason.partition(": ")[0] for reason in found.barred}
    said = f"the server falls behind the rate by {share(behind)}, so that responses take ever longer"
    reasons = tuple(f"{text}: {said}" for text in limits if text not in broken)
    if len(results) < SURELY:
        return replace(found, open=(*found.open, *reasons))
    return replace(found, missed=(*found.missed, *reasons))


def _behind(experiment: Experiment, result: TrialResult) -> float:
    """The share of the rate that the server does not serve while the trial measures, beyond what chance and one request
    at the window's end explain; 0 if it keeps up, or was held up by other programs. Answers that were due before the
    window must have come in it: nothing is known of responses that take longer than the warm-up. Of several steps less
    than that share is missing (`least_served`)."""
    metrics, load = result.metrics, experiment.load
    offered, served = metrics.get("offered_rate_per_s"), metrics.get("achieved_rate_per_s")
    if load.rate_per_s is None or not offered or served is None:
        return 0.0
    if result.warmup_s is None or result.disturbed:
        return 0.0
    steps, window_s = len(load.scenario), result.window_s or load.duration_ns / 1e9
    if steps * metrics.get(f"{RESPONSE}_p99", 0.0) + load.pauses_ns > result.warmup_s * 1e9:
        return 0.0
    chance = in_flight_chance_per_s(offered, metrics.get(f"{RESPONSE}_mean", 0.0) / 1e9, window_s)
    missing = 1 - (served + chance + 1 / window_s) / offered
    behind = missing * (steps + 1) / 2
    return behind if behind > 1 - KEPT_UP else 0.0
