"""Memory growth over the measured window: the types on the JVMs' heaps, for one trial of the answer's setting. In: an
Analysis. Out: words, cells and escaped text. Nothing is judged here."""

from __future__ import annotations

from html import escape

from powerband.base.units import plural
from powerband.model.results import Analysis, HeapGrowth, TrialResult, TypeGrowth
from powerband.report.html.figure_parts import scrolling, table
from powerband.report.html.verdict_charts import middle_trial
from powerband.report.wording.numbers import format_number

GROWTH_HEADS = ("type that grew", "instances", "more", "bytes", "more")


def snapshot_trial(analysis: Analysis) -> tuple[TrialResult, HeapGrowth] | None:
    """The median trial, by throughput, among those with snapshots of the answer's setting (or of the leader's, if there
    is no answer); None if there is none."""
    setting = analysis.answer.setting or analysis.answer.leader
    mine = [trial for trial in analysis.trials if trial.setting == setting and trial.valid and trial.heap_growth]
    trial = middle_trial(mine)
    return None if trial is None or trial.heap_growth is None else (trial, trial.heap_growth)


def growth_sentence(trial: TrialResult, growth: HeapGrowth) -> str:
    """`Trial 3 of threads=8: 5.10 MiB of live objects before the measured window, 7.20 MiB after it; 12 types grew.`"""
    sizes = [format_number(float(size), "bytes") for size in (growth.bytes_before, growth.bytes_after)]
    of = f" in {growth.jvms} JVMs" if growth.jvms > 1 else ""
    grew = f"{plural(growth.types_grown, 'type')} grew" if growth.types_grown else "no type grew"
    return (
        f"Trial {trial.number} of {trial.setting.id}: {sizes[0]} of live objects{of} before the measured window, "
        f"{sizes[1]} after it; {grew}."
    )


def growth_cells(of: TypeGrowth) -> tuple[str, str, str, str, str]:
    """A row of `GROWTH_HEADS`: instances and bytes after the window, each with its increase since before."""
    return (
        of.type,
        f"{of.instances_after:,}",
        _more(of.instances_after - of.instances_before),
        f"{of.bytes_after:,}",
        _more(of.bytes_after - of.bytes_before),
    )


def memory_section(analysis: Analysis) -> str:
    """The section; empty if no snapshots were taken."""
    found = snapshot_trial(analysis)
    if found is None:
        return ""
    trial, growth = found
    lead = (
        f"{growth_sentence(trial, growth)} Each row is what lived after the window, and how much more that is than "
        "before: a type that grows in every trial, and more in a longer one, is what a leak looks like."
    )
    rows = [growth_cells(each) for each in growth.types]
    left = growth.types_grown - len(rows)
    more = f"<p>and {plural(left, 'type')} that grew less</p>" if left else ""
    shown = scrolling("Types that grew", table(GROWTH_HEADS, rows)) + more if rows else ""
    return f'<p class="lead">{escape(lead)}</p>{shown}'


def _more(count: int) -> str:
    return f"{'−' if count < 0 else '+'}{abs(count):,}"
