import pytest

from powerband.base.units import (
    duration_text,
    parse_bytes,
    parse_duration_ns,
    parse_quantity,
    parse_rate,
    parse_share,
    range_of_shares,
    sided,
    signed_percent,
    with_article,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("5ns", 5),
        ("1.5us", 1_500),
        ("2µs", 2_000),
        ("20 ms", 20_000_000),
        ("3s", 3 * 10**9),
        ("1m", 60 * 10**9),
        ("2h", 7200 * 10**9),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "5", "5 sec", "-1s", "ms", "1.2.3s", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration: write a number with a unit"):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0s"), (1_500_000_000, "1500ms"), (60 * 10**9, "1m"), (7, "7ns"), (90 * 10**9, "90s")]
)
def test_durations_as_text(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@pytest.mark.parametrize(
    ("value", "rate"), [(100, 100), ("100", 100), ("100/s", 100), ("6000/min", 100), ("0.5 / s", 0.5)]
)
def test_rates(value: object, rate: float) -> None:
    assert parse_rate(value) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["fast", "100/d", "-5"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate(text)


@pytest.mark.parametrize(("text", "size"), [("512", 512), ("1KiB", 1024), ("1.5 MB", 1_500_000), ("2GiB", 2 * 2**30)])
def test_sizes(text: str, size: float) -> None:
    assert parse_bytes(text) == size


def test_shares() -> None:
    assert parse_share("1%") == 0.01
    assert parse_share(0.25) == 0.25
    with pytest.raises(ValueError, match="is no share: write 1%"):
        parse_share("much")


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("50ms", "ns", 5e7),
        ("1%", "ratio", 0.01),
        ("1KiB", "bytes", 1024),
        ("100/s", "per_s", 100),
        ("7", "count", 7),
        ("1.5", "cores", 1.5),
    ],
)
def test_thresholds_in_the_unit_of_their_metric(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(("text", "unit"), [("50", "ns"), ("1ms", "ratio"), ("1s", "bytes"), ("5ms", "count")])
def test_thresholds_in_a_wrong_unit(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_quantity(text, unit)


def test_a_noun_has_its_article() -> None:
    assert [with_article(noun) for noun in ("request", "operation", "user", "unit", "update", "entry")] == [
        "a request",
        "an operation",
        "a user",
        "a unit",
        "an update",
        "an entry",
    ]


def test_a_change_in_percentage_points_is_never_cut() -> None:
    assert signed_percent(20.0) == "over +900"
    assert signed_percent(20.0, 0.001) == "+1.9"


def test_an_interval_names_the_side_of_each_end_where_they_differ() -> None:
    worse_or_better = ("better", "worse")
    assert sided(0.02, (0.01, 0.12), worse_or_better, "%") == ("better", " (1.0 to 12.0 %)")
    assert sided(-0.02, (-0.12, 0.01), worse_or_better, "%") == ("worse", " (1.0 % better to 12.0 % worse)")
    assert sided(-0.02, (-20.0, 15.0), worse_or_better, "%") == ("worse", " (1,500 % better to 2,000 % worse)")
    assert sided(0.02, (0.02, 0.02), worse_or_better, "%") == ("better", "")


def test_a_range_of_shares_has_one_decimal_and_no_ends_that_are_one() -> None:
    assert range_of_shares(0.00304, 0.18) == "0.3 to 18.0 %"
    assert range_of_shares(0.9401, 0.9399) == "94.0 %"
    assert range_of_shares(0.0004, 0.001, points=True) == "0.04 to 0.1 percentage points"
