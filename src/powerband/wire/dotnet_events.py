"""Reads the files of the startup hook in a server's .NET processes (`processes/static/StartupHook.cs`), as events.

In: the folder of a trial to which the hook wrote. Out: events `dotnet`. The server itself wrote these files, so their
content is not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PROCESSES_MAX = 64  # the hook allows no more processes to write
BYTES_MAX = 64 << 20  # of one file: as much as is written in 15 hours


def dotnet_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Each line as an event, with its `type` and `pid` added. A line that is no object of integers is left out; a
    process that was killed may have left half a line."""
    for file in sorted(folder.glob("*.jsonl"))[:PROCESSES_MAX]:
        if not file.stem.isdecimal() or file.is_symlink() or not file.is_file():
            continue
        with file.open("rb") as text:
            lines = text.read(BYTES_MAX).split(b"\n")
        for line in lines:
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
                if type(row) is dict and "at_ns" in row and all(type(each) is int for each in row.values()):
                    yield {**row, "type": "dotnet", "pid": int(file.stem)}
