"""The printed lines of a section, kept with what was measured, so that each line of a page can be made again from it.

`@row` marks the functions that make lines of tables. What they return is a line that knows its maker and its arguments,
which hold the values of every repeat; the file of a section has these, and no line of a table as text."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, ParamSpec

from benchmarks.footer import commit, machine, stolen
from powerband.search.noise import cpu_times

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "methods" / "data" / "benchmarks"
STEAL_TOLD = 0.01  # arbitrary: less is in the data alone
_TYPE = "is"  # the key that names the dataclass of a kept value
_Arguments = ParamSpec("_Arguments")


class Row(str):
    """A line of a table. `maker`: the module and the name of the function that made it; `given`: its arguments."""

    maker: str
    given: Mapping[str, Any]


def row(make: Callable[_Arguments, str]) -> Callable[_Arguments, Row]:
    """Marks a function of this package that makes a line of a table from numbers, texts and dataclasses of its own
    module."""

    @functools.wraps(make)
    def made(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Row:
        line = Row(make(*args, **kwargs))
        line.maker = f"{Path(inspect.getfile(make)).stem}.{make.__name__}"
        taken = inspect.signature(make)
        given = taken.bind(*args, **kwargs).arguments
        line.given = {name: value for name, value in given.items() if value is not taken.parameters[name].default}
        return line

    return made


@dataclass(frozen=True)
class Kept:
    """A finished section: when, where and how it was measured, and the lines that it printed."""

    section: str
    date: str
    machine: str
    commit: str
    command: str
    repeats: int
    of: str
    steal: float
    lines: tuple[str, ...]

    @classmethod
    def now(
        cls, section: str, command: str, *, repeats: int, of: str, before: Mapping[str, float], lines: Iterable[str]
    ) -> Kept:
        """A section that has just ended, on this machine and of this commit. `before`: `cpu_times()` as it began."""
        return cls(
            section=section,
            date=time.strftime("%Y-%m-%d"),
            machine=machine(),
            commit=commit(),
            command=command,
            repeats=repeats,
            of=of,
            steal=stolen(before, cpu_times()),
            lines=tuple(lines),
        )

    @property
    def rows(self) -> list[Row]:
        return [line for line in self.lines if isinstance(line, Row)]

    @property
    def footer(self) -> str:
        return (
            f"*{self.date}; {self.machine}; `{self.command}`; commit {self.commit}; "
            f"repeats: {self.repeats}, {self.of}; steal {self.steal:.1%} of the CPUs' time*"
        )


def file_of(section: str, folder: Path = FOLDER) -> Path:
    return folder / f"{section}.jsonl"


def write(kept: Kept, folder: Path = FOLDER) -> Path:
    """Writes the file of a section, in place of an older one: a line of JSON with its facts, and one for each line."""
    facts = {name: value for name, value in vars(kept).items() if name != "lines"}
    path = file_of(kept.section, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each, allow_nan=False) + "\n" for each in (facts, *map(_plain, kept.lines))))
    return path


def read(path: Path) -> Kept:
    """The section of a file. Each line of a table is made again from its arguments."""
    facts, *lines = map(json.loads, path.read_text().splitlines())
    return Kept(**facts, lines=tuple(line if isinstance(line, str) else _made_again(**line) for line in lines))


def all_kept(folder: Path = FOLDER) -> list[Kept]:
    return [read(path) for path in sorted(folder.glob("*.jsonl"))]


def put(page: str, kept: Kept, folder: str) -> str:
    """The page with the section between its two marks, a short footer below it. `folder`: the data's, from the page.
    Raises ValueError if the page lacks the marks."""
    begin, end = marks(kept.section)
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    data = f"[data]({folder}/{kept.section}.jsonl)"
    stolen_much = f", steal {kept.steal:.1%}" if kept.steal >= STEAL_TOLD else ""
    footer = f"*{kept.date}, commit {kept.commit}, repeats: {kept.repeats}{stolen_much}: {data}.*"
    return f"{before}{begin}\n{blocks(kept.lines)}\n\n{footer}\n{end}{after}"


def marks(section: str) -> tuple[str, str]:
    """The lines of a page between which the section is."""
    return f"<!-- {section} -->", f"<!-- /{section} -->"


def blocks(lines: Iterable[str]) -> str:
    """The lines as Markdown: an empty line between a table and what is not of it."""
    made: list[str] = []
    for part in "\n".join(lines).split("\n"):
        if part.strip():
            together = not made or (made[-1].startswith("|") and part.startswith("|"))
            made += [part] if together else ["", part]
    return "\n".join(made)


def _plain(value: object) -> Any:
    if isinstance(value, Row):
        return {"maker": value.maker, "given": {name: _plain(each) for name, each in value.given.items()}}
    if is_dataclass(value) and not isinstance(value, type):
        return {_TYPE: type(value).__name__, **{name: _plain(each) for name, each in vars(value).items()}}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _made_again(maker: str, given: Mapping[str, Any]) -> Row:
    module_name, _, name = maker.rpartition(".")
    module = importlib.import_module(f"benchmarks.{module_name}")
    make = getattr(module, name)
    bound = inspect.signature(make).bind_partial()
    bound.arguments.update({argument: _whole(value, module) for argument, value in given.items()})
    line = make(*bound.args, **bound.kwargs)
    assert isinstance(line, Row), maker
    return line


def _whole(value: Any, module: object) -> Any:
    """A kept value with the dataclasses of its maker's module."""
    if isinstance(value, list):
        return tuple(_whole(each, module) for each in value)
    if not isinstance(value, dict):
        return value
    fields = {name: _whole(each, module) for name, each in value.items() if name != _TYPE}
    return getattr(module, value[_TYPE])(**fields) if _TYPE in value else fields
