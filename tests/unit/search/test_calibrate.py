"""A calibration that is stopped early judges nothing about the machine. No trial is run here: only the order of calls
is tested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from powerband.cli import invoke
from powerband.model.plan import Setting
from powerband.model.results import Problem, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search import calibrate as module
from powerband.search.calibrate import calibrate


def run(monkeypatch: pytest.MonkeyPatch, *, stop_in_case: int | None) -> tuple[module.Calibration, list[str]]:
    """Runs a calibration in which every case measures 100/s and 10 ms at once, and which is stopped in the case of that
    number."""
    cases, said = 0, []
    stop = StopRequest()

    def measured(_bench: object, case: module._Case) -> list[TrialResult]:
        nonlocal cases
        cases += 1
        if cases == stop_in_case:
            stop.request()
            return [TrialResult(1, 0, 1, Setting(()), "interrupted", (), {})]
        metrics = dict.fromkeys(("goodput_per_s", "offered_rate_per_s", "achieved_rate_per_s"), 100.0)
        return [TrialResult(1, 0, 1, Setting(()), "measured", (), {**metrics, "response_time_ns_mean": 1e7})]

    monkeypatch.setattr(module._Bench, "run", measured)
    found = calibrate(quick=True, directory=Path("unused"), stop=stop, starting=said.append)
    stop.close()
    return found, said


def test_each_check_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = run(monkeypatch, stop_in_case=None)
    assert (len(found.checks), found.planned, found.interrupted) == (3, 3, False)
    assert said[0] == "what a request takes"
    assert [line.split(": ")[0] for line in said[1:]] == ["1 of 3", "2 of 3", "3 of 3"]
    assert [line.split(": ")[1] for line in said[1:]] == [check.name for check in found.checks]


@pytest.mark.parametrize(("stopped_in", "finished"), [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2)])
def test_what_was_cut_short_is_no_verdict(monkeypatch: pytest.MonkeyPatch, stopped_in: int, finished: int) -> None:
    found, _ = run(monkeypatch, stop_in_case=stopped_in)
    assert found.interrupted and not found.passed
    assert (len(found.checks), found.planned, found.problem) == (finished, 3, None)


def checked(deviations: list[float], *, lost: int = 0, quick: bool = True) -> module.Check:
    """The check of a case whose trials deviate from theory by these shares; `lost` further trials were unusable."""
    case = module._cases(True)[1]
    served = module.Served(0.010, 0.0)
    results = []
    for number, deviation in enumerate(deviations):
        made = TrialResult(number, 0, 1, Setting(()), "measured", (), {"offered_rate_per_s": 50.0})
        expected = case.expected(made, served)
        metrics = {**made.metrics, "achieved_rate_per_s": 50.0, "response_time_ns_mean": expected * (1 + deviation)}
        results.append(replace(made, metrics=metrics))
    problems = (Problem("died", "the subject died"),)
    results += [TrialResult(99, 0, 1, Setting(()), "failed", problems, {}) for _ in range(lost)]
    return module._check(case, results, served, quick)


@pytest.mark.parametrize(
    ("code", "usable", "disturbed"),
    [("generator_starved", True, True), ("host_steal", True, True), ("generator_cpu", False, True)],
)
def test_an_engine_without_a_cpu_was_disturbed(code: str, usable: bool, disturbed: bool) -> None:
    made = TrialResult(1, 0, 1, Setting(()), "measured", (Problem(code, "why"),), {})
    assert module._usable(made) is usable
    assert module._disturbed(made, alone=False) is disturbed


def test_sampling_error_of_the_quick_form_counts_up_to_five_points() -> None:
    check = checked([0.03, 0.05, 0.07, 0.09])
    assert check.passed and 0.06 < check.allowed < 0.10
    assert not checked([0.03, 0.05, 0.07, 0.09], quick=False).passed
    assert not checked([0.10, 0.101, 0.102, 0.103]).passed


def test_noise_does_not_help_to_pass() -> None:
    check = checked([-0.20, 0.20, -0.10, 0.12])
    assert check.undecided and not check.passed and check.problem is not None
    assert check.problem.startswith("inconclusive")
    far = checked([0.5, 0.7, 0.6, 0.8])
    assert not far.passed and not far.undecided


def test_most_trials_of_a_check_must_be_usable() -> None:
    assert checked([0.0, 0.001, 0.0], lost=2).passed
    check = checked([0.0, 0.001], lost=2)
    assert not check.passed and check.problem == "only 2 of 4 trials could be used: the subject died"


AGREES, UNSURE, WRONG = ([0.03, 0.05, 0.07, 0.09], [-0.20, 0.20, -0.10, 0.12], [0.5, 0.7, 0.6, 0.8])


@pytest.mark.parametrize(
    ("deviations", "code", "said"),
    [
        ([AGREES, AGREES], 0, "All agree with theory."),
        ([AGREES, UNSURE], 5, "1 of 2 checks is inconclusive; none disagrees with theory."),
        ([UNSURE, UNSURE], 5, "2 of 2 checks are inconclusive; none disagrees with theory."),
        ([WRONG, UNSURE], 1, "Not all agree with theory: is this machine quiet?"),
    ],
)
def test_an_inconclusive_check_is_no_disagreement(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    deviations: list[list[float]],
    code: int,
    said: str,
) -> None:
    found = module.Calibration(0.01, module.Served(0.01, 0.0), tuple(map(checked, deviations)), None, 2)
    monkeypatch.setattr(module, "calibrate", lambda **_: found)
    assert invoke(["calibrate"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == said
