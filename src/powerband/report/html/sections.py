"""The body of the HTML page: each section as text. Every value from outside passes through `escape`. Charts are empty
boxes here, filled by templates/report.js; each also has its numbers in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest

from powerband.base.units import capital, joined, percent, plural
from powerband.model.metrics import margin_words, metric_words
from powerband.model.plan import Stage
from powerband.model.results import Analysis, AnswerKind, Estimate, SettingResult
from powerband.model.secrets import HIDDEN
from powerband.report.html.bar_section import bars_section
from powerband.report.html.charts import Chart
from powerband.report.html.claim_rows import claims_table, found_section
from powerband.report.html.figure_parts import figure, foot, scrolling, table, wrapping
from powerband.report.html.inside import inside_section
from powerband.report.html.limit_lanes import LimitChart
from powerband.report.html.memory import memory_section
from powerband.report.html.page import Distribution, Facts, ReportPage
from powerband.report.html.rule_chart import RuleChart
from powerband.report.html.surface import SurfaceChart, surface_section
from powerband.report.html.trade_off_chart import TradeOffChart, trade_off_section
from powerband.report.html.trial_map import trial_map
from powerband.report.html.verdict_charts import AnyChart, CapacityChart, RaceChart
from powerband.report.html.verdicts import (
    capacity_section,
    changes_section,
    race_section,
    rules_section,
    soak_section,
    why_section,
    words_table,
)
from powerband.report.wording.findings import (
    NODE_COST_HEADS,
    NODE_HEADS,
    VISITOR_HEADS,
    bottleneck_short,
    clock_sentences,
    node_cost_rows,
    node_rows,
    restless_settings,
    state_words,
    table_legend,
    visitor_rows,
)
from powerband.report.wording.names import level_words
from powerband.report.wording.numbers import ABSENT, format_estimate, format_interval, format_number
from powerband.report.wording.words import (
    about_revisions,
    change_words,
    counted,
    error_rows,
    factor_names,
    failed_starts,
    figure_note,
    is_as_good,
    not_allowed,
    objective_words,
    present_columns,
    standing_words,
    start_noun,
    tone,
    unusable_trials,
    verdict_note,
)

Drawn = AnyChart | SurfaceChart | TradeOffChart | LimitChart | RuleChart


@dataclass(frozen=True)
class Charts:
    """All charts of a page except those that depend on the reader's choices. `main`: the objective, throughput and
    response times. `costs`: the server's resources. `race`, `exploration`, `limits`, `pools`, `rules`, `states`,
    `capacity` (one for each setting), `surface` and `trade_offs`: those of their sections; None if there is nothing to
    draw."""

    main: tuple[Chart, ...]
    surface: SurfaceChart | None
    trade_offs: TradeOffChart | None
    race: RaceChart | None
    exploration: Chart | None
    capacity: tuple[CapacityChart, ...]
    pools: Chart | None
    limits: LimitChart | None
    rules: RuleChart | None
    costs: tuple[Chart, ...]
    states: Chart | None

    def all(self) -> list[Drawn]:
        """The charts in the order of the page, so that the visible ones are drawn first."""
        single = [self.surface, self.trade_offs, self.race, self.exploration]
        behind = [self.limits, self.pools, self.rules]
        drawn = [*self.main, *single, *self.capacity, *behind, *self.costs, self.states]
        return [chart for chart in drawn if chart is not None]


def body(page: ReportPage, charts: Charts) -> str:
    """The whole body, the answer first."""
    analysis = page.analysis
    sections = [
        ("settings", "Settings compared", _settings(page, charts.main)),
        ("surface", "Two parameters at once", surface_section(charts.surface)),
        ("trade-offs", "Trade-offs", trade_off_section(charts.trade_offs)),
        ("changes", "What each change costs", changes_section(analysis)),
        ("bars", "Rate over time", _ODD if page.bars is None else bars_section(page.bars, analysis)),
        ("race", "The race", race_section(analysis, charts.race, charts.exploration)),
        ("soak", "Long run (soak)", soak_section(analysis)),
        ("capacity", "Capacity", capacity_section(analysis, charts.capacity)),
        ("nodes", "Nodes", _nodes(analysis)),
        ("why", "Why", why_section(analysis, charts.pools, charts.limits)),
        ("rules", "Rules of thumb", rules_section(analysis, charts.rules)),
        ("found", "What we found", found_section(analysis)),
        ("claims", "Claims", claims_table(analysis)),
        ("times", "Response times", _distributions(page)),
        ("person", "Real browser under load", _person(analysis)),
        ("cost", "What it costs the server", _costs(charts.costs, charts.states)),
        ("inside", "From inside", _ODD if page.inside is None else inside_section(page.inside)),
        ("memory", "What grew in memory", memory_section(analysis)),
        ("errors", "Requests that failed", _errors(analysis)),
        ("trials", "Every trial", trial_map(analysis)),
        ("not-counted", "Excluded trials", _not_counted(analysis)),
        ("again", "How it was measured", _again(page)),
    ]
    shown = [(name, title, content) for name, title, content in sections if content]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in shown)
    parts = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{content}</section>'
        for name, title, content in shown
    )
    foot = f"<footer>Made by powerband from {escape(page.run)}.</footer>"
    return (
        f'{_top(page)}<nav class="toc top-nav" aria-label="Contents">{links}</nav></header><main>{parts}</main>{foot}'
    )


_ODD = '<p class="lead">Not shown: the files of a trial are not as powerband wrote them.</p>'


def _person(analysis: Analysis) -> str:
    """Response times in a real browser; empty if there was no browser user."""
    rows = visitor_rows(analysis)
    if not rows:
        return ""
    lead = (
        "A real browser kept a page of the server open while the load ran, and asked now and then. Its times are as "
        "the page saw them, the browser’s own work included."
    )
    return f'<p class="lead">{lead}</p>{scrolling("Visits", table(list(VISITOR_HEADS), rows))}'


def _nodes(analysis: Analysis) -> str:
    """The nodes: what each contributed, its hardware, and what Ray cost there; empty if all ran on one machine."""
    rows = node_rows(analysis)
    if not rows:
        return ""
    lead = (
        "Each node ran whole rounds, so that settings are compared within a node. Ray and powerband's actor are on it "
        "beside the server: what they used of a core is the mean of its trials. A gap is the time from the end of a "
        "trial to the next."
    )
    costs = {node: cells for node, *cells in node_cost_rows(analysis)}
    shown = [(*row, *costs.get(row[0], [ABSENT] * 4)) for row in rows] if costs else rows
    heads = [*NODE_HEADS, *(NODE_COST_HEADS[1:] if costs else ())]
    told = table(heads, shown, words=(heads.index("best there"),))
    clocks = "".join(f"<p>{escape(sentence)}.</p>" for sentence in clock_sentences(analysis))
    return f'<p class="lead">{escape(lead)}</p>{scrolling("Nodes", told)}{clocks}'


def _top(page: ReportPage) -> str:
    analysis = page.analysis
    first, *rest = analysis.answer.sentences or ("No answer.",)
    # The figures after the colon are set as normal text, not as a headline.
    headline, _, figures = first.partition(": ")
    headline = headline if headline.endswith(".") else f"{headline}."
    because = "".join(_because(label, text) for label, text in _reasons(analysis, figures, rest) if text)
    size = " long" if len(headline) > _HEADLINE_CHARACTERS else ""
    name = f"<b>{escape(analysis.name)}</b>" if analysis.question else ""
    above = " · ".join(filter(None, (name, escape(page.when))))
    notes = "".join(f"<li>{escape(warning)}</li>" for warning in analysis.warnings)
    notes = f'<ul class="notes" aria-label="What to keep in mind">{notes}</ul>' if notes else ""
    return (
        f'<header class="top" id="content"><p class="eyebrow">{above}</p>'
        f"<h1>{escape(analysis.question or analysis.name)}</h1>"
        f'<p class="answer{size}">{wrapping(headline)}</p>{because}{_keys(analysis)}{notes}'
    )


def _reasons(analysis: Analysis, figures: str, rest: Sequence[str]) -> list[tuple[str, str]]:
    """The lines below the headline. For a named setting, they give the confidence and the reasons; a comparison of two
    revisions names none."""
    named = analysis.answer.setting is not None and not about_revisions(analysis)
    labels = ["How sure: ", "Why: "] if named else []
    return [("", capital(figures)), *zip_longest(labels[: len(rest)], rest, fillvalue="")]


def _because(label: str, text: str) -> str:
    strong = f"<b>{label}</b>" if label else ""
    return f'<p class="because">{strong}{wrapping(text)}</p>'


_HEADLINE_CHARACTERS = 48  # from there on the largest letters would take three lines

_KINDS = {
    AnswerKind.BEST: "one setting is best",
    AnswerKind.EQUIVALENT_SET: "several are equivalent",
    AnswerKind.BOUNDED: "no clear winner",
    AnswerKind.NOT_ENOUGH_DATA: "not decided yet",
    AnswerKind.NONE_FEASIBLE: "all violate the SLO",
    AnswerKind.NONE_VALID: "nothing could be measured",
}


def _keys(analysis: Analysis) -> str:
    """Key figures of the answer: the setting's objective and tail, equivalent settings, the evidence."""
    answer = analysis.answer
    chosen = next((result for result in analysis.settings if result.setting == answer.setting), None)
    items: list[tuple[str, str, str]] = []
    if chosen is not None:
        shown = [analysis.objective]
        shown += [name for name in ("goodput_per_s", "response_time_ns_p99") if name != analysis.objective]
        for name in shown[:2]:
            estimate = chosen.estimates.get(name)
            if name == analysis.objective and answer.figure is not None:
                estimate = answer.figure.estimate  # as the headline says it
            if estimate is not None:
                items.append((capital(metric_words(name)), format_estimate(estimate, name), _certainty(estimate, name)))
    if chosen is not None and chosen.bottleneck is not None:
        proof = chosen.bottleneck.evidence[0] if chosen.bottleneck.evidence else ""
        items.append(("Bottleneck", capital(bottleneck_short(chosen.bottleneck)), proof))
    alone = answer.kind is AnswerKind.EQUIVALENT_SET and len(answer.equivalent) < 2
    kind = "others may be equivalent" if alone else _KINDS[answer.kind]
    items.append(("Standing", kind, standing_words(analysis)))
    trials = counted(analysis.trials)
    valid = sum(trial.valid for trial in trials)
    left = len(trials) - valid
    rest = f"{left} more excluded" if left else "every trial was valid" if valid else "nothing was run yet"
    items.append(("Evidence", plural(valid, "trial"), rest))
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{wrapping(small)}</small></dd></div>"
        for name, value, small in items
    )
    return f'<dl class="keys">{cells}</dl>'


def _certainty(estimate: Estimate, metric: str) -> str:
    """The interval of a key figure; without one, the reason why there is none."""
    interval = format_interval(estimate, metric)
    if interval != ABSENT:
        return f"{percent(estimate.confidence)} interval {interval}"
    return "a lower bound" if estimate.at_least else plural(estimate.n, "trial")


def _settings(page: ReportPage, main: Sequence[Chart]) -> str:
    if not page.analysis.settings:
        return ""
    charts = f'{_marks(page.analysis)}<div class="grid two">{"".join(map(figure, main))}</div>' if main else ""
    lead = f'<p class="lead">Objective: {escape(objective_words(page.analysis))}.</p>'
    return f"{lead}{charts}{_table(page.analysis)}"


def _marks(analysis: Analysis) -> str:
    """The key for the marks of a setting in all charts."""
    answer = analysis.answer
    equal = answer.equivalent if answer.setting is not None else ()
    parts = [('<i class="dot big full"></i>the answer', answer.setting is not None)]
    margin = escape(margin_words(analysis.margin, analysis.objective))
    parts.append((f'<i class="dot full"></i>equivalent, within {margin}', len(equal) > 1))
    parts.append(('<i class="dot open"></i>the others', len(analysis.settings) > len(equal)))
    shown = "".join(f"<span>{part}</span>" for part, told in parts if told)
    if sum(told for _, told in parts) < 2:
        return ""  # a single mark needs no key
    return f'<p class="key standing">{shown}</p>'


def _errors(analysis: Analysis) -> str:
    rows = [(row.setting, row.kind, row.cause or ABSENT, f"{row.count:,}") for row in error_rows(analysis)]
    if not rows:
        return ""
    lead = '<p class="lead">Of all valid trials, with their warm-ups; causes are read from what the trial left.</p>'
    return lead + words_table("Requests that failed", ("setting", "how", "cause", "requests"), rows, numbers=(3,))


def _table(analysis: Analysis) -> str:
    """All settings with all columns; the interval is below its value."""
    names = factor_names(analysis) or ("setting",)
    extra = present_columns(analysis)
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    heads += f'<th scope="col">{escape(capital(metric_words(analysis.objective)))}</th><th scope="col">vs leader</th>'
    heads += '<th scope="col" class="words">verdict</th>'
    limited = any(result.bottleneck is not None for result in analysis.settings)
    heads += '<th scope="col" class="words">bottleneck</th>' if limited else ""
    heads += "".join(f'<th scope="col">{escape(column.heading)}</th>' for column in extra)
    heads += '<th scope="col">trials</th>'
    rows = "".join(
        _row(result, analysis, [column.metric for column in extra], limited=limited) for result in analysis.settings
    )
    allowed = "".join(f"<li>{wrapping(said)}</li>" for said in _not_allowed(analysis))
    allowed = f'<ul class="notes">{allowed}</ul>' if allowed else ""
    shown = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<p class="under">{wrapping(verdict_note(analysis))} '
        f"Small figures: {percent(analysis.confidence)} intervals. {escape(figure_note(analysis))}</p>"
        f"{scrolling('All settings', shown)}{_legend(analysis)}{allowed}"
    )


def _legend(analysis: Analysis) -> str:
    lines = (f"<b>{words}</b>: {escape(meaning)}" for words, meaning in table_legend(analysis))
    return f'<p class="under">{"<br>".join(lines)}</p>'


def _not_allowed(analysis: Analysis) -> list[str]:
    """A line for each reason, with all settings to which it applies."""
    by_reason: dict[str, list[str]] = {}
    for name, why in not_allowed(analysis):
        by_reason.setdefault(why, []).append(name)
    return [
        f"{joined(names)} {'violates' if len(names) == 1 else 'violate'} the SLO: {why}"
        for why, names in by_reason.items()
    ]


def _row(result: SettingResult, analysis: Analysis, metrics: Sequence[str], *, limited: bool) -> str:
    levels = [level_words(level) for _, level in result.setting.levels] or [result.setting.id]
    cells = f'<th scope="row">{escape(levels[0])}</th>' + "".join(f"<td>{escape(level)}</td>" for level in levels[1:])
    cells += _estimate_cell(result, analysis.objective, 4)
    words = state_words(result, analysis)
    cells += f"<td>{escape(change_words(result, analysis))}</td>"
    mark = "<small>the answer</small>" if result.setting == analysis.answer.setting else ""
    cells += f'<td class="words {tone(result, analysis)}">{escape(words)}{mark}</td>'
    cells += f'<td class="words">{escape(bottleneck_short(result.bottleneck))}</td>' if limited else ""
    cells += "".join(_estimate_cell(result, metric, 3) for metric in metrics)
    invalid = f"<small>+{result.invalid} excluded</small>" if result.invalid else ""
    moving = '<small class="unsure">never stabilised</small>' if result.setting in restless_settings(analysis) else ""
    equal = ' class="equal"' if is_as_good(result.setting, analysis) else ""
    chosen = ' class="chosen"' if result.setting == analysis.answer.setting else equal
    failed = (
        f'<small class="unsure">failed {failed_starts(result)} {start_noun(analysis)}s</small>'
        if failed_starts(result)
        else ""
    )
    return f"<tr{chosen}>{cells}<td>{result.trials}{invalid}{failed}{moving}</td></tr>"


def _estimate_cell(result: SettingResult, metric: str, digits: int) -> str:
    estimate = result.shown.get(metric)
    interval = format_interval(estimate, metric, digits=digits)
    small = f"<small>{escape(interval)}</small>" if interval != ABSENT else ""
    return f"<td>{escape(format_estimate(estimate, metric, digits=digits))}{small}</td>"


def _distributions(page: ReportPage) -> str:
    if not page.distributions:
        return ""
    choice = (
        '<fieldset class="no-print"><legend>Show</legend>'
        '<label><input type="radio" name="times" value="response_time" checked>'
        "response time (from scheduled to done)</label>"
        '<label><input type="radio" name="times" value="service_time">service time (from sent to done)</label>'
        "</fieldset>"
    )
    chart = (
        '<div class="chart tall" id="chart-distribution" role="img" '
        'aria-label="Chart: time against percentile, one line per setting. The values are in the table below."></div>'
        '<fieldset class="key toggles no-print" id="distribution-key" hidden><legend>Lines</legend></fieldset>'
    )
    tables = _quantile_table("Response time", page.distributions, response=True)
    tables += _quantile_table("Service time", page.distributions, response=False)
    return (
        '<p class="lead">Which share (across) of the requests with a correct response had it within which time (up): '
        f"those of {_merged_trials(page.analysis)}. Everywhere else, percentiles are of all requests that were due. "
        "The answer is drawn thick; each further nine takes the same room, so that the slowest requests are seen.</p>"
        f'<figure><figcaption><h3 id="title-distribution">Time by percentile</h3></figcaption>'
        f"{choice}{chart}{foot(tables, 'As tables')}</figure>"
    )


def _merged_trials(analysis: Analysis) -> str:
    """The trials whose requests `tracks.distributions` merges, in words."""
    if any(result.capacity for result in analysis.settings):
        return "a setting’s valid trials at the highest rate at which the SLO held each time, merged"
    if any(trial.valid and trial.stage is not Stage.COMPARE for trial in analysis.trials):
        return "a setting’s valid trials in full rounds, merged (not of first looks, confirmations or a soak)"
    return "all valid trials of a setting, merged"


def _quantile_table(title: str, distributions: Sequence[Distribution], *, response: bool) -> str:
    rows = []
    for each in distributions:
        times = each.response_time if response else each.service_time
        shown = (ABSENT if ns is None else format_number(ns, "ns") for _, ns in times.named)
        rows.append((each.setting, f"{times.count:,}", *shown))
    heads = ["setting", "requests", *(name for name, _ in distributions[0].response_time.named)]
    return f'<h3 style="margin-top:0.8rem">{title}</h3><div class="scroll">{table(heads, rows)}</div>'


def _costs(costs: Sequence[Chart], states: Chart | None) -> str:
    if not costs and states is None:
        return ""
    small = f'<div class="grid three">{"".join(map(figure, costs))}</div>' if costs else ""
    if states is None:
        return small
    return f'{small}<div style="margin-top:1.25rem">{figure(states)}</div>'


def _not_counted(analysis: Analysis) -> str:
    trials = unusable_trials(analysis.trials)
    if not trials:
        return '<p class="bare">Every trial was valid.</p>' if analysis.trials else ""
    rows = [(f"trial {trial.number}", trial.setting, trial.status, trial.reasons) for trial in trials]
    shown = table(("trial", "setting", "status", "why"), rows, words=(1, 2, 3))
    return (
        '<p class="lead">Trials that failed or were cut short, or in which the generator or the machine would have '
        "been measured instead of the server. They are kept on disk and never averaged in.</p>"
        f'<div class="scroll">{shown}</div>'
    )


def _again(page: ReportPage) -> str:
    facts = "".join(_facts(each) for each in page.facts)
    save = "Save this experiment" + (" without its secrets" if HIDDEN in page.experiment_yaml else "")
    return (
        f'<h3>To run it again</h3><pre class="command" tabindex="0">{escape(page.command)}</pre>'
        f'<p class="under">Elsewhere: {_elsewhere(page)}</p>'
        f'<div class="facts">{facts}</div>'
        '<details style="margin-top:1.4rem"><summary>The experiment as resolved</summary>'
        f'<pre tabindex="0" id="experiment" data-save="{save}">{escape(page.experiment_yaml)}</pre></details>'
    )


def _elsewhere(page: ReportPage) -> str:
    """How to run the experiment on another machine, as markup; without its secrets it does not run as it is."""
    if HIDDEN not in page.experiment_yaml:
        return (
            "save the experiment below, which has every default and the seed, and give its file to "
            "<code>powerband run</code>."
        )
    keys = ", ".join(f"<code>{escape(key)}</code>" for key in page.hidden)
    where = f" (in {keys})" if keys else ""
    return (
        "the experiment below has every default and the seed, but no secrets, and cannot be run as it is. Save it, "
        f"replace each <code>{HIDDEN}</code>{where} with its secret and with what may have followed that in the same "
        "text, and give the file to <code>powerband run</code>."
    )


def _facts(facts: Facts) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.rows)
    return f"<div><h3>{escape(facts.title)}</h3><dl>{rows}</dl></div>" if rows else ""
