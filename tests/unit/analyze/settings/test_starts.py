"""Trials that count as failed starts, and the comparison of two settings by them."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from fakes.pages import ROOT
from fakes.trials import experiment
from powerband.analyze.runs.revisions import revisions_of
from powerband.analyze.runs.sessions import SAME_SESSION
from powerband.analyze.runs.unpaired import compare_runs
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.starts import (
    by_starts,
    failed_words,
    fails_more,
    is_allowed,
    starts_of,
    unmeasured_pair,
)
from powerband.analyze.trial.faults import with_first_start
from powerband.model.plan import REVISION, Setting, Stage
from powerband.model.results import Analysis, Problem, Race, Starts, TrialResult, Verdict

OF = Setting((("threads", 1),))


def trial(number: int, *codes: str, status: str = "measured", stage: Stage = Stage.COMPARE) -> TrialResult:
    metrics = {} if codes else {"goodput_per_s": 1000.0 + number % 3}
    problems = tuple(Problem(code, f"because of {code}") for code in codes)
    return TrialResult(number, number, 1, OF, status, problems, metrics, stage=stage)


@pytest.mark.parametrize(
    ("codes", "status", "failed"),
    [
        (("died",), "failed", True),
        (("not_ready",), "failed", True),
        (("died_before_ready",), "failed", True),
        (("no_request_ok",), "measured", True),
        (("invariant",), "measured", True),
        (("invariant_unknown",), "measured", False),
        (("no_request_ended", "host_steal"), "measured", False),
        (("host_foreign",), "measured", False),
        (("generator_cpu",), "measured", False),
        (("port_in_use",), "failed", False),
        (("engine_failed",), "failed", False),
        (("link_failed",), "failed", False),
        (("work_ended",), "failed", False),
        ((), "interrupted", False),
    ],
)
def test_a_failed_start_is_the_servers_own_doing(codes: tuple[str, ...], status: str, failed: bool) -> None:
    found = starts_of([trial(1, *codes, status=status), trial(2), trial(3, stage=Stage.CONFIRM)], OF, 0.95)
    assert (found.made, found.failed) == ((3, 1) if failed else (2, 0))
    assert found.wrong == ("invariant" in codes)


def noted(*trials: TrialResult) -> list[TrialResult]:
    return [with_first_start(each, trials) for each in trials]


@pytest.mark.parametrize("code", ["not_ready", "died_before_ready"])
def test_a_first_start_that_was_never_ready_does_not_count_once_a_later_one_is(code: str) -> None:
    failed = trial(1, code, status="failed")
    found = starts_of(noted(failed, trial(2), trial(3)), OF, 0.95)
    assert (found.made, found.failed) == (2, 0)
    found = starts_of(noted(failed, trial(2, code, status="failed"), trial(3)), OF, 0.95)
    assert (found.made, found.failed) == (2, 1), "the second start is not excused"
    found = starts_of(noted(failed, trial(2, code, status="failed")), OF, 0.95)
    assert (found.made, found.failed) == (2, 2), "it never started"


def test_only_a_first_start_that_was_never_ready_is_excused() -> None:
    for code, status in (("died", "failed"), ("invariant", "measured"), ("no_request_ok", "measured")):
        assert starts_of(noted(trial(1, code, status=status), trial(2)), OF, 0.95).failed == 1
    late = trial(2, "not_ready", status="failed")
    assert starts_of(noted(trial(1), late, trial(3)), OF, 0.95).failed == 1
    stopped = replace(trial(1), status="interrupted")
    assert starts_of(noted(stopped, late, trial(3)), OF, 0.95).failed == 0


def test_each_node_and_each_revision_has_a_first_start() -> None:
    elsewhere = replace(trial(2, "not_ready", status="failed"), node="b")
    before = replace(trial(1), node="a")
    assert starts_of(noted(before, elsewhere, replace(trial(3), node="a")), OF, 0.95).failed == 1
    assert starts_of(noted(before, elsewhere, replace(trial(3), node="b")), OF, 0.95).failed == 0
    old, new = (Setting(((REVISION, name),)) for name in ("old", "new"))
    ran = [replace(trial(1), setting=old), replace(trial(2, "not_ready", status="failed"), setting=new)]
    assert starts_of(noted(*ran, replace(trial(3), setting=new)), new, 0.95).failed == 0


def test_the_answer_says_once_that_the_first_start_failed_and_what_it_printed() -> None:
    message = "the server was not ready within 2 s: raise it; its last log lines:\n  hello\n  pulling the image"
    failed = replace(trial(1, status="failed"), problems=(Problem("not_ready", message),))
    warnings = analyse(experiment({"threads": (1,)}), noted(failed, trial(2), trial(3))).warnings
    (said,) = [warning for warning in warnings if "first start" in warning]
    assert said.startswith(
        "trial 1 (threads=1): the first start failed: the server was not ready within 2 s: raise it; the last line "
        "that it printed: pulling the image. It does not count"
    )
    analysis = analyse(experiment({"threads": (1,)}), noted(failed, trial(2, "not_ready", status="failed")))
    assert not any("first start" in warning for warning in analysis.warnings)
    assert analysis.settings[0].infeasible_because == (message, "because of not_ready")


def starts(failed: int, made: int) -> Starts:
    return Starts(made, failed, 0, 1.0)


def test_fishers_exact_test() -> None:
    """5 failures in 8 starts against none in 8 starts have the probability of 56 in 4,368 tables, 1.28 %."""
    assert fails_more(starts(5, 8), starts(0, 8), 0.0129) and not fails_more(starts(5, 8), starts(0, 8), 0.0128)
    assert not fails_more(starts(1, 8), starts(0, 8), 0.05) and not fails_more(starts(0, 8), starts(5, 8), 0.05)
    assert not fails_more(starts(3, 3), starts(0, 0), 0.5)


@pytest.mark.parametrize("made", [4, 8, 16])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_two_that_fail_alike_are_rarely_told_apart(made: int, rate: float) -> None:
    """The chance that either is said to fail more, summed over all pairs of counts: at most the error."""
    counts = range(made + 1)
    chances = [math.comb(made, failed) * rate**failed * (1 - rate) ** (made - failed) for failed in counts]
    wrong = sum(
        chances[first] * chances[second]
        for first in counts
        for second in counts
        if by_starts((starts(first, made), starts(second, made)), ("old", "new"), 0.05)[1]
    )
    assert wrong <= 0.05


@pytest.mark.parametrize(
    ("failed", "of", "verdict"),
    [(0, 2, Verdict.WORSE), (1, 4, Verdict.WORSE), (2, 5, Verdict.INCONCLUSIVE), (5, 5, Verdict.INCONCLUSIVE)],
)
def test_one_that_never_serves_is_worse_unless_the_other_hardly_does(failed: int, of: int, verdict: Verdict) -> None:
    """Five failed starts of five, against so many of the other: 1 of 4 has a probability of 4.8 %, 2 of 5 of 8.3 %."""
    dead = [trial(number, "died", status="failed") for number in range(5)]
    other = [*dead[:failed], *map(trial, range(failed, of))]
    found, why = unmeasured_pair((other, dead), (failed < of, False), ("old failed", "new failed"), 0.05)
    assert found is verdict and why.startswith("new failed: because of died" if failed < of else "old failed: ")
    assert ("the other failed 2 of 5 starts" in why) == (failed == 2)


@pytest.mark.parametrize(("failed", "verdict"), [(5, Verdict.WORSE), (4, Verdict.INCONCLUSIVE)])
def test_one_that_served_in_short_trials_alone_is_worse_if_it_certainly_fails_more(
    failed: int, verdict: Verdict
) -> None:
    """After two short trials of each, against as many full ones that all served: 5 of 7 starts against 0 of 7 has a
    probability of 1.0 %, 4 of 6 against 0 of 6 of 3.0 %."""
    served = [trial(number, stage=Stage.SCREEN if number < 2 else Stage.COMPARE) for number in range(2 + failed)]
    fails = [*served[:2], *(trial(number, "memory_kills") for number in range(2, 2 + failed))]
    found, why = unmeasured_pair((served, fails), (True, False), ("old failed", "new failed"), 0.05)
    assert (found, why) == (verdict, "new failed: because of memory_kills")
    back, _ = unmeasured_pair((fails, served), (False, True), ("old failed", "new failed"), 0.05)
    assert back is (Verdict.BETTER if verdict is Verdict.WORSE else verdict)
    disturbed = [*served[:2], *(trial(number, "no_request_ok", "host_steal") for number in range(2, 2 + failed))]
    assert unmeasured_pair((served, disturbed), (True, False), ("", ""), 0.05)[0] is Verdict.INCONCLUSIVE


def run(failed: int, rate: float, code: str = "died") -> Analysis:
    """An analysis of six valid trials, and of so many that died, or failed by another code."""
    trials = [
        TrialResult(block + 1, block, 1, OF, "measured", (), {"goodput_per_s": rate * (1 + 0.001 * (block % 3))})
        for block in range(6)
    ]
    trials += [trial(7 + number, code, status="failed") for number in range(failed)]
    return analyse(experiment({"threads": (1,)}), trials)


@pytest.mark.parametrize(
    ("before", "after", "gain", "verdict"),
    [
        (0, 0, 1.1, Verdict.BETTER),
        (0, 1, 1.1, Verdict.INCONCLUSIVE),
        (0, 9, 1.1, Verdict.WORSE),
        (9, 0, 0.9, Verdict.BETTER),
        (1, 1, 0.9, Verdict.WORSE),
        (1, 0, 1.1, Verdict.BETTER),
    ],
)
def test_a_run_that_failed_starts_is_not_better(before: int, after: int, gain: float, verdict: Verdict) -> None:
    (change,) = compare_runs(run(before, 1000.0), run(after, 1000.0 * gain), sessions=SAME_SESSION).changes
    assert change.verdict is verdict, change.because


@pytest.mark.parametrize(
    ("failed", "broken", "verdict", "because"),
    [
        (0, "", Verdict.BETTER, "failed 9 of 15 starts in the first run"),
        (0, "p99 < 50ms: it was 600 ms", Verdict.WORSE, "the second run violates the SLO (p99 < 50ms: it was 600 ms)"),
        (1, "", Verdict.INCONCLUSIVE, "failed 9 of 15 starts in the first run, failed 1 of 16 starts in the second"),
    ],
)
def test_fewer_failed_starts_do_not_excuse_a_broken_condition_or_a_failed_start(
    failed: int, broken: str, verdict: Verdict, because: str
) -> None:
    second = run(0, 900.0) if not failed else run_of_many(failed)
    if broken:
        second = replace(second, settings=tuple(replace(row, infeasible_because=(broken,)) for row in second.settings))
    (change,) = compare_runs(run(9, 1000.0), second, sessions=SAME_SESSION).changes
    assert change.verdict is verdict and because in change.because


def run_of_many(failed: int) -> Analysis:
    """An analysis of fifteen valid trials, and of so many that died."""
    served = [replace(trial(n + 1), block=n, setting=OF, metrics={"goodput_per_s": 900.0 + n % 3}) for n in range(15)]
    died = [replace(trial(20 + n, "died", status="failed"), setting=OF) for n in range(failed)]
    return analyse(experiment({"threads": (1,)}), [*served, *died])


@pytest.mark.parametrize("gain", [0.9, 1.0, 1.1])
def test_runs_of_a_program_whose_work_was_over_too_early_are_not_told_apart(gain: float) -> None:
    """Its other trials are the slower ones, or those in which it did not hang."""
    second = run(1, 1000.0 * gain, "work_ended")
    (change,) = compare_runs(run(0, 1000.0), second, sessions=SAME_SESSION).changes
    assert change.verdict is Verdict.INCONCLUSIVE and change.because == "because of work_ended"


def test_some_failed_starts_are_allowed_where_so_few_would_fail_of_a_worse_server_by_the_error_asked_for() -> None:
    """If a server fails one start in ten, at most one of 46 starts fails in 4.8 % of cases, and of 45 in 5.2 %
    (binomial)."""
    assert is_allowed(1, 46, allowed=0.1, error=0.05) and not is_allowed(1, 45, allowed=0.1, error=0.05)
    assert is_allowed(0, 1, allowed=0.0, error=0.05) and not is_allowed(1, 1000, allowed=0.0, error=0.05)


def test_the_page_says_how_many_starts_one_failed_one_takes() -> None:
    (share, starts), *others = re.findall(
        r"With one failed start (\d+) % takes (\d+) starts or more; with none a setting is allowed",
        (ROOT / "docs" / "methods" / "failed-starts.md").read_text(),
    )
    assert not others
    allowed, least = int(share) / 100, int(starts)
    assert is_allowed(1, least, allowed, error=0.05) and not is_allowed(1, least - 1, allowed, error=0.05)
    assert is_allowed(0, 1, allowed, error=0.05), "however few there were"


def test_who_failed_no_start_computed_nothing_wrongly() -> None:
    (change,) = compare_runs(run(0, 1000.0), run(9, 1000.0), sessions=SAME_SESSION).changes
    assert change.because == "failed 0 of 6 starts in the first run, failed 9 of 15 starts in the second"
    assert failed_words(Starts(8, 5, 5, 1.0)) == "computed wrongly in 5 of 8 starts"


def test_a_reason_that_is_a_sentence_ends_with_one_full_stop() -> None:
    died = TrialResult(1, 0, 1, OF, "failed", (Problem("died", "It died."),), {})
    found = compare_runs(run(0, 1000.0), analyse(experiment({"threads": (1,)}), [died]), sessions=SAME_SESSION)
    assert found.verdict is Verdict.WORSE and found.sentence.endswith(": It died.")


def test_a_new_revision_that_died_in_half_a_block_is_not_better() -> None:
    made = experiment({REVISION: ("old", "new")}, design={"order": "race"})
    pair = [Setting(((REVISION, name),)) for name in ("old", "new")]
    rates = [(n, of, 1000 * (1 + 0.1 * of + 0.001 * ((n + of) % 3))) for n in range(5) for of in (0, 1)]
    ran = [replace(trial(10 * n + of), block=n, setting=pair[of], metrics={"goodput_per_s": r}) for n, of, r in rates]
    died = replace(trial(60, "died", status="failed"), block=5, setting=pair[1])
    race = Race((), (), trials=11, grid_trials=16, ended_by="stopped", blocks=5, half=(5,))
    assert revisions_of(made, ran, race, ()).verdict is Verdict.BETTER
    assert revisions_of(made, [*ran, died], race, ()).verdict is Verdict.INCONCLUSIVE
    over = replace(trial(60, "work_ended", status="failed"), block=4, setting=pair[1])
    assert revisions_of(made, [*ran, over], race, ()).verdict is Verdict.INCONCLUSIVE
