"""The findings behind the answer on the HTML page: the race, capacities, bottlenecks, rules of thumb. In: an Analysis
and chart descriptions. Out: escaped text; nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from powerband.analyze.settings.soak import UNJUDGED, is_far, more_is_better
from powerband.base.units import capital, plural
from powerband.loads.measured import is_lower_bound
from powerband.model.bottlenecks import BottleneckName
from powerband.model.metrics import METRICS
from powerband.model.results import Analysis, Confirmation, Race, SettingResult, SoakFigure
from powerband.report.html.charts import Chart
from powerband.report.html.figure_parts import boxed, figure, scrolling, table, wrapping
from powerband.report.html.limit_lanes import LimitChart, limit_figure
from powerband.report.html.rule_chart import RuleChart, rule_tone
from powerband.report.html.verdict_charts import RACE_BARS, CapacityChart, RaceChart, pool_trial
from powerband.report.wording.findings import (
    CHANGE_HEADS,
    capacity_trials,
    capacity_words,
    change_rows,
    changes_lead,
    estimate_phrase,
    exploration_words,
    proposal_words,
    race_words,
    ratio_phrase,
    rule_nearest,
    rule_result,
    what_to_do,
)
from powerband.report.wording.numbers import ABSENT, format_number
from powerband.report.wording.standings import metric_name
from powerband.report.wording.words import about_revisions, fresh_noun


def race_section(analysis: Analysis, chart: RaceChart | None, exploration: Chart | None) -> str:
    """The course of the race, the eliminations with their reasons, and the confirmation of the winner."""
    race = analysis.race
    if race is None:
        return ""
    said = [race_words(race)]
    if analysis.exploration is not None:
        said.insert(0, exploration_words(analysis.exploration))
    picture = "" if chart is None else _race_figure(chart)
    before = "" if exploration is None else f'<div class="below">{figure(exploration)}</div>'
    return f'<p class="lead">{escape(" ".join(said))}</p>{picture}{_left(race)}{_confirmation(race, analysis)}{before}'


def _race_figure(chart: RaceChart) -> str:
    blocks = sorted({bar.block for row in chart.rows for bar in row.bars})
    heads = ["setting", *(f"round {block}" for block in blocks), "then"]
    rows = [
        (row.setting, *({bar.block: bar.text for bar in row.bars}.get(block, ABSENT) for block in blocks), row.state)
        for row in chart.rows
    ]
    last = "; ".join(
        f"{row.setting} {row.bars[-1].text if row.bars else ''} {row.state}".strip() for row in chart.rows[:12]
    )
    spoken = f"Chart: {chart.title}. At the end: {last}. The values are in the table below."
    each_rem = max(1.75, 0.34 * min(len(blocks), RACE_BARS))
    height = 4.5 + each_rem * len(chart.rows)
    return boxed(chart, spoken, table(heads, rows), height_rem=height)


def _left(race: Race) -> str:
    if not race.departures:
        return '<p class="under">No setting was eliminated.</p>'
    rows = [
        (left.setting.id, f"round {left.block + 1}", ratio_phrase(left.effect), left.reason) for left in race.departures
    ]
    return words_table(
        "Settings eliminated from the race", ("setting", "eliminated in", "ratio to the leader", "why"), rows
    )


def _confirmation(race: Race, analysis: Analysis) -> str:
    found = race.confirmation
    if found is None:
        return ""
    tone, verdict = ("good", "upheld") if found.agrees else ("unsure", "not contradicted")
    if not found.upheld:
        tone, verdict = "bad", "not upheld"
    rows = list(_confirmation_rows(found, analysis.objective, fresh_noun(analysis)))
    cells = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    fresh = capital(fresh_noun(analysis))
    return (
        f'<h3 class="sub">{fresh}s of {escape(found.setting.id)}: <span class="{tone}">{verdict}</span></h3>'
        f'<p class="bare">{escape(found.sentence)}</p><div class="facts"><dl>{cells}</dl></div>'
    )


def _confirmation_rows(found: Confirmation, objective: str, fresh: str) -> Iterable[tuple[str, str]]:
    yield "in the race", f"{estimate_phrase(found.race, objective)}, {plural(found.race.n, 'trial')}"
    yield "confirmed", f"{estimate_phrase(found.confirmed, objective)}, {plural(found.trials, fresh)}"
    lost = found.shrinkage
    yield "shrinkage", _share(lost.value, lost.low, lost.high) if found.race.value else ABSENT
    if found.rival is not None:
        yield f"to {found.rival.id}", ratio_phrase(found.advantage)


def _share(value: float, low: float | None, high: float | None) -> str:
    def percent(share: float) -> str:
        return f"{100 * share:.1f}".replace("-", "−")

    between = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
    return f"{percent(value)} %{between}"


def soak_section(analysis: Analysis) -> str:
    """The end of a long run beside the trials before it; empty if there was none."""
    soak = analysis.soak
    if soak is None:
        return ""
    trial = next((trial for trial in analysis.trials if trial.number == soak.trial), None)
    metrics = {} if trial is None else trial.metrics
    disturbed = trial is not None and trial.disturbed
    shown_only = {name for name in UNJUDGED if name != analysis.objective}
    rows = [
        _soak_row(
            figure,
            least=is_lower_bound(figure.metric, metrics),
            judged=figure.metric not in shown_only and (not disturbed or _is_better(figure, analysis)),
            far=is_far(figure, analysis.objective, analysis.direction, analysis.margin),
        )
        for figure in soak.figures
    ]
    heads = ("figure", "at the end", "before", "one more trial", "")
    shown = words_table("The end of the long run", heads, rows, numbers=(1, 2, 3)) if rows else ""
    return f'<p class="lead">{escape(soak.sentence)}</p>{shown}'


def _is_better(figure: SoakFigure, analysis: Analysis) -> bool:
    """True if the soak's figure is better than the interval, which no other program makes it."""
    if figure.low is None or figure.high is None:
        return False
    more = more_is_better(figure.metric, analysis.objective, analysis.direction)
    return figure.soaked > figure.high if more else figure.soaked < figure.low


def _soak_row(figure: SoakFigure, *, least: bool, judged: bool, far: bool) -> tuple[str, ...]:
    soaked, before, low, high = (
        ABSENT if value is None else format_number(value, METRICS[figure.metric].unit)
        for value in (figure.soaked, figure.before, figure.low, figure.high)
    )
    between = ABSENT if figure.low is None else f"{low} to {high}"
    verdict = ""
    if figure.low is not None and figure.high is not None:
        inside = figure.low <= figure.soaked <= figure.high
        known = "as before" if inside else "no worse" if judged else "not judged"
        verdict = "worse" if figure.worse else "not judged" if least or far else known
    return metric_name(figure.metric), f"≥ {soaked}" if least else soaked, before, between, verdict


def changes_section(analysis: Analysis) -> str:
    """The cost of each change of one parameter; empty unless parameters vary one at a time."""
    rows = change_rows(analysis)
    if not rows:
        return ""
    shown = words_table("What each change costs", CHANGE_HEADS, rows, numbers=(1,))
    return f'<p class="lead">{escape(changes_lead(analysis))}</p>{shown}'


def capacity_section(analysis: Analysis, charts: Sequence[CapacityChart]) -> str:
    """The highest rate at which the SLO holds, for each setting, and the curve of response times below and above
    it."""
    found = [(row.setting, row.capacity) for row in analysis.settings if row.capacity is not None]
    if not found:
        return ""
    rows = [
        (setting.id, capacity_words(capacity), str(capacity_trials(capacity)), capacity.note)
        for setting, capacity in found
    ]
    slo = f" ({' and '.join(analysis.constraints)})" if analysis.constraints else ""
    pictures = "".join(map(_capacity_figure, charts))
    return (
        f'<p class="lead">The highest rate of Poisson arrivals at which the SLO{escape(slo)} holds. '
        "Each dot is one offered rate: filled where it held in all trials, hollow where in some, a cross where in "
        "none. The shaded band is the interval of the capacity, the dashed line the limit.</p>"
        f'<div class="grid two">{pictures}</div>'
        + words_table("Capacities", ("setting", "capacity", "trials", ""), rows, numbers=(1, 2))
    )


def _capacity_figure(chart: CapacityChart) -> str:
    heads = ("offered rate", "p50", "p99", "SLO")
    rows = [
        (
            format_number(mark.rate_per_s, "per_s"),
            _time(mark.p50_ns, at_least=mark.p50_at_least),
            _time(mark.p99_ns, at_least=mark.p99_at_least),
            mark.text,
        )
        for mark in chart.marks
    ]
    tried = "; ".join(f"{rate}: p99 {p99}, {held}" for rate, _, p99, held in rows[:12])
    spoken = f"Chart: {chart.title}, {chart.note}. {tried}. The values are in the table below."
    return boxed(chart, spoken, table(heads, rows))


def _time(ns: float | None, *, at_least: bool) -> str:
    return ABSENT if ns is None else f"{'≥ ' if at_least else ''}{format_number(ns, 'ns')}"


def why_section(analysis: Analysis, pools: Chart | None, limits: LimitChart | None) -> str:
    """Each setting's bottleneck with evidence and advice, the bottlenecks by trial, and the thread states."""
    named = [row for row in analysis.settings if row.bottleneck is not None]
    if not named and pools is None:
        return ""
    lead = (
        '<p class="lead">What limits each setting, named from the threads’ states, the CPU’s use and the operating '
        "system’s counters in its trials, with the figures that prove it.</p>"
        if named
        else ""
    )
    rows = "".join(_bottleneck_row(row, analysis) for row in named)
    names = ("bottleneck", "proof", *(() if about_revisions(analysis) else ("what to do",)))
    heads = "".join(f'<th scope="col" class="words">{name}</th>' for name in names)
    head = f'<tr><th scope="col">setting</th>{heads}</tr>'
    shown = f'<table class="claims brief"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    named_table = scrolling("Bottlenecks", shown) if named else ""
    picture = "" if pools is None else f'<div class="below">{figure(pools)}</div>{_pool_table(analysis)}'
    over_the_run = "" if limits is None else f'<div class="below">{limit_figure(limits, analysis)}</div>'
    return lead + named_table + over_the_run + picture


def _bottleneck_row(result: SettingResult, analysis: Analysis) -> str:
    found = result.bottleneck
    assert found is not None
    valid = [t for t in analysis.trials if t.setting == result.setting and t.valid and t.bottleneck is not None]
    agree = sum(trial.bottleneck is not None and trial.bottleneck.name is found.name for trial in valid)
    # A trial names what limits it at its own rate, which is not what ends a capacity.
    counts = bool(valid) and result.capacity is None
    share = f"<small>named in {agree} of {plural(len(valid), 'trial')}</small>" if counts else ""
    proof = "".join(f"<li>{escape(figure)}</li>" for each in found.candidates for figure in each.evidence)
    tone = "good" if found.name is BottleneckName.NONE else "unsure"
    named = ", or ".join(each.name.words for each in found.candidates)
    chosen = ' class="chosen"' if result.setting == analysis.answer.setting else ""
    advice = "" if about_revisions(analysis) else f'<td class="words">{escape(capital(what_to_do(found)))}</td>'
    return (
        f'<tr{chosen}><th scope="row">{wrapping(result.setting.id)}</th>'
        f'<td class="words"><b class="{tone}">{escape(capital(named))}</b>{share}</td>'
        f'<td class="words"><ul>{proof}</ul></td>{advice}</tr>'
    )


def _pool_table(analysis: Analysis) -> str:
    """Every pool of every setting's median trial, in threads, the blocked ones by the cause of their waits."""
    rows = []
    for result in analysis.settings:
        trial = pool_trial(result, analysis)
        for pool in trial.pools if trial else ():
            kinds = sorted(pool.blocked_on.items(), key=lambda item: -item[1])
            on = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in kinds if share >= 0.005)
            use = f"{100 * pool.on_cpu / pool.threads:.1f} %" if pool.threads else ABSENT
            figures = (pool.threads, pool.on_cpu, pool.run_wait, pool.blocked)
            rows.append(
                (
                    result.setting.id,
                    pool.pool,
                    *(format_number(n, "count") for n in figures),
                    use,
                    ABSENT if pool.held_ns is None else format_number(pool.held_ns, "ns"),
                    on or ABSENT,
                )
            )
    heads = (
        *("setting", "pool", "threads", "on a CPU", "waiting for a CPU", "blocked"),
        *("CPU use of a thread", "held by a request", "blocked on"),
    )
    inner = words_table("Pools", heads, rows, numbers=(2, 3, 4, 5, 6, 7))
    return f'<details class="no-print"><summary>All pools, in threads</summary>{inner}</details>'


def rules_section(analysis: Analysis, chart: RuleChart | None) -> str:
    """Each rule of thumb: its proposal with the measured figures, and the effect of following it."""
    if not analysis.rules:
        return ""
    rows = []
    for rule in analysis.rules:
        nearest = rule_nearest(rule)
        rows.append(
            f'<tr><th scope="row">{escape(rule.name)}<small>{escape(rule.source)}</small></th>'
            f'<td class="words">{escape(rule.formula)}</td><td>{escape(proposal_words(rule))}</td>'
            f'<td class="words">{wrapping(nearest)}</td>'
            f'<td class="words {rule_tone(rule, analysis)}">{escape(rule_result(rule, analysis))}</td></tr>'
        )
    heads = (
        '<th scope="col">rule</th><th scope="col" class="words">with the figures measured here</th>'
        '<th scope="col">proposes</th><th scope="col" class="words">nearest setting tried</th>'
        '<th scope="col" class="words">following it changes</th>'
    )
    shown = f'<table class="claims brief"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    chosen = f"; the measured answer is {analysis.answer.setting.id}" if analysis.answer.setting else ""
    against = "answer" if chosen else "leader"
    return (
        '<p class="lead">What common rules propose for this server, with the figures measured here'
        f"{escape(chosen)}. The last column compares the nearest setting that was tried with the {against}. A rule is "
        "not applicable where its conditions are not met.</p>"
        + ("" if chart is None else _rule_figure(chart))
        + f'<div class="below">{scrolling("Rules of thumb", shown)}</div>'
    )


def _rule_figure(chart: RuleChart) -> str:
    numbers = table(["rule", "proposes"], [(row.name, row.text) for row in chart.rows])
    told = "; ".join(f"{row.name} {row.text}" for row in chart.rows)
    spoken = f"Chart: {chart.title}: {chart.factor}={chart.answer:g}. {told}. The values are in the table below."
    return boxed(chart, spoken, numbers, height_rem=4.5 + 1.9 * len(chart.rows))


def words_table(label: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """A table of words, which wrap; the columns in `numbers` are right-aligned."""
    content = table(heads, rows, words=set(range(1, len(heads))) - set(numbers))
    return f'<div class="scroll below" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'
