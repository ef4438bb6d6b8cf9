import pytest

from powerband.base.arithmetic import Arithmetic, Number, value
from powerband.model.claim_expression import OPERATORS, Reference, check_levels, parse_claim, settings_of
from powerband.model.plan import Level, grid, one_at_a_time


def test_the_tree_of_a_claim() -> None:
    (comparison,) = parse_claim("goodput[threads=8] > 1.1 * goodput[threads=4]").comparisons
    assert comparison.op == ">"
    assert comparison.left == Reference("goodput_per_s", (("threads", "8"),))
    assert comparison.right == Arithmetic("*", Number(1.1), Reference("goodput_per_s", (("threads", "4"),)))


@pytest.mark.parametrize(
    ("text", "values", "truth"),
    [
        ("error_rate[core=30] == 0", {"30": 0.0}, True),
        ("error_rate[core=30] == 0", {"30": 0.01}, False),
        ("error_rate[core=30] < 2%", {"30": 0.01}, True),
        ("p99[core=20] <= 50ms", {"20": 5e7}, True),
        ("p99[core=20] < 50ms and p99[core=30] < 10ms", {"20": 4e7, "30": 2e7}, False),
        ("goodput[core=30] - goodput[core=20] > 5/s", {"30": 20, "20": 10}, True),
        ("goodput[core=30] > 2 + 3 * goodput[core=20]", {"30": 36, "20": 12}, False),
        ("goodput[core=30] > (2 + 3) * goodput[core=20]", {"30": 61, "20": 12}, True),
        ("goodput[core=30] / goodput[core=20] != 2", {"30": 24, "20": 12}, False),
        ("memory[core=20] >= 1MiB", {"20": 2**20}, True),
        ("finish_s[core=20] < 50ms", {"20": 0.04}, True),
        ("finish_s[core=20] < 50ms", {"20": 4.0}, False),
        ("1min > memory_lasts_s[core=20]", {"20": 59.0}, True),
        ("app_wait_s[core=30] > 2 * (app_wait_s[core=20] + 500ms)", {"20": 1.0, "30": 3.1}, True),
        ("p99[core=30] - p99[core=20] > 0", {"20": 1e6, "30": 2e6}, True),
        ("p99[core=30] / p99[core=20] > 150%", {"20": 1e6, "30": 2e6}, True),
        ("memory[core=20] / users_mean[core=20] < 1MiB", {"20": 4.0}, True),
        ("doubled_users_gain[core=20] < 1.1 and app_busy_ratio[core=30] < 2", {"20": 1.9, "30": 1.0}, False),
        ("goodput[core=20] > 60/min", {"20": 2.0}, True),
        ("goodput[core=20] > 3600/h and goodput[core=20] < 2/s", {"20": 2.0}, False),
        ("10/slots[core=20] > 4", {"20": 2.0}, True),
        ("app_wait_s[core=20] > 0.5 * mean[core=30] / 1000000000", {"20": 0.02, "30": 3e7}, True),
        ("p99[core=30] / 1000000000 - app_wait_s[core=20] < 5ms", {"20": 0.02, "30": 3e7}, False),
        ("app_wait_s[core=20] * 1000000000 > mean[core=30]", {"20": 0.02, "30": 3e7}, False),
        ("app_wait_s[core=20] * 1000 < p99[core=30] / 1000000", {"20": 0.02, "30": 3e7}, True),
    ],
)
def test_the_sides_of_a_claim(text: str, values: dict[str, float], truth: bool) -> None:
    def value_of(reference: Reference) -> float:
        return values[dict(reference.levels)["core"]]

    found = [
        OPERATORS[part.op](value(part.left, value_of), value(part.right, value_of))
        for part in parse_claim(text, strict=True).comparisons
    ]
    assert all(found) is truth


def test_each_comparison_keeps_its_words() -> None:
    parts = parse_claim(" p99[a=1 and b] <  50ms and (goodput[a=2] + 1) > 3 ").comparisons
    assert [part.text for part in parts] == ["p99[a=1 and b] <  50ms", "(goodput[a=2] + 1) > 3"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gooodput > 5", "did you mean goodput"),
        ("p99 > 5ms 6", "at character 11 .* 6 is not expected"),
        ("p99", "a comparison is wanted"),
        ("p99 > ", "at character 7 .* a number or a metric is wanted"),
        ("p99 < (5", "closing parenthesis is missing"),
        ("p99 $ 5", "at character 5 .* has no meaning"),
        ("p99 < 5xs", "is no duration"),
        ("p99 < 50", "in `p99 < 50`: '50' is no duration: write a number with a unit"),
        ("goodput < 50ms", "'50ms' is no rate"),
        ("threads == 50ms", "'50ms' is no plain number"),
        ("p99 + 5% < 50ms", "'5%' is no duration"),
        ("goodput * 50ms < 3", "50ms has a unit, but no metric that it is compared with or added to"),
        ("1 < 2", "compares numbers only"),
        ("errors < 1", "`errors < 1` holds always, since 1 is all: write 1%"),
        ("p99 < 5ms and 5 >= errors", "`5 >= errors` holds always, since 1 is all: write 5%"),
        ("errors > 1", "`errors > 1` holds never, since 1 is all: write 1%"),
        ("p99 < 5ms and 95 <= app_hit_share", "`95 <= app_hit_share` holds never, since 1 is all: write 95%"),
        ("errors == 5", "holds never, since 1 is all: write 5%"),
        ("app_wait_s > 0.5 * mean", "0.5 . mean` compares s with ns: write what is in ns / 1000000000"),
        ("p99 < 5ms and p99 < ready_s", "`p99 < ready_s` compares s with ns"),
        ("p99 - app_wait_s < 5ms", "`p99 - app_wait_s < 5ms` compares s with ns"),
        ("2 * (finish_s + mean) < 5s", "compares s with ns"),
        ("finish_s / mean > 50%", "compares s with ns"),
        ("p99[threads] < 5", "must name parameters and values"),
        ("p99[a=1,a=2] < 5", "names a parameter twice"),
        ("p99[a=1] < p99", "must name the same parameters"),
        ("(" * 60 + "p99", "50 parentheses"),
    ],
)
def test_what_is_no_claim(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_claim(text, strict=True)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("p99 < 50000000", 5e7),
        ("cpu < 50%", 0.5),
        ("goodput < 50ms", 5e7),
        ("threads < 2kB", 2000.0),
        ("p99 < 5/s", 5.0),
        ("p99 < 2 * 5ms", 1e7),
        ("finish_s < 5s", 5.0),
        ("errors > 5", 5.0),
    ],
)
def test_a_claim_of_an_older_run_is_read_whatever_its_units(text: str, read: float) -> None:
    (comparison,) = parse_claim(text).comparisons
    assert value(comparison.right, lambda _: 0.0) == read


def test_factors_that_a_claim_leaves_out_run_over_all_levels() -> None:
    factors: dict[str, tuple[Level, ...]] = {"core": (20, 30), "queue": (500, 1000)}
    claimed = parse_claim("goodput[core=30] > goodput[core=20]")
    cases = settings_of(claimed, {each: each for each in grid(factors)})
    assert [sorted(setting.id for setting in case.values()) for case in cases.values()] == [
        ["core=20,queue=500", "core=30,queue=500"],
        ["core=20,queue=1000", "core=30,queue=1000"],
    ]


def test_a_claim_is_on_the_settings_that_there_are() -> None:
    """The whole grid would have 1.7 million settings."""
    factors: dict[str, tuple[Level, ...]] = dict.fromkeys("abcdefgh", (1, 2, 3, 4, 5, 6))
    settings = {each: each for each in one_at_a_time(factors)}
    assert len(settings_of(parse_claim("goodput[a=1] > goodput[a=2]"), settings)) == 1
    assert len(settings_of(parse_claim("goodput[a=1] > 0"), settings)) == 36
    assert settings_of(parse_claim("goodput[a=2,b=2] > 0"), settings) == {}


def test_levels_are_checked() -> None:
    claimed = parse_claim("error_rate[core=30] == 0")
    check_levels(claimed, {"core": [20, 30]})
    with pytest.raises(ValueError, match="there is no parameter core; did you mean cores"):
        check_levels(claimed, {"cores": [30]})
    with pytest.raises(ValueError, match="parameter core has no value 30"):
        check_levels(claimed, {"core": [20, 40]})
