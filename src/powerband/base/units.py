"""Durations, rates, shares and sizes: converts human notation to numbers with a fixed unit, and back. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|min|h)\s*$")
_PLAIN_DURATION = re.compile(r"[0-9]+(ns|us|ms|s|m|h)")
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

# No trial lasts longer, and much larger times would not fit the integers of the wire contract.
LONGEST_NS = 30 * 24 * 3600 * 10**9

RATIO_SHOWN_MAX = 10.0
"""Digits of ratios above this mean nothing."""

_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:/\s*(s|m|min|h))?\s*$")
_BIT_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmg]?)bit(?:/s|ps)?\s*$", re.IGNORECASE)
_BITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_DIGITS_MAX = 300  # of a size; a float of more digits is infinite
_BYTES = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kKMG]i?B|B)?\s*$")
_BYTE_UNITS: dict[str | None, int] = {
    None: 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "kiB": 2**10,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def parse_duration_ns(value: Any) -> Any:
    """Converts `"3s"`, `"1.5ms"`, `"2m"` to integer ns; an int is ns already (the form of resolved values), and None
    stays None.

    Raises ValueError for a text without a unit, and for an unknown unit."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    match = _DURATION.match(str(value))
    if match is None:
        raise ValueError(
            f"{value!r} is no duration: write a number with a unit ns, us, ms, s, m or h, for example 500ms or 3s"
        )
    ns = float(match[1]) * _NS[match[2]]
    if ns > LONGEST_NS:
        raise ValueError(f"{value!r} is longer than 30 days")
    return round(ns)


def duration_text(ns: int) -> str:
    """The exact duration as a whole number with the largest possible unit, which `parse_duration_ns` reads back:
    `1500ms`, `3s`, `0s`."""
    for unit in ("h", "m", "s", "ms", "us"):
        if ns % _NS[unit] == 0:
            return f"{ns // _NS[unit]}{unit}" if ns else "0s"
    return f"{ns}ns"


def plain_duration(text: str) -> str:
    """Writes a duration as any program reads it, a whole number with one of ns, us, ms, s, m, h: `1500ms` for `1.5s`.
    Text of that form is unchanged."""
    return text if _PLAIN_DURATION.fullmatch(text) else duration_text(0 if text == "0" else parse_duration_ns(text))


def parse_rate(value: Any) -> Any:
    """Converts `100`, `"100/s"` or `"6000/min"` to a rate per second. Raises ValueError."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    match = _RATE.match(str(value))
    if match is None:
        raise ValueError(f"{value!r} is no rate: write a number per second, for example 100 or 100/s")
    return float(match[1]) * 10**9 / _NS[match[2] or "s"]


def parse_bytes(value: Any) -> Any:
    """Converts `"512MiB"`, `"1.5GB"` or a plain number to bytes. Raises ValueError."""
    match = _BYTES.match(str(value))
    if match is None or len(match[1]) > _DIGITS_MAX:
        raise ValueError(f"{value!r} is no size: write a number of bytes with a unit, for example 512MiB or 2GiB")
    return float(match[1]) * _BYTE_UNITS[match[2]]


def parse_bit_rate(value: Any) -> int | None:
    """Converts `"100mbit"`, `"1 Gbit/s"` to bits per second; `"unlimited"` to None. Raises ValueError."""
    if str(value).strip().lower() == "unlimited":
        return None
    match = _BIT_RATE.match(str(value))
    bits = float(match[1]) * _BITS[match[2].lower()] if match else 0.0
    if not 10**3 <= round(min(bits, 1e13)) <= 10**12:
        raise ValueError(f"{value!r} is no bandwidth: write 100mbit, 1gbit or the like (1kbit at least), or unlimited")
    return round(bits)


def parse_share(value: Any) -> Any:
    """Converts `"1%"` or `0.01` to 0.01. Raises ValueError."""
    text = str(value).strip()
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{value!r} is no share: write 1% or 0.01") from None


_PARSERS = {"ns": parse_duration_ns, "ratio": parse_share, "bytes": parse_bytes, "per_s": parse_rate}


def parse_quantity(text: str, unit: str) -> float:
    """Converts a threshold to a number in a metric's unit (`unit` as in `model/metrics.py`). Raises ValueError for a
    wrong unit and for a number that is not finite."""
    if unit in _PARSERS:
        found = float(_PARSERS[unit](text))
    elif unit == "s" and _DURATION.match(text):
        found = float(parse_duration_ns(text)) / 1e9
    else:
        try:
            found = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is no plain number, which is what is wanted here") from None
    if not math.isfinite(found):
        raise ValueError(f"{text!r} is not finite")
    return found


def format_duration(ns: float) -> str:
    """A duration with three significant digits and the unit that fits: `1.23 ms`, `45.6 us`, `2.00 s`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if abs(ns) >= size:
            return f"{significant(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def rough_time(seconds: float) -> str:
    """A likely time, rounded: `50 s`, `4 min`, `2 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def time_text(ns: float) -> str:
    """A time in words: `50 s`, `4 min 10 s`, `10 min`, `2 h 5 min`, `12 days`."""
    seconds = round(ns / 1e9)
    if seconds < 60:
        return f"{seconds} s"
    hours, rest = divmod(seconds, 3600)
    if hours >= 48:
        return f"{round(seconds / 86400)} days"
    whole, part = (f"{hours} h", rest // 60) if hours else (f"{rest // 60} min", rest % 60)
    return f"{whole} {part} {'min' if hours else 's'}" if part else whole


def format_value(value: float, unit: str) -> str:
    """A metric's value with its unit, for people. `unit` as in `powerband.model.metrics`."""
    match unit:
        case "ns":
            return format_duration(value)
        case "s":
            return format_duration(value * 1e9)
        case "ratio":
            return f"{significant(value * 100)} %"
        case "bytes":
            return format_bytes(value)
        case "per_s":
            return f"{significant(value)}/s"
        case _:
            return significant(value)


def format_bytes(value: float) -> str:
    """A size with three significant digits and a binary unit: `1.50 GiB`, `20.0 KiB`, `512 B`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= size:
            return f"{significant(value / size)} {unit}"
    return f"{value:.0f} B"


def percent(share: float) -> str:
    """A share that was chosen, with all its digits up to six: `95 %`, `97.5 %`."""
    return f"{100 * share:.6g} %"


def share(value: float) -> str:
    """A share that was measured, rounded to a whole percent: `71 %`."""
    return f"{100 * value:.0f} %"


def short_percent(share: float) -> str:
    """A share in percent without the sign, with one decimal below 100, as what is smaller does not matter: `0.3`."""
    return f"{100 * share:,.0f}" if abs(share) >= 1 else f"{100 * share:.1f}"


def span(ends: Iterable[str]) -> str:
    """A range in words: `0.3 to 18.0`, or one of the ends if both are the same text."""
    return " to ".join(dict.fromkeys(ends))


def range_of_shares(low: float, high: float, *, points: bool = False) -> str:
    """A range of shares in words: `0.3 to 18.0 %`, or `4.2 %` if both ends round to it; with `points` in percentage
    points, which may be small."""
    ends = (significant(100 * end) if points else short_percent(end) for end in (low, high))
    return f"{span(ends)} {'percentage points' if points else '%'}"


def sided(value: float, ends: tuple[float, float], sides: tuple[str, str], unit: str) -> tuple[str, str]:
    """The side on which the value lies, of `sides` above zero and below, and its interval in brackets:
    ` (0.2 to 1.0 %)`, or with the sides of both ends if they differ; empty if the ends round to one."""
    here, there = sides if value >= 0 else sides[::-1]
    near, far = sorted(end if value >= 0 else -end for end in ends)
    if near <= -0.0005:
        return here, f" ({short_percent(-near)} {unit} {there} to {short_percent(far)} {unit} {here})"
    low, high = short_percent(abs(near)), short_percent(far)
    return here, "" if low == high else f" ({low} to {high} {unit})"


def signed_percent(ratio: float, base: float = 1.0, places: int = 1) -> str:
    """The change of a ratio in percent: `+2.3`, `−4.1`. Ratios above ten become `over +900`: they are ends of intervals
    from few noisy trials, whose digits mean nothing. With the `base` of a share: the change in percentage points."""
    if base == 1.0 and ratio > RATIO_SHOWN_MAX:
        return f"over +{100 * (RATIO_SHOWN_MAX - 1):.3g}"
    return f"{100 * (ratio - 1) * base:+.{places}f}".replace("-", "−")


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 block`, `1,200 blocks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def with_article(noun: str) -> str:
    """The noun with its article, by its first sound as far as its letters show that: `a request`, `an operation`."""
    vowel = noun[:1].lower() in "aeiou" and not re.match(r"(?i)(uni|use|user|usu|eu|one\b)", noun)
    return f"{'an' if vowel else 'a'} {noun}"


def capital(text: str) -> str:
    """The text with a capital letter first, unless it begins with a name such as `threads=4`."""
    return text if "=" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def joined(parts: Sequence[str]) -> str:
    """The parts as a list in words: `a, b and c`. `parts` must not be empty."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def significant(value: float) -> str:
    """A number with three significant digits, or all digits of its whole part, with commas; scientific below 0.001."""
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
