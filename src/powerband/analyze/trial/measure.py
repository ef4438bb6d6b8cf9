"""Turns one trial's files into a `TrialResult`: every metric of `model/metrics.py` that the files can back, and whether
the trial is valid.

Sources make the metrics and say what is wrong with them; here they are asked in turn. All figures are of the measured
window, but for the rates of a disturbed trial (`disturbance.py`) and of users who never pause (`edgeless_goodput`). Not
here: comparing trials (`analyze/settings/compare.py`), series for plots (`series.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from powerband.analyze.trial.bottleneck.rules import bottleneck_of, rules_of
from powerband.analyze.trial.bottleneck.scene import scene_of
from powerband.analyze.trial.disturbance import RATES, compared_rates, held_up
from powerband.analyze.trial.dotnet_metrics import DOTNET
from powerband.analyze.trial.growing import GROWING
from powerband.analyze.trial.honesty import INVARIANTS, LOG, MACHINE
from powerband.analyze.trial.instruments import ACKNOWLEDGED, HEAP, LINK, VISITS, heap_growth
from powerband.analyze.trial.laws import held_ns, in_flight
from powerband.analyze.trial.load_shape import BARS, BURST, RATE_COUNTER
from powerband.analyze.trial.own_metrics import OWN
from powerband.analyze.trial.processes import JVMS, POOLS, PROBE
from powerband.analyze.trial.silences import STILLNESS
from powerband.analyze.trial.steady import SHIFT_MIN, window_is_steady, window_rises
from powerband.analyze.trial.tried_slots import SLOTS
from powerband.base.logs import end_of
from powerband.loads import kind_of
from powerband.loads.kind import LoadKind
from powerband.loads.measured import edgeless_goodput
from powerband.model.clocks import GeneratorNode
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Experiment
from powerband.model.results import PoolUse, Problem, TrialResult
from powerband.model.runtime import RuntimeView
from powerband.model.warmup import COMPILES
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import SECOND_NS, MergedFleet, MergedTimes, merge_fleet
from powerband.readings.pools import WatchedPool
from powerband.readings.probe_samples import read_probe
from powerband.store import TrialDir, TrialRecord

LOG_BYTES_MAX = 4 * 2**20  # the end of a subject's log; the rest of a long one says the same


def _times_of_trial(evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yields the time that the start and the load took, and the CPU of the bench itself meanwhile."""
    record, phases = evidence.record, evidence.record.phases
    if "launched" in phases and "ready" in phases:
        yield "ready_s", (phases["ready"] - phases["launched"]) / SECOND_NS
    if "go" not in phases or "end" not in phases:
        return
    took_ns = max(1, phases["end"] - phases["go"])
    if evidence.load.requests_per_user is not None and _all_finished(evidence):
        # Not the end of the engines, which still close connections, and hear of the last answer a little later.
        last_ns = max(summary["measure_end_ns"] for summary in record.engines)
        yield "finish_s", max(1, last_ns - phases["go"]) / SECOND_NS
    if record.control_cpu_ns is not None and evidence.probe is not None:
        yield "bench_cpu_cores", record.control_cpu_ns / took_ns + evidence.probe.own_cores


def _all_finished(evidence: Evidence) -> bool:
    """True if every user sent all its requests: one who stays without a connection leaves before."""
    engines, load = evidence.record.engines, evidence.load
    due = (load.users or 0) * (load.requests_per_user or 0)
    ended = bool(engines) and all(summary["ended_by"] == "work" for summary in engines)
    return ended and evidence.fleet.total.sent >= due


def _unfinished(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Yields a note if users had requests left when the load ended, so that its length is none of theirs."""
    if evidence.load.requests_per_user is not None and not _all_finished(evidence):
        yield Problem(
            "users_unfinished",
            "not all users ended their requests, so this trial has no finish_s: lengthen load.duration, lower "
            "load.requests_per_user, or see which users the server refused or lost",
            fatal=False,
        )


TRIAL = Source("trial", _times_of_trial, _unfinished)


def sources_of(kind: LoadKind) -> tuple[Source, ...]:
    """Everything that makes a trial's metrics or finds a problem in it. Their order is that of analysis.json, in which
    fatal problems come before all others."""
    of_load = (INVARIANTS, kind.load, MACHINE, STILLNESS, kind.users)
    of_subject = (PROBE, GROWING, POOLS, JVMS, DOTNET, HEAP, OWN)
    return (*of_load, *of_subject, BARS, ACKNOWLEDGED, VISITS, LINK, RATE_COUNTER, BURST, SLOTS, TRIAL, LOG)


def measure(directory: TrialDir, record: TrialRecord, experiment: Experiment) -> TrialResult:
    """Measures and judges one trial; never raises for what a subject or the machine did."""
    experiment = experiment.as_in(record.spec)
    if record.status != "measured":
        return _result(record, (_failure(record),), {})
    fleet = merge_fleet(record.engines)
    if fleet is None:
        message = "no measured window was reported; see events.jsonl of the trial"
        return _result(record, (Problem("no_report", message),), {})
    kind = kind_of(experiment)
    evidence = kind.corrected(evidence_of(directory, record, experiment, fleet))
    sources = sources_of(kind)
    metrics: dict[str, float] = {}
    for source in sources:
        metrics.update(source.metrics(evidence))
    quiet = compared_rates(evidence, metrics)
    if not quiet and (rate := edgeless_goodput(fleet, evidence.load)) is not None:
        metrics |= dict.fromkeys(RATES, rate)  # all that ended was served
    of_trial = {**metrics, **quiet}
    found = [problem for source in sources for problem in source.problems(evidence, of_trial)]
    problems = tuple(sorted(found, key=lambda problem: not problem.fatal))
    # Threads that serve no requests hold none.
    rate_per_s = fleet.achieved_per_s if kind.sends_requests else 0.0
    return replace(
        _result(record, problems, of_trial, evidence),
        steady=None if quiet else evidence.steady,
        held_up=held_up(evidence, metrics),
        rising=(_rises_when_quiet(evidence) if quiet else evidence.rising) or _still_compiles(evidence, metrics),
        pools=tuple(_pool_use(pool, rate_per_s, in_flight(metrics)) for pool in evidence.pools),
        bottleneck=bottleneck_of(
            scene_of(evidence, metrics, problems), rules_of(kind, sees_inside=evidence.sees_inside)
        ),
        errors=kind.errors(evidence),
        heap_growth=evidence.heap_growth,
    )


def _pool_use(pool: WatchedPool, rate_per_s: float, present: float | None) -> PoolUse:
    """The pool as reports show it, with the time that a request holds one of its threads. `present`: the mean number of
    requests in the system, if it is known."""
    serves = not (pool.collects or pool.housekeeping or pool.rests)
    return replace(pool.use, held_ns=held_ns(pool.use, rate_per_s, present) if serves else None)


def quantile_table(times: MergedTimes) -> tuple[tuple[float, float], ...]:
    """Rows (q, ns): q = 0, then ten steps for each halving of the share that remains, down to one value in `count`,
    then q = 1. Times of 0, which lie below the resolution of JMeter's clock, are left out."""
    rows = [(0.0, times.quantile(0.0))]
    rest = 1.0
    while rest * times.count >= 1:
        rows += [(q, times.quantile(q)) for step in range(1, 11) if (q := 1 - rest * (1 - step / 20)) < 1]
        rest /= 2
    return tuple(row for row in (*rows, (1.0, times.maximum)) if row[1] > 0)


def evidence_of(directory: TrialDir, record: TrialRecord, experiment: Experiment, fleet: MergedFleet) -> Evidence:
    """Reads the trial's files into an `Evidence`, with what its window's intervals show: whether it was steady, and
    whether it still got faster."""
    probe = read_probe(directory.read_probe())
    evidence = Evidence.read(record, experiment, fleet, directory.read_events(), probe)
    steady = window_is_steady(evidence.intervals, *evidence.window)
    return replace(
        evidence,
        steady=steady,
        rising=steady is False and window_rises(evidence.intervals, *evidence.window),
        heap_growth=heap_growth(directory.read_snapshots()),
        log=end_of(directory.log, LOG_BYTES_MAX),
    )


def _rises_when_quiet(evidence: Evidence) -> bool:
    return evidence.quiet_time is not None and evidence.quiet_time.rise > SHIFT_MIN


def _still_compiles(evidence: Evidence, metrics: Mapping[str, float]) -> bool:
    """True if a runtime went on compiling in the window, so that its code is not what it will be: by what JVMs report,
    or by how long compiling threads ran or waited for a CPU, if that is more."""
    worked = sum(pool.use.on_cpu + pool.use.run_wait for pool in evidence.pools if pool.compiles)
    return max(worked, metrics.get("jvm_compile_share", 0.0)) >= COMPILES


def _result(
    record: TrialRecord,
    problems: tuple[Problem, ...],
    metrics: Mapping[str, float],
    evidence: Evidence | None = None,
) -> TrialResult:
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
        cpus=_cpu_use(record, metrics.get("cpu_quota_cores"), evidence),
        neighbours=record.neighbours,
        node=record.node,
        generators=tuple(GeneratorNode.from_json(each) for each in record.generators),
        runtimes=tuple(RuntimeView.from_json(view) for view in record.runtimes if view["runtime"]),
        rate_per_s=record.spec.rate_per_s,
        window_s=None if record.spec.window_ns is None else record.spec.window_ns / SECOND_NS,
        took_s=_took_s(record),
        repeated_s=record.repeated_s,
    )


def _took_s(record: TrialRecord) -> float | None:
    """The time of the trial, in s, from its first phase to its last; None if there is none. A server that runs already
    counts from the beginning of the trial: an earlier setting may have ended it, so that it was waited for."""
    if not record.phases:
        return None
    begun_ns = record.monotonic_ns if "applied" in record.phases else min(record.phases.values())
    return (max(record.phases.values()) - begun_ns) / SECOND_NS


def _cpu_use(record: TrialRecord, subject_quota: float | None, evidence: Evidence | None) -> CpuUse | None:
    machine, server, engine = (record.cpus.get(name, []) for name in ("machine", "subject", "engine"))
    if not machine:
        return None
    own, most = (None, None) if evidence is None else (evidence.own_affinity, evidence.cpus_allowed)
    own_process = evidence is None or evidence.experiment.subject.is_own_process
    whole = record.cpu_quota if own_process else None  # a container is not below powerband's own cgroup
    quotas = [quota for quota in (whole, subject_quota) if quota is not None]
    meet = own is not None or bool(set(server or machine) & set(engine or machine))
    given = len(server or machine)
    count = own or min(given, most or given)
    return CpuUse(min([float(count), *quotas]), len(machine), meet and not record.generators)


def _failure(record: TrialRecord) -> Problem:
    if record.failure is not None:
        return Problem(record.failure.code, record.failure.message)
    return Problem(record.status, f"the trial was {record.status} before it could be measured")
