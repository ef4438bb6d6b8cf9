"""Words the bound of an answer whose settings cannot be told apart: no other setting is better by more than so much.

In: the standing of all settings, the decision. Out: clauses and sentences of the answer (`answer.py`). The figures are
those of `regret.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from powerband.analyze.settings.contest import COSTS, clearly_more
from powerband.analyze.settings.standing import Decision, Standing, names
from powerband.base.units import percent
from powerband.loads import kind_of
from powerband.model.metrics import margin_words, regret_words
from powerband.model.plan import Setting
from powerband.model.results import Race

IN_ORDER = "by threads, then memory, then CPU"


def bound_clause(standing: Standing, decision: Decision) -> str:
    """Words the bound: `no other setting is better by more than 9 % (95 % confidence)`; in an explored space `no other
    setting that raced`."""
    assert decision.regret is not None
    objective = standing.experiment.objective
    other = "other setting" if standing.exploration is None else "other setting that raced"
    bound = regret_words(decision.regret, objective.metric)
    asked, within = standing.experiment.design.regret, ""
    if asked is not None and decision.regret <= asked:
        within = f", within the {margin_words(asked, objective.metric)} asked for"
    return f"no {other} is better by more than {bound} ({percent(objective.confidence)} confidence){within}"


def not_told_apart(standing: Standing, decision: Decision) -> list[str]:
    """Clauses which say why this one was picked, which others may still be better, and what would narrow the
    bound."""
    parts = []
    if len(decision.alike) > 1 and decision.chosen is not None:
        words, asked = why_this_one(standing, decision.alike, decision.chosen), standing.experiment.design.regret
        met = asked is not None and decision.regret is not None and decision.regret <= asked
        alike = "keep within the bound" if met else "cannot be told apart"
        parts.append(f"{names(decision.alike)} {alike}; {words}")
    if decision.undecided and decision.chosen is not None:
        parts.append(may_be_better(standing, decision.undecided, decision.chosen))
    race = standing.race
    if decision.undecided and (race is None or race.ended_by not in ("regret", "running")):
        coarse = "" if decision.chosen is None else coarse_clock(standing, decision.chosen)
        more = f"{more_trials(standing)} or longer trials would narrow this"
        parts.append(f"more trials may not narrow this: {coarse}" if coarse else more)
    return parts


def why_this_one(standing: Standing, among: Sequence[Setting], chosen: Setting) -> str:
    """A clause on why `chosen` is named, of settings that serve alike: it is the cheapest, or the first of those that
    cost alike. Where another one clearly has less of something, it says by what."""
    least = standing.cheapest(among)
    if len(least) == 1:
        return f"{chosen.id} {_how_cheap(standing, among, chosen)}"
    if not any(standing.value(chosen, name) for name in COSTS):
        return f"{chosen.id} is the first of them"
    if len(least) < len(among):
        by = f" {IN_ORDER}" if _is_outdone(standing, among, chosen) else ""
        return f"{names(least)} cost least{by}, and alike: the first is named"
    return f"{'both' if len(among) == 2 else 'all'} cost alike, and the first is named"


def _how_cheap(standing: Standing, among: Sequence[Setting], chosen: Setting) -> str:
    """`is the cheapest`; `has the fewest threads` if another one has clearly less memory, or CPU."""
    two = len(among) == 2
    cheapest = f"is {'cheaper' if two else 'the cheapest'}"
    if not _is_outdone(standing, among, chosen):
        return cheapest
    costs = standing.costs(among)
    if all(clearly_more(cost[0], costs[chosen][0]) for setting, cost in costs.items() if setting != chosen):
        return f"has {'fewer' if two else 'the fewest'} threads"
    return f"{cheapest} {IN_ORDER}"


def _is_outdone(standing: Standing, among: Sequence[Setting], chosen: Setting) -> bool:
    """True if another one costs clearly less in one part of the costs."""
    costs = standing.costs(among)
    pairs = (pair for cost in costs.values() for pair in zip(costs[chosen], cost, strict=True))
    return any(clearly_more(own, other) for own, other in pairs)


def may_be_better(standing: Standing, rivals: Sequence[Setting], than: Setting) -> str:
    """A clause on settings that were not shown to be worse, or equivalent."""
    return f"{names(rivals)} may still be better than {than.id} by more than the margin of {standing.margin}"


def missed_bound(asked: float | None, found: float | None, metric: str, race: Race | None) -> str:
    """A sentence if a bound was `asked` for and is not met yet, or was not met; else empty. `found`: the bound of the
    answer."""
    if asked is None or (found is not None and found <= asked):
        return ""
    still = "not met yet" if race is not None and race.under_way else "not met"
    return f"The bound asked for, {margin_words(asked, metric)} (design.regret), is {still}."


def coarse_clock(standing: Standing, setting: Setting) -> str:
    """A clause on a clock of the load that counts in steps larger than the margin at this setting, so that more trials
    may not tell it from others; empty if it does not."""
    objective = standing.experiment.objective
    kind = kind_of(standing.experiment)
    step_ns = 2 * kind.clock_error(objective.metric)
    if not step_ns or step_ns <= objective.margin * standing.figures[setting].estimate.value:
        return ""
    return (
        f"{kind.clock_words(objective.metric)}; judge the mean response time (response_time_ns_mean), in which that "
        "evens out"
    )


def more_trials(standing: Standing) -> str:
    """Names what would decide: more rounds or, where a race ended before them, a longer budget or the rest of the
    race."""
    ended_by = "" if standing.race is None else standing.race.ended_by
    more = {"budget": "a longer budget (design.budget)", "stopped": "the rest of the race (resume the run)"}
    return more.get(ended_by, "more rounds (measure.repeats)")
