"""The experiment of a command line of `powerband tune`, from the parts of that line."""

from __future__ import annotations

from typing import Any

from powerband.files.tune_options import Tuning
from powerband.model.experiment import Experiment


def tune_experiment(command: Any, parameters: Any, **given: Any) -> Experiment:
    return Tuning(command, parameters, **given).experiment()
