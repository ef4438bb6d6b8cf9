"""The cost of nodes, from `nodes.json` of a run: in the analysis, in a warning, in every report."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fakes.trials import experiment as fake_experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.node_costs import with_node_costs
from powerband.analyze.stored import stored_analysis
from powerband.model.results import Analysis, TrialResult
from powerband.report.html.page import ReportPage
from powerband.report.html.report import render_page
from powerband.report.terminal.text import print_answer
from powerband.report.wording.findings import node_cost_rows
from powerband.store import RunDir

MADE = fake_experiment({"threads": (1, 2)}, measure={"repeats": 2}, design={"order": "blocks", "seed": 1})
CPU = {"model": "Example 3000", "allowed": [0, 1, 2, 3]}


def analysis_of(nodes: str = "ab") -> Analysis:
    trials = [
        TrialResult(2 * block + n + 1, block, 1, setting, "measured", (), {"goodput_per_s": 1000.0 + n}, node=node)
        for block, node in enumerate(nodes)
        for n, setting in enumerate(MADE.settings())
    ]
    return analyse(MADE, trials if nodes.strip() else [replace(trial, node="") for trial in trials])


def run_with(folder: Path, **costs: object) -> RunDir:
    run = RunDir(folder)
    run.nodes.write_text(json.dumps({"nodes": {name: {"cpu": CPU} for name in costs}, "overhead": costs}))
    return run


def test_what_a_node_is_and_cost_is_in_the_analysis_and_the_reports(tmp_path: Path) -> None:
    cost = {"actor_cores": 0.003, "raylet_cores": 0.004, "between_s_max": 0.02, "trials": 2}
    found = with_node_costs(analysis_of(), run_with(tmp_path, a=cost, b=cost))
    assert found.nodes is not None
    row = found.nodes.rows[0]
    assert (row.cpu, row.cpus, row.between_s) == ("Example 3000", 4, 0.02)
    assert row.ray_cores == pytest.approx(0.007)
    assert found.warnings == analysis_of().warnings
    assert stored_analysis(json.dumps(found.to_json())).nodes == found.nodes
    assert node_cost_rows(found)[0] == ("a", "Example 3000", "4", "0.70 %", "0.02 s")
    page = render_page(ReportPage(found, "runs/1", "powerband run", "", ""))
    assert 'id="nodes"' in page and "Example 3000" in page and "0.70 %" in page
    shown = io.StringIO()
    print_answer(Console(width=120, file=shown), found)
    assert "Example 3000" in shown.getvalue()


def test_more_than_one_percent_of_a_core_is_said(tmp_path: Path) -> None:
    run = run_with(tmp_path, a={"actor_cores": 0.009, "raylet_cores": 0.006}, b={"actor_cores": 0.002})
    (said,) = set(with_node_costs(analysis_of(), run).warnings) - set(analysis_of().warnings)
    assert "more than 1 % of a core during trials: 1.50 % on a." in said


def test_where_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    found = with_node_costs(analysis_of(), RunDir(tmp_path))
    assert found == analysis_of() and node_cost_rows(found) == []
    (tmp_path / "nodes.json").write_text('{"nodes": [1], "overhead": {"a": 3, "b": {"actor_cores": "much"}}}')
    assert with_node_costs(analysis_of(), RunDir(tmp_path)) == analysis_of()


def test_a_run_on_one_machine_has_no_such_part(tmp_path: Path) -> None:
    alone = analyse(MADE, [replace(trial, node="") for trial in analysis_of().trials])
    assert with_node_costs(alone, run_with(tmp_path, a={"actor_cores": 0.5})) == alone
    assert 'id="nodes"' not in render_page(ReportPage(alone, "runs/1", "powerband run", "", ""))
