"""Finds each setting's capacity, the highest Poisson rate at which the SLO holds, from the trials of a search.

In: an experiment and its trials' results, in any order. Out: `Search` of each setting (what was tried, where the edge
lies), which the planner asks for the next rate, and `Capacity` for the reader. The edge is estimated in `edge.py`;
settings are compared in `capacities.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from powerband.analyze.settings.starts import starts_of
from powerband.analyze.stats.edge import Answered, Edge, locate
from powerband.analyze.stats.shares import share_most
from powerband.analyze.stats.theory import relaxation_s
from powerband.analyze.trial.faults import (
    GENERATOR_HELD,
    LIMITED_TRIALS,
    NEVER_READY,
    fatal_codes,
    met_generator_limit,
    spoilt_by_others,
)
from powerband.analyze.trial.honesty import REPEATED_CODES
from powerband.base.units import format_duration, format_value, plural
from powerband.loads.measured import (
    FEW_REQUESTS,
    STANDARD_ERRORS,
    as_judged,
    in_flight_chance_per_s,
    is_lower_bound,
    least_served,
    requests_for,
)
from powerband.model.constraint import Constraint
from powerband.model.experiment import Experiment, Objective
from powerband.model.metrics import METRICS
from powerband.model.plan import Setting, Stage
from powerband.model.results import Capacity, CapacityPoint, Estimate, Starts, TrialResult

FLOOR_SLACK = 0.1  # more than the requests needed: three standard deviations of 1,000 random arrivals
TRIALS_PER_REPEAT = 5
"""Each setting is tried at most this many times for each of `measure.repeats`: a yes or no carries less information
than a figure, and the first few only find the edge."""
KEPT_UP = 0.97
"""The share of the offered rate that must be served within the window. Past its capacity C a server serves the share
C / rate. So a rate of up to 3 % above C still counts as held, and 3 % is the margin below which nothing counts."""
ERROR_RATES = frozenset({"error_rate", "run_error_rate"})
OVERLOADED = REPEATED_CODES | {"no_response", "no_valid_response", "unavailable", "died"}
"""Problems by which an invalid trial shows that the subject does not bear the rate."""
LIMIT_KNOWN = 1.15
"""The load engine's limit is known closely enough if it is at most this many times a rate that it did offer."""
TRIALS_MIN = 5
"""With fewer answers than this no interval is believed to be narrow."""
RELAXATIONS = 20
"""A trial measures for this many relaxation times of the queue at its rate: the mean of a queue of M/M/1 is then off by
a factor of 1.5 at times (2 / sqrt(20), Whitt 1989), which is 3 % of the rate at 94 % of what the server can give."""
WINDOW_STEP_NS = 500_000_000  # arbitrary: windows of few lengths, so that trials at near rates are alike
LONGEST_WINDOW, LONGEST_WINDOW_NS = 10, 60_000_000_000
"""No trial measures for more than `LONGEST_WINDOW` times `load.duration`, nor for more than `LONGEST_WINDOW_NS`: the
queue of a slow server at 99 % of its capacity and more is not waited for."""
LOOK_REQUESTS, LOOK_LEAST_NS = 1_000, 1_000_000_000
"""A look at a setting that another node has looked at measures until so many requests are due, which gives the rate to
3 % (1 / sqrt(1,000)), about as well as starts repeat; and never for less than this."""
NEAR = 0.10
"""Other metrics of a setting are those of its trials within this share of the edge."""


def longest_window_ns(experiment: Experiment) -> int:
    """The longest time that a trial of the search measures, in ns."""
    usual_ns = experiment.load.duration_ns
    return max(usual_ns, min(LONGEST_WINDOW_NS, LONGEST_WINDOW * usual_ns))


def holds(experiment: Experiment, result: TrialResult) -> bool | None:
    """True if the SLO held in a capacity trial; None if the trial says nothing of it."""
    if result.stage is not Stage.CAPACITY or result.rate_per_s is None:
        return None
    if not result.valid:
        shows = result.status != "interrupted" and not spoilt_by_others(result)
        return False if shows and fatal_codes(result) & OVERLOADED else None
    all_met = [met(constraint, result) for constraint in experiment.objective.constraints]
    if False in all_met or not _kept_up(experiment, result, result.rate_per_s):
        return False
    return None if None in all_met else True


def met(constraint: Constraint, result: TrialResult) -> bool | None:
    """True if a trial met the constraint; None if its metric was not measured."""
    value = as_judged(constraint.metric, result.metrics)
    return None if value is None else constraint.holds(value)


def _kept_up(experiment: Experiment, result: TrialResult, rate_per_s: float) -> bool:
    """True if the server answered what was offered; rightly, unless a condition judges its errors. If it falls short by
    so little that it may keep up, it must also serve the rate itself."""
    metrics, load, steps = result.metrics, experiment.load, len(experiment.load.scenario)
    offered, served = metrics.get("offered_rate_per_s"), metrics.get("goodput_per_s")
    if any(constraint.metric in ERROR_RATES for constraint in experiment.objective.constraints):
        served = metrics.get("achieved_rate_per_s", served)
    if offered is None or served is None:
        return True
    window_s = load.duration_ns / 1e9 if result.window_s is None else result.window_s
    response_s = metrics.get("response_time_ns_mean", 0.0) / 1e9
    chance = in_flight_chance_per_s(offered, response_s, window_s)
    if served >= least_served(KEPT_UP, steps) * offered - chance:
        return True
    if served < KEPT_UP * offered - chance:
        return False
    load = experiment.load_for(result.setting, rate_per_s)
    # So late in the window the last step begins to be sent. A request that fails ends its scenario, at worst at once.
    late_s = steps * response_s + (load.pauses_ns - (experiment.warmup_ns_of(Stage.CAPACITY, load) or 0)) / 1e9
    due = steps * rate_per_s * (1 - max(0.0, late_s) / window_s - steps * metrics.get("error_rate", 0.0))
    return served >= KEPT_UP * due - chance - STANDARD_ERRORS * steps * math.sqrt(rate_per_s / window_s)


@dataclass(frozen=True)
class Search:
    """The search for one `setting`'s capacity in an `experiment`, so far. `trials`: all of the setting's, by number.
    `answered`: trials that say something, each with whether the SLO held. `looks`: the rate that it served under a full
    load of users, by node, in scenarios per second; without one there is no `edge`. `floor_per_s`: the lowest rate at
    which a trial says something. `ceiling_per_s`: the load engine's limit; infinite if it was not met. `speeds`: how
    much faster each node is than their median, in log rate; empty: not known, or one node."""

    setting: Setting
    experiment: Experiment
    trials: tuple[TrialResult, ...]
    answered: tuple[tuple[TrialResult, bool], ...]
    looks: Mapping[str, float]
    floor_per_s: float
    ceiling_per_s: float
    speeds: Mapping[str, float] = field(default_factory=dict)

    @property
    def objective(self) -> Objective:
        """The experiment's objective, whose constraints must hold."""
        return self.experiment.objective

    @property
    def first_look(self) -> float | None:
        """The rate that it served under a full load of users, on a node of median speed; None: not known yet."""
        return float(np.median(list(self.looks.values()))) if self.looks else None

    @property
    def answers(self) -> tuple[Answered, ...]:
        """The log rate of each of `answered`, with whether the SLO held."""
        return tuple(Answered(math.log(trial.rate_per_s or 1.0), held) for trial, held in self.answered)

    @cached_property
    def starts(self) -> Starts:
        """Its starts, and those that failed since the server never got ready. That one died later is no failed start:
        the search loads it with more than it bears."""
        return starts_of(self.trials, self.setting, self.objective.confidence, NEVER_READY)

    @cached_property
    def edge(self) -> Edge:
        """The posterior of the setting's capacity, in log rate."""
        return self._located(self.answers)

    @cached_property
    def compared(self) -> Edge:
        """The edge by which settings are compared, as on a node of median speed."""
        if not any(self.speeds.values()):
            return self.edge.compared
        pairs = zip(self.answers, self.answered, strict=True)
        even = [replace(each, log_rate=each.log_rate - self.speeds.get(trial.node, 0.0)) for each, (trial, _) in pairs]
        return self._located(even).compared

    def _located(self, answers: Sequence[Answered]) -> Edge:
        assert self.first_look is not None, "no rate is known to begin from"
        floor = math.log(self.floor_per_s)
        return locate(answers, max(math.log(self.first_look), floor), floor)

    def next_rate_per_s(self, in_flight: Sequence[float] = (), longest_ns: float = math.inf) -> float:
        """The rate to try next, rounded so that the same rate comes again and the plan reads well. `in_flight`: rates
        that are being tried. `longest_ns`: rates that need a longer window are left out, as long as others are
        plausible."""
        digits = 3 if self.objective.margin >= 0.02 else 4
        highest, usual_ns = self._highest_per_s, self.experiment.load.duration_ns

        def fits(log_rate: float) -> bool:
            return (self.window_ns(max(self.floor_per_s, math.exp(log_rate))) or usual_ns) <= longest_ns

        tried = [math.log(each) for each in in_flight]
        rate = math.exp(self.edge.next_log_rate(math.log(highest), tried, None if math.isinf(longest_ns) else fits))
        return float(f"{min(highest, max(self.floor_per_s, rate)):.{digits}g}")

    def look_window_ns(self, at_once: int) -> int | None:
        """The window of a first look, in ns; None: `load.duration`, which `at_once` nodes that begin with this setting
        share. Where another node has shown the rate, it lasts until `LOOK_REQUESTS` requests are due, or those that the
        percentiles need."""
        usual_ns = self.experiment.load.duration_ns
        needed_ns = usual_ns / at_once
        if self.first_look is not None:
            least = LOOK_REQUESTS / len(self.experiment.load.scenario)
            needed_ns = 1e9 * max(least, _scenarios_needed(self.experiment)) / self.first_look
        window_ns = math.ceil(max(LOOK_LEAST_NS, needed_ns) / WINDOW_STEP_NS) * WINDOW_STEP_NS
        return window_ns if window_ns < usual_ns else None

    def window_ns(self, rate_per_s: float) -> int | None:
        """The window that a trial at this rate needs, in ns; None if `load.duration` is enough. At a low rate it must
        last until as many requests are due as the percentiles need. Close below the most that the server serves, a
        queue takes long to fill; close above it, overload takes long to show in a time limit."""
        needed_s = _scenarios_needed(self.experiment) / rate_per_s
        if self.most_per_s:
            queue_s = RELAXATIONS * relaxation_s(rate_per_s, self.most_per_s)
            limit_ns = _overload_ns(self.experiment)
            if rate_per_s > self.most_per_s and limit_ns:
                queue_s = min(queue_s, 2 * limit_ns / 1e9 / (rate_per_s / self.most_per_s - 1))
            needed_s = max(needed_s, queue_s)
        longest_ns = longest_window_ns(self.experiment)
        window_ns = math.ceil(min(needed_s * 1e9, longest_ns) / WINDOW_STEP_NS) * WINDOW_STEP_NS
        return None if window_ns <= self.experiment.load.duration_ns else min(window_ns, longest_ns)

    @cached_property
    def most_per_s(self) -> float:
        """The most that it was seen to serve, in scenarios per second, on the slowest of the nodes that had a first
        look; 0: nothing yet."""
        most: dict[str, float] = {}
        for trial in self.trials:
            if trial.status == "measured" and (trial.node in self.looks or not self.looks):
                most[trial.node] = max(most.get(trial.node, 0.0), trial.metrics.get("goodput_per_s", 0.0))
        return min(most.values(), default=0.0) / len(self.experiment.load.scenario)

    @property
    def _highest_per_s(self) -> float:
        """The highest rate to try, below the load engine's limit: half way to it, in log rate, from the highest rate
        that it did offer, or that rate itself if the limit is known. Infinite if no limit was met."""
        if math.isinf(self.ceiling_per_s):
            return math.inf
        if self._limit_known:
            return self.offered_per_s
        return math.sqrt(self.ceiling_per_s * max(self.offered_per_s, self.floor_per_s))

    @property
    def offered_per_s(self) -> float:
        """The highest rate of a valid trial that is below the ceiling."""
        offered = [trial.rate_per_s for trial in self.trials if trial.valid and trial.rate_per_s]
        below = [rate for rate in offered if rate < self.ceiling_per_s]
        return max(below, default=min(self.first_look or math.inf, self.ceiling_per_s / 2))

    @property
    def _limit_known(self) -> bool:
        return self.ceiling_per_s <= LIMIT_KNOWN * self.offered_per_s

    @property
    def nowhere(self) -> bool:
        """True if the SLO certainly holds at no rate that can be tried."""
        return self._answered and float(self.edge.below(math.log(self.floor_per_s))) > self._sure

    @property
    def unseen(self) -> bool:
        """True if the SLO held in no trial, though it may at a lower rate than tried: an estimate is then a guess."""
        return self._answered and not self.nowhere and not any(answer.held for answer in self.answers)

    @property
    def everywhere(self) -> bool:
        """True if the SLO certainly holds at every rate that the load engine can offer, and was missed at none
        beyond."""
        return self._beyond > self._sure

    @property
    def beyond_engine(self) -> bool:
        """True if the capacity is estimated to lie above every rate that the load engine can offer, where no trial can
        show it, so that it has no figure. `everywhere` is the certain case."""
        return self._beyond > 0.5

    @property
    def unmissed(self) -> bool:
        """True if the SLO was missed in no trial, though higher rates may be offered: an estimate above the rates tried
        is then a guess."""
        return self._answered and not self.beyond_engine and all(answer.held for answer in self.answers)

    @property
    def open_above(self) -> bool:
        """True if no trial shows where the capacity ends."""
        return self.beyond_engine or self.unmissed

    @property
    def _beyond(self) -> float:
        """The probability that the capacity lies above every rate that the load engine can offer; 0 if that limit is
        not known, or if the SLO was missed beyond it."""
        if not self._answered or not self._limit_known:
            return 0.0
        limit = math.log(self.offered_per_s)
        if any(answer.log_rate > limit and not answer.held for answer in self.answers):
            return 0.0
        return 1 - float(self.edge.below(limit))

    def is_known_within(self, half_width: float) -> bool:
        """True if the half-width of the capacity's interval is at most this share of the capacity."""
        wanted = math.log1p(half_width)
        enough = self._answered and len(self.answered) >= TRIALS_MIN
        return enough and self.edge.half_width(self.objective.confidence) <= wanted

    @property
    def _answered(self) -> bool:
        return bool(self.looks) and bool(self.answered)

    @property
    def _sure(self) -> float:
        return (1 + self.objective.confidence) / 2

    def near_edge(self) -> list[TrialResult]:
        """The valid trials that show the setting at its capacity: those that held within a tenth of it, else one that
        held at the highest rate. If none held, or there is no capacity, those at the lowest rate of all."""
        valid = [trial for trial in self.trials if trial.valid and trial.stage is Stage.CAPACITY and trial.rate_per_s]
        held = [trial for trial in valid if holds(self.experiment, trial)]
        if not held or self.nowhere:
            lowest = min((trial.rate_per_s or 0.0 for trial in valid), default=0.0)
            return [trial for trial in valid if trial.rate_per_s == lowest]
        middle = math.exp(self.edge.quantile(0.5))
        near = [trial for trial in held if abs((trial.rate_per_s or 0.0) / middle - 1) <= NEAR]
        return near or [max(held, key=lambda trial: trial.rate_per_s or 0.0)]


def search_of(experiment: Experiment, setting: Setting, results: Sequence[TrialResult]) -> Search:
    """The state of one setting's search. A first look counts even if it is not valid: it only says where to begin."""
    mine = tuple(sorted((r for r in results if r.setting == setting), key=lambda result: result.number))
    answered = [(result, held) for result in mine if (held := holds(experiment, result)) is not None]
    looks = {
        result.node: goodput / len(experiment.load.scenario)  # the last on each node
        for result in mine
        if result.stage is Stage.SATURATE and (goodput := result.metrics.get("goodput_per_s", 0.0)) > 0
    }
    return Search(
        setting=setting,
        experiment=experiment,
        trials=mine,
        answered=tuple(answered),
        looks=looks,
        floor_per_s=floor_per_s(experiment),
        ceiling_per_s=_ceiling(mine, len(experiment.load.scenario)),
    )


def floor_per_s(experiment: Experiment) -> float:
    """The lowest rate at which a trial says something: in the longest window it has as many requests due as the
    conditions' percentiles need."""
    return _scenarios_needed(experiment) / (longest_window_ns(experiment) / 1e9)


def _scenarios_needed(experiment: Experiment) -> float:
    """The number of scenarios that a window needs for its requests, and some more, since arrivals are random: a tenth,
    or as much times the root of the number of steps, which arrive together."""
    needed = max((requests_for(constraint.metric) for constraint in experiment.objective.constraints), default=0)
    steps = len(experiment.load.scenario)
    return (1 + FLOOR_SLACK * math.sqrt(steps)) * max(needed, FEW_REQUESTS) / steps


def _overload_ns(experiment: Experiment) -> float:
    """The time in ns that, divided by the share e of an overload, says how long it takes to show in the largest time
    allowed; 0 without such a limit. With k steps, each of which waits for the one before it, a server falls behind by
    about 2 e / (k + 1) seconds each second."""
    return experiment.longest_allowed_ns * (len(experiment.load.scenario) + 1) / 2


def _ceiling(trials: Sequence[TrialResult], steps: int) -> float:
    """The lowest rate beyond what the load engine can offer: it met its limit there `LIMITED_TRIALS` times."""
    limited = Counter(trial.rate_per_s for trial in trials if trial.rate_per_s and met_generator_limit(trial))
    # A load engine that offered more in a valid trial, or twice as much to the users of a first look, was disturbed and
    # not at its limit.
    offered = max((_offered_per_s(trial, steps) for trial in trials if trial.valid), default=0.0)
    return min((rate for rate, n in limited.items() if n >= LIMITED_TRIALS and rate > offered), default=math.inf)


def _offered_per_s(trial: TrialResult, steps: int) -> float:
    """The scenarios per second, of `steps` requests each, that the load engine offered; half of them for a first look,
    since a rate costs the engine more than users who wait."""
    return trial.metrics.get("goodput_per_s", 0.0) / steps / 2 if trial.rate_per_s is None else trial.rate_per_s


def capacity_of(search: Search) -> Capacity | None:
    """The capacity of a setting; None if no rate was tried."""
    curve = _curve(search)
    if search.first_look is None or not curve:
        return None
    if search.nowhere:
        return Capacity(None, curve, "; ".join(misses(search)))
    if search.beyond_engine:
        return Capacity(None, curve, _up_to_the_limit(search))
    low, high = map(math.exp, search.edge.interval(search.objective.confidence))
    n, confidence = len(search.answers), search.objective.confidence
    if search.unmissed:
        most = max(point.rate_per_s for point in curve)
        held = "its only trial, at" if n == 1 else f"all {n} trials, up to"
        note = f"held in {held} {format_value(most, 'per_s')}; higher rates were not tested"
        return Capacity(Estimate(most, min(low, most), max(high, most), confidence, n, at_least=True), curve, note)
    found = Estimate(math.exp(search.edge.quantile(0.5)), low, high, confidence, n)
    note = f"held in none of {plural(n, 'trial')}; lower rates were not tested" if search.unseen else ""
    return Capacity(found, curve, note or _seen_at(search, found.value))


def _up_to_the_limit(search: Search) -> str:
    """Says that the SLO holds up to the limit of the load generator, and how to raise that."""
    most = f"{search.offered_per_s:,.0f}/s"
    held, n = sum(answer.held for answer in search.answers), len(search.answers)
    where = f"in {held} of {plural(n, 'trial')} up to {most}, the most that the load generator could offer"
    if search.everywhere:
        where = f"at every rate that the load generator could offer, up to {most}"
    by_bound = any(GENERATOR_HELD in fatal_codes(trial) for trial in search.trials)
    raised = "load.max_in_flight and the limit of descriptors" if by_bound else "load.engine_threads, give it more CPUs"
    return f"holds {where}: raise {raised}, or ask for more"


def _seen_at(search: Search, rate_per_s: float) -> str:
    """Says how many of the starts tried at this rate or below held, and what share of all these show to hold."""
    below = [answer.held for answer in search.answers if answer.log_rate <= math.log(rate_per_s)]
    if not below:
        return ""
    missed = below.count(False)
    least = 1 - share_most(missed, len(below), 1 - search.objective.confidence)
    held = f"{len(below) - missed} of {plural(len(below), 'start')}"
    return f"{held} met the SLO at or below it; by their number alone at least {100 * least:.0f} % of starts do"


def misses(search: Search) -> tuple[str, ...]:
    """The reasons why the SLO holds at no rate: each condition that was missed at the lowest rate tried, with the
    median of the trials that missed it; others may have met it."""
    lowest = search.near_edge()
    if not lowest:
        return tuple(dict.fromkeys(problem.message for trial in search.trials for problem in trial.problems))
    rate = format_value(min(trial.rate_per_s or 0.0 for trial in lowest), "per_s")
    found = []
    for constraint in search.objective.constraints:
        missed = [trial.metrics for trial in lowest if met(constraint, trial) is False]
        if not missed:
            continue
        said = "too many requests got no correct response"
        if values := [metrics[constraint.metric] for metrics in missed if constraint.metric in metrics]:
            least = "at least " if any(is_lower_bound(constraint.metric, metrics) for metrics in missed) else ""
            said = f"it was {least}{format_value(float(np.median(values)), METRICS[constraint.metric].unit)}"
        found.append(f"{constraint.text}: {said} at {rate}, the lowest rate tried")
    return tuple(found) or (f"less than {100 * KEPT_UP:.0f} % of {rate} was served, the lowest rate tried",)


def short_windows(experiment: Experiment) -> str | None:
    """A warning if even the longest trials are too short to show an overload of the margin: one by a share e shows in a
    time limit L only once warm-up and window are longer than L / e, and with several steps longer still."""
    warmup_ns = experiment.warmup_ns_of(Stage.CAPACITY) or 0
    longest_ns = warmup_ns + longest_window_ns(experiment)
    limit_ns = _overload_ns(experiment)
    unseen, margin = limit_ns / longest_ns, experiment.objective.margin
    if unseen <= margin:
        return None
    longer = "make load.duration (--duration) longer"
    if margin:
        needed_ns = limit_ns / margin - warmup_ns
        needed_ns /= LONGEST_WINDOW if needed_ns <= LONGEST_WINDOW_NS else 1
        longer = f"set load.duration (--duration) to {format_duration(needed_ns)} or longer"
    return (
        f"even the longest trials of the search, {format_duration(longest_ns)} with their warm-up, cannot see an "
        f"overload of less than {100 * unseen:.1f} %, so capacities may be too high by as much; for the margin of "
        f"{100 * margin:.1f} % {longer}"
    )


def _curve(search: Search) -> tuple[CapacityPoint, ...]:
    """One point for each rate with trials that say something, by rate."""
    points = []
    rates = sorted({trial.rate_per_s for trial in search.trials if trial.rate_per_s is not None})
    for rate in rates:
        here = [trial for trial in search.trials if trial.rate_per_s == rate]
        answers = [answer for trial in here if (answer := holds(search.experiment, trial)) is not None]
        if not answers:
            continue
        valid = [trial for trial in here if trial.valid]
        points.append(
            CapacityPoint(
                rate_per_s=rate,
                trials=len(answers),
                held=sum(answers),
                p50_ns=_median(valid, "response_time_ns_p50"),
                p99_ns=_median(valid, "response_time_ns_p99"),
                error_rate=_median(valid, "error_rate"),
                goodput_per_s=_median(valid, "goodput_per_s"),
            )
        )
    return tuple(points)


def _median(trials: Sequence[TrialResult], metric: str) -> float | None:
    values = [trial.metrics[metric] for trial in trials if metric in trial.metrics]
    return float(np.median(values)) if values else None
