"""Append-only line files of a trial. If the disk refuses, a MeasurementError says what to do."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import TracebackType

from powerband.store import open_private, writing

FLUSH_AFTER_S = 0.4  # below a second, the step in which the live page shows new lines


class LineFile(contextlib.AbstractContextManager["LineFile", None]):
    """A file of lines. They are buffered, and go to the kernel with the first line that comes 0.4 s after the last
    time: a killed run loses less than a second, and a reader of the file sees it grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._flushed_s = time.monotonic()
        with writing(path):
            self._file = open_private(path, "wb")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            with contextlib.suppress(OSError):  # after a failed write, closing tries that write again
                self._file.close()

    def write(self, data: bytes) -> None:
        """Appends whole lines. Raises MeasurementError if the disk refuses them."""
        with writing(self._path):
            self._file.write(data)
        if time.monotonic() - self._flushed_s >= FLUSH_AFTER_S:
            self.flush()

    def flush(self) -> None:
        """Hands the buffered lines to the kernel. Raises MeasurementError if the disk refuses them."""
        self._flushed_s = time.monotonic()
        with writing(self._path):
            self._file.flush()
