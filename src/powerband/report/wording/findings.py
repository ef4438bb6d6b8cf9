"""The findings behind an answer, in words: bottlenecks, a race and its confirmation, an exploration, a capacity, rules
of thumb, settings that never stabilised. In: values of `model.results`. Out: text; tables and charts are made
elsewhere."""

from __future__ import annotations

from dataclasses import replace

from powerband.analyze.settings.found import ratio_words, short_ratio
from powerband.analyze.settings.unsettled import never_stabilised
from powerband.base.units import RATIO_SHOWN_MAX, format_duration, percent, plural, signed_percent, span
from powerband.model.clocks import GeneratorNode
from powerband.model.metrics import METRICS, margin_words, metric_words
from powerband.model.plan import Setting
from powerband.model.results import (
    Analysis,
    Bottleneck,
    Capacity,
    ChangeCost,
    Departure,
    Estimate,
    Exploration,
    NodeRow,
    PublishedRow,
    PublishedTable,
    Race,
    RuleVerdict,
    SettingResult,
    Verdict,
)
from powerband.report.wording.names import level_words
from powerband.report.wording.numbers import (
    ABSENT,
    format_change,
    format_estimate,
    format_exact,
    format_interval,
    format_number,
)
from powerband.report.wording.words import (
    INCONCLUSIVE,
    VIOLATES,
    gap_words,
    has_column,
    is_change_bound,
    signed_points,
    valid_note,
    verdict_words,
)

PERCENTILES = ("response_time_ns_p50", "response_time_ns_p99")  # of the table's columns
OUT = "eliminated in round"  # the number of the round follows
FACTOR_BELOW, FACTOR_ABOVE = 0.5, 2.0  # a change beyond these is shown as a factor
_ENDED = {
    "decided": "The race was decided after {blocks}",
    "regret": "The race reached the bound asked for after {blocks}",
    "blocks": "The race was not decided after {blocks}",
    "budget": "The race ended with its budget after {blocks}",
    "stopped": "The race was interrupted after {blocks}",
    "running": "The race goes on after {blocks}",
}


def bottleneck_short(bottleneck: Bottleneck | None) -> str:
    """Two or three words for a column, or twice as many if the evidence ties; a dash if no bottleneck was found."""
    return ABSENT if bottleneck is None else " or ".join(each.name.short for each in bottleneck.candidates)


def what_to_do(bottleneck: Bottleneck) -> str:
    """The advice alone; with two candidates, the advice for each with its name; empty if there is none."""
    if bottleneck.second is None:
        return f"{bottleneck.advice.rstrip('.')}." if bottleneck.advice else ""
    return " ".join(f"If {each.name.words}: {each.advice.rstrip('.')}." for each in bottleneck.candidates)


def departure_of(setting: Setting, race: Race | None) -> Departure | None:
    """The elimination of this setting from the race; None if it was not eliminated."""
    return next((left for left in race.departures if left.setting == setting), None) if race else None


def state_words(result: SettingResult, analysis: Analysis) -> str:
    """The verdict, or `eliminated in round 2` for a setting eliminated from the race as worse; blocks are numbered from
    1 for readers."""
    left = departure_of(result.setting, analysis.race)
    if left is None or not left.worse or not result.trials or not result.feasible:
        return verdict_words(result, analysis)
    return f"{OUT} {left.block + 1}"


def table_legend(analysis: Analysis) -> list[tuple[str, str]]:
    """Each word of the table's verdicts and bottlenecks with its meaning, one per line, and the meaning of a dash, of
    `≥` and of the column `trials`; only what needs it."""
    shown = {state_words(result, analysis) for result in analysis.settings}
    if any(words.startswith(OUT) for words in shown):
        shown.add(OUT)
    margin = margin_words(analysis.margin, analysis.objective)
    unsure = ", or to meet the SLO" if any(result.uncertain_because for result in analysis.settings) else ""
    meanings = {
        "leader": f"the best estimate{' that meets the SLO' if analysis.constraints else ''}",
        "better": "shown to be better than the leader",
        "equivalent": f"differs from the leader by less than {margin}",
        "worse": "shown to be worse than the leader",
        INCONCLUSIVE: f"not shown to be worse or equivalent{unsure}; more trials would decide",
        OUT: "shown to be worse by then, and not tried again",
        VIOLATES: "breaks a condition, or fails in some starts",
        "no data": "no valid trial",
    }
    lines = [
        (f"{words} N" if words == OUT else words, meaning) for words, meaning in meanings.items() if words in shown
    ]
    found = [result.bottleneck.candidates for result in analysis.settings if result.bottleneck is not None]
    lines += dict.fromkeys((each.name.short, each.name.meaning) for candidates in found for each in candidates)
    estimates = [result.estimates for result in analysis.settings]
    shown_percentiles = [metric for metric in PERCENTILES if has_column(metric, estimates)]
    if any(not all(metric in found for found in estimates) for metric in shown_percentiles):
        p99 = " (a p99 takes 1,000)" if PERCENTILES[1] in shown_percentiles else ""
        lines.append((ABSENT, f"not known: too few requests in a trial{p99}, or too few valid trials"))
    elif found and len(found) < len(estimates):
        lines.append((ABSENT, "not known"))
    told = [each for row in estimates for metric in (analysis.objective, *PERCENTILES) if (each := row.get(metric))]
    if any(each.at_least for each in told):
        higher = ", or no higher rate was tested" if any(row.capacity for row in analysis.settings) else ""
        lines.append(("≥", f"at least: too many requests were not answered rightly, or too few were due{higher}"))
    if said := valid_note(analysis):
        lines.append(("trials", said))
    return lines


def race_words(race: Race) -> str:
    """`The race was decided after 4 rounds: 41 trials, 64 % of the full grid's 64.`"""
    text = _ENDED.get(race.ended_by, _ENDED["running"]).format(blocks=plural(race.blocks, "round"))
    text += f": {plural(race.trials, 'trial')}"
    if race.grid_trials:
        text += f", {100 * race.trials / race.grid_trials:.0f} % of the full grid's {race.grid_trials}"
    return text + "."


def exploration_words(exploration: Exploration) -> str:
    """How many settings of a large space were tried once, and how many of them raced, as a sentence."""
    return (
        f"{exploration.tried:,} of {exploration.settings:,} settings were tried once each, "
        f"and the best {exploration.raced:,} of them raced."
    )


def estimate_phrase(estimate: Estimate | None, metric: str) -> str:
    """`1,481/s (1,466–1,496)`; the value alone if it has no interval."""
    interval = format_interval(estimate, metric)
    return format_estimate(estimate, metric) + (f" ({interval})" if interval != ABSENT else "")


def capacity_words(capacity: Capacity) -> str:
    """The capacity with its interval, or a dash, in which case `note` has the reason."""
    return estimate_phrase(capacity.shown, "capacity_per_s")


def capacity_trials(capacity: Capacity) -> int:
    """The number of trials behind a capacity, over all rates."""
    return sum(point.trials for point in capacity.curve)


def rates_tried(capacity: Capacity) -> str:
    """`100/s to 1,780/s`; a dash if no rate has been tried yet."""
    rates = [format_number(point.rate_per_s, "per_s") for point in capacity.curve]
    if not rates:
        return ABSENT
    return rates[0] if len(rates) == 1 else f"{rates[0]} to {rates[-1]}"


def ratio_phrase(effect: Estimate | None) -> str:
    """A ratio as a change with its interval: `−5.1 % (−6.9 to −3.2)`, above ten as a factor: `×367 (308 to 439)`; a
    dash if there is none."""
    if effect is None:
        return ABSENT
    if effect.value > RATIO_SHOWN_MAX:
        return f"×{ratio_words(effect)}"
    value = format_change(effect)
    ends = _ends(effect)
    return f"{value} ({' to '.join(ends)})" if len(ends) > 1 else value


def range_phrase(effect: Estimate | None, *, at_least: bool = False) -> str:
    """The interval of a ratio as a change: `−6.9 to −3.2 %`; the change alone if there is no interval. Of one that is
    `at_least` this, the lower end after `≥ `."""
    if effect is not None and at_least:
        return f"≥ {format_change(effect if effect.low is None else replace(effect, value=effect.low))}"
    ends = () if effect is None else _ends(effect)
    return f"{' to '.join(ends)} %" if len(ends) > 1 else ratio_phrase(effect)


def gap_range(
    effect: Estimate | None, base: Estimate | None, value: Estimate | None, metric: str, *, left: bool = False
) -> str:
    """The change from `base` to `value` by the interval of its ratio, as `range_phrase` has it; of a share in
    percentage points: `+0.12 to +0.68 pts`. Without a ratio, as from 0, what `gap_words` has; also of a share of a
    setting that `left` a race, whose ratio is to the leader's mean of then."""
    share = METRICS[metric].unit == "ratio"
    if effect is not None and not share:
        return range_phrase(effect, at_least=is_change_bound(base, value))
    if effect is None or effect.low is None or base is None or left:
        return gap_words(effect, base, value, metric)
    return f"{span(signed_points((end - 1) * base.value) for end in effect.ends)} pts"


def proposal_words(rule: RuleVerdict) -> str:
    """The number of threads that the rule proposes; a dash if the rule does not apply."""
    if rule.proposal is None:
        return ABSENT
    return format_number(rule.proposal, "count")


def published_cells(row: PublishedRow, of: PublishedTable) -> tuple[str, str, str, str]:
    """The published figure, the measured one, and both as ratios to the first row; the measured ratio with its
    interval."""
    theirs = ABSENT if row.published_ratio is None else short_ratio(row.published_ratio)
    ours = ABSENT if row.our_ratio is None else ratio_words(row.our_ratio)
    return format_exact(row.published, of.unit), format_estimate(row.ours, of.metric), theirs, ours


CHANGE_HEADS = ("change", "to the baseline", "verdict")
_CHANGE_VERDICTS = {
    Verdict.WORSE: "costs",
    Verdict.BETTER: "gains",
    Verdict.EQUIVALENT: "makes no difference",
    Verdict.INCONCLUSIVE: "inconclusive",
}


def change_rows(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Each change of one parameter, the most expensive first: the change, its ratio to the baseline, the verdict."""
    return [
        (
            f"{cost.factor}: {level_words(cost.baseline)} → {level_words(cost.level)}",
            _change_ratio(cost),
            _CHANGE_VERDICTS[cost.verdict] + (f": {cost.because}" if cost.because else ""),
        )
        for cost in analysis.changes
    ]


NODE_HEADS = ("node", "trials", "rounds", "relative to all", "best there")


def node_rows(analysis: Analysis) -> list[tuple[str, str, str, str, str]]:
    """Each node: its valid trials and blocks, its figure relative to that of all nodes, the setting that is best
    there."""
    return [
        (row.node, str(row.trials), str(row.blocks), ratio_phrase(row.ratio), _best_there(row))
        for row in (() if analysis.nodes is None else analysis.nodes.rows)
    ]


NODE_COST_HEADS = ("node", "CPU", "CPUs", "Ray, of a core", "longest gap")


def node_cost_rows(analysis: Analysis) -> list[tuple[str, str, str, str, str]]:
    """Each node's CPU, the share of a core that Ray and powerband's actor used there during trials, and the longest
    time between two trials. Without nodes of which none of this is known."""
    rows = () if analysis.nodes is None else analysis.nodes.rows
    return [
        (
            row.node,
            row.cpu or ABSENT,
            ABSENT if row.cpus is None else str(row.cpus),
            ABSENT if row.ray_cores is None else f"{100 * row.ray_cores:.2f} %",
            ABSENT if row.between_s is None else f"{row.between_s:.2f} s",
        )
        for row in rows
        if row.cpu or row.cpus or row.ray_cores is not None or row.between_s is not None
    ]


def clock_sentences(analysis: Analysis) -> list[str]:
    """A sentence for each node that made the load for another: how its clock differed from that of the server's node in
    the last trial, and how well that was known at worst."""
    found: dict[str, list[GeneratorNode]] = {}
    for trial in analysis.trials:
        for clock in trial.generators if trial.valid else ():
            found.setdefault(clock.node, []).append(clock)
    return [
        f"{clocks[-1].words}; in {plural(len(clocks), 'trial')} it drifted by at most "
        f"{format_duration(max(abs(each.drift_ns) for each in clocks))}, and was known to within "
        f"{format_duration(max(each.error_ns for each in clocks))}"
        for clocks in found.values()
    ]


def _best_there(row: NodeRow) -> str:
    if row.best is None:
        return ABSENT
    if row.lead is None:
        return row.best.id
    return f"{row.best.id}, by {ratio_phrase(row.lead)}{'' if row.shown else ': not shown'}"


def _change_ratio(cost: ChangeCost) -> str:
    """The ratio as a factor if percentages would be hard to read: `x0.019 (0.018 to 0.02)`."""
    if cost.ratio is not None and not FACTOR_BELOW <= cost.ratio.value <= FACTOR_ABOVE:
        return f"×{ratio_words(cost.ratio)}"
    return ratio_phrase(cost.ratio)


def changes_lead(analysis: Analysis) -> str:
    """The text above the table of changes: what they are relative to, and what the intervals mean."""
    metric = metric_words(analysis.objective)
    base = analysis.settings[0].setting.id if analysis.settings else ""
    return (
        f"One parameter changed at a time, the most expensive change first: {metric} relative to the baseline "
        f"({base}), paired within rounds. Intervals: {percent(analysis.confidence)}, corrected for multiple "
        "comparisons. "
        f"A change within {margin_words(analysis.margin, analysis.objective)} makes no difference."
    )


VISITOR_HEADS = ("setting", "visits", "failed", "browser p50", "browser p90", "load p50", "load p99")
_VISITOR_METRICS = (
    "visits",
    "visits_failed",
    "visit_time_ns_p50",
    "visit_time_ns_p90",
    "response_time_ns_p50",
    "response_time_ns_p99",
)


def visitor_rows(analysis: Analysis) -> list[tuple[str, ...]]:
    """Response times in a browser beside those that the load generator measured, for each setting; means of trials.
    Empty if there was no browser user."""
    return [
        (row.setting.id, *(format_estimate(row.estimates.get(metric), metric) for metric in _VISITOR_METRICS))
        for row in analysis.settings
        if "visits" in row.estimates
    ]


def rule_nearest(rule: RuleVerdict) -> str:
    """The tried setting nearest to the rule's proposal, by its values; a dash if the rule does not apply."""
    if rule.setting is None:
        return ABSENT if rule.refused else "none is near"
    return rule.setting.id


def is_barred(rule: RuleVerdict, analysis: Analysis) -> bool:
    """True if the setting nearest to the rule's proposal violates the SLO: then no gain counts."""
    return any(row.setting == rule.setting and row.trials and not row.feasible for row in analysis.settings)


def rule_cost(rule: RuleVerdict, analysis: Analysis) -> str:
    """The effect of following the rule; a dash if it is not known."""
    return VIOLATES if is_barred(rule, analysis) else ratio_phrase(rule.cost)


def rule_result(rule: RuleVerdict, analysis: Analysis) -> str:
    """The effect of following the rule, or the reason why the rule does not apply."""
    return f"not applicable: {rule.refused}" if rule.refused else rule_cost(rule, analysis)


def restless_settings(analysis: Analysis) -> dict[Setting, str]:
    """Settings that never stabilised, with `in 3 of 5 trials`; the warnings contain the advice."""
    return {
        setting: f"in {seen.times} of {plural(seen.trials, 'trial')}"
        for setting, seen in never_stabilised(analysis.trials).items()
    }


def _ends(effect: Estimate) -> tuple[str, ...]:
    """The ends of a ratio's interval as changes in percent; one if both round to it."""
    return tuple(dict.fromkeys(_signed(end) for end in (effect.low, effect.high) if end is not None))


def _signed(ratio: float) -> str:
    text = signed_percent(ratio, places=0 if abs(ratio - 1) >= 0.1 else 1)
    return text[1:] if text[1:] == "0.0" else text
