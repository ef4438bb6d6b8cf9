"""Reads a server's log: its end, an awaited text, a JVM's out-of-memory error, the cause of its end, its last
figures."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError(?:: [^\n]*)?")
# What HotSpot says of memory that is not in the heap, and what gives more of it. Older JVMs say `Direct buffer memory`.
_BESIDE_THE_HEAP = (
    ("native thread", "use fewer threads, or raise what limits them (ulimit -u, pids.max)"),
    ("direct buffer", "raise -XX:MaxDirectMemorySize"),
    ("metaspace", "raise -XX:MaxMetaspaceSize"),
    ("compressed class", "raise -XX:CompressedClassSpaceSize, and -XX:MaxMetaspaceSize if it is set"),
)
_LAST_WORDS_BYTES = 1 << 16  # arbitrary: some hundred lines; the wanted line is among the last
_JAVA_CAUSE = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*([^\s][^\n]*)", re.MULTILINE)
_DIRECT_CAUSE = "The above exception was the direct cause of the following exception"
_PANIC = re.compile(
    r"^(?:panic: |fatal error: )[^\n]+|^(?:thread '[^'\n]*'(?: \(\d+\))? panicked at )[^\n]+(?:\n[^\n]+)?", re.MULTILINE
)
_RUBY = re.compile(r"^\S+:\d+:in [^\n]+ \([A-Z][\w:]*\)$", re.MULTILINE)
_EXCEPTION = re.compile(
    r"^(?:Exception in thread \"[^\"\n]*\" |PHP |Uncaught )?(?:[\w.$\\]*(?:Error|Exception)\b|Fatal error:)[^\n]*",
    re.MULTILINE,
)
_ERROR_LINE = re.compile(r"^[^\n]*\b(?:error|fatal|exception)\b[^\n]*", re.IGNORECASE | re.MULTILINE)
_LOOK_BYTES = 8 << 20  # arbitrary: the most of one read, so that a log that grows fast is not read whole at once
_OVERLAP_BYTES = 1 << 16  # a match may span two reads; longer ones are not found
# Not `sent=1,000`, of which the 1 alone would be read. Thousands are set apart by commas, apostrophes or narrow spaces.
_PAIR = re.compile(
    r"(?<![\w.])([A-Za-z_][\w.]*)=([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.]|[,'\u2019\u00a0\u2009\u202f]\d)"
)
# Control sequences that a terminal obeys (ECMA-48), then all other control characters, and marks that change the
# direction of writing.
_CONTROLS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def printable(text: str) -> str:
    """The text without the characters that a terminal would obey instead of showing; line ends and tabs stay."""
    return _CONTROLS.sub("", text)


def size_of(log: Path) -> int:
    """The size of a log in bytes; 0 if there is none."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def end_of(log: Path, bytes_max: int, begins_at: int = 0) -> str:
    """The last bytes of a log, from `begins_at` on, as printable text; empty if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(begins_at, file.tell() - bytes_max))
            return printable(file.read(bytes_max).decode(errors="replace"))
    except OSError:
        return ""


class LogSearch(AbstractContextManager["LogSearch", None]):
    """Looks for a regular expression in a log that grows, and may be replaced by a new file meanwhile; a context
    manager. `begins_at`: the size of the log before the text that counts. Each look reads at most 8 MiB of new text,
    and keeps the 64 KiB before it, so that a match of that length may span two looks."""

    def __init__(self, log: Path, pattern: str, begins_at: int = 0) -> None:
        self._log = log
        self._begins_at = begins_at
        self._pattern = re.compile(pattern, re.MULTILINE)
        self._file: BinaryIO | None = None
        self._before = b""

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def found(self) -> bool:
        """True if there is a match in the new text."""
        try:
            if self._file is None:
                self._file = self._log.open("rb")
                self._file.seek(self._begins_at)
            new = self._file.read(_LOOK_BYTES)
            if not new and self._log.stat().st_ino != os.fstat(self._file.fileno()).st_ino:
                self._file.close()
                self._file, self._before = self._log.open("rb"), b""
                new = self._file.read(_LOOK_BYTES)
        except OSError:
            return False
        if not new:
            return False
        data, begins = self._before + new, not self._before
        self._before = data[-_OVERLAP_BYTES:]
        text = data.decode(errors="replace")
        if "\x1b" in text:  # colours, which nobody sees
            text = printable(text)
        # The first character of the earlier text only tells whether a line begins after it.
        return self._pattern.search(text, 0 if begins else 1) is not None


def out_of_memory(text: str) -> str:
    """A JVM's out-of-memory message; empty if there is none."""
    said = _OUT_OF_MEMORY.search(text)
    return said[0] if said else ""


def remedy_beside_the_heap(said: str) -> str:
    """Says what gives a JVM more of the memory that its message names; empty if that is its heap, or if the
    message does not tell."""
    return next((remedy for words, remedy in _BESIDE_THE_HEAP if words in said.lower()), "")


def cause_in(text: str) -> str:
    """The line of a log that says why its program ended: the innermost exception of a Java or Python chain, the panic
    of Go or Rust, the error of Node, Ruby or PHP, else the first line that names an error; empty if there is none.

    Forms: Throwable.printStackTrace (`Caused by:`, innermost last), Python's traceback module (`direct cause`,
    innermost first), the Go runtime's `panic:` and `fatal error:`."""
    if caused := _JAVA_CAUSE.findall(text):
        return str(caused[-1]).strip()
    if raised := _python_cause(text):
        return raised
    for pattern in (_PANIC, _RUBY, _EXCEPTION, _ERROR_LINE):
        if found := pattern.search(text):
            return " ".join(found[0].split())
    return ""


def _python_cause(text: str) -> str:
    """The innermost exception of the last chain of tracebacks, from which the others were raised; empty if there is no
    traceback."""
    found = list(_PYTHON.finditer(text))
    if not found:
        return ""
    at = len(found) - 1
    while at > 0 and _DIRECT_CAUSE in text[found[at - 1].end() : found[at].start()]:
        at -= 1
    return found[at][1].strip()


def final_figures(log: Path, pattern: str | None) -> dict[str, float]:
    """All `name=number` pairs of the last matching line in the last 64 KiB of a server's log; empty if no line
    matches."""
    if pattern is None:
        return {}
    wanted = re.compile(pattern)
    lines = end_of(log, _LAST_WORDS_BYTES).splitlines()
    line = next((line for line in reversed(lines) if wanted.search(line)), "")
    return {name: float(number) for name, number in _PAIR.findall(line)}
