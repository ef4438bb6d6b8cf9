"""One trial's files in, one `TrialResult` out: every metric of `model/metrics.py` that the files can back, and the
verdict of the honesty gate. A metric that could not be measured is absent, never 0.

All figures are of the measured window. Not here: comparing trials (`compare.py`), series for plots (`series.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from powerband.analyze.trial.acknowledgements import acknowledged_metrics, acknowledged_problems
from powerband.analyze.trial.bottleneck.rules import COUNTED_RULES, RULES, bottleneck_of
from powerband.analyze.trial.bottleneck.scene import Scene, WatchedThreads, scene_of
from powerband.analyze.trial.burst import burst_metrics
from powerband.analyze.trial.error_kinds import error_kinds, memory_problem
from powerband.analyze.trial.heap_growth import heap_growth, snapshot_metrics, snapshot_problems
from powerband.analyze.trial.honesty import Evidence, present_by_times, problems_of
from powerband.analyze.trial.invariants import invariant_problems
from powerband.analyze.trial.jvm_figures import jvm_metrics
from powerband.analyze.trial.laws import held_ns
from powerband.analyze.trial.link_figures import link_metrics, link_problems
from powerband.analyze.trial.own_metrics import final_metrics, own_metrics
from powerband.analyze.trial.pools import WatchedPool, watched_pools
from powerband.analyze.trial.rate_bars import bar_metrics
from powerband.analyze.trial.rate_counter import rate_counter_metrics
from powerband.analyze.trial.steady import window_is_steady
from powerband.analyze.trial.visits import visitor_metrics, visitor_problems
from powerband.base.logs import end_of
from powerband.loads.counted.measured import counted_metrics, lost_counts
from powerband.loads.jmeter.measured import jmeter_metrics, jmeter_problems, with_jmeter
from powerband.loads.websocket.crowd import crowd_metrics, crowd_of, crowd_problems
from powerband.model.experiment import Experiment
from powerband.model.load import Load
from powerband.model.results import Problem, TrialResult
from powerband.readings.fleet import QUANTILES, SECOND_NS, MergedFleet, MergedTimes, merge_fleet
from powerband.readings.probe_samples import Counters, ProbeSamples, read_probe
from powerband.store import TrialDir, TrialRecord

LOG_BYTES_MAX = 4 * 2**20


def measure(directory: TrialDir, record: TrialRecord, experiment: Experiment) -> TrialResult:
    """Measures and judges one trial; never raises for what a subject or the machine did."""
    if record.status != "measured":
        return _result(record, (_failure(record),), {})
    fleet = merge_fleet(record.engines)
    if fleet is None:
        message = "nobody reported a measured window; see events.jsonl of the trial"
        return _result(record, (Problem("no_report", message),), {})
    load = experiment.load_for(record.spec.setting, record.spec.rate_per_s)
    response = fleet.times("response_time_ns")
    send_lag = fleet.times("send_lag_ns")
    probe = read_probe(directory.read_probe())
    if load.jmeter is not None:
        fleet = with_jmeter(fleet, _engine_cores(probe, fleet), _engine_cpus(probe, fleet, record))
    intervals = [event for event in directory.read_events() if event.get("type") == "interval"]
    cpus = None if probe is None else _subject_cpus(probe, fleet, record)
    pools = () if probe is None else watched_pools(probe.threads, fleet.start_ns, fleet.end_ns)
    crowd = crowd_of(record.engines, intervals, fleet)
    self_driven = experiment.is_self_driven
    growth = heap_growth(directory.read_snapshots())
    metrics = {
        **(counted_metrics(fleet) if self_driven else _load_metrics(fleet, load, response, send_lag)),
        **({} if crowd is None else dict(crowd_metrics(crowd, load, fleet.total))),
        **({} if self_driven else _interval_metrics(intervals, fleet)),
        **({} if load.jmeter is None else jmeter_metrics(fleet)),
        **({} if probe is None else _probe_metrics(probe, fleet, record)),
        **dict(_pool_metrics(pools, cpus)),
        **({} if probe is None else dict(jvm_metrics(probe.jvms, fleet.start_ns, fleet.end_ns))),
        **snapshot_metrics(growth),
        **_own_metrics(experiment, probe, fleet),
        **final_metrics(experiment.measure.own_metrics(), record.last_words),
        **bar_metrics(intervals, fleet.start_ns, fleet.end_ns, experiment.measure.bars_ns),
        **_acknowledged(record, experiment),
        **_visits(record, fleet),
        **link_metrics(record.link),
        **(rate_counter_metrics(intervals) if experiment.measure.rate_counter else {}),
        **burst_metrics(intervals, record.phases.get("go", 0), experiment.measure.burst_ns),
        **_burst_overflows(probe, record, experiment.measure.burst_ns),
        **dict(_time_of_trial(record, load, probe)),
    }
    steady = window_is_steady(intervals, fleet.start_ns, fleet.end_ns)
    evidence = Evidence(
        fleet=fleet,
        load=load,
        metrics=metrics,
        response=response,
        send_lag=send_lag,
        host_cpus=None if probe is None else _host_cpus(probe, fleet),
        foreign_cpu_max=experiment.measure.foreign_cpu_max,
        steal_max=experiment.measure.steal_max,
        pinned=_pinned(record),
        steady=steady,
        self_driven=self_driven,
    )
    problems = (*invariant_problems(experiment.measure.invariants, metrics), *problems_of(evidence))
    if load.jmeter is not None:
        found = (*problems, *jmeter_problems(fleet, response, metrics, record.jmeter))
        problems = tuple(sorted(found, key=lambda problem: not problem.fatal))
    if crowd is not None:
        found = (*problems, *crowd_problems(crowd, load, fleet.total))
        problems = tuple(sorted(found, key=lambda problem: not problem.fatal))
    if probe is None:
        message = "the probe took no sample: CPU, memory and threads of this trial are unknown"
        problems = (*problems, Problem("no_probe", message, fatal=False))
    else:
        found = (*problems, *lost_counts(experiment.subject.counts, probe, fleet))
        problems = tuple(sorted(found, key=lambda problem: not problem.fatal))
        if experiment.measure.metrics or self_driven:
            problems = (*problems, *_page_problems(probe, fleet))
    if experiment.measure.acknowledged is not None:
        expect = experiment.measure.acknowledged.expect
        problems = (*problems, *acknowledged_problems(record.acknowledged, expect))
    if experiment.measure.visitor:
        problems = (*problems, *visitor_problems(record.visits, metrics, record.no_visitor))
    problems = (*problems, *snapshot_problems(record.snapshots), *link_problems(record.link))
    log = end_of(directory.log, LOG_BYTES_MAX)
    problems = (*problems, *memory_problem(log))
    scene = scene_of(evidence, problems, probe, WatchedThreads(pools, cpus), intervals)
    named = bottleneck_of(replace(scene, noun=experiment.noun), COUNTED_RULES if self_driven else RULES)
    # Threads of a subject without a load hold no requests.
    rate_per_s = 0.0 if self_driven else fleet.achieved_per_s
    uses = tuple(replace(pool.use, held_ns=held_ns(pool.use, rate_per_s)) for pool in pools)
    errors = error_kinds(fleet, _overflows(probe, record, record.phases.get("end")), log, crowd)
    result = _result(record, problems, metrics)
    return replace(result, steady=steady, pools=uses, bottleneck=named, errors=errors, heap_growth=growth)


def scene_between(
    fleet: MergedFleet,
    load: Load,
    known: Mapping[str, float],
    response: MergedTimes,
    record: TrialRecord,
    *,
    probe: ProbeSamples,
    intervals: Sequence[Mapping[str, Any]],
    problems: Sequence[Problem],
    self_driven: bool,
) -> Scene:
    """What the rules for bottlenecks look at, of any stretch of a trial. `fleet`: with the edges and rates of that
    stretch; `known`: its metrics that neither the probe nor what engines sampled tells."""
    cpus = _subject_cpus(probe, fleet, record)
    pools = watched_pools(probe.threads, fleet.start_ns, fleet.end_ns)
    metrics = {
        **known,
        **({} if self_driven else _interval_metrics(intervals, fleet)),
        **_probe_metrics(probe, fleet, record),
        **dict(_pool_metrics(pools, cpus)),
    }
    evidence = Evidence(
        fleet=fleet,
        load=load,
        metrics=metrics,
        response=response,
        send_lag=MergedTimes(()),
        host_cpus=None,
        foreign_cpu_max=1.0,
        steal_max=1.0,
        pinned=_pinned(record),
        steady=None,
        self_driven=self_driven,
    )
    return scene_of(evidence, problems, probe, WatchedThreads(pools, cpus), intervals)


def quantile_table(times: MergedTimes) -> tuple[tuple[float, float], ...]:
    """(q, ns) at q = 0, then ten steps for each halving of what remains, down to one value in `count`; without those of
    0, which JMeter tells below its resolution."""
    rows = [(0.0, times.quantile(0.0))]
    rest = 1.0
    while rest * times.count >= 1:
        rows += [(q, times.quantile(q)) for step in range(1, 11) if (q := 1 - rest * (1 - step / 20)) < 1]
        rest /= 2
    return tuple(row for row in (*rows, (1.0, times.maximum)) if row[1] > 0)


def _result(record: TrialRecord, problems: tuple[Problem, ...], metrics: Mapping[str, float]) -> TrialResult:
    go, begun = record.phases.get("go"), record.phases.get("measure")
    return TrialResult(
        number=record.spec.number,
        block=record.spec.block,
        attempt=record.spec.attempt,
        setting=record.spec.setting,
        status=record.status,
        problems=problems,
        metrics=metrics,
        warmup_s=None if go is None or begun is None else (begun - go) / SECOND_NS,
        warmup_ended_by=record.warmup_ended_by,
        stage=record.spec.stage,
        rate_per_s=record.spec.rate_per_s,
        took_s=(max(record.phases.values()) - min(record.phases.values())) / SECOND_NS if record.phases else None,
    )


def _failure(record: TrialRecord) -> Problem:
    if record.failure is not None:
        return Problem(record.failure.code, record.failure.message)
    return Problem(record.status, f"the trial was {record.status} before it could be measured")


def _load_metrics(fleet: MergedFleet, load: Load, response: MergedTimes, send_lag: MergedTimes) -> dict[str, float]:
    metrics = {
        "goodput_per_s": fleet.goodput_per_s,
        "achieved_rate_per_s": fleet.achieved_per_s,
        "offered_rate_per_s": fleet.offered_per_s,
        "engine_cpu_cores": fleet.cpu_cores,
        "engine_cpu_share_max": fleet.cpu_share_max,
    }
    if fleet.cohort.scheduled:
        metrics["error_rate"] = 1 - fleet.cohort.ok / fleet.cohort.scheduled
        metrics["dropped_rate"] = fleet.cohort.dropped / fleet.cohort.scheduled
    if fleet.total.scheduled:
        metrics["run_error_rate"] = 1 - fleet.total.ok / fleet.total.scheduled
    if fleet.achieved_per_s > 0:
        metrics["engine_cpu_ns_per_request"] = fleet.cpu_cores * SECOND_NS / fleet.achieved_per_s
    metrics |= dict(_time_metrics("response_time_ns", response))
    metrics |= dict(_time_metrics("service_time_ns", fleet.times("service_time_ns")))
    if send_lag.count:
        metrics["send_lag_ns_p99"] = send_lag.quantile(0.99)
    connect = fleet.connect_times()
    if connect.count:
        metrics["connect_time_ns_p99"] = connect.quantile(0.99)
    if load.users is not None and fleet.users_mean > 0:
        metrics["users_mean"] = fleet.users_mean
        # Users who near the end of their requests have fewer in flight than the pipeline allows; those with a pace send
        # whether or not they were answered.
        if load.pace is None and (load.pipeline == 1 or load.requests_per_user is None):
            slots = fleet.users_mean * load.pipeline
            metrics["littles_law_deviation"] = abs(slots - present_by_times(fleet)) / slots
    return metrics


def _time_metrics(name: str, times: MergedTimes) -> Iterator[tuple[str, float]]:
    """A time of 0 lies below the resolution of what told it (JMeter): not measured."""
    if times.count:
        found = {
            "mean": times.moment(1),
            "max": times.maximum,
            **{key: times.quantile(q) for key, q in QUANTILES.items()},
        }
        yield from ((f"{name}_{key}", value) for key, value in found.items() if value > 0)


def _interval_metrics(intervals: Iterable[Mapping[str, Any]], fleet: MergedFleet) -> dict[str, float]:
    """`in_flight_mean`: for each engine the mean of its samples in the window, added over the fleet."""
    levels: dict[int, list[int]] = {}
    for event in intervals:
        if fleet.start_ns < event["end_ns"] <= fleet.end_ns:
            levels.setdefault(event.get("engine", 0), []).append(event["in_flight_now"])
    if not levels:
        return {}
    return {"in_flight_mean": sum(sum(values) / len(values) for values in levels.values())}


def _probe_metrics(probe: ProbeSamples, fleet: MergedFleet, record: TrialRecord) -> dict[str, float]:
    metrics: dict[str, float] = {}
    if (subject := probe.trees.get("subject")) is not None:
        metrics |= _subject_metrics(subject, fleet)
        cpus = _subject_cpus(probe, fleet, record)
        if cpus and (cores := metrics.get("subject_cpu_cores")) is not None:
            metrics["subject_cpu_share"] = cores / cpus
    services = [*probe.matching("postgresql"), *probe.matching("link")]
    if used := [cores for tree in services if (cores := tree_cores(tree, fleet.start_ns, fleet.end_ns)) is not None]:
        metrics["services_cpu_cores"] = sum(used)
    metrics |= _engine_wait_metrics(probe, fleet)
    metrics |= _host_metrics(probe, fleet)
    return metrics


def _pool_metrics(pools: Sequence[WatchedPool], cpus: float | None) -> Iterator[tuple[str, float]]:
    """Nothing of garbage collection where no pool is known to collect."""
    collectors = [pool.use.on_cpu for pool in pools if pool.collects]
    if collectors and cpus:
        yield "gc_cpu_share", sum(collectors) / cpus
    if busiest := max((pool.busiest for pool in pools), default=0.0):
        yield "thread_cpu_share_max", busiest


def _engine_wait_metrics(probe: ProbeSamples, fleet: MergedFleet) -> dict[str, float]:
    """How long the engine's threads were runnable without a CPU; nothing unless every watched engine tells."""

    def grown(name: str) -> float | None:
        parts = [tree.growth(name, fleet.start_ns, fleet.end_ns) for tree in probe.matching("engine")]
        known = [part for part in parts if part is not None]
        return sum(known) if known and len(known) == len(parts) else None

    waited, slept, preempted = (grown(name) for name in ("run_wait_ns", "voluntary_switches", "involuntary_switches"))
    if waited is None or slept is None or preempted is None:
        return {}
    metrics = {"engine_run_wait_cores": waited / SECOND_NS / fleet.window_s}
    if slept + preempted > 0:
        metrics["engine_run_wait_ns_mean"] = waited / (slept + preempted)
    return metrics


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


def _host_metrics(probe: ProbeSamples, fleet: MergedFleet) -> dict[str, float]:
    """Foreign CPU is what ran on the trial's CPUs less every watched tree and the probe itself; kernel threads that
    work for the trial count as foreign, since nothing tells them apart."""
    start, end, window_s = fleet.start_ns, fleet.end_ns, fleet.window_s
    metrics: dict[str, float] = {}
    overflows = probe.host.growth("listen_overflows", start, end)
    if overflows is not None:
        metrics["accept_overflows"] = overflows
    for kind in ("cpu", "memory", "io"):
        if (stalled := probe.host.growth(f"psi_{kind}_some_ns", start, end)) is not None:
            metrics[f"psi_{kind}_share"] = min(1.0, stalled / (end - start))
    busy, idle = probe.host.growth("cpu_busy_ns", start, end), probe.host.growth("cpu_idle_ns", start, end)
    steal = probe.host.growth("cpu_steal_ns", start, end)
    if busy is None or idle is None or steal is None or busy + idle + steal <= 0:
        return metrics
    metrics["host_steal_share"] = steal / (busy + idle + steal)
    metrics["host_busy_share"] = busy / (busy + idle + steal)
    engines = sum(tree_cores(tree, start, end) or 0.0 for tree in probe.matching("engine"))
    others = sum(
        tree_cores(tree, start, end) or 0.0 for name, tree in probe.trees.items() if name.split("-")[0] != "engine"
    )
    # The engines' own account covers them where the probe did not watch them.
    ours = others + max(engines, fleet.cpu_cores) + probe.own_cores
    metrics["host_foreign_cores"] = max(0.0, busy / SECOND_NS / window_s - ours)
    return metrics


def tree_cores(tree: Counters, start_ns: int, end_ns: int) -> float | None:
    """CPU of a tree over a stretch, in cores."""
    user, system = tree.growth("cpu_user_ns", start_ns, end_ns), tree.growth("cpu_system_ns", start_ns, end_ns)
    return None if user is None or system is None else (user + system) / (end_ns - start_ns)


def _host_cpus(probe: ProbeSamples, fleet: MergedFleet) -> float | None:
    """CPUs of the host samples: all CPU time that passed, over the time that passed."""
    parts = [
        probe.host.growth(name, fleet.start_ns, fleet.end_ns) for name in ("cpu_busy_ns", "cpu_idle_ns", "cpu_steal_ns")
    ]
    known = [part for part in parts if part is not None]
    return None if len(known) < len(parts) else round(sum(known) / (fleet.end_ns - fleet.start_ns), 1)


def _subject_cpus(probe: ProbeSamples, fleet: MergedFleet, record: TrialRecord) -> float | None:
    """Where none are named the subject may use all of them; under a quota no more than that allows."""
    cpus = len(record.cpus.get("subject", ())) or _host_cpus(probe, fleet)
    return min(cpus, record.cpu_quota) if cpus and record.cpu_quota else cpus


def _engine_cores(probe: ProbeSamples | None, fleet: MergedFleet) -> float | None:
    """Of all engines that were watched; None where none was."""
    trees = () if probe is None else probe.matching("engine")
    cores = [used for tree in trees if (used := tree_cores(tree, fleet.start_ns, fleet.end_ns)) is not None]
    return sum(cores) if cores else None


def _engine_cpus(probe: ProbeSamples | None, fleet: MergedFleet, record: TrialRecord) -> float | None:
    """Where none are named the load may use all of them."""
    return len(record.cpus.get("engine", ())) or (None if probe is None else _host_cpus(probe, fleet))


def _pinned(record: TrialRecord) -> bool:
    subject, engine = (set(record.cpus.get(role, ())) for role in ("subject", "engine"))
    return bool(subject and engine) and not subject & engine


def _own_metrics(experiment: Experiment, probe: ProbeSamples | None, fleet: MergedFleet) -> dict[str, float]:
    if probe is None or probe.scrapes is None:
        return {}
    return own_metrics(experiment.measure.own_metrics(), probe.scrapes, fleet.start_ns, fleet.end_ns)


def _acknowledged(record: TrialRecord, experiment: Experiment) -> dict[str, float]:
    wanted = experiment.measure.acknowledged
    return {} if wanted is None else acknowledged_metrics(record.acknowledged, wanted.expect)


def _visits(record: TrialRecord, fleet: MergedFleet) -> dict[str, float]:
    """The browser tells wall clock, everything else is monotonic."""
    ahead_ns = record.wall_ns - record.monotonic_ns
    return visitor_metrics(record.visits, fleet.start_ns + ahead_ns, fleet.end_ns + ahead_ns)


def _overflows(probe: ProbeSamples | None, record: TrialRecord, end_ns: int | None) -> float | None:
    """Of accept queues, from the start of the load; None where nobody counted."""
    go_ns = record.phases.get("go")
    if probe is None or go_ns is None or end_ns is None:
        return None
    return probe.host.growth("listen_overflows", go_ns, end_ns, covered_least=0.0)


def _burst_overflows(probe: ProbeSamples | None, record: TrialRecord, burst_ns: int) -> dict[str, float]:
    found = _overflows(probe, record, record.phases.get("go", 0) + burst_ns) if burst_ns else None
    return {} if found is None else {"burst_accept_overflows": found}


def _page_problems(probe: ProbeSamples, fleet: MergedFleet) -> Iterator[Problem]:
    """What was not read off the metrics page within the window, and the usual reason: the subject's end may have cut
    the last reading."""
    within = (event for event in probe.scrapes_failed if fleet.start_ns <= event["at_ns"] <= fleet.end_ns)
    reasons = Counter(event["reason"] for event in within)
    if reasons:
        times = "1 reading" if reasons.total() == 1 else f"{reasons.total()} readings"
        ((reason, _),) = reasons.most_common(1)
        message = f"{times} of the subject's metrics page failed within the window: {reason}"
        yield Problem("metrics_page", message, fatal=False)


def _time_of_trial(record: TrialRecord, load: Load, probe: ProbeSamples | None) -> Iterator[tuple[str, float]]:
    """What took how long, and what the bench itself used meanwhile."""
    phases = record.phases
    if "launched" in phases and "ready" in phases:
        yield "ready_s", (phases["ready"] - phases["launched"]) / SECOND_NS
    if "go" not in phases or "end" not in phases:
        return
    took_ns = max(1, phases["end"] - phases["go"])
    if load.requests_per_user is not None:
        yield "finish_s", took_ns / SECOND_NS
    if record.control_cpu_ns is not None and probe is not None:
        yield "bench_cpu_cores", record.control_cpu_ns / took_ns + probe.own_cores
