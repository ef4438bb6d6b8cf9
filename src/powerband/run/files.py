"""Append-only line files of a trial. A disk that refuses becomes a MeasurementError that says what to do."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType

from powerband.store import disk_error


class LineFile:
    """Lines are copied as they come and handed to the kernel by `flush`, so a killed run loses less than a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise disk_error(path, error) from error

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            with contextlib.suppress(OSError):  # after a failed write, closing tries that write again
                self._file.close()

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise disk_error(self._path, error) from error

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise disk_error(self._path, error) from error
