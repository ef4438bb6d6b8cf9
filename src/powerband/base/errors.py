"""The errors that a user can cause, and the exit code of each.

  PowerbandError
   UsageError          2    the command line, or a path that is no run directory
   ExperimentError     3    an experiment or subject file is not valid
   SubjectError        4    the server did not start, get ready, or stay alive
   MeasurementError    5    no valid measurement could be taken (engine, probe, disk, noise)
   UserInterruptError 130    Ctrl-C

Exit code 1 is no error: a claim or threshold failed. 70 is a defect of powerband itself. A message has four parts: the
problem, the place, the reason and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXIT_OK = 0
EXIT_THRESHOLD = 1
EXIT_DEFECT = 70  # EX_SOFTWARE of sysexits.h
PROBLEMS_SHOWN = 50  # the most that one error lists: arbitrary, a screen


class PowerbandError(Exception):
    """Base of all errors that end a command with a clear sentence instead of a traceback."""

    exit_code = 5

    def _render_traceback_(self) -> list[str]:
        """The text that a notebook shows in place of a traceback."""
        return [f"powerband: {self}"]


class UsageError(PowerbandError):
    """The command line asks for what cannot be done, or a path is no run directory."""

    exit_code = 2


@dataclass(frozen=True)
class Position:
    """A place in a file. `file`: its path; `line`, `column`: from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class FileProblem:
    """One mistake in a file. `message`: what is wrong, and the remedy; `key`: the key, or the option of the command
    line, empty if it belongs to none; `position`: None if it has no single place."""

    message: str
    key: str = ""
    position: Position | None = None

    def __str__(self) -> str:
        where = " in ".join(str(part) for part in (self.key, self.position) if part)
        return f"{where}: {self.message}" if where else self.message


class ExperimentError(PowerbandError):
    """An experiment or subject file is not valid; `position` is None if the error has no single place.

    `problems` holds every error of the file in the order of its lines; `key` and `position` are those of the first."""

    exit_code = 3

    def __init__(self, message: str, *, key: str = "", position: Position | None = None) -> None:
        self._take([FileProblem(message, key, position)])

    @classmethod
    def of(cls, problems: Sequence[FileProblem]) -> ExperimentError:
        """All problems in one error, sorted by file and line; `problems` is not empty."""
        error = cls("")
        error._take(problems)
        return error

    def _take(self, problems: Sequence[FileProblem]) -> None:
        self.problems = tuple(sorted(problems, key=_place))
        self.key, self.position = self.problems[0].key, self.problems[0].position
        lines = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN]]
        more = [f"... and {len(self.problems) - len(lines)} more"] if len(self.problems) > len(lines) else []
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([f"{len(self.problems)} errors", *lines, *more]))


def _place(problem: FileProblem) -> tuple[str, int, int]:
    position = problem.position
    return (position.file, position.line, position.column) if position else ("", 0, 0)


KNOWN_SHOWN = 20  # arbitrary: a few lines


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: the nearest correct spelling, or a list of the known words."""
    names = list(known)
    close = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1, cutoff=0.6)
    if close:
        return "did you mean " + next(name for name in names if name.lower() == close[0]) + "?"
    more = f" and {len(names) - KNOWN_SHOWN} more" if len(names) > KNOWN_SHOWN else ""
    return "known: " + ", ".join(names[:KNOWN_SHOWN]) + more if names else "there is none"


class SubjectError(PowerbandError):
    """The server did not start, did not get ready, ended too early, or answered nothing correctly."""

    exit_code = 4


class MeasurementError(PowerbandError):
    """No valid measurement could be taken: because of the engine, the probe, the disk, or noise."""

    exit_code = 5


class UserInterruptError(PowerbandError):
    """The user stopped the command with Ctrl-C before it was done."""

    exit_code = 130
