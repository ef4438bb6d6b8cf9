"""Reads the probe's samples of one trial, and computes two things for any period: the growth of a cumulative counter,
and the levels of a gauge. Counters are interpolated linearly between readings.

For a tree with many threads the probe reads per-thread counts only about once a second, and repeats them in between
(see TreeSample in the wire contract); those of threads that end in between are lost. A value that is repeated, or lacks
the counts of most threads, is no reading: it is removed here, once for all callers.

Not here: what the figures mean (`analyze/trial/`), the per-second series for plots (`series.py`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from powerband.wire.probe_events import Jvm, Sample, Scrape, ScrapeFailed, Statsd, Threads

MANY_THREADS = 64  # the probe's own limit (`FEW_THREADS` of tree.rs)
PER_THREAD = ("voluntary_switches", "involuntary_switches", "run_wait_ns")
READ_TOGETHER = {  # counters by those that show whether they were read
    PER_THREAD: (*PER_THREAD, "minor_faults", "major_faults"),
    ("context_switches",): ("context_switches",),
}
IDLE_NS = 2e9  # twice the pause between two readings of many threads
COVERED_LEAST = 0.5  # half of a window: growth beyond what was seen would be a guess
SINK_FIGURES = ("packets", "updates", "malformed", "dropped")  # of the StatsD sink, as series statsd_<name>_total

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Counters:
    """One source of samples (a process tree, or the host). `at_ns`: the samples' times; `fields`: by name the value at
    each of them, NaN if it is absent or only repeated. `complete`: each sample has all series that there were then, so
    that a counter which is absent had not begun, or is over. `sources`: of several sources merged into one, the one
    that has the readings of each field."""

    at_ns: Array
    fields: Mapping[str, Array]
    complete: bool = False
    sources: Mapping[str, Counters] = field(default_factory=dict)

    def growth(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        covered_least: float = COVERED_LEAST,
        loaded: tuple[int, int] | None = None,
    ) -> float | None:
        """The growth of a cumulative counter from start to end. If its readings begin later or end earlier, the rate
        over the covered part is extrapolated; None if they cover less than `covered_least` of it. `loaded`: start and
        end in ns of the load that makes the counter grow: readings beside it are used only where readings within it are
        missing. None: it grows all the time."""
        at, values = self._readings(name)
        if loaded is not None:
            used = _while_loaded(at, start_ns, *loaded)
            at, values = at[used], values[used]
        if at.size < 2 or end_ns <= start_ns:
            return None
        first, last = max(float(at[0]), start_ns), min(float(at[-1]), end_ns)
        covered = (last - first) / (end_ns - start_ns)
        if covered <= 0 or covered < covered_least:
            return None
        begun = values[max(0, int(np.searchsorted(at, first, side="right")) - 1)]
        low, high = np.interp([first, last], at, values - begun)  # what grows alike is equal, whatever it began with
        return float(high - low) / covered

    def falls(self, name: str, start_ns: int, end_ns: int) -> bool:
        """True if a counter is smaller at some reading than at the one before, in a step that the period touches."""
        at, values = self._readings(name)
        touched = (at[1:] > start_ns) & (at[:-1] < end_ns)
        return bool((np.diff(values)[touched] < 0).any())

    def slopes(self, name: str) -> tuple[float | None, ...]:
        """Growth per ns from each sample to the next, constant between two readings; None without readings around
        it."""
        steps = self.steps(name, self.at_ns)
        if steps is None:
            return (None,) * (self.at_ns.size - 1)
        passed = np.diff(self.at_ns)
        rates = np.divide(steps, passed, out=np.full(passed.shape, np.nan), where=passed > 0)
        return tuple(None if math.isnan(rate) else rate for rate in rates.tolist())

    def steps(self, name: str, at_ns: Array) -> Array | None:
        """Growth from each of these times to the next, linear between readings; NaN where there are none on both sides.
        None without two readings."""
        at, values = self._readings(name)
        return np.diff(np.interp(at_ns, at, values, left=np.nan, right=np.nan)) if at.size > 1 else None

    def cores(self, start_ns: int, end_ns: int) -> float | None:
        """The CPU use of a process tree over a stretch, in cores; None if it is not known."""
        user, system = (self.growth(f"cpu_{kind}_ns", start_ns, end_ns) for kind in ("user", "system"))
        return None if user is None or system is None else (user + system) / (end_ns - start_ns)

    def levels(self, name: str, start_ns: int, end_ns: int) -> Array | None:
        """The values of a gauge within the period; None if there are none."""
        values = self.fields.get(name)
        if values is None:
            return None
        inside = values[(self.at_ns >= start_ns) & (self.at_ns <= end_ns)]
        inside = inside[~np.isnan(inside)]
        return inside if inside.size else None

    def highest(self, name: str, start_ns: int, end_ns: int) -> float | None:
        """The highest value of a gauge within the period; None if there are none."""
        levels = self.levels(name, start_ns, end_ns)
        return None if levels is None else float(levels.max())

    def _readings(self, name: str) -> tuple[Array, Array]:
        """The times at which a field was read, and its values then."""
        if name in self.sources:
            return self.sources[name]._readings(name)
        values = self.fields.get(name)
        if values is None:
            return np.empty(0), np.empty(0)
        known = ~np.isnan(values)
        if self.complete and known.any():
            first, last = np.flatnonzero(known)[[0, -1]]
            values = values.copy()
            values[:first], values[last + 1 :] = 0.0, values[last]
            known = ~np.isnan(values)
        return self.at_ns[known], values[known]


@dataclass(frozen=True)
class ProbeSamples:
    """Everything that the probe sampled in one trial. `trees`: the process trees by name (`subject`, `engine` or
    `engine-0`, ...); `host`: the whole machine, with `cpu_busy_ns_each_0`, `cpu_steal_ns_each_0` and so on of each of
    the trial's CPUs, busy with `awake` too; `scrapes_failed`: attempts to read the server's metrics page that failed.
    """

    trees: Mapping[str, Counters]
    host: Counters
    threads: tuple[Threads, ...]
    """The `threads` events of the subject, in order."""
    own_cores: float
    """The probe's own CPU over its life, in cores."""
    jvms: tuple[Counters, ...] = ()
    """Each JVM of the server; `gc_count` and `gc_ns` are sums over all its collectors, NaN if they are not known."""
    jvm_pids: tuple[int, ...] = ()
    """Their pids, in the same order."""
    dotnets: tuple[Counters, ...] = ()
    """The .NET processes of the server that a startup hook reported on, the one that allocated most first."""
    scrapes: Counters | None = None
    """The server's own series, from its metrics page and from the StatsD sink: a field for each, with its name on the
    page. None if nothing was read."""
    scrapes_failed: tuple[ScrapeFailed, ...] = ()
    on_page: frozenset[str] = frozenset()
    """Names of the server's own series that are on its page; the others arrive by StatsD."""
    awake: tuple[Counters, ...] = ()
    """The loops that keep CPUs awake (`trials/instruments/awake.py`); in the sums of `host` their CPU time counts as
    idle, though not in the figures of each CPU."""

    def matching(self, prefix: str) -> list[Counters]:
        """The trees named `prefix` or `prefix-...`, e.g. every engine of a trial."""
        return [tree for name, tree in self.trees.items() if name.split("-")[0] == prefix]

    def without_subject(self) -> ProbeSamples:
        """The samples without the processes of the subject, and without what was read from them."""
        trees = {name: tree for name, tree in self.trees.items() if name != "subject"}
        return replace(self, trees=trees, threads=(), jvms=(), jvm_pids=(), dotnets=())


def read_probe(events: Iterable[Any]) -> ProbeSamples | None:
    """The probe's samples; None if it took none."""
    trees: dict[str, _Readings] = {}
    host = _Readings()
    threads: list[Threads] = []
    jvms: dict[int, list[Jvm]] = {}
    dotnets: dict[int, _Readings] = {}
    readings: list[Scrape | Statsd] = []
    failed: list[ScrapeFailed] = []
    hello_ns: int | None = None
    own_cores = 0.0
    for event in events:
        match event["type"]:
            case "hello":
                hello_ns = event["monotonic_ns"]
            case "sample":
                sample: Sample = event
                for tree in sample["trees"]:
                    trees.setdefault(tree["name"], _Readings()).add(sample["at_ns"], tree)
                host.add(sample["at_ns"], _flat(sample["host"]))
            case "threads" if event["tree"] == "subject":
                threads.append(event)
            case "jvm":
                jvms.setdefault(event["pid"], []).append(event)
            case "dotnet":
                dotnets.setdefault(event["pid"], _Readings()).add(event["at_ns"], event)
            case "scrape" | "statsd":
                readings.append(event)
            case "scrape_failed":
                failed.append(event)
            case "end":
                begun = hello_ns if hello_ns is not None else (host.at_ns[0] if host.at_ns else event["at_ns"])
                own_cores = event["cpu_ns"] / max(1, event["at_ns"] - begun)
    if not host.at_ns:
        return None
    counted = {name: readings.counters() for name, readings in trees.items()}
    awake = tuple(counted.pop(name) for name in trees if name.startswith("awake-"))
    return ProbeSamples(
        trees=counted,
        host=_asleep(host.counters(), awake),
        awake=awake,
        threads=tuple(threads),
        own_cores=own_cores,
        jvms=tuple(_jvm(rows) for rows in jvms.values()),
        jvm_pids=tuple(jvms),
        dotnets=tuple(sorted((rows.counters() for rows in dotnets.values()), key=_allocated, reverse=True)),
        scrapes=own_readings(readings),
        scrapes_failed=tuple(failed),
        on_page=frozenset(name for each in readings if each["type"] == "scrape" for name in each["values"]),
    )


def _flat(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample with a field for each CPU, `NAME_0`, `NAME_1` and so on, in place of each list."""
    flat: dict[str, Any] = {}
    for name, value in sample.items():
        flat.update(
            {f"{name}_{cpu}": each for cpu, each in enumerate(value)} if isinstance(value, list) else {name: value}
        )
    return flat


def _asleep(host: Counters, awake: Sequence[Counters]) -> Counters:
    """The host's counters with the CPU time of the loops that keep CPUs awake counted as idle. Each CPU is still busy
    with them, since it is not known which loop ran there. The time that tasks waited for a CPU is left out, since the
    loops always wait for one."""
    if not awake:
        return host
    fields = {name: values for name, values in host.fields.items() if name != "psi_cpu_some_ns"}
    for loop in awake:
        ran = loop.fields["cpu_user_ns"] + loop.fields["cpu_system_ns"]
        known = ~np.isnan(ran)
        ran_ns = np.interp(host.at_ns, loop.at_ns[known], ran[known], left=0.0)
        fields["cpu_busy_ns"] = fields["cpu_busy_ns"] - ran_ns
        fields["cpu_idle_ns"] = fields["cpu_idle_ns"] + ran_ns
    return Counters(at_ns=host.at_ns, fields=fields)


class _Readings:
    """The samples of one source, kept as bare numbers: an hour has 36,000 of them. The first sample defines the
    fields."""

    def __init__(self) -> None:
        self.at_ns = array("d")
        self._fields: dict[str, array[float]] = {}

    def add(self, at_ns: int, values: Mapping[str, Any]) -> None:
        if not self.at_ns:
            self._fields = {name: array("d") for name, value in values.items() if not isinstance(value, str)}
        self.at_ns.append(at_ns)
        for name, column in self._fields.items():
            value = values.get(name)
            column.append(math.nan if value is None else value)

    def counters(self) -> Counters:
        at_ns = np.array(self.at_ns, dtype=float)
        fields = {name: np.array(column, dtype=float) for name, column in self._fields.items()}
        for shown_by, names in READ_TOGETHER.items():
            repeated = _repeated(at_ns, fields, shown_by)
            if shown_by == PER_THREAD:  # perf counts threads that have ended, too
                repeated |= _cut_short(at_ns, fields, repeated)
            for name in names:
                if name in fields:
                    fields[name][repeated] = np.nan
        return Counters(at_ns=at_ns, fields=fields)


def _allocated(dotnet: Counters) -> float:
    return float(dotnet.fields["allocated_bytes"][-1]) if "allocated_bytes" in dotnet.fields else 0.0


def _jvm(rows: Sequence[Jvm]) -> Counters:
    heap = ("heap_used_bytes_now", "heap_committed_bytes_now", "heap_left_bytes_now")
    gauges = (*heap, "safepoint_ns", "compile_ns", "threads_live_now", "threads_started")
    fields = {name: np.array([row.get(name) for row in rows], dtype=float) for name in gauges}
    used = fields["heap_used_bytes_now"]
    used[used == 0] = np.nan  # not reported yet: some collectors report only at their first collection
    fields["gc_count"] = np.array([sum(each["count"] for each in row["collectors"]) for row in rows], dtype=float)
    fields["gc_ns"] = np.array([sum(each["time_ns"] for each in row["collectors"]) for row in rows], dtype=float)
    if any(each["name"].startswith("Shenandoah") for each in rows[-1]["collectors"]):
        # It counts each phase of its collections, also those that run beside the program.
        fields["gc_count"][:] = fields["gc_ns"][:] = np.nan
    return Counters(at_ns=np.array([row["at_ns"] for row in rows], dtype=float), fields=fields)


def own_readings(readings: Sequence[Mapping[str, Any]]) -> Counters | None:
    """The series of `scrape` and `statsd` events: those of the page, and those of the sink. If both have a series, the
    page's values count."""
    parts = [_read(mine) for kind in ("scrape", "statsd") if (mine := [r for r in readings if r["type"] == kind])]
    return _merged(parts) if parts else None


def _read(readings: Sequence[Mapping[str, Any]]) -> Counters:
    """The readings of one source. A page's reading is dated at the middle between request and response. The sink's own
    figures become series too."""
    rows = [
        {**each["values"], **{f"statsd_{name}_total": each[name] for name in SINK_FIGURES if name in each}}
        for each in readings
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    fields = {name: np.array([row.get(name) for row in rows], dtype=float) for name in names}
    at = [each["at_ns"] + each.get("took_ns", 0) // 2 for each in readings]
    return Counters(at_ns=np.array(at, dtype=float), fields=fields, complete=True)


def _merged(parts: Sequence[Counters]) -> Counters:
    """Merges several sources into one: at the readings of the others, a level is interpolated between its own."""
    if len(parts) == 1:
        return parts[0]
    at = np.concatenate([part.at_ns for part in parts])
    order = np.argsort(at, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    fields: dict[str, Array] = {}
    sources: dict[str, Counters] = {}
    begin = 0
    for part in parts:
        mine = place[begin : begin + part.at_ns.size]
        begin += part.at_ns.size
        for name, values in part.fields.items():
            if name not in fields:
                fields[name] = np.interp(at[order], part.at_ns, values, left=np.nan, right=np.nan)
                fields[name][mine] = values
                sources[name] = part
    return Counters(at_ns=at[order], fields=fields, sources=sources)


def _repeated(at_ns: Array, fields: Mapping[str, Array], counts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Marks the samples of a tree with many threads that only repeat these counts, i.e. in which none of them has
    changed. The last sample is none of these if nothing changed for longer than any pause between readings."""
    threads = fields.get("threads_now")
    if threads is None:
        return np.zeros(0, dtype=bool)
    repeated = threads > MANY_THREADS
    repeated[0] = False
    for name in counts:
        if name in fields:
            repeated[1:] &= np.diff(fields[name]) == 0
    read = at_ns[~repeated]
    if read.size > 1 and at_ns[-1] - read[-1] > max(IDLE_NS, np.diff(read).max()):
        repeated[-1] = False
    return repeated


def _cut_short(
    at_ns: Array, fields: Mapping[str, Array], repeated: np.ndarray[Any, np.dtype[np.bool_]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Marks the last samples of a tree that ends, in which less than half of its many threads are left: the counts of
    the others since the last reading of all are lost. None if that reading lies further back than any pause between
    readings: then the tree goes on with fewer threads, or rested before it ended."""
    cut = np.zeros_like(repeated)
    threads = fields.get("threads_now", np.empty(0))
    full = np.flatnonzero(~repeated & (threads > MANY_THREADS))
    if full.size:
        last = full[-1]
        if at_ns[-1] - at_ns[last] <= np.diff(at_ns[full]).max(initial=IDLE_NS):
            cut[last + 1 :] = 2 * threads[last + 1 :] < threads[last]
    return cut


def _while_loaded(at_ns: Array, start_ns: int, begun_ns: int, ended_ns: int) -> slice:
    """The readings that show how a counter grew under a load that began and ended at these times. Between one within it
    and one beside it the counter grew for a part of the time, so that a line through both is too flat. Those beside an
    end are left in if the next one within is further from it than any two within are from each other; all are if fewer
    than two lie within, or none after `start_ns`."""
    within = np.flatnonzero((at_ns >= begun_ns) & (at_ns <= ended_ns))
    if within.size < 2 or at_ns[within[-1]] <= start_ns:
        return slice(None)
    first, last, longest = within[0], within[-1], np.diff(at_ns[within]).max()
    begin = first if at_ns[first] - begun_ns <= longest else None
    return slice(begin, last + 1 if ended_ns - at_ns[last] <= longest else None)
