"""Reads user variables and the rows of a CSV Data Set as JMeter does. `conversion` uses the rows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from powerband.jmx.encodings import decoded
from powerband.jmx.plan_findings import Findings
from powerband.jmx.tree import Element, Property
from powerband.jmx.values import Values

BYTES_MAX = 4 * 2**20  # as much as an experiment file may hold
ROWS_KEPT = 1001  # more than any scenario has steps
_EACH_USER = ("shareMode.thread", "Current thread")


@dataclass(frozen=True)
class Data:
    """The rows of a CSV Data Set, an `element` of the plan. `rows`: the first of `count` rows. `own`: each user goes
    through the rows by itself, in JMeter too. `recycled`: the first row follows the last. `stops`: users stop at the
    end of the rows."""

    element: Element
    rows: tuple[dict[str, str], ...]
    count: int
    own: bool
    recycled: bool
    stops: bool


def variables_of(element: Element, arguments: Property | None, values: Values, findings: Findings) -> dict[str, str]:
    """The variables of one list; if a name occurs twice, the first one counts."""
    found: dict[str, str] = {}
    listed = arguments.items if arguments is not None else element.properties
    for collection in listed:
        if collection.name != "Arguments.arguments":
            continue
        for item in collection.items:
            name = item.text_of("Argument.name")
            if name and name not in found and item.text_of("Argument.enabled", "true") != "false":
                value = findings.text(element, values, item.text_of("Argument.value"), f"the variable {name}")
                if value is not None:
                    found[name] = value
    return found


def data_of(element: Element, values: Values, findings: Findings, folder: Path) -> Data | None:
    """The rows of a data set; None, with a refusal, if they cannot be known."""
    texts = {
        name: findings.text(element, values, element.text_of(name, default), name)
        for name, default in (
            ("filename", ""), ("fileEncoding", ""), ("variableNames", ""), ("delimiter", ","), ("shareMode", ""),
        )
    }  # fmt: skip
    if any(text is None for text in texts.values()):
        return None
    given = {name: text or "" for name, text in texts.items()}
    text = _read(element, folder, given["filename"].strip(), given["fileEncoding"].strip(), findings)
    if text is None:
        return None
    delimiter = "\t" if given["delimiter"] == "\\t" else given["delimiter"] or ","
    try:
        found = _rows(
            text,
            [name.strip() for name in given["variableNames"].split(",") if name],
            delimiter,
            quoted=findings.flag(element, values, "quotedData", "quoted data"),
            skips=findings.flag(element, values, "ignoreFirstLine", "ignore first line"),
        )
        rows = tuple(dict(row) for row in islice(found, ROWS_KEPT))
        count = len(rows) + sum(1 for _ in found)
    except ValueError as error:
        findings.refuse(
            element, f"{given['filename']}: {error}", "correct that line; JMeter would not read it as a row either"
        )
        return None
    if not rows:
        findings.refuse(element, f"{given['filename']} has no rows", "write at least one line of values")
        return None
    return Data(
        element,
        rows,
        count,
        own=given["shareMode"] in _EACH_USER,
        recycled=findings.flag(element, values, "recycle", "recycle", default=True),
        stops=findings.flag(element, values, "stopThread", "stop thread"),
    )


def _read(element: Element, folder: Path, name: str, encoding: str, findings: Findings) -> str | None:
    """The file's text. It lies in the plan's folder or below, so that a stranger's plan takes nothing else into the
    experiment."""
    home = folder.resolve()
    try:
        path = (home / name).resolve()
        if not path.is_relative_to(home):
            findings.refuse(
                element,
                f"its file {name!r} lies outside of the plan's folder {home}, and only files below it are read",
                "copy that file into the plan's folder, if what it holds may become part of the experiment",
            )
            return None
        if not path.is_file():
            findings.refuse(
                element, f"its file {name!r} is not there, in the plan's folder {home}", "put the file beside the plan"
            )
            return None
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise ValueError(f"it is larger than {BYTES_MAX // 2**20} MiB")
        return decoded(data, encoding or "utf-8-sig").removeprefix("\ufeff")
    except (OSError, LookupError, ValueError) as error:
        findings.refuse(
            element, f"its file {name!r} cannot be read: {error}", "set its File encoding, or correct the file"
        )
        return None


def _rows(
    text: str, names: list[str], delimiter: str, *, quoted: bool, skips: bool
) -> Iterator[Iterable[tuple[str, str]]]:
    """The rows of the text, as pairs of name and value. Raises ValueError with the line if it is not a valid row."""
    if "\0" in text:
        raise ValueError("a NUL byte is in it")
    lines = _quoted(text, delimiter[0]) if quoted or not names else _plain(text, delimiter)
    if not names:
        names = [name.strip() for name in next(lines, (1, []))[1]]
        if not quoted:
            lines = _plain(text, delimiter)
            next(lines, None)
    elif skips:
        next(lines, None)
    if not names:
        raise ValueError("its first line, which names the variables, is empty")
    for number, values in lines:
        if len(values) < len(names):
            raise ValueError(f"line {number} has {len(values)} of {len(names)} values")
        yield zip(names, values, strict=False)


def _plain(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each line is a row; quotes have no meaning."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        values = line.removesuffix("\n")
        yield number, values.split(delimiter) if values else []


def _quoted(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Values may be in double quotes, and then contain delimiters, line ends and doubled quotes."""
    at, line = 0, 1
    while at < len(text):
        row: list[str] = []
        began = line
        while True:
            value, at, line = _value(text, at, line, delimiter)
            row.append(value)
            if at >= len(text) or text[at] != delimiter:
                break
            at += 1
        if text.startswith("\r\n", at):
            at += 2
        elif at < len(text):
            at += 1
        line += 1
        yield began, row


def _value(text: str, at: int, line: int, delimiter: str) -> tuple[str, int, int]:
    """The value that begins at `at`, its end, and the line of its end."""
    ends = (delimiter, "\r", "\n")
    if not text.startswith('"', at):
        start = at
        while at < len(text) and text[at] not in ends:
            if text[at] == '"':
                raise ValueError(f"line {line} has a quote within a value that does not begin with one")
            at += 1
        return text[start:at], at, line
    began = line
    found: list[str] = []
    at += 1
    while at < len(text):
        character = text[at]
        at += 1
        line += character == "\n"
        if character != '"':
            found.append(character)
        elif text.startswith('"', at):
            found.append('"')
            at += 1
        elif at >= len(text) or text[at] in ends:
            return "".join(found), at, line
        else:
            break
    raise ValueError(f"line {began} has a quoted value that does not end as one")
