"""Reads the results of a running JMeter as they are appended: CSV whose first row names the columns.

In: a file that grows. Out: `JtlSample`s, one for each complete row; an incomplete row waits for its rest. Not here:
what a sample means for a load (`sample_events.py`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

COLUMNS = (
    *("timeStamp", "elapsed", "label", "responseCode", "responseMessage", "success"),
    *("bytes", "sentBytes", "allThreads", "threadName"),
)
"""The columns that are read, by name: others may stand between them."""
_PAUSES = "IdleTime"
"""The column of `idle_ms`; without it nothing paused."""
_READ_BYTES = 1 << 20  # arbitrary: some 10,000 rows per read
_ROW_BYTES_MAX = 1 << 20  # arbitrary: far above a row; a file without line ends would fill the memory


class JtlSample(NamedTuple):
    """One result of a sampler. `start_ms`: since 1970; `elapsed_ms`: until the whole answer was there. `label`: the
    sampler's name. `code`, `message`: the HTTP status and its words, or the exception in place of an answer. `ok`: True
    if JMeter and the plan's assertions accept the answer. `bytes_received`, `bytes_sent`: with headers. `threads`:
    those of all groups, when the sample ended. `group`: the name of its thread's group. `idle_ms`: the pauses within a
    transaction, which are no part of `elapsed_ms`."""

    start_ms: int
    elapsed_ms: int
    label: str
    code: str
    message: str
    ok: bool
    bytes_received: int
    bytes_sent: int
    threads: int
    group: str
    idle_ms: int = 0


class JtlReader:
    """Follows one file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._tail = b""
        self._columns: tuple[int, ...] | None = None

    def read(self) -> list[JtlSample]:
        """Returns the samples that were appended since the last call. Raises ValueError for anything that is no result
        of JMeter."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        samples: list[JtlSample] = []
        with file:
            file.seek(self._offset)
            while data := file.read(_READ_BYTES):
                self._offset += len(data)
                samples += self._parse(self._tail + data)
        return samples

    def _parse(self, data: bytes) -> list[JtlSample]:
        end = _end_of_rows(data)
        self._tail = data[end:]
        if len(self._tail) > _ROW_BYTES_MAX:
            raise ValueError(f"a row is longer than {_ROW_BYTES_MAX:,} bytes")
        rows = _rows(data[:end].decode("utf-8", "replace"))
        samples = []
        for row in rows:
            if not row or row == [""]:
                continue
            if self._columns is None:
                self._columns = _columns(row)
            elif (sample := _sample(row, self._columns)).start_ms > 0:  # 0: the sample never began
                samples.append(sample)
        return samples


def _end_of_rows(data: bytes) -> int:
    """Returns where the last complete row ends. A line break within quotes ends no row; quotes within quotes are
    doubled, so that the number of quotes before the end of each row is even."""
    end = data.rfind(b"\n") + 1
    while end and data.count(b'"', 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return end


def _rows(text: str) -> Iterable[list[str]]:
    if '"' not in text:  # the usual case, several times as fast
        return [line.removesuffix("\r").split(",") for line in text.split("\n")]
    try:
        return list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise ValueError(str(error)) from None


def _columns(header: list[str]) -> tuple[int, ...]:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(f"the column {missing[0]} is missing (there are {', '.join(header)[:200]})")
    pauses = (_PAUSES,) if _PAUSES in header else ()
    return tuple(header.index(name) for name in (*COLUMNS, *pauses))


def _sample(row: list[str], columns: tuple[int, ...]) -> JtlSample:
    try:
        start, elapsed, label, code, message, ok, received, sent, threads, thread, *pauses = (row[at] for at in columns)
        counts = int(received), int(sent), int(threads)
        group = thread.rpartition(" ")[0]  # the thread's name is "Users 1-2"
        idle_ms = max(0, *map(int, pauses)) if pauses else 0
        return JtlSample(int(start), max(0, int(elapsed)), label, code, message, ok == "true", *counts, group, idle_ms)
    except (IndexError, ValueError):
        raise ValueError(f"the row {','.join(row)[:200]!r} is none of its results") from None
