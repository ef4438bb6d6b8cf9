"""What the end of a subject's log says, for whoever asks: its text, that a JVM ran out of memory, its last figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError(?:: [^\n]*)?")
_LAST_WORDS_BYTES = 1 << 16
_PAIR = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)=([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])")


def end_of(log: Path, bytes_max: int) -> str:
    """The last bytes as text; empty where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - bytes_max))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def out_of_memory(text: str) -> str:
    """What a JVM said when its memory was full; empty where it did not."""
    said = _OUT_OF_MEMORY.search(text)
    return said[0] if said else ""


def final_figures(log: Path, pattern: str | None) -> dict[str, float]:
    """All `name=number` of the last line that matches, of the last 64 KiB of a subject's log; empty where none does."""
    if pattern is None:
        return {}
    wanted = re.compile(pattern)
    lines = end_of(log, _LAST_WORDS_BYTES).splitlines()
    line = next((line for line in reversed(lines) if wanted.search(line)), "")
    return {name: float(number) for name, number in _PAIR.findall(line)}
