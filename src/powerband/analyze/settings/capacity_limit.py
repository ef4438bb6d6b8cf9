"""Names what limits a setting's capacity: the resource that is full there or at which requests already queue, answers
that are slow before, or no resource where a condition on another figure ends it.

In: a setting's search. Out: the bottleneck for its row. Close to the most that the server gives, or where a queue for
it is long enough by theory, the first look under a full load shows best what gives way; else only trials at about that
rate do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from powerband.analyze.settings.capacity import ERROR_RATES, Search, holds, met
from powerband.analyze.settings.rules_of_thumb import mmc_meets, response_limit
from powerband.analyze.settings.why import commonest
from powerband.analyze.trial.bottleneck.clauses import of_cpus
from powerband.base.units import format_duration, format_value, joined, plural, share
from powerband.loads import kind_of
from powerband.model.bottlenecks import BottleneckName
from powerband.model.constraint import Constraint
from powerband.model.metrics import METRICS
from powerband.model.plan import Stage
from powerband.model.results import Bottleneck, TrialResult

FULL = 0.85
"""A capacity of at least this share of what the server gives at full load ends because the server is full."""
AROUND = 0.15
"""Trials within this share of the capacity show what limits it."""
TELLING = 0.02  # of the time, or of a quota's periods: with less, too few requests are delayed to decide a p99
STOPS = (
    ("jvm_safepoint_share", "safepoints stop all Java threads {} of the time"),
    ("dotnet_gc_share", "collections stop all .NET threads {} of the time"),
)
THROTTLES = (("cpu_throttled_share", "the quota is used up in {} of periods there"),)
# Of a collector that works beside the server, and of a disk that others on the machine wait for, the figures do not
# show that requests waited.
MAY_HOLD_UP = (
    ("gc_cpu_share", "its garbage collector uses {} of its CPUs"),
    ("psi_io_share", "something on this machine waited for a disk {} of the time"),
)


def limit_of(search: Search) -> Bottleneck | None:
    """The bottleneck at a setting's capacity; None if too little was seen to name one, such as no first look."""
    if search.first_look is None:
        return None
    looks = [trial for trial in search.trials if trial.valid and trial.stage is Stage.SATURATE]
    looks = [trial for trial in looks if trial.window_s is None] or looks  # shorter ones show less
    full = _under_full_load(search, commonest(looks))
    if not search.answers or search.nowhere or search.open_above:
        return full if looks else commonest(search.near_edge())
    rate = float(np.exp(search.edge.quantile(0.5)))
    if search.unseen:  # it was missed at the lowest rate tried: that is seen, while the edge is a guess
        rate = min(trial.rate_per_s or rate for trial, _ in search.answered)
    if looks and rate >= FULL * search.most_per_s:
        return full
    around = _around(search, rate)
    found = commonest(around)
    if found is None or found.name is not BottleneckName.NONE:
        return found or full
    return _before_it_is_full(search, around, rate, full)


def _before_it_is_full(
    search: Search, around: Sequence[TrialResult], rate: float, full: Bottleneck | None
) -> Bottleneck | None:
    """The limit of a capacity that ends although the server could serve more: requests fail, a condition on another
    figure than a time is missed, a CPU quota stops the server now and then, random arrivals queue, or answers are slow.
    What stops all threads makes answers slow whatever theory expects of a queue."""
    failed = _middle(around, "error_rate")
    if any(each.metric in ERROR_RATES and not each.holds(failed) for each in search.objective.constraints):
        if full is None or full.name is BottleneckName.NONE:
            return None
        fail = f"{format_value(failed, METRICS['error_rate'].unit)} of requests fail there"
        return replace(full, evidence=(_ends_at(search, rate), fail, *full.evidence))
    missed = _missed(search, around)
    if missed and all(METRICS[each.metric].unit != "ns" for each in missed):
        told = f"it misses {joined([each.text for each in missed])} there"
        return Bottleneck(BottleneckName.NONE, (_ends_at(search, rate), told), "")
    throttled = _held_up(around, THROTTLES)
    if throttled and full is not None and full.name is BottleneckName.CPU_QUOTA:
        return replace(full, evidence=(_ends_at(search, rate), *throttled, *full.evidence))
    stopped = _held_up(around, STOPS)
    queue = None if stopped else _queue(search, rate)
    if queue and (full is None or full.name is not BottleneckName.NONE):  # what they queue for may have no name
        return full and replace(full, evidence=(_ends_at(search, rate), queue, *full.evidence))
    evidence = [_ends_at(search, rate)]
    if any("subject_cpu_share" in trial.metrics for trial in around):
        evidence.append(f"the server uses {of_cpus(_middle(around, 'subject_cpu_share'), None)} there")
    evidence += [*stopped, *throttled, *_held_up(around, MAY_HOLD_UP)]
    return Bottleneck(BottleneckName.SLOW_ANSWERS, tuple(evidence), BottleneckName.SLOW_ANSWERS.advice)


def _missed(search: Search, around: Sequence[TrialResult]) -> list[Constraint]:
    """The conditions that some of these trials missed, in the file's order; those on errors are judged apart."""
    asked = [each for each in search.objective.constraints if each.metric not in ERROR_RATES]
    return [each for each in asked if any(met(each, trial) is False for trial in around)]


def _around(search: Search, rate_per_s: float) -> list[TrialResult]:
    """The valid trials at about this rate that missed the conditions; else those that held; else those of
    `near_edge`."""
    tried = [trial for trial in search.trials if trial.valid and trial.stage is Stage.CAPACITY and trial.rate_per_s]
    around = [trial for trial in tried if abs((trial.rate_per_s or 0.0) / rate_per_s - 1) <= AROUND]
    return [trial for trial in around if holds(search.experiment, trial) is False] or around or search.near_edge()


def _under_full_load(search: Search, found: Bottleneck | None) -> Bottleneck | None:
    """The bottleneck of the first look, whose evidence says under which load that was."""
    load = kind_of(search.experiment).load_words(search.experiment.load_for(search.setting))
    if found is None or not found.evidence or not load:
        return found
    return replace(found, evidence=(f"{load}, {found.evidence[0]}", *found.evidence[1:]))


def _queue(search: Search, rate_per_s: float) -> str | None:
    """Says that requests queue at this rate, if by theory the SLO ends for that; else None.

    M/M/c: a request takes what the fastest trials' median response took, and c is how many of them the most that the
    server gave keeps busy at once (Little's law)."""
    limit, steps = response_limit(search.experiment), len(search.experiment.load.scenario)
    medians = [
        trial.metrics["response_time_ns_p50"]
        for trial in search.trials
        if trial.valid and trial.stage is Stage.CAPACITY and "response_time_ns_p50" in trial.metrics
    ]
    if limit is None or not medians or min(medians) >= limit.threshold:
        return None
    most_per_s = steps * search.most_per_s
    servers = max(1, round(most_per_s * min(medians) / 1e9))
    service_s = servers / most_per_s
    if mmc_meets(limit, steps * rate_per_s, service_s, servers):
        return None
    at_once, alone = plural(servers, "request"), format_duration(service_s * 1e9)
    return f"requests that come at random queue there already: it serves {at_once} at once, and one alone takes {alone}"


def _ends_at(search: Search, rate_per_s: float) -> str:
    conditions = " and ".join(constraint.text for constraint in search.objective.constraints)
    most = format_value(search.most_per_s, "per_s")
    part = share(rate_per_s / search.most_per_s)
    stops = "does not hold" if search.unseen else "stops holding"
    return f"the SLO ({conditions}) {stops} at {part} of the {most} that it serves at most"


def _held_up(around: Sequence[TrialResult], causes: Iterable[tuple[str, str]]) -> list[str]:
    """Clauses on those of the causes, metrics with their words, that held up single requests in these trials."""
    parts = ((_middle(around, metric), words) for metric, words in causes)
    return [words.format(share(part)) for part, words in parts if part >= TELLING]


def _middle(trials: Sequence[TrialResult], metric: str) -> float:
    return float(np.median([trial.metrics.get(metric, 0.0) for trial in trials]))
