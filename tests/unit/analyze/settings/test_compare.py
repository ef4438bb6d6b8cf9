from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from fakes.contests import SAVING, judged, noisy, results, setting
from fakes.trials import experiment
from powerband.analyze.settings.compare import Progress, analyse
from powerband.analyze.settings.contest import ResponseTable, compliance_of, hold_contest, scale_of
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Design, Measure, Objective
from powerband.model.load import Load
from powerband.model.plan import Setting, Stage
from powerband.model.results import NODE_LOST, AnswerKind, Problem, TrialResult, Verdict


def test_a_clear_winner_is_named_with_its_distance() -> None:
    analysis = judged(results({1: noisy(100, 1), 2: noisy(200, 2), 4: noisy(400, 3)}))
    assert analysis.answer.kind is AnswerKind.BEST
    assert analysis.answer.setting == setting(4)
    assert [row.verdict for row in analysis.settings] == [Verdict.WORSE, Verdict.WORSE, Verdict.EQUIVALENT]
    effect = analysis.settings[1].effect
    assert effect is not None and effect.low is not None and effect.high is not None
    assert effect.low < 0.5 < effect.high
    assert len(analysis.answer.sentences) >= 3 and "threads=4" in analysis.answer.sentences[0]


def test_the_answer_says_how_often_its_setting_was_started_and_what_that_can_miss() -> None:
    said = judged(results({1: noisy(100, 1), 2: noisy(200, 2), 4: noisy(400, 3)})).answer.sentences[1]
    assert "All 5 starts of threads=4 worked; so few can miss a fault that occurs in up to 45 % of starts." in said
    alone = analyse(experiment({"threads": (4,)}), results({4: [400.0]})).answer.sentences[1]
    assert "The only start of threads=4 worked; one can miss a fault that occurs in up to 95 % of starts." in alone


def test_what_needs_least_because_it_serves_least_says_so() -> None:
    """Users who wait ask nothing: the slowest setting needs the least memory."""
    trials = results({4: noisy(195, 1), 16: noisy(790, 2), 64: noisy(3140, 3)})
    found = judged(trials, (4, 16, 64), **SAVING).answer
    assert found.setting == setting(4)
    said = " It serves 195/s, threads=64 3,136/s: set what it must serve (--slo 'goodput>...')."
    assert said in found.sentences[0]
    assert "threads=4 is the smallest value tried." in found.sentences[1]
    p99 = {threads: {"response_time_ns_p99": 1e6 * threads} for threads in (4, 16, 64)}
    quick = results({4: noisy(195, 1), 16: noisy(790, 2), 64: noisy(3140, 3)}, p99)
    assert said in judged(quick, (4, 16, 64), metric="response_time_ns_p99", direction="minimise").answer.sentences[0]


def test_where_a_goodput_is_asked_for_or_all_serve_alike_nothing_is_said_of_it() -> None:
    differ = results({4: noisy(195, 1), 16: noisy(790, 2), 64: noisy(3140, 3)})
    asked = judged(differ, (4, 16, 64), **SAVING, subject_to=["goodput > 500"]).answer
    assert asked.setting == setting(16) and "serves" not in asked.sentences[0]
    barred = judged(differ, (4, 16, 64), **SAVING, subject_to=["memory < 10MB"]).answer
    assert barred.setting == setting(4) and "serves" not in barred.sentences[0], "the others are not allowed"
    alike = judged(results({threads: noisy(400, threads) for threads in (4, 16, 64)}), (4, 16, 64), **SAVING).answer
    assert "serves" not in alike.sentences[0]
    assert "threads=4 is the smallest value tried: try smaller ones too." in alike.sentences[1]
    noise = results({4: noisy(400, 1, sd=0.3), 16: noisy(420, 2, sd=0.3), 64: noisy(440, 3, sd=0.3)})
    assert "serves" not in judged(noise, (4, 16, 64), **SAVING).answer.sentences[0], "not certain"


def test_a_distance_has_one_decimal_at_most() -> None:
    rows = results({1: noisy(940, 1), 2: noisy(500, 2), 4: noisy(1000, 3)})
    said = judged(rows).answer.sentences[1]
    assert re.search(r"the best of them, threads=1, by \d+\.\d to \d+\.\d %", said), said


def test_a_winner_that_may_be_ahead_by_less_than_matters_says_so() -> None:
    """The leader is four and ten percent ahead of the others; the margin is 3 %."""
    found = judged(results({1: noisy(900, 1), 2: noisy(960, 2), 4: noisy(1000, 3)}))
    assert (found.answer.kind, found.answer.setting) == (AnswerKind.BEST, setting(4))
    assert found.answer.close == (setting(2),)
    assert "The difference to threads=2 may be under 3 %." in found.answer.sentences[1]


@pytest.mark.parametrize(("times", "close"), [(1, (setting(4),)), (10, ())])
def test_a_winner_without_any_error_may_be_ahead_by_less_than_matters_too(
    times: int, close: tuple[Setting, ...]
) -> None:
    """No request of threads=1 fails, of threads=4 so many times 2.1 to 4.3 %; the margin is 3 percentage points."""
    shares = {1: [0.0] * 5, 4: [times * share for share in (0.022, 0.042, 0.032, 0.026, 0.038)]}
    trials = [
        replace(
            trial, metrics={**trial.metrics, "error_rate": shares[int(trial.setting.as_dict()["threads"])][trial.block]}
        )
        for trial in results({1: noisy(100, 1), 4: noisy(100, 2)})
    ]
    found = judged(trials, (1, 4), metric="error_rate", direction="minimise").answer
    assert (found.kind, found.setting, found.close) == (AnswerKind.BEST, setting(1), close)
    assert ("The difference to threads=4 may be under 3 " in found.sentences[1]) is bool(close)


@pytest.mark.parametrize("least", [500.0, 0.0])
def test_two_rounds_that_agree_by_luck_decide_little_on_any_scale(least: float) -> None:
    """Where a setting serves nothing, rates are compared by differences instead of ratios."""
    made, rates = experiment({"threads": (1, 2, 4)}), {setting(1): least, setting(2): 950.0, setting(4): 1000.0}
    trials = results(dict.fromkeys((1, 2, 4), (1.0, 1.0)))
    trials = [replace(trial, metrics={"goodput_per_s": rates[trial.setting]}) for trial in trials]
    table = ResponseTable(made, made.settings(), trials)
    contest = hold_contest(made, table, scale_of(table), compliance_of(table))
    verdicts = [contest.verdict(setting(threads)) for threads in (1, 2, 4)]
    assert verdicts == [Verdict.WORSE, Verdict.INCONCLUSIVE, Verdict.EQUIVALENT]


@pytest.mark.parametrize("repeats", [1, 10])
def test_a_plan_of_enough_rounds_that_is_not_over_is_not_told_to_have_more(repeats: int) -> None:
    made = experiment({"threads": (1, 2)}, measure=Measure(repeats=repeats))
    said = analyse(made, results({1: [100.0], 2: [200.0]}), Progress(to_come=2 * repeats - 2)).answer.sentences[1]
    assert said.startswith("One trial of each setting cannot tell")
    assert ("Run at least 3 rounds" in said) is (repeats == 1)


def test_where_the_setting_to_use_does_not_lead_the_others_are_worse_than_the_leader() -> None:
    rates = {1: noisy(100, 1), 2: noisy(399, 2, sd=0.001), 4: noisy(400, 3, sd=0.001)}
    found = judged(results(rates)).answer
    assert (found.setting, found.leader) == (setting(2), setting(4))
    assert "threads=1 is worse than threads=4 by 7" in found.sentences[1]


def test_noise_gives_no_answer_but_the_candidates() -> None:
    loud = {1: noisy(100, 1, sd=0.9), 2: noisy(100, 2, sd=0.9), 4: noisy(100, 3, sd=0.9)}
    answer = judged(results(loud)).answer
    assert answer.kind is AnswerKind.NOT_ENOUGH_DATA
    assert answer.setting is None and answer.leader is not None and answer.undecided


def test_one_block_is_never_enough() -> None:
    answer = judged(results({1: [100.0], 2: [200.0], 4: [400.0]})).answer
    assert answer.kind is AnswerKind.NOT_ENOUGH_DATA and answer.setting is None
    assert answer.leader == setting(4)
    assert "One trial" in answer.sentences[1]


def test_lower_is_better_where_the_objective_says_so() -> None:
    slow = {1: noisy(9e6, 1), 2: noisy(3e6, 2), 4: noisy(900e6, 3)}
    trials = results({1: [1.0] * 5, 2: [1.0] * 5, 4: [1.0] * 5})
    trials = [
        TrialResult(t.number, t.block, 1, t.setting, "measured", (), {"response_time_ns_p99": values[t.block]})
        for t in trials
        for values in [slow[int(t.setting.as_dict()["threads"])]]
    ]
    analysis = judged(trials, metric="response_time_ns_p99", direction="minimise")
    assert analysis.answer.setting == setting(2)
    effect = analysis.settings[0].effect
    assert effect is not None and effect.value == pytest.approx(3, rel=0.02)
    assert "Every other setting is worse; the best of them, threads=1, by 1" in analysis.answer.sentences[1]


def test_a_setting_that_is_hundreds_of_times_worse_is_worse_by_a_factor() -> None:
    """Percentages of thirty thousand are hard to read."""
    times_ns = {1: noisy(6e6, 1), 2: noisy(2e9, 2)}
    trials = [
        replace(trial, metrics={"response_time_ns_mean": times_ns[trial.setting.as_dict()["threads"]][trial.block]})
        for trial in results({1: [1.0] * 5, 2: [1.0] * 5})
    ]
    analysis = judged(trials, (1, 2), metric="response_time_ns_mean", direction="minimise")
    assert re.search(r"threads=2 is worse by a factor of 3[23]\d to 3[34]\d\.", analysis.answer.sentences[1])


def test_none_feasible_and_none_valid() -> None:
    extra = {n: {"error_rate": 0.2} for n in (1, 2, 4)}
    trials = results({1: noisy(100, 1), 2: noisy(200, 2), 4: noisy(400, 3)}, extra)
    assert judged(trials, subject_to=["error_rate < 1%"]).answer.kind is AnswerKind.NONE_FEASIBLE
    nothing = judged(results({1: [None], 2: [None], 4: [None]}))
    assert nothing.answer.kind is AnswerKind.NONE_VALID
    assert "disturbed" in nothing.answer.sentences[1]
    assert judged([]).answer.kind is AnswerKind.NONE_VALID


def test_missing_cells_leave_the_rest_comparable() -> None:
    values: dict[int, list[float | None]] = {1: [*noisy(100, 1)], 2: [*noisy(200, 2)], 4: [*noisy(400, 3)]}
    values[1][0] = values[2][1] = values[4][2] = None
    analysis = judged(results(values))
    assert analysis.answer.kind is AnswerKind.BEST
    assert [row.trials for row in analysis.settings] == [4, 4, 4]
    assert [row.invalid for row in analysis.settings] == [1, 1, 1]


def test_the_last_valid_attempt_of_a_cell_counts() -> None:
    trials = results({1: [100.0, 101.0, 99.0], 2: [50.0, 51.0, 50.0]})
    again = TrialResult(99, 0, 2, setting(1), "measured", (), {"goodput_per_s": 102.0})
    row = judged([*trials, again], (1, 2)).settings[0]
    assert row.trials == 3
    assert row.estimates["goodput_per_s"].value == pytest.approx((102 * 101 * 99) ** (1 / 3), rel=1e-9)


def test_a_share_is_compared_by_difference_so_that_zero_is_a_value() -> None:
    trials = [
        TrialResult(i, i % 5, 1, setting(1 + i // 5), "measured", (), {"error_rate": 0.0 if i < 5 else 0.5})
        for i in range(10)
    ]
    analysis = judged(trials, (1, 2), metric="error_rate", direction="minimise")
    assert analysis.answer.setting == setting(1)
    assert analysis.settings[1].verdict is Verdict.WORSE


def test_the_json_shape_is_plain() -> None:
    data = judged(results({1: noisy(100, 1), 2: noisy(200, 2), 4: noisy(400, 3)})).to_json()
    assert data["format"] == 1 and data["answer"]["setting"] == {"id": "threads=4", "levels": {"threads": 4}}


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        (["generator_cpu"], "not_enough_data"),
        (["no_request_ok"], "best"),
        (["no_request_ok", "host_steal"], "not_enough_data"),
    ],
)
def test_what_could_not_be_measured_is_not_worse(codes: list[str], kind: str) -> None:
    """A setting whose trials the generator spoilt, or the machine, may be the best of all; one that answers nothing
    though nothing else was wrong is eliminated by its own fault."""
    why = tuple(Problem(code, "this is why") for code in codes)
    trials = results({1: noisy(100, 1), 2: noisy(200, 2)})
    trials += [TrialResult(20 + block, block, 1, setting(4), "measured", why, {}) for block in range(5)]
    answer = judged(trials).answer
    assert answer.kind == kind
    assert "Every other" not in " ".join(answer.sentences) and "this is why" in answer.sentences[1]


def test_a_setting_that_answers_nothing_is_out_also_where_one_of_its_trials_was_disturbed() -> None:
    trials, nothing = results({1: noisy(100, 1), 2: noisy(200, 2)}), Problem("no_request_ok", "it answers nothing")
    for block in range(5):
        why = (Problem("host_steal", "the machine was disturbed"), nothing) if block == 0 else (nothing,)
        trials.append(TrialResult(20 + block, block, 1, setting(4), "measured", why, {}))
    answer = judged(trials).answer
    assert answer.kind is AnswerKind.BEST and "threads=4 failed: it answers nothing" in answer.sentences[1]


def test_a_finalist_that_fails_every_trial_of_the_race_is_out_whatever_its_first_look_gave() -> None:
    race = tuple(map(setting, (1, 2, 4)))
    look = TrialResult(1, 0, 1, setting(4), "measured", (), {"goodput_per_s": 900.0}, stage=Stage.EXPLORE)
    died = (Problem("died", "it was killed"),)
    trials = [look, *results({1: noisy(100, 1), 2: noisy(200, 2)})]
    trials += [TrialResult(20 + block, block, 1, setting(4), "failed", died, {}) for block in range(5)]
    answer = analyse(experiment({"threads": (1, 2, 4)}), trials, Progress(raced=race)).answer
    assert answer.kind is AnswerKind.BEST and answer.setting == setting(2)


@pytest.mark.parametrize("doubt", ["rising", "generator_cpu"])
def test_what_else_the_trials_of_a_setting_with_a_failed_start_leave_open_withholds_no_answer(doubt: str) -> None:
    """threads=4 may be the faster one, but may not fail a start."""
    trials = results({2: noisy(1000, 1, 8), 4: [*noisy(960, 2, 5), *[None] * 3]})
    codes = {5: "generator_cpu", 6: "generator_cpu", 7: "died"} if doubt == "generator_cpu" else {7: "died"}
    for at, trial in enumerate(trials):
        if trial.setting == setting(4):
            code = codes.get(trial.block)
            status, why = ("failed" if code == "died" else "measured"), (Problem(code, "so it is"),) if code else ()
            problems = why or trial.problems
            trials[at] = replace(trial, rising=doubt == "rising", status=status, problems=problems)
    answer = judged(trials, (2, 4)).answer
    assert answer.kind is AnswerKind.BEST and answer.setting == setting(2)
    assert "threads=4 failed 1 of" in answer.sentences[1]


@pytest.mark.parametrize(("metric", "others"), [("error_rate", 0.5), ("accept_overflows", 12.0)])
def test_a_leader_at_zero_has_no_ratio_and_the_answer_is_json_all_the_same(metric: str, others: float) -> None:
    values = {1: [0.0] * 5, 2: [others] * 5, 4: [2 * others] * 5}
    trials = [
        replace(t, metrics={metric: values[int(t.setting.as_dict()["threads"])][t.block]})
        for t in results({threads: [1.0] * 5 for threads in values})
    ]
    analysis = judged(trials, metric=metric, direction="minimise")
    assert analysis.answer.setting == setting(1)
    assert [row.effect for row in analysis.settings] == [None, None, None]
    assert "nan" not in " ".join(analysis.answer.sentences)
    json.dumps(analysis.to_json(), allow_nan=False)


@pytest.mark.parametrize(("limited", "kind"), [(1, AnswerKind.BEST), (2, AnswerKind.NOT_ENOUGH_DATA)])
def test_a_setting_that_the_generator_limits_twice_is_not_called_worse(limited: int, kind: AnswerKind) -> None:
    """threads=4 is as fast as threads=2 or faster: its valid trials are those in which it happened to be slower."""
    trials = results({2: noisy(1000, 1), 4: [*noisy(960, 2, 5 - limited), *[None] * limited]})
    full = (Problem("generator_cpu", "an engine thread used 96 % of a CPU"),)
    trials = [trial if trial.valid else replace(trial, problems=full) for trial in trials]
    found = judged(trials, (2, 4))
    assert found.answer.kind is kind
    if limited == 2:
        assert found.answer.undecided == (setting(4),)
        assert (
            "threads=4 cannot be judged yet: at least two of its trials left the load generator"
            in found.answer.sentences[1]
        )


@pytest.mark.parametrize("over", [1, 5])
def test_a_setting_whose_work_was_over_too_early_is_neither_worse_nor_passed_over(over: int) -> None:
    """threads=4 may be the fastest; where it hung instead, its other trials say nothing of that."""
    trials = results({2: noisy(1000, 1), 4: [*noisy(960, 2, 5 - over), *[None] * over]})
    ended = (Problem("work_ended", "the program ended before the window did; its last log lines:\n  done"),)
    trials = [trial if trial.valid else replace(trial, status="failed", problems=ended) for trial in trials]
    found = judged(trials, (2, 4))
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA
    assert found.answer.undecided == (setting(4),)
    assert "threads=4" in found.answer.sentences[1] and "the program ended before" in found.answer.sentences[1]


def test_a_setting_whose_work_was_over_before_the_race_is_told_of() -> None:
    ended = (Problem("work_ended", "the program ended before the window did"),)
    over = TrialResult(99, 0, 1, setting(4), "failed", ended, {}, stage=Stage.EXPLORE)
    made, race = experiment({"threads": (1, 2, 4)}), (setting(1), setting(2))
    found = analyse(made, [*results({1: noisy(100, 1), 2: noisy(200, 2)}), over], Progress(raced=race))
    assert found.answer.setting == setting(2)
    said = "threads=4 could not be measured, and may be better: the program ended before the window did"
    assert said in found.warnings


@pytest.mark.parametrize(
    ("shares", "slo", "least"),
    [
        ((1.0, 0.25), ["delivery_time_ns_p99 < 50ms"], "99%"),
        ((0.02, 0.005), ["delivery_time_ns_p99 < 50ms"], "1.98%"),  # one user in fifty shares the sender's room
        ((1.0, 0.25), ["delivery_time_ns_p99 < 50ms", "delivered_share > 20%"], ""),
        ((1.0, 0.25), [], ""),
        ((1.0, 0.98), ["delivery_time_ns_p99 < 50ms"], ""),
        ((0.02, 0.0196), ["delivery_time_ns_p99 < 50ms"], ""),
    ],
)
def test_who_delivers_least_does_not_win_by_its_delivery_times_unsaid(
    shares: tuple[float, float], slo: list[str], least: str
) -> None:
    """No bus connects the 4 processes, so that each serves only its own users."""
    extra = {
        threads: {"delivered_share": share, "delivery_time_ns_p99": 1e7}
        for threads, share in zip((1, 4), shares, strict=True)
    }
    found = judged(results({1: noisy(100, 1), 4: noisy(400, 3)}, extra), (1, 4), subject_to=slo)
    said = "threads=4 delivered 25 % of the messages that threads=1 delivered"
    assert found.answer.setting == setting(4)
    told = [warning for warning in found.warnings if warning.startswith(said)]
    assert len(told) == bool(least) and all(f"condition delivered_share > {least} (--slo)" in each for each in told)
    assert (f"But {said}" in " ".join(found.answer.sentences)) is bool(least)


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((0.1, 0.01), False),
        ((1.0, 0.1), False),
        ((1.0, 0.6), True),
        ((0.6, 1.0), True),
        ((1.0, 0.05), True),
        ((0.1, 0.005), True),
    ],
)
def test_rooms_of_ten_are_a_smaller_part_of_more_users_though_nothing_is_lost(
    shares: tuple[float, float], *, told: bool
) -> None:
    """With 100 and 1,000 users, in rooms of 10 or of 100, or all in one."""
    asked = {"metric": "delivery_time_ns_p99", "direction": "minimise"}
    made = experiment({"load.users": (100, 1_000)}, objective=Objective.model_validate(asked))
    trials = [
        TrialResult(2 * block + at + 1, block, 1, of, "measured", (), {"delivered_share": shares[at], **times})
        for block, times in enumerate({"delivery_time_ns_p99": 1e7 + wave} for wave in (1e4, 2e4, 3e4))
        for at, of in enumerate(made.settings())
    ]
    assert any("of the messages that" in warning for warning in analyse(made, trials).warnings) is told


def test_zeros_everywhere_are_equivalent() -> None:
    trials = [
        replace(t, metrics={"accept_overflows": 0.0}) for t in results({1: [1.0] * 5, 2: [1.0] * 5, 4: [1.0] * 5})
    ]
    assert judged(trials, metric="accept_overflows", direction="minimise").answer.kind is AnswerKind.EQUIVALENT_SET


def test_an_unfinished_plan_and_settings_that_left_it_are_said() -> None:
    trials = results({1: [100.0, 101.0], 2: [200.0, 202.0]})
    trials.append(TrialResult(9, 2, 1, setting(1), "interrupted", (Problem("interrupted", "stopped"),), {}))
    made = experiment({"threads": (1, 2, 4)})
    analysis = analyse(made, trials, Progress(to_come=2, left={setting(4): "left after 6 failed attempts: it died"}))
    assert analysis.warnings[0].startswith("4 of 6 planned trials were run, 2 of 3 rounds whole")
    assert "threads=4 is no longer tried: it left after 6 failed attempts: it died" in analysis.warnings
    assert not any("failed or are invalid" in warning for warning in analysis.warnings)
    assert analysis.settings[0].invalid == 0
    assert analyse(made, trials).warnings == ()


def test_a_note_that_changes_what_the_figures_mean_is_said_once() -> None:
    trials = results({1: [100.0, 101.0, 102.0], 2: [200.0, 202.0, 203.0]})
    note = Problem("redirects", "900 answers were redirects", fatal=False)
    noted = [replace(each, problems=(note,)) if each.setting == setting(2) else each for each in trials]
    first = next(each.number for each in noted if each.problems)
    said = f"trial {first} (threads=2) (and 2 other trials): 900 answers were redirects"
    assert analyse(experiment({"threads": (1, 2)}), noted).warnings == (said,)


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        (Objective(), False),
        (Objective(metric="response_time_ns_mean", direction="minimise"), False),
        (Objective.model_validate({"subject_to": ["p99 < 50ms"]}), True),
    ],
    ids=["goodput", "mean", "a condition on p99"],
)
def test_a_clock_that_is_too_coarse_is_told_of_only_where_a_time_by_it_is_asked_for(
    objective: Objective, told: bool
) -> None:
    """Most servers answer half of JMeter's requests within 1 ms, which says nothing against their goodput."""
    more = {threads: {"response_time_ns_p99": 3e6, "response_time_ns_mean": 5e5} for threads in (1, 2)}
    note = Problem("jmeter_clock", "half of the requests were answered in less than 1 ms", fatal=False)
    trials = [replace(each, problems=(note,)) for each in results({1: [100.0, 101.0], 2: [200.0, 202.0]}, more)]
    plan = experiment({"threads": (1, 2)}, load=Load(jmeter="plan.jmx"), objective=objective)
    assert any("less than 1 ms" in said for said in analyse(plan, trials).warnings) is told


@pytest.mark.parametrize(("best", "said"), [(1, "on 1 of this machine's 2 CPUs"), (2, "on all 2 CPUs of this machine")])
def test_the_cpus_of_the_answer_are_those_of_the_setting_that_it_names(best: int, said: str) -> None:
    """nginx with `worker_cpu_affinity auto`: its second worker runs on the load generator's CPU."""
    trials = results({best: [200.0, 202.0, 203.0], 3 - best: [100.0, 101.0, 102.0]})
    uses = {setting(1): CpuUse(1, 2, shared=False), setting(2): CpuUse(2, 2, shared=True)}
    trials = [replace(each, cpus=uses[each.setting]) for each in trials]
    assert said in analyse(experiment({"threads": (1, 2)}), trials).answer.sentences[0]


def test_where_an_equivalent_setting_leads_the_cpus_are_those_of_the_one_that_is_named() -> None:
    """Settings of a quota: the one with more CPUs leads by luck, and the smaller one is named."""
    busy = {threads: {"subject_cpu_share": 0.95} for threads in (1, 2)}
    trials = results({1: [400.0, 401.0, 400.5], 2: [400.1, 401.1, 400.6]}, busy)
    uses = {setting(1): CpuUse(1, 4, shared=False), setting(2): CpuUse(3, 4, shared=False)}
    trials = [replace(each, cpus=uses[each.setting]) for each in trials]
    answer = analyse(experiment({"threads": (1, 2)}), trials).answer
    assert (answer.setting, answer.leader) == (setting(1), setting(2))
    assert "on 1 of this machine's 4 CPUs" in answer.sentences[0]
    assert "With threads=1 CPU is the limit. The server uses 95 % of its 1 CPU." in answer.sentences


def test_where_nothing_was_measured_the_answer_says_so_and_no_warning_repeats_it() -> None:
    died = "it died; its last log lines:\n  no such pool\n  bye"
    trials = [
        replace(each, status="failed", problems=(Problem("died", died),), metrics={})
        for each in results({1: [100.0, 101.0], 2: [200.0]})
    ]
    left = {setting(1): f"left after 2 failed attempts: {died}"}
    analysis = analyse(experiment({"threads": (1, 2)}), trials, Progress(left=left))
    assert analysis.answer.sentences[0] == "No setting could be measured."
    assert analysis.answer.sentences[1].startswith("Most often: it died")
    assert analysis.warnings == ("threads=1 is no longer tried: it left after 2 failed attempts: it died",)


@pytest.mark.parametrize(("code", "advised"), [("no_counter", False), ("host_steal", True)])
def test_a_longer_budget_is_no_cure_where_every_start_failed(code: str, advised: bool) -> None:
    problem = Problem(code, "the program never reported its counter")
    trials = [
        replace(each, status="failed", problems=(problem,), metrics={}, took_s=30.0)
        for each in results({1: [100.0], 2: [200.0]})
    ]
    made = experiment({"threads": (1, 2)}, design=Design(budget="60s"))
    assert ("budget of 60.0 s was too little" in analyse(made, trials).answer.sentences[1]) == advised


def test_a_reason_that_is_a_sentence_gets_no_second_full_stop() -> None:
    trials = [replace(each, problems=(Problem("died", "It died."),)) for each in results({1: [100.0, 100.0]})]
    assert judged(trials, (1,)).answer.sentences[1] == "Most often: It died."


def test_a_node_that_is_lost_while_a_space_is_explored_takes_no_round_from_the_race() -> None:
    made = experiment({"threads": (1, 2)}, design=Design(order="race"))
    lost = (Problem(NODE_LOST, "the node is gone"),)
    explored = TrialResult(1, 1, 1, setting(1), "interrupted", lost, {}, stage=Stage.EXPLORE)
    raced = [replace(trial, number=trial.number + 1) for trial in results({1: noisy(100, 1), 2: noisy(200, 2)})]
    assert ResponseTable(made, made.settings(), [explored, *raced]).blocks == [0, 1, 2, 3, 4]
    again = replace(explored, number=99, stage=Stage.COMPARE)
    assert ResponseTable(made, made.settings(), [*raced, again]).blocks == [0, 2, 3, 4]


def test_the_interval_of_a_share_is_of_the_requests_of_its_setting() -> None:
    """No error in five rounds, in which each of 10 or 100 users sends ten requests."""
    load = Load(users=100, requests_per_user=10, duration=10 * 10**9)
    made = experiment({"load.users": (10, 100)}, load=load, objective={"subject_to": ["error_rate < 0.5%"]})
    trials = [
        replace(trial, setting=Setting((("load.users", trial.setting.as_dict()["threads"]),)))
        for trial in results({10: noisy(100, 1), 100: noisy(100, 2)}, {key: {"error_rate": 0.0} for key in (10, 100)})
    ]
    few, many = analyse(made, trials).settings
    assert few.estimates["error_rate"].ends[1] > 0.005 > many.estimates["error_rate"].ends[1]
