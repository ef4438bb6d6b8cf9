"""Races, grids and searches on many nodes in simulated time: they take less time than on one, and give the same
answer."""

from __future__ import annotations

import math
import os
from pathlib import Path
from statistics import median

import pytest

from fakes.beside import has_false_winner
from fakes.edges import Server, setting
from fakes.nodes_simulated import (
    BETWEEN_S,
    SEARCHED,
    SERVERS,
    START_STOP_S,
    TRIAL_S,
    driven,
    large,
    questions,
    race,
    search,
    simulate,
)
from fakes.pages import ROOT
from fakes.trials import experiment
from powerband.model.experiment import Experiment
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import AnswerKind

FASTER = {2: 1.8, 4: 3.2, 8: 5.5}


def test_the_page_says_how_much_sooner() -> None:
    two, four, eight = FASTER.values()
    said = f"Two, four and eight nodes answer at least {two}, {four} and {eight} times as soon as one"
    assert said in (ROOT / "docs" / "cluster.md").read_text()


@pytest.mark.parametrize("name", list(questions())[:2])
def test_two_four_and_eight_nodes_answer_so_much_sooner(name: str) -> None:
    made, rates = questions()[name]
    best = made.settings()[rates.index(max(rates))]
    alone = median(race(made, 1, rates, seed).took_s for seed in range(5))
    for nodes, faster in FASTER.items():
        runs = [race(made, nodes, rates, seed) for seed in range(5)]
        assert alone / median(run.took_s for run in runs) >= faster
        assert all(run.chosen == best for run in runs)


def test_the_capacity_of_a_queue_is_found_so_much_sooner() -> None:
    alone, *runs = ([search([SEARCHED["M/M/1"]], nodes, seed, 0.0) for seed in range(3)] for nodes in (1, *FASTER))
    for faster, found in zip(FASTER.values(), runs, strict=True):
        assert median(run.took_s for run in alone) >= faster * median(run.took_s for run in found)


def test_short_trials_first_leave_enough_to_share() -> None:
    """Nodes that have no short trials to run begin full ones, and fresh starts ahead of the race's end."""
    made, rates = list(questions().values())[2]
    took_s = [median(race(made, nodes, rates, seed).took_s for seed in range(12)) for nodes in (1, 2, 4, 8)]
    assert all(took_s[0] >= faster * each for faster, each in zip(FASTER.values(), took_s[1:], strict=True))


def with_short_trials(repeats: int) -> Experiment:
    """A race of four settings as `tune` has it."""
    raced = {"order": "race", "screen": "500ms", "confirm": 3, "confirm_early": True}
    return experiment({"threads": ("a", "b", "c", "d")}, measure={"repeats": repeats}, design=raced)


def test_short_trials_that_outlast_full_ones_keep_the_race_from_no_look() -> None:
    made, rates = with_short_trials(3), dict(zip("abcd", (1000.0, 900.0, 700.0, 500.0), strict=True))
    run = simulate(made, [1.0] * 6, lambda spec, _: {"goodput_per_s": rates[level(spec)], "error_rate": 0.0}, 1, slow=5)
    assert run.analysis.race is not None and run.analysis.race.ended_by == "decided"
    assert run.analysis.answer.kind is AnswerKind.BEST and run.analysis.race.confirmation is not None


def test_full_trials_beside_the_last_short_ones_are_of_all_settings() -> None:
    """The fourth setting is far behind in one short trial only, so that a third decides."""
    rates = dict(zip("abcd", (1000.0, 1000.0, 990.0, 600.0), strict=True))

    def answer(spec: TrialSpec, _: float) -> dict[str, float]:
        luck = 1.15 if level(spec) == "d" and spec.block == 0 else 1.0
        return {"goodput_per_s": luck * rates[level(spec)] * (1 + 0.001 * spec.block), "error_rate": 0.0}

    trials = simulate(with_short_trials(10), [1.0] * 2, answer, 1).analysis.trials
    tried = {
        stage: {str(each.setting.as_dict()["threads"]) for each in trials if each.block == block}
        for block, stage in ((2, Stage.SCREEN), (3, Stage.COMPARE))
    }
    assert len(tried[Stage.SCREEN]) == 2 and tried[Stage.COMPARE] == {*"abcd"}


def level(spec: TrialSpec) -> str:
    return str(spec.setting.as_dict()["threads"])


@pytest.mark.long
@pytest.mark.parametrize("nodes", FASTER)
def test_of_equal_settings_none_wins_on_many_nodes_either(nodes: int) -> None:
    """A race like `tune`'s: short trials come first, and the likely winner starts afresh before the race ends."""
    made = with_short_trials(10)
    races = [race(made, nodes, [1000.0] * 4, seed) for seed in range(20)]
    assert sum(has_false_winner(each.analysis) for each in races) <= 1


@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
def test_all_nodes_explore_side_by_side_and_find_the_finalists_of_one(nodes: int) -> None:
    """Speeds of nodes differ by 10 %. Each node measures the common setting, too; no node waits for another."""
    made, rates = large()
    best = made.settings()[rates.index(max(rates))]
    runs = [race(made, nodes, rates, seed) for seed in range(10)]
    trials = made.design.explore_trials + nodes - 1
    each_s = BETWEEN_S + START_STOP_S + 1.0 + made.load.duration_ns / 1e9
    for run in runs:
        explored = [result for result in run.analysis.trials if result.stage is Stage.EXPLORE]
        assert len(explored) == trials and len({result.node for result in explored}) == nodes
        assert run.explored_s == pytest.approx(each_s * math.ceil(trials / nodes))
    raced = [[row.setting for row in run.analysis.settings] for run in runs]
    assert sum(best in settings for settings in raced) >= 9
    ranked = sorted(made.settings(), key=dict(zip(made.settings(), rates, strict=True)).__getitem__)
    assert sum(len({*ranked[-6:]} & {*settings}) for settings in raced) >= 0.85 * 6 * len(runs), "most of the best six"


def test_eight_nodes_explore_and_race_in_no_more_than_whole_rounds_take() -> None:
    """The trials in a row: those of the exploration on each node, a round of all finalists, two fresh starts. The race
    of the finalists begins on all nodes at once."""
    made, rates = large()
    in_a_row = math.ceil((made.design.explore_trials + 7) / 8) + made.design.finalists + 2
    runs = [race(made, 8, rates, seed) for seed in range(5)]
    assert median(run.took_s for run in runs) == pytest.approx(in_a_row * (BETWEEN_S + TRIAL_S))


@pytest.mark.long
def test_capacities_are_found_sooner_and_nodes_that_differ_name_no_wrong_winner() -> None:
    """Speeds of nodes differ by 10 %. The edge of a node of average speed lies within nearly every interval."""
    alone = median(search(SERVERS, 1, seed).took_s for seed in range(4))
    for nodes, faster in FASTER.items():
        runs = [search(SERVERS, nodes, seed) for seed in range(4)]
        assert alone >= faster * median(run.took_s for run in runs)
        assert {run.chosen for run in runs} == {setting(2)}
    equal = [search((Server(), Server()), 4, seed) for seed in range(6)]
    assert sum(run.analysis.answer.kind is AnswerKind.BEST for run in equal) <= 1
    found = [row.capacity.estimate for run in equal for row in run.analysis.settings if row.capacity]
    covered = [estimate.low <= Server().capacity_per_s <= estimate.high for estimate in found]
    assert sum(covered) >= 11


@pytest.mark.long
def test_planning_and_merging_for_a_thousand_nodes_take_less_than_a_hundredth_of_a_core_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By CPU time, which other programs do not change much; no file is synced, since that is no CPU time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    cpu_s, analysis = driven(1000, tmp_path)
    assert len(analysis.trials) == 2000 and analysis.nodes is not None and len(analysis.nodes.rows) == 1000
    assert cpu_s < 0.01 * TRIAL_S
