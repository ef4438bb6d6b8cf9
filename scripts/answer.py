"""The answer of a kept run as the terminal shows it: `make reference` writes it into README.md,
docs/reading-the-answer.md and their Korean twins.

In: the data that are kept of a run (`scripts/keep.py`). Out: whole lines of its answer, worded by the present code,
with `...` in place of the rest. The evidence of a bottleneck stands as the run itself worded it."""

from __future__ import annotations

import io
import itertools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from typing import Any

from rich.console import Console, RenderableType

from powerband.analyze.settings.compare import analyse
from powerband.files.experiment_file import load_experiment
from powerband.model.plan import Setting
from powerband.model.results import Analysis, TrialResult
from powerband.report.terminal.text import SettingsTable, render_answer
from scripts.keep import Kept

WIDTH = 80  # columns
LEFT_OUT = "..."


def analysis_of(kept: Kept) -> Analysis:
    """The analysis that the present code makes of the kept trials; not of a race, whose plan is not kept."""
    trials = [_read(TrialResult, trial) for trial in kept.analysis["trials"]]
    return analyse(load_experiment(kept.folder / "experiment.yaml"), trials)


def answer_of(analysis: Analysis, *, without: str) -> str:
    """The sentences of the answer, except those whose beginning matches `without`, and the first table, as an indented
    block."""
    lines: list[str] = []
    for sentence in analysis.answer.sentences:
        if not re.match(without, sentence):
            lines += printed(sentence)
        elif lines[-1:] != [LEFT_OUT]:
            lines.append(LEFT_OUT)
    lines += [""] if lines[-1] == LEFT_OUT else ["", LEFT_OUT, ""]
    table = "\n".join(printed(SettingsTable(analysis))).partition("\n\n")[0]
    return "\n".join(f"    {line}".rstrip() for line in (*lines, *table.splitlines(), LEFT_OUT))


def numbered_answer(analysis: Analysis) -> str:
    """The answer down to the table of verdicts, as an indented block. Each sentence, and whatever else follows an empty
    line, has a number in front."""
    heads = {printed(sentence)[0] for sentence in analysis.answer.sentences}
    lines, number = [], 0
    above, head, below = "\n".join(whole_answer(analysis)).partition("  verdict\n")
    shown = above + head + below.partition("\n\n")[0]
    for before, line in itertools.pairwise(shown.splitlines()):
        begins = line in heads or (line and not before)
        number += bool(begins)
        lines.append(f"    {number if begins else '':>2}  {line}".rstrip())
    return "\n".join((*lines, "", f"        {LEFT_OUT}"))


def whole_answer(analysis: Analysis) -> list[str]:
    """The lines that the terminal shows, without spaces at their ends."""
    return printed(render_answer(analysis))


def printed(shown: RenderableType) -> list[str]:
    into = io.StringIO()
    Console(file=into, width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False).print(shown)
    return [line.rstrip() for line in into.getvalue().splitlines()]


def _read(kind: Any, data: Any) -> Any:
    """A result from its JSON form."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = [each for each in inner if each is not types.NoneType]
        return _read(kinds[0], data) if len(kinds) == 1 and data is not None else data
    if kind is Setting:
        return Setting(tuple(data["levels"].items()))
    if is_dataclass(kind):
        kinds_of = typing.get_type_hints(kind)
        return typing.cast(Any, kind)(**{name: _read(kinds_of[name], value) for name, value in data.items()})
    if origin is tuple:
        return tuple(_read(inner[0], each) for each in data)
    if isinstance(data, Mapping):
        return {name: _read(inner[1], value) for name, value in data.items()}
    return kind(data) if isinstance(kind, type) and issubclass(kind, StrEnum) else data
