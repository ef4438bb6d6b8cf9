"""Bounds how much better than a setting any other one can be: an answer has such a bound long before it has a winner.

In: the table of blocks, the constraints, the race. Out: `Regrets`, and the setting to use while settings cannot be told
apart. No words. Method, and how often the bound holds at a look picked by the data: docs/methods/regret.md.

The statistic is that of multiple comparisons with the best (Hsu 1981, "Simultaneous confidence intervals for all
distances from the best", Annals of Statistics 9(5)), with Dunnett's (1955) one-sided quantile. Unless the best setting
comes out further below some other one than these intervals allow, it lies above each setting by no more than that
setting's bound. So the bounds of all settings hold at once, and that of a setting picked from the data among them. In a
race each look spends its share of the error (Lan & DeMets 1983; `spending.py`): the bounds of all looks hold at once,
and one may stop at any of them. A setting that left as worse than a leader is no better than that leader, which is
bounded itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from powerband.analyze.settings.constraints import Compliance
from powerband.analyze.settings.contest import ResponseTable, cheapest_of, hold_contest
from powerband.analyze.settings.standing import Decision
from powerband.analyze.stats.intervals import Scale
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import AnswerKind, Race

MOST = 1.0
"""A larger bound counts as none: it allows another setting to be twice as good."""


@dataclass(frozen=True)
class Regrets:
    """The bounds of settings. `above`: for each setting, how much better each other one can be at most, as a share of
    the setting's objective (for a response time: of the other's); for shares in percentage points / 100."""

    above: Mapping[Setting, Mapping[Setting, float]] = field(default_factory=dict)

    def of(self, setting: Setting) -> float | None:
        """The bound of a setting: how much better any other can be; 0 if there is no other. None if there is no bound,
        or one above `MOST`."""
        if setting not in self.above:
            return None
        worst = max(self.above[setting].values(), default=0.0)
        return worst if worst <= MOST else None

    def alike(self, among: Iterable[Setting], scale: Scale, margin: float, asked: float | None) -> list[Setting]:
        """The settings that are as safe to use as any: those whose bound is within what was asked for; if none is,
        those whose bound is larger than the smallest by no more than the margin."""
        known = {setting: bound for setting in among if (bound := self.of(setting)) is not None}
        if not known:
            return []
        least = min(known.values())
        if asked is not None and least <= asked:
            most = asked
        else:
            most = (1 + least) * (1 + margin) - 1 if scale.log else least + margin
        return [setting for setting, bound in known.items() if bound <= most]


def regrets_of(
    experiment: Experiment,
    table: ResponseTable,
    scale: Scale,
    compliance: Mapping[Setting, Compliance],
    *,
    of: Sequence[Setting],
    race: Race | None,
    of_full: bool = True,
) -> Regrets:
    """The bounds of each setting of `of` that certainly meets the constraints, against all that may meet them. There
    are none if a setting left as worse than one that is no answer itself: then nothing bounds it. `of_full`: as in
    `hold_contest`."""
    left = {departure.setting: departure for departure in race.departures} if race else {}
    may = [s for s in table.settings if table.valid(s) and s not in left and not compliance[s].barred]
    if race is not None and unbounded(race, may):
        return Regrets()
    found = {}
    for setting in of:
        if setting not in may or not compliance[setting].certain:
            continue
        contest = hold_contest(experiment, table, scale, compliance, left, against=setting, of_full=of_full)
        if setting in contest.endless or not {*may} <= {*contest.difference}:
            continue  # one that came back has short trials only
        ends = {other: contest.difference[other] + contest.half_tost[other] for other in may if other != setting}
        found[setting] = {other: max(0.0, scale.share(end, contest.leader_mean)) for other, end in ends.items()}
    return Regrets(found)


def with_regret(
    decision: Decision, regrets: Regrets, table: ResponseTable, scale: Scale, experiment: Experiment
) -> Decision:
    """The decision with its bound. If it names nothing but there is a bound, it now names the cheapest of the settings
    that are as safe as any. Of two revisions the new one alone may have a bound, and is then named."""
    of_other = experiment.compares_revisions and decision.chosen not in regrets.above
    if decision.chosen is None or of_other:
        alike = regrets.alike(regrets.above, scale, experiment.objective.margin, experiment.design.regret)
        if not alike:
            return decision
        chosen = cheapest_of({setting: table.cost(setting) for setting in alike})[0]
        ahead = tuple(s for s, above in regrets.above[chosen].items() if above > experiment.objective.margin)
        decision = Decision(AnswerKind.BOUNDED, chosen, (chosen,), ahead, alike=tuple(alike))
    assert decision.chosen is not None
    above = regrets.above.get(decision.chosen, {})
    return replace(decision, regret=regrets.of(decision.chosen), above=above)


def unbounded(race: Race, may: Sequence[Setting]) -> frozenset[Setting]:
    """The settings that were eliminated as worse than a leader that can be no answer any more: nothing bounds how good
    they are. `may`: the settings that may be an answer."""
    return frozenset(left.setting for left in race.departures if not _is_bounded(race, left.setting, may))


def _is_bounded(race: Race, setting: Setting, may: Sequence[Setting]) -> bool:
    """True if a setting that left did so by its own fault or for a constraint, or as worse than a leader that may be an
    answer or is bounded in this way itself."""
    leaders = {look.block: look.leader for look in race.looks}
    left = {departure.setting: departure for departure in race.departures}
    if not left[setting].worse:
        return True
    for _ in left:
        leader = leaders.get(left[setting].block)
        if leader is None or leader in may:
            return leader is not None
        if leader not in left or not left[leader].worse:
            return False
        setting = leader
    return False
