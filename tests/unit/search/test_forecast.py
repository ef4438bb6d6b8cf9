"""The differences that a run is forecast to detect, and its forecast duration, before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fakes.races import Outcome, result_of, threads
from fakes.trials import experiment
from powerband.analyze.stats.spending import share_of
from powerband.base.machine import Noise
from powerband.base.units import rough_time, time_text
from powerband.loads import engine_limits as limits
from powerband.loads import kind_of
from powerband.model.deployed import Deployed
from powerband.model.experiment import ClusterUse, Experiment
from powerband.model.load import Load
from powerband.model.plan import TrialSpec
from powerband.search import outlook
from powerband.search.forecast import Forecast, duration_text, forecast, found_by, reach_text, run_notes, size_text
from powerband.search.in_flight import Block, InFlight
from powerband.search.pilot import blocks_to_find, smallest_difference
from powerband.search.planners import planner_for
from powerband.search.session import left_s

ASSUMED = Noise(0.02)
LEAVING = Load.model_validate({"users": 10, "requests_per_user": 100, "duration": "1h"})


def made(settings: int = 4, repeats: int = 12, **design: Any) -> Experiment:
    factors = {"threads": tuple(range(1, settings + 1))}
    return experiment(
        factors, measure={"repeats": repeats, "warmup": "2s", "slots": False}, design={"seed": 1, **design}
    )


def expected(settings: int = 4, repeats: int = 12, **design: Any) -> Forecast:
    return forecast(made(settings, repeats, **design), ASSUMED)


def test_a_plan_takes_its_trials_and_a_race_its_confirmation_too() -> None:
    blocks, race = expected(), expected(order="race")
    assert (blocks.trials, blocks.confirming, blocks.expected_ns) == (48, 0, 48 * 13 * 10**9)
    assert (race.trials, race.confirming) == (54, 6)
    assert blocks.between_ns is None and race.between_ns is not None
    assert 6 * 13 * 10**9 < race.between_ns[0] < race.expected_ns < race.between_ns[1] < race.longest_ns
    assert expected(order="race", confirm=0).trials == 48
    assert race.longest_ns > race.expected_ns
    with_snapshots = experiment(measure={"repeats": 3, "warmup": "2s", "slots": False, "snapshots": True})
    assert forecast(with_snapshots, ASSUMED).expected_ns == 9 * 15 * 10**9
    with_slots = experiment(measure={"repeats": 3, "warmup": "2s"})
    assert forecast(with_slots, ASSUMED).expected_ns == (9 * 13 + 3 * 2) * 10**9


def test_short_trials_come_on_top() -> None:
    race, screened = expected(order="race"), expected(order="race", screen_ns=10**9)
    assert screened.trials == 3 * 4 + 36 * 4 + 6 and "at most 36 rounds" in size_text(
        made(order="race", screen_ns=10**9), screened
    )
    assert screened.longest_ns > race.longest_ns


def test_a_large_space_is_explored_and_its_finalists_race() -> None:
    large = expected(200, order="race")
    assert (large.explored, large.raced, large.trials) == (60, 12, 60 + 12 * 12 + 6)
    assert expected(52, order="race").explored == 52
    assert (expected(50, order="race").explored, expected(200).explored) == (0, 0)


def test_a_budget_leaves_as_few_finalists_as_two_rounds_need() -> None:
    """Half of the budget holds 23 trials of 13 s: two rounds of eight, and six fresh starts."""
    reach = expected(200, order="race", budget="600s").reach
    assert reach is not None and reach.blocks == 2
    assert reach.finds == smallest_difference(0.02, 8, 2, 0.95, most=12)


def test_what_it_finds_is_the_width_of_its_own_intervals() -> None:
    reach = expected(order="race").reach
    assert reach is not None and reach.finds is not None
    assert reach.finds == smallest_difference(0.02, 4, 12, 0.95, most=12)
    fixed = expected().reach
    assert fixed is not None and fixed.finds is not None
    assert fixed.finds < reach.finds, "looking after every block has its price"
    assert reach.margin_blocks == blocks_to_find(0.03, 0.02, 4, race=True)
    quieter = forecast(made(order="race"), Noise(0.005)).reach
    assert quieter is not None and quieter.finds is not None
    assert quieter.finds < 0.3 * reach.finds and (quieter.margin_blocks or 99) < (reach.margin_blocks or 0)


@pytest.mark.parametrize("race", [False, True])
@pytest.mark.parametrize("settings", [2, 3, 16])
def test_the_blocks_for_a_difference_are_the_fewest_that_find_it(settings: int, race: bool) -> None:
    blocks = blocks_to_find(0.03, 0.02, settings, race=race)
    assert blocks is not None and blocks > 2
    assert 2 * smallest_difference(0.02, settings, blocks, most=blocks if race else None) <= 0.03
    assert 2 * smallest_difference(0.02, settings, blocks - 1, most=blocks - 1 if race else None) > 0.03
    assert blocks_to_find(0.03, 0.5, settings, race=race) is None


def test_a_budget_leaves_time_for_fewer_blocks() -> None:
    def blocks(budget: str | None, **changes: Any) -> int:
        reach = expected(order="race", **({"budget": budget} if budget else {}), **changes).reach
        assert reach is not None
        return reach.blocks

    trial_s = 13
    assert blocks(None) == 12
    assert blocks(f"{trial_s * (6 + 4 * 5)}s") == 5, "six trials are kept for the confirmation"
    assert blocks(f"{trial_s * (6 + 4 * 5) - 1}s") == 4
    assert blocks("100h") == 12
    assert blocks(f"{2 * trial_s * (6 + 12 * 3)}s", settings=200) == 3, "the exploration gets half at most"
    assert blocks(f"{trial_s * 3 * 2}s", settings=3) == 2, "without a look there is nothing to confirm"
    assert blocks(f"{trial_s * 3 * 2 - 1}s", settings=3) == 1
    assert 0.9 < expected(order="race", budget="5m").expected_ns / (300 * 10**9) <= 1


@pytest.mark.parametrize(
    "change",
    [
        {"metric": "error_rate", "direction": "minimise"},
        {"metric": "response_time_ns_p99", "direction": "minimise"},
        {"metric": "capacity_per_s", "constraints": ["p99 < 1s"]},
    ],
)
def test_nothing_is_said_of_noise_that_is_not_known(change: dict[str, Any]) -> None:
    of = experiment({"threads": (1, 2)}, objective=change)
    assert forecast(of, ASSUMED).reach is None
    assert expected(1).reach is None, "one setting: nothing to compare"


def test_the_words() -> None:
    def said(settings: int, repeats: int, noise: Noise = ASSUMED, **design: Any) -> str:
        reach = forecast(made(settings, repeats, **design), noise).reach
        assert reach is not None
        return reach_text(reach)

    found = said(4, 5)
    assert found.startswith(
        "If equal trials differ by 2.0 % (assumed; `powerband doctor --pilot` measures it), 5 rounds find a difference "
        "of "
    )
    assert " % nearly always, and one of " in found
    assert found.endswith(" % half of the time; to find 3 % nearly always would take 26 rounds, about 22 min 32 s.")
    assert found_by("5 rounds", 0.048) == (
        "5 rounds find a difference of 9.6 % nearly always, and one of 4.8 % half of the time"
    )
    many = said(4, 40, Noise(0.01, "2026-11-21"))
    assert "(measured here on 2026-11-21), 40 rounds" in many and many.endswith(
        "; 8 rounds would find 3 % nearly always."
    )
    assert "no difference can be detected: there is time for 1 round, and two are needed; to find 3 %" in said(
        4, 12, budget="60s"
    )
    raced = made(4, 5, order="race", budget="60s", screen="500ms")
    (words, *_) = run_notes(raced, forecast(raced, ASSUMED))
    assert "only short trials detect differences, large ones: there is time for" in words
    assert "cannot find 3 % nearly always: measure longer, or on a quieter machine" in said(4, 12, Noise(0.9))
    of = made(4, 5)
    assert size_text(of, forecast(of, ASSUMED)) == "4 settings x 5 rounds = 20 trials"
    race = made(200, 12, order="race")
    assert size_text(race, forecast(race, ASSUMED)) == (
        "200 settings, 60 of them tried once, then 12 of these in a race of at most 12 rounds and 6 to confirm the "
        "winner: at most 210 trials"
    )
    assert [time_text(s * 1e9) for s in (50.4, 250, 7500, 1e6)] == ["50 s", "4 min 10 s", "2 h 5 min", "12 days"]


def test_the_time_is_said_as_likely_as_it_is() -> None:
    plan = made()
    assert duration_text(plan, expected()) == "takes about 10 min, at most about 16 min"
    race = replace(expected(order="race"), expected_ns=300 * 10**9, between_ns=(100 * 10**9, 620 * 10**9))
    assert duration_text(plan, race) == "takes about 5 min (2 min to 10 min in nine of ten runs)"
    many = plan.model_copy(update={"cluster": ClusterUse()})
    assert duration_text(many, race) == "takes about 5 min on one node; nodes share its rounds"
    spent = replace(race, between_ns=(300 * 10**9,) * 2, longest_ns=300 * 10**9)
    assert duration_text(plan, spent) == "takes about 5 min"
    search = experiment(objective={"metric": "capacity_per_s", "subject_to": ["p99 < 50ms"]})
    found = forecast(search, ASSUMED)
    assert found.longest_ns > 2 * found.expected_ns
    assert duration_text(search, found) == "takes about 11 min (5 min to 34 min)"


def test_of_users_who_leave_only_the_most_is_known() -> None:
    plan = made().model_copy(update={"load": LEAVING})
    found = forecast(plan, ASSUMED)
    left = "(users leave once they have sent their requests)"
    most = rough_time(found.longest_ns / 1e9)
    assert duration_text(plan, found) == f"takes at most about {most} {left}"
    many = plan.model_copy(update={"cluster": ClusterUse()})
    assert duration_text(many, found) == f"takes at most about {most} on one node; nodes share its rounds {left}"
    race = made(order="race", budget="10m").model_copy(update={"load": LEAVING})
    within = forecast(race, ASSUMED)
    assert duration_text(race, within) == f"takes at most about 10 min {left}"
    assert within.reach is not None and (within.reach.blocks, within.reach.margin_ns) == (12, None)
    assert reach_text(within.reach).endswith("rounds.")


def test_the_time_left_is_not_known_before_a_trial_has_shown_when_users_leave() -> None:
    for load, known in ((made().load, True), (LEAVING, False)):
        plan = made().model_copy(update={"load": load})
        planner = planner_for(plan, 1)
        assert (left_s(planner, plan, 1) is not None) is known
        first = planner.ask()
        assert first is not None
        planner.tell(result_of(first, {"goodput_per_s": 1000.0}, 5.0))
        assert left_s(planner, plan, 1) == 47 * 5.0


def test_a_failed_trial_of_users_who_leave_does_not_end_a_run_with_a_budget() -> None:
    planner = planner_for(made(order="race", budget="10m").model_copy(update={"load": LEAVING}), 1)
    first = planner.ask()
    assert first is not None
    planner.tell(replace(result_of(first, {}, 5.0), status="failed"))
    assert planner.ask() is not None


def test_a_trial_of_users_who_leave_takes_time_besides_what_it_measures() -> None:
    """Before a trial has shown how long its users stay, all of its time counts as time besides."""
    before = InFlight[Block](made().model_copy(update={"load": LEAVING}), 1)
    assert before.around_s == before.lasts_s(None) > 0


def test_nine_of_ten_simulated_races_end_within_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    full, none = np.arange(1.0, 301.0), np.zeros(300)
    played = outlook.Played(short=none, full=full, confirm=none, raced=none + 4, spared_s=none)
    monkeypatch.setattr("powerband.search.forecast.simulate_untried", lambda *_: played)
    monkeypatch.setattr("powerband.search.forecast.PACE_FACTOR", 0.0)
    between_ns = expected(order="race").between_ns
    assert between_ns is not None
    times_ns = 13e9 * full
    assert np.mean((between_ns[0] <= times_ns) & (times_ns <= between_ns[1])) == pytest.approx(0.9, abs=0.005)


def test_a_race_is_announced_with_as_many_trials_as_its_planner_counts() -> None:
    for of in (made(7, 5, order="race", screen="500ms"), made(60, 5, order="race", explore_trials=10)):
        assert forecast(of, ASSUMED).trials == planner_for(of, 1).planned_total


def test_a_quieter_machine_or_fewer_settings_are_done_sooner() -> None:
    def likely(settings: int, sd: float) -> int:
        return forecast(made(settings, order="race"), Noise(sd, "2026-11-25")).expected_ns

    assert likely(8, 0.005) < likely(8, 0.015) < likely(16, 0.015)


@pytest.mark.parametrize(("design", "looks"), [({}, 200), ({"budget": "10m"}, 60)])
def test_a_race_of_very_many_rounds_is_played_in_part(
    monkeypatch: pytest.MonkeyPatch, design: dict[str, Any], looks: int
) -> None:
    """Ten minutes hold 60 trials of 10 s, and two settings at least run in each round."""
    seen: list[int] = []
    glance_at = outlook.glance_at
    monkeypatch.setattr(
        outlook, "glance_at", lambda of, blocks, **more: seen.append(blocks) or glance_at(of, blocks, **more)
    )
    forecast(made(repeats=10_000, order="race", **design), ASSUMED)
    assert len(seen) <= looks


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 12])
def test_the_looks_at_a_race_spend_the_whole_error(blocks: int) -> None:
    assert sum(share_of(look, blocks) for look in range(2, max(2, blocks) + 1)) == pytest.approx(1)


def test_what_is_left_follows_from_what_trials_take_and_show() -> None:
    def left(of: Experiment, outcome: Outcome, took_s: float) -> list[float | None]:
        """The forecast of the time left before each trial, and at the end."""
        planner, found = planner_for(of, 1), []
        while (spec := planner.ask()) is not None:
            found.append(planner.left_s(ASSUMED))
            planner.tell(result_of(spec, outcome(spec), took_s))
        return [*found, planner.left_s(ASSUMED)]

    def far_apart(spec: TrialSpec) -> Mapping[str, float]:
        return {"goodput_per_s": 100.0 * threads(spec) * (1 + 0.001 * (spec.block % 3))}

    def alike(spec: TrialSpec) -> Mapping[str, float]:
        return {"goodput_per_s": 100.0 + 4 * ((7 * threads(spec) + 5 * spec.block) % 3)}

    assert left(made(), alike, 20.0)[:2] == [None, 47 * 20.0], "of a fixed plan all that is planned"
    one, other = (left(made(order="race"), outcome, 20.0) for outcome in (far_apart, alike))
    assert one[0] is None and one[-1] == other[-1] == 0
    assert None not in one[1:] + other[1:], "it is known from the first trial to the last"
    after_two_blocks = 8
    little, much = one[after_two_blocks], other[after_two_blocks]
    assert little is not None and 6 * 20.0 <= little <= 10 * 20.0, "hardly more than what confirms the winner"
    assert much is not None and much > 20 * 20.0, "they cannot be told apart for long"
    slower = left(made(order="race"), alike, 40.0)
    assert slower[after_two_blocks] == 2 * much
    budget = left(made(order="race", budget="420s"), alike, 20.0)
    assert budget[after_two_blocks] == 420 - 8 * 20, "no more than the budget leaves"
    assert left(made(order="race", soak="10m"), far_apart, 20.0)[after_two_blocks] == little + 600


def test_what_disturbance_may_have_cost_keeps_a_race_open() -> None:
    """One of two is 10 % slower; each may have lost 15 %, so that no round decides."""
    of = made(2, 12, order="race")

    def left(held_up: float) -> float | None:
        planner = planner_for(of, 1)
        for _ in range(6):
            spec = planner.ask()
            assert spec is not None
            served = 1000 * (0.9 if threads(spec) else 1.0) * (1 + 0.005 * (spec.block % 3 - 1))
            planner.tell(replace(result_of(spec, {"goodput_per_s": served}), took_s=12.0, held_up=held_up))
        return planner.left_s(ASSUMED)

    assert left(0.0) == 6 * 12.0, "those that confirm the winner"
    assert left(0.15) == 9 * 2 * 12.0, "all rounds"


def test_what_is_left_of_an_exploration_holds_the_race_to_come() -> None:
    planner = planner_for(made(60, order="race", explore_trials=20), 1)
    spec = planner.ask()
    assert spec is not None
    planner.tell(result_of(spec, {"goodput_per_s": 100.0}, 10.0))
    left_s = planner.left_s(ASSUMED)
    assert left_s is not None and 19 * 10.0 < left_s < 10.0 * (19 + 12 * 12 + 6)


def test_joining_users_take_their_time_and_are_told() -> None:
    load = {"users": 42_000, "join": "160/s", "websocket": {}, "scenario": [{"name": "x", "message": "x"}]}
    plain, joining = (
        forecast(made().model_copy(update={"load": part}), ASSUMED)
        for part in map(Load.model_validate, ({**load, "join": None}, load))
    )
    assert joining.expected_ns - plain.expected_ns == joining.trials * 262_500_000_000
    crowd = made().model_copy(update={"load": Load.model_validate(load)})
    assert kind_of(crowd).joining_text(crowd) == "42,000 users join over 4 min 22 s"
    assert "In each trial 42,000 users join over 4 min 22 s first." in run_notes(crowd, joining)
    assert kind_of(made()).joining_text(made()) == ""


@pytest.mark.parametrize("load", [{"users": 10}, {"users": None, "rate": 10}])
@pytest.mark.parametrize("warmup", ["60s", "0s"])
def test_users_and_a_rate_begin_within_a_fixed_warm_up_unless_there_is_none(load: dict[str, Any], warmup: str) -> None:
    measured = {"repeats": 3, "warmup": warmup, "slots": False}
    plain, ramped = (
        experiment(measure=measured, load={**load, "duration": "10s", "ramp": ramp}, design={"soak": "10m"})
        for ramp in ("0s", "60s")
    )
    assert forecast(ramped, ASSUMED) == forecast(plain, ASSUMED)
    assert InFlight[Block](ramped, 1).lasts_s(None) == InFlight[Block](plain, 1).lasts_s(None)


@pytest.mark.parametrize(
    ("think", "steps", "warmup_s"), [("4s", 5, 20.5), ("12s", 5, 60.5), ("4s", 1, 4.5), ("60s", 1, 30.0)]
)
def test_a_warm_up_takes_as_long_as_one_pass_through_a_scenario(think: str, steps: int, warmup_s: float) -> None:
    scenario = [{"name": str(number)} for number in range(steps)]
    measured = {"repeats": 3, "slots": False}
    plain, paused = (
        forecast(experiment(measure=measured, load={"users": 10, "duration": "10s", **more}), ASSUMED)
        for more in ({}, {"think": think, "scenario": scenario})
    )
    assert paused.expected_ns - plain.expected_ns == 9 * (warmup_s - 1) * 10**9


def test_what_a_machine_can_hold_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "descriptor_limit", lambda: 20_000)
    monkeypatch.setattr(limits, "subject_descriptor_limit", lambda: 1_000)
    monkeypatch.setattr(limits, "local_ports", lambda: 28_232)
    many = made().model_copy(update={"load": Load(users=42_000)})
    assert limits.foreseen(many) == [
        "42,000 users take 3 processes of the load generator with 6 source addresses (127.0.0.2 to 127.0.0.7), each "
        "with 20,000 descriptors.",
        "One process of the server may open 20,000 descriptors too: 42,000 users need several processes, or a limit of "
        "42,048 (`sudo prlimit --pid $$ --nofile=42048` in this shell).",
    ]
    assert limits.foreseen(made()) == []
    few, more = (made().model_copy(update={"load": Load(users=users)}) for users in (952, 953))
    assert limits.foreseen(few) == []
    assert limits.foreseen(more) == [
        "One process of the server starts with a limit of 1,000 descriptors: unless it raises that itself, 953 users "
        "need several processes, or a limit of 1,001 (`sudo prlimit --pid $$ --nofile=1001` in this shell)."
    ]
    for its_own in ({"deployed": Deployed()}, {"command": ("docker", "run", "image")}):
        elsewhere = more.subject.model_copy(update=its_own)
        assert limits.foreseen(more.model_copy(update={"subject": elsewhere})) == [], "its limit is not known"
    (said,) = limits.foreseen(made().model_copy(update={"load": Load(users=2_000_000)}))
    assert said.startswith("This machine cannot hold 2,000,000 users: the load may need 2000000 connections")


def test_a_jvm_may_warm_up_for_twice_as_long() -> None:
    other = experiment(
        measure={"repeats": 3, "slots": False}, subject={"name": "server", "command": ["./server", "{port}"]}
    )
    jvm = experiment(
        measure={"repeats": 3, "slots": False},
        subject={"name": "server", "command": ["/opt/bin/java", "Server", "{port}"]},
    )
    longer_ns = forecast(jvm, ASSUMED).longest_ns - forecast(other, ASSUMED).longest_ns
    assert longer_ns >= forecast(other, ASSUMED).trials * other.measure.warmup_max_ns
    assert forecast(jvm, ASSUMED).expected_ns == forecast(other, ASSUMED).expected_ns


@pytest.mark.parametrize(("repeats", "told"), [(12, True), (93, False)])
def test_starts_that_are_too_few_to_allow_a_failed_one_are_told(repeats: int, told: bool) -> None:
    of = made(1, repeats)
    of = of.model_copy(update={"objective": of.objective.model_copy(update={"allow_failed_starts": 0.05})})
    said = " ".join(run_notes(of, forecast(of, ASSUMED)))
    assert ("12 starts of a setting cannot show that at most 5 % fail, once one does" in said) is told
