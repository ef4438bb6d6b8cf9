"""Numbers for people: for any value the text is short, close to the value, and shows no digit that is not known."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.model.metrics import METRICS
from powerband.model.results import Estimate
from powerband.report.wording.numbers import format_estimate, format_interval, format_number

UNITS = sorted({metric.unit for metric in METRICS.values()})
SCALES = {
    "s": 1e9,
    "ms": 1e6,
    "us": 1e3,
    "ns": 1.0,
    "GiB": 2.0**30,
    "MiB": 2.0**20,
    "KiB": 2.0**10,
    "B": 1.0,
    "%": 0.01,
    "/s": 1.0,
    "": 1.0,
}
values = st.floats(min_value=1e-6, max_value=1e15)


def read(text: str) -> float:
    match = re.fullmatch(r"(-?[\d,.]+) ?(.*)", text)
    assert match, text
    return float(match[1].replace(",", "")) * SCALES[match[2]]


@given(values, st.sampled_from(UNITS))
def test_three_digits_are_within_half_a_percent(value: float, unit: str) -> None:
    base = 1e9 if unit == "s" else 1.0  # seconds are shown like times, which are given in ns
    assert read(format_number(value, unit)) == pytest.approx(value * base, rel=0.0051)


@given(st.floats(min_value=-1e18, max_value=1e18), st.sampled_from(UNITS))
def test_no_number_is_too_odd_to_show(value: float, unit: str) -> None:
    text = format_number(value, unit)
    assert text
    assert "e" not in text.replace("ces", "")


@given(values, st.floats(min_value=1e-3, max_value=0.9))
def test_rounding_stays_well_within_the_interval(value: float, share: float) -> None:
    half = value * share
    estimate = Estimate(value, value - half, value + half, 0.95, 5)
    shown = read(format_estimate(estimate, "goodput_per_s"))
    assert abs(shown - value) <= max(half * 0.2, value * 0.00051)


@given(values, st.floats(min_value=1e-4, max_value=0.9))
def test_no_digit_is_shown_that_the_interval_does_not_know(value: float, share: float) -> None:
    half = value * share
    estimate = Estimate(value, value - half, value + half, 0.95, 5)
    number = format_estimate(estimate, "goodput_per_s").removesuffix("/s").replace(",", "")
    decimals = len(number.partition(".")[2])
    assert decimals <= max(0, 1 - math.floor(math.log10(half)))


@given(values, st.floats(min_value=1e-3, max_value=0.9))
def test_an_interval_holds_its_value(value: float, share: float) -> None:
    estimate = Estimate(value, value * (1 - share), value * (1 + share), 0.95, 5)
    low, high = format_interval(estimate, "goodput_per_s").split("–")
    shown = read(format_estimate(estimate, "goodput_per_s"))
    assert read(low) <= shown <= read(high)
