"""A run that is killed at any moment and resumed has the same trials as one that was never killed."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.trials import Figures, experiment, failed_record, record_of, write_trial
from powerband.model.experiment import Experiment, Measure
from powerband.model.plan import TrialSpec
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import run_session
from powerband.store import RunDir, TrialDir, TrialRecord


class Killed(BaseException):
    """An exception that stands for SIGKILL: nothing happens after the point where it is raised."""


class World:
    """Runs made-up trials, whose outcome depends on their number alone, and is killed at given points of given
    trials."""

    def __init__(self, kills: dict[int, str]) -> None:
        self.kills = kills
        self.done: list[TrialSpec] = []

    def trial(self, _experiment: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
        point = self.kills.pop(spec.number, "")
        if point == "before":
            raise Killed
        directory.begin(spec)
        if point == "within":
            directory.events.write_text('{"type": "inter')
            raise Killed
        luck = random.Random(spec.number).random()
        figures = Figures(goodput_per_s=1000, window_s=0.5, busy_cores=1.9 if luck < 0.2 else 0.9)
        broken = luck > 0.9
        record = failed_record(spec) if broken else record_of(spec, figures)
        write_trial(directory, record, None if broken else figures)
        if point == "after":
            raise Killed
        self.done.append(spec)
        return record


def run_dir(root: Path) -> RunDir:
    return RunDir.create(root, "fake", "name: fake\n", {})


@settings(max_examples=10, deadline=None)
@given(
    kills=st.dictionaries(st.integers(1, 12), st.sampled_from(["before", "within", "after"]), max_size=5),
    torn=st.booleans(),
    order=st.sampled_from(["blocks", "race"]),
)
def test_kills_anywhere_lose_nothing_but_the_trial_in_flight(kills: dict[int, str], torn: bool, order: str) -> None:
    made = experiment(measure=Measure(repeats=2), design={"order": order, "seed": 7})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        whole = run_dir(root / "a")
        stop = StopRequest()
        run_session(made, whole, Observer(), stop, trial=World({}).trial)
        broken = run_dir(root / "b")
        world = World(dict(kills))
        for _ in range(len(kills) + 1):
            try:
                run_session(made, broken, Observer(), stop, trial=world.trial)
                break
            except Killed:
                if torn:
                    tear(broken)
        stop.close()
        assert broken.planned() == whole.planned()
        assert [record.spec for record in broken.records()] == [record.spec for record in whole.records()]
        assert broken.analysis.read_text() == whole.analysis.read_text()


def tear(run: RunDir) -> None:
    """Cuts the last line of the plan if its trial has no record, as if a kill came while that line was being
    written."""
    lines = run.plan.read_text().splitlines(keepends=True)
    if len(lines) > len(run.records()):
        run.plan.write_text("".join(lines)[:-7])
