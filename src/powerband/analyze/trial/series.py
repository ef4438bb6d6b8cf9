"""Makes one trial's time series for plots: load by second, the subject and the host by probe sample, threads by pool.

In: a record, events, probe samples. Out: tuples of plain numbers, times in seconds since `go`. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf, isnan
from typing import Any

from powerband.analyze.trial.load_shape import rate_counter
from powerband.analyze.trial.own_metrics import own_series
from powerband.analyze.trial.thread_states import ThreadStates, thread_states
from powerband.analyze.trial.threads import LabelledSeries, labelled_series
from powerband.model.experiment import Measure
from powerband.readings.fleet import SECOND_NS, MergedTimes
from powerband.readings.probe_samples import Counters, ProbeSamples
from powerband.store import TrialRecord
from powerband.wire.load_events import EngineInterval
from powerband.wire.probe_events import PoolSample, Threads

Numbers = tuple[float | None, ...]
POOLS_MAX = 4  # the busiest; nobody looks at more


@dataclass(frozen=True)
class LoadSeries:
    """The load, with one entry for each second, all engines merged. `t_s`: the end of each second. `rate_per_s`,
    `failed_per_s`: requests that ended ok, and those that did not. `in_flight`: at the end of the second.
    `response_time_ns_p50`, `response_time_ns_p99`: from merged histograms, None if no request ended ok. The last four
    are None without WebSockets: users that hold one (`joined`), `drops_per_s`, `joins_failed_per_s`, and messages
    `delivered_per_s`."""

    t_s: tuple[float, ...] = ()
    rate_per_s: tuple[float, ...] = ()
    failed_per_s: tuple[float, ...] = ()
    in_flight: tuple[float, ...] = ()
    response_time_ns_p50: Numbers = ()
    response_time_ns_p99: Numbers = ()
    joined: Numbers = ()
    drops_per_s: Numbers = ()
    joins_failed_per_s: Numbers = ()
    delivered_per_s: Numbers = ()


@dataclass(frozen=True)
class LoadSecond:
    """One second of the load, which ends at `t_s`: `values` by the names of `LoadSeries`."""

    t_s: float
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class SubjectSeries:
    """The subject, with one entry at `t_s` for each probe sample; rates are over the time since the sample before.
    `cpu_user_cores`, `cpu_system_cores`: CPUs used in user mode and in the kernel. `rss_bytes`, `threads`: of all its
    processes. `context_switches_per_s`: of both kinds."""

    t_s: tuple[float, ...] = ()
    cpu_user_cores: Numbers = ()
    cpu_system_cores: Numbers = ()
    rss_bytes: Numbers = ()
    threads: Numbers = ()
    context_switches_per_s: Numbers = ()


@dataclass(frozen=True)
class HostSeries:
    """The trial's CPUs, with one entry at `t_s` for each probe sample, over the time since the sample before.
    `busy_share`, `steal_share`: the shares of their time that they worked, and that the hypervisor took."""

    t_s: tuple[float, ...] = ()
    busy_share: Numbers = ()
    steal_share: Numbers = ()


@dataclass(frozen=True)
class PoolSeries:
    """The threads of one `pool`, by its name. `states`: what they did over time."""

    pool: str
    states: ThreadStates


@dataclass(frozen=True)
class JvmSeries:
    """The subject's first JVM, with one entry at `t_s` for each reading. `heap_used_bytes`, `heap_committed_bytes`: as
    the JVM reports them. `gc_share` is over the time since the sample before."""

    t_s: tuple[float, ...] = ()
    heap_used_bytes: Numbers = ()
    heap_committed_bytes: Numbers = ()
    gc_share: Numbers = ()


@dataclass(frozen=True)
class DotnetSeries:
    """The subject's first .NET process with a startup hook, with one entry at `t_s` for each reading: the `heap_bytes`
    of its collector, `pool_threads`, and work items in its `pool_queue`. `gc_share` is over the time since the sample
    before."""

    t_s: tuple[float, ...] = ()
    heap_bytes: Numbers = ()
    gc_share: Numbers = ()
    pool_threads: Numbers = ()
    pool_queue: Numbers = ()


@dataclass(frozen=True)
class OwnSeries:
    """A metric of the subject's own over time, by its `name` in the experiment: `values` at `t_s`, the scrapes of its
    page; None where it is not known."""

    name: str
    t_s: tuple[float, ...]
    values: Numbers


@dataclass(frozen=True)
class CounterSeries:
    """The lines that a rate counter would have printed at `t_s`, with `window_per_s` and `cumulative_per_s` as in
    `CounterLine`."""

    t_s: tuple[float, ...] = ()
    window_per_s: Numbers = ()
    cumulative_per_s: Numbers = ()


@dataclass(frozen=True)
class TrialSeries:
    """All series of one trial; one that was not measured is empty. `phases_s`: launched, ready, go, measure, drain, end
    in seconds since `go`, as far as they were reached. `load`, `subject`, `host`, `jvm`, `dotnet`, `counter`: as their
    classes say. `states`: the subject's threads; `pools`: those of its busiest pools. `own`: the metrics that the
    experiment names; `labelled`: the series of `measure.series`."""

    phases_s: Mapping[str, float] = field(default_factory=dict)
    load: LoadSeries = LoadSeries()
    subject: SubjectSeries = SubjectSeries()
    host: HostSeries = HostSeries()
    states: ThreadStates = field(default_factory=ThreadStates)
    pools: tuple[PoolSeries, ...] = ()
    jvm: JvmSeries = JvmSeries()
    dotnet: DotnetSeries = DotnetSeries()
    own: tuple[OwnSeries, ...] = ()
    labelled: tuple[LabelledSeries, ...] = ()
    counter: CounterSeries = CounterSeries()


def series_of(
    record: TrialRecord,
    events: Sequence[Any],
    probe: ProbeSamples | None,
    measured: Measure | None = None,
) -> TrialSeries:
    """Everything over time that one trial left; empty parts where there is nothing, never an error. `measured`: what
    the experiment wants of the subject's own metrics and of a rate counter."""
    origin_ns, wanted = record.origin_ns, measured or Measure()
    series = TrialSeries(
        phases_s={name: (at - origin_ns) / SECOND_NS for name, at in record.phases.items()},
        load=_load(events, origin_ns),
        counter=_counter(events, origin_ns) if wanted.rate_counter else CounterSeries(),
    )
    if probe is None:
        return series
    subject, page = probe.trees.get("subject"), probe.scrapes
    return replace(
        series,
        subject=SubjectSeries() if subject is None else _subject(subject, origin_ns),
        host=_host(probe.host, origin_ns),
        states=thread_states(probe.threads, origin_ns),
        pools=_pools(probe.threads, origin_ns),
        jvm=_jvm(probe.jvms[0], origin_ns) if probe.jvms else JvmSeries(),
        dotnet=_dotnet(probe.dotnets[0], origin_ns) if probe.dotnets else DotnetSeries(),
        own=() if page is None else _own(wanted, page, origin_ns),
        labelled=() if page is None else tuple(labelled_series(wanted.series, page, origin_ns)),
    )


def seconds_of_load(events: Iterable[Any], origin_ns: int) -> Iterator[LoadSecond]:
    """Yields the seconds of the load in order, the intervals of all engines added up; an interval belongs to the second
    in which it ends. A second is yielded once every engine has reported a later interval, or its summary. Each engine
    reports in order, so no more is held than the engines are apart."""
    seconds: dict[int, list[EngineInterval]] = {}
    heard: dict[int, float] = {}  # by engine, the second of its last interval
    for event in events:
        engine = event.get("engine", 0)
        match event.get("type"):
            case "hello":
                heard.setdefault(engine, -1)
            case "summary" | "error":
                heard[engine] = inf
            case "interval" if event["end_ns"] > origin_ns:
                second = (event["end_ns"] - origin_ns - 1) // int(SECOND_NS)
                seconds.setdefault(second, []).append(event)
                heard[engine] = second
            case _:
                continue
        whole_until = min(heard.values())
        for second in sorted(second for second in seconds if second < whole_until):
            yield LoadSecond(second + 1.0, one_second(seconds.pop(second)))
    for second in sorted(seconds):
        yield LoadSecond(second + 1.0, one_second(seconds[second]))


def _jvm(jvm: Counters, origin_ns: int) -> JvmSeries:
    return JvmSeries(
        t_s=_times(jvm, origin_ns),
        heap_used_bytes=_levels(jvm, "heap_used_bytes_now"),
        heap_committed_bytes=_levels(jvm, "heap_committed_bytes_now"),
        gc_share=jvm.slopes("gc_ns"),
    )


def _dotnet(dotnet: Counters, origin_ns: int) -> DotnetSeries:
    return DotnetSeries(
        t_s=_times(dotnet, origin_ns),
        heap_bytes=_levels(dotnet, "heap_bytes_now"),
        gc_share=dotnet.slopes("gc_ns"),
        pool_threads=_levels(dotnet, "pool_threads_now"),
        pool_queue=_levels(dotnet, "pool_queue_now"),
    )


def _own(measured: Measure, scrapes: Counters, origin_ns: int) -> tuple[OwnSeries, ...]:
    t_s = tuple((float(at) - origin_ns) / SECOND_NS for at in scrapes.at_ns)
    found = own_series(measured.own_metrics(), scrapes)
    return tuple(OwnSeries(name, t_s, values) for name, values in found.items())


def _counter(events: Sequence[Any], origin_ns: int) -> CounterSeries:
    lines = rate_counter([event for event in events if event.get("type") == "interval"])
    return CounterSeries(
        t_s=tuple((line.at_ns - origin_ns) / SECOND_NS for line in lines),
        window_per_s=tuple(line.window_per_s for line in lines),
        cumulative_per_s=tuple(line.cumulative_per_s for line in lines),
    )


def _load(events: Iterable[Any], origin_ns: int) -> LoadSeries:
    seconds = list(seconds_of_load(events, origin_ns))
    _, *names = (each.name for each in fields(LoadSeries))
    columns: dict[str, Any] = {name: tuple(second.values[name] for second in seconds) for name in names}
    return LoadSeries(t_s=tuple(second.t_s for second in seconds), **columns)


def one_second(intervals: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The figures of one second by the names of `LoadSeries`, from the intervals of all engines that end in it. Its
    length is the time that the intervals of one engine cover, since edges may be cut short."""
    engines = {event.get("engine", 0) for event in intervals}
    covered_s = sum(event["end_ns"] - event["start_ns"] for event in intervals) / len(engines) / SECOND_NS
    ok = sum(event["outcomes"].get("ok", 0) for event in intervals)
    times = MergedTimes(event["response_time_ns"] for event in intervals if event.get("response_time_ns"))
    last = {event.get("engine", 0): event for event in intervals}
    return {
        "rate_per_s": ok / covered_s,
        "failed_per_s": sum(sum(event["outcomes"].values()) for event in intervals) / covered_s - ok / covered_s,
        "in_flight": sum(event["in_flight_now"] for event in last.values()),
        "response_time_ns_p50": times.quantile(0.5) if times.count else None,
        "response_time_ns_p99": times.quantile(0.99) if times.count else None,
        "joined": sum(joined) if (joined := _known(last.values(), "joined_now")) else None,
        **{
            f"{name}_per_s": sum(counts) / covered_s if (counts := _known(intervals, name)) else None
            for name in ("drops", "joins_failed", "delivered")
        },
    }


def _known(intervals: Iterable[Mapping[str, Any]], name: str) -> list[int]:
    """The values of a field that only the intervals of some loads have (so far WebSockets); empty for all others."""
    return [event[name] for event in intervals if event.get(name) is not None]


def _subject(tree: Counters, origin_ns: int) -> SubjectSeries:
    exact = tree.slopes("context_switches")
    summed = tuple(
        None if a is None or b is None else a + b
        for a, b in zip(tree.slopes("voluntary_switches"), tree.slopes("involuntary_switches"), strict=True)
    )
    switches = exact if any(value is not None for value in exact) else summed
    return SubjectSeries(
        t_s=_times(tree, origin_ns),
        cpu_user_cores=tree.slopes("cpu_user_ns"),
        cpu_system_cores=tree.slopes("cpu_system_ns"),
        rss_bytes=_levels(tree, "rss_bytes_now"),
        threads=_levels(tree, "threads_now"),
        context_switches_per_s=tuple(None if value is None else value * SECOND_NS for value in switches),
    )


def _host(host: Counters, origin_ns: int) -> HostSeries:
    busy, idle, steal = (host.slopes(name) for name in ("cpu_busy_ns", "cpu_idle_ns", "cpu_steal_ns"))
    totals = [
        None if b is None or i is None or s is None else b + i + s for b, i, s in zip(busy, idle, steal, strict=True)
    ]
    return HostSeries(
        t_s=_times(host, origin_ns),
        busy_share=tuple(b / t if b is not None and t else None for b, t in zip(busy, totals, strict=True)),
        steal_share=tuple(s / t if s is not None and t else None for s, t in zip(steal, totals, strict=True)),
    )


def _times(source: Counters, origin_ns: int) -> tuple[float, ...]:
    """The times of all samples but the first, which has no rate."""
    return tuple((float(at) - origin_ns) / SECOND_NS for at in source.at_ns[1:])


def _levels(source: Counters, name: str) -> Numbers:
    values = source.fields.get(name)
    if values is None:
        return (None,) * (source.at_ns.size - 1)
    return tuple(None if isnan(value) else float(value) for value in values[1:])


def _pools(events: Sequence[Threads], origin_ns: int) -> tuple[PoolSeries, ...]:
    """The busiest pools of the subject that were seen twice, in order of the CPU time spent, then of threads."""
    seen: dict[str, list[PoolSample]] = {}
    for event in events:
        for pool in event["pools"]:
            seen.setdefault(pool["pool"], []).append(pool)
    busiest = sorted(
        (name for name, rows in seen.items() if len(rows) > 1),
        key=lambda name: (-seen[name][-1]["on_cpu_ns"] + seen[name][0]["on_cpu_ns"], -seen[name][-1]["threads_now"]),
    )[:POOLS_MAX]
    return tuple(PoolSeries(name, thread_states(events, origin_ns, name)) for name in busiest)
