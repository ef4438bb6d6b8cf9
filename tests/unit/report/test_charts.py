"""The places of settings on an axis, and the units of their values."""

from dataclasses import replace

from fakes import synthetic
from powerband.model.results import Estimate
from powerband.report.html.charts import estimate_words, layout, main_charts, resource_charts, state_chart


def test_a_ladder_is_spaced_by_doublings() -> None:
    axis = layout(synthetic.analysis()).axis
    assert axis.name == "threads"
    assert axis.positions == tuple(float(i) for i in range(9))
    assert axis.labels[-1] == "256"
    assert axis.ordered


def test_a_short_range_of_numbers_stays_linear() -> None:
    assert layout(synthetic.analysis(levels=(20, 25, 30))).axis.positions == (20.0, 25.0, 30.0)
    assert layout(synthetic.analysis(levels=(4, 8, 16))).axis.positions == (2.0, 3.0, 4.0)
    assert layout(synthetic.analysis(levels=("20.0", 25, "3e1"))).axis.positions == (20.0, 25.0, 30.0)


def test_levels_of_one_number_stand_beside_each_other() -> None:
    axis = layout(synthetic.analysis(levels=(1, "1.0", 2))).axis
    assert axis.positions == (0.0, 1.0, 2.0) and axis.labels == ("1", "1.0", "2") and not axis.ordered


def test_levels_that_are_equal_as_numbers_do_not_share_a_place() -> None:
    """Versions are such levels: 1.10 and 1.1."""
    analysis = synthetic.analysis(levels=(1, 2, 4))
    versions = [synthetic.setting(version=level) for level in (1.9, "1.10", 1.1)]
    rows = tuple(replace(row, setting=of) for row, of in zip(analysis.settings, versions, strict=True))
    axis = layout(replace(analysis, settings=rows)).axis
    assert axis.positions == (0.0, 1.0, 2.0) and axis.labels == ("1.9", "1.10", "1.1")


def test_of_two_factors_one_becomes_lines() -> None:
    charts = {chart.id: chart for chart in main_charts(synthetic.two_factor_analysis())}
    assert [line.name for line in charts["goodput"].lines] == ["queue=10", "queue=100", "queue=1000"] or [
        line.name for line in charts["goodput"].lines
    ] == ["threads=4", "threads=8", "threads=16"]
    assert "heat" not in charts  # the response surface shows both factors


def test_values_of_a_chart_share_one_unit_and_carry_their_text() -> None:
    analysis = synthetic.analysis()
    memory = next(chart for chart in resource_charts(analysis) if chart.id == "cost-rss_bytes_max")
    assert memory.unit == "MiB"
    first = memory.lines[0].points[0]
    assert first.value == analysis.settings[0].estimates["rss_bytes_max"].value / 2**20
    assert first.text == "4.072 MiB, 5 trials" or first.text.startswith("4.07 MiB")


def test_the_band_of_equals_ends_at_the_leader() -> None:
    analysis = synthetic.analysis()
    goodput = next(chart for chart in main_charts(analysis) if chart.id == "goodput")
    leader = next(row for row in analysis.settings if row.setting == analysis.answer.leader)
    assert goodput.band is not None
    low, high = goodput.band
    assert high == leader.estimates["goodput_per_s"].value
    assert abs(low - high * 0.97) < 1e-9 * high


def test_wide_ranges_of_time_are_drawn_on_a_log_axis_and_rates_never() -> None:
    charts = {chart.id: chart for chart in main_charts(synthetic.analysis())}
    assert charts["response-time"].log_value
    assert not charts["goodput"].log_value


def test_a_time_of_zero_has_a_place_on_its_axis() -> None:
    base, name = synthetic.analysis(levels=(4, 16, 64)), "app_pool_wait_ns"

    def is_log(*values: float) -> bool:
        own = [{name: Estimate(value, None, None, 0.95, 5)} for value in values]
        rows = tuple(replace(row, estimates=each) for row, each in zip(base.settings, own, strict=True))
        (chart,) = resource_charts(replace(base, settings=rows))
        return chart.log_value

    assert is_log(9e6, 2e5, 1e5) and not is_log(9e6, 2e5, 0.0)


def test_thread_states_add_up_to_the_whole() -> None:
    chart = state_chart(synthetic.analysis())
    assert chart is not None
    for parts in zip(*(line.points for line in chart.lines), strict=True):
        assert abs(sum(point.value for point in parts) - 100) < 1e-9


def test_the_answer_is_marked_once_per_line() -> None:
    for chart in main_charts(synthetic.analysis()):
        for line in chart.lines:
            assert [point.setting for point in line.points if point.answer] == ["threads=32"]


def test_what_is_as_good_as_the_answer_is_marked() -> None:
    analysis = synthetic.analysis()
    equal = {setting.id for setting in analysis.answer.equivalent}
    assert len(equal) > 1
    for chart in main_charts(analysis):
        for line in chart.lines:
            assert {point.setting for point in line.points if point.equal} == equal


def test_a_lower_bound_has_no_interval_and_no_whiskers() -> None:
    metric = "response_time_ns_p99"
    bound = Estimate(10e9, 9e9, 11e9, 0.95, 5, at_least=True)
    assert estimate_words(bound, metric) == "≥ 10.0 s, 5 trials"
    assert estimate_words(replace(bound, at_least=False), metric) == "10.0 s (9.0–11.0), 5 trials"
    base = synthetic.analysis()
    first, *rest = base.settings
    changed = replace(first, estimates={**first.estimates, metric: bound})
    charts = {chart.id: chart for chart in main_charts(replace(base, settings=(changed, *rest)))}
    points = [line.points[0] for line in charts["response-time"].lines if line.name == "p99"]
    assert [(point.low, point.high, point.at_least) for point in points] == [(None, None, True)]
    assert "Triangles are lower bounds." in charts["response-time"].note
    assert "Triangles" not in charts["goodput"].note
