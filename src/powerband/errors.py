"""Every error that a user can cause, and the exit code that it ends a command with.

    PowerbandError
      UsageError          2    the command line, or a path that is no run directory
      ExperimentError     3    an experiment or subject file is not valid
      SubjectError        4    the server did not start, get ready, or stay alive
      MeasurementError    5    no valid measurement could be taken (engine, probe, disk, noise)
      UserInterruptError 130    Ctrl-C

Exit code 1 is no error: a claim or threshold failed. A message says what, where, why and what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_OK = 0
EXIT_THRESHOLD = 1


class PowerbandError(Exception):
    """Base of all errors that end a command with a clear sentence instead of a traceback."""

    exit_code = 5


class UsageError(PowerbandError):
    exit_code = 2


@dataclass(frozen=True)
class Position:
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class ExperimentError(PowerbandError):
    """An experiment or subject file is not valid; `position` is None where the error has no single place."""

    exit_code = 3

    def __init__(self, message: str, *, key: str = "", position: Position | None = None) -> None:
        self.key = key
        self.position = position
        where = " in ".join(str(part) for part in (key, position) if part)
        super().__init__(f"{where}: {message}" if where else message)


class SubjectError(PowerbandError):
    exit_code = 4


class MeasurementError(PowerbandError):
    exit_code = 5


class UserInterruptError(PowerbandError):
    exit_code = 130
