"""The body of the HTML page: each section as text. Every value from outside passes `escape`; charts are empty boxes
here, filled by templates/report.js, and each has its numbers in a table as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from powerband.analyze.results import Analysis, AnswerKind, SettingResult, TrialResult, Verdict
from powerband.metrics import METRICS
from powerband.plan import Setting, format_level
from powerband.report.charts import Chart
from powerband.report.claims import claims_table
from powerband.report.numbers import ABSENT, format_estimate, format_interval, format_number, format_share
from powerband.report.page import Distribution, Facts, Page
from powerband.report.words import (
    change_words,
    counted,
    factor_names,
    not_allowed,
    present_columns,
    standing_words,
    unusable_trials,
    verdict_note,
    verdict_words,
)


def body(page: Page, main: Sequence[Chart], costs: Sequence[Chart], states: Chart | None) -> str:
    """The whole body, the answer first."""
    sections = [
        ("settings", "Settings compared", _settings(page, main)),
        ("claims", "Claims", claims_table(page.analysis)),
        ("times", "Response times", _distributions(page)),
        ("cost", "What it costs the server", _costs(costs, states)),
        ("trials", "Every trial", _trials(page)),
        ("not-counted", "Not counted", _not_counted(page.analysis)),
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


def _top(page: Page) -> str:
    analysis = page.analysis
    first, *rest = analysis.answer.sentences or ("No answer.",)
    # The figures behind the colon are for reading, not for display type.
    headline, _, figures = first.partition(": ")
    headline = headline if headline.endswith(".") else f"{headline}."
    because = "".join(f'<p class="because">{escape(text)}</p>' for text in (_capital(figures), *rest) if text)
    size = " long" if len(headline) > _HEADLINE_CHARACTERS else ""
    question = f"<h1>{escape(analysis.question or analysis.name)}</h1>"
    notes = "".join(f"<li>{escape(warning)}</li>" for warning in analysis.warnings)
    notes = f'<ul class="notes" aria-label="What to keep in mind">{notes}</ul>' if notes else ""
    when = f" · {escape(page.when)}" if page.when else ""
    return (
        f'<header class="top" id="content"><p class="eyebrow"><b>{escape(analysis.name)}</b>{when}</p>{question}'
        f'<p class="answer{size}">{escape(headline)}</p>{because}{_keys(analysis)}{notes}'
    )


_HEADLINE_CHARACTERS = 48

_KINDS = {
    AnswerKind.BEST: "one setting is best",
    AnswerKind.EQUIVALENT_SET: "several are as good",
    AnswerKind.NOT_ENOUGH_DATA: "not decided yet",
    AnswerKind.NONE_FEASIBLE: "none is allowed",
    AnswerKind.NONE_VALID: "nothing could be measured",
}


def _keys(analysis: Analysis) -> str:
    """A few figures of the answer: the setting's objective and tail, what else is as good, what stands behind it."""
    answer = analysis.answer
    chosen = next((result for result in analysis.settings if result.setting == answer.setting), None)
    items: list[tuple[str, str, str]] = []
    if chosen is not None:
        shown = [analysis.objective]
        shown += [name for name in ("goodput_per_s", "response_time_ns_p99") if name != analysis.objective]
        for name in shown[:2]:
            estimate = chosen.estimates.get(name)
            if estimate is not None:
                interval = format_interval(estimate, name)
                small = (
                    f"{format_share(estimate.confidence)} interval {interval}" if interval != ABSENT else "one trial"
                )
                items.append((_label(name), format_estimate(estimate, name), small))
    items.append(("Standing", _KINDS[answer.kind], standing_words(analysis)))
    trials = counted(analysis.trials)
    valid = sum(trial.valid for trial in trials)
    left = len(trials) - valid
    items.append(("Evidence", f"{valid} trials", f"{left} more not counted" if left else "every trial was valid"))
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(small)}</small></dd></div>"
        for name, value, small in items
    )
    return f'<dl class="keys">{cells}</dl>'


def _settings(page: Page, main: Sequence[Chart]) -> str:
    if not page.analysis.settings:
        return ""
    charts = f'<div class="grid two">{"".join(map(figure, main))}</div>' if main else ""
    rules = [
        f"{'Most' if page.analysis.direction == 'maximise' else 'Least'} {_label(page.analysis.objective).lower()}"
    ]
    rules += page.analysis.constraints
    lead = (
        f'<p class="lead">{escape(" where ".join([rules[0], " and ".join(rules[1:])]) if rules[1:] else rules[0])}.</p>'
    )
    return f"{lead}{charts}{_table(page.analysis)}"


def figure(chart: Chart) -> str:
    """One chart: its box, a sentence for those who do not see it, and its numbers as a table."""
    down = len(chart.axis.positions)
    rows_rem = {"stack": 5 + down * 1.75, "heat": 0.0, "estimates": max(11.5, 4 + down * 1.75) if chart.flat else 0.0}
    height = f"{rows_rem[chart.kind]:.2f}rem" if rows_rem[chart.kind] else ""
    unit = {"": "", "/s": "per second"}.get(chart.unit, chart.unit)
    title = escape(chart.title) + (f" <small>{escape(unit)}</small>" if unit and chart.kind != "stack" else "")
    note = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    style = f' style="height:{height}"' if height else ""
    return (
        f'<figure><figcaption><h3 id="title-{chart.id}">{title}</h3>{note}</figcaption>'
        f'<div class="chart" id="chart-{chart.id}" role="img" aria-label="{escape(_spoken(chart))}"{style}></div>'
        '<details class="no-print"><summary>As a table</summary>'
        f'<div class="scroll">{_chart_table(chart)}</div></details></figure>'
    )


def _spoken(chart: Chart) -> str:
    parts = []
    for line in chart.lines:
        points = [f"{point.setting} {point.text}" for point in line.points]
        parts.append(f"{line.name + ': ' if line.name else ''}{'; '.join(points[:12])}")
    return f"Chart: {chart.title}. {'. '.join(parts)}. The values are in the table below."


def _chart_table(chart: Chart) -> str:
    heads = [line.name or chart.title for line in chart.lines]
    by_setting: dict[str, dict[int, str]] = {}
    for index, line in enumerate(chart.lines):
        for point in line.points:
            by_setting.setdefault(point.setting, {})[index] = point.text
    used = [index for index in range(len(heads)) if any(index in row for row in by_setting.values())]
    if chart.kind == "heat" or (len(used) > 1 and all(len(row) == 1 for row in by_setting.values())):
        rows = [(setting, next(iter(row.values()))) for setting, row in by_setting.items()]
        return table(["setting", chart.title], rows)
    return table(
        ["setting", *(heads[index] for index in used)],
        [(setting, *(row.get(index, ABSENT) for index in used)) for setting, row in by_setting.items()],
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table: first column names, the others values."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _table(analysis: Analysis) -> str:
    """All settings with all columns; the interval stands under its value."""
    names = factor_names(analysis) or ("setting",)
    extra = present_columns(analysis)
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    heads += f'<th scope="col">{escape(_label(analysis.objective))}</th><th scope="col">change</th>'
    heads += '<th scope="col" class="words">verdict</th>'
    heads += "".join(f'<th scope="col">{escape(column.heading)}</th>' for column in extra)
    heads += '<th scope="col">trials</th>'
    rows = "".join(_row(result, analysis, [column.metric for column in extra]) for result in analysis.settings)
    allowed = "".join(f"<li>{escape(name)} is not allowed: {escape(why)}</li>" for name, why in not_allowed(analysis))
    allowed = f'<ul class="notes">{allowed}</ul>' if allowed else ""
    return (
        f'<p class="under">{escape(verdict_note(analysis))} '
        f"Small figures: {format_share(analysis.confidence)} intervals.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="All settings">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{allowed}"
    )


def _row(result: SettingResult, analysis: Analysis, metrics: Sequence[str]) -> str:
    levels = [format_level(level) for _, level in result.setting.levels] or [result.setting.id]
    cells = f'<th scope="row">{escape(levels[0])}</th>' + "".join(f"<td>{escape(level)}</td>" for level in levels[1:])
    cells += _estimate_cell(result, analysis.objective, 4)
    words = verdict_words(result, analysis)
    cells += f"<td>{escape(change_words(result, analysis))}</td>"
    mark = "<small>the answer</small>" if result.setting == analysis.answer.setting else ""
    cells += f'<td class="words {_tone(result, analysis)}">{escape(words)}{mark}</td>'
    cells += "".join(_estimate_cell(result, metric, 3) for metric in metrics)
    invalid = f"<small>+{result.invalid} not counted</small>" if result.invalid else ""
    chosen = ' class="chosen"' if result.setting == analysis.answer.setting else ""
    return f"<tr{chosen}>{cells}<td>{result.trials}{invalid}</td></tr>"


def _estimate_cell(result: SettingResult, metric: str, digits: int) -> str:
    estimate = result.estimates.get(metric)
    interval = format_interval(estimate, metric, digits=digits)
    low, _, high = interval.partition("–")
    varies = interval != ABSENT and low != high
    small = f"<small>{escape(interval)}</small>" if varies else ""
    return f"<td>{escape(format_estimate(estimate, metric, digits=digits))}{small}</td>"


def _tone(result: SettingResult, analysis: Analysis) -> str:
    if not result.feasible or not result.trials:
        return "bad"
    if result.setting == analysis.answer.leader:
        return "good"
    if verdict_words(result, analysis) == "undecided":
        return "unsure"
    return "bad" if result.verdict is Verdict.WORSE else "good"


def _distributions(page: Page) -> str:
    if not page.distributions:
        return ""
    choice = (
        '<fieldset class="no-print"><legend>Show</legend>'
        '<label><input type="radio" name="times" value="response_time" checked>'
        "response time (from intended to done)</label>"
        '<label><input type="radio" name="times" value="service_time">service time (from sent to done)</label>'
        "</fieldset>"
    )
    chart = (
        '<div class="chart tall" id="chart-distribution" role="img" '
        'aria-label="Chart: time against percentile, one line per setting. The values are in the table below."></div>'
        '<p class="key" id="distribution-key" hidden></p>'
    )
    tables = _quantile_table("Response time", page.distributions, response=True)
    tables += _quantile_table("Service time", page.distributions, response=False)
    return (
        '<p class="lead">Which share of requests (across) was answered within which time (up): all requests of all '
        "valid trials of a setting, merged. The answer is drawn thick.</p>"
        f"<figure>{choice}{chart}<details><summary>As tables</summary>{tables}</details></figure>"
    )


def _quantile_table(title: str, distributions: Sequence[Distribution], *, response: bool) -> str:
    rows = []
    for each in distributions:
        times = each.response_time if response else each.service_time
        rows.append((each.setting, f"{times.count:,}", *(format_number(ns, "ns") for _, ns in times.named)))
    heads = ["setting", "requests", *(name for name, _ in distributions[0].response_time.named)]
    return f'<h3 style="margin-top:0.8rem">{title}</h3><div class="scroll">{table(heads, rows)}</div>'


def _costs(costs: Sequence[Chart], states: Chart | None) -> str:
    if not costs and states is None:
        return ""
    small = f'<div class="grid three">{"".join(map(figure, costs))}</div>' if costs else ""
    if states is None:
        return small
    return f'{small}<div style="margin-top:1.25rem">{figure(states)}</div>'


def _trials(page: Page) -> str:
    trials = page.analysis.trials
    if not trials:
        return ""
    blocks = sorted({trial.block for trial in trials})
    first = next(
        (trial for trial in trials if trial.valid and trial.setting == page.analysis.answer.setting), trials[0]
    )
    heads = "".join(f'<th scope="col">block {block + 1}</th>' for block in blocks)
    rows = []
    for setting in _in_order(page.analysis):
        cells = []
        for block in blocks:
            here = [trial for trial in trials if trial.setting == setting and trial.block == block]
            cells.append(f"<td>{''.join(_trial_button(trial, trial is first) for trial in here)}</td>")
        rows.append(f'<tr><th scope="row">{escape(setting.id)}</th>{"".join(cells)}</tr>')
    return (
        '<p class="lead no-print">Choose a trial, with a click or the arrow keys, to see it second by second. A dashed '
        "frame marks a trial that is not counted. Each button shows the trial’s place in the order of the run.</p>"
        '<div class="chooser"><div class="scroll no-print"><table class="map" aria-label="Trials by setting and block">'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        '<div class="trial-head" aria-live="polite"><h3 id="trial-title"></h3><p id="trial-about"></p>'
        '<p id="trial-why" class="bad" hidden></p>'
        '<p id="trial-none" hidden>No time series of this trial was recorded.</p>'
        '</div></div><div class="grid two" id="trial-panels"></div>'
    )


def _trial_button(trial: TrialResult, first: bool) -> str:
    state = "valid" if trial.valid else "invalid" if trial.status == "measured" else trial.status
    about = [f"block {trial.block + 1}"]
    if trial.attempt > 1:
        about.append(f"attempt {trial.attempt}")
    if trial.warmup_s is not None:
        ended = {"steady": "when steady", "limit": "at its limit, not steady", "fixed": "after the set time"}
        about.append(f"warm-up {trial.warmup_s:.1f} s, ended {ended.get(trial.warmup_ended_by or '', 'early')}")
    for name in ("goodput_per_s", "response_time_ns_p99", "error_rate"):
        if name in trial.metrics:
            about.append(f"{_label(name).lower()} {format_number(trial.metrics[name], METRICS[name].unit)}")
    why = "; ".join(problem.message for problem in trial.problems)
    title = f"Trial {trial.number}, {trial.setting.id}" + ("" if trial.valid else f" ({state})")
    return (
        f'<button type="button" data-trial="{trial.number}" data-state="{escape(state)}" '
        f'data-first="{"yes" if first else "no"}" tabindex="{0 if first else -1}" aria-pressed="false" '
        f'aria-label="{escape(title)}" data-title="{escape(title)}" '
        f'data-about="{escape(" · ".join(about))}" data-why="{escape(why)}">{trial.number}</button>'
    )


def _in_order(analysis: Analysis) -> list[Setting]:
    planned = [result.setting for result in analysis.settings]
    return planned + [s for s in dict.fromkeys(trial.setting for trial in analysis.trials) if s not in planned]


def _not_counted(analysis: Analysis) -> str:
    trials = unusable_trials(analysis.trials)
    if not trials:
        return '<p class="bare">Every trial was valid.</p>' if analysis.trials else ""
    rows = "".join(
        f'<tr><th scope="row">trial {trial.number}</th><td class="words">{escape(trial.setting)}</td>'
        f'<td class="words">{escape(trial.status)}</td><td class="words">{escape("; ".join(trial.reasons))}</td></tr>'
        for trial in trials
    )
    return (
        '<p class="lead">'
        "Trials that failed or were cut short, or in which the generator or the machine would have been "
        "measured instead of the server. They are kept on disk and never averaged in.</p>"
        '<div class="scroll"><table><thead><tr><th scope="col">trial</th><th scope="col" class="words">setting</th>'
        f'<th scope="col" class="words">status</th><th scope="col" class="words">why</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _again(page: Page) -> str:
    facts = "".join(_facts(each) for each in page.facts)
    return (
        f'<h3>To run it again</h3><pre class="command" tabindex="0">{escape(page.command)}</pre>'
        f'<div class="facts">{facts}</div>'
        '<details style="margin-top:1.4rem"><summary>The experiment as resolved</summary>'
        f'<pre tabindex="0">{escape(page.experiment_yaml)}</pre></details>'
    )


def _facts(facts: Facts) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.rows)
    return f"<div><h3>{escape(facts.title)}</h3><dl>{rows}</dl></div>" if rows else ""


def _capital(text: str) -> str:
    """Names such as `threads=4` stay as they are."""
    return text if "=" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def _label(metric: str) -> str:
    return _capital(metric.removesuffix("_per_s").replace("_ns_", " ").replace("_", " "))
