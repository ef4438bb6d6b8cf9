"""The honesty gate: may this trial's figures be believed? Here: the machine, the window, the experiment's invariants.

A fatal problem makes the trial invalid: it is repeated within the budget and never averaged in. Each code, its
threshold and the reason for it are documented in docs/reference/validity.md. Not here: whether the load may be believed
(`loads/measured.py`), the figures (`readings/`, `processes.py`), what follows from a problem (`search/blocks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from powerband.base.logs import out_of_memory
from powerband.base.units import format_bytes, format_value
from powerband.loads import kind_of
from powerband.model.claim_expression import OPERATORS
from powerband.model.experiment import STEAL_MAX
from powerband.model.metrics import METRICS
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source

FOREIGN_SHARE_NOTE = 0.03  # of the trial's CPUs: as much as the default margin
LOG_BYTES_PER_REQUEST_NOTE = 100  # a line of an access log
LOG_BYTES_NOTE = 1 << 20  # less, of few requests, is what it prints when it starts
# Shares of the window: with memory enough it is 0, while a subject with a database on disk waits itself.
PRESSURE_NOTES = {"memory": 0.01, "io": 0.10}

# Problems that the subject under this load caused: repeating such a trial would only repeat them.
SUBJECT_CODES = frozenset({"no_request_ended", "no_request_ok", "invariant"})
# Problems that the machine caused.
MACHINE_CODES = frozenset({"host_steal", "host_foreign"})


def _machine(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    measure = evidence.experiment.measure
    steal = metrics.get("host_steal_share", 0.0)
    taken = f"the hypervisor took {steal:.1%} of the CPU time"
    if steal > measure.steal_max:
        yield Problem(
            "host_steal",
            f"{taken} ({measure.steal_max:.0%} allowed): other machines disturbed this trial, so it does not count; "
            "run when the host is quieter, or raise measure.steal_max, knowing that results then hold what they did",
        )
    elif steal > STEAL_MAX:
        yield Problem(
            "host_steal_some", f"{taken}: run when the host is quieter, or expect wider intervals", fatal=False
        )
    foreign, cpus = metrics.get("host_foreign_cores"), evidence.host_cpus
    if foreign is None or not cpus:
        return
    share, allowed = foreign / cpus, measure.foreign_cpu_max
    used = f"other programs used {foreign:.2f} of the trial's {cpus:.0f} CPUs ({share:.0%})"
    if share > allowed:
        yield Problem(
            "host_foreign",
            f"{used}, more than the {allowed:.0%} allowed: this trial does not count; stop them, or raise "
            "measure.foreign_cpu_max, knowing that results then hold what those programs did",
        )
    elif share > FOREIGN_SHARE_NOTE:
        yield Problem("host_foreign_some", f"{used}: stop them, or expect wider intervals", fatal=False)


def _pressure(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Notes only: the kernel's figures are of the whole host, and the subject may be the one that waits."""
    share = metrics.get("psi_memory_share", 0.0)
    if share > PRESSURE_NOTES["memory"]:
        yield Problem(
            "memory_pressure",
            f"tasks of this machine waited for memory in {share:.0%} of the window: it is short of it, which slows "
            "down whatever touches a page; end other programs, or give the subject less",
            fatal=False,
        )
    share = metrics.get("psi_io_share", 0.0)
    if share > PRESSURE_NOTES["io"]:
        yield Problem(
            "io_pressure",
            f"tasks of this machine waited for a disk in {share:.0%} of the window: if the subject uses none, other "
            "programs do; end them",
            fatal=False,
        )


def _steadiness(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if evidence.steady is False:
        yield Problem(
            "not_steady",
            f"{kind_of(evidence.experiment).steady_figures} was still changing within the measured window: lengthen "
            "measure.warmup_max or load.duration",
            fatal=False,
        )


def _invariants(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """`measure.invariants`: what must hold in each trial and does not, or is not known."""
    for wanted in evidence.experiment.measure.invariants:
        found = metrics.get(wanted.metric)
        if found is None:
            yield Problem(
                "invariant",
                f"it cannot be told whether {wanted.text}: this trial has no {wanted.metric}; see what "
                "measure.metrics makes it of, and subject.log",
            )
        elif not OPERATORS[wanted.op](found, wanted.threshold):
            unit = METRICS[wanted.metric].unit
            yield Problem(
                "invariant",
                f"{wanted.text} does not hold: {wanted.metric} was {format_value(found, unit)}; the subject is not "
                "right at this setting, so its figures do not count",
            )


def memory_problem(log: str) -> Iterator[Problem]:
    """A JVM that ran out of memory and went on: some of its threads are dead, and it serves less than before."""
    if said := out_of_memory(log):
        message = f"the subject ran out of memory and went on ({said}): raise its heap, or lower what it holds"
        yield Problem("out_of_memory", message, fatal=False)


def _logged_much(evidence: Evidence) -> Iterator[Problem]:
    """Printing costs the subject CPU, which is part of what was measured."""
    subject = evidence.record.subject
    printed, dropped = (subject.get(f"log_{name}bytes") or 0 for name in ("", "dropped_"))
    requests = sum(sum(summary["total"]["outcomes"].values()) for summary in evidence.record.engines)
    if printed < max(LOG_BYTES_NOTE, LOG_BYTES_PER_REQUEST_NOTE * requests) or not requests:
        return
    kept = f" (subject.log lacks {format_bytes(dropped)} of it)" if dropped else ""
    yield Problem(
        "much_logged",
        f"the server printed {format_bytes(printed)}{kept}, {printed / requests:,.0f} bytes a request: what that costs "
        "is part of these figures; set its log level as it is in production",
        fatal=False,
    )


def _log_problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    yield from memory_problem(evidence.log)
    yield from _logged_much(evidence)


def _machine_problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    for check in (_machine, _pressure, _steadiness):
        yield from check(evidence, metrics)


INVARIANTS = Source("invariants", problems=_invariants)
MACHINE = Source("machine", problems=_machine_problems)
LOG = Source("log", problems=_log_problems)
