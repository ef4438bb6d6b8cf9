"""Words the answer if there is nothing to judge: no trial is valid, none has the objective, none has raced yet, or the
time was too short for two rounds. Each answer says what to change; measured trials are kept.

In: the standing of all settings. Out: sentences and clauses. The other answers are worded in `answer.py`.
"""

from __future__ import annotations

import math
from collections import Counter

from powerband.analyze.settings.capacity import TRIALS_MIN
from powerband.analyze.settings.constraints import shortfalls
from powerband.analyze.settings.standing import Standing, names, sentence
from powerband.base.units import format_duration, format_value
from powerband.loads import kind_of
from powerband.loads.measured import requests_for
from powerband.model.metrics import ALIASES, METRICS, OWN, metric_words
from powerband.model.results import Exploration

NOT_TRIED = "it was not tried yet"
NOT_OVER = "no round with it is over yet"
BEYOND_GENERATOR = (
    "at least two of its trials left the load generator no CPU, so it may be faster than its valid trials show (give "
    "the load generator more)"
)
RISING = "it still got faster while it was measured, and may end up ahead (lengthen its warm-up)"
_CLOSED_ONLY = "only a load with users has it, and this load has a rate"
_NONE_OK = "no request succeeded in the measured window: see the outcomes in the report"
# The reason why trials lack a metric, by the beginning of its name.
_LACKED = {
    "connect_time_ns": "no connection was opened while it measured: set load.keep_alive to false to open one for each "
    "request",
    "response_time_ns": _NONE_OK,
    "service_time_ns": _NONE_OK,
    "send_lag_ns": _NONE_OK,
    "finish_s": "only users with a set number of requests (load.requests_per_user) finish, and some did not",
    "burst_": "no first moments were set apart (measure.burst), no request ended in them, or it falls on one that was "
    "not answered in them",
    "jvm_": "the server is no JVM, or one that does not publish its counters (-XX:-UsePerfData)",
    OWN: "the server's page did not have it while it measured: see metrics_url and measure.metrics",
}
_SEEN_BY_THE_MONITOR = "this machine does not report it: see `powerband doctor`"


def none_valid(standing: Standing) -> tuple[str, ...]:
    """The answer if no setting has a trial with the objective."""
    objective = standing.experiment.objective
    lacks = standing.measured and objective.metric not in standing.measured
    if lacks and not objective.is_capacity:  # no single trial has a capacity
        return _objective_unmeasured(standing)
    reasons = Counter(
        reason for row in standing.rows for reason in row.infeasible_because if reason not in (NOT_TRIED, NOT_OVER)
    )
    second = sentence(f"Most often: {reasons.most_common(1)[0][0]}" if reasons else "No trial has run")
    made = [row.starts for row in standing.rows if row.starts and row.starts.made]
    failed = made and all(starts.failed == starts.made for starts in made)  # more time would not help
    late = "" if failed else too_little_time(standing)
    return ("No setting could be measured.", f"{second} {sentence(late)}" if late else second)


def first_round(standing: Standing) -> bool:
    """True while the first round of a race runs, in which the objective was measured."""
    race = standing.race
    begun = race is not None and race.under_way and not race.blocks
    return begun and standing.experiment.objective.metric in standing.measured


def no_round_yet() -> tuple[str, str]:
    """The answer during the first round of a race."""
    return (
        "Not enough data to name a setting: the first round of the race is not over.",
        "A race is judged after whole rounds, from the second one on.",
    )


def _objective_unmeasured(standing: Standing) -> tuple[str, ...]:
    metric = standing.experiment.objective.metric
    there = [alias for alias, name in ALIASES.items() if name in standing.measured]
    instead = list(dict.fromkeys(there or sorted(standing.measured)))[:8]
    return (
        f"No trial measured the objective, {metric_words(metric)} ({METRICS[metric].help}).",
        f"{sentence(_why_unmeasured(standing, metric))} The trials are kept; run again with an objective that they "
        f"have, for example {', '.join(instead)} (--maximise or --minimise, objective in a file).",
    )


def _why_unmeasured(standing: Standing, metric: str) -> str:
    """The reason why the trials lack the metric, as far as its name and the kind of load tell."""
    if (reason := kind_of(standing.experiment).why_missing(metric)) is not None:
        return reason
    if requests_for(metric) and standing.few_requests:
        return next(iter(standing.few_requests.values()))
    if metric in ("users_mean", "littles_law_deviation") and standing.experiment.load.users is None:
        return _CLOSED_ONLY
    if "per_request" in metric:
        return "no request ended while it measured: see the outcomes in the report"
    return next((why for begins, why in _LACKED.items() if metric.startswith(begins)), _SEEN_BY_THE_MONITOR)


def none_raced(standing: Standing, exploration: Exploration) -> tuple[str, ...]:
    """The answer if the run ended before the race began."""
    tried = f"{exploration.tried:,} of {exploration.settings:,} settings were tried once"
    if not standing.explored:
        if standing.measured:
            return _objective_unmeasured(standing)
        return ("No setting could be measured.", f"{sentence(tried)} Each excluded trial has its reason.")
    objective = standing.experiment.objective
    sign = -1.0 if objective.direction == "maximise" else 1.0
    missed, _, best = min(
        (
            (shortfalls(objective, result.metrics), sign * result.metrics[objective.metric], result)
            for result in standing.explored
        ),
        key=lambda each: each[:2],
    )
    found = format_value(best.metrics[objective.metric], METRICS[objective.metric].unit)
    first = f"Not enough data to name a setting: {tried}, and none has raced yet."
    where = f"the best trial, {best.setting.id}"
    if math.isinf(missed):
        where = f"{best.setting.id} (no trial was seen to meet the SLO)"
    elif missed:
        where = f"{best.setting.id}, which came nearest to the SLO (no trial was seen to meet it)"
    second = f"{metric_words(objective.metric)} was {found} in {where}"
    return (first, sentence(f"{second}; one trial cannot tell a difference from noise: let the race run (resume)"))


def too_little_time(standing: Standing) -> str:
    """A clause if the budget ended before anything could be compared; empty if that was not the reason."""
    budget_ns, block_s = standing.experiment.design.budget_ns, standing.block_s
    if not standing.out_of_time or budget_ns is None or block_s is None:
        return ""
    confirmed = 2 * standing.experiment.design.confirm if standing.experiment.is_race else 0
    blocks = 1 + TRIALS_MIN if standing.experiment.objective.is_capacity else 2
    needed_s = block_s * (blocks + confirmed / max(1, len(standing.rows)))
    needed_s += min(standing.explore_s, needed_s)  # an exploration takes half of a budget at most (BUDGET_SHARE)
    text = (
        f"the budget of {format_duration(budget_ns)} was too little: one trial of every setting takes about "
        f"{format_duration(block_s * 1e9)}, and at least {blocks} of each are needed; allow "
        f"{format_duration(needed_s * 1e9)}, name fewer values, or shorten load.duration"
    )
    rest = [setting for setting, reason in standing.unmeasured.items() if reason == NOT_TRIED]
    return f"{text} (there was no time for {names(rest)})" if rest else text
