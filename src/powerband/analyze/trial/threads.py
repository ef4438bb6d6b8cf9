"""Tabulates a subject's threads one by one over the measured window, and the labelled series of its metrics page.

In: a trial's record and what the probe saw. Out: rows for tables: how much CPU each thread used and how long it waited
for it, and what the page says by label (instance, thread, pool), over the window and over time. Nothing is judged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from powerband.model.own_expression import labels_of
from powerband.readings.fleet import SECOND_NS
from powerband.readings.probe_samples import Counters
from powerband.readings.thread_groups import samples_by_thread
from powerband.wire.probe_events import Threads, ThreadSample

COUNTS = ("_total", "_count", "_sum", "_bucket")
LINES_MAX = 12  # of one plot; more cannot be told apart


@dataclass(frozen=True)
class ThreadUse:
    """One thread, by its full `name` as far as that is known. `on_cpu`, `run_wait`: the shares of the window on a CPU,
    and runnable without one. `switches_per_s`: both kinds of context switches."""

    name: str
    on_cpu: float
    run_wait: float
    switches_per_s: float


@dataclass(frozen=True)
class LabelTable:
    """Series that have the same labels. `labels`: their names. `columns`: the names of the series. `rows`: the values
    of the labels, with those of the columns: counters (by their names' ends) per second, the others as last read; None:
    unknown for this row."""

    labels: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[float | None, ...]], ...]


@dataclass(frozen=True)
class LabelledSeries:
    """The series of one `name` over time. `lines`: for each combination of its labels' values, their text and a value
    at each of `t_s`: counters (by their names' ends) per second since the scrape before, the others as read; None:
    unknown, or the counter began again."""

    name: str
    t_s: tuple[float, ...]
    lines: tuple[tuple[str, tuple[float | None, ...]], ...]


def thread_uses(events: Iterable[Threads], names: Mapping[str, str], start_ns: int, end_ns: int) -> list[ThreadUse]:
    """The use of each thread that the probe read at least twice within the window, the busiest first, waits for a CPU
    included. `names`: full names by thread id, as far as they are known."""
    seen = samples_by_thread(event for event in events if start_ns <= event["at_ns"] <= end_ns)
    uses = [_use(rows, names) for rows in seen.values() if len(rows) > 1]
    return sorted((use for use in uses if use.on_cpu + use.run_wait > 0), key=lambda use: -(use.on_cpu + use.run_wait))


def label_tables(
    scrapes: Counters, start_ns: int, end_ns: int, loaded: tuple[int, int] | None = None
) -> list[LabelTable]:
    """Tables in the order of the page; series without labels are left out, as they stand alone. `loaded`: as in
    `Counters.growth`."""
    grouped: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, float]]] = {}
    columns: dict[tuple[str, ...], dict[str, None]] = {}
    for text in scrapes.fields:
        name, _, rest = text.partition("{")
        labels = sorted(labels_of(rest))
        found = _value(scrapes, text, start_ns, end_ns, loaded)
        if not labels or found is None:
            continue
        keys, values = tuple(key for key, _ in labels), tuple(value for _, value in labels)
        grouped.setdefault(keys, {}).setdefault(values, {})[name] = found
        columns.setdefault(keys, {})[name] = None
    return [
        LabelTable(
            keys,
            tuple(columns[keys]),
            tuple((values, tuple(row.get(name) for name in columns[keys])) for values, row in sorted(rows.items())),
        )
        for keys, rows in grouped.items()
    ]


def labelled_series(wanted: Sequence[str], scrapes: Counters, origin_ns: int) -> list[LabelledSeries]:
    """The series of these names that the page has, in their order; times in seconds since the origin. If there are too
    many lines, the `LINES_MAX` with the largest means stay."""
    t_s = tuple((float(at) - origin_ns) / SECOND_NS for at in scrapes.at_ns[1:])
    found = []
    for name in wanted:
        fields = [field for field in scrapes.fields if field.partition("{")[0] == name]
        lines = [(_line_name(field), _over_time(scrapes, field, name)) for field in fields]
        most = sorted(lines, key=lambda line: -_mean(line[1]))[:LINES_MAX]
        if most:
            found.append(LabelledSeries(name, t_s, tuple(line for line in lines if line in most)))
    return found


def is_counter(name: str) -> bool:
    """True if a series only grows, by the end of its name."""
    return name.endswith(COUNTS)


def _use(rows: Sequence[tuple[int, ThreadSample]], names: Mapping[str, str]) -> ThreadUse:
    (begun, first), (ended, last) = rows[0], rows[-1]
    passed = max(1, ended - begun)
    return ThreadUse(
        name=names.get(str(last["tid"]), last["name"]),
        on_cpu=max(0, last["on_cpu_ns"] - first["on_cpu_ns"]) / passed,
        run_wait=max(0, last["run_wait_ns"] - first["run_wait_ns"]) / passed,
        switches_per_s=max(0, last["switches"] - first["switches"]) * SECOND_NS / passed,
    )


def _value(scrapes: Counters, text: str, start_ns: int, end_ns: int, loaded: tuple[int, int] | None) -> float | None:
    if is_counter(text.partition("{")[0]):
        if scrapes.falls(text, start_ns, end_ns):  # it began again
            return None
        grown = scrapes.growth(text, start_ns, end_ns, 0.0, loaded)
        return None if grown is None else grown * SECOND_NS / (end_ns - start_ns)
    levels = scrapes.levels(text, start_ns, end_ns)
    return None if levels is None else float(levels[-1])


def _over_time(scrapes: Counters, field: str, name: str) -> tuple[float | None, ...]:
    if is_counter(name):
        slopes = scrapes.slopes(field)
        return tuple(None if slope is None or slope < 0 else slope * SECOND_NS for slope in slopes)
    return tuple(None if math.isnan(value) else float(value) for value in scrapes.fields[field][1:])


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else -math.inf


def _line_name(field: str) -> str:
    """`worker 0` of `{process="0",role="worker"}`: names before numbers."""
    return " ".join(sorted((value for _, value in sorted(labels_of(field.partition("{")[2]))), key=str.isdigit))
