"""Append-only line files of a trial. A disk that refuses becomes a MeasurementError that says what to do."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import TracebackType

from powerband.store import open_private, writing

FLUSH_AFTER_S = 0.4  # below the second in which the live page shows what comes


class LineFile(contextlib.AbstractContextManager["LineFile", None]):
    """Lines are copied as they come, and handed to the kernel with the first one that comes 0.4 s after the last time:
    a killed run loses less than a second, and who follows the file sees it grow."""

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
        with writing(self._path):
            self._file.write(data)
        if time.monotonic() - self._flushed_s >= FLUSH_AFTER_S:
            self.flush()

    def flush(self) -> None:
        self._flushed_s = time.monotonic()
        with writing(self._path):
            self._file.flush()
