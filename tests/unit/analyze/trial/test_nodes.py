from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.measured import codes
from fakes.trials import Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.measure import measure
from powerband.store import TrialDir


def node(engines: list[int], error_ns: int = 50_000, drift_ns: int = 0) -> dict[str, Any]:
    told = {"offset_ns": 10**15, "uncertainty_ns": error_ns, "after_offset_ns": 10**15 + drift_ns}
    return {
        "node": "b",
        "engines": engines,
        **told,
        "after_uncertainty_ns": error_ns,
        "run_wait_ns": 10**9,
        "turns": 100,
    }


def test_engines_on_other_nodes_share_no_cpus_with_the_server_and_their_own_wait_counts(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = replace(record_of(spec(), figures), cpus={"machine": [0, 1]}, generators=(node([0]),))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert codes(result) == {"generator_starved"} and result.cpus is not None and not result.cpus.shared
    assert "keep server and load generator apart" not in result.problems[0].message
    assert result.generators[0].offset_ns == 10**15
    assert result.metrics["engine_run_wait_ns_mean"] == 10**7


def test_a_busy_node_that_loads_a_server_does_not_hide_behind_quiet_ones(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(engines=2)
    busy = node([0]) | {"turns": 500}
    quiet = node([1]) | {"node": "c", "run_wait_ns": 10**8, "turns": 20_000}
    record = replace(record_of(spec(), figures), generators=(quiet, busy))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert result.metrics["engine_run_wait_ns_mean"] == pytest.approx(2e6), "53 us on average of both"
    assert result.metrics["engine_run_wait_cores"] == pytest.approx(0.2), "as if both waited a tenth of the time"
    (told,) = [problem.message for problem in result.problems if problem.code == "generator_starved"]
    assert told.startswith("load generator threads of b waited 2.00 ms for a CPU each time")


@pytest.mark.parametrize(
    ("clock", "found"),
    [
        ({}, set()),
        ({"error_ns": 12_000_000}, {"clock_unknown"}),
        ({"drift_ns": -12_000_000}, {"clock_unknown"}),
        ({"drift_ns": -9_000_000}, set()),
    ],
)
def test_a_clock_that_is_not_known_well_enough_makes_a_trial_invalid(
    tmp_path: Path, clock: dict[str, int], found: set[str]
) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = replace(record_of(spec(), figures), generators=({**node([0], **clock), "run_wait_ns": None},))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert codes(result) == found and result.valid == (not found)


def test_engines_that_began_apart_make_a_trial_invalid(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = record_of(spec(), figures)
    (engine,) = record.engines
    late = {**engine, "measure_start_ns": engine["measure_start_ns"] + 20_000_000}
    record = replace(record, engines=(engine, late), generators=(node([0, 1]),))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert "engines_apart" in codes(result) and not result.valid
