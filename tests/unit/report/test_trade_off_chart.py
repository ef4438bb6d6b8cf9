"""The picture of trade-offs shows the numbers of the analysis, with one unit per axis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import synthetic, synthetic_verdicts
from powerband.report.html.trade_off_chart import trade_off_chart, trade_off_section

EVIL = "<img src=x>"


def test_the_points_are_the_estimates() -> None:
    analysis = synthetic.analysis()
    chart = trade_off_chart(analysis)
    assert chart is not None
    assert [axis.title for axis in chart.axes] == ["throughput", "response time p99", "CPU", "memory"]
    assert [axis.most for axis in chart.axes] == [True, False, False, False]
    scales = {"/s": 1.0, "ms": 1e6, "s": 1e9, "": 1.0, "MiB": 2.0**20}
    for point, row in zip(chart.points, analysis.settings, strict=True):
        for axis, value, metric in zip(
            chart.axes,
            point.values,
            ("goodput_per_s", "response_time_ns_p99", "subject_cpu_cores", "rss_bytes_max"),
            strict=True,
        ):
            assert value == pytest.approx(row.estimates[metric].value / scales[axis.unit])
    assert [point.setting for point in chart.points if point.mark == "answer"] == ["threads=32"]
    assert {point.setting for point in chart.points if point.standing == "not_allowed"} == {"threads=1"}


def test_a_lower_bound_has_no_whiskers() -> None:
    base = synthetic.analysis()
    tail = "response_time_ns_p99"
    rows = tuple(
        replace(
            row, estimates={**row.estimates, tail: replace(row.estimates[tail], at_least=row.setting.id == "threads=2")}
        )
        for row in base.settings
    )
    chart = trade_off_chart(replace(base, settings=rows))
    assert chart is not None
    bare = {point.setting for point in chart.points if (point.lows[1], point.highs[1]) == (None, None)}
    assert bare == {"threads=2"}
    assert {point.setting for point in chart.points if True in point.at_least} == bare
    without = trade_off_chart(base)
    assert without is not None and "Triangles" not in without.note and "Triangles are lower bounds." in chart.note


def test_each_two_axes_have_their_front_in_order() -> None:
    chart = trade_off_chart(synthetic.analysis())
    assert chart is not None and len(chart.fronts) == 6
    for front in chart.fronts:
        along = [chart.points[i].values[front.pair[0]] for i in front.points]
        assert along == sorted(along) and front.pair[0] < front.pair[1]


def test_the_words_say_who_is_unbeaten() -> None:
    page = trade_off_section(trade_off_chart(synthetic.two_factor_analysis()))
    assert "Throughput, response time p99, CPU and memory:" in page
    assert 'id="trade-offs-across"' in page and 'id="trade-offs-up"' in page
    assert "Filled: unbeaten in all of these together" in page and "unbeaten" in page


def test_names_are_escaped_and_nothing_to_weigh_is_nothing() -> None:
    base = synthetic.two_factor_analysis()
    evil = synthetic.setting(**{EVIL: EVIL})
    rows = (replace(base.settings[0], setting=evil), *base.settings[1:])
    page = trade_off_section(trade_off_chart(replace(base, settings=rows)))
    assert EVIL not in page and "&lt;img" in page
    assert trade_off_chart(synthetic_verdicts.capacity_analysis()) is None
    assert trade_off_section(None) == ""
