"""Converts a plan's file to the text of an experiment file in one call, and validates the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from powerband.base.errors import ExperimentError, UsageError
from powerband.files.experiment_file import parse_experiment
from powerband.jmx.conversion import convert
from powerband.jmx.reader import read_plan
from powerband.jmx.writer import PLACEHOLDER, experiment_text, summary


@dataclass(frozen=True)
class Imported:
    """A converted plan. `text`: that of the experiment file. `summary`: one line about it for the user."""

    text: str
    summary: str


def import_plan(
    path: Path, *, command: Sequence[str] = (), properties: Mapping[str, str] | None = None, partial: Sequence[str] = ()
) -> Imported:
    """The experiment described by a test plan.

    `command` starts the server; without one, its place in the file is left for the user to fill. `properties` are those
    that JMeter would get with -J; `partial` names elements that may be left out. Raises ImportRefused with everything
    that cannot be converted; UsageError for a file that is no plan, and if the result is no valid experiment (a command
    without its port)."""
    conversion = convert(read_plan(path), path, properties or {}, partial)
    name = path.stem or "plan"
    text = experiment_text(conversion, name, path.name, command)
    tried = text if command else experiment_text(conversion, name, path.name, PLACEHOLDER.split())
    try:
        parse_experiment(tried, f"{name}.yaml")
    except ExperimentError as error:
        raise UsageError(f"{path} was understood, but the experiment would not be valid: {error}") from None
    return Imported(text, summary(conversion))
