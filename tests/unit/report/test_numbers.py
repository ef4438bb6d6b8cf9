"""The digits and the unit with which a number is shown."""

import pytest

from powerband.model.results import Estimate
from powerband.report.wording.numbers import ABSENT, format_change, format_estimate, format_interval, format_number


def estimate(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value, low, high, 0.95, 5)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12_345.6, "per_s", "12,300/s"),
        (0.0, "per_s", "0/s"),
        (1_234_567.0, "ns", "1.23 ms"),
        (999.0, "ns", "999 ns"),
        (0.0123, "ratio", "1.23 %"),
        (5 * 2**20, "bytes", "5.00 MiB"),
        (17.0, "count", "17"),
        (17.25, "count", "17.2"),
        (1_234.0, "count", "1,234"),
        (0.0444, "cores", "0.0444"),
    ],
)
def test_without_an_interval_three_digits_are_shown(value: float, unit: str, text: str) -> None:
    assert format_number(value, unit) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "shown", "interval"),
    [
        (12_345, 11_900, 12_790, "12,300/s", "11,900–12,800"),  # half-width 445: one digit of it
        (12_345, 12_245, 12_445, "12,340/s", "12,240–12,440"),  # half-width 100: two digits, value at most four
        (101.234, 101.2, 101.27, "101.2/s", "101.2–101.3"),
        (0.5, 0.1, 0.9, "0.5/s", "0.1–0.9"),
        (3.4, 0.2, 112.0, "3/s", "0–112"),  # half-width 56: the value has one digit all the same
    ],
)
def test_an_interval_says_how_many_digits_are_known(
    value: float, low: float, high: float, shown: str, interval: str
) -> None:
    assert format_estimate(estimate(value, low, high), "goodput_per_s") == shown
    assert format_interval(estimate(value, low, high), "goodput_per_s") == interval


def test_an_interval_stands_in_the_unit_of_its_value() -> None:
    assert format_estimate(estimate(1.05e6, 0.99e6, 1.11e6), "response_time_ns_p99") == "1.05 ms"
    assert format_interval(estimate(1.05e6, 0.99e6, 1.11e6), "response_time_ns_p99") == "0.99–1.11"


def test_what_is_not_known_is_a_dash() -> None:
    assert format_estimate(None, "error_rate") == ABSENT
    assert format_interval(estimate(3.0), "goodput_per_s") == ABSENT


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.88, "−12 %"),
        (1.051, "+5.1 %"),
        (1.0, "0 %"),
        (1.0001, "0 %"),
        (2.0, "+100 %"),
        (10.0, "+900 %"),
        (367.4, "×367"),
    ],
)
def test_a_change_is_a_signed_percentage_or_a_large_factor(ratio: float, text: str) -> None:
    assert format_change(estimate(ratio)) == text
