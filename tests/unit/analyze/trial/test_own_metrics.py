"""A subject's own metrics, from made-up scrapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from powerband.analyze.trial.own_metrics import OWN, own_metrics, own_series
from powerband.analyze.trial.threads import label_tables
from powerband.model.own_expression import parse_own
from powerband.readings.evidence import Evidence
from powerband.readings.probe_samples import Counters

S = 10**9


def over(text: str, series: Mapping[str, list[float | None]], start_s: float = 1, end_s: float = 3) -> float | None:
    """The value of a metric over scrapes at 0, 1, 2, ... s."""
    length = len(next(iter(series.values())))
    fields = {name: np.array(values, dtype=float) for name, values in series.items()}
    scrapes = Counters(at_ns=np.arange(length, dtype=float) * S, fields=fields)
    return own_metrics({"app_x": parse_own(text)}, scrapes, round(start_s * S), round(end_s * S)).get("app_x")


ACTIVE = {"active": [0, 2, 4, 6, 100], "most": [10, 10, 10, 20, 20]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mean(active)", 4),
        ("max(active)", 6),
        ("min(active)", 2),
        ("last(active)", 6),
        ("mean(active / most)", (0.2 + 0.4 + 0.3) / 3),
        ("max(most - active)", 14),
    ],
)
def test_gauges_are_taken_at_the_scrapes_of_the_window(text: str, expected: float) -> None:
    assert over(text, dict(ACTIVE)) == pytest.approx(expected)


def test_counters_grow_over_the_window_between_scrapes_too() -> None:
    series: dict[str, list[float | None]] = {'n{a="1"}': [0, 10, 30, 60, 100], 'n{a="2"}': [5, 5, 5, 5, 5]}
    assert over("increase(n)", series) == pytest.approx(50)
    assert over("rate(n)", series) == pytest.approx(25)
    assert over('rate(n{a="2"})', series) == 0
    assert over("increase(n)", series, 1.5, 2.5) == pytest.approx(45 - 20)


def under_load(begun_s: float, at_s: Sequence[float]) -> Counters:
    """Scrapes of counters that grow by 1000 a second while a load runs, which ends at 5 s."""
    at = np.array(at_s)
    grown = 1000 * (np.clip(at, begun_s, 5) - begun_s)
    return Counters(at_ns=at * S, fields={"n": grown, 'm_total{w="1"}': grown}, complete=True)


@pytest.mark.parametrize(
    ("begun_s", "at_s"),
    [
        (0, (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)),
        (0, (0.5, 1.5, 2.5, 3.5, 4.5)),  # none follows
        (2, (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)),  # no warm-up
    ],
)
def test_scrapes_before_and_after_the_load_do_not_lessen_the_rate_under_it(
    begun_s: float, at_s: Sequence[float]
) -> None:
    scrapes, loaded = under_load(begun_s, at_s), (round(begun_s * S), 5 * S)
    found = own_metrics({"app_n": parse_own("rate(n)")}, scrapes, 2 * S, 5 * S, loaded)
    assert found == {"app_n": pytest.approx(1000)}
    (table,) = label_tables(scrapes, 2 * S, 5 * S, loaded)
    assert table.rows == ((("1",), (pytest.approx(1000),)),)


@pytest.mark.parametrize(
    ("start_s", "at_s"),
    [
        (4.5, (1.3, 2.3, 3.3, 4.3, 5.3)),  # a window between two scrapes
        (2, (0.2, 1.2, 2.2, 5.2)),  # two of its scrapes failed
    ],
)
def test_a_scrape_after_the_load_is_used_where_it_shows_most_of_the_window(
    start_s: float, at_s: Sequence[float]
) -> None:
    scrapes, window = under_load(0, at_s), (round(start_s * S), 5 * S)
    wanted = {"app_n": parse_own("rate(n)")}
    assert own_metrics(wanted, scrapes, *window, (0, 5 * S)) == own_metrics(wanted, scrapes, *window)


@pytest.mark.parametrize(
    ("series", "grown"),
    [
        ({"n": [None, None, None, 37, 37, 37]}, 37),  # first seen with all of it
        ({'n{w="1"}': [0, 100, 200, 300, None, None], 'n{w="2"}': [None, None, None, 0, 100, 200]}, 400),
        ({"n": [None, None, None, None, 0, 100]}, 100),
    ],
)
def test_a_counter_that_begins_or_ends_in_the_window_grows_by_what_it_counted(
    series: dict[str, list[float | None]], grown: float
) -> None:
    fields = {name: np.array(values, dtype=float) for name, values in series.items()}
    scrapes = Counters(at_ns=np.arange(6, dtype=float) * S, fields=fields, complete=True)
    assert own_metrics({"app_x": parse_own("increase(n)")}, scrapes, S, 5 * S) == {"app_x": pytest.approx(grown)}


def test_a_metric_whose_counter_falls_is_left_out_and_the_trial_says_so() -> None:
    fields = {'n{w="1"}': np.array([0, 10, 20, 5, 15.0]), 'n{w="2"}': np.array([9, 1, 2, 3, 4.0])}
    scrapes = Counters(at_ns=np.arange(5, dtype=float) * S, fields=fields)
    wanted = {f"app_{worker}": parse_own(f'rate(n{{w="{worker}"}})') for worker in (1, 2)}
    assert own_metrics(wanted, scrapes, S, 4 * S) == {"app_2": 1}, "the other one fell before the window"
    experiment = SimpleNamespace(
        subject=SimpleNamespace(counts=None), measure=SimpleNamespace(metrics=wanted, own_metrics=lambda: wanted)
    )
    fleet = SimpleNamespace(start_ns=S, end_ns=4 * S)
    probe = SimpleNamespace(scrapes=scrapes, scrapes_failed=())
    evidence = SimpleNamespace(probe=probe, experiment=experiment, window=(S, 4 * S), fleet=fleet)
    (problem,) = OWN.problems(cast(Evidence, evidence), {})
    assert problem.message.startswith('app_1 is left out: n{w="1"} falls within the window') and not problem.fatal


@pytest.mark.parametrize("function", ["increase", "rate"])
def test_counters_that_grow_alike_differ_by_nothing_whatever_they_began_with(function: str) -> None:
    """Scrapes do not fall on the ends of the window, between which values are interpolated."""
    dice = np.random.default_rng(5)
    for _ in range(50):
        at_ns = 10**15 + np.arange(14) * float(S) + dice.integers(0, 10**7, 14)
        sent, part = (np.cumsum(dice.integers(1_000, 9_000, 14)).astype(float) for _ in range(2))
        fields = {"sent": sent + part + 123_457, 'got{w="1"}': sent, 'got{w="2"}': part, "lost": sent + 3e9}
        scrapes = Counters(at_ns=at_ns, fields=fields, complete=True)
        wanted = {"app_alike": parse_own(f"{function}(sent - got)"), "app_lost": parse_own(f"{function}(sent - lost)")}
        found = own_metrics(wanted, scrapes, 10**15 + 1_234_567_890, 10**15 + 11_234_567_890)
        assert found["app_alike"] == 0 < found["app_lost"]


@pytest.mark.parametrize("function", ["increase", "rate"])
def test_a_mean_time_is_the_growth_of_the_sum_over_that_of_the_count(function: str) -> None:
    series: dict[str, list[float | None]] = {"t_sum": [0, 1, 2, 4], "t_count": [0, 10, 20, 30]}
    assert over(f"{function}(t_sum / t_count)", series) == pytest.approx(3 / 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate(t_sum / t_count)", (None, 0.1, 0.1, 0.2)),
        ("increase(t_sum / t_count)", (None, 0.1, 0.1, 0.2)),
        ("rate((t_sum + t_count) * 2)", (None, 22, 22, 24)),
        ("increase(t_count)", (None, 20, 20, 20)),
    ],
)
def test_over_time_each_counter_has_its_rate_since_the_scrape_before(
    text: str, expected: tuple[float | None, ...]
) -> None:
    """Scrapes every 2 s."""
    fields = {"t_sum": np.array([0.0, 2, 4, 8]), "t_count": np.array([0.0, 20, 40, 60])}
    scrapes = Counters(at_ns=np.arange(4.0) * 2 * S, fields=fields)
    (found,) = own_series({"app_x": parse_own(text)}, scrapes).values()
    assert found == tuple(None if each is None else pytest.approx(each) for each in expected)


def test_series_are_summed_over_the_labels_that_are_not_named() -> None:
    series: dict[str, list[float | None]] = {'a{x="1",y="1"}': [1, 1, 1, 1], 'a{y="2",x="1"}': [2, 2, 2, 2]}
    assert over("mean(a)", series) == 3
    assert over('mean(a{x="1"})', series) == 3
    assert over('mean(a{y="2"})', series) == 2
    assert over('mean(a{y="3"})', series) is None


def test_a_figure_of_last_words_is_not_that_of_a_series_with_the_same_name() -> None:
    assert over("final(active)", dict(ACTIVE)) is None
    scrapes = Counters(at_ns=np.arange(5.0) * S, fields={"active": np.arange(5.0)})
    assert own_series({"app_x": parse_own("final(active)")}, scrapes) == {}


def test_what_the_scrapes_cannot_back_is_absent() -> None:
    assert over("mean(b)", {"a": [1, 2, 3, 4]}) is None
    assert over("mean(a / b)", {"a": [1, 2, 3, 4], "b": [0, 0, 0, 0]}) is None
    assert over("mean(a / b)", {"a": [1, 2, 3, 4], "b": [0, 0, 1, 0]}) == 3, "where it has a value"
    assert over("rate(a)", {"a": [None, 2, None, None]}) is None
    assert over("mean(a)", {"a": [1, None, None, None]}) is None
