"""Makes metrics of what the probe saw of a trial's processes and of the host, over the measured window.

In: a trial's evidence. Out: metrics of the subject's process tree, its services, the engines, the host, the subject's
pools of threads and its JVMs. How fresh heap figures are depends on the collector: docs/methods/process-counters.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from powerband.model.clocks import GeneratorNode, most_starved
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import SECOND_NS, MergedFleet
from powerband.readings.probe_samples import Counters, ProbeSamples

PARTIAL_SWITCHES = "switches_of_living_threads"
STARTED_NS = 200_000_000  # after go: what a server starts at the first request is there, and all users have begun
FIRST_READ_NS = 300_000_000  # a JVM is read four times a second: one that is ready is read within this time


def probe_metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields the metrics of the subject, its services, the load engine's waits and the host; nothing if no probe saw
    the trial."""
    probe, fleet = evidence.probe, evidence.fleet
    if probe is None:
        return
    if (subject := probe.trees.get("subject")) is not None:
        metrics = _subject_metrics(subject, fleet)
        yield from metrics.items()
        if added := _processes_added(evidence, subject):
            yield "processes_added", added
        if (cpus := evidence.subject_cpus) and (cores := metrics.get("subject_cpu_cores")) is not None:
            yield "subject_cpu_share", cores / cpus
    if (quota := evidence.subject_quota) is not None:
        yield "cpu_quota_cores", quota
    services = [*probe.matching("postgresql"), *probe.matching("link")]
    if used := [cores for tree in services if (cores := tree.cores(*evidence.window)) is not None]:
        yield "services_cpu_cores", sum(used)
    yield from _engine_wait_metrics(probe, fleet, evidence.generators)
    yield from host_metrics(evidence, probe, fleet)


def _problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if evidence.probe is None:
        message = "the monitor took no sample: CPU, memory and threads of this trial are unknown"
        yield Problem("no_probe", message, fatal=False)
    elif (
        "context_switches_per_s" in metrics
        and evidence.experiment.subject.counts is None  # else threads are never counted by perf
        and evidence.probe.trees["subject"].growth("context_switches", *evidence.window) is None
    ):
        yield Problem(
            PARTIAL_SWITCHES,
            "context switches are of living threads only: those of threads that ended meanwhile are missing. "
            "An exact count needs perf: set kernel.perf_event_paranoid to 1 at most, or grant CAP_PERFMON",
            fatal=False,
        )


def pool_metrics(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields the CPU shares of the collectors and of the busiest thread; none of collectors if none are known."""
    collectors = [pool.use.on_cpu for pool in evidence.pools if pool.collects]
    if evidence.go_collecting_cores is not None:
        collectors.append(evidence.go_collecting_cores)
    if collectors and (cpus := evidence.subject_cpus):
        yield "gc_cpu_share", sum(collectors) / cpus
    if busiest := max((pool.busiest for pool in evidence.pools if not pool.busiest_at_most), default=0.0):
        yield "thread_cpu_share_max", busiest


def _pool_problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if None in evidence.record.go_collected.values():
        message = (
            "how much CPU Go's collector used is not known: the program is older than Go 1.20, or its memory may not "
            "be read"
        )
        yield Problem("no_go_collector", message, fatal=False)


def _subject_metrics(tree: Counters, fleet: MergedFleet) -> dict[str, float]:
    start, end, window_s = fleet.start_ns, fleet.end_ns, fleet.window_s
    metrics = dict(_gauges(tree, start, end))
    growth = {name: tree.growth(name, start, end) for name in tree.fields}

    def known(*names: str) -> tuple[float, ...] | None:
        values = tuple(value for name in names if (value := growth.get(name)) is not None)
        return values if len(values) == len(names) else None

    if cpu := known("cpu_user_ns", "cpu_system_ns"):
        metrics["subject_cpu_cores"] = sum(cpu) / SECOND_NS / window_s
        if sum(cpu) > 0:
            metrics["subject_cpu_system_share"] = cpu[1] / sum(cpu)
        if fleet.achieved_per_s > 0:
            metrics["subject_cpu_ns_per_request"] = sum(cpu) / window_s / fleet.achieved_per_s
    if (periods := known("quota_periods", "throttled_periods")) and periods[0] > 0:
        metrics["cpu_throttled_share"] = min(1.0, periods[1] / periods[0])
    if started := known("threads_started"):
        metrics["threads_started_per_s"] = started[0] / window_s
    if waited := known("run_wait_ns"):
        metrics["run_wait_cores"] = waited[0] / SECOND_NS / window_s
    if faults := known("minor_faults", "major_faults"):
        metrics["page_faults_per_s"] = sum(faults) / window_s
    by_kind = known("voluntary_switches", "involuntary_switches")
    if by_kind and sum(by_kind) > 0:
        metrics["involuntary_switch_share"] = by_kind[1] / sum(by_kind)
    if switches := known("context_switches") or by_kind:  # the exact count where the kernel gives it
        metrics["context_switches_per_s"] = sum(switches) / window_s
        if fleet.achieved_per_s > 0:
            metrics["context_switches_per_request"] = sum(switches) / window_s / fleet.achieved_per_s
    return metrics


def _processes_added(evidence: Evidence, tree: Counters) -> float:
    """How many more processes there are at the end of the window than soon after go; 0 if that is not known."""
    go_ns = evidence.record.phases.get("go")
    levels = None if go_ns is None else tree.levels("processes_now", go_ns + STARTED_NS, evidence.window[1])
    return 0.0 if levels is None else max(0.0, float(levels[-1] - levels[0]))


def _gauges(tree: Counters, start_ns: int, end_ns: int) -> Iterator[tuple[str, float]]:
    for name, gauge in (
        ("rss_bytes_max", "rss_bytes_now"),
        ("pss_bytes_max", "pss_bytes_now"),
        ("threads_max", "threads_now"),
        ("descriptors_max", "descriptors_now"),
    ):
        if (levels := tree.levels(gauge, start_ns, end_ns)) is not None:
            yield name, float(levels.max())
    if (levels := tree.levels("threads_now", start_ns, end_ns)) is not None:
        yield "threads_mean", float(levels.mean())


def _engine_wait_metrics(
    probe: ProbeSamples, fleet: MergedFleet, generators: Sequence[GeneratorNode]
) -> Iterator[tuple[str, float]]:
    """Yields how long the engine's threads were runnable without a CPU; nothing unless every engine's wait is known. Of
    several nodes, as if each were like the one that lacks a CPU most: others would hide it in a mean."""
    if generators:
        worst = most_starved(generators)
        if worst is not None and worst.run_wait_ns is not None and worst.wait_ns_mean is not None:
            engines = sum(len(each.engines) for each in generators)
            waited_ns = worst.run_wait_ns * engines / len(worst.engines)
            yield "engine_run_wait_cores", waited_ns / SECOND_NS / fleet.window_s
            yield "engine_run_wait_ns_mean", worst.wait_ns_mean
        return

    def grown(name: str) -> float | None:
        parts = [tree.growth(name, fleet.start_ns, fleet.end_ns) for tree in probe.matching("engine")]
        known = [part for part in parts if part is not None]
        return sum(known) if known and len(known) == len(parts) else None

    waited, slept, preempted = (grown(name) for name in ("run_wait_ns", "voluntary_switches", "involuntary_switches"))
    if waited is None or slept is None or preempted is None:
        return
    yield "engine_run_wait_cores", waited / SECOND_NS / fleet.window_s
    if slept + preempted > 0:
        yield "engine_run_wait_ns_mean", waited / (slept + preempted)


def host_metrics(evidence: Evidence, probe: ProbeSamples, fleet: MergedFleet) -> Iterator[tuple[str, float]]:
    """Yields the metrics of the host. Foreign CPU is what ran on the trial's CPUs less every watched tree and the probe
    itself; kernel threads that work for the trial count as foreign, since nothing tells them apart."""
    start, end = fleet.start_ns, fleet.end_ns
    if evidence.queues_here and (overflows := probe.host.growth("listen_overflows", start, end)) is not None:
        yield "accept_overflows", overflows
    for kind in ("cpu", "memory", "io"):
        if (stalled := probe.host.growth(f"psi_{kind}_some_ns", start, end)) is not None:
            yield f"psi_{kind}_share", min(1.0, stalled / (end - start))
    busy, idle, steal = (probe.host.growth(f"cpu_{kind}_ns", start, end) for kind in ("busy", "idle", "steal"))
    if busy is None or idle is None or steal is None or busy + idle + steal <= 0:
        return
    yield "host_steal_share", steal / (busy + idle + steal)
    yield "host_busy_share", busy / (busy + idle + steal)
    if (foreign := foreign_cores(evidence, probe, fleet)) is not None:
        yield "host_foreign_cores", foreign
    if probe.awake:
        yield "host_awake_cores", sum(loop.cores(start, end) or 0.0 for loop in probe.awake)


def foreign_cores(evidence: Evidence, probe: ProbeSamples, fleet: MergedFleet) -> float | None:
    """The cores that other programs used on the trial's CPUs; None if the probe did not read the host's CPU time, or if
    other programs cannot be told from the subject. The engines' own account stands for those that the probe did not
    watch."""
    start, end = fleet.start_ns, fleet.end_ns
    busy = probe.host.growth("cpu_busy_ns", start, end)
    if busy is None or not evidence.foreign_is_known:
        return None
    engines = sum(tree.cores(start, end) or 0.0 for tree in probe.matching("engine"))
    others = sum(tree.cores(start, end) or 0.0 for name, tree in probe.trees.items() if name.split("-")[0] != "engine")
    told = 0.0 if evidence.record.generators else fleet.cpu_cores  # engines elsewhere take nothing from this machine
    ours = others + max(engines, told) + probe.own_cores
    # Those that the kernel counts apart are in no process's CPU, and come mostly of the load's own packets.
    interrupts = probe.host.growth("cpu_interrupts_ns", start, end) or 0.0
    return max(0.0, (busy - interrupts) / SECOND_NS / fleet.window_s - ours)


def _heap_before(jvm: Counters, go_ns: int) -> float | None:
    """The bytes that a JVM's heap had taken when the load began, by the last reading until then; if it was not read
    before, by the first reading, unless that came late. None if not known."""
    levels = jvm.levels("heap_committed_bytes_now", 0, go_ns)
    if levels is not None:
        return float(levels[-1])
    levels = jvm.levels("heap_committed_bytes_now", go_ns, go_ns + FIRST_READ_NS)
    return None if levels is None else float(levels[0])


def jvm_metrics(
    jvms: Sequence[Counters], start_ns: int, end_ns: int, go_ns: int | None = None
) -> Iterator[tuple[str, float]]:
    """Yields heap, collections and threads as the JVMs publish them, added up, but for shares of the window: those are
    of the JVM with the largest, since their sum would be of no window. A JVM that lacks a figure is left out. `go_ns`:
    the start of the load."""
    if go_ns is not None:
        before = [heap for jvm in jvms if (heap := _heap_before(jvm, go_ns)) is not None]
        if before:
            yield "jvm_heap_committed_bytes_before", sum(before)
    for metric, field, summary in (
        ("jvm_heap_used_bytes_max", "heap_used_bytes_now", np.max),
        ("jvm_heap_used_bytes_mean", "heap_used_bytes_now", np.mean),
        ("jvm_heap_committed_bytes_max", "heap_committed_bytes_now", np.max),
        ("jvm_threads_live_max", "threads_live_now", np.max),
    ):
        levels = [values for jvm in jvms if (values := jvm.levels(field, start_ns, end_ns)) is not None]
        if levels:
            yield metric, sum(float(summary(values)) for values in levels)
    for metric, field, unit_ns, over_all in (
        ("jvm_gc_share", "gc_ns", 1.0, max),
        ("jvm_gc_per_s", "gc_count", SECOND_NS, sum),
        ("jvm_compile_share", "compile_ns", 1.0, sum),
        ("jvm_safepoint_share", "safepoint_ns", 1.0, max),
        ("jvm_threads_started_per_s", "threads_started", SECOND_NS, sum),
    ):
        grown = [growth for jvm in jvms if (growth := jvm.growth(field, start_ns, end_ns)) is not None]
        if grown:
            yield metric, over_all(grown) * unit_ns / (end_ns - start_ns)


PROBE = Source("probe", probe_metrics, _problems)
POOLS = Source("pools", pool_metrics, _pool_problems)
JVMS = Source(
    "jvm", lambda e: jvm_metrics(() if e.probe is None else e.probe.jvms, *e.window, e.record.phases.get("go"))
)
