"""Two capacities of one setting are compared, of two revisions in one run and of two runs, on servers of known
capacity."""

from dataclasses import replace

import numpy as np
import pytest

from fakes.edges import Server, answers_of, capacity_experiment, result, search, setting
from powerband.analyze.runs.capacity_changes import capacity_change, compare_capacities
from powerband.analyze.runs.changes import RunComparison
from powerband.analyze.runs.revisions import compare_revisions, revisions_of
from powerband.analyze.runs.sessions import SAME_SESSION
from powerband.analyze.settings.capacity import Search, capacity_of, search_of
from powerband.analyze.settings.compare import analyse
from powerband.model.experiment import Experiment, Objective
from powerband.model.plan import REVISION, Setting, Stage, TrialSpec
from powerband.model.results import Analysis, Estimate, Problem, SettingResult, TrialResult, Verdict

MADE = capacity_experiment()


def searched(server: Server, seed: int) -> tuple[Analysis, list[TrialResult]]:
    _, results = search(MADE, answers_of({1: server}, np.random.default_rng(seed)), seed)
    return analyse(MADE, results), results


def of_two_runs(old: Server, new: Server) -> RunComparison:
    """The comparison of two runs of one session, so that the posteriors alone decide."""
    return compare_capacities((MADE, MADE), (searched(old, 1)[0], searched(new, 2)[0]), sessions=SAME_SESSION)


def of_two_revisions(old: Server, new: Server) -> RunComparison:
    """The comparison of the same trials as if one run had a factor `revision` with two levels."""
    made: Experiment = MADE.model_copy(update={"factors": {"threads": (1,), REVISION: ("old", "new")}})
    results = [
        replace(result, number=2 * result.number + index, setting=Setting((("threads", 1), (REVISION, name))))
        for index, (name, server) in enumerate((("old", old), ("new", new)))
        for result in searched(server, index + 1)[1]
    ]
    return compare_revisions(made, analyse(made, results))


@pytest.mark.parametrize("compared", [of_two_runs, of_two_revisions])
@pytest.mark.parametrize(
    ("most_per_s", "verdict"),
    [(700.0, Verdict.WORSE), (1500.0, Verdict.BETTER)],
)
def test_the_verdict_and_the_ratio_are_those_of_the_servers(
    compared: object, most_per_s: float, verdict: Verdict
) -> None:
    old, new = Server(), Server(most_per_s=most_per_s)
    found = compared(old, new)  # type: ignore[operator]
    (change,) = found.changes
    assert change.verdict is found.verdict is verdict
    assert change.setting == setting(1)
    assert change.ratio is not None
    assert change.ratio.low <= new.capacity_per_s / old.capacity_per_s <= change.ratio.high
    assert change.smallest_difference is not None and change.smallest_difference < 0.2


def test_equal_capacities_are_not_told_apart() -> None:
    (change,) = of_two_runs(Server(), Server()).changes
    assert change.verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)
    assert change.ratio is not None and change.ratio.low <= 1 <= change.ratio.high


@pytest.mark.parametrize(
    ("slo", "verdict"),
    [
        (["p99 < 100ms", "errors < 0.1%"], "inconclusive"),
        (["p99 < 50ms"], "inconclusive"),
        (["error_rate<0.001", "p99<0.05s"], "worse"),
    ],
)
def test_capacities_under_different_conditions_are_not_told_apart(slo: list[str], verdict: str) -> None:
    asked = capacity_experiment(objective=Objective(metric="capacity", subject_to=slo))
    first, second = searched(Server(), 1)[1], searched(Server(most_per_s=700.0), 2)[1]
    analyses = analyse(MADE, first), analyse(asked, second)
    found = compare_capacities((MADE, asked), analyses, sessions=SAME_SESSION)
    (change,) = found.changes
    assert found.verdict == verdict and found.decides
    assert ("different conditions" in change.because) is (verdict == "inconclusive")
    lost = [replace(each, problems=(Problem("not_ready", "it did not start"),), status="failed") for each in second]
    found = compare_capacities((MADE, asked), (analyses[0], analyse(asked, lost)), sessions=SAME_SESSION)
    assert found.verdict is Verdict.WORSE, "one that never starts meets no condition"


def test_one_that_holds_nowhere_is_worse_than_one_that_holds_somewhere() -> None:
    broken = Server(base_ns=80e6)
    (change,) = of_two_runs(Server(), broken).changes
    assert (change.verdict, change.second, change.ratio) == (Verdict.WORSE, None, None)
    assert "p99 < 50ms: it was" in change.because
    (change,) = of_two_runs(broken, Server()).changes
    assert change.verdict is Verdict.BETTER
    for found in (of_two_runs(broken, broken), of_two_revisions(broken, broken)):
        assert (found.verdict, found.decides) == (Verdict.INCONCLUSIVE, True)
        assert "p99 < 50ms: it was" in found.sentence and "would decide" not in found.sentence


def held_everywhere(most_per_s: float) -> Search:
    """The search of a server that holds every rate that the load generator could offer, up to `most_per_s`."""
    rates = [None, *[1.05 * most_per_s] * 2, *[most_per_s] * 16]
    trials = []
    for number, rate in enumerate(rates, start=1):
        stage = Stage.SATURATE if rate is None else Stage.CAPACITY
        figures = {"response_time_ns_p99": 20e6, "error_rate": 0.0, "goodput_per_s": rate or most_per_s}
        spec = TrialSpec(number, number, 1, setting(1), 1, stage, rate)
        trials.append(result(spec, figures, "generator_cpu" if rate and rate > most_per_s else "", "measured"))
    return search_of(MADE, setting(1), trials)


def test_sessions_may_differ_although_one_capacity_has_no_figure() -> None:
    first = search_of(MADE, setting(1), searched(Server(), 1)[1])
    found = capacity_of(first)
    assert found is not None and found.estimate is not None and found.estimate.high is not None
    second = held_everywhere(1.1 * found.estimate.high)
    assert second.everywhere
    halves = {half: capacity_change(setting(1), first, second, "ab", 0.05, session_half=half) for half in (0.0, 0.14)}
    assert {half: change.verdict for half, change in halves.items()} == {
        0.0: Verdict.BETTER,
        0.14: Verdict.INCONCLUSIVE,
    }


def test_what_no_trial_exceeded_is_compared_by_the_range_in_which_it_lies() -> None:
    first = search_of(MADE, setting(1), searched(Server(), 1)[1])
    rates = [None, *[3000.0] * 20]
    trials = []
    for number, rate in enumerate(rates, start=1):
        stage = Stage.SATURATE if rate is None else Stage.CAPACITY
        figures = {"response_time_ns_p99": 20e6, "error_rate": 0.0, "goodput_per_s": rate or 3000.0}
        trials.append(result(TrialSpec(number, number, 1, setting(1), 1, stage, rate), figures))
    second = search_of(MADE, setting(1), trials)
    assert second.unmissed
    change = capacity_change(setting(1), first, second, ("one", "two"), 0.05)
    assert (change.verdict, change.ratio) == (Verdict.BETTER, None)
    assert change.because == "two: held in all 20 trials, up to 3,000/s; higher rates were not tested"
    back = capacity_change(setting(1), second, first, ("one", "two"), 0.05)
    assert back.verdict is Verdict.WORSE


@pytest.mark.parametrize(("most_per_s", "verdict"), [(1000.0, Verdict.WORSE), (200.0, Verdict.INCONCLUSIVE)])
def test_what_held_in_no_trial_has_no_figure_and_is_compared_by_what_it_is_below(
    most_per_s: float, verdict: Verdict
) -> None:
    analysis, results = searched(Server(most_per_s=most_per_s), 1)
    first = search_of(MADE, setting(1), results)
    late = {"response_time_ns_p99": 60e6, "error_rate": 0.0, "goodput_per_s": 300.0}
    trials = [result(TrialSpec(1, 1, 1, setting(1), 1, Stage.SATURATE), late)]
    for number, rate in enumerate((700.0, 500.0, 350.0, 350.0, 350.0), start=2):
        trials.append(result(TrialSpec(number, number, 1, setting(1), 1, Stage.CAPACITY, rate), late))
    second = search_of(MADE, setting(1), trials)
    assert second.unseen
    change = capacity_change(setting(1), first, second, ("one", "two"), 0.05)
    assert (change.verdict, change.second, change.ratio) == (verdict, None, None)
    assert change.because == "two: held in none of 5 trials; lower rates were not tested"
    found = RunComparison.of(analysis, [change])
    assert found.decides and change.because in found.sentence
    assert {"first", "second", "because"} < found.to_json()["settings"][0].keys() < vars(change).keys()


@pytest.mark.parametrize(
    ("most_per_s", "failed", "verdict"),
    [(1500.0, 12, Verdict.WORSE), (1500.0, 1, Verdict.INCONCLUSIVE), (700.0, 1, Verdict.WORSE)],
)
def test_failed_starts_come_before_rates(most_per_s: float, failed: int, verdict: Verdict) -> None:
    results = searched(Server(most_per_s=most_per_s), 2)[1]
    made = len(results) + failed
    spec = TrialSpec(0, 30, 1, setting(1), 1, Stage.CAPACITY, 500.0)
    results += [result(replace(spec, number=100 + n), {}, "not_ready", "failed") for n in range(failed)]
    second = analyse(MADE, results)
    (change,) = compare_capacities((MADE, MADE), (searched(Server(), 1)[0], second), sessions=SAME_SESSION).changes
    assert change.verdict is verdict
    assert (f"the second run failed {failed} of {made} starts" in change.because) is (most_per_s > 1000)


@pytest.mark.parametrize(
    ("failed", "allowed", "verdict"),
    [
        ((0, 0), (0.0, 0.0), "equivalent"),
        ((0, 1), (0.0, 0.0), "inconclusive"),
        ((1, 0), (0.0, 0.0), "inconclusive"),
        ((1, 0), (0.5, 0.0), "equivalent"),
        ((1, 0), (0.0, 0.5), "inconclusive"),
    ],
)
def test_two_capacities_are_not_equivalent_where_starts_fail_that_may_not(
    failed: tuple[int, int], allowed: tuple[float, float], verdict: str
) -> None:
    spec = TrialSpec(0, 30, 1, setting(1), 1, Stage.CAPACITY, 500.0)
    sides = []
    for seed, (count, share) in enumerate(zip(failed, allowed, strict=True), start=1):
        asked = MADE.objective.model_copy(update={"margin": 0.3, "allow_failed_starts": share})
        made: Experiment = MADE.model_copy(update={"objective": asked})
        lost = [result(replace(spec, number=100 + n), {}, "not_ready", "failed") for n in range(count)]
        sides.append(search_of(made, setting(1), searched(Server(), seed)[1] + lost))
    change = capacity_change(setting(1), sides[0], sides[1], ("one", "two"), 0.05)
    assert change.verdict == verdict
    barred = [verdict == "inconclusive" and count > 0 for count in failed]
    assert [f"{name} failed 1 of" in change.because for name in ("one", "two")] == barred


def test_one_that_holds_nowhere_is_not_better_for_starting_more_often() -> None:
    results = searched(Server(), 1)[1]
    spec = TrialSpec(0, 30, 1, setting(1), 1, Stage.CAPACITY, 500.0)
    results += [result(replace(spec, number=200 + n), {}, "not_ready", "failed") for n in range(len(results))]
    second = searched(Server(base_ns=80e6), 2)[0]
    (change,) = compare_capacities((MADE, MADE), (analyse(MADE, results), second), sessions=SAME_SESSION).changes
    assert change.verdict is not Verdict.BETTER and "p99 < 50ms: it was" in change.because


def test_p99s_at_the_rates_of_two_capacities_are_no_cost_of_a_revision() -> None:
    made: Experiment = MADE.model_copy(update={"factors": {REVISION: ("old", "new")}})
    rows = []
    for name, value in (("old", 1e6), ("new", 4e7)):
        both = dict.fromkeys(("response_time_ns_p99", "rss_bytes_max"), Estimate(value, value, value, 0.95, 5))
        of = Setting(((REVISION, name),))
        rows.append(SettingResult(of, 5, 0, both, None, Verdict.EQUIVALENT, feasible=True))
    said = " ".join(revisions_of(made, [], None, rows).further)
    assert "the memory" in said and "p99" not in said


@pytest.mark.parametrize(("code", "verdict"), [("died", Verdict.WORSE), ("engine_failed", Verdict.INCONCLUSIVE)])
def test_a_setting_that_fails_at_every_load_in_one_run_is_no_setting_less(code: str, verdict: Verdict) -> None:
    made = capacity_experiment((1, 2))
    results = search(made, answers_of({1: Server(), 2: Server()}, np.random.default_rng(1)))[1]
    look = TrialSpec(0, 0, 1, setting(2), 1, Stage.SATURATE)
    failed = [result(replace(look, number=900 + n), {}, code, "failed") for n in range(2)]
    first = analyse(made, results)
    second = analyse(made, [*(each for each in results if each.setting == setting(1)), *failed])
    found = compare_capacities((made, made), (first, second), sessions=SAME_SESSION)
    (change,) = [change for change in found.changes if change.setting == setting(2)]
    assert change.verdict is found.verdict is verdict
    assert f"the second run: nothing was tried: because of {code}" in change.because
    assert not found.only_first
    back = compare_capacities((made, made), (second, first), sessions=SAME_SESSION)
    assert Verdict.WORSE not in [change.verdict for change in back.changes]
