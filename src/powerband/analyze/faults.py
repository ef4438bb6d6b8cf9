"""Whose fault was it that a trial does not count: the subject's own, or ours, the generator's and the machine's?"""

from __future__ import annotations

from powerband.analyze.honesty import SUBJECT_CODES
from powerband.analyze.results import TrialResult

# Failures of a trial that are not the subject's fault.
OWN_FAILURES = frozenset({"engine_failed", "probe_failed", "descriptor_limit"})


def fatal_codes(result: TrialResult) -> frozenset[str]:
    return frozenset(problem.code for problem in result.problems if problem.fatal)


def subjects_own(result: TrialResult) -> bool:
    """An invalid trial that the subject itself spoilt: it never got ready, died, answered nothing."""
    codes = fatal_codes(result)
    return bool(codes & SUBJECT_CODES) or (result.status == "failed" and not codes & OWN_FAILURES)
