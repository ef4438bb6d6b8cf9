from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fakes.edges import Server, answers_of, capacity_experiment, result, search, setting
from powerband.analyze.settings.capacities import hold_capacity_contest
from powerband.analyze.settings.capacity import capacity_of, floor_per_s, holds, misses, search_of, short_windows
from powerband.analyze.settings.capacity_limit import limit_of
from powerband.analyze.settings.compare import analyse
from powerband.analyze.stats.edge import Answered, difference_quantiles, locate
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Objective
from powerband.model.load import Load, Step
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Bottleneck, Problem, TrialResult, Verdict

FIVE_STEPS = Load(users=10, scenario=(Step(name="GET /"),) * 5)
GOOD = {"response_time_ns_p99": 20e6, "error_rate": 0.0, "offered_rate_per_s": 1000.0, "goodput_per_s": 1000.0}


def trial(rate: float | None, number: int = 1, threads: int = 1, code: str = "", status: str = "measured",
          **metrics: float) -> TrialResult:  # fmt: skip
    stage = Stage.SATURATE if rate is None else Stage.CAPACITY
    spec = TrialSpec(number, number, 1, setting(threads), 1, stage, rate)
    return result(spec, {**GOOD, **metrics}, code, status)


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (trial(1000.0), True),
        (trial(1000.0, response_time_ns_p99=50e6), False),
        (trial(1000.0, error_rate=0.002), False),
        (trial(1000.0, goodput_per_s=960.0), False),
        (trial(1000.0, goodput_per_s=971.0), True),
        # On average 100 are in flight (Little), so 3 sqrt(200) / 10 s = 4.2/s may be chance.
        (trial(1000.0, goodput_per_s=966.0, response_time_ns_mean=100e6), True),
        (trial(1000.0, goodput_per_s=965.0, response_time_ns_mean=100e6), False),
        (trial(1000.0, code="generator_cpu"), None),
        (trial(1000.0, code="host_steal"), None),
        (trial(1000.0, code="no_request_ok"), False),
        (trial(1000.0, code="died", status="failed"), False),
        (trial(1000.0, code="not_ready", status="failed"), None),
        (trial(1000.0, status="interrupted"), None),
        (trial(None), None),
    ],
)
def test_what_a_trial_says(made: TrialResult, answer: bool | None) -> None:
    assert holds(capacity_experiment(), made) is answer


@pytest.mark.parametrize("cause", ["engine_stopped", "host_foreign"])
def test_no_answer_while_nobody_asked_says_nothing_of_the_rate(cause: str) -> None:
    unanswered = trial(1000.0, code="no_request_ended")
    assert holds(capacity_experiment(), unanswered) is False
    stopped = replace(unanswered, problems=(*unanswered.problems, Problem(cause, "it is so")))
    assert holds(capacity_experiment(), stopped) is None


@pytest.mark.parametrize("cause", ["host_foreign", "host_steal", "engine_stopped", "generator_no_ports"])
@pytest.mark.parametrize("code", ["invariant", "no_request_ok", "memory_kills"])
def test_what_broke_in_a_trial_that_others_spoilt_says_nothing_of_the_rate(code: str, cause: str) -> None:
    broken = trial(1000.0, code=code)
    assert holds(capacity_experiment(), broken) is False
    spoilt = replace(broken, problems=(*broken.problems, Problem(cause, "it is so")))
    assert holds(capacity_experiment(), spoilt) is None


def test_trials_without_ports_show_the_generators_limit() -> None:
    limited = [trial(900.0, number, code="port_limit", status="failed") for number in (2, 3)]
    assert holds(capacity_experiment(), limited[0]) is None
    assert search_of(capacity_experiment(), setting(1), [trial(None, 1), *limited]).ceiling_per_s == 900.0


@pytest.mark.parametrize(
    ("offered", "served", "metrics", "answer"),
    [
        (5000.0, 4960.0, {}, True),
        # The server bears 4,630/s of the 5,000/s that are due, and lags by 2 x 8 % / 6 behind what it is offered.
        (4753.0, 4630.0, {"response_time_ns_mean": 100e6}, False),
        (4753.0, 4630.0, {"response_time_ns_mean": 1e9}, True),  # the fifth step may begin 3 s late
        (4753.0, 4630.0, {"error_rate": 0.008}, True),  # a failed request ends its scenario
        (4900.0, 4770.0, {}, True),  # 1,000/s in 10 s differ by 3 % by chance
        (4640.0, 4630.0, {}, True),  # it answers what comes
    ],
)
def test_several_steps_must_keep_up_with_the_rate_since_each_waits_for_the_one_before_it(
    offered: float, served: float, metrics: dict[str, float], answer: bool
) -> None:
    wanted = Objective(metric="capacity", subject_to=["p99 < 50ms", "errors < 5%"])
    made = trial(1000.0, offered_rate_per_s=offered, goodput_per_s=served, **metrics)
    assert holds(capacity_experiment(objective=wanted, load=FIVE_STEPS), made) is answer


@pytest.mark.parametrize(
    ("conditions", "answer"),
    [(("p95 < 200ms", "errors < 5%"), True), (("p95 < 200ms",), False), (("p95 < 200ms", "errors < 3%"), False)],
)
def test_wrong_answers_count_as_served_where_a_condition_judges_errors(
    conditions: tuple[str, ...], answer: bool
) -> None:
    wanted = Objective(metric="capacity", subject_to=list(conditions))
    rates = {"goodput_per_s": 960.0, "achieved_rate_per_s": 1000.0}
    made = trial(1000.0, error_rate=0.04, response_time_ns_p95=20e6, **rates)
    assert holds(capacity_experiment(objective=wanted), made) is answer
    behind = replace(made, metrics={**made.metrics, "achieved_rate_per_s": 965.0})
    assert holds(capacity_experiment(objective=wanted), behind) is False


def test_where_only_errors_are_limited_an_overload_shows_in_what_is_not_answered_and_gets_the_time_to() -> None:
    made = capacity_experiment(objective=Objective(metric="capacity", subject_to=["errors < 1%"]))
    answered = {"achieved_rate_per_s": 960.0, "response_time_ns_mean": 100e6}
    assert holds(made, trial(1000.0, **answered, in_flight_growth_per_s=40.0)) is False
    search = search_of(made, setting(1), [trial(None, 1, goodput_per_s=1000.0)])
    assert (search.window_ns(1020.0) or 0) > 45 * 10**9, "it does not show in times"


def test_a_condition_that_was_not_measured_says_nothing() -> None:
    made = trial(1000.0)
    bare = TrialResult(**{**vars(made), "metrics": {k: v for k, v in made.metrics.items() if k != "error_rate"}})
    assert holds(capacity_experiment(), bare) is None


def test_the_edge_lies_between_what_holds_and_what_does_not() -> None:
    answers = [Answered(math.log(rate), rate < 1000) for rate in (800, 900, 950, 980, 1020, 1050, 1100)]
    edge = locate(answers, math.log(900), math.log(10))
    assert math.log(980) < edge.middle.quantile(0.5) < math.log(1020)
    assert math.log(900) < edge.quantile(0.5) < edge.middle.quantile(0.5)
    assert edge.mass.sum() == pytest.approx(1.0)
    low, high = edge.interval(0.95)
    assert math.log(600) < low < math.log(950) and math.log(980) < high < math.log(1500)
    assert float(edge.below(edge.quantile(0.3))) == pytest.approx(0.3, abs=1e-6)


def test_the_difference_of_two_steep_edges_is_sure_to_its_tails() -> None:
    """Simultaneous intervals of many settings use the tails of posteriors, which are as narrow as the trials make
    them."""
    rates = (800, 900, 950, 980, 1020, 1050, 1100, 990, 1010, 970, 1030, 985, 1015, 960, 1040)
    quick, slow = (
        locate([Answered(math.log(rate) - by, rate < 1000) for rate in rates], math.log(900) - by, math.log(10))
        for by in (0.0, 0.3)
    )
    middle, low, high = difference_quantiles(slow.compared, quick.compared, (0.5, 0.00625, 0.99375))
    assert middle == pytest.approx(-0.3, abs=0.01)
    assert -0.4 < low < high < -0.2


def test_one_disturbed_trial_far_below_the_edge_does_not_move_it_there() -> None:
    answers = [Answered(math.log(rate), rate < 1000) for rate in (800, 900, 950, 980, 1020, 1050)]
    disturbed = locate([*answers, Answered(math.log(500), False)], math.log(900), math.log(10))
    assert math.log(940) < disturbed.quantile(0.5) < math.log(1030)


def test_the_next_rate_is_where_the_answer_is_open() -> None:
    answers = [Answered(math.log(500), True), Answered(math.log(2000), False)]
    edge = locate(answers, math.log(1000), math.log(10))
    assert math.log(600) < edge.next_log_rate() < math.log(1700)
    assert edge.next_log_rate(math.log(700)) <= math.log(700)
    assert edge.next_log_rate(fits=lambda log_rate: log_rate < math.log(700)) < math.log(700)
    assert edge.next_log_rate(fits=lambda log_rate: False) == edge.next_log_rate()


@pytest.mark.parametrize("times", [0.02, 50.0])
def test_a_first_look_that_was_far_off_is_overruled(times: float) -> None:
    truth, answers = 1000.0 * times, []
    for _ in range(16):
        at = locate(answers, math.log(1000), math.log(1)).next_log_rate()
        answers.append(Answered(at, at < math.log(truth)))
    found = locate(answers, math.log(1000), math.log(1))
    assert math.exp(found.middle.quantile(0.5)) == pytest.approx(truth, rel=0.05)


def test_differences_are_those_of_independent_draws() -> None:
    a = locate([Answered(6.0, True), Answered(6.2, False)], 6.1, 1.0)
    b = locate([Answered(6.5, True), Answered(6.9, False), Answered(6.8, True)], 6.6, 1.0)
    dice = np.random.default_rng(1)
    draws = [np.array([e.quantile(u) for u in dice.random(4000)]) for e in (a, b)]
    found = difference_quantiles(a, b, (0.1, 0.5, 0.9))
    assert found == pytest.approx(list(np.quantile(draws[0] - draws[1], (0.1, 0.5, 0.9))), abs=0.06)


def test_the_curve_has_a_point_for_each_rate() -> None:
    trials = [trial(None, 1, goodput_per_s=1000.0), trial(500.0, 2), trial(900.0, 3, response_time_ns_p99=30e6),
              trial(900.0, 4, response_time_ns_p99=60e6), trial(1100.0, 5, code="host_steal")]  # fmt: skip
    found = capacity_of(search_of(capacity_experiment(), setting(1), trials))
    assert found is not None and found.estimate is not None
    assert [(point.rate_per_s, point.trials, point.held) for point in found.curve] == [(500.0, 1, 1), (900.0, 2, 1)]
    assert found.curve[1].p99_ns == 45e6
    assert found.estimate.n == 3


def test_a_setting_without_answers_is_no_worse_and_does_not_lead() -> None:
    made = capacity_experiment((1, 2))
    trials = [trial(None, 1, 1), trial(900.0, 2, 1), trial(1100.0, 3, 1, response_time_ns_p99=1e9), trial(None, 4, 2)]
    contest = hold_capacity_contest(made, made.settings(), trials)
    assert contest.leader == setting(1)
    assert contest.verdict(setting(2)) is Verdict.INCONCLUSIVE
    assert contest.effect(setting(2)) is None


@pytest.mark.parametrize(
    ("codes", "ceiling"), [(["generator_lag"], 900.0), (["generator_lag", "host_foreign"], math.inf)]
)
def test_two_limited_trials_at_a_rate_show_the_generators_limit(codes: list[str], ceiling: float) -> None:
    limited = [
        TrialResult(**{**vars(trial(900.0, number)), "problems": tuple(Problem(code, "why") for code in codes)})
        for number in (2, 3)
    ]
    made = capacity_experiment()
    assert search_of(made, setting(1), [trial(None, 1), limited[0]]).ceiling_per_s == math.inf
    assert search_of(made, setting(1), [trial(None, 1), *limited]).ceiling_per_s == ceiling
    more_was_offered = [trial(None, 1), *limited, trial(1000.0, 4, response_time_ns_p99=1e9)]
    assert search_of(made, setting(1), more_was_offered).ceiling_per_s == math.inf


def at_the_limit(*more: TrialResult) -> list[TrialResult]:
    """The setting meets the SLO at 950/s every time; at 1000/s the generator is the limit."""
    limited = [trial(1000.0, number, code="generator_cpu") for number in (2, 3)]
    return [trial(None, 1), *limited, *(trial(950.0, number) for number in range(4, 20)), *more]


def test_what_breaks_down_beyond_the_generators_limit_does_not_hold_at_every_rate() -> None:
    made = capacity_experiment()
    everywhere = search_of(made, setting(1), at_the_limit())
    assert everywhere.everywhere
    broken = search_of(made, setting(1), at_the_limit(trial(1300.0, 30, code="died", status="failed")))
    assert not broken.everywhere
    found = capacity_of(broken)
    assert found is not None and found.estimate is not None
    assert 950 < found.estimate.value < 1300


@pytest.mark.parametrize("held", [16, 25])
def test_a_chance_miss_at_the_generators_limit_gives_no_figure_above_it(held: int) -> None:
    made = capacity_experiment()
    more = [trial(950.0, 30 + n) for n in range(held - 16)]
    trials = at_the_limit(*more, trial(950.0, 60, response_time_ns_p99=90e6))
    found = search_of(made, setting(1), trials)
    assert found.beyond_engine and not found.everywhere and not found.unmissed
    analysis = analyse(made, trials)
    (row,) = analysis.settings
    assert row.capacity is not None and row.capacity.estimate is None and "capacity_per_s" not in row.estimates
    limit = f"in {held} of {held + 1} trials up to 950/s, the most that the load generator could offer"
    assert row.capacity.note == f"holds {limit}: raise load.engine_threads, give it more CPUs, or ask for more"
    assert f"it holds p99 < 50ms and errors < 0.1% {limit}" in analysis.answer.sentences[0]


def test_a_limit_of_what_may_be_in_flight_is_said_to_be_one() -> None:
    limited = [trial(1000.0, number, code="generator_in_flight") for number in (2, 3)]
    trials = [trial(None, 1), *limited, *(trial(950.0, number) for number in range(4, 20))]
    found = capacity_of(search_of(capacity_experiment(), setting(1), trials))
    assert found is not None and found.estimate is None
    assert found.note.endswith("950/s: raise load.max_in_flight and the limit of descriptors, or ask for more")


def test_where_no_trial_missed_the_highest_rate_tried_is_a_lower_bound() -> None:
    rates = (600.0, 800.0, 1100.0)
    trials = [trial(None), *(trial(rate, number) for number, rate in enumerate(rates, start=2))]
    analysis = analyse(capacity_experiment(), trials)
    (row,) = analysis.settings
    assert row.capacity is not None and row.capacity.estimate is not None
    found = row.capacity.estimate
    assert (found.value, found.at_least, row.effect) == (1100.0, True, None)
    assert row.capacity.note == "held in all 3 trials, up to 1,100/s; higher rates were not tested"
    said = " ".join(analysis.answer.sentences)
    assert "it held p99 < 50ms and errors < 0.1% in all 3 trials, up to 1,100/s; higher rates were not tested" in said
    assert "up to about" not in said and "load generator" not in said
    alone = capacity_of(search_of(capacity_experiment(), setting(1), trials[:2]))
    assert alone is not None and alone.note == "held in its only trial, at 600/s; higher rates were not tested"


def test_how_much_worse_the_guess_of_a_capacity_is_at_least_is_all_that_is_told() -> None:
    _, trials = search(capacity_experiment(), answers_of({1: Server()}, np.random.default_rng(1)))
    rates = (None, 700.0, 500.0, *[350.0] * 8)
    late = [trial(rate, number, 4, response_time_ns_p99=60e6) for number, rate in enumerate(rates, start=501)]
    found = analyse(capacity_experiment((1, 4)), [*trials, *late])
    (guess,) = [row for row in found.settings if row.is_guess]
    assert guess.setting == setting(4) and guess.effect is not None and guess.effect.high is not None
    least = 100 * (1 - guess.effect.high)
    assert f"threads=4 is worse by at least {least:.1f} %." in found.answer.sentences[1]


def test_what_holds_by_luck_at_the_lowest_rate_says_what_it_missed() -> None:
    made = capacity_experiment()
    trials = [trial(None, 1), trial(18.4, 2, response_time_ns_p99=49e6)]
    trials += [trial(18.4, number, response_time_ns_p99=51e6) for number in range(3, 20)]
    found = search_of(made, setting(1), trials)
    assert found.nowhere
    assert misses(found) == ("p99 < 50ms: it was 51.0 ms at 18.4/s, the lowest rate tried",)
    assert len(found.near_edge()) == 18


def test_the_lowest_rate_tried_is_told_in_full() -> None:
    trials = [trial(None, 1, goodput_per_s=20_000.0), trial(12_300.0, 2, response_time_ns_p99=51e6)]
    found = search_of(capacity_experiment(), setting(1), trials)
    assert misses(found) == ("p99 < 50ms: it was 51.0 ms at 12,300/s, the lowest rate tried",)
    behind = search_of(capacity_experiment(), setting(1), [trials[0], trial(12_300.0, 2, goodput_per_s=9_000.0)])
    assert misses(behind) == ("less than 97 % of 12,300/s was served, the lowest rate tried",)


@pytest.mark.parametrize(
    ("left_out", "said"),
    [((), "p99 < 50ms: it was at least 10.0 s at 18.4/s"), (("response_time_ns_p99",), "too many requests got no")],
)
def test_a_percentile_without_an_end_is_missed_and_said_to_be_one(left_out: tuple[str, ...], said: str) -> None:
    """The p99 is a lower bound if 5 % of the requests failed, and has no value with fewer than 1,000 requests."""
    trials = [trial(18.4, number, response_time_ns_p99=1e10, error_rate=0.05) for number in range(2, 20)]
    trials = [replace(each, metrics={k: v for k, v in each.metrics.items() if k not in left_out}) for each in trials]
    analysis = analyse(capacity_experiment(), [trial(None, 1), *trials])
    assert any(said in reason for reason in analysis.settings[0].infeasible_because)


def test_a_first_look_and_a_condition_that_nothing_measured_are_told_apart() -> None:
    made = capacity_experiment()
    bare = trial(1000.0, 2)
    bare = TrialResult(**{**vars(bare), "metrics": {k: v for k, v in bare.metrics.items() if k != "error_rate"}})
    because = [analyse(made, trials).settings[0].infeasible_because for trials in ([trial(None)], [trial(None), bare])]
    assert because == [
        ("only its first look has run, at no rate of its own",),
        ("the SLO has a condition on error rate, which was not measured",),
    ]


def test_windows_that_cannot_see_an_overload_of_the_margin_are_named() -> None:
    assert short_windows(capacity_experiment()) is None
    load = Load(users=4, duration_ns=3_000_000_000)
    assert short_windows(capacity_experiment(load=load)) is None, "windows grow to 30 s"
    slow = Objective(metric="capacity", subject_to=["p99 < 1.5s"])
    short = capacity_experiment(load=load, objective=slow)
    warning = short_windows(short)
    steps = short.model_copy(update={"load": FIVE_STEPS.model_copy(update={"duration_ns": 3_000_000_000})})
    third = Objective(metric="capacity", subject_to=["p99 < 500ms"])
    assert short_windows(steps.model_copy(update={"objective": third})) == warning, "five steps fall behind by a third"
    assert warning is not None and "32.0 s with their warm-up" in warning and "less than 4.7 %" in warning
    assert warning.endswith("for the margin of 3.0 % set load.duration (--duration) to 4.80 s or longer")
    slower = short.objective.model_copy(update={"constraints": Objective(subject_to=["p99 < 3s"]).constraints})
    warning = short_windows(short.model_copy(update={"objective": slower}))
    assert warning is not None and warning.endswith("to 97.0 s or longer"), "no window grows beyond 60 s"
    exact = short.objective.model_copy(update={"margin": 0.0})
    warning = short_windows(short.model_copy(update={"objective": exact}))
    assert warning is not None and warning.endswith("make load.duration (--duration) longer")


def test_what_held_in_no_trial_is_no_answer_whatever_is_extrapolated() -> None:
    late = {"response_time_ns_p99": 60e6}
    rates = (1000.0, 700.0, 500.0, 350.0)
    results = [trial(None), *(trial(rate, number, **late) for number, rate in enumerate(rates, start=2))]
    analysis = analyse(capacity_experiment(), results)
    (row,) = analysis.settings
    assert row.feasible and "60.0 ms at 350/s, the lowest rate tried" in row.uncertain_because[0]
    assert analysis.answer.setting is None
    said = " ".join(analysis.answer.sentences)
    assert "it held p99 < 50ms and errors < 0.1% in none of 4 trials; lower rates were not tested" in said
    assert "up to" not in said
    assert row.capacity is not None and row.capacity.estimate is not None and row.capacity.shown is None
    assert row.capacity.note == "held in none of 4 trials; lower rates were not tested"


def test_windows_grow_close_to_the_most_that_is_served() -> None:
    """A pool of 8 threads at 20 ms serves 400/s. At 94 % of that a window needs 20 times 0.69 s; at 99 % it needs more
    than the longest window."""
    search = search_of(capacity_experiment(), setting(1), [trial(None, 1, goodput_per_s=400.0)])
    assert search.window_ns(200.0) is None
    assert search.window_ns(376.0) == 14_000_000_000
    assert search.window_ns(396.0) == 60_000_000_000
    assert search.window_ns(404.0) is None, "the overload shows in 10 s"
    steps = search_of(capacity_experiment(load=FIVE_STEPS), setting(1), [trial(None, 1, goodput_per_s=2000.0)])
    assert steps.window_ns(404.0) == 30_000_000_000, "five steps fall behind by a third"


def test_a_generator_that_was_late_below_what_it_gave_users_was_disturbed() -> None:
    late = [trial(300.0, number, code="generator_lag") for number in range(2, 6)]
    assert math.isinf(search_of(capacity_experiment(), setting(1), [trial(None, 1), *late]).ceiling_per_s)
    beyond = [trial(1500.0, number, code="generator_lag") for number in range(2, 6)]
    assert search_of(capacity_experiment(), setting(1), [trial(None, 1), *beyond]).ceiling_per_s == 1500.0


@pytest.mark.parametrize(("busy", "others", "own"), [(0.2, True, False), (0.2, False, True), (0.8, True, True)])
def test_a_generator_that_is_not_busy_is_late_because_of_others(busy: float, others: bool, own: bool) -> None:
    noted = (Problem("host_foreign_some", "why", fatal=False),) if others else ()
    late = [
        replace(result, problems=(*result.problems, *noted))
        for number in (2, 3)
        for result in [trial(900.0, number, code="generator_lag", engine_cpu_share_max=busy)]
    ]
    assert search_of(capacity_experiment(), setting(1), [trial(None, 1), *late]).ceiling_per_s == (
        900.0 if own else math.inf
    )


def test_windows_grow_at_low_rates_until_a_p99_can_be_had() -> None:
    """A p99 needs 1,000 requests, and 10 % more are asked for: at 40/s this takes 27.5 s. A window of 10 s grows to a
    minute at most, so 18.4/s is the lowest rate."""
    search = search_of(capacity_experiment(), setting(1), [trial(None, 1, goodput_per_s=400.0)])
    assert search.window_ns(40.0) == 27_500_000_000
    assert search.window_ns(111.0) is None
    assert floor_per_s(capacity_experiment()) == pytest.approx(1100 / 60)
    quick = capacity_experiment(load=Load(users=64, duration_ns=3_000_000_000))
    assert floor_per_s(quick) == pytest.approx(1100 / 30)
    steps = search_of(capacity_experiment(load=FIVE_STEPS), setting(1), [trial(None, 1, goodput_per_s=2000.0)])
    assert steps.floor_per_s == pytest.approx((1000 + 100 * math.sqrt(5)) / 5 / 60), "five requests come together"
    assert steps.window_ns(10.0) == 24_500_000_000


def test_a_capacity_far_below_the_most_ends_at_slow_answers() -> None:
    served = Bottleneck(BottleneckName.NONE, ("all was served",), "")
    cpu = Bottleneck(BottleneckName.SUBJECT_CPU, ("full",), "")
    look = replace(trial(None, 1, goodput_per_s=1000.0), bottleneck=cpu)
    held = [replace(trial(rate, n), bottleneck=served) for n, rate in enumerate((400.0, 500.0, 560.0), 2)]
    missed = {"response_time_ns_p99": 90e6, "subject_cpu_share": 0.6, "gc_cpu_share": 0.15}
    late = [replace(trial(rate, n, **missed), bottleneck=served) for n, rate in enumerate((620.0, 600.0, 650.0), 5)]
    found = limit_of(search_of(capacity_experiment(), setting(1), [look, *held, *late]))
    assert found is not None and found.name is BottleneckName.SLOW_ANSWERS
    assert "of the 1,000/s that it serves at most" in found.evidence[0] and "60 %" in found.evidence[1]
    assert found.evidence[2] == "its garbage collector uses 15 % of its CPUs", "a quarter of its CPU time"
    full = [replace(trial(rate, n), bottleneck=served) for n, rate in enumerate((900.0, 950.0, 970.0), 2)]
    there = replace(cpu, evidence=("with 10 users that never pause, full",))
    assert limit_of(search_of(capacity_experiment(), setting(1), [look, *full])) == there
    short = [replace(look, number=n, node=f"n{n}", window_s=1.0, bottleneck=served) for n in (8, 9)]
    assert limit_of(search_of(capacity_experiment(), setting(1), [look, *full, *short])) == there


@pytest.mark.parametrize(
    ("failed", "name"), [(0.02, BottleneckName.POOL_TOO_SMALL), (0.0, BottleneckName.SLOW_ANSWERS)]
)
def test_a_capacity_that_ends_at_refusals_ends_at_what_is_full(failed: float, name: BottleneckName) -> None:
    """8 slots without a queue, by Erlang's loss formula: 1 % is refused at 40 % of the most."""
    served = Bottleneck(BottleneckName.NONE, ("all was served",), "")
    pool = Bottleneck(BottleneckName.POOL_TOO_SMALL, ("all are busy",), "more threads")
    made = capacity_experiment(objective=Objective(metric="capacity", subject_to=["errors < 1%", "p99 < 500ms"]))
    held = [
        replace(trial(rate, n, error_rate=0.0), bottleneck=served) for n, rate in enumerate((120.0, 140.0, 150.0), 2)
    ]
    missed = {"error_rate": failed, "response_time_ns_p99": 20e6 if failed else 9e8}
    late = [replace(trial(rate, n, **missed), bottleneck=served) for n, rate in enumerate((160.0, 165.0, 170.0), 5)]
    look = replace(trial(None, 1, goodput_per_s=400.0), bottleneck=pool)
    found = limit_of(search_of(made, setting(1), [look, *held, *late]))
    assert found is not None and found.name is name
    assert ("2.00 % of requests fail there" in found.evidence) is (failed > 0)


@pytest.mark.parametrize(
    ("p99_ns", "name", "said"),
    [
        (15e6, BottleneckName.NONE, "it misses subject_cpu_share < 70% there"),
        (400e6, BottleneckName.SLOW_ANSWERS, "the server uses 75 % of its CPUs there"),
    ],
)
def test_a_capacity_that_a_condition_on_another_figure_ends_has_no_slow_answers(
    p99_ns: float, name: BottleneckName, said: str
) -> None:
    served = Bottleneck(BottleneckName.NONE, ("all was served",), "")
    cpu = Bottleneck(BottleneckName.SUBJECT_CPU, ("full",), "")
    wanted = Objective(metric="capacity", subject_to=["p99 < 200ms", "subject_cpu_share < 70%"])
    look = replace(trial(None, 1, goodput_per_s=1000.0), bottleneck=cpu)
    idle = {"response_time_ns_p99": 15e6, "subject_cpu_share": 0.6}
    held = [replace(trial(rate, n, **idle), bottleneck=served) for n, rate in enumerate((400.0, 500.0, 560.0), 2)]
    busy = {"response_time_ns_p99": p99_ns, "subject_cpu_share": 0.75}
    over = [replace(trial(rate, n, **busy), bottleneck=served) for n, rate in enumerate((620.0, 600.0, 650.0), 5)]
    found = limit_of(search_of(capacity_experiment(objective=wanted), setting(1), [look, *held, *over]))
    assert found is not None and found.name is name
    assert "of the 1,000/s that it serves at most" in found.evidence[0] and found.evidence[1] == said


@pytest.mark.parametrize(
    ("service_ns", "more", "name"),
    [
        (20e6, {}, BottleneckName.POOL_TOO_SMALL),  # M/M/8 at 73 %: 1.4 % wait for the 30 ms that are left
        (20e6, {"jvm_safepoint_share": 0.05}, BottleneckName.SLOW_ANSWERS),
        (20e6, {"dotnet_gc_share": 0.05}, BottleneckName.SLOW_ANSWERS),
        (20e6, {"gc_cpu_share": 0.03}, BottleneckName.POOL_TOO_SMALL),  # Go's collector works beside requests
        (20e6, {"psi_io_share": 0.03}, BottleneckName.POOL_TOO_SMALL),  # somebody on the machine waits for a disk
        (5e6, {}, BottleneckName.SLOW_ANSWERS),  # M/M/2: no one in a hundred waits for 45 ms
    ],
)
def test_a_capacity_below_the_most_ends_at_the_resource_whose_queue_theory_expects_there(
    service_ns: float, more: dict[str, float], name: BottleneckName
) -> None:
    served = Bottleneck(BottleneckName.NONE, ("all was served",), "")
    pool = Bottleneck(BottleneckName.POOL_TOO_SMALL, ("all are busy",), "more threads")
    look = replace(trial(None, 1, goodput_per_s=400.0), bottleneck=pool)
    seen = {"response_time_ns_p50": service_ns, **more}
    rates = {250.0: 20e6, 290.0: 30e6, 310.0: 40e6, 320.0: 60e6, 325.0: 70e6, 345.0: 80e6}
    tried = [
        replace(trial(rate, n, response_time_ns_p99=p99, goodput_per_s=rate, offered_rate_per_s=rate, **seen),
                bottleneck=served)
        for n, (rate, p99) in enumerate(rates.items(), 2)
    ]  # fmt: skip
    found = limit_of(search_of(capacity_experiment(), setting(1), [look, *tried]))
    assert found is not None and found.name is name and "of the 400/s that it serves at most" in found.evidence[0]
    if name is BottleneckName.POOL_TOO_SMALL:
        assert "8 requests at once, and one alone takes 20.0 ms" in found.evidence[1]
        assert found.evidence[2] == "with 10 users that never pause, all are busy"
        nameless = replace(look, bottleneck=None)
        assert limit_of(search_of(capacity_experiment(), setting(1), [nameless, *tried])) is None


@pytest.mark.parametrize(
    ("limit", "throttled", "name"),
    [
        (BottleneckName.CPU_QUOTA, 0.12, BottleneckName.CPU_QUOTA),
        (BottleneckName.CPU_QUOTA, 0.0, BottleneckName.SLOW_ANSWERS),
        (BottleneckName.POOL_TOO_SMALL, 0.12, BottleneckName.SLOW_ANSWERS),
    ],
)
def test_a_quota_that_stops_the_server_now_and_then_ends_a_capacity_below_the_most(
    limit: BottleneckName, throttled: float, name: BottleneckName
) -> None:
    look = replace(trial(None, 1, goodput_per_s=1000.0), bottleneck=Bottleneck(limit, ("full",), ""))
    served = Bottleneck(BottleneckName.NONE, ("all was served",), "")
    held = [replace(trial(rate, n), bottleneck=served) for n, rate in enumerate((400.0, 500.0, 560.0), 2)]
    missed = {"response_time_ns_p99": 90e6, "cpu_throttled_share": throttled}
    late = [replace(trial(rate, n, **missed), bottleneck=served) for n, rate in enumerate((620.0, 600.0, 650.0), 5)]
    found = limit_of(search_of(capacity_experiment(), setting(1), [look, *held, *late]))
    assert found is not None and found.name is name
    assert ("the quota is used up in 12 % of periods there" in found.evidence) is (throttled > 0)


def test_a_capacity_below_the_only_rate_tried_ends_where_that_was_missed() -> None:
    pool = Bottleneck(BottleneckName.POOL_TOO_SMALL, ("all are busy",), "more threads")
    look = replace(trial(None, 1, goodput_per_s=400.0), bottleneck=pool)
    missed = trial(350.0, 2, response_time_ns_p99=60e6, goodput_per_s=350.0, offered_rate_per_s=350.0)
    missed = replace(missed, bottleneck=Bottleneck(BottleneckName.NONE, ("all was served",), ""))
    found = limit_of(search_of(capacity_experiment(), setting(1), [look, missed]))
    assert found is not None and found.name is BottleneckName.POOL_TOO_SMALL
    broken = trial(350.0, 2, code="no_request_ok")
    assert limit_of(search_of(capacity_experiment(), setting(1), [look, broken])) == found
    slow = trial(100.0, 2, response_time_ns_p50=20e9, response_time_ns_p99=30e9)
    slow = replace(slow, bottleneck=missed.bottleneck)
    found = limit_of(search_of(capacity_experiment(), setting(1), [look, slow]))
    assert found is not None and found.name is BottleneckName.SLOW_ANSWERS and "does not hold at" in found.evidence[0]


def test_the_figure_says_how_many_starts_held_there() -> None:
    rates = [(800.0, 10e6), (900.0, 10e6), (950.0, 10e6), (1100.0, 90e6), (1050.0, 90e6)]
    trials = [trial(rate, n, response_time_ns_p99=p99) for n, (rate, p99) in enumerate(rates, 2)]
    found = capacity_of(search_of(capacity_experiment(), setting(1), [trial(None, 1, goodput_per_s=1000.0), *trials]))
    assert found is not None
    assert found.note == "2 of 2 starts met the SLO at or below it; by their number alone at least 22 % of starts do"


def test_an_interval_leaves_out_no_more_than_was_asked_for_and_reaches_to_where_half_of_the_quick_starts_hold() -> None:
    tried = ((800, True), (900, True), (1000, False), (950, True), (970, False))
    edge = locate([Answered(math.log(rate), held) for rate, held in tried], math.log(1000), math.log(10))
    low, high = edge.interval(0.95)
    assert float(edge.below(low)) == pytest.approx(0.025)
    assert max(1 - float(edge.below(high)), 1 - float(edge.middle.below(high))) == pytest.approx(0.025)


def test_a_damaged_first_look_leaves_the_answers_without_a_capacity_until_it_is_measured_again() -> None:
    lost = Problem("damaged", "events.jsonl is cut short")
    look = replace(trial(None, 1), status="failed", metrics={}, problems=(lost,))
    found = analyse(capacity_experiment(), [look, *(trial(rate, n) for n, rate in enumerate((400.0, 500.0), 2))])
    row = next(row for row in found.settings if row.setting == setting(1))
    assert (row.trials, row.capacity, row.bottleneck) == (2, None, None)


@pytest.mark.parametrize(("rises", "warmup", "said"), [(8, None, "20s"), (8, "15s", "30s"), (5, None, "")])
def test_a_capacity_measured_before_the_server_was_warm_is_said_to_be_low(
    rises: int, warmup: str | None, said: str
) -> None:
    """A cold JVM: the fixed warm-up of 2 s does not wait until its code is compiled."""
    rates = (*(900.0 + 10 * n for n in range(6)), *(1100.0 + 10 * n for n in range(4)))
    late = {"response_time_ns_p99": 90e6}
    trials = [trial(rate, n, **({} if rate < 1000 else late)) for n, rate in enumerate(rates, 2)]
    trials = [replace(each, rising=each.number < 2 + rises) for each in trials]
    made = capacity_experiment(measure={"warmup": warmup or "auto"})
    warnings = [each for each in analyse(made, [trial(None, 1), *trials]).warnings if "got faster" in each]
    assert warnings == (
        [
            f"threads=1 still got faster while it was measured, in {rises} of 10 trials: once warm its capacity is "
            f"higher; give it a longer warm-up (--warmup {said})"
        ]
        if said
        else []
    )
