"""Rules of thumb on one line with the measured answer."""

from __future__ import annotations

from dataclasses import replace

from fakes import synthetic_verdicts
from powerband.report.html.rule_chart import rule_chart


def test_proposals_stand_beside_the_answer_and_what_was_tried() -> None:
    chart = rule_chart(synthetic_verdicts.race_analysis())
    assert chart is not None
    assert chart.factor == "threads" and chart.answer == 32 and chart.log
    assert chart.tried == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert chart.equal is not None and chart.equal[0] <= 32 <= chart.equal[1]
    rows = {row.name: row for row in chart.rows}
    assert rows["Goetz"].proposal == 67.7 and rows["Goetz"].tone == "good"
    assert rows["N+1"].text == "2: −93 %" and rows["N+1"].tone == "bad"
    assert rows["USL"].proposal is None and rows["USL"].text == "refused"


def test_without_an_answer_or_a_factor_of_threads_there_is_no_picture() -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert rule_chart(replace(analysis, answer=replace(analysis.answer, setting=None, leader=None))) is None
    assert rule_chart(replace(analysis, rules=())) is None
    refused = tuple(replace(rule, proposal=None) for rule in analysis.rules)
    assert rule_chart(replace(analysis, rules=refused)) is None
    other = tuple(replace(rule, factor="mode") for rule in analysis.rules)
    assert rule_chart(replace(analysis, rules=other)) is None
