"""Reads the end of a server's log: its text, a JVM's out-of-memory error, its last figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError(?:: [^\n]*)?")
_LAST_WORDS_BYTES = 1 << 16
_PAIR = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)=([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])")


def end_of(log: Path, bytes_max: int) -> str:
    """The last bytes as text; empty if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - bytes_max))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def out_of_memory(text: str) -> str:
    """A JVM's out-of-memory message; empty if there is none."""
    said = _OUT_OF_MEMORY.search(text)
    return said[0] if said else ""


def final_figures(log: Path, pattern: str | None) -> dict[str, float]:
    """All `name=number` pairs of the last matching line in the last 64 KiB of a server's log; empty if no line
    matches."""
    if pattern is None:
        return {}
    wanted = re.compile(pattern)
    lines = end_of(log, _LAST_WORDS_BYTES).splitlines()
    line = next((line for line in reversed(lines) if wanted.search(line)), "")
    return {name: float(number) for name, number in _PAIR.findall(line)}
