"""Reads the numbers of the log line that `subject.last_words` matches."""

from __future__ import annotations

from typing import Any

from powerband.base.logs import final_figures
from powerband.loads.driver import TrialSetup
from powerband.trials.instruments.instrument import Instrument


class FinalFigures(Instrument):
    """Reads the server's log when the trial is over; its record is the last line that matches, as numbers by name."""

    def __init__(self, setup: TrialSetup) -> None:
        self._setup = setup

    def record(self) -> dict[str, Any]:
        pattern = self._setup.experiment.subject.last_words
        return {"last_words": final_figures(self._setup.directory.log, pattern)}
