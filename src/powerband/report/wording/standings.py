"""The ranking of a run in progress, for the live view; for a race with intervals that narrow.

In: an Analysis. Out: rich renderables; nothing is computed but positions on a bar of characters."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from powerband.base.units import plural
from powerband.model.experiment import Experiment
from powerband.model.metrics import metric_words
from powerband.model.results import Analysis, Estimate, Look, SettingResult
from powerband.report.wording.findings import departure_of, gap_range, rates_tried, state_words
from powerband.report.wording.numbers import ABSENT, format_estimate, format_interval
from powerband.report.wording.words import bound_words, change_words, margin_as_ratio, short_id

RANKING_ROWS = 12  # arbitrary: a screen together with the progress; the report has all
_BAR_CELLS = 17  # so that a race of names like threads=128 has its bar in 80 columns
_BESIDE_BAR = 69  # width of the rest of a race's table, without the names of the settings
_BAR_MARGINS = (8.0, 4.0)  # reach of a bar from the leader, in margins: towards worse and towards better


def ranking(analysis: Analysis, width: int) -> Table:
    """The best settings first. A race shows each setting's last interval, drawn as a bar if `width` columns leave room
    for it; a capacity search shows the rates tried."""
    look = analysis.race.looks[-1] if analysis.race and analysis.race.looks else None
    if look is not None:
        return _race(analysis, look, width)
    capacity = any(result.capacity for result in analysis.settings)
    extra = "rates tried" if capacity else "p99"
    table = _table(metric_name(analysis.objective), "interval", extra, "vs leader")
    for result in ranked(analysis)[:RANKING_ROWS]:
        objective = result.shown.get(analysis.objective)
        p99 = result.estimates.get("response_time_ns_p99")
        third = format_estimate(p99, "response_time_ns_p99", digits=3)
        if capacity:
            third = ABSENT if result.capacity is None else rates_tried(result.capacity)
        table.add_row(
            Text(short_id(result.setting, analysis)),
            format_estimate(objective, analysis.objective),
            format_interval(objective, analysis.objective),
            third,
            change_words(result, analysis),
            state_words(result, analysis),
            style="bold" if result.setting == analysis.answer.setting else "",
        )
    return table


def race_line(analysis: Analysis, experiment: Experiment) -> str:
    """`round 3 of at most 10 done; 5 settings in the race, 4 eliminated; threads=64 leads; no other is better by ...`.
    Empty before the first block."""
    race = analysis.race
    if race is None or not race.looks:
        return ""
    last = race.looks[-1]
    # Not the effects of the look: to a leader at 0 there are none.
    live = sum(row.trials > 0 and departure_of(row.setting, race) is None for row in analysis.settings)
    bound = bound_words(analysis)
    raced = len(experiment.settings()) if analysis.exploration is None else analysis.exploration.raced
    most = experiment.screen_blocks + race.grid_trials // max(1, raced)
    return (
        f"round {last.block + 1} of at most {most} done; {plural(live, 'setting')} in the race, "
        f"{len(race.departures)} eliminated; {last.leader.id} leads{f'; {bound}' if bound else ''}"
    )


def left_line(analysis: Analysis) -> str:
    """`eliminated: threads=1, threads=2`: the settings eliminated after the last block; empty if there were none."""
    last = analysis.race.looks[-1] if analysis.race and analysis.race.looks else None
    return f"eliminated: {', '.join(setting.id for setting in last.left)}" if last is not None and last.left else ""


def ranked(analysis: Analysis) -> list[SettingResult]:
    """Best first; then the settings eliminated from a race, the latest first; those that violate the SLO or have no
    estimate last."""

    def key(result: SettingResult) -> tuple[bool, int, float]:
        estimate = result.shown.get(analysis.objective)
        left = departure_of(result.setting, analysis.race)
        out = 0 if left is None else 1_000_000 - left.block
        if estimate is None:
            return True, out, 0.0
        return not result.feasible, out, -estimate.value if analysis.direction == "maximise" else estimate.value

    return sorted(analysis.settings, key=key)


def best_ranked(analysis: Analysis, most: int) -> list[SettingResult]:
    """The best settings, at most so many. The answer is the last of them if it is not among the best: it may be the
    cheapest of many that are equivalent."""
    rows = ranked(analysis)
    answer = [row for row in rows[most:] if row.setting == analysis.answer.setting]
    return [*rows[: most - len(answer)], *answer]


# Names of metrics in a picture with several measures.
MEASURES = {"goodput_per_s": "throughput", "subject_cpu_cores": "CPU"}


def metric_name(metric: str) -> str:
    """The words for a metric in a column or a line: those of `metric_words`, `p99` for the response time's."""
    return metric_words(metric).removeprefix("response time ").removesuffix(" response time")


_BAR_LEAST = 0.001  # with a margin of 0 a bar would have no width


def interval_bar(effect: Estimate, margin: float, direction: str) -> str:
    """`···├─────●──┤│·····`: the interval of a ratio to the leader, which is the vertical stroke. An end beyond the bar
    is an arrow."""
    worse, better = (reach * max(margin, _BAR_LEAST) for reach in _BAR_MARGINS)
    floor, ceiling = (1 - worse, 1 + better) if direction == "maximise" else (1 - better, 1 + worse)

    def cell(ratio: float) -> int:
        return round((ratio - floor) / (ceiling - floor) * (_BAR_CELLS - 1))

    cells = ["·"] * _BAR_CELLS
    cells[cell(1.0)] = "│"
    low, high = map(cell, effect.ends)
    for place in range(max(0, low), min(_BAR_CELLS - 1, high) + 1):
        cells[place] = "─"
    if low < _BAR_CELLS:
        cells[max(0, low)] = "├" if low >= 0 else "◀"
    if high >= 0:
        cells[min(high, _BAR_CELLS - 1)] = "┤" if high < _BAR_CELLS else "▶"
    if 0 <= cell(effect.value) < _BAR_CELLS:
        cells[cell(effect.value)] = "●"
    return "".join(cells)


def _race(analysis: Analysis, look: Look, width: int) -> Table:
    shown = ranked(analysis)[:RANKING_ROWS]
    margin = margin_as_ratio(analysis, look.leader)
    drawn = max(len(short_id(result.setting, analysis)) for result in shown) + _BESIDE_BAR <= width
    table = _table(metric_name(analysis.objective), "vs leader", *([""] if drawn else []))
    base = next(
        (row.estimates.get(analysis.objective) for row in analysis.settings if row.setting == look.leader), None
    )
    for result in shown:
        objective = result.estimates.get(analysis.objective)
        leads = result.setting == look.leader
        left = departure_of(result.setting, analysis.race)
        effect = look.effects.get(result.setting.id) if left is None else left.effect
        bar = "" if effect is None or leads else interval_bar(effect, margin, analysis.direction)
        gap = gap_range(effect, base, objective, analysis.objective, left=left is not None)
        table.add_row(
            Text(short_id(result.setting, analysis)),
            format_estimate(objective, analysis.objective),
            "" if leads else gap or ABSENT,
            *([Text(bar)] if drawn else []),
            "leader" if leads else state_words(result, analysis),
            style="bold" if leads else "dim" if left is not None else "",
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("so far", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    return table
