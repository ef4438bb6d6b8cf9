"""The numbers in the pictures of races, capacities and pools."""

from dataclasses import replace

import pytest

from fakes import synthetic, synthetic_verdicts
from powerband.model.results import Estimate, PoolUse
from powerband.report.html.trial_map import trial_map
from powerband.report.html.verdict_charts import (
    capacity_charts,
    exploration_chart,
    pool_chart,
    pool_parts,
    pool_trial,
    race_chart,
)
from powerband.report.html.verdicts import capacity_section


def test_a_race_has_a_bar_for_each_look_at_a_live_setting() -> None:
    chart = race_chart(synthetic_verdicts.race_analysis())
    assert chart is not None
    rows = {row.setting: row for row in chart.rows}
    assert [bar.block for bar in rows["threads=32"].bars] == [1, 2, 3, 4, 5]
    assert [bar.block for bar in rows["threads=128"].bars] == [1, 2, 3, 4]
    assert rows["threads=128"].out and rows["threads=128"].state == "eliminated in round 4"
    assert rows["threads=64"].leads and rows["threads=64"].bars == ()
    assert [row.setting for row in chart.rows][:2] == ["threads=32", "threads=64"]
    assert all(bar.low <= bar.value <= bar.high for row in chart.rows for bar in row.bars)


def test_the_picture_shows_the_margin_on_the_side_that_is_worse() -> None:
    analysis = synthetic_verdicts.race_analysis()
    most, least = race_chart(analysis), race_chart(replace(analysis, direction="minimise"))
    assert most is not None and least is not None
    assert most.band == (0.97, 1.0)
    assert least.band == (1.0, 1.03)
    assert most.span[0] <= 0.85 and most.span[1] >= 1.15
    assert most.span[0] >= 1 - 12 * 0.03 and most.span[1] <= 1 + 12 * 0.03


def test_a_race_without_a_margin_has_a_width_all_the_same() -> None:
    chart = race_chart(replace(synthetic_verdicts.race_analysis(), margin=0.0))
    assert chart is not None and chart.span[0] <= 0.995 and chart.span[1] >= 1.005


def test_the_margin_of_a_share_is_drawn_as_a_part_of_the_leaders() -> None:
    """3 percentage points are 60 % of an error rate of 5 %."""
    base = synthetic_verdicts.race_analysis()
    share = Estimate(0.05, 0.04, 0.06, 0.95, 5)
    rows = tuple(replace(row, estimates={**row.estimates, "error_rate": share}) for row in base.settings)
    chart = race_chart(replace(base, objective="error_rate", direction="minimise", settings=rows))
    assert chart is not None
    assert chart.band == pytest.approx((1.0, 1.6))
    assert chart.span[1] >= 1 + 5 * 0.6


@pytest.mark.parametrize(("rounds", "said"), [(10, "Each round adds"), (11, "One round in 2 adds"), (25, "in 3 adds")])
def test_a_long_race_says_which_rounds_have_a_bar(rounds: int, said: str) -> None:
    base = synthetic_verdicts.race_analysis((16, 32, 64))
    assert base.race is not None
    looks = tuple(replace(base.race.looks[min(block, 4)], block=block, left=()) for block in range(rounds))
    chart = race_chart(replace(base, race=replace(base.race, looks=looks)))
    assert chart is not None and said in chart.note and rounds / chart.every <= 10


def test_no_race_or_no_look_is_no_picture() -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert analysis.race is not None
    assert race_chart(synthetic.analysis()) is None
    assert race_chart(replace(analysis, race=replace(analysis.race, looks=()))) is None


def test_capacity_curves_share_their_vertical_axis_and_mark_where_the_slo_held() -> None:
    charts = capacity_charts(synthetic_verdicts.capacity_analysis())
    assert len({chart.span_ns for chart in charts}) == 1
    by_name = {chart.title: chart for chart in charts}
    assert [mark.held for mark in by_name["threads=8"].marks] == ["all"] * 4 + ["some", "none", "none"]
    assert by_name["threads=8"].marks[4].text == "held in 3 of 5 trials"
    assert by_name["threads=8"].band is not None
    assert by_name["threads=4"].band is None
    assert "at no rate" in by_name["threads=4"].note
    assert [(limit.ns, limit.label) for limit in charts[0].limits] == [(250e6, "p99 < 250ms")]


def test_a_capacity_that_held_in_no_trial_has_no_band_and_a_p99_without_an_end_is_a_lower_bound() -> None:
    base = synthetic_verdicts.capacity_analysis()
    found = synthetic_verdicts.capacity(8)
    never = replace(found, curve=tuple(replace(point, held=0, error_rate=0.02) for point in found.curve))
    made = replace(base, settings=tuple(replace(row, capacity=never) for row in base.settings))
    charts = capacity_charts(made)
    assert all(chart.band is None for chart in charts)
    assert {(mark.p50_at_least, mark.p99_at_least) for chart in charts for mark in chart.marks} == {(False, True)}
    assert "≥ " in capacity_section(made, charts)
    assert "≥ " not in capacity_section(base, capacity_charts(base))


def test_a_median_of_a_capacity_that_has_no_end_is_a_lower_bound_too() -> None:
    """Most requests got no right answer, so the median is the length of the window."""
    base = synthetic_verdicts.capacity_analysis()
    found = synthetic_verdicts.capacity(8)
    point = replace(found.curve[-1], p50_ns=8e9, p99_ns=8e9, error_rate=0.8)
    made = replace(base, settings=(replace(base.settings[0], capacity=replace(found, curve=(point,))),))
    assert capacity_section(made, capacity_charts(made)).count("<td>≥ 8.00 s</td>") == 2


def test_a_capacity_whose_constraints_cannot_be_read_has_no_limit_line() -> None:
    analysis = replace(synthetic_verdicts.capacity_analysis(), constraints=("gibberish", "errors < 1%"))
    assert all(chart.limits == () for chart in capacity_charts(analysis))
    assert capacity_charts(synthetic.analysis()) == []


@pytest.mark.parametrize(
    ("blocked_on", "parts"),
    [
        ({}, {"on a CPU": 1.0, "waiting for a CPU": 2.0, "blocked": 7.0}),
        ({"lock": 1.0}, {"on a CPU": 1.0, "waiting for a CPU": 2.0, "waiting for a lock or for work": 7.0}),
        (
            {"lock": 0.5, "sleep": 0.25},
            {
                "on a CPU": 1.0,
                "waiting for a CPU": 2.0,
                "waiting for a lock or for work": 3.5,
                "asleep": 1.75,
                "blocked on other things": 1.75,
            },
        ),
        (
            {"unheard_of": 0.5, "other": 0.5},
            {"on a CPU": 1.0, "waiting for a CPU": 2.0, "blocked on other things": 7.0},
        ),
    ],
)
def test_the_parts_of_a_pool_add_up(blocked_on: dict[str, float], parts: dict[str, float]) -> None:
    made = dict(pool_parts(PoolUse("w", 10.0, 1.0, 2.0, 7.0, blocked_on)))
    assert made == pytest.approx(parts)
    assert sum(made.values()) == pytest.approx(10.0)


def test_the_pools_of_many_settings_are_one_bar_each() -> None:
    many = pool_chart(synthetic_verdicts.race_analysis())
    few = pool_chart(synthetic_verdicts.race_analysis((16, 32, 64)))
    assert many is not None and few is not None
    assert len(many.axis.labels) == 9
    assert few.axis.labels[:2] == ("threads=16: worker", "threads=16: acceptor")
    for row in range(9):
        shares = [point.value for line in many.lines for point in line.points if point.x == row]
        assert sum(shares) == pytest.approx(100.0)
    assert pool_chart(synthetic.analysis()) is None


def test_the_middle_trial_stands_for_its_setting() -> None:
    analysis = synthetic_verdicts.race_analysis()
    row = next(row for row in analysis.settings if row.setting.id == "threads=64")
    trial = pool_trial(row, analysis)
    assert trial is not None and trial.valid and trial.setting == row.setting
    rates = sorted(t.metrics["goodput_per_s"] for t in analysis.trials if t.setting == row.setting and t.valid)
    assert rates.index(trial.metrics["goodput_per_s"]) == len(rates) // 2
    assert pool_trial(row, synthetic.analysis()) is None


def test_an_exploration_marks_what_went_into_the_race() -> None:
    analysis = synthetic_verdicts.explored_analysis()
    chart = exploration_chart(analysis)
    assert chart is not None
    points = chart.lines[0].points
    assert analysis.exploration is not None and len(points) == analysis.exploration.tried
    assert {p.setting for p in points if p.answer} == {row.setting.id for row in analysis.settings}
    assert all(point.text.endswith(", raced") == point.answer for point in points)
    assert exploration_chart(synthetic_verdicts.race_analysis()) is None
    assert "nodes" not in chart.note
    on_two = [replace(trial, node=f"n{trial.number % 2}") for trial in analysis.trials]
    shared = exploration_chart(replace(analysis, trials=tuple(on_two)))
    assert shared is not None and "speeds of the nodes" in shared.note


def test_a_first_look_whose_p99_has_no_end_is_a_lower_bound() -> None:
    made = synthetic_verdicts.explored_analysis()
    failing = tuple(replace(trial, metrics={**trial.metrics, "error_rate": 0.5}) for trial in made.trials)
    made = replace(made, objective="response_time_ns_p99", trials=failing)
    chart = exploration_chart(made)
    assert chart is not None
    assert all(point.text.startswith("≥ ") and point.at_least for point in chart.lines[0].points)
    assert trial_map(made).count("· p99 ≥ ") == len(made.trials)
