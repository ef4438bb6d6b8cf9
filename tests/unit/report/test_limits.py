"""The bottleneck of each trial in the report."""

from __future__ import annotations

from dataclasses import replace

from fakes import synthetic, synthetic_verdicts
from powerband.analyze.trial.timeline import LimitSpan
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.report.html.limit_lanes import ROWS_MAX, limit_chart, limit_figure, span_words


def test_each_trial_is_a_field_in_its_settings_row() -> None:
    analysis = synthetic_verdicts.race_analysis()
    chart = limit_chart(analysis)
    assert chart is not None
    assert sorted(cell.number for cell in chart.cells) == [trial.number for trial in analysis.trials]
    by_number = {trial.number: trial for trial in analysis.trials}
    for cell in chart.cells:
        trial = by_number[cell.number]
        assert chart.rows[cell.y] == trial.setting.id
        assert cell.name == (trial.bottleneck.name if trial.bottleneck else "")
        assert cell.counts == trial.valid
    for y in range(len(chart.rows)):
        mine = [cell for cell in chart.cells if cell.y == y]
        assert [cell.x for cell in mine] == list(range(len(mine)))
        assert [cell.number for cell in mine] == sorted(cell.number for cell in mine)
    assert dict(chart.shorts)["pool_too_small"] == "pool too small"
    page = limit_figure(chart, analysis)
    assert "12: pool too small" in page or "12: " in page
    assert chart.rows[0] in page


def test_a_run_that_names_nothing_has_no_picture() -> None:
    assert limit_chart(synthetic.analysis()) is None
    assert limit_figure(None, synthetic.analysis()) == ""


def test_of_many_settings_the_best_are_drawn_and_all_are_in_the_table() -> None:
    base = synthetic.analysis(levels=tuple(range(2, 62)), blocks=1)
    limit = Bottleneck(BottleneckName.LOCK, ("all wait",), "less")
    analysis = replace(base, trials=tuple(replace(trial, bottleneck=limit) for trial in base.trials))
    chart = limit_chart(analysis)
    assert chart is not None and len(chart.rows) == ROWS_MAX
    assert f"Of 60 settings the best {ROWS_MAX} are drawn." in chart.note
    assert limit_figure(chart, analysis).count('<th scope="row">') == 60


def test_a_span_says_its_limit_and_the_proof() -> None:
    limit = Bottleneck(BottleneckName.LOCK, ("3 threads wait", "1 is past it"), "less")
    assert span_words(LimitSpan(0, 2, limit)) == ("lock", "a lock is the limit", "3 threads wait; 1 is past it")
    assert span_words(LimitSpan(0, 2, None)) == ("", "not known", "")
