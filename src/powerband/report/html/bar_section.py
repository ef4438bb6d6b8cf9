"""The rate over time as bars of a given width, one chart per setting, as plain SVG: the bars are few and need no
script.

In: run directories, through `gather`. Out: escaped text. The rates come from `analyze.bars`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape

from powerband.analyze.trial.load_shape import bar_rates
from powerband.model.experiment import Measure
from powerband.model.results import Analysis
from powerband.report.html.figure_parts import foot, table
from powerband.report.html.page import BarsView
from powerband.report.html.verdict_charts import middle_records
from powerband.report.wording.numbers import format_number
from powerband.store import RunDir, TrialRecord

_WIDTH, _HEIGHT, _GAP = 100.0, 22.0, 0.15  # of a chart; the gap as a share of a bar's width


def bars_views(
    run: RunDir, analysis: Analysis, records: Iterable[TrialRecord], measured: Measure | None
) -> tuple[BarsView, ...]:
    """One view per setting: its median valid trial by throughput. Empty if no bars were requested."""
    if measured is None or not measured.bars_ns:
        return ()
    views = []
    for record, fleet in middle_records(analysis, records):
        if fleet is None:
            continue
        number = record.spec.number
        intervals = [event for event in run.trial(number).read_events() if event.get("type") == "interval"]
        if rates := bar_rates(intervals, fleet.start_ns, fleet.end_ns, measured.bars_ns):
            views.append(BarsView(record.spec.setting.id, number, measured.bars_ns / 1e9, rates))
    return tuple(views)


def bars_section(views: Sequence[BarsView], analysis: Analysis) -> str:
    """The bar charts with their numbers as tables. Each chart has its own scale from 0 to its highest bar, since
    settings may differ a hundredfold."""
    if not views:
        return ""
    lead = (
        f"Each bar is the mean rate of {views[0].width_s:g} s ({analysis.noun}s per second) in the middle trial of a "
        "setting, from the start of its measured window. Each picture has its own scale, from 0 to its highest bar."
    )
    return f'<p class="lead">{escape(lead)}</p><div class="grid two">{"".join(map(_one, views))}</div>'


def _one(view: BarsView) -> str:
    low, high = min(view.rates_per_s), max(view.rates_per_s)
    highest = high or 1.0
    kept = f"lowest bar {format_number(low, 'per_s')}, highest {format_number(high, 'per_s')}"
    kept += f": {100 * low / high:.0f} %" if high > 0 else ""
    place = _WIDTH / len(view.rates_per_s)
    bars = "".join(
        f'<rect x="{index * place + place * _GAP / 2:.3f}" y="{_HEIGHT * (1 - rate / highest):.3f}" '
        f'width="{place * (1 - _GAP):.3f}" height="{_HEIGHT * rate / highest:.3f}"></rect>'
        for index, rate in enumerate(view.rates_per_s)
    )
    spoken = f"Bars: {view.setting}, {len(view.rates_per_s)} of {view.width_s:g} s; {kept}."
    rows = [
        (f"{index * view.width_s:g} s", format_number(rate, "per_s")) for index, rate in enumerate(view.rates_per_s)
    ]
    return (
        f"<figure><figcaption><h3>{escape(view.setting)}</h3><p>{escape(f'trial {view.number}; {kept}')}</p>"
        f'</figcaption><svg class="bars" data-width-s="{view.width_s:g}" data-rates="{json.dumps(view.rates_per_s)}" '
        f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(spoken)}">{bars}</svg>'
        f"{foot(table(['from', 'rate'], rows))}</figure>"
    )
