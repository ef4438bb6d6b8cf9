"""Differences between nodes, on trials whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fakes.edges import capacity_experiment
from fakes.trials import experiment as fake_experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.nodes import nodes_of
from powerband.model.constraint import Constraint
from powerband.model.experiment import Objective
from powerband.model.plan import Setting, Stage
from powerband.model.results import Confirmation, Estimate, Problem, Race, TrialResult

MADE = fake_experiment({"threads": (16, 32, 64)}, measure={"repeats": 12})
SETTINGS = MADE.settings()
RATES = {16: 800.0, 32: 1000.0, 64: 1200.0}

Law = Callable[[str, int], float]


def trials(blocks: dict[str, int], law: Law, noise: float = 0.01, seed: int = 1) -> list[TrialResult]:
    """Trials of so many blocks on each node. `law`: the rate of a node with so many threads."""
    dice = np.random.default_rng(seed)
    found: list[TrialResult] = []
    nodes = [node for node, count in blocks.items() for _ in range(count)]
    for block, node in enumerate(nodes):
        drift = dice.normal(0, 0.03)  # of the whole block, so it cancels out
        for setting in SETTINGS:
            threads = setting.as_dict()["threads"]
            assert isinstance(threads, int)
            rate = law(node, threads) * math.exp(drift + dice.normal(0, noise))
            found.append(made(len(found) + 1, block, setting, node, rate=rate))
    return found


def made(
    number: int, block: int, setting: Setting, node: str, *, rate: float, stage: Stage = Stage.COMPARE
) -> TrialResult:
    return TrialResult(number, block, 1, setting, "measured", (), {"goodput_per_s": rate}, stage=stage, node=node)


def test_trials_of_one_machine_have_no_nodes() -> None:
    assert nodes_of(MADE, trials({"": 4}, lambda node, threads: RATES[threads]), SETTINGS[2]) is None


def test_a_search_for_capacities_compares_nodes_by_its_first_rounds() -> None:
    """Node a serves 800/s where b serves 1,000/s. The nodes' own rounds are one each, so nobody knows the noise."""
    searched = capacity_experiment((16, 32, 64))
    looks = trials(dict.fromkeys("ab", 1), lambda node, threads: RATES[threads] * (0.8 if node == "a" else 1.0), 0.0)
    rows = [replace(row, stage=Stage.SATURATE) for row in looks]
    found = nodes_of(searched, rows, SETTINGS[2])
    assert found is not None and found.differ is None
    speeds = [row.ratio for row in found.rows]
    assert all(speed is not None and speed.low is None for speed in speeds)
    (said,) = found.sentences
    assert said.startswith("Under a full load of users the nodes served ") and "whichever of these nodes" in said
    alike = trials(dict.fromkeys("ab", 1), lambda node, threads: RATES[threads], 0.0)
    same = nodes_of(searched, [replace(row, stage=Stage.SATURATE, block=0) for row in alike[:3]], SETTINGS[2])
    assert same is not None and same.sentences == ()


def test_where_less_is_better_a_slow_node_has_more_all_the_same() -> None:
    p99 = MADE.model_copy(update={"objective": Objective(metric="response_time_ns_p99", direction="minimise")})
    slow = {"a": 1.0, "b": 1.25}
    rows = trials(dict.fromkeys("ab", 4), lambda node, threads: 1e9 * slow[node] / RATES[threads])
    longer = [replace(row, metrics={"response_time_ns_p99": row.metrics["goodput_per_s"]}) for row in rows]
    found = nodes_of(p99, longer, SETTINGS[2])
    assert found is not None
    ratios = [row.ratio.value for row in found.rows if row.ratio is not None]
    assert ratios == pytest.approx([1 / math.sqrt(1.25), math.sqrt(1.25)], rel=0.05)


def test_the_margin_of_a_share_is_in_percentage_points() -> None:
    """Half a point more is far from the 3 points that matter, though it is twice as much."""
    shares = MADE.model_copy(update={"objective": Objective(metric="error_rate", direction="minimise")})
    rows = [
        replace(row, metrics={"error_rate": 0.005 + 0.0001 * (row.number % 3) + (0.005 if worse else 0.0)})
        for row in trials(dict.fromkeys("ab", 4), lambda node, threads: RATES[threads])
        for worse in [row.setting == SETTINGS[2 if row.node == "b" else 0]]
    ]
    found = nodes_of(shares, rows, SETTINGS[2])
    assert found is not None
    assert found.sentences[0] == "threads=64 is best, or within 3 percentage points of the best, on all 2 nodes."


@pytest.mark.parametrize("blocks", [{"a": 4}, {"a": 4, "b": 4}])
def test_where_one_node_alone_has_valid_trials_nothing_is_said_of_nodes(blocks: dict[str, int]) -> None:
    rows = trials(blocks, lambda node, threads: RATES[threads])
    steal = Problem("host_steal", "the machine was disturbed")
    rows = [replace(row, problems=(steal,)) if row.node == "b" else row for row in rows]
    found = nodes_of(MADE, rows, SETTINGS[2])
    assert found is not None and found.sentences == ()


def test_a_slow_node_is_told_by_how_much_and_changes_no_order() -> None:
    speed = {"a": 1.0, "b": 1.0, "c": 0.8}
    found = nodes_of(MADE, trials(dict.fromkeys("abc", 4), lambda n, t: speed[n] * RATES[t]), SETTINGS[2])
    assert found is not None and found.sentences == ("threads=64 is best on all 3 nodes.",)
    slow = next(row for row in found.rows if row.node == "c")
    middle = math.exp(sum(map(math.log, speed.values())) / 3)
    assert slow.ratio is not None and slow.ratio.low is not None and slow.ratio.high is not None
    assert slow.ratio.low < 0.8 / middle < slow.ratio.high < 1
    assert (slow.trials, slow.blocks, slow.best) == (12, 4, SETTINGS[2])
    assert found.differ is not None and found.differ > 0.01


def test_where_nothing_is_named_no_setting_is_said_to_be_best() -> None:
    alike = trials(dict.fromkeys("ab", 4), lambda node, threads: RATES[threads])
    leads = nodes_of(MADE, alike, SETTINGS[2], chosen=False)
    assert leads is not None
    assert leads.sentences == ("threads=64 came out first in the rounds on all 2 nodes.",)
    withdrawn = Race((), (), 0, 0, "decided", 2, unconfirmed="it died")
    taken_back = nodes_of(MADE, alike, SETTINGS[2], race=withdrawn, chosen=False)
    assert taken_back is not None and taken_back.sentences == ()


def test_a_node_on_which_another_setting_is_best_is_told_with_its_lead() -> None:
    def law(node: str, threads: int) -> float:
        return 1400.0 if (node, threads) == ("b", 32) else RATES[threads]

    found = nodes_of(MADE, trials(dict.fromkeys("abcd", 3), law), SETTINGS[2])
    assert found is not None and found.differ is not None and found.differ < 1e-6
    row = next(row for row in found.rows if row.node == "b")
    assert row.best == SETTINGS[1] and row.shown and row.lead is not None and row.lead.low is not None
    assert row.lead.low < 1400 / 1200 < (row.lead.high or 0)
    assert found.sentences[0].startswith("Nodes differ: on b threads=32 had 1")
    assert all(row.best == SETTINGS[2] for row in found.rows if row.node != "b")


@pytest.mark.parametrize("blocks", [1, 4])
def test_a_setting_that_can_be_no_answer_is_best_on_no_node(blocks: int) -> None:
    """64 threads are the fastest on both nodes, but use more memory than is allowed."""
    within = Constraint.model_validate("memory < 500MiB")
    limited = MADE.model_copy(update={"objective": Objective.model_validate({"constraints": (within,)})})
    rows = [
        replace(row, metrics={**row.metrics, "rss_bytes_max": 9e8 if row.setting == SETTINGS[2] else 1e8})
        for row in trials(dict.fromkeys("ab", blocks), lambda node, threads: RATES[threads])
    ]
    analysis = analyse(limited, rows)
    assert analysis.nodes is not None and analysis.nodes.setting == SETTINGS[1]
    assert [row.best for row in analysis.nodes.rows] == [SETTINGS[1], SETTINGS[1]]
    assert not any("than threads=32, which" in said for said in analysis.answer.sentences)
    assert any(said.startswith("threads=32 ") and "on all 2 nodes." in said for said in analysis.answer.sentences)


def test_with_one_block_a_node_it_is_said_that_chance_cannot_be_told() -> None:
    def law(node: str, threads: int) -> float:
        return 1400.0 if (node, threads) == ("b", 32) else RATES[threads]

    found = nodes_of(MADE, trials(dict.fromkeys("ab", 1), law), SETTINGS[2])
    assert found is not None and found.differ is None
    row = next(row for row in found.rows if row.node == "b")
    assert row.best == SETTINGS[1] and not row.shown and row.lead is not None and row.lead.low is None
    assert "certain" in found.sentences[0] and "chance" in found.sentences[1]


def test_fresh_starts_say_on_which_nodes_they_were() -> None:
    found = trials({"a": 2, "b": 2}, lambda node, threads: RATES[threads])
    found += [made(100 + n, 9 + n, SETTINGS[2], node, rate=1200.0, stage=Stage.CONFIRM) for n, node in enumerate("cab")]
    served = Estimate(1200.0, 1190.0, 1210.0, 0.95, 3)
    fresh = Confirmation(SETTINGS[2], None, 3, served, served, 0.0, None, True, True, "")
    race = Race((), (), 0, 0, "decided", 2, fresh)
    nodes = nodes_of(MADE, found, SETTINGS[2], race=race)
    assert nodes is not None and nodes.confirmed_on == ("a", "b", "c")
    assert nodes.sentences[-1] == "Fresh starts confirm it on a, b and c."
    fewer = nodes_of(MADE, found[:-1], SETTINGS[2], race=race)
    assert fewer is not None and fewer.sentences[-1] == "Fresh starts confirm it on 2 nodes only: a and c."
    contradicted = nodes_of(MADE, found, SETTINGS[2], race=replace(race, confirmation=replace(fresh, agrees=False)))
    assert contradicted is not None and not any("onfirm" in said for said in contradicted.sentences)


@pytest.mark.long
def test_equal_settings_differ_between_nodes_by_chance_as_often_as_is_said() -> None:
    """The level is 5 %, in 300 runs of four nodes with two blocks each; the nodes differ in speed alone."""
    speed = {"a": 1.0, "b": 0.9, "c": 1.1, "d": 1.2}
    runs = 300
    small = shown = 0
    for seed in range(runs):
        found = nodes_of(MADE, trials(dict.fromkeys("abcd", 2), lambda n, t: speed[n] * 1000, 0.05, seed), SETTINGS[0])
        assert found is not None and found.differ is not None
        small += found.differ < 0.05
        shown += any(row.shown for row in found.rows)
    assert 3 <= small <= 30  # 15 are expected; these are the central 99.9 % of a Poisson count
    assert shown <= 30
