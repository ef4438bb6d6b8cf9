"""Names the resource that limited a trial's throughput, stretch by stretch: the rules of `bottleneck/rules.py` are
applied to two seconds at a time instead of the whole measured window.

In: everything that a trial left. Out: spans, each with its bottleneck. The probe reads threads once a second:
shorter stretches would show nothing. Not here: the trial's own bottleneck, which is that of its whole window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from powerband.analyze.trial.bottleneck.rules import bottleneck_of, rules_of
from powerband.analyze.trial.bottleneck.scene import scene_of
from powerband.analyze.trial.dotnet_metrics import DOTNET
from powerband.analyze.trial.processes import JVMS, POOLS, PROBE
from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.results import Bottleneck, TrialResult
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import SECOND_NS, MergedTimes, merge_fleet
from powerband.readings.probe_samples import ProbeSamples
from powerband.store import TrialRecord

STRETCH_S = 2.0  # two readings of the threads
STRETCHES_MAX = 60  # in a longer trial each stretch is longer
SHORTEST_S = 1.0  # a warm-up below it has no stretch of its own
# A stretch has no count of its own for these: the trial's stands for it.
_OF_THE_TRIAL = ("connect_time_ns_p99",)


@dataclass(frozen=True)
class LimitSpan:
    """A span of time with one bottleneck, `from_s` to `to_s` in seconds since `go`. `bottleneck`: that of the middle
    one of the stretches that name it; None if no rule named one."""

    from_s: float
    to_s: float
    bottleneck: Bottleneck | None


def limits_over_time(
    result: TrialResult,
    record: TrialRecord,
    events: Sequence[Any],
    probe: ProbeSamples | None,
    experiment: Experiment,
) -> tuple[LimitSpan, ...]:
    """The spans from the start of the load to the end of the measured window, without gaps; empty if the trial was not
    measured or not watched. Neighbouring stretches that name the same are one span."""
    fleet = merge_fleet(record.engines)
    go_ns = record.phases.get("go")
    if fleet is None or probe is None or go_ns is None or record.status != "measured":
        return ()
    whole = kind_of(experiment).corrected(Evidence.read(record, experiment, fleet, events, probe))
    found = []
    for start_ns, end_ns in _stretches(go_ns, fleet.start_ns, fleet.end_ns):
        named = _limit(_part(whole, start_ns, end_ns), result)
        found.append(LimitSpan((start_ns - go_ns) / SECOND_NS, (end_ns - go_ns) / SECOND_NS, named))
    return tuple(_joined(found))


def _stretches(go_ns: int, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
    """Yields the beginning and end of stretches of equal length, of the warm-up and of the window apart."""
    length_s = max(STRETCH_S, math.ceil((end_ns - go_ns) / SECOND_NS / STRETCHES_MAX))
    for begin, end in ((go_ns, start_ns), (start_ns, end_ns)):
        if end - begin < SHORTEST_S * SECOND_NS:
            continue
        parts = max(1, round((end - begin) / SECOND_NS / length_s))
        edges = [begin + (end - begin) * i // parts for i in range(parts + 1)]
        yield from pairwise(edges)


def _part(whole: Evidence, start_ns: int, end_ns: int) -> Evidence:
    """The evidence with the edges, rates and response times of a stretch; figures not known by time stay whole."""
    mine = [event for event in whole.intervals if start_ns < event["end_ns"] <= end_ns]
    engines = {event.get("engine", 0) for event in mine}
    covered_s = sum(event["end_ns"] - event["start_ns"] for event in mine) / max(1, len(engines)) / SECOND_NS

    def per_s(count: int) -> float:
        return count / covered_s if covered_s else 0.0

    # While users begin, there are fewer than in the window.
    users = sum(event["users_now"] for event in mine) / max(1, len(mine)) * len(engines)
    present = users / whole.fleet.users_mean if mine and whole.load.users and whole.fleet.users_mean else 1.0

    fleet = replace(
        whole.fleet,
        start_ns=start_ns,
        end_ns=end_ns,
        goodput_per_s=per_s(sum(event["outcomes"].get("ok", 0) for event in mine)),
        achieved_per_s=per_s(sum(sum(event["outcomes"].values()) for event in mine)),
        offered_per_s=per_s(sum(event["scheduled"] for event in mine)),
        users_mean=whole.fleet.users_mean * present,
        thinking_users_mean=whole.fleet.thinking_users_mean * present,
    )
    response = MergedTimes(event["response_time_ns"] for event in mine if event.get("response_time_ns"))
    return replace(whole, fleet=fleet, response=response)


def _limit(part: Evidence, result: TrialResult) -> Bottleneck | None:
    kind = kind_of(part.experiment)
    metrics = {name: result.metrics[name] for name in _OF_THE_TRIAL if name in result.metrics}
    metrics |= kind.stretch_metrics(part)
    if part.response.count:
        metrics["response_time_ns_mean"] = part.response.moment(1)
    for source in (PROBE, POOLS, JVMS, DOTNET):
        metrics |= dict(source.metrics(part))
    return bottleneck_of(scene_of(part, metrics, result.problems), rules_of(kind, sees_inside=part.sees_inside))


def _joined(stretches: Sequence[LimitSpan]) -> Iterator[LimitSpan]:
    groups: list[list[LimitSpan]] = []
    for stretch in stretches:
        if groups and _name(groups[-1][0]) == _name(stretch):
            groups[-1].append(stretch)
        else:
            groups.append([stretch])
    for group in groups:
        yield LimitSpan(group[0].from_s, group[-1].to_s, group[len(group) // 2].bottleneck)


def _name(span: LimitSpan) -> str | None:
    return None if span.bottleneck is None else span.bottleneck.name
