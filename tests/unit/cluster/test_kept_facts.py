"""A run that was stopped and resumed: the total cost of Ray on a node, and whether a node is the same machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from powerband.cluster.kept_facts import KeptFacts, is_another_machine, joined_costs
from powerband.store import RunDir


def test_costs_are_means_over_all_trials_and_the_longest_wait() -> None:
    before = {"actor_cores": 0.01, "raylet_cores": 0.02, "trials": 3, "between_s_max": 0.5}
    now = {"actor_cores": 0.02, "raylet_cores": 0.02, "trials": 1, "between_s_max": 0.1}
    assert joined_costs(before, now) == pytest.approx(
        {"actor_cores": 0.0125, "raylet_cores": 0.02, "trials": 4, "between_s_max": 0.5}
    )


def test_a_node_that_ran_nothing_since_keeps_what_it_cost() -> None:
    before = {"actor_cores": 0.01, "trials": 3, "between_s_max": 0.5}
    assert joined_costs(before, {}) == before
    assert joined_costs({}, {"trials": 0}) == {"trials": 0}


FACTS = {"cpu": {"model": "Example 3000", "allowed": [0, 1]}, "memory": {"total_bytes": 8_000_000_000}}


@pytest.mark.parametrize(
    ("now", "another"),
    [
        (FACTS, False),
        ({}, False),
        ({**FACTS, "memory": {"total_bytes": 8_010_000_000}}, False),
        ({**FACTS, "memory": {"total_bytes": 16_000_000_000}}, True),
        ({**FACTS, "cpu": {"model": "Example 4000", "allowed": [0, 1]}}, True),
        ({**FACTS, "cpu": {"model": "Example 3000", "allowed": [0, 1, 2, 3]}}, True),
    ],
)
def test_a_node_of_the_same_name_may_be_another_machine(now: dict[str, object], another: bool) -> None:
    assert is_another_machine(FACTS, now) is another
    assert is_another_machine({}, now) is False


def test_what_is_damaged_in_the_file_of_a_run_that_was_left_is_left_out(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    cost = {"actor_cores": "much", "raylet_cores": True, "trials": 2}
    run.nodes.write_text(json.dumps({"nodes": [1], "overhead": {"a": 3, "b": cost}}))
    KeptFacts(run).keep({"b": FACTS}, {"b": {"trials": 1}})
    assert json.loads(run.nodes.read_text()) == {"nodes": {"b": FACTS}, "overhead": {"b": {"trials": 3}}}
