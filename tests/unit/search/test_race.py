from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from fakes.races import race_of, result_of, run_experiment, run_planner, threads
from fakes.trials import experiment
from powerband.analyze.runs.revisions import compare_revisions
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.constraints import Compliance
from powerband.analyze.settings.contest import Contest, ResponseTable
from powerband.analyze.stats.intervals import Scale
from powerband.model.experiment import Claim, Experiment, Objective, Parameter, Subject
from powerband.model.plan import Level, Setting, Stage, TrialSpec
from powerband.model.results import Analysis, AnswerKind, Race, TrialResult, Verdict
from powerband.search.planners import dry_run
from powerband.search.race import RacePlanner
from powerband.search.session import at_rest
from powerband.search.still_open import still_open

# threads 3 and 4 serve alike; the others are clearly worse, 0 most.
RATES = (100.0, 500.0, 800.0, 1000.0, 1000.0)


def noisy(spec: TrialSpec, sd: float = 0.005) -> float:
    return random.Random(f"{spec.number}/{spec.setting.id}").gauss(1, sd)


def serve(spec: TrialSpec) -> Mapping[str, float]:
    return {"goodput_per_s": RATES[threads(spec)] * noisy(spec), "threads_max": threads(spec)}


def race_in(planner: RacePlanner) -> Race:
    race = planner.progress.race
    assert race is not None
    return race


def test_the_beaten_leave_and_the_rest_is_decided_before_the_last_block() -> None:
    planner = RacePlanner(race_of(5), 1)
    results = run_planner(planner, serve)
    race = race_in(planner)
    assert race.ended_by == "decided"
    assert {left.setting.id for left in race.departures} == {"threads=0", "threads=1", "threads=2"}
    assert race.trials == len(results) < race.grid_trials == 50
    for left in race.departures:
        assert "% worse than threads=" in left.reason and left.effect is not None and left.effect.high is not None
        blocks = [result.block for result in results if result.setting == left.setting]
        assert blocks == list(range(left.block + 1)), "who left is not run again"
        assert left.effect.high < 1 / 1.03


@pytest.mark.parametrize("named", [False, True])
def test_rules_of_thumb_are_judged_only_where_levels_are_numbers(named: bool) -> None:
    assert bool(run_experiment(race_of(5, named=named), serve).rules) is not named


@pytest.mark.parametrize("limit_ms", [47.2, 47.6, 48.0, 48.4])
def test_one_setting_is_judged_as_by_the_fixed_plan_that_it_runs(limit_ms: float) -> None:
    """By five starts its p99 is below 47.5 ms; by the share that the last look at a race may spend, below 48.1 ms."""
    waves, p99_ms = (1.0, 1.02, 0.98, 1.01, 0.99), (46, 46, 40, 46, 46)

    def one(spec: TrialSpec) -> Mapping[str, float]:
        return {"goodput_per_s": 1000 * waves[spec.block], "response_time_ns_p99": 1e6 * p99_ms[spec.block]}

    objective = {"subject_to": [f"p99 < {limit_ms}ms"]}
    raced, fixed = (
        run_experiment(race_of(1, repeats=5, objective=objective, order=o), one) for o in ("race", "blocks")
    )
    assert raced.settings == fixed.settings and raced.answer == fixed.answer
    assert bool(raced.settings[0].uncertain_because) is (limit_ms < 47.5)
    assert raced.answer.figure is not None
    assert raced.answer.figure.estimate.ends == raced.settings[0].estimates["goodput_per_s"].ends


def test_a_race_has_more_than_one_setting_that_the_server_tells_apart() -> None:
    parameters = {
        "model": Parameter(type="string", default="fixed", help="x"),
        "threads": Parameter(type="int", default=8, help="x", used_when={"model": ("fixed",)}),
    }
    subject = Subject(name="fake", command=("fake", "{model}", "{threads}"), parameters=parameters)
    for model, races in (("fixed", True), ("cached", False)):
        levels: dict[str, tuple[Level, ...]] = {"model": (model,), "threads": (8, 64)}
        assert experiment(levels, subject=subject, design={"order": "race"}).is_race is races


def test_who_is_worse_for_certain_but_by_less_than_the_margin_stays() -> None:
    rates, planner = (985.0, 990.0, 1000.0), RacePlanner(race_of(3, confirm=0), 1)
    run_planner(planner, lambda spec: {"goodput_per_s": rates[threads(spec)] * noisy(spec, 0.0005)})
    assert not race_in(planner).departures
    assert all(effect.high < 1 for name, effect in race_in(planner).looks[-1].effects.items() if name != "threads=2")


@pytest.mark.parametrize(
    ("threads_each", "memory"), [((1.0, 2.0, 3.0), (1.0, 1.0, 1.0)), ((9.0, 9.0, 9.0), (1.003, 1.0, 0.997))]
)
def test_only_the_cheaper_of_those_that_may_be_equivalent_is_worth_more_blocks(
    threads_each: tuple[float, ...], memory: tuple[float, ...]
) -> None:
    """Settings whose costs differ only by noise count as equally cheap, and the first of the plan is named."""
    made = race_of(3)
    planner, results = RacePlanner(made, 1), []
    while len(results) < 3 and (spec := planner.ask()) is not None:
        costs = {"threads_max": threads_each[threads(spec)], "rss_bytes_max": 1e8 * memory[threads(spec)]}
        results.append(result_of(spec, {"goodput_per_s": 1000.0, **costs}))
        planner.tell(results[-1])
    cheap, leader, dear = made.settings()
    contest = Contest(
        settings=(cheap, leader, dear),
        leader=leader,
        sign=1.0,
        scale=Scale(log=True, relative=True),
        leader_mean=1000.0,
        margin=0.03,
        confidence=0.95,
        difference={cheap: -0.02, leader: 0.0, dear: -0.02},
        half={cheap: 0.05, leader: 0.0, dear: 0.05},
        half_tost={cheap: 0.04, leader: 0.0, dear: 0.04},
        shared=dict.fromkeys((cheap, leader, dear), 2),
    )
    compliance = dict.fromkeys(contest.settings, Compliance())
    table = ResponseTable(made, made.settings(), results)
    assert still_open(contest, compliance, table, contest.settings) == [cheap]


@pytest.mark.parametrize(("factor", "blocks"), [("revision", 9), ("flavour", 5)])
def test_revisions_go_on_until_they_have_a_verdict_and_settings_until_the_answer_is_known(
    factor: str, blocks: int
) -> None:
    """The second level is 2 % worse, and 0.6 to 3.4 % from start to start: never better by 3 %, and never
    equivalent."""
    made = experiment({factor: ("old", "new")}, measure={"repeats": 10}, design={"order": "race", "confirm": 0})
    planner = RacePlanner(made, 1)

    def serve_alike(spec: TrialSpec) -> Mapping[str, float]:
        loss = 0.02 + 0.014 * (-1) ** spec.block
        return {"goodput_per_s": 1000 * (1 - loss * (spec.setting.as_dict()[factor] == "new")), "threads_max": 4.0}

    run_planner(planner, serve_alike)
    assert race_in(planner).blocks == blocks


@pytest.mark.parametrize(
    ("p99_ms", "ratio", "ended_by"),
    [
        pytest.param(lambda spec: None, 0.93, "decided", id="not measured"),
        pytest.param(lambda spec: 60.0, 0.93, "decided", id="both miss the limit"),
        pytest.param(lambda spec: 60.0 if spec.block == 0 else 40.0, 0.93, "decided", id="both missed it once"),
        pytest.param(
            lambda spec: 60.0 if spec.block == 0 and spec.setting.id == "revision=new" else 40.0,
            0.93, "decided", id="the new one missed it once",
        ),
        pytest.param(lambda spec: 60.0, 1.0, "blocks", id="both miss it and serve alike"),
    ],
)  # fmt: skip
def test_revisions_that_may_violate_the_slo_race_until_they_have_a_verdict_too(
    p99_ms: Callable[[TrialSpec], float | None], ratio: float, ended_by: str
) -> None:
    """The noise is so large that a loss of 7 % takes more than the first looks."""
    objective = Objective.model_validate({"subject_to": ["p99 < 50ms"]})
    made = experiment(
        {"revision": ("old", "new")},
        objective=objective,
        measure={"repeats": 12},
        design={"order": "race", "confirm": 0},
    )
    planner = RacePlanner(made, 1)

    def serve_worse(spec: TrialSpec) -> Mapping[str, float]:
        rate = 1000 * noisy(spec, 0.02) * (ratio if spec.setting.id == "revision=new" else 1.0)
        p99 = p99_ms(spec)
        return {"goodput_per_s": rate, **({} if p99 is None else {"response_time_ns_p99": p99 * 1e6 * noisy(spec)})}

    results = run_planner(planner, serve_worse)
    race = race_in(planner)
    assert race.ended_by == ended_by
    verdict = compare_revisions(made, analyse(made, results, planner.progress)).verdict
    assert verdict is (Verdict.WORSE if ratio < 1 else Verdict.INCONCLUSIVE)


def test_looks_come_after_each_block_from_the_second_on() -> None:
    planner = RacePlanner(race_of(5), 1)
    run_planner(planner, serve)
    looks = race_in(planner).looks
    assert [look.block for look in looks] == list(range(1, len(looks) + 1))
    assert set(looks[0].effects) == {f"threads={level}" for level in range(5)}
    gone = {setting.id for setting in looks[0].left}
    assert set(looks[1].effects) == set(looks[0].effects) - gone


def test_the_winner_is_confirmed_beside_its_nearest_rival_until_fresh_starts_agree() -> None:
    analysis = run_experiment(race_of(5, confirm=4, confirm_early=True), serve)
    fresh = [trial for trial in analysis.trials if trial.stage is Stage.CONFIRM]
    assert Counter(trial.setting.id for trial in fresh) == {"threads=3": 2, "threads=4": 1}, "the figure wants two"
    race = analysis.race
    assert race is not None and race.confirmation is not None
    assert race.confirmation.upheld and race.confirmation.agrees and race.confirmation.trials == 2
    assert min(trial.block for trial in fresh) == race.looks[-1].block + 1
    assert analysis.answer.kind is AnswerKind.EQUIVALENT_SET
    assert analysis.answer.setting is not None and analysis.answer.setting.id == "threads=3", "the cheaper one"
    assert all(row.trials <= race.looks[-1].block + 1 for row in analysis.settings), "the fresh ones do not count"


def test_fresh_starts_that_do_not_agree_are_as_many_as_were_asked_for() -> None:
    def disagree(spec: TrialSpec) -> Mapping[str, float]:
        served = dict(serve(spec))
        slower = 0.9 if spec.stage is Stage.CONFIRM and threads(spec) == 3 else 1.0
        return {**served, "goodput_per_s": served["goodput_per_s"] * slower}

    analysis = run_experiment(race_of(5, confirm=4, confirm_early=True), disagree)
    fresh = [trial for trial in analysis.trials if trial.stage is Stage.CONFIRM]
    assert Counter(trial.setting.id for trial in fresh) == {"threads=3": 4, "threads=4": 4}


def test_a_race_without_confirmation_ends_with_its_last_block() -> None:
    planner = RacePlanner(race_of(5, confirm=0), 1)
    results = run_planner(planner, serve)
    assert all(result.stage is Stage.COMPARE for result in results)


def test_who_left_is_worse_by_what_was_seen_then_and_never_undecided() -> None:
    analysis = run_experiment(race_of(5), serve)
    assert analysis.race is not None
    for left in analysis.race.departures:
        row = next(row for row in analysis.settings if row.setting == left.setting)
        assert row.verdict is Verdict.WORSE and row.effect == left.effect
        assert left.setting not in analysis.answer.undecided


def test_the_same_seed_and_results_give_the_same_trials_and_who_left_changes_no_order() -> None:
    first, second = RacePlanner(race_of(5), 1), RacePlanner(race_of(5), 1)
    assert run_planner(first, serve) == run_planner(second, serve)
    assert first.progress == second.progress
    equal = RacePlanner(race_of(5, repeats=3, confirm=0), 1)
    whole = run_planner(equal, lambda spec: {"goodput_per_s": 1000 * noisy(spec, 0.2)})
    raced = run_planner(RacePlanner(race_of(5), 1), serve)
    for block in range(3):
        left = [result.setting for result in raced if result.block == block and result.stage is Stage.COMPARE]
        if left:
            assert [r.setting for r in whole if r.block == block and r.setting in left] == left


def test_planned_total_is_an_upper_bound_that_falls() -> None:
    planner = RacePlanner(race_of(5), 1)
    totals = [planner.planned_total]
    assert totals[0] == 5 * 10 + 2 * 3
    while (spec := planner.ask()) is not None:
        planner.tell(result_of(spec, serve(spec)))
        totals.append(planner.planned_total)
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] == race_in(planner).trials


def test_a_race_that_cannot_decide_takes_the_most_blocks_and_only_bounds_what_it_names() -> None:
    analysis = run_experiment(race_of(3, repeats=4), lambda spec: {"goodput_per_s": 1000 * noisy(spec, 0.3)})
    assert analysis.race is not None and analysis.race.ended_by == "blocks"
    assert analysis.answer.kind is AnswerKind.BOUNDED and analysis.answer.setting is not None
    assert analysis.race.confirmation is None and len(analysis.trials) == 12


def test_blocks_begin_on_all_nodes_at_once_where_no_trial_has_to_show_first_how_long_it_takes() -> None:
    def begun(planner: RacePlanner) -> list[int]:
        """The blocks of the trials that four nodes get before any has ended."""
        return [spec.block for spec in (planner.ask() for _ in range(4)) if spec is not None]

    free, bounded = race_of(3), race_of(3, budget="100s")
    assert begun(RacePlanner(free, 1, nodes=4)) == [0, 1, 2, 3]
    assert begun(RacePlanner(bounded, 1, nodes=4)) == [0]
    explored = RacePlanner(bounded, 1, settings=bounded.settings(), told=9, nodes=4)
    assert begun(explored) == [0, 1, 2, 3], "as many as the exploration left time for"


def test_no_block_begins_that_would_not_end_within_the_budget() -> None:
    """Each trial takes 1 s. Two blocks of three and the confirmation, one fresh start of two settings, fit into 10 s; a
    third block does not."""
    planner = RacePlanner(race_of(3, budget="10s", confirm=1), 1)
    results = run_planner(planner, lambda spec: {"goodput_per_s": 1000 * noisy(spec, 0.3)})
    assert len(results) == 6 and race_in(planner).ended_by == "budget"
    assert planner.planned_total == 6


@pytest.mark.parametrize(("budget_s", "race", "fresh"), [(5, 3, 0), (6, 6, 0), (8, 6, 2), (12, 6, 6)])
def test_a_second_block_comes_before_the_time_to_confirm(budget_s: int, race: int, fresh: int) -> None:
    """Each trial takes 1 s. One block of three names no setting, so there is nothing yet to confirm: the six fresh
    starts get what time is left after a second."""
    planner = RacePlanner(race_of(3, budget=f"{budget_s}s"), 1)
    results = run_planner(planner, lambda spec: {"goodput_per_s": 10 ** threads(spec) * noisy(spec)})
    assert Counter(result.stage for result in results) == Counter({Stage.COMPARE: race, Stage.CONFIRM: fresh})
    assert race_in(planner).ended_by == ("budget" if race == 3 else "decided")


def test_a_first_block_that_shows_to_be_longer_than_the_budget_is_cut_short() -> None:
    """Each trial takes 1 s."""
    assert len(run_planner(planner := RacePlanner(race_of(3, budget="2s"), 1), serve)) == 1
    assert planner.progress.race is not None and planner.progress.race.ended_by == "budget"
    assert planner.planned_total == 1
    assert len(run_planner(RacePlanner(race_of(3, budget="3s"), 1), serve)) == 3


def test_who_certainly_misses_a_constraint_leaves() -> None:
    made = race_of(3, objective={"subject_to": ["error_rate < 1%"]})

    def outcome(spec: TrialSpec) -> Mapping[str, float]:
        errors = 0.2 if threads(spec) == 2 else 0.0
        return {"goodput_per_s": 1000 * noisy(spec), "error_rate": errors * noisy(spec)}

    analysis = run_experiment(made, outcome)
    assert analysis.race is not None
    (left,) = analysis.race.departures
    assert left.setting.id == "threads=2" and left.effect is None and "error_rate < 1%" in left.reason
    row = next(row for row in analysis.settings if row.setting == left.setting)
    assert not row.feasible and left.setting not in analysis.answer.equivalent


def test_a_race_ends_where_no_setting_meets_the_constraints() -> None:
    made = race_of(3, objective={"subject_to": ["error_rate < 1%"]})
    analysis = run_experiment(made, lambda spec: {"goodput_per_s": 1000.0, "error_rate": 0.2 * noisy(spec)})
    assert analysis.race is not None and analysis.race.ended_by == "decided"
    assert analysis.answer.kind is AnswerKind.NONE_FEASIBLE and len(analysis.trials) < 30


def test_who_only_fails_leaves_without_an_effect() -> None:
    made = race_of(3)
    analysis = run_experiment(made, lambda spec: "not_ready" if threads(spec) == 0 else serve_well(spec))
    assert analysis.race is not None
    left = next(left for left in analysis.race.departures if left.setting.id == "threads=0")
    assert left.effect is None and "because of not_ready" in left.reason
    assert analysis.answer.setting is not None


@pytest.mark.parametrize("order", ["race", "blocks"])
@pytest.mark.parametrize("code", ["not_ready", "died"])
def test_a_slow_first_start_bars_no_setting(code: str, order: str) -> None:
    """The best of all settings has the first start of the run."""
    best = list[Setting]()

    def serve(spec: TrialSpec) -> Mapping[str, float] | str:
        if not best:
            best.append(spec.setting)
            return code
        return {"goodput_per_s": (1200 if spec.setting == best[0] else 1000) * noisy(spec), "threads_max": 1.0}

    analysis = run_experiment(race_of(3, repeats=4, order=order), serve)
    first, second, *_ = [trial for trial in analysis.trials if trial.setting == best[0]]
    assert (second.block, second.attempt) == (first.block, 2), "it has its repeat in the same round"
    named = analysis.answer.setting == best[0]
    assert named is (code == "not_ready")
    assert any("the first start failed" in warning for warning in analysis.warnings) is named


def serve_well(spec: TrialSpec) -> Mapping[str, float]:
    return {"goodput_per_s": 1000 * noisy(spec), "threads_max": threads(spec)}


def test_a_less_is_better_race() -> None:
    made = race_of(3, objective={"metric": "response_time_ns_p99", "direction": "minimise"})
    analysis = run_experiment(made, lambda spec: {"response_time_ns_p99": (1e6, 2e6, 3e6)[threads(spec)] * noisy(spec)})
    assert analysis.answer.kind is AnswerKind.BEST
    assert analysis.answer.setting is not None and analysis.answer.setting.id == "threads=0"
    assert analysis.race is not None and "% worse than threads=0" in analysis.race.departures[0].reason


@pytest.mark.parametrize("code", ["host_steal", "interrupted"])
def test_what_does_not_count_is_run_again(code: str) -> None:
    planner = RacePlanner(race_of(3, confirm=0), 1)
    results = run_planner(planner, lambda spec: code if spec.number == 2 else serve_well(spec))
    again = [result for result in results if result.setting == results[1].setting and result.block == 0]
    assert [result.valid for result in again] == [False, True]


@pytest.mark.parametrize(("code", "attempts"), [("generator_cpu", 2), ("host_steal", 3)])
def test_what_the_load_engine_limits_twice_gets_no_third_attempt_that_may_be_slow_enough(
    code: str, attempts: int
) -> None:
    """The third attempt at threads=2 would count."""
    planner = RacePlanner(race_of(3, repeats=2, confirm=0), 1)
    results = run_planner(planner, lambda spec: code if threads(spec) == 2 and spec.attempt < 3 else serve_well(spec))
    first = [result for result in results if result.setting.id == "threads=2" and result.block == 0]
    assert [result.attempt for result in first] == list(range(1, attempts + 1))


def test_a_race_of_some_of_the_settings_is_confirmed_too() -> None:
    """After an exploration, settings that never raced must not prevent an answer."""
    made = race_of(5)
    planner = RacePlanner(made, 1, settings=made.settings()[2:], told=4)
    results = run_planner(planner, serve)
    assert results[0].number == 5
    assert {result.setting.id for result in results if result.stage is Stage.CONFIRM} == {"threads=3", "threads=4"}
    assert race_in(planner).trials == len(results)


def test_a_winner_that_misses_a_constraint_afresh_is_no_answer() -> None:
    made = race_of(3, objective={"subject_to": ["p99 < 50ms"]})

    def outcome(spec: TrialSpec, late_ms: float = 55) -> Mapping[str, float]:
        p99_ns = (late_ms if spec.stage is Stage.CONFIRM else 45) * 1e6
        rate = RATES[threads(spec)] * noisy(spec)
        return {"goodput_per_s": rate, "response_time_ns_p99": p99_ns * noisy(spec, 0.001)}

    analysis = run_experiment(made, outcome)
    assert analysis.race is not None and analysis.race.confirmation is not None
    found = analysis.race.confirmation
    assert not found.upheld and "misses p99 < 50ms: it was 55" in found.sentence
    assert analysis.answer.kind is AnswerKind.NOT_ENOUGH_DATA and analysis.answer.setting is None
    said = " ".join(analysis.answer.sentences)
    assert "fresh starts of it broke p99 < 50ms (it was 55" in said and "quieter machine" not in said
    assert run_experiment(made, lambda spec: outcome(spec, 45)).answer.setting is not None


def test_a_race_goes_on_without_a_winner_that_fails_a_fresh_start() -> None:
    """The settings that the failed winner had beaten return to the race, and the best of them is named."""
    made = race_of(3)
    best = run_experiment(made, serve).answer.setting
    assert best is not None
    failed = []

    def outcome(spec: TrialSpec) -> Mapping[str, float] | str:
        if spec.stage is Stage.CONFIRM and spec.setting == best and not failed:
            failed.append(spec.number)
            return "died"
        return serve(spec)

    analysis = run_experiment(made, outcome)
    assert analysis.race is not None and failed
    assert analysis.answer.setting not in (None, best)
    assert f"{best.id} gave" in analysis.answer.sentences[0] and "but failed 1 of" in analysis.answer.sentences[0]
    assert [departure.setting for departure in analysis.race.departures if not departure.worse] == [best]


def test_a_winner_that_fails_its_last_fresh_start_costs_neither_rounds_nor_the_next_confirmation() -> None:
    """threads=2 serves twice as much, and dies in its third fresh start; the others are alike."""

    def outcome(spec: TrialSpec) -> Mapping[str, float] | str:
        if threads(spec) == 2 and spec.block == 4:
            return "died"
        return {"goodput_per_s": (500.0, 500.0, 1000.0)[threads(spec)] * noisy(spec, 0.006), "threads_max": 1.0}

    made = race_of(3, repeats=5)
    results = run_planner(planner := RacePlanner(made, 1), outcome)
    rounds = {result.block for result in results if result.stage is Stage.COMPARE}
    assert rounds > {0, 1} and not rounds & {2, 3, 4}
    fresh = Counter(result.setting.id for result in results if result.block > max(rounds))
    assert fresh == {"threads=0": 3, "threads=1": 3}
    assert replay(made, results).progress == planner.progress


def test_the_next_winner_gets_the_fresh_starts_that_still_fit_into_the_budget() -> None:
    """Each trial takes 1 s: two rounds of three settings, and two fresh starts of two, take 10 s. threads=2 breaks an
    invariant in the last of them; 12 s leave time for one fresh start of the two others."""

    def outcome(spec: TrialSpec) -> Mapping[str, float] | str:
        if threads(spec) == 2 and spec.block == 3:
            return "invariant"
        return {"goodput_per_s": 10 ** threads(spec) * noisy(spec)}

    results = run_planner(RacePlanner(race_of(3, repeats=2, budget="12s", confirm=2), 1), outcome)
    last = [result for result in results if result.block > 3]
    assert {result.stage for result in last} == {Stage.CONFIRM}
    assert Counter(result.setting.id for result in last) == {"threads=0": 1, "threads=1": 1}


def test_where_every_fresh_start_fails_no_setting_is_named() -> None:
    analysis = run_experiment(race_of(2), lambda spec: "died" if spec.stage is Stage.CONFIRM else serve(spec))
    assert analysis.answer.setting is None
    assert "failed" in " ".join(analysis.answer.sentences)


def test_where_no_fresh_start_counts_the_answer_stands_and_says_so() -> None:
    analysis = run_experiment(race_of(3), lambda spec: "host_steal" if spec.stage is Stage.CONFIRM else serve(spec))
    assert analysis.answer.setting is not None and analysis.race is not None
    assert "It is not confirmed: no fresh start was valid (because of host_steal)" in analysis.answer.sentences[1]


def test_half_a_block_changes_no_verdict() -> None:
    planner, results = RacePlanner(race_of(5), 1), []
    while len(results) < 13:  # two blocks of five, and a part of the third
        spec = planner.ask()
        assert spec is not None
        results.append(result_of(spec, {"goodput_per_s": 1000 * noisy(spec), "threads_max": 1.0}))
        planner.tell(results[-1])
    made = race_of(5)
    whole = analyse(made, results[:10], replay(made, results[:10]).progress)
    half = analyse(made, results, planner.progress)
    assert [row.effect for row in half.settings] == [row.effect for row in whole.settings]
    assert {row.trials for row in half.settings} == {2}


def stopped_at_the_named_one(
    made: Experiment, block: int, result: Callable[[TrialSpec, bool], TrialResult]
) -> tuple[Setting, Analysis]:
    """Stops a race once the setting that its rounds before `block` name has had its trial in that one; returns it and
    what is found. `result`: that of a trial; True for the last."""
    planner, results, named = RacePlanner(made, 1), list[TrialResult](), None
    while (spec := planner.ask()) is not None:
        if spec.block == block and named is None:
            named = analyse(made, results, planner.progress).answer.setting
        last = spec.setting == named
        results.append(result(spec, last))
        planner.tell(results[-1])
        if last:
            break
    assert named is not None and race_in(planner).half == (block,)
    found = analyse(made, results, at_rest(planner.progress))
    assert found.answer.setting != named
    return named, found


def equally_served(spec: TrialSpec) -> dict[str, float]:
    return {"goodput_per_s": 1000 * noisy(spec), "threads_max": 1.0 + threads(spec)}


def test_a_start_that_failed_in_half_a_block_is_a_fact_all_the_same() -> None:
    """The setting that two rounds of equal settings name dies in the third, and the race is stopped."""
    named, found = stopped_at_the_named_one(
        race_of(3, confirm=0), 2, lambda spec, last: result_of(spec, "died" if last else equally_served(spec))
    )
    assert not next(row.feasible for row in found.settings if row.setting == named)


@pytest.mark.parametrize("design", [{}, {"screen": "500ms"}], ids=["full", "short"])
def test_a_race_that_is_stopped_in_its_first_round_has_measured_its_objective(design: dict[str, str]) -> None:
    made = race_of(4, **design)
    planner, results = RacePlanner(made, 1), list[TrialResult]()
    while len(results) < 3 and (spec := planner.ask()) is not None:
        results.append(result_of(spec, serve(spec)))
        planner.tell(results[-1])
    found = analyse(made, results, at_rest(planner.progress))
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA and found.answer.setting is None
    assert found.answer.sentences[0].endswith(": the first round of the race is not over.")
    reasons = Counter(row.infeasible_because for row in found.settings)
    assert reasons == {("no round with it is over yet",): 3, ("it was not tried yet",): 1}


def test_a_condition_that_was_broken_in_half_a_block_is_one_all_the_same() -> None:
    def result(spec: TrialSpec, slow: bool) -> TrialResult:
        p99_ns = (90e6 if slow else 20e6) * noisy(spec)
        return result_of(spec, {**equally_served(spec), "response_time_ns_p99": p99_ns})

    made = race_of(3, confirm=0, objective={"subject_to": ["p99 < 50ms"]})
    named, found = stopped_at_the_named_one(made, 3, result)
    (row,) = [row for row in found.settings if row.setting == named]
    assert row.infeasible_because == ("p99 < 50ms: broken in a start of a round that was not over",)


def test_half_a_block_is_no_look_at_a_claim_either() -> None:
    claim = Claim(id="c", says="c", holds="goodput[threads=4] > goodput[threads=3]")
    made = race_of(5).model_copy(update={"claims": (claim,)})
    planner, results = RacePlanner(made, 1), []
    while len(results) < 13 and (spec := planner.ask()) is not None:
        results.append(result_of(spec, {"goodput_per_s": 1000 * noisy(spec), "threads_max": 1.0}))
        planner.tell(results[-1])
    half = analyse(made, results, planner.progress)
    whole = analyse(made, results[:10], replay(made, results[:10]).progress)
    assert half.claims == whole.claims


def test_who_is_only_worse_than_one_that_fails_later_comes_back() -> None:
    """threads=0 leaves as 10 % worse than threads=2, which fails its fourth start. From then on it serves like
    threads=1, which nothing in its first three rounds could show."""

    def outcome(spec: TrialSpec) -> Mapping[str, float] | str:
        if threads(spec) == 2 and spec.block >= 3:
            return "died"
        rate = (900.0 if spec.block < 3 else 985.0, 980.0, 1000.0)[threads(spec)]
        return {"goodput_per_s": rate * noisy(spec, 0.003), "threads_max": 1.0 + threads(spec)}

    planner = RacePlanner(race_of(3, confirm=0), 1)
    results = run_planner(planner, outcome)
    assert any(left.id == "threads=0" for look in race_in(planner).looks for left in look.left)
    assert [left.setting.id for left in race_in(planner).departures] == ["threads=2"]
    analysis = analyse(race_of(3, confirm=0), results, planner.progress)
    assert analysis.answer.kind is AnswerKind.BOUNDED
    assert next(row.verdict for row in analysis.settings) is Verdict.INCONCLUSIVE


def test_who_was_worse_than_a_leader_at_zero_stays_worse() -> None:
    made = race_of(3, objective={"metric": "error_rate", "direction": "minimise"})
    analysis = run_experiment(made, lambda spec: {"error_rate": 0.2 * noisy(spec) if threads(spec) == 2 else 0.0})
    assert analysis.race is not None
    (left,) = analysis.race.departures
    assert left.worse and left.effect is None
    assert [row.verdict for row in analysis.settings][2] is Verdict.WORSE


def test_the_points_by_which_a_setting_that_left_is_worse_are_those_of_when_it_left() -> None:
    """The errors of the others fall to a tenth in later rounds: a ratio to the leader then is none to it now."""
    made = race_of(3, repeats=6, confirm=0, objective={"metric": "error_rate", "direction": "minimise"})

    def errors(spec: TrialSpec) -> Mapping[str, float]:
        share = 0.9 if threads(spec) == 2 else 0.02 if spec.block < 2 else 0.002
        return {"error_rate": abs(share + 0.02 * (noisy(spec, 0.2) - 1)), "threads_max": 1.0 + threads(spec)}

    analysis = run_experiment(made, errors)
    assert analysis.race is not None and analysis.race.blocks > 2
    (left,) = (each for each in analysis.race.departures if each.setting.id == "threads=2")
    points = left.reason.partition(" worse than ")[0]
    assert "percentage points" in points and f" by {points}" in " ".join(analysis.answer.sentences), left.reason


def test_who_certainly_breaks_a_constraint_rests_while_nobody_leads() -> None:
    made = race_of(4, objective={"subject_to": ["p99 < 50ms"]})

    def outcome(spec: TrialSpec) -> Mapping[str, float]:
        late_ns = 50e6 * (1 + 0.2 * (-1) ** spec.block) if threads(spec) == 0 else 100e6 * noisy(spec)
        return {"goodput_per_s": 1000 * noisy(spec), "response_time_ns_p99": late_ns}

    trials = run_experiment(made, outcome).trials
    ran = Counter(trial.setting.id for trial in trials)
    # threads=0 runs until it is certain that more of its starts break the constraint than by chance.
    assert 10 >= ran["threads=0"] > max(ran[f"threads={level}"] for level in (1, 2, 3))


def replay(made: Experiment, results: list[TrialResult]) -> RacePlanner:
    planner = RacePlanner(made, 1)
    for result in results:
        assert planner.ask() is not None
        planner.tell(result)
    return planner


def test_a_limit_whose_intervals_are_endless_after_two_blocks_ends_no_race() -> None:
    made = race_of(16, objective={"subject_to": ["p99 < 50ms"]})

    def outcome(spec: TrialSpec) -> Mapping[str, float]:
        p99_ns = 10e6 * (4 if spec.block % 2 and threads(spec) == 3 else 1) * noisy(spec)
        return {"goodput_per_s": 1000 * noisy(spec), "response_time_ns_p99": p99_ns}

    assert run_experiment(made, outcome).race is not None


def test_where_nobody_may_be_the_answer_blocks_are_counted_all_the_same() -> None:
    made = race_of(3, objective={"constraints": ["p99 < 1ms"]})
    analysis = run_experiment(made, lambda spec: {**serve(spec), "response_time_ns_p99": 9e6 * noisy(spec)})
    race = analysis.race
    assert race is not None and race.ended_by == "decided" and race.blocks >= 2
    assert analysis.answer.kind is AnswerKind.NONE_FEASIBLE


def test_a_budget_is_not_blamed_where_every_setting_only_fails() -> None:
    made = race_of(3, budget="10m")
    analysis = run_experiment(made, lambda spec: "not_ready")
    assert analysis.answer.kind is AnswerKind.NONE_VALID
    assert "budget" not in " ".join(analysis.answer.sentences)


@pytest.mark.parametrize(
    ("lower_ns", "kind"),
    [
        pytest.param(640e6, AnswerKind.BEST, id="lies above"),
        pytest.param(1e6, AnswerKind.NOT_ENOUGH_DATA, id="lies below"),
        pytest.param(None, AnswerKind.NOT_ENOUGH_DATA, id="none"),
    ],
)
def test_a_setting_with_too_few_requests_for_a_p99_keeps_no_race_open(lower_ns: float | None, kind: AnswerKind) -> None:
    made = race_of(3, objective={"metric": "response_time_ns_p99", "direction": "minimise"})

    def serve_late(spec: TrialSpec) -> Mapping[str, float]:
        if threads(spec) == 0:
            return {} if lower_ns is None else {"response_time_ns_p50": lower_ns * noisy(spec)}
        return {"response_time_ns_p99": (0, 20e6, 40e6)[threads(spec)] * noisy(spec)}

    planner = RacePlanner(made, 1)
    results = run_planner(planner, serve_late)
    race = race_in(planner)
    assert race.ended_by == "decided" and race.blocks <= 3
    found = analyse(made, results, planner.progress)
    assert found.answer.kind is kind
    if kind is AnswerKind.BEST:
        assert found.answer.setting is not None and found.answer.setting.id == "threads=1"
        assert any(left.reason.startswith("at least ") for left in race.departures)


@pytest.mark.parametrize("lacks", ["objective", "condition"])
def test_a_race_that_more_rounds_cannot_decide_ends_after_two(lacks: str) -> None:
    objective = {"metric": "response_time_ns_p99", "direction": "minimise"}
    made = race_of(3, objective=objective if lacks == "objective" else {"subject_to": ["p99 < 50ms"]})
    few = {"goodput_per_s": 50.0, "response_time_ns_p50": 10e6, "error_rate": 0.0}
    planner = RacePlanner(made, 1)
    assert len(run_planner(planner, lambda _: few)) == 6
    assert race_in(planner).ended_by == "blocks" and planner.progress.to_come == 0


@pytest.mark.parametrize("objective", [None, {"subject_to": ["p99 < 50ms"]}])
def test_the_plan_of_a_race_shows_all_its_rounds(objective: Mapping[str, object] | None) -> None:
    assert [spec.block for spec in dry_run(race_of(3, repeats=5, objective=objective), 1)] == sorted(3 * [*range(5)])


def test_a_race_in_which_one_setting_has_what_others_lack_goes_on() -> None:
    def serve_some(spec: TrialSpec) -> Mapping[str, float]:
        p99 = {"response_time_ns_p99": 50e6 * noisy(spec, 0.1)} if threads(spec) == 2 else {}
        return {"goodput_per_s": 50.0, "response_time_ns_p50": 10e6, "error_rate": 0.0, **p99}

    planner = RacePlanner(race_of(3, objective={"subject_to": ["p99 < 50ms"]}), 1)
    assert len(run_planner(planner, serve_some)) > 6
