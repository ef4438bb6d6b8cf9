"""Races that begin with short trials: the settings that these eliminate, and the use of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from fakes.landscapes import threads_of
from fakes.races import race_of, result_of, threads
from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.headline import FRESH_MIN
from powerband.analyze.stats.spending import SCREEN_LOOKS, rounds_most, share_at
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Stage, TrialSpec
from powerband.model.results import Analysis, AnswerKind, TrialResult
from powerband.report.html.trial_map import trial_map
from powerband.report.wording.standings import race_line
from powerband.search.planners import planner_for
from powerband.search.race import RacePlanner
from powerband.search.screening import window_for
from powerband.search.session import at_rest

HALF_S = 500_000_000
FAR_APART = (20.0, 40.0, 80.0, 160.0, 320.0, 630.0, 1260.0)
TWO_AHEAD = (20.0, 40.0, 80.0, 160.0, 1000.0, 1000.0)
Change = Callable[[TrialSpec, TrialResult], TrialResult]


def served(rates: Sequence[float], spec: TrialSpec) -> Mapping[str, float]:
    """The rate of a trial, with noise of one percent that depends on the trial's number alone."""
    wave = (spec.number * 7919 % 101 - 50) / 5000
    return {"goodput_per_s": rates[threads(spec)] * (1 + wave), "threads_max": threads(spec) + 1.0}


def screened(
    rates: Sequence[float],
    change: Change = lambda _spec, result: result,
    *,
    around_s: float = 1.0,
    repeats: int = 10,
    **design: object,
) -> tuple[Experiment, list[TrialSpec], Analysis]:
    """Runs a race to its end; `change` alters results; `around_s`: what a trial takes besides its window."""
    made = race_of(len(rates), repeats=repeats, **{"screen": "500ms", "confirm_early": True, **design})
    planner = planner_for(made, 1)
    specs: list[TrialSpec] = []
    results: list[TrialResult] = []
    while (spec := planner.ask()) is not None:
        specs.append(spec)
        took_s = around_s + (spec.window_ns or made.load.duration_ns) / 1e9
        results.append(change(spec, result_of(spec, served(rates, spec), took_s)))
        planner.tell(results[-1])
    return made, specs, analyse(made, results, planner.progress)


def test_the_time_left_foresees_what_the_last_short_trials_eliminate() -> None:
    """The second round of short trials leaves two settings in doubt, as in a race of gunicorn's thread counts."""
    seen = ((638, 20, 1266, 40, 80, 146, 320), (640, 0, 1200, 0, 0, 160, 288), (640, 0, 1280, 0, 80, 0, 0))
    order = (5, 0, 6, 1, 2, 3, 4)  # the settings of these figures
    planner, left_s = planner_for(race_of(7, screen="500ms", confirm_early=True), 1), list[float]()
    while (spec := planner.ask()) is not None and spec.stage is Stage.SCREEN:
        if spec.block > 0:
            left_s.append(planner.left_s(Noise(0.02)) or 0.0)
        rate = float(seen[spec.block][order.index(threads(spec))])
        planner.tell(result_of(spec, {"goodput_per_s": rate, "threads_max": threads(spec) + 1.0}, 2.0))
    assert spec is not None and spec.stage is Stage.CONFIRM and max(left_s) == left_s[0]


def test_settings_far_behind_get_no_full_trial_and_full_ones_confirm_the_best() -> None:
    _, specs, analysis = screened(FAR_APART)
    assert Counter(spec.stage for spec in specs) == {Stage.SCREEN: 11, Stage.CONFIRM: 3}
    assert {spec.window_ns for spec in specs if spec.stage is Stage.SCREEN} == {HALF_S}
    assert {spec.window_ns for spec in specs if spec.stage is Stage.CONFIRM} == {None}
    answer = analysis.answer
    assert answer.kind is AnswerKind.BEST and answer.setting is not None and answer.setting.id == "threads=6"
    assert answer.regret == 0
    assert answer.figure is not None and answer.figure.fresh, "its figure is that of full trials"
    assert analysis.race is not None and analysis.race.ended_by == "decided"
    assert {left.setting.id for left in analysis.race.departures} == {f"threads={n}" for n in range(6)}
    trials = {row.setting.id: row.trials for row in analysis.settings}
    assert trials == {f"threads={n}": 1 if n < 3 else 2 for n in range(7)}, "of the hopeless one is enough"


def test_a_setting_whose_pool_of_processes_still_grows_is_not_judged_by_short_trials() -> None:
    """PHP-FPM adds a process a second, up to as many as its rival begins with."""

    def grows(spec: TrialSpec, result: TrialResult) -> TrialResult:
        if spec.stage is not Stage.SCREEN or threads(spec) != 0:
            return result
        return replace(result, metrics={**result.metrics, "processes_added": 1.0, "goodput_per_s": 50.0})

    _, specs, analysis = screened((1400.0, *FAR_APART), grows)
    assert [spec for spec in specs if threads(spec) == 0 and spec.stage is Stage.COMPARE]
    assert analysis.answer.setting is not None and analysis.answer.setting.id == "threads=0"


def short_twice(rates: Sequence[float], factors: Mapping[str, tuple[Level, ...]] | None = None) -> set[int]:
    """The settings, by their place in the plan, that a race of these rates gives a second short trial."""
    made = experiment(factors or {"threads": tuple(range(len(rates)))}, design={"order": "race", "screen": "500ms"})
    planner, settings, seen = planner_for(made, 1), made.settings(), list[int]()
    while (spec := planner.ask()) is not None and spec.block < 2:
        seen.append(settings.index(spec.setting))
        planner.tell(result_of(spec, {"goodput_per_s": rates[seen[-1]], "threads_max": 1.0}, 1.5))
    return {at for at, count in Counter(seen).items() if count > 1}


RISING = (100.0, 130.0, 200.0, 260.0, 500.0, 1000.0, 990.0, 980.0)


@pytest.mark.parametrize(
    ("rates", "gone"),
    [
        (RISING, {0, 1, 2, 3}),
        (RISING[::-1], {4, 5, 6, 7}),
        ((100, 105, 200, 260, 500, 1000, 990, 980), {1, 2, 3}),  # the first step is no climb
        ((100, 90, 200, 180, 400, 1000, 990, 980), {3}),  # a climb from there on alone
        ((50, 40, 60, 55, 500, 1000, 990, 980), {0, 1, 2, 3}),  # no climb, but a twelfth of the best
        ((1, 2, 4, 8, 16, 32, 64, 1000), {0, 1, 2, 3}),  # the worst, since the noise of three is not known
    ],
)
def test_a_setting_from_which_the_rate_climbs_gets_no_second_short_trial(
    rates: tuple[float, ...], gone: set[int]
) -> None:
    assert short_twice(rates) == set(range(8)) - gone


def test_only_numbers_order_settings() -> None:
    assert short_twice(RISING, {"pool": tuple("abcdefgh")}) == set(range(8))
    two: dict[str, tuple[Level, ...]] = {"pool": (8, 1, 2, 4), "mode": ("x", "y")}  # the last factor varies fastest
    assert short_twice((1000, 1000, 100, 990, 200, 980, 450, 970), two) == {0, 1, 3, 5, 6, 7}, "along the pool"


def test_rounds_are_counted_as_they_ran_also_without_the_last_short_one() -> None:
    _, specs, analysis = screened(TWO_AHEAD)
    ran = {spec.block for spec in specs if spec.stage in (Stage.SCREEN, Stage.COMPARE)}
    race = analysis.race
    assert race is not None and race.blocks == len(ran) < max(ran) + 1
    assert race.looks[-1].block == race.blocks - 1
    assert f"The race took {race.blocks} rounds" in analysis.answer.sentences[1]
    page = trial_map(analysis)
    assert f"round {race.blocks}<" in page and f"round {race.blocks + 1}<" not in page


def test_those_that_are_near_run_full_trials_which_alone_count_then() -> None:
    def flattered(spec: TrialSpec, result: TrialResult) -> TrialResult:
        """In short trials threads=4 is a tenth faster than in full ones."""
        more = 1.1 if spec.stage is Stage.SCREEN and threads(spec) == 4 else 1.0
        return replace(result, metrics={**result.metrics, "goodput_per_s": result.metrics["goodput_per_s"] * more})

    _, specs, analysis = screened(TWO_AHEAD, flattered)
    full = {spec.setting.id for spec in specs if spec.stage is Stage.COMPARE}
    assert full == {"threads=4", "threads=5"}
    near = next(row for row in analysis.settings if row.setting.id == "threads=4")
    assert near.estimates["goodput_per_s"].value < 1030, "the short ones are in no mean of full ones"
    behind = next(row for row in analysis.settings if row.setting.id == "threads=3")
    assert behind.trials == 2 and 150 < behind.estimates["goodput_per_s"].value < 170
    assert analysis.answer.kind is AnswerKind.EQUIVALENT_SET
    assert analysis.answer.setting is not None and analysis.answer.setting.id == "threads=4"


def test_settings_with_short_trials_only_come_back_where_the_winner_dies_in_its_fresh_starts() -> None:
    """They have no difference to those with full trials yet, so nothing bounds these."""
    made = race_of(4, repeats=4, confirm=3, screen="500ms", confirm_early=True, seed=3)
    planner, results = planner_for(made, 3), list[TrialResult]()
    while (spec := planner.ask()) is not None:
        dead = spec.stage is Stage.CONFIRM and threads(spec) == 3
        results.append(result_of(spec, "died" if dead else served((200, 200, 900, 1010), spec), 2.0))
        planner.tell(results[-1])
        found = analyse(made, results, planner.progress)
    assert found.answer.setting is not None and found.answer.setting.id == "threads=2"


def test_a_setting_that_comes_back_races_in_full_trials_before_an_answer_speaks_of_it() -> None:
    """threads=2 left as worse than threads=3, which dies in its fresh starts. Those that raced are alike."""
    made = race_of(4, repeats=10, confirm=3, screen="500ms", confirm_early=True, seed=3)
    planner, results = planner_for(made, 3), list[TrialResult]()
    while (spec := planner.ask()) is not None:
        dead = spec.stage is Stage.CONFIRM and threads(spec) == 3
        results.append(result_of(spec, "died" if dead else served((900, 900, 200, 1010), spec), 2.0))
        planner.tell(results[-1])
    back = made.settings()[2]
    assert [result for result in results if result.setting == back and result.stage is Stage.COMPARE]
    answer = analyse(made, results, planner.progress).answer
    assert answer.setting is not None and answer.setting.id == "threads=0" and back not in answer.undecided
    unseen = [result for result in results if result.setting != back or result.stage is Stage.SCREEN]
    race = planner.progress.race
    assert race is not None
    kept = tuple(left for left in race.departures if left.setting != back)
    cut = analyse(made, unseen, replace(planner.progress, race=replace(race, departures=kept))).answer
    assert cut.kind is AnswerKind.NOT_ENOUGH_DATA and "threads=2 may still be better" in " ".join(cut.sentences)


@pytest.mark.parametrize("late", [{5}, {3, 4, 5}, set(range(6))], ids=["the best", "half", "all"])
@pytest.mark.parametrize("code", ["no_request_ended", "short_window", "no_response", "unavailable"])
def test_a_setting_whose_answers_take_longer_than_a_short_trial_races_in_full_ones(late: set[int], code: str) -> None:
    def unanswered(spec: TrialSpec, result: TrialResult) -> TrialResult:
        short = spec.stage is Stage.SCREEN and threads(spec) in late
        return result_of(spec, code, 2.0) if short else result

    rates = (20.0, 40.0, 80.0, 160.0, 320.0, 1000.0)
    _, specs, analysis = screened(rates, unanswered)
    answer = analysis.answer
    assert answer.kind is AnswerKind.BEST and answer.setting is not None and answer.setting.id == "threads=5"
    assert not any(row.starts.failed for row in analysis.settings)
    short = Counter(threads(spec) for spec in specs if spec.stage is Stage.SCREEN)
    assert max(short.values()) <= (1 if len(late) == 6 else 3), "none is repeated"
    assert len(late) != 6 or short.total() == 2, "two show that the answers take longer"


@pytest.mark.parametrize("code", ["", "unavailable", "no_request_ended", "short_window"])
def test_full_trials_are_not_shortened_where_answers_took_longer_than_short_ones(code: str) -> None:
    """A slow setting whose trials all end before its answers would have no figure, or count as failed."""

    def late(spec: TrialSpec, result: TrialResult) -> TrialResult:
        return result_of(spec, code, 2.0) if code and spec.stage is Stage.SCREEN and threads(spec) == 0 else result

    made, specs, analysis = screened(TWO_AHEAD, late, repeats=3, confirm=0)
    full = [spec for spec in specs if spec.stage is Stage.COMPARE]
    whole = code in ("no_request_ended", "short_window")
    assert full and all((spec.window_ns is None) is whole for spec in full)
    rounds = made.measure.repeats if whole else rounds_most(made, full[0].window_ns)
    assert len({spec.block for spec in full}) <= rounds, "of the full length no more than were asked for"
    assert analysis.race is not None and analysis.race.grid_trials == rounds * len(made.settings())


def test_settings_that_had_not_settled_leave_where_four_times_as_much_would_not_do() -> None:
    """Queues of users fill for longer than a short trial lasts, so all short trials end at the limit of the warm-up."""

    def queued(_spec: TrialSpec, result: TrialResult) -> TrialResult:
        return replace(result, warmup_ended_by="limit")

    _, specs, _ = screened(FAR_APART, queued)
    assert {threads(spec) for spec in specs if spec.stage is Stage.COMPARE} == {4, 5, 6}


@pytest.mark.parametrize(("full", "leaves"), [("steady", True), ("limit", False), ("nearer", False)])
def test_a_setting_that_had_not_settled_leaves_once_a_full_trial_had_and_was_as_far_behind(
    full: str, *, leaves: bool
) -> None:
    def unsettled(spec: TrialSpec, result: TrialResult) -> TrialResult:
        if threads(spec) != 5:
            return result
        if spec.stage is Stage.SCREEN or full == "limit":
            return replace(result, warmup_ended_by="limit")
        more = 1.6 if full == "nearer" else 1.0
        return replace(result, metrics={**result.metrics, "goodput_per_s": result.metrics["goodput_per_s"] * more})

    _, specs, analysis = screened(FAR_APART, unsettled)
    trials = Counter(threads(spec) for spec in specs if spec.stage is Stage.COMPARE)
    assert set(trials) == {5, 6}
    assert (trials[5] == 1) is leaves
    assert analysis.answer.kind is AnswerKind.BEST


def test_a_third_short_trial_is_made_where_two_differ_too_much_to_show_what_they_show() -> None:
    def once_more(spec: TrialSpec, result: TrialResult) -> TrialResult:
        more = 1.1 if spec.stage is Stage.SCREEN and (threads(spec), spec.block) == (5, 0) else 1.0
        return replace(result, metrics={**result.metrics, "goodput_per_s": result.metrics["goodput_per_s"] * more})

    _, specs, analysis = screened(FAR_APART, once_more)
    third = {threads(spec) for spec in specs if spec.stage is Stage.SCREEN and spec.block == 2}
    assert third == {5, 6}, "the leader, and the one that is open"
    assert not any(spec.stage is Stage.COMPARE for spec in specs)
    assert analysis.answer.kind is AnswerKind.BEST


def test_a_second_short_trial_is_spared_only_while_four_settings_show_the_noise() -> None:
    _, specs, _ = screened((20.0, 30.0, 1000.0, 1000.0))
    assert sum(spec.stage is Stage.SCREEN for spec in specs) == 8
    _, specs, _ = screened((20.0, 900.0, 1000.0, 1000.0, 1000.0))
    assert sum(spec.stage is Stage.SCREEN for spec in specs) == 9
    assert not any(spec.stage is Stage.COMPARE and threads(spec) == 0 for spec in specs)


def test_the_first_look_has_a_bound_that_one_full_block_does_not_take_away() -> None:
    made = race_of(5, screen="500ms")
    planner = RacePlanner(made, 1)
    results: list[TrialResult] = []
    bounds: list[float | None] = []
    while (spec := planner.ask()) is not None:
        results.append(result_of(spec, served((990.0, 1000.0, 1000.0, 995.0, 1000.0), spec)))
        planner.tell(results[-1])
        if planner.block_ended:
            bounds.append(analyse(made, results, planner.progress).answer.regret)
    assert bounds[0] is None and None not in bounds[1:]


@pytest.mark.parametrize(("took_s", "short"), [(1.5, 10), (30.0, 2)])
def test_short_trials_that_take_nearly_as_long_as_full_ones_are_given_up(took_s: float, short: int) -> None:
    def slow(spec: TrialSpec, result: TrialResult) -> TrialResult:
        return replace(result, took_s=took_s if spec.stage is Stage.SCREEN else took_s + 9.5)

    _, specs, analysis = screened((1000.0, 1000.0, 1000.0, 1000.0, 100.0), slow, confirm=0)
    assert sum(spec.stage is Stage.SCREEN for spec in specs) == short
    assert min(spec.block for spec in specs if spec.stage is Stage.COMPARE) == 3
    assert analysis.answer.setting is not None


@pytest.mark.parametrize(("rate", "stays"), [(500.0, True), (100.0, False)])
def test_a_setting_that_still_got_faster_leaves_only_where_it_cannot_catch_up(rate: float, *, stays: bool) -> None:
    def rising(spec: TrialSpec, result: TrialResult) -> TrialResult:
        return replace(result, rising=threads(spec) == 0 and spec.stage is Stage.SCREEN)

    _, specs, _ = screened((rate, 1000.0, 1000.0, 300.0, 1000.0), rising)
    full = {spec.setting.id for spec in specs if spec.stage is Stage.COMPARE}
    assert ("threads=0" in full) is stays
    assert "threads=3" not in full


@pytest.mark.parametrize("regret", [None, 0.1])
@pytest.mark.parametrize(("rate", "rises", "full"), [(600.0, 9, 3), (600.0, 2, 3), (600.0, 1, 2), (100.0, 9, 2)])
def test_among_six_settings_one_that_still_got_faster_has_a_third_full_trial_if_it_may_catch_up(
    rate: float, rises: int, full: int, regret: float | None
) -> None:
    """By chance one of six settings rises in two trials of two in more than one run of twenty. `rises`: in so many of
    its first trials the setting does."""

    rates = (rate, 1000.0, 500.0, 500.0, 500.0, 500.0)

    def rising(spec: TrialSpec, result: TrialResult) -> TrialResult:
        true = rates[threads(spec)]
        quiet = true + (result.metrics["goodput_per_s"] - true) / 20
        metrics = {**result.metrics, "goodput_per_s": quiet}
        return replace(result, metrics=metrics, rising=threads(spec) == 0 and spec.block < rises)

    _, specs, analysis = screened(rates, rising, screen=None, regret=regret)
    counts = Counter(threads(spec) for spec in specs if spec.stage is Stage.COMPARE)
    assert counts == {0: full, 1: full, 2: 2, 3: 2, 4: 2, 5: 2}
    waits = (rate, rises) == (600.0, 9)
    assert ("threads=0 cannot be judged yet" in " ".join(analysis.answer.sentences)) is waits
    assert (analysis.answer.setting is None) is waits


def test_settings_that_warm_up_like_the_leader_have_no_third_trial_for_that() -> None:
    """The settings of a JVM all still compile while they are measured: more trials would not settle
    which is best once warm, a longer warm-up may."""
    rates = (600.0, 1000.0, 500.0, 500.0, 500.0, 500.0)

    def rising(spec: TrialSpec, result: TrialResult) -> TrialResult:
        return replace(result, metrics={**result.metrics, "goodput_per_s": rates[threads(spec)]}, rising=True)

    _, specs, analysis = screened(rates, rising, screen=None, confirm=3)
    assert Counter(threads(spec) for spec in specs) == dict.fromkeys(range(6), 2)
    answer = analysis.answer
    assert answer.kind is AnswerKind.NOT_ENOUGH_DATA and answer.setting is None
    assert "until all are warm (--warmup 20s, measure.warmup): threads=1 looks best so far" in answer.sentences[0]


def test_full_trials_that_give_less_than_short_ones_contradict_nothing_while_the_winner_leads() -> None:
    def slower(spec: TrialSpec, result: TrialResult) -> TrialResult:
        less = 0.7 if spec.stage is Stage.CONFIRM and threads(spec) == 6 else 1.0
        return replace(result, metrics={**result.metrics, "goodput_per_s": result.metrics["goodput_per_s"] * less})

    _, _, analysis = screened(FAR_APART, slower)
    assert analysis.race is not None and analysis.race.confirmation is not None
    assert analysis.race.confirmation.upheld and analysis.race.confirmation.agrees
    assert analysis.answer.setting is not None


EQUAL = (1000.0, 1000.0, 1000.0, 1000.0)


def noisy(spec: TrialSpec, result: TrialResult) -> TrialResult:
    """Trials differ by 5 % from start to start."""
    more = 1.05 if (threads(spec) + spec.block) % 2 else 1.0
    return replace(result, metrics={**result.metrics, "goodput_per_s": result.metrics["goodput_per_s"] * more})


@pytest.mark.parametrize(
    ("regret", "around_s", "window_s"),
    [(None, 12.0, None), (0.02, 12.0, None), (0.1, 12.0, 2), (None, 4.0, 4), (0.1, 4.0, 2), (None, 1.0, 2)],
)
def test_full_trials_measure_as_long_as_the_margin_or_the_bound_needs_but_no_longer_than_they_take_besides(
    regret: float | None, around_s: float, window_s: int | None
) -> None:
    """For the margin of 3 % this noise would need trials of the full length."""
    _, specs, _ = screened(EQUAL, noisy, around_s=around_s, confirm=0, regret=regret)
    window_ns = None if window_s is None else window_s * 10**9
    assert {spec.window_ns for spec in specs if spec.stage is Stage.COMPARE} == {window_ns}


@pytest.mark.parametrize(
    ("around_s", "warming_s", "rounds"),
    [
        (0.5, 0.0, 30),
        (1.0, 0.0, 30),
        (2.0, 0.0, 30),
        (3.0, 0.0, 21),
        (4.0, 0.0, 17),
        (8.0, 0.0, 10),
        (1.0, 6.0, 18),
        (1.0, 31.0, 12),
    ],
)
def test_shorter_trials_leave_time_for_more_rounds(around_s: float, warming_s: float, rounds: int) -> None:
    """None of these races can decide; each takes at most the time of ten rounds of full trials. `warming_s`: by so much
    longer than short trials full ones warm up."""

    def warming(spec: TrialSpec, result: TrialResult) -> TrialResult:
        more_s = 0.0 if spec.stage is Stage.SCREEN else warming_s
        return replace(noisy(spec, result), took_s=(result.took_s or 0.0) + more_s)

    made, specs, analysis = screened(EQUAL, warming, around_s=around_s, confirm=0, objective={"margin": 0.01})
    full = [spec for spec in specs if spec.stage is Stage.COMPARE]
    assert len({spec.block for spec in full}) == rounds
    window_ns = full[0].window_ns
    besides_s = around_s + warming_s
    took_s = besides_s + (window_ns or made.load.duration_ns) / 1e9
    assert rounds * took_s <= made.measure.repeats * (besides_s + made.load.duration_ns / 1e9)
    assert rounds <= rounds_most(made, window_ns)
    assert analysis.race is not None and analysis.race.ended_by == "blocks"
    assert analysis.race.grid_trials == rounds * len(EQUAL)
    assert f"of at most {made.screen_blocks + rounds} done" in race_line(analysis, made)


@pytest.mark.parametrize("window_ns", [None, 2 * 10**9, 3 * 10**9, 10**10, 10**11])
def test_the_looks_at_short_trials_and_at_full_ones_of_any_length_spend_the_whole_error(window_ns: int | None) -> None:
    made = race_of(4, screen="500ms")
    full = (share_at(made, look, window_ns=window_ns) for look in range(2, rounds_most(made, window_ns) + 1))
    assert sum(full) + SCREEN_LOOKS * share_at(made, 2, screened=True) == pytest.approx(1)


def test_users_without_an_answer_in_a_short_trial_bar_no_setting() -> None:
    def starved(spec: TrialSpec, result: TrialResult) -> TrialResult:
        missing = 0.9 if spec.stage is Stage.SCREEN else 0.0
        return replace(result, metrics={**result.metrics, "users_unserved_share": missing, "users_unserved": 9.0})

    _, _, analysis = screened(FAR_APART, starved)
    assert analysis.answer.setting is not None
    behind = next(row for row in analysis.settings if row.setting.id == "threads=0")
    assert behind.feasible and "users_unserved" not in behind.estimates


def test_memory_of_short_trials_is_not_told_beside_that_of_full_ones() -> None:
    """The setting with most threads leaves by its short trials, in which every server touches little of its memory."""

    def touched(spec: TrialSpec, result: TrialResult) -> TrialResult:
        return replace(
            result, metrics={**result.metrics, "rss_bytes_max": 150e6 if spec.stage is Stage.SCREEN else 5e8}
        )

    _, _, analysis = screened(TWO_AHEAD[::-1], touched)
    said = " ".join(analysis.answer.sentences)
    assert "threads=5 costs more: 6 threads instead of " in said and "less memory" not in said


def test_a_budget_counts_short_and_full_trials_for_what_each_takes() -> None:
    """A short trial takes 1.5 s, a full one 11 s: 100 s are too few for two full blocks of four settings after the
    short trials, and 180 s are enough."""
    _, enough, _ = screened(EQUAL, budget="180s")
    _, too_little, analysis = screened(EQUAL, budget="100s")
    assert any(spec.stage is Stage.COMPARE for spec in enough)
    assert Counter(spec.stage for spec in too_little) == {Stage.SCREEN: 8}
    _, least, _ = screened(EQUAL, budget="7s")
    assert Counter(spec.stage for spec in least) == {Stage.SCREEN: 4}, "a second block would not end in time"
    assert analysis.race is not None and analysis.race.ended_by == "budget"
    assert analysis.answer.regret is not None, "the short trials bound it"


@pytest.mark.parametrize("design", [{"regret": 0.05}, {}])
def test_where_short_trials_alone_decide_full_ones_check_that_also_without_a_confirmation(
    design: dict[str, float],
) -> None:
    _, specs, analysis = screened(FAR_APART, confirm=0, **design)
    assert Counter(spec.stage for spec in specs) == {Stage.SCREEN: 11, Stage.CONFIRM: 3}
    answer = analysis.answer
    assert answer.kind is AnswerKind.BEST and answer.figure is not None and answer.figure.fresh
    assert analysis.race is not None and analysis.race.ended_by == ("regret" if design else "decided")
    assert f"{FRESH_MIN} fresh starts)" in answer.sentences[0]


def test_a_bound_is_not_met_where_full_trials_turn_the_order_of_short_ones_round() -> None:
    def reversed_later(spec: TrialSpec, result: TrialResult) -> TrialResult:
        more = 2.5 if spec.stage is Stage.CONFIRM and threads(spec) == 5 else 1.0
        return replace(result, metrics={**result.metrics, "goodput_per_s": result.metrics["goodput_per_s"] * more})

    _, specs, analysis = screened(FAR_APART, reversed_later, confirm=0, regret=0.05)
    assert sum(spec.stage is Stage.CONFIRM for spec in specs) == 2 * FRESH_MIN
    answer = analysis.answer
    assert answer.kind is AnswerKind.NOT_ENOUGH_DATA and answer.setting is None and answer.bound_met is False
    assert "fresh starts contradict it" in answer.sentences[1] and "--order blocks" in answer.sentences[1]


def test_full_trials_judge_the_condition_that_short_ones_met() -> None:
    def failing(spec: TrialSpec, result: TrialResult) -> TrialResult:
        errors = 0.5 if spec.stage is Stage.CONFIRM and threads(spec) == 6 else 0.0
        return replace(result, metrics={**result.metrics, "error_rate": errors, "achieved_rate_per_s": 1000.0})

    _, _, analysis = screened(FAR_APART, failing, confirm=0, regret=0.05, objective={"subject_to": ["error_rate < 1%"]})
    assert analysis.answer.setting is None or threads_of(analysis.answer.setting) != 6


def test_short_trials_that_end_before_a_slow_server_has_answered_bar_no_setting() -> None:
    """Users who wait in line count as errors in a short trial. The budget has no time for full ones."""

    def starved(spec: TrialSpec, result: TrialResult) -> TrialResult:
        errors = 0.22 if spec.stage is Stage.SCREEN else 0.0
        return replace(result, metrics={**result.metrics, "error_rate": errors, "achieved_rate_per_s": 1000.0})

    _, specs, analysis = screened(EQUAL, starved, budget="90s", objective={"subject_to": ["error_rate < 1%"]})
    assert {spec.stage for spec in specs} == {Stage.SCREEN}
    assert analysis.answer.kind is AnswerKind.NOT_ENOUGH_DATA and len(analysis.answer.undecided) == len(EQUAL)
    assert all(row.feasible and "short trials" in row.uncertain_because[0] for row in analysis.settings)


@pytest.mark.parametrize(("budget_s", "full", "fresh"), [(90, 0, 0), (110, 2, 0), (130, 2, 1)])
def test_where_short_trials_judge_nothing_full_ones_come_before_the_time_to_confirm(
    budget_s: int, full: int, fresh: int
) -> None:
    """Too few requests for a p99 in half a second. The short trials take 12 s, a full round 44 s, and a round of fresh
    starts 22 s, of which three are wanted."""

    def with_p99(spec: TrialSpec, result: TrialResult) -> TrialResult:
        p99 = {} if spec.stage is Stage.SCREEN else {"response_time_ns_p99": 20e6}
        return replace(result, metrics={**result.metrics, **p99})

    _, specs, analysis = screened(
        (1000.0, 1000.0, 1000.0, 1500.0), with_p99, budget=f"{budget_s}s", objective={"subject_to": ["p99 < 500ms"]}
    )
    assert sum(trial.took_s or 0.0 for trial in analysis.trials) <= budget_s
    assert len({spec.block for spec in specs if spec.stage is Stage.COMPARE}) == full
    assert len({spec.block for spec in specs if spec.stage is Stage.CONFIRM}) == fresh
    if full:
        assert analysis.answer.setting is not None and threads_of(analysis.answer.setting) == 3
    else:
        assert "A longer budget (design.budget) would decide" in analysis.answer.sentences[1]


def test_an_answer_for_which_there_is_only_time_for_short_trials_says_so() -> None:
    """Eleven short trials take 16.5 s, and two full rounds of two settings 44 s."""
    _, specs, analysis = screened(FAR_APART, confirm=0, regret=0.05, budget="50s")
    assert {spec.stage for spec in specs} == {Stage.SCREEN}
    assert analysis.answer.setting is not None and analysis.answer.bound_met
    assert "2 short trials of 0.5 s)" in analysis.answer.sentences[0]


@pytest.mark.parametrize(("budget_s", "fresh"), [(30, 0), (45, 2), (90, 3)])
def test_fresh_starts_after_short_trials_begin_only_where_they_end_within_the_budget(budget_s: int, fresh: int) -> None:
    """Eleven short trials take 16.5 s, and each round of two fresh starts 22 s."""
    _, specs, analysis = screened(FAR_APART, budget=f"{budget_s}s")
    assert Counter(spec.stage for spec in specs)[Stage.CONFIRM] == fresh
    assert sum(trial.took_s or 0.0 for trial in analysis.trials) <= budget_s
    assert analysis.answer.setting is not None and threads_of(analysis.answer.setting) == 6
    assert fresh or "2 short trials of 0.5 s)" in analysis.answer.sentences[0]


def test_a_race_without_a_margin_measures_its_trials_as_long_as_it_was_told() -> None:
    """With a margin of 0 every difference matters, and no noise is small beside it."""
    made = race_of(3, objective={"margin": 0}, screen="500ms")
    assert window_for(made, 0.02, 1.0) is None
    assert window_for(race_of(3, objective={"margin": 0}, screen="500ms", regret=0.5), 0.02, 1.0) is not None


@pytest.mark.parametrize("more", [{}, {"confirm": 0, "regret": 0.1}], ids=["", "to a bound"])
def test_short_trials_alone_tell_no_near_settings_apart(more: dict[str, float]) -> None:
    """The rate of a server's first second may lie a few percent off its later one, for each setting in another way."""
    made = race_of(5, screen="500ms", confirm_early=True, **more)
    planner, results = planner_for(made, 1), list[TrialResult]()
    while (spec := planner.ask()) is not None and spec.stage is Stage.SCREEN:
        results.append(result_of(spec, served((1060.0, 1000.0, 940.0, 990.0, 200.0), spec), 1.5))
        planner.tell(results[-1])
    answer = analyse(made, results, at_rest(planner.progress)).answer
    assert answer.kind is AnswerKind.BOUNDED and answer.setting is not None and answer.setting.id == "threads=0"
    assert answer.regret is not None and answer.regret > 0.25 and not answer.bound_met


def dying(*of: int) -> Change:
    """Settings that serve for half a second, and die in every full trial."""

    def change(spec: TrialSpec, result: TrialResult) -> TrialResult:
        dead = spec.stage is not Stage.SCREEN and threads(spec) in of
        return result_of(spec, "died", 2.0) if dead else result

    return change


def test_a_setting_that_dies_in_every_full_trial_withholds_no_answer_and_gets_no_third_round() -> None:
    _, specs, analysis = screened(TWO_AHEAD, dying(5))
    assert len({spec.block for spec in specs if spec.stage is Stage.COMPARE and threads(spec) == 5}) == 2
    answer = analysis.answer
    assert answer.kind is AnswerKind.BEST and answer.setting is not None and answer.setting.id == "threads=4"
    assert "threads=5 failed: because of died" in " ".join(answer.sentences)


def test_a_race_ends_once_every_setting_that_is_left_dies_in_its_full_trials() -> None:
    """Those that left as worse come back once the best have died, for one round."""
    _, specs, analysis = screened(TWO_AHEAD, dying(*range(6)))
    assert len({spec.block for spec in specs if spec.stage is Stage.COMPARE}) == 3
    assert analysis.race is not None and analysis.race.ended_by == "decided" and analysis.answer.setting is None
