"""A line of the engine or the probe that is no event of theirs fails the trial with a sentence, and has no other
effect."""

from __future__ import annotations

import contextlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.mutated import EDITS, Edit, mutated
from powerband.processes.engine_fleet import EngineFleet
from powerband.processes.engines import EnginesHere
from powerband.processes.failures import TrialFailed
from powerband.processes.probe_process import RunningProbe

GOOD = Path(__file__).parents[3] / "protocol" / "good"


def said(kind: str) -> list[str]:
    return [
        " ".join(path.read_text().split()).replace('{ "type": ', '{"type":') for path in GOOD.glob(f"{kind}-event.*")
    ]


def fleet() -> EngineFleet:
    return EngineFleet(1, BytesIO(), EnginesHere(Path()), Path())  # type: ignore[arg-type]


def probe() -> RunningProbe:
    nothing: Any = None
    return RunningProbe(nothing, BytesIO(), 1.0)  # type: ignore[arg-type]


def test_good_lines_are_understood() -> None:
    for line in said("load"):
        with contextlib.suppress(TrialFailed) if '"error"' in line else contextlib.nullcontext():
            fleet()._line(0, line.encode())
    for line in said("probe"):
        probe().on_line(line.encode())


@pytest.mark.parametrize(
    "line", [b'{"type":"phase"}\n', b'{"type":"interval","t":1}\n', b'{"type":"error","error":[[\n']
)
def test_a_line_that_is_no_event_is_named(line: bytes) -> None:
    with pytest.raises(TrialFailed, match=r"the load generator wrote '.*, which is none of its messages"):
        fleet()._line(0, line)


@given(st.sampled_from(said("load")), st.lists(EDITS, min_size=1, max_size=3))
def test_lines_of_an_engine(line: str, edits: list[Edit]) -> None:
    with contextlib.suppress(TrialFailed):
        fleet()._line(0, mutated(line, edits))


@given(st.sampled_from(said("probe")), st.lists(EDITS, min_size=1, max_size=3))
def test_lines_of_a_probe(line: str, edits: list[Edit]) -> None:
    with contextlib.suppress(TrialFailed):
        probe().on_line(mutated(line, edits))
