"""Details from inside the server on the HTML page: for one trial of each setting, the busiest threads by their full
names, and the labelled series of the server's metrics page. In: run directories, through `gather`. Out: escaped text;
nothing is judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from powerband.analyze.trial.threads import LabelTable, ThreadUse, is_counter, label_tables, thread_uses
from powerband.base.units import share
from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.results import Analysis
from powerband.readings.fleet import MergedFleet
from powerband.readings.probe_samples import read_probe
from powerband.report.html.figure_parts import table
from powerband.report.html.page import InsideView
from powerband.report.html.verdict_charts import middle_records
from powerband.report.wording.numbers import ABSENT, format_number
from powerband.store import RunDir, TrialRecord

THREADS_SHOWN = 12  # arbitrary: the busiest; those below `_BUSY_LEAST` are left out anyway
ROWS_SHOWN = 40  # arbitrary: a screen; the table says how many are left out
_BUSY_LEAST = 0.005  # minimum share of a CPU, including waits for it, to be listed


def inside_views(
    run: RunDir, analysis: Analysis, records: Iterable[TrialRecord], experiment: Experiment | None
) -> tuple[InsideView, ...]:
    """One view per setting: its median valid trial by throughput. Settings without data are omitted. `experiment`: None
    if its file can no longer be read."""
    views = [_view(run, record, fleet, experiment) for record, fleet in middle_records(analysis, records)]
    return tuple(view for view in views if view.threads or view.tables)


def inside_section(views: Sequence[InsideView]) -> str:
    """The section; empty if there are no views."""
    if not views:
        return ""
    lead = (
        '<p class="lead">Of the middle trial of each setting, over the measured window: the busiest threads, and what '
        "the server’s own page says by label. A thread that waits for a CPU about as long as it has one shares it.</p>"
    )
    return lead + "".join(map(_setting, views))


def _setting(view: InsideView) -> str:
    parts = []
    if view.threads:
        heads = ["thread", "on a CPU", "waiting for a CPU", "switches/s"]
        rows = [
            (use.name, share(use.on_cpu), share(use.run_wait), f"{use.switches_per_s:,.0f}") for use in view.threads
        ]
        parts.append(table(heads, rows))
    parts += [_labelled(found) for found in view.tables]
    body = "".join(f'<div class="scroll">{part}</div>' for part in parts)
    return f"<details><summary>{escape(view.setting)} (trial {view.number})</summary>{body}</details>"


def _labelled(found: LabelTable) -> str:
    columns = [f"{name}/s" if is_counter(name) else name for name in found.columns]
    heads = [", ".join(found.labels), *columns]
    rows = [(", ".join(values), *map(_number, cells)) for values, cells in found.rows[:ROWS_SHOWN]]
    more = f"<p>and {len(found.rows) - ROWS_SHOWN} more rows</p>" if len(found.rows) > ROWS_SHOWN else ""
    return table(heads, rows) + more


def _view(run: RunDir, record: TrialRecord, fleet: MergedFleet | None, experiment: Experiment | None) -> InsideView:
    probe = read_probe(run.trial(record.spec.number).read_probe())
    threads: list[ThreadUse] = []
    tables: list[LabelTable] = []
    if fleet is not None and probe is not None:
        uses = thread_uses(probe.threads, record.thread_names, fleet.start_ns, fleet.end_ns)
        threads = [use for use in uses if use.on_cpu + use.run_wait >= _BUSY_LEAST][:THREADS_SHOWN]
        loaded = None if experiment is None else kind_of(experiment).loaded(fleet)
        tables = [] if probe.scrapes is None else label_tables(probe.scrapes, fleet.start_ns, fleet.end_ns, loaded)
    return InsideView(record.spec.setting.id, record.spec.number, tuple(threads), tuple(tables))


def _number(value: float | None) -> str:
    return ABSENT if value is None else format_number(value, "count")
