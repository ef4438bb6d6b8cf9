"""Numbers as people read them: never more digits than are known. In: values in a metric's unit. Out: text.

An interval determines the number of digits, by the rounding rule of the Particle Data Group (Review of Particle
Physics, 5.3): two digits of the half-width are kept if it begins with 100 to 354, otherwise one; never more than four
digits of the value, nor less than one. Without an interval three are shown. Units and their scales are those of
`powerband.base.units`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from powerband.base.units import RATIO_SHOWN_MAX, significant
from powerband.loads.measured import is_lower_bound
from powerband.model.metrics import METRICS
from powerband.model.results import Estimate

_NS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_BYTES = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_SINGLE = {"per_s": (1.0, "/s"), "ratio": (0.01, "%"), "cores": (1.0, ""), "count": (1.0, ""), "per_request": (1.0, "")}

ABSENT = "–"


def format_number(value: float, unit: str, *, place: int | None = None) -> str:
    """`value` with its unit. `place`: power of ten of the last digit shown, in the scaled unit; None: three digits."""
    scale, suffix = unit_scale(value, unit)
    if unit == "count" and abs(value - round(value)) < 1e-6 * max(1.0, abs(value)):
        place = 0  # a mean of equal counts, which logarithms shift slightly off the whole number
    return _join(_rounded(value / scale, place), suffix)


def format_measured(metric: str, metrics: Mapping[str, float]) -> str:
    """A trial's metric with its unit, after `≥ ` if too many requests were not answered rightly to know more."""
    figure = format_number(metrics[metric], METRICS[metric].unit)
    return f"≥ {figure}" if is_lower_bound(metric, metrics) else figure


def format_exact(value: float, unit: str) -> str:
    """A figure as published: with all its digits, up to six."""
    scale, suffix = unit_scale(value, unit)
    return _join(f"{value / scale:,.6g}", suffix)


def format_estimate(estimate: Estimate | None, metric: str, *, digits: int = 4) -> str:
    """The value, with as many of `digits` digits as its interval supports; `≥` before a lower bound; a dash if there is
    no estimate."""
    if estimate is None:
        return ABSENT
    unit = METRICS[metric].unit
    if metric == "threads_max":
        text = f"{estimate.value:,.0f}"  # as in the sentences
    else:
        place = None if unit == "per_request" else _place(estimate, unit, digits)
        text = format_number(estimate.value, unit, place=place)
    return f"≥ {text}" if estimate.at_least else text


def format_interval(estimate: Estimate | None, metric: str, *, digits: int = 4) -> str:
    """`11,900–12,790`, in the unit that `format_estimate` shows; a dash if fewer than two trials back it, or if
    both ends round to one."""
    if estimate is None or estimate.low is None or estimate.high is None or estimate.at_least:
        return ABSENT
    unit = METRICS[metric].unit
    scale, _ = unit_scale(estimate.value, unit)
    place = _place(estimate, unit, digits)
    low, high = (_rounded(end / scale, place) for end in (estimate.low, estimate.high))
    return ABSENT if low == high else f"{low}–{high}"


def format_change(effect: Estimate) -> str:
    """A ratio to the leader as a signed percentage: `−12 %`, above ten as a factor: `×367`."""
    if effect.value > RATIO_SHOWN_MAX:
        return f"×{significant(effect.value)}"
    percent = (effect.value - 1) * 100
    text = f"{abs(percent):.0f}" if abs(percent) >= 10 else f"{abs(percent):.1f}"
    return "0 %" if float(text) == 0 else f"{'−' if percent < 0 else '+'}{text} %"


def unit_scale(value: float, unit: str) -> tuple[float, str]:
    """The divisor and the suffix that fit `value`: 12 ms as ns gives (1e6, "ms")."""
    if unit in _SINGLE:
        return _SINGLE[unit]
    if unit == "s":
        scale, suffix = unit_scale(value * 1e9, "ns")
        return scale / 1e9, suffix
    steps = _NS if unit == "ns" else _BYTES
    return next((step for step in steps if abs(value) >= step[0]), steps[-1])


def _place(estimate: Estimate, unit: str, digits: int = 4) -> int | None:
    if estimate.low is None or estimate.high is None or estimate.high <= estimate.low:
        return None
    scale, _ = unit_scale(estimate.value, unit)
    half = (estimate.high - estimate.low) / 2 / scale
    exponent = math.floor(math.log10(half))
    leading = half / 10.0**exponent
    known = exponent - 1 if leading < 3.55 else exponent
    if estimate.value == 0:
        return known
    first = math.floor(math.log10(abs(estimate.value) / scale))
    return min(max(known, first + 1 - digits), first)


def _rounded(value: float, place: int | None) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    if place is None:
        place = math.floor(math.log10(abs(value))) - 2
    return f"{round(value, -place):,.{max(0, -place)}f}"


def _join(text: str, suffix: str) -> str:
    if text == ABSENT or not suffix:
        return text
    return text + suffix if suffix == "/s" else f"{text} {suffix}"
