"""The response surface: its cells, its first view, and the cases without one."""

from __future__ import annotations

from dataclasses import replace

from fakes import synthetic, synthetic_verdicts
from powerband.model.plan import Stage
from powerband.model.results import ChangeCost, TrialResult, Verdict
from powerband.report.html.surface import surface_chart, surface_section


def test_two_factors_make_a_map_of_every_setting() -> None:
    analysis = synthetic.two_factor_analysis()
    chart = surface_chart(analysis)
    assert chart is not None
    assert [factor.name for factor in chart.factors] == ["threads", "queue"]
    assert len(chart.cells) == 9 and chart.measures[0].title == "throughput" and chart.measures[0].most is True
    cells = {cell.setting: cell for cell in chart.cells}
    for row in analysis.settings:
        cell = cells[row.setting.id]
        levels = row.setting.as_dict()
        assert [chart.factors[i].labels[place] for i, place in enumerate(cell.at)] == [
            str(levels["threads"]),
            str(levels["queue"]),
        ]
        assert cell.values[0] == row.estimates["goodput_per_s"].value
    assert [cell.setting for cell in chart.cells if cell.standing == "answer"] == ["threads=16,queue=1000"]
    page = surface_section(chart)
    assert 'id="surface-measure"' in page and 'id="surface-across"' not in page


def test_of_more_factors_a_reader_chooses_two_and_the_others_stand_at_the_answer() -> None:
    analysis = synthetic.many_factor_analysis()
    chart = surface_chart(analysis)
    assert chart is not None
    assert [factor.name for factor in chart.factors] == ["threads", "queue", "cache"]  # the clock never varies
    assert [factor.labels[factor.answer] for factor in chart.factors] == ["16", "1000", "local"]
    assert len(chart.cells) == 27
    standings = {cell.setting: cell.standing for cell in chart.cells}
    assert standings["threads=16,queue=100,cache=local,clock=utc"] == "equal"
    assert standings["threads=16,queue=1000,cache=none,clock=utc"] == "not_allowed"
    page = surface_section(chart)
    assert page.count("<select") == 6
    assert "&lt;b&gt;shared" in page and "<b>shared" not in page


def test_numbers_rise_along_an_axis_whatever_the_plan_says() -> None:
    base = synthetic.two_factor_analysis()
    chart = surface_chart(replace(base, settings=tuple(reversed(base.settings))))
    assert chart is not None and chart.factors[1].labels == ("10", "100", "1000")


def test_first_looks_fill_the_surface_of_a_space_that_was_explored() -> None:
    base = synthetic.two_factor_analysis()
    raced = tuple(row for row in base.settings if row.setting.as_dict()["threads"] != 4)
    looks = tuple(
        TrialResult(
            100 + i, 0, 1, row.setting, "measured", (), {"goodput_per_s": 50.0 + i}, 3.0, "steady", Stage.EXPLORE
        )
        for i, row in enumerate(base.settings)
    )
    chart = surface_chart(replace(base, settings=raced, trials=(*base.trials, *looks)))
    assert chart is not None
    seen = {cell.setting: cell for cell in chart.cells}
    assert len(seen) == 9
    assert {cell.standing for cell in chart.cells if cell.setting.startswith("threads=4,")} == {"look"}
    assert seen["threads=4,queue=10"].values[1:] == (None,) * (len(chart.measures) - 1)
    assert "tried once" in surface_section(chart)
    endless = {"response_time_ns_p99": 1e10, "error_rate": 0.5}
    failing = tuple(replace(look, metrics={**look.metrics, **endless}) for look in looks)
    chart = surface_chart(replace(base, settings=raced, trials=(*base.trials, *failing)))
    assert chart is not None
    looked = [cell for cell in chart.cells if cell.standing == "look"]
    assert any("≥ 10.0 s" in cell.texts for cell in looked)
    assert all([text.startswith("≥ ") for text in cell.texts] == list(cell.at_least) for cell in chart.cells)


def test_one_factor_and_a_cross_of_changes_are_no_surface() -> None:
    assert surface_chart(synthetic.analysis()) is None
    assert surface_chart(synthetic_verdicts.capacity_analysis()) is None
    assert surface_section(None) == ""
    base = synthetic.two_factor_analysis()
    cost = ChangeCost(base.settings[1].setting, "threads", 8, 4, None, Verdict.WORSE)
    assert surface_chart(replace(base, changes=(cost,))) is None
    few = tuple(row for row in base.settings if row.setting.as_dict()["threads"] == 16)
    assert surface_chart(replace(base, settings=few)) is None
    nowhere = replace(base, answer=replace(base.answer, setting=None, leader=None))
    assert surface_chart(nowhere) is None
