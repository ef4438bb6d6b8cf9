"""Times in which a server answers nothing at all are told, and told from answers that come in batches, from rare ones,
from pauses of the users, and from a machine that stood still."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import SECOND, START_NS, Figures, experiment, histogram, record_of, spec, write_trial
from powerband.analyze.settings.compare import analyse
from powerband.analyze.trial.measure import evidence_of, measure
from powerband.analyze.trial.silences import STILLNESS
from powerband.model.load import Load
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import MergedTimes, merge_fleet
from powerband.store import TrialDir, TrialRecord

Line = dict[str, Any]
TENTH = SECOND // 10
STEADY = Figures(goodput_per_s=1000.0, window_s=12.0)


def frozen(line: Line, at: int, length: int = 10, every: int = 40) -> Line:
    """The interval, the tenth of a second number `at`: at the end of each `every`, `length` have no answers."""
    return {**line, "outcomes": {}} if at % every >= every - length else line


def written(
    directory: TrialDir, changed: Callable[[Line, int], Line] = frozen, figures: Figures = STEADY
) -> TrialRecord:
    """Writes a made-up trial, each interval of whose window is `changed`."""
    record = write_trial(directory, record_of(spec(), figures), figures)
    lines = [json.loads(line) for line in directory.events.read_text().splitlines()]
    told = [changed(line, at) if (at := (line["start_ns"] - START_NS) // TENTH) >= 0 else line for line in lines]
    directory.events.write_text("".join(json.dumps(line) + "\n" for line in told))
    return record


def said(directory: TrialDir, record: TrialRecord, **metrics: float) -> list[str]:
    """The notes on the trial. `metrics`: those that other sources made."""
    return [problem.message for problem in STILLNESS.problems(evidence(directory, record), metrics)]


def evidence(directory: TrialDir, record: TrialRecord) -> Evidence:
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    return evidence_of(directory, record, experiment(), fleet)


def test_a_server_that_stands_still_is_told_with_the_answer(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path)
    result = measure(directory, written(directory), experiment())
    (told,) = (problem for problem in result.problems if problem.code == "stood_still")
    assert told.message.startswith("nothing was answered for up to 1.00 s (3 times, 25 % of the window), though")
    assert "look for what stops them all" in told.message
    assert any(told.message in warning for warning in analyse(experiment(), [result]).warnings)


def test_collections_that_explain_it_are_named(tmp_path: Path) -> None:
    record = written(directory := TrialDir(tmp_path))
    assert said(directory, record, jvm_gc_share=0.15)[0].endswith(": garbage collections took 15 %")
    assert "took" not in said(directory, record, jvm_gc_share=0.05)[0]


@pytest.mark.parametrize(
    ("changed", "figures"),
    [
        pytest.param(lambda line, at: frozen(line, at, length=2, every=10), STEADY, id="pauses of 0.2 s"),
        pytest.param(lambda line, at: frozen(line, at, length=5, every=100), STEADY, id="one pause of 0.5 s"),
        pytest.param(frozen, Figures(window_s=12.0, response_ns=SECOND // 2, users=500), id="answers in batches"),
        pytest.param(frozen, Figures(window_s=12.0, goodput_per_s=10.0), id="rare answers"),
        pytest.param(lambda line, at: {**frozen(line, at), "in_flight_now": 0}, STEADY, id="users who pause"),
    ],
)
def test_what_is_no_stillness_is_not_told(
    changed: Callable[[Line, int], Line], figures: Figures, tmp_path: Path
) -> None:
    record = written(directory := TrialDir(tmp_path), changed, figures)
    assert said(directory, record) == []


@pytest.mark.parametrize(
    ("slow", "load", "metrics", "told"),
    [
        pytest.param(60, {}, {}, False, id="users who never pause"),
        pytest.param(40, {}, {}, True, id="too few to be what they all wait for"),
        pytest.param(60, {"think": SECOND // 10}, {}, True, id="requests that come meanwhile are as slow"),
        pytest.param(60, {}, {"jvm_gc_share": 0.4}, True, id="collections stop them"),
    ],
)
def test_requests_that_take_as_long_by_themselves_are_no_stillness(
    slow: int, load: dict[str, Any], metrics: dict[str, float], told: bool, tmp_path: Path
) -> None:
    """A second for `slow` of 500 requests, 1 ms for the others."""
    record = written(directory := TrialDir(tmp_path))
    found = evidence(directory, record)
    times = MergedTimes([histogram([SECOND + SECOND // 100] * slow + [SECOND // 1000] * (500 - slow))])
    found = replace(found, response=times, load=Load.model_validate({"users": 10, **load}))
    assert bool(list(STILLNESS.problems(found, metrics))) == told


def test_a_machine_that_stood_still_is_no_server_that_did(tmp_path: Path) -> None:
    record = written(directory := TrialDir(tmp_path))
    samples = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    ran = [
        line
        for line in samples
        if frozen({"outcomes": {"ok": 1}}, (line.get("at_ns", 0) - START_NS) // TENTH)["outcomes"]
    ]
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in ran))
    assert said(directory, record) == []


def test_what_other_programs_may_have_held_up_is_no_stillness(tmp_path: Path) -> None:
    record = written(directory := TrialDir(tmp_path))
    assert said(directory, record, held_up_share_max=0.1) and not said(directory, record, held_up_share_max=0.15)
    assert not said(directory, record, quiet_s=5.0)


def test_a_server_that_hangs_until_the_window_ends_stands_still(tmp_path: Path) -> None:
    record = written(directory := TrialDir(tmp_path), lambda line, at: frozen(line, at, length=60, every=120))
    assert said(directory, record)[0].startswith("nothing was answered for up to 6.00 s (1 time, 50 % of the window)")


def test_a_silence_that_began_before_the_window_counts_from_its_start_but_a_slow_first_answer_does_not(
    tmp_path: Path,
) -> None:
    def silent_first(line: Line, at: int) -> Line:
        return {**line, "outcomes": {}} if at < 12 else line

    record = written(directory := TrialDir(tmp_path), silent_first)
    assert "up to 1.20 s (1 time, 10 % of the window)" in said(directory, record)[0]
    lines = [json.loads(line) for line in directory.events.read_text().splitlines()]
    first = [line if line["start_ns"] >= START_NS else {**line, "outcomes": {}} for line in lines]
    directory.events.write_text("".join(json.dumps(line) + "\n" for line in first))
    assert said(directory, record) == []
