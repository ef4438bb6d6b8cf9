"""The harness of real A/A sweeps: its counts, and its resumption after a stop. Nothing is started."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benchmarks import aa_sweeps, kept_lines
from benchmarks.aa_sweeps import Outcome, main, summarise, table
from benchmarks.kept_rows import read_rows

from powerband.files.experiment_file import parse_experiment
from powerband.processes.stop_request import StopRequest

QUIET = Outcome(1, "equivalent_set", "aa=1", False, False, 12, 1, 4, 15.0, "x")


def test_the_experiment_is_a_race_of_equals() -> None:
    made = parse_experiment(aa_sweeps.EXPERIMENT, "aa")
    assert made.is_race and made.design.confirm == 0
    assert not any("{aa}" in part for part in made.subject.command), "no level reaches the server"


def test_shares_have_exact_intervals_and_sweeps_without_a_trial_do_not_count() -> None:
    false = replace(QUIET, kind="best", false_winner=True, false_worse=True)
    summary = summarise([QUIET] * 97 + [false] * 3 + [replace(QUIET, kind="none_valid")] * 9)
    assert (summary["sweeps"], summary["sweeps_without_a_valid_trial"]) == (100, 9)
    assert summary["answers"] == {"equivalent_set": 97, "best": 3}
    share = summary["false_winners"]
    assert isinstance(share, dict)
    assert (share["count"], share["share"]) == (3, 0.03)
    assert (share["low"], share["high"]) == pytest.approx((0.006230, 0.085176), abs=1e-5)  # Clopper-Pearson's tables
    text = table([QUIET] * 97 + [false] * 3 + [replace(QUIET, kind="none_valid")] * 9)
    assert "| a winner is named | 3 of 100 | 3.0% (0.6% to 8.5%) | 5% | undecided |" in text
    assert "9 more without a valid trial" in text


def test_it_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "sweeps" / "sweeps.jsonl"
    kept.parent.mkdir()
    kept.write_text(json.dumps(asdict(QUIET)) + "\n" + '{"number": 2, "ki')
    begun = []

    def one(number: int, folder: Path, engine: str, stop: StopRequest) -> Outcome:
        begun.append(number)
        return replace(QUIET, number=number)

    monkeypatch.setattr(aa_sweeps, "_one", one)
    assert main(["--engine", "engine", "--sweeps", "3", "--folder", str(kept.parent), "--keep", str(tmp_path)]) == 0
    assert begun == [2, 3]
    assert [outcome.number for outcome in read_rows(kept, Outcome)] == [1, 2, 3]
    (found,) = [kept for kept in kept_lines.all_kept(tmp_path) if kept.section == "aa"]
    assert found.repeats == 3 and "| a winner is named | 0 of 3 |" in found.lines[0]
