"""Trials that are written as files and measured from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes.trials import START_NS, Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.measure import measure
from powerband.model.results import TrialResult
from powerband.store import TrialDir


def measured(tmp_path: Path, figures: Figures, **changes: Any) -> TrialResult:
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), figures), figures)
    return measure(directory, record, experiment(**changes))


def codes(result: TrialResult) -> set[str]:
    return {problem.code for problem in result.problems}


def tell_more(directory: TrialDir, more: Callable[[int], dict[str, Any]]) -> None:
    """Adds fields to the probe's samples of the subject; they may depend on the time since the window began, in ns."""
    lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    for line in lines:
        if line["type"] == "sample":
            line["trees"][0] |= more(line["at_ns"] - START_NS)
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in lines))
