"""The exit code of a run by its answer."""

from dataclasses import replace

import pytest

from powerband.cli.answering import exit_code
from powerband.model.plan import Setting
from powerband.model.results import Analysis, Answer, AnswerKind, ClaimResult, ClaimVerdict, Problem, Soak, TrialResult

SETTING = Setting((("threads", 1),))


def analysis(kind: AnswerKind, *codes: str, status: str = "failed") -> Analysis:
    trials = tuple(
        TrialResult(number, 0, 1, SETTING, status, (Problem(code, "why"),), {}) for number, code in enumerate(codes, 1)
    )
    answer = Answer(kind, None, None, (), (), ())
    return Analysis("x", "", "goodput_per_s", "maximise", (), 0.95, 0.03, answer, (), trials)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (analysis(AnswerKind.BEST), 0),
        (analysis(AnswerKind.EQUIVALENT_SET), 0),
        (analysis(AnswerKind.BOUNDED), 0),
        (analysis(AnswerKind.NOT_ENOUGH_DATA), 0),
        (analysis(AnswerKind.NONE_FEASIBLE), 1),
        (analysis(AnswerKind.NONE_VALID, "not_ready", "died"), 4),
        (analysis(AnswerKind.NONE_VALID, "not_ready", "engine_failed"), 5),
        (analysis(AnswerKind.NONE_VALID), 5),
        (analysis(AnswerKind.NONE_VALID, "send_lag", status="measured"), 5),
    ],
)
def test_exit_codes(found: Analysis, code: int) -> None:
    assert exit_code(found) == code


@pytest.mark.parametrize(
    ("verdicts", "code"), [(["held"], 0), (["undecided", "held"], 0), (["held", "refuted"], 1), (["refuted"], 1)]
)
def test_a_refuted_claim_is_exit_code_1(verdicts: list[str], code: int) -> None:
    claims = tuple(ClaimResult(name, "", "", None, ClaimVerdict(name), "", ()) for name in verdicts)
    assert exit_code(replace(analysis(AnswerKind.BEST), claims=claims)) == code
    assert exit_code(replace(analysis(AnswerKind.NONE_VALID, "not_ready"), claims=claims)) == 4


@pytest.mark.parametrize(
    ("regret", "asked", "code"), [(0.2, None, 0), (0.05, 0.05, 0), (0.06, 0.05, 1), (None, 0.05, 1)]
)
def test_a_bound_that_was_asked_for_and_is_not_met_is_exit_code_1(
    regret: float | None, asked: float | None, code: int
) -> None:
    found = analysis(AnswerKind.BOUNDED)
    assert exit_code(replace(found, answer=replace(found.answer, regret=regret, regret_asked=asked))) == code


@pytest.mark.parametrize(("lasts", "code"), [(True, 0), (None, 0), (False, 1)])
def test_an_answer_that_did_not_last_is_exit_code_1(lasts: bool | None, code: int) -> None:
    soak = Soak(SETTING, 9, 600 * 10**9, 60 * 10**9, (), lasts=lasts, sentence="")
    assert exit_code(replace(analysis(AnswerKind.BEST), soak=soak)) == code
