"""A run of made-up trials that ends at once, for tests of what happens to its files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes.trials import Figures, experiment, record_of, write_trial
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment, Measure, Subject
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import RunTrial, run_session
from powerband.store import RunDir, TrialDir, TrialRecord

MADE = experiment(
    {"threads": (1, 2, 4)},
    measure=Measure(repeats=4),
    design={"order": "race", "seed": 7},
    load={"users": 10},
    subject=Subject(name="fake", command=("fake", "{port}", "{threads}")),
)


class MadeUpTrials:
    """Runs trials whose outcome depends on their number alone. `done`: the numbers of those that it ran. It calls
    `before` before a trial, and `ended` after it."""

    def __init__(
        self,
        before: Callable[[TrialSpec], None] = lambda spec: None,
        spread: float = 0.0,
        ended: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.before = before
        self.spread = spread
        self.ended = ended
        self.done: list[int] = []

    def __call__(self, _: Experiment, spec: TrialSpec, directory: TrialDir, **__: Any) -> TrialRecord:
        self.before(spec)
        threads = int(str(spec.setting.as_dict()["threads"]))
        luck = random.Random(f"{spec.number}/{self.spread}").uniform(-0.01 - self.spread, 0.01 + self.spread)
        goodput_per_s = round(1000 * (1 + luck) * threads**0.1)
        figures = Figures(goodput_per_s=goodput_per_s, response_ns=10e9 / goodput_per_s, window_s=0.5)
        write_trial(directory, record_of(spec, figures), figures)
        self.done.append(spec.number)
        self.ended(spec.number)
        return directory.read_record()


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def new_run(root: Path) -> RunDir:
    return RunDir.create(root, "fake", resolved_yaml(MADE), {})


def run_to_its_end(
    run: RunDir, trial: RunTrial | None = None, observer: Observer | None = None, *, of: Experiment = MADE
) -> Analysis:
    stop = StopRequest()
    try:
        return run_session(of, run, observer or Observer(), stop, trial=trial or MadeUpTrials())
    finally:
        stop.close()
