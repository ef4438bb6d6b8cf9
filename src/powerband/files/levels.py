"""Parses levels as people write them: `1..64`, `1..8 step 1`, `1ms..100ms`, `1,2,4`, `"1..x"`. In: text. Out: levels.

A range without a step is a ladder: it doubles from the first value to the last, both included, since the effect of a
concurrency setting shows by factors and not by steps.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from powerband.base.units import duration_text, parse_duration_ns
from powerband.base.yaml_document import Node, parse_scalar
from powerband.model.plan import Level, format_level

_LEVELS_MAX = 1_000  # arbitrary: a step that small is a mistake, since each level is a setting
_DIGITS_MAX = 30  # of an end of a range, or of its step: arbitrary, a longer number takes quadratic time
# A rung this near to the end of a ladder is left out: the end itself stands for it.
_NEAR_END = Fraction(5, 4)
_RANGE = re.compile(
    r"^\s*([\d.]*\d(?:[A-Za-zµ]+)?)\s*\.\.\s*(\d[\d.]*(?:[A-Za-zµ]+)?)\s*(?:step\s+(\d[\d.]*(?:[A-Za-zµ]+)?))?\s*$"
)
_LIKE_A_RANGE = re.compile(r"\s*[-+]?\d[\d.]*?(?:[eE][-+]?\d+)?[A-Za-zµ]*\s*\.\.")
_PART = re.compile(r"""\s*(?:(?P<quote>["'])(?P<quoted>[^"']*)(?P=quote)|(?P<plain>[^,]*?))\s*(?:,|\Z)""")


def parse_range(text: str) -> list[Level] | None:
    """Returns the levels of a range; None if the text is no range. Raises ValueError for a range that makes no
    sense."""
    match = _RANGE.match(text)
    if match is None:
        return None
    parts = [match[1], match[2]] + ([match[3]] if match[3] else [])
    if any(len(part) > _DIGITS_MAX for part in parts):
        raise ValueError(f"{text[:_DIGITS_MAX]}... has more than {_DIGITS_MAX} digits: write smaller numbers")
    suffixes = {part.lstrip("0123456789.") for part in parts}
    if len(suffixes) == 1 and suffixes != {""}:
        # The number keeps the form in which it was written: the server reads it, and 480m may be megabytes to it.
        (suffix,) = suffixes
        return [
            f"{Decimal(str(number)):f}{suffix}"
            for number in _numbers(text, [part.removesuffix(suffix) for part in parts])
        ]
    if "" not in suffixes:
        try:
            durations = [Fraction(parse_duration_ns(part)) for part in parts]
        except ValueError as error:
            raise ValueError(f"{text!r} mixes units, which only durations may: {error}") from None
        rungs = _rungs(text, durations)
        return [duration_text(round(rung)) for rung in rungs]
    return list(_numbers(text, parts))


def _numbers(text: str, parts: list[str]) -> list[int] | list[float]:
    try:
        numbers = [Fraction(part) for part in parts]
    except ValueError:
        raise ValueError(f"{text!r}: both ends of a range are numbers, or both carry a unit") from None
    whole = all("." not in part for part in parts)
    rungs = _rungs(text, numbers, least=Fraction(1) if whole else None)
    return [int(rung) for rung in rungs] if whole else [float(rung) for rung in rungs]


def parse_levels(text: str, key: str = "") -> tuple[Node, ...]:
    """Returns the levels of a `-P`, at this key: levels and ranges separated by commas. What stands in quotes is text.
    Raises ValueError for an empty level or bad range."""
    levels: list[Node] = []
    at = 0
    while at <= len(text):
        part = _PART.match(text, at)
        assert part is not None, "any text up to a comma is a part"
        at = part.end() + (not part[0].endswith(","))
        text_of, plain = part["quoted"], part["plain"]
        levels += unfolded(Node(parse_scalar(plain), key, text=plain)) if text_of is None else [Node(text_of, key)]
    if any(level.value is None for level in levels):
        raise ValueError("a value is empty")
    return tuple(levels)


def unfolded(node: Node) -> list[Node]:
    """Returns the levels of a range, and any other level alone. Raises ValueError for a range that makes no sense, and
    for text that looks like one and has no quotes."""
    levels = parse_range(node.text or "")
    if levels is None and _LIKE_A_RANGE.match(node.text or ""):
        raise ValueError(f"{node.text!r} is no range: write 1..64 or 1..64 step 8, or put it in quotes if it is a text")
    return [node] if levels is None else [Node(level, node.key, node.position) for level in levels]


def as_written(node: Node) -> Node:
    """Returns a level as a server gets it: what has another form as a number (1.10, 007, 0x10), or as true or false
    (True), is text."""
    value, text = node.value, node.text
    if text is None or value is None or (isinstance(value, float) and not math.isfinite(value)):
        return node
    return node if format_level(value) == text else replace(node, value=text)


def _rungs(text: str, numbers: list[Fraction], least: Fraction | None = None) -> list[Fraction]:
    """Returns the values of a range. `least`: the first rung above 0 if the range starts at 0; None: an eighth of the
    end."""
    low, high, *step = numbers
    if low >= high:
        raise ValueError(f"{text!r}: a range goes from the smaller to the larger")
    if step and step[0] <= 0:
        raise ValueError(f"{text!r}: the step must be above 0")
    if step and (high - low) / step[0] > _LEVELS_MAX:
        raise ValueError(f"{text!r} has more than {_LEVELS_MAX} values")
    rungs = [low]
    if step:
        while rungs[-1] + step[0] < high:
            rungs.append(rungs[-1] + step[0])
        return [*rungs, high]
    while (following := rungs[-1] * 2 or least or high / 8) * _NEAR_END <= high:
        rungs.append(following)
    return [*rungs, high]
