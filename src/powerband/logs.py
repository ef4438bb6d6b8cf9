"""What the end of a subject's log says, for whoever asks: its text, and that a JVM ran out of memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError(?:: [^\n]*)?")


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
