"""Real files with mistakes and malicious content, and command lines whose message and exit code are checked."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import strategies as st

from powerband.cli import invoke

LONGEST_S = 20.0  # a tenth is usual; a busy machine takes longer, and quadratic work much longer
DEFECT = 70

NASTY = [
    "", " ", "~", "null", "true", "[]", "{}", "[[]]", "{a: {b: c}}", "0", "-1", "1.5", ".nan", ".inf", "-.inf",
    "1e999",
    "1e308", "-0.0", "9" * 30, "9" * 5000, "0x" + "f" * 400, "1e-999", "00", "0o9", "2026-11-22", "12:30", "1_000",
    "'", '"', "\\", "{", "}", "[", "]", "- ", "? x", ": ", "&a", "*a", "!!python/object:os.system", "!!int x",
    "%YAML 9.9",
    "|", ">", "#", "\t", "\u0000", "\ud7ff", "\ufeff", "\u202e", "\u0301" * 9, "\U0001f40d", "é", "١",
    "x" * 300, "x" * 70_000,
    "{port}", "{engine}", "{nobody}", "{{", "${__P(a," * 40, "1..64", "64..1", "1..9 step 0", "1ms..1", "0..0",
    "1.." + "9" * 40,
    "10s", "1h", "31d", "0s", "-1s", "1e3s", "100/s", "0/s", "1%", "101%", "-5%", "1mbit", "http://[",
    "http://x:99999/",
    "ws://127.0.0.1:{port}/", "file:///etc/passwd", "../../..", "/", "a\x00b",
    "(" * 300, "(?P<a>" * 60, "a{99999999999}", "[a-",
    "p99 < 5ms", "p99 <", "goodput", "capacity", "mean(a)", "final(x)", "rate(a)/0", "1/0", "error_rate < nan",
]  # fmt: skip
_SCALAR = re.compile(
    r"(?<=: )[^\n#{\[]+|(?<=[\[,] )[^\n,\]}]+|(?<=[{,] )[A-Za-z_.]+(?=:)|^\s*[A-Za-z_.]+(?=:)", re.MULTILINE
)
_WORD = re.compile(r"[^\s<>\"'{}\[\],:=]+")

Edit = Callable[[str], str]


def _exchanged(pattern: re.Pattern[str], at: float, value: str) -> Edit:
    """An edit that replaces one match of the pattern by the value."""

    def edit(text: str) -> str:
        found = list(pattern.finditer(text))
        if not found:
            return text + value
        match = found[int(at * len(found))]
        return text[: match.start()] + value + text[match.end() :]

    return edit


def _cut(at: float, length: int, value: str) -> Edit:
    def edit(text: str) -> str:
        start = int(at * len(text))
        return text[:start] + value + text[start + length :]

    return edit


def _line(at: float, how: int) -> Edit:
    """An edit that doubles a line, removes it, indents it, or moves it to the end."""

    def edit(text: str) -> str:
        lines = text.splitlines(keepends=True) or [""]
        index = int(at * len(lines))
        line = lines.pop(index)
        return "".join(
            [
                [*lines[:index], line, line, *lines[index:]],
                lines,
                [*lines[:index], "  ", line, *lines[index:]],
                [*lines, line],
            ][how]
        )

    return edit


PLACES = st.floats(0, 1, exclude_max=True)
VALUES = st.sampled_from(NASTY) | st.text(max_size=8)
EDITS: st.SearchStrategy[Edit] = st.one_of(
    st.builds(_exchanged, st.just(_SCALAR), PLACES, VALUES),
    st.builds(_exchanged, st.just(_WORD), PLACES, VALUES),
    st.builds(_cut, PLACES, st.integers(0, 40), VALUES),
    st.builds(_line, PLACES, st.integers(0, 3)),
)


def mutated(text: str, edits: Sequence[Edit]) -> bytes:
    for edit in edits:
        text = edit(text)
    return text.encode("utf-8", "surrogatepass")


def ending(arguments: Sequence[str], allowed: Sequence[int]) -> str:
    """Runs a command line, checks its exit code, its duration and the length of its message, and that there is no
    traceback; returns its message."""
    out, err = io.StringIO(), io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(list(arguments))
    took_s = time.monotonic() - began
    said = err.getvalue()
    assert code != DEFECT, _details(said)
    assert code in allowed, (code, said)
    assert "Traceback" not in said and len(said) < 40_000, said[:2000]
    assert code in (0, 1) or said.strip() or out.getvalue(), "not a word"
    assert took_s < LONGEST_S, f"it took {took_s:.1f} s"
    return said


def _details(said: str) -> str:
    named = re.search(r"report it with (\S+),", said)
    if named is None or not named[1].startswith(tempfile.gettempdir()):
        return said
    file = Path(named[1])
    text = file.read_text()
    file.unlink()
    return f"{said}\n{text}"
