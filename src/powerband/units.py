"""Durations, rates, shares and sizes: from what people write to numbers with a fixed unit, and back. Pure."""

from __future__ import annotations

import re
from typing import Any

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|min|h)\s*$")
_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}


def parse_duration_ns(value: Any) -> Any:
    """`"3s"`, `"1.5ms"`, `"2m"` to integer ns; an int is taken as ns already (how resolved values are stored).

    Raises ValueError for a number without a unit written as text, and for an unknown unit."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    match = _DURATION.match(str(value))
    if match is None:
        raise ValueError(
            f"{value!r} is no duration: write a number with a unit ns, us, ms, s, m or h, for example 500ms or 3s"
        )
    return round(float(match[1]) * _NS[match[2]])


def parse_share(value: Any) -> Any:
    """`"1%"` or `0.01` to 0.01. Raises ValueError."""
    text = str(value).strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{value!r} is no share: write 1% or 0.01") from None


def format_duration(ns: float) -> str:
    """Three significant digits with the unit that fits: `1.23 ms`, `45.6 us`, `2.00 s`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if abs(ns) >= size:
            return f"{significant(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def format_value(value: float, unit: str) -> str:
    """A metric's value with its unit, for people. `unit` as in `powerband.metrics`."""
    match unit:
        case "ns":
            return format_duration(value)
        case "ratio":
            return f"{significant(value * 100)} %"
        case "bytes":
            return format_bytes(value)
        case "per_s":
            return f"{significant(value)}/s"
        case _:
            return significant(value)


def format_bytes(value: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= size:
            return f"{significant(value / size)} {unit}"
    return f"{value:.0f} B"


def significant(value: float) -> str:
    """Three significant digits, thousands with commas, never scientific."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    if magnitude >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}" if magnitude >= 0.001 else f"{value:.1e}"
