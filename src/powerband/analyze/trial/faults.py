"""Finds whose fault it was that a trial does not count: the subject's, or that of powerband, its load engine, or the
machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from powerband.analyze.trial.disturbance import EXCUSES
from powerband.analyze.trial.honesty import DISTURBED_CODES, MACHINE_CODES, SUBJECT_CODES, WORK_ENDED
from powerband.model.plan import Level, Setting, Stage
from powerband.model.results import DAMAGED, Problem, TrialResult

GENERATOR_FULL = "generator_cpu"
GENERATOR_HELD = "generator_in_flight"
STOPPED = "engine_stopped"
LATE = frozenset({"generator_lag", "generator_starved"})
HALF_BUSY = 0.5
"""A load engine whose busiest thread used less than this of a CPU, and that was late while other programs ran, waited
for them."""
RAN_OUT = frozenset({"descriptor_limit", "port_limit"})
LIMITED_TRIALS = 2  # one may be chance
SERVED = ("goodput_per_s", "achieved_rate_per_s", "response_time_ns", "service_time_ns")
UNEXCUSED = frozenset({"invariant", "memory_kills"})
"""Faults of a server that no lack of CPU causes. Of rates and times an invariant is not judged while others disturb."""
SPOILT_BY_MACHINE = MACHINE_CODES | {STOPPED}
"""Codes of trials that other programs, the hypervisor, or a stop of the load engine spoilt."""
UNANSWERED = frozenset({"no_response", "no_request_ended", "short_window", "unavailable"})
# Failures of a trial that are not the subject's fault.
OWN_FAILURES = frozenset(
    RAN_OUT
    | {"engine_failed", "probe_failed", "port_in_use", "link_failed", "jmeter_failed"}
    | {"plan_ended", "clock_set", "ended_in_warmup", WORK_ENDED, DAMAGED}
)
NEVER_READY = frozenset({"died_before_ready", "not_ready"})
FIRST_START = "first_start"


def tried(results: Iterable[TrialResult], setting: Setting) -> list[TrialResult]:
    """The trials of a setting that came to their end; an interrupted one is run again, or was never finished."""
    return [result for result in results if result.setting == setting and result.status != "interrupted"]


def fatal_codes(result: TrialResult) -> frozenset[str]:
    """The codes of the problems that make the trial invalid; empty for a valid one."""
    return frozenset(problem.code for problem in result.problems if problem.fatal)


def shown_codes(result: TrialResult) -> frozenset[str]:
    """The same, but for answers that were missing while the load engine stopped or other programs disturbed the trial:
    nobody asked meanwhile, or nobody could answer."""
    codes = fatal_codes(result)
    return codes - UNANSWERED if codes & SPOILT_BY_MACHINE else codes


def spoilt_by_others(result: TrialResult) -> bool:
    """True if other programs, the hypervisor, a stop of the load engine or a limit of its own spoilt the trial: what
    the subject did in it is no fault of its own for certain."""
    fatal = fatal_codes(result)
    return bool(fatal & SPOILT_BY_MACHINE or _of_generator(fatal))


def _of_generator(codes: frozenset[str]) -> frozenset[str]:
    return frozenset(code for code in codes if code.startswith("generator"))


def machine_disturbed(result: TrialResult) -> bool:
    """True if other programs disturbed the trial so much that its faults may be theirs."""
    held_up = result.metrics.get("held_up_share_max", 0.0) if result.by_quiet_time else result.held_up
    return bool(fatal_codes(result) & MACHINE_CODES) or held_up > EXCUSES


def was_too_short(result: TrialResult) -> bool:
    """True for a short trial that ended before any answer, or while the server still said that it is not there: its
    answers, or its start, may only take longer than that."""
    return result.stage is Stage.SCREEN and bool(fatal_codes(result) & UNANSWERED)


def subjects_own(result: TrialResult) -> bool:
    """True if the subject itself spoilt an invalid trial: it never got ready, died, or answered nothing though it had
    the time, on a machine that did not spoil the trial as well; or it did what no machine excuses (`UNEXCUSED`)."""
    codes = shown_codes(result)
    if was_too_short(result) or (codes & MACHINE_CODES and not codes & UNEXCUSED):
        return False
    return bool(codes & SUBJECT_CODES) or (result.status == "failed" and not codes & OWN_FAILURES)


def limited_by_generator(result: TrialResult) -> bool:
    """True for an invalid trial in which the load engine had no CPU left, on a machine that was not disturbed: the
    server gave all that was asked of it."""
    return GENERATOR_FULL in fatal_codes(result) and not machine_disturbed(result)


def has_figure(result: TrialResult, metric: str) -> bool:
    """True if the trial shows how good its setting is by this metric. Where the load engine had no CPU left, its rates
    and times are at least so good; it would use more CPU, memory or threads, if more were asked of it."""
    limited = metric.startswith(SERVED) and limited_by_generator(result)
    return (result.valid or limited) and metric in result.metrics


def met_generator_limit(result: TrialResult) -> bool:
    """True for a trial at a given rate in which the load engine met a limit of its own: its CPU, descriptors or ports,
    or it was late. If other programs took its CPU, it did not."""
    fatal = fatal_codes(result)
    limits = _of_generator(fatal) | (fatal & RAN_OUT)
    disturbed = any(problem.code in DISTURBED_CODES for problem in result.problems)
    if disturbed and result.metrics.get("engine_cpu_share_max", 1.0) < HALF_BUSY:
        limits -= LATE
    return bool(limits) and not fatal & MACHINE_CODES


def beyond_generator(results: Iterable[TrialResult]) -> bool:
    """True if a setting's trials say that it is faster than the load engine: at least two were limited by it. The
    trials that count are then the slower ones, so that their mean is too low."""
    return sum(map(limited_by_generator, results)) >= LIMITED_TRIALS


def ran_out(results: Iterable[TrialResult]) -> str:
    """Why the work of a self-driven program was over too early, or was counted too seldom, in one line, as its first
    such trial has it; empty if it never was. Where it was over, the other trials are the slower ones; where the program
    hung instead, or tells its count so seldom, they are the lucky ones."""
    told = (problem.message for result in results for problem in result.problems if problem.code == WORK_ENDED)
    return in_one_line(next(told, ""))


def is_failed_start(result: TrialResult) -> bool:
    """True if the subject spoilt the trial by itself, on a machine that was not disturbed meanwhile or does not excuse
    it."""
    excused = machine_disturbed(result) and not fatal_codes(result) & UNEXCUSED
    return not result.valid and subjects_own(result) and not excused


def with_first_start(result: TrialResult, others: Iterable[TrialResult]) -> TrialResult:
    """The result, with a note if the server never got ready in it and it is the run's first on its node and of its
    revision. `others`: the other results of the run."""
    earlier = (other for other in others if other.number < result.number and other.status != "interrupted")
    if not fatal_codes(result) & NEVER_READY or any(_place(other) == _place(result) for other in earlier):
        return result
    message = result.problems[0].message
    said = f"; the last line that it printed: {message.splitlines()[-1].strip()}" if "\n" in message else ""
    where = f" on {result.node}" if result.node else ""
    note = (
        f"the first start{where} failed: {in_one_line(message)}{said}. It does not count once a later start of this "
        "setting succeeds, since it may have had work that is done only once (an image, a migration)"
    )
    return replace(result, problems=(*result.problems, Problem(FIRST_START, note, fatal=False)))


def _place(result: TrialResult) -> tuple[str, Level | None]:
    return result.node, result.setting.revision


def is_first_start(result: TrialResult) -> bool:
    """True if the result has the note of `with_first_start`."""
    return any(problem.code == FIRST_START for problem in result.problems)


def is_excused(result: TrialResult, others: Iterable[TrialResult]) -> bool:
    """True for a failed first start after which the same setting started on the same node: its cause belonged to the
    machine, and was there only once."""
    return is_first_start(result) and any(
        other.valid and other.number > result.number and (other.setting, other.node) == (result.setting, result.node)
        for other in others
    )


def in_one_line(message: str) -> str:
    """A message without the log lines at its end, and the clause that announces them."""
    return re.sub(r"(; [^;\n]*:)?\n.*", "", message, flags=re.DOTALL)
