"""Which resource held a trial's throughput, stretch by stretch: the rules of `rules.py`, asked of two seconds at a
time instead of the whole measured window.

In: what a trial left. Out: spans, each with what the rules say of it. The probe tells of threads once a second, so that
shorter stretches would tell nothing. Not here: the trial's own bottleneck, which is that of its whole window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from powerband.analyze.trial.bottleneck.rules import COUNTED_RULES, RULES, bottleneck_of
from powerband.analyze.trial.measure import scene_between
from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.results import Bottleneck, TrialResult
from powerband.readings.fleet import SECOND_NS, MergedFleet, MergedTimes, merge_fleet
from powerband.readings.probe_samples import ProbeSamples
from powerband.store import TrialRecord

STRETCH_S = 2.0
STRETCHES_MAX = 60  # of a longer trial each is longer
SHORTEST_S = 1.0  # a warm-up below it has no stretch of its own
# Of a stretch no count of its own is known: the trial's stands for it.
_OF_THE_TRIAL = ("connect_time_ns_p99",)


@dataclass(frozen=True)
class LimitSpan:
    """In seconds since `go`. `bottleneck`: of the middle one of the stretches that name it; None: nothing could be
    told, or the rules name nothing."""

    from_s: float
    to_s: float
    bottleneck: Bottleneck | None


def limits_over_time(
    result: TrialResult,
    record: TrialRecord,
    events: Sequence[Mapping[str, Any]],
    probe: ProbeSamples | None,
    experiment: Experiment,
) -> tuple[LimitSpan, ...]:
    """From the start of the load to the end of the measured window, without gaps; empty where the trial was not
    measured or nobody watched it. Neighbours that name the same are one span."""
    fleet = merge_fleet(record.engines)
    go_ns = record.phases.get("go")
    if fleet is None or probe is None or go_ns is None or record.status != "measured":
        return ()
    intervals = [event for event in events if event.get("type") == "interval"]
    found = []
    for start_ns, end_ns in _stretches(go_ns, fleet.start_ns, fleet.end_ns):
        part = _part(fleet, intervals, start_ns, end_ns)
        named = _limit(part, result, record, intervals, probe=probe, experiment=experiment)
        found.append(LimitSpan((start_ns - go_ns) / SECOND_NS, (end_ns - go_ns) / SECOND_NS, named))
    return tuple(_joined(found))


def _stretches(go_ns: int, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
    """Even ones, of the warm-up and of the window apart."""
    length_s = max(STRETCH_S, math.ceil((end_ns - go_ns) / SECOND_NS / STRETCHES_MAX))
    for begin, end in ((go_ns, start_ns), (start_ns, end_ns)):
        if end - begin < SHORTEST_S * SECOND_NS:
            continue
        parts = max(1, round((end - begin) / SECOND_NS / length_s))
        edges = [begin + (end - begin) * i // parts for i in range(parts + 1)]
        yield from pairwise(edges)


def _part(fleet: MergedFleet, intervals: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int) -> MergedFleet:
    """The fleet with the edges and the rates of a stretch; what only the whole window tells stays as it is."""
    mine = [event for event in intervals if start_ns < event["end_ns"] <= end_ns]
    engines = {event.get("engine", 0) for event in mine}
    covered_s = sum(event["end_ns"] - event["start_ns"] for event in mine) / max(1, len(engines)) / SECOND_NS
    ok = sum(event["outcomes"].get("ok", 0) for event in mine)
    ended = sum(sum(event["outcomes"].values()) for event in mine)
    scheduled = sum(event["scheduled"] for event in mine)

    def per_s(count: int) -> float:
        return count / covered_s if covered_s else 0.0

    return replace(
        fleet,
        start_ns=start_ns,
        end_ns=end_ns,
        goodput_per_s=per_s(ok),
        achieved_per_s=per_s(ended),
        offered_per_s=per_s(scheduled),
    )


def _limit(
    part: MergedFleet,
    result: TrialResult,
    record: TrialRecord,
    intervals: Sequence[Mapping[str, Any]],
    *,
    probe: ProbeSamples,
    experiment: Experiment,
) -> Bottleneck | None:
    inside = [event for event in intervals if part.start_ns < event["end_ns"] <= part.end_ns]
    times = MergedTimes(event["response_time_ns"] for event in inside if event.get("response_time_ns"))
    known = {name: result.metrics[name] for name in _OF_THE_TRIAL if name in result.metrics}
    known |= {"goodput_per_s": part.goodput_per_s, "achieved_rate_per_s": part.achieved_per_s}
    is_loaded = kind_of(experiment).has_metric("offered_rate_per_s")
    if is_loaded:
        known |= {"offered_rate_per_s": part.offered_per_s, "engine_cpu_cores": part.cpu_cores}
        known["error_rate"] = 1 - part.goodput_per_s / part.achieved_per_s if part.achieved_per_s else 0.0
    if times.count:
        known["response_time_ns_mean"] = times.moment(1)
    scene = scene_between(
        part,
        experiment.load_for(record.spec.setting, record.spec.rate_per_s),
        known,
        times,
        record,
        probe=probe,
        intervals=intervals,
        problems=result.problems,
        self_driven=not is_loaded,
    )
    rules = RULES if is_loaded else COUNTED_RULES
    return bottleneck_of(replace(scene, noun=experiment.noun), rules)


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
