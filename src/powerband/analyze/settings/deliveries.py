"""Finds settings whose delivery times are of a smaller part of the messages than another's: who loses the late ones, or
never hands them on, looks best.

In: the rows of an analysis. Out: the settings, with words for the warnings and for the answer. Nothing is barred: only
a condition on `delivered_share` does that. That share is of all users: where each shares a room with a tenth of them,
it is 10 % if nothing is lost, so that settings are held against the one that delivered most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from powerband.base.units import share
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import Answer, Estimate, SettingResult

DELIVERED = "delivered_share"
NEARLY_ALL = 0.99  # of what the setting delivered that delivered most
_TIMES = "delivery_time_ns_"


def delivers_less(experiment: Experiment, rows: Sequence[SettingResult]) -> dict[Setting, str]:
    """The settings that certainly delivered less of the messages than the one that delivered most, by more than the
    margin as a share of that, each with a clause that says so. Empty unless a time of delivery is asked for, and if a
    condition asks for the share."""
    asked = experiment.objective.needed_metrics
    if DELIVERED in asked or not any(metric.startswith(_TIMES) for metric in asked):
        return {}
    shares = {row.setting: row.estimates[DELIVERED] for row in rows if DELIVERED in row.estimates}
    users = {setting: experiment.load_for(setting).users or 0 for setting in shares}
    margin, less = experiment.objective.margin, dict[Setting, str]()
    for setting, found in shares.items():
        to_reach = {of: _to_reach(each, users[of], found, users[setting], margin) for of, each in shares.items()}
        best = max(to_reach, key=lambda of: to_reach[of].value)
        most = to_reach[best]
        if _is_surely_less(found, most, margin):
            less[setting] = (
                f"{setting.id} delivered {share(found.value / most.value)} of the messages that {best.id} delivered: "
                f"its delivery times are of these alone; add the condition {DELIVERED} > "
                f"{100 * NEARLY_ALL * most.value:.3g}% (--slo)"
            )
    return less


def _to_reach(other: Estimate, others: int, found: Estimate, users: int, margin: float) -> Estimate:
    """The share that a setting with so many `users` has to deliver to be as good as an `other` one with `others`: the
    same share. Where the other has fewer users, to reach as many of them is enough, since a room of ten is a smaller
    part of more users; not if it reached nearly all and this setting reaches more: then rooms have no fixed size."""
    if others >= users or (other.value >= NEARLY_ALL and found.value * users > (1 + margin) * others):
        return other
    part = others / users
    low, high = (None if end is None else end * part for end in (other.low, other.high))
    return replace(other, value=other.value * part, low=low, high=high)


def _is_surely_less(found: Estimate, most: Estimate, margin: float) -> bool:
    return found.high is not None and most.low is not None and found.high < (1 - margin) * most.low


def with_deliveries(answer: Answer, less: Mapping[Setting, str]) -> Answer:
    """The answer, with a last sentence if the setting that it names, or sees ahead, delivered less than another."""
    named = answer.setting or answer.leader
    if named is None or named not in less:
        return answer
    return replace(answer, sentences=(*answer.sentences, f"But {less[named]}."))
