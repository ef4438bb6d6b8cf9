from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes.races import race_of
from powerband.analyze.settings.confirm import confirm, fresh_values
from powerband.analyze.settings.contest import ResponseTable, scale_of
from powerband.analyze.settings.headline import Fresh, figures_of
from powerband.analyze.stats.intervals import estimate
from powerband.analyze.stats.special import student_t
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage
from powerband.model.results import Confirmation, Estimate, Problem, TrialResult

WINNER, RIVAL = Setting((("threads", 1),)), Setting((("threads", 0),))
NOISE = (1.003, 0.998, 0.999, 1.002, 0.998)


def trials(
    of: Setting, mean: float, stage: Stage, *, first: int = 0, n: int = 5, metric: str = "goodput_per_s"
) -> list[TrialResult]:
    turn = int(of == WINNER)
    return [
        TrialResult(
            number=100 * first + 10 * block + turn,
            block=first + block,
            attempt=1,
            setting=of,
            status="measured",
            problems=(),
            metrics={metric: mean * NOISE[(block + 2 * turn) % 5]},
            stage=stage,
        )
        for block in range(n)
    ]


def confirmed(
    race: tuple[float, float], fresh: tuple[float, float], *, n: int = 3, made: Experiment | None = None
) -> Confirmation:
    """The confirmation of a winner. `race`, `fresh`: the means of winner and rival in the race and in fresh starts."""
    made = made or race_of(2)
    metric = made.objective.metric
    results = [
        *trials(WINNER, race[0], Stage.COMPARE, metric=metric),
        *trials(RIVAL, race[1], Stage.COMPARE, metric=metric),
        *trials(WINNER, fresh[0], Stage.CONFIRM, first=5, n=n, metric=metric),
        *trials(RIVAL, fresh[1], Stage.CONFIRM, first=5, n=n, metric=metric),
    ]
    table = ResponseTable(made, made.settings(), results)
    found = confirm(made, table, scale_of(table), results, WINNER)
    assert found is not None
    return found


def test_fresh_starts_that_agree_uphold_the_race() -> None:
    found = confirmed((1000, 900), (995, 896))
    assert found.upheld and found.rival == RIVAL and found.trials == 3
    assert found.race.n == 5 and found.confirmed.n == 3
    assert found.shrinkage.value == pytest.approx(1 - found.confirmed.value / found.race.value)
    assert found.shrinkage.low is not None and found.shrinkage.high is not None
    assert found.shrinkage.low < 0.005 < found.shrinkage.high
    assert found.advantage is not None and found.advantage.value == pytest.approx(995 / 896, rel=0.01)
    assert found.sentence.startswith("Confirmed on 3 fresh starts: 995/s, compared with the race −0.5 % (−")
    assert "; the runner-up threads=0, side by side (3 starts each): −9.9 % (−" in found.sentence


def test_the_runner_up_is_compared_where_both_were_started_and_both_ends_of_an_interval_have_a_side() -> None:
    """The winner's mean, 792/s, is below the 799/s of the runner-up, which it was ahead of in the one round of both."""
    made = race_of(2)
    results = [*trials(WINNER, 829, Stage.COMPARE), *trials(RIVAL, 820, Stage.COMPARE)]
    fresh = [*trials(WINNER, 1, Stage.CONFIRM, first=5, n=2), *trials(RIVAL, 1, Stage.CONFIRM, first=5, n=1)]
    rates = {(WINNER, 5): 800.6, (WINNER, 6): 785.0, (RIVAL, 5): 799.0}
    results += [replace(t, metrics={"goodput_per_s": rates[t.setting, t.block]}) for t in fresh]
    table = ResponseTable(made, made.settings(), results)
    found = confirm(made, table, scale_of(table), results, WINNER)
    assert found is not None and found.shrinkage.low is not None and found.shrinkage.low < 0
    assert re.search(r"compared with the race −[\d.]+ % \(−[\d.]+ to \+[\d.]+ %\)", found.sentence)
    assert found.sentence.endswith("; the runner-up threads=0, side by side (one start each): −0.2 %.")


def test_a_difference_that_rounds_to_nothing_has_no_side() -> None:
    said = confirmed((1000, 1000), (1000, 1000)).sentence
    assert "1,000/s, compared with the race 0.0 % (" in said
    assert "; the runner-up threads=0, side by side (3 starts each): 0.0 %" in said


def test_a_winner_that_its_rival_beats_afresh_is_not_upheld() -> None:
    found = confirmed((1000, 990), (930, 1000))
    assert not found.upheld
    assert found.sentence.startswith("Not confirmed: on 3 fresh starts ")
    assert "the runner-up threads=0, side by side (3 starts each): +7.6 % (+" in found.sentence


def test_a_winner_that_fell_alone_is_not_upheld_even_if_it_still_leads() -> None:
    assert not confirmed((1000, 800), (940, 800)).upheld


def test_a_machine_that_became_slower_for_both_takes_nothing_back() -> None:
    found = confirmed((1000, 900), (800, 720))
    assert found.upheld and found.shrinkage.value == pytest.approx(0.2, abs=0.01)


def test_a_loss_within_the_margin_is_no_loss() -> None:
    assert confirmed((1000, 900), (980, 900)).upheld


def test_one_fresh_start_gives_no_interval_and_takes_nothing_back() -> None:
    found = confirmed((1000, 990), (800, 1000), n=1)
    assert found.upheld and found.trials == 1
    assert found.shrinkage.low is None and found.advantage is not None and found.advantage.low is None
    assert found.sentence.startswith("1 fresh start neither confirms nor contradicts it: ")


def test_fresh_starts_too_noisy_to_tell_are_not_called_a_confirmation() -> None:
    results = [*trials(WINNER, 1000, Stage.COMPARE), *trials(RIVAL, 700, Stage.COMPARE)]
    fresh = [*trials(WINNER, 1000, Stage.CONFIRM, first=5, n=3), *trials(RIVAL, 700, Stage.CONFIRM, first=5, n=3)]
    results += [
        replace(t, metrics={"goodput_per_s": 100.0}) if t.block == 5 and t.setting == WINNER else t for t in fresh
    ]
    made = race_of(2)
    table = ResponseTable(made, made.settings(), results)
    found = confirm(made, table, scale_of(table), results, WINNER)
    assert found is not None and found.upheld
    assert found.sentence.startswith("3 fresh starts neither confirm nor contradict it: ")


def test_where_less_is_better_more_is_a_loss() -> None:
    made = race_of(2, objective={"metric": "response_time_ns_p99", "direction": "minimise"})
    fine = confirmed((1e6, 2e6), (1e6, 2e6), made=made)
    assert fine.upheld and "the runner-up threads=0, side by side (3 starts each): +100.1 % (+" in fine.sentence
    assert not confirmed((1e6, 2e6), (1.2e6, 2e6), made=made).upheld
    assert confirmed((1e6, 2e6), (0.8e6, 2e6), made=made).upheld


def test_shares_are_compared_by_difference_and_zeros_break_nothing() -> None:
    made = race_of(2, objective={"metric": "error_rate", "direction": "minimise"})
    found = confirmed((0.0, 0.2), (0.0, 0.2), made=made)
    assert found.upheld and found.shrinkage.low is None
    assert not confirmed((0.01, 0.2), (0.2, 0.2), made=made).upheld


def test_shares_agree_by_percentage_points() -> None:
    made = race_of(2, objective={"metric": "error_rate", "direction": "minimise"})
    found = confirmed((0.002, 0.003), (0.002, 0.001), made=made)
    assert found.upheld and found.agrees, "0.1 points of 3 that matter"
    assert found.sentence.startswith("Confirmed on 3 fresh starts: ")
    assert "; the runner-up threads=0, side by side (3 starts each): −0.1 percentage points." in found.sentence
    once = confirmed((0.002, 0.003), (0.002, 0.001), n=1, made=made)
    assert once.sentence.endswith("side by side (one start each): −0.1 percentage points.")
    worse = confirmed((0.0, 0.2), (0.02, 0.0), made=made)
    assert "the runner-up threads=0, side by side (3 starts each): −2.0 percentage points" in worse.sentence


def test_what_is_compared_with_0_is_told_as_it_is() -> None:
    made = race_of(2, objective={"metric": "accept_overflows", "direction": "minimise"})
    rose = confirmed((0.0, 4.0), (1.5, 4.0), made=made)
    assert " 1.50, in the race 0; the runner-up threads=0, side by side (3 starts each): +16" in rose.sentence
    alike = confirmed((0.0, 4.0), (0.0, 4.0), made=made)
    assert " 0, in the race 0; " in alike.sentence and "(3 starts each): +4.00 (+3.9" in alike.sentence
    below = confirmed((1.0, 4.0), (1.5, 0.0), made=made)
    assert "(3 starts each): −1.50 (−1.5" in below.sentence and below.advantage is None


def test_a_setting_that_failed_since_is_no_rival() -> None:
    """threads=0 was named and confirmed first, until one of its starts failed; then threads=1, beside threads=2."""
    made, other = race_of(3), Setting((("threads", 2),))
    results = [
        *trials(RIVAL, 1100, Stage.COMPARE),
        *trials(WINNER, 1000, Stage.COMPARE),
        *trials(other, 900, Stage.COMPARE),
        *trials(RIVAL, 1100, Stage.CONFIRM, first=5, n=1),
        *trials(WINNER, 1000, Stage.CONFIRM, first=5, n=4),
        *[replace(trial, number=trial.number + 5) for trial in trials(other, 900, Stage.CONFIRM, first=6, n=3)],
    ]
    table = ResponseTable(made, made.settings(), results)
    found = confirm(made, table, scale_of(table), results, WINNER, barred=[RIVAL])
    assert found is not None and found.rival == other
    assert found.upheld and found.agrees and found.advantage is not None and found.advantage.n == 3


def test_invalid_fresh_starts_confirm_nothing() -> None:
    made = race_of(2)
    disturbed = (Problem("host_steal", "the machine was disturbed"),)
    results = [
        *trials(WINNER, 1000, Stage.COMPARE),
        *[
            TrialResult(t.number, t.block, 1, t.setting, "measured", disturbed, t.metrics, stage=t.stage)
            for t in trials(WINNER, 1000, Stage.CONFIRM, first=5)
        ],
    ]
    table = ResponseTable(made, made.settings(), results)
    assert confirm(made, table, scale_of(table), results, WINNER) is None


def figure(race: Sequence[float], fresh: Sequence[float]) -> Estimate:
    """The figure of a winner with these rates in the race and in fresh starts."""
    rates = {Stage.COMPARE: race, Stage.CONFIRM: fresh}
    results = [
        replace(trial, metrics={"goodput_per_s": rates[stage][trial.block]})
        for stage in rates
        for trial in trials(WINNER, 1, stage, n=len(rates[stage]))
    ]
    results += trials(RIVAL, 500, Stage.COMPARE, n=len(race))
    table, made = ResponseTable(race_of(2), race_of(2).settings(), results), race_of(2)
    found = confirm(made, table, scale_of(table), results, WINNER)
    assert found is not None
    values = fresh_values(table, results, WINNER)
    shown = figures_of(made, table, scale_of(table), Fresh(found, values, 0.0))[WINNER]
    assert shown.fresh and shown.estimate.n == len(fresh)
    return shown.estimate


def test_a_fresh_start_whose_percentile_has_no_end_makes_the_figure_a_lower_bound() -> None:
    metric = "response_time_ns_p99"
    made = race_of(2, objective={"metric": metric, "direction": "minimise"})
    raced = [*trials(WINNER, 1e7, Stage.COMPARE, metric=metric), *trials(RIVAL, 2e7, Stage.COMPARE, metric=metric)]
    fresh = trials(WINNER, 1e7, Stage.CONFIRM, first=5, n=2, metric=metric)
    results = [*raced, fresh[0], replace(fresh[1], metrics={metric: 1e10, "error_rate": 0.02})]
    table = ResponseTable(made, made.settings(), results)
    found = confirm(made, table, scale_of(table), results, WINNER)
    assert found is not None and " 2 fresh starts" in f" {found.sentence}" and ": at least " in found.sentence
    values = fresh_values(table, results, WINNER)
    shown = figures_of(made, table, scale_of(table), Fresh(found, values, 0.0))[WINNER]
    assert shown.fresh and shown.estimate.at_least


RACED = (980.0, 1020.0, 1000.0, 990.0, 1010.0)


def test_two_fresh_starts_take_their_noise_from_the_race_as_well() -> None:
    found = figure(RACED, (990.0, 1010.0))
    sd = math.sqrt((1000 + 200) / (4 + 1)) / 1000  # squared deviations in the race and in the fresh starts
    half = student_t(0.95, 5) * sd / math.sqrt(2)  # 2.8 %; of the two alone: 12.7 %
    assert math.log(found.ends[1] / found.ends[0]) / 2 == pytest.approx(half, rel=0.01)
    quiet = figure(RACED, (1000.0, 1000.0))
    assert quiet.ends[1] / quiet.ends[0] > 1.03, "that two agree shows no quiet"


def test_fresh_starts_that_are_noisier_than_the_race_count_alone() -> None:
    alone = estimate((900.0, 1100.0), 0.95, log=True)
    assert figure(RACED, (900.0, 1100.0)).ends == pytest.approx(alone.ends)


def test_fresh_starts_far_from_the_race_are_less_sure() -> None:
    near, far = figure(RACED, (990.0, 1010.0)), figure(RACED, (890.0, 910.0))
    assert far.ends[1] / far.ends[0] > 1.1 > near.ends[1] / near.ends[0]


def test_a_fresh_start_that_the_winner_makes_alone_counts_for_the_confirmation() -> None:
    """One pair agrees with the race; then the winner starts alone and serves little more than half as much."""
    made = race_of(2)
    results = [*trials(WINNER, 1000, Stage.COMPARE), *trials(RIVAL, 950, Stage.COMPARE)]
    fresh = [*trials(WINNER, 1000, Stage.CONFIRM, first=5, n=2), *trials(RIVAL, 950, Stage.CONFIRM, first=5, n=1)]

    def told(alone: float) -> Confirmation:
        those = [replace(t, metrics={"goodput_per_s": alone}) if t.block == 6 else t for t in fresh]
        table = ResponseTable(made, made.settings(), [*results, *those])
        found = confirm(made, table, scale_of(table), [*results, *those], WINNER)
        assert found is not None and found.upheld
        return found

    assert told(990.0).agrees
    assert not told(600.0).agrees
    assert told(600.0).sentence.startswith("2 fresh starts neither confirm nor contradict it: ")


@pytest.mark.parametrize("lacks", ["objective", "condition"])
def test_a_fresh_start_of_too_few_requests_confirms_nothing(lacks: str) -> None:
    p99, rate = "response_time_ns_p99", "goodput_per_s"
    by_p99 = {"metric": p99, "direction": "minimise"}
    made = race_of(2, objective=by_p99 if lacks == "objective" else {"subject_to": ["p99 < 50ms"]})
    metric = made.objective.metric

    def with_p99(of: Setting, stage: Stage, first: int, n: int) -> list[TrialResult]:
        found = trials(of, 1e7 if lacks == "objective" else 1000.0, stage, first=first, n=n, metric=metric)
        return [replace(trial, metrics={p99: 1e7, **trial.metrics}) for trial in found]

    results = [*with_p99(WINNER, Stage.COMPARE, 0, 5), *with_p99(RIVAL, Stage.COMPARE, 0, 5)]
    whole = [*with_p99(WINNER, Stage.CONFIRM, 5, 3), *with_p99(RIVAL, Stage.CONFIRM, 5, 3)]
    slow = [replace(t, metrics={rate: 1000.0}) if (t.setting, t.block) == (WINNER, 6) else t for t in whole]

    def told(fresh: list[TrialResult]) -> Confirmation:
        table = ResponseTable(made, made.settings(), [*results, *fresh])
        found = confirm(made, table, scale_of(table), [*results, *fresh], WINNER)
        assert found is not None
        return found

    assert told(whole).agrees
    found = told(slow)
    assert found.upheld and not found.agrees
    assert "1 of 3 fresh starts did not measure all that is judged" in found.sentence


def test_a_fresh_start_without_the_objective_may_break_a_condition() -> None:
    """It answered so few requests that it has no p99, and failed a fifth of them."""
    objective = {"metric": "response_time_ns_p99", "direction": "minimise", "subject_to": ["error_rate < 1%"]}
    made = race_of(2, objective=objective)

    def served(of: Setting, stage: Stage, first: int, n: int) -> list[TrialResult]:
        found = trials(of, 1e7, stage, first=first, n=n, metric="response_time_ns_p99")
        return [replace(t, metrics={**t.metrics, "error_rate": 0.0, "achieved_rate_per_s": 1e4}) for t in found]

    fresh = [*served(WINNER, Stage.CONFIRM, 5, 3), *served(RIVAL, Stage.CONFIRM, 5, 3)]
    bad = {"error_rate": 0.2, "achieved_rate_per_s": 90.0}
    fresh = [replace(t, metrics=bad) if (t.setting, t.block) == (WINNER, 6) else t for t in fresh]
    results = [*served(WINNER, Stage.COMPARE, 0, 5), *served(RIVAL, Stage.COMPARE, 0, 5), *fresh]
    table = ResponseTable(made, made.settings(), results)
    found = confirm(made, table, scale_of(table), results, WINNER)
    assert found is not None and not found.upheld


def test_fresh_starts_may_fail_as_often_as_is_allowed() -> None:
    """One start of eleven failed, where half may; of the three fresh ones by themselves that shows nothing."""
    made = race_of(2, objective={"allow_failed_starts": 0.5})
    fresh = [*trials(WINNER, 1000, Stage.CONFIRM, first=8, n=2), *trials(RIVAL, 900, Stage.CONFIRM, first=8, n=2)]
    died = replace(fresh[0], number=99, status="failed", problems=(Problem("died", "it died"),), metrics={})
    results = [*trials(WINNER, 1000, Stage.COMPARE, n=8), *trials(RIVAL, 900, Stage.COMPARE, n=8), *fresh, died]
    table = ResponseTable(made, made.settings(), results)
    found = confirm(made, table, scale_of(table), results, WINNER)
    assert found is not None and found.upheld and found.agrees
