"""The proposals of rules of thumb, on one line with the measured answer. In: an Analysis. Out: a chart description.
templates/verdicts.js draws it; `verdicts.py` makes the table beside it."""

from __future__ import annotations

from dataclasses import dataclass

from powerband.model.plan import Setting, number_of
from powerband.model.results import Analysis, RuleVerdict
from powerband.report.html.charts import LADDER_RATIO, Picture
from powerband.report.wording.findings import is_barred, proposal_words, rule_cost
from powerband.report.wording.words import margin_as_ratio


@dataclass(frozen=True)
class RuleRow:
    """One rule of thumb, with its `name`. `proposal`: the value that it proposes; None if it does not apply. `text`:
    the proposal and what following it changes. `tone`: bad if following the rule is certainly worse, good if it
    certainly is not, empty if neither is shown."""

    name: str
    proposal: float | None
    text: str
    tone: str


@dataclass(frozen=True)
class RuleChart(Picture):
    """The chart. `factor`: the parameter that the rules are about. `rows`: the rules. `answer`: the answer's value, or
    the leader's if there is no answer. `log`: the axis is logarithmic. `tried`: the values measured with all other
    parameters as in the answer; `equal`: the smallest and the largest value equivalent to the answer."""

    factor: str
    rows: tuple[RuleRow, ...]
    tried: tuple[float, ...]
    answer: float
    equal: tuple[float, float] | None
    log: bool


def rule_chart(analysis: Analysis) -> RuleChart | None:
    """The chart; None if no rule proposes anything, or there is no answer or leader to compare with."""
    against = analysis.answer.setting or analysis.answer.leader
    factor = next((rule.factor for rule in analysis.rules if rule.factor is not None), None)
    proposals = [rule.proposal for rule in analysis.rules if rule.proposal is not None]
    if against is None or factor is None or not proposals:
        return None
    answer = number_of(against.as_dict().get(factor, ""))
    if answer is None:
        return None
    line = [row.setting for row in analysis.settings if _beside(row.setting, against, factor)]
    tried = sorted(level for of in line if (level := number_of(of.as_dict()[factor])) is not None)
    equivalent = [of for of in line if of in analysis.answer.equivalent]
    as_good = [level for of in equivalent if (level := number_of(of.as_dict()[factor])) is not None]
    spread = [*proposals, *tried]
    what = "leader" if analysis.answer.setting is None else "answer"
    return RuleChart(
        "rules",
        "rules",
        f"Rules of thumb and the measured {what}",
        f"Line: the {what}, {against.id}; band: equivalent to it; small strokes: the values that were tried.",
        factor,
        tuple(_row(rule, analysis) for rule in analysis.rules),
        tuple(tried),
        answer,
        (min(as_good), max(as_good)) if as_good else None,
        min(spread) > 0 and max(spread) / min(spread) >= LADDER_RATIO,
    )


def rule_tone(rule: RuleVerdict, analysis: Analysis) -> str:
    """Red if the setting violates the SLO, or the whole interval is worse than the margin allows, green if none of it
    is."""
    if is_barred(rule, analysis):
        return "bad"
    cost = rule.cost  # a ratio to the answer, or else to the leader
    if cost is None or cost.low is None or cost.high is None:
        return ""
    margin = margin_as_ratio(analysis, analysis.answer.setting or analysis.answer.leader)
    if analysis.direction == "minimise":
        edge = 1 + margin
        return "bad" if cost.low > edge else "good" if cost.high < edge else ""
    edge = 1 - margin
    return "bad" if cost.high < edge else "good" if cost.low > edge else ""


def _row(rule: RuleVerdict, analysis: Analysis) -> RuleRow:
    if rule.proposal is None:
        return RuleRow(rule.name, None, "refused", "")
    tone = rule_tone(rule, analysis)
    phrase = "" if rule.cost is None else rule_cost(rule, analysis)
    # An unclear result is shown with its interval.
    changes = phrase.partition(" (")[0] if tone else phrase
    text = f"{proposal_words(rule)}: {changes}" if changes else proposal_words(rule)
    return RuleRow(rule.name, rule.proposal, text, tone)


def _beside(setting: Setting, against: Setting, factor: str) -> bool:
    """True if the two settings differ only in `factor`."""
    mine, theirs = setting.as_dict(), against.as_dict()
    return factor in mine and {**mine, factor: 0} == {**theirs, factor: 0}
