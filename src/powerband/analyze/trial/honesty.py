"""Judges whether a trial's figures may be believed: by the machine, the window and the experiment's invariants.

A fatal problem makes the trial invalid: it is repeated within the budget and never averaged in. Each code, its
threshold and the reason for it are documented in docs/reference/validity.md. Not here: whether the load may be believed
(`loads/measured.py`), the figures (`readings/`, `processes.py`), what follows from a problem (`search/blocks.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from powerband.analyze.trial.disturbance import (
    EXCUSES,
    QUIET_SHARE,
    QUIETER,
    TELLS_NOTHING,
    disturbance_metrics,
    foreign_allowed,
    held_up,
    judged_by_bound,
    of_own_service,
    steal_allowed,
    stolen_most,
    suffers,
)
from powerband.base.logs import out_of_memory, remedy_beside_the_heap
from powerband.base.units import format_bytes, format_duration, format_value
from powerband.loads import kind_of
from powerband.loads.measured import is_lower_bound
from powerband.model.constraint import Constraint
from powerband.model.experiment import FOREIGN_CPU_MAX, STEAL_MAX
from powerband.model.metrics import METRICS
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source

LOG_BYTES_PER_REQUEST_NOTE = 100  # a line of an access log
LOG_BYTES_NOTE = 1 << 20  # less, of few requests, is what it prints when it starts
# Shares of the window: with enough memory nothing waits for it, while a subject with a database on disk waits for that.
PRESSURE_NOTES = {"memory": 0.01, "io": 0.10}
RUN_LATER = f"Run {QUIETER}, or raise measure.steal_max and accept the disturbance"
RAISE_LIMIT = "raise host.memory_limit, or lower what the server holds"
RAISE_OTHERS = "raise its memory limit (docker's --memory, systemd's MemoryMax=), or lower what the server holds"

WORK_ENDED = "work_ended"
UNCHECKED = "invariant_unknown"
# Problems that the subject under this load caused: repeating such a trial would only repeat them.
SUBJECT_CODES = frozenset({"no_request_ended", "no_request_ok", "invariant", "memory_kills"})
# These, and those that come again though they are no fault of the subject: a window that is shorter than a response, or
# longer than the work.
REPEATED_CODES = SUBJECT_CODES | {"short_window", WORK_ENDED}
# Problems that the machine caused.
MACHINE_CODES = frozenset({"host_steal", "host_foreign"})
DISTURBED_CODES = MACHINE_CODES | {"host_steal_some", "host_foreign_some"}  # however little


def _machine(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if judged_by_bound(evidence.experiment):
        yield from _held_up(evidence, metrics)
        return
    allowed = steal_allowed(evidence.experiment)
    steal = metrics.get("host_steal_share", 0.0)
    if steal > allowed:
        yield Problem(
            "host_steal",
            f"{_taken(metrics)} ({100 * allowed:.0f} % allowed): other machines used it, or this one is burstable and "
            f"out of CPU credits, so this trial does not count. {RUN_LATER}",
        )
    elif steal > STEAL_MAX:
        yield _some_steal(metrics)
    foreign, cpus = metrics.get("host_foreign_cores"), evidence.host_cpus
    if foreign is None or not cpus:
        return
    share, allowed = foreign / cpus, foreign_allowed(evidence.experiment)
    if share > allowed:
        yield Problem(
            "host_foreign",
            f"{_used(foreign, cpus)}, more than the {100 * allowed:.0f} % allowed: this trial does not count. Close "
            f"them, or raise measure.foreign_cpu_max and accept the disturbance{_own(evidence)}",
        )
    elif share > QUIET_SHARE:
        yield _some_foreign(evidence, foreign, cpus)


def _held_up(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Judges by the share of the window that others can have cost: a trial that may have lost more than half of it is
    invalid, unless its quiet parts stand for it, or other programs used hardly any of many CPUs: then it only counts
    for little."""
    share, cpus = metrics.get("held_up_share_max", 0.0), evidence.host_cpus or 1.0
    foreign, stolen = metrics.get("host_foreign_cores", 0.0), metrics.get("host_steal_share", 0.0)
    beyond = share > TELLS_NOTHING and "quiet_s" not in metrics
    by_steal = (stolen_most(evidence) or 0.0) > share / 2
    spoilt = beyond and (by_steal or foreign > FOREIGN_CPU_MAX * cpus)
    if spoilt:
        said = _taken(metrics) if by_steal else _used(foreign, cpus)
        quieter = RUN_LATER if by_steal else f"Close them, or run when the machine is quieter{_own(evidence)}"
        yield Problem(
            "host_steal" if by_steal else "host_foreign",
            f"{said}: that may have held this trial up for {100 * share:.0f} % of its time, so it does not count. "
            f"{quieter}",
        )
    if stolen > STEAL_MAX and not (spoilt and by_steal):
        yield _some_steal(metrics)
    if not (spoilt and not by_steal) and (foreign > QUIET_SHARE * cpus or (beyond and not spoilt)):
        yield _some_foreign(evidence, foreign, cpus)


def _own(evidence: Evidence) -> str:
    return of_own_service(evidence.record.neighbours, evidence.experiment)


def _taken(metrics: Mapping[str, float]) -> str:
    return f"the hypervisor took {100 * metrics.get('host_steal_share', 0.0):.1f} % of the CPU time"


def _used(foreign: float, cpus: float) -> str:
    return f"other programs used {foreign:.2f} of the trial's {cpus:.0f} CPUs ({100 * foreign / cpus:.0f} %)"


def _some_steal(metrics: Mapping[str, float]) -> Problem:
    said = f"{_taken(metrics)}: run {QUIETER}, or expect wider intervals"
    return Problem("host_steal_some", said, fatal=False)


def _some_foreign(evidence: Evidence, foreign: float, cpus: float) -> Problem:
    said = f"{_used(foreign, cpus)}: stop them, or expect wider intervals{_own(evidence)}"
    return Problem("host_foreign_some", said, fatal=False)


def _pressure(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Yields notes on waits for memory and disks. They invalidate nothing: the kernel's figures are of the whole host,
    and the subject may be the one that waits, as for pages that its memory limit takes from it."""
    share = metrics.get("psi_memory_share", 0.0)
    if share > PRESSURE_NOTES["memory"]:
        ended, raised = "end other programs, or give the server less", _raise_its_limit(evidence)
        cure = f"if the server fills its limit, {raised}; if not, {ended}" if raised else ended
        yield Problem(
            "memory_pressure",
            f"tasks on this machine waited for memory {100 * share:.0f} % of the window, which slows down whatever "
            f"touches a page: {cure}",
            fatal=False,
        )
    share = metrics.get("psi_io_share", 0.0)
    if share > PRESSURE_NOTES["io"]:
        yield Problem(
            "io_pressure",
            f"tasks on this machine waited for a disk {100 * share:.0f} % of the window: if the server uses none, "
            "other programs do; end them",
            fatal=False,
        )


def _raise_its_limit(evidence: Evidence) -> str:
    """Advises to raise the server's memory limit, whoever set it; empty if there is none."""
    if evidence.experiment.host_for(evidence.record.spec.setting).memory_limit_bytes is not None:
        return RAISE_LIMIT
    tree = evidence.subject_tree
    left = None if tree is None else tree.levels("memory_left_bytes_now", *evidence.window)
    return "" if left is None else RAISE_OTHERS


def _steadiness(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if evidence.steady is False and "quiet_s" not in metrics:  # else other programs came and went
        yield Problem(
            "not_steady",
            f"{kind_of(evidence.experiment).steady_figures} had not reached a steady state in the measured window: "
            "lengthen measure.warmup_max or load.duration",
            fatal=False,
        )


def _invariants(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Yields a problem for each of `measure.invariants` that does not hold in the trial, or is not known to."""
    for wanted in evidence.experiment.measure.invariants:
        found, bound = metrics.get(wanted.metric), is_lower_bound(wanted.metric, metrics)
        if found is None:
            yield Problem(
                UNCHECKED,  # no fault of the server: its page may have been late, or the trial too short
                f"{wanted.text} cannot be checked: this trial has no {wanted.metric}; see its definition in "
                "measure.metrics, and subject.log",
            )
        elif not wanted.holds(math.inf if bound else found):
            seen = f"{'at least ' if bound else ''}{format_value(found, METRICS[wanted.metric].unit)}"
            yield from _broken(evidence, metrics, wanted, f"{wanted.metric} was {seen}")


def _broken(evidence: Evidence, metrics: Mapping[str, float], wanted: Constraint, seen: str) -> Iterator[Problem]:
    """Yields the problem of an invariant that does not hold. A rate or time that others may have spoilt says nothing of
    the server, and where the trial does not count because of them, they alone are told of."""
    if suffers(wanted.metric):
        if any(problem.fatal for problem in _machine(evidence, metrics)):
            return
        share = metrics["held_up_share_max"] if "quiet_s" in metrics else held_up(evidence, metrics)
        if share > EXCUSES:
            yield Problem(
                UNCHECKED,
                f"{wanted.text} cannot be checked: {seen}, and other programs or the hypervisor may have held this "
                f"trial up for {100 * share:.0f} % of its time; run when the machine is quieter",
            )
            return
    yield Problem(
        "invariant",
        f"{wanted.text} does not hold: {seen}; the server is not right at this setting, so its figures do not count",
    )


def _killed(evidence: Evidence) -> Iterator[Problem]:
    """Yields a problem if the kernel killed processes of the server for its memory: its figures are of what is left."""
    kills = evidence.record.memory_kills
    limit = evidence.experiment.host_for(evidence.record.spec.setting).memory_limit_bytes
    if kills and limit:
        yield Problem(
            "memory_kills",
            f"the kernel killed {kills} of the server's processes, which wanted more than its memory limit of "
            f"{format_bytes(limit)}: {RAISE_LIMIT}",
        )
    elif kills:
        those = "a process" if kills == 1 else f"{kills} processes"
        said = f"the kernel killed {those} in the server's cgroup for want of memory: {RAISE_OTHERS}"
        yield Problem("memory_kills", said)


def memory_problem(log: str) -> Iterator[Problem]:
    """Yields a note if a JVM ran out of memory and went on: some of its threads are dead, and it serves less than
    before."""
    if said := out_of_memory(log):
        remedy = remedy_beside_the_heap(said) or "raise its heap, or lower what it holds"
        yield Problem("out_of_memory", f"the server ran out of memory and went on ({said}): {remedy}", fatal=False)


def _logged_much(evidence: Evidence) -> Iterator[Problem]:
    """Yields a note if the subject printed much: that costs CPU, which is part of what was measured."""
    subject = evidence.record.subject
    printed, dropped = (subject.get(f"log_{name}bytes") or 0 for name in ("", "dropped_"))
    of_load = sum(sum(summary["total"]["outcomes"].values()) for summary in evidence.record.engines)
    requests = of_load + evidence.looks.requests
    if printed < max(LOG_BYTES_NOTE, LOG_BYTES_PER_REQUEST_NOTE * requests) or not requests:
        return
    kept = f" (subject.log lacks {format_bytes(dropped)} of it)" if dropped else ""
    yield Problem(
        "much_logged",
        f"the server printed {format_bytes(printed)}{kept}, {printed / requests:,.0f} bytes per request: these figures "
        "include the cost of that; set its log level as it is in production",
        fatal=False,
    )


def _killed_at_stop(evidence: Evidence) -> Iterator[Problem]:
    """Yields a note if the subject outlived its grace: each trial takes so much longer, and what a server does at its
    end, such as saving, was cut off."""
    stop, record = evidence.experiment.subject.stop, evidence.record
    took_ns = record.phases.get("stopped", 0) - record.phases.get("end", 0)
    if record.subject.get("killed") and took_ns >= stop.grace_ns:
        yield Problem(
            "killed_at_stop",
            f"the server still ran {format_duration(stop.grace_ns)} after SIG{stop.signal}, and was killed: each trial "
            "takes so much longer; send what it ends by (--stop-signal), or change how long it may take (--stop-grace)",
            fatal=False,
        )


def _log_problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    yield from memory_problem(evidence.log)
    yield from _logged_much(evidence)
    yield from _killed_at_stop(evidence)


def _machine_problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    for check in (_machine, _pressure, _steadiness):
        yield from check(evidence, metrics)


INVARIANTS = Source("invariants", problems=lambda e, m: (*_invariants(e, m), *_killed(e)))
MACHINE = Source("machine", disturbance_metrics, _machine_problems)
LOG = Source("log", problems=_log_problems)
