"""The evidence behind an answer, in words."""

from dataclasses import replace

import pytest

from fakes import synthetic, synthetic_verdicts
from fakes.synthetic import setting
from powerband.analyze.settings.found import ratio_words
from powerband.analyze.settings.standing import sentence
from powerband.analyze.settings.why import bottleneck_sentences
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import (
    Bottleneck,
    Candidate,
    Capacity,
    Estimate,
    Exploration,
    PublishedRow,
    PublishedTable,
    Race,
    Verdict,
)
from powerband.report.wording import findings


@pytest.mark.parametrize("name", list(BottleneckName))
def test_every_bottleneck_has_plain_words_that_fit_a_column(name: BottleneckName) -> None:
    named = Bottleneck(name, ("12 of 12 busy",), "Do this")
    short = findings.bottleneck_short(named)
    assert 0 < len(short) <= 16 and "_" not in short
    said = bottleneck_sentences(setting(threads=4), named, advised=True)
    assert said.startswith("With threads=4 ")
    assert said.endswith(". 12 of 12 busy. Do this.")
    assert "_" not in said


def test_no_bottleneck_is_a_dash() -> None:
    assert findings.bottleneck_short(None) == "–"
    bare = bottleneck_sentences(setting(n=1), Bottleneck(BottleneckName.LOCK, (), ""), advised=True)
    assert bare == "With n=1 a lock is the limit."


def test_two_candidates_are_said_with_their_evidence_and_advice() -> None:
    second = Candidate(BottleneckName.HIDDEN_LIMIT, ("4 connections are open",), "Do that")
    tied = Bottleneck(BottleneckName.DOWNSTREAM, ("4 wait",), "Do this", second)
    assert findings.bottleneck_short(tied) == "dependency or hidden limit"
    assert bottleneck_sentences(setting(n=1), tied, advised=True) == (
        "With n=1 a dependency is the limit. 4 wait. Do this. Or a semaphore, a connection pool or a rate limit "
        "inside the server is the limit. 4 connections are open. Do that."
    )
    assert findings.what_to_do(tied).startswith("If a dependency is the limit: Do this. If a semaphore, a ")
    assert findings.what_to_do(replace(tied, second=None)) == "Do this."


@pytest.mark.parametrize(
    ("ended_by", "words"),
    [
        ("decided", "The race was decided after 5 rounds: 25 trials, 56 % of the full grid's 45."),
        ("regret", "The race reached the bound asked for after 5 rounds"),
        ("blocks", "The race was not decided after 5 rounds: 25 trials"),
        ("budget", "The race ended with its budget after 5 rounds"),
        ("stopped", "The race was interrupted after 5 rounds"),
        ("running", "The race goes on after 5 rounds"),
    ],
)
def test_how_a_race_ended(ended_by: str, words: str) -> None:
    race = synthetic_verdicts.race_analysis().race
    assert race is not None
    assert findings.race_words(replace(race, ended_by=ended_by)).startswith(words)


def test_a_race_without_a_block_is_no_division_by_nothing() -> None:
    assert findings.race_words(Race((), (), 1, 0, "stopped", 0)) == "The race was interrupted after 0 rounds: 1 trial."


def test_what_left_a_race_says_after_which_block() -> None:
    analysis = synthetic_verdicts.race_analysis()
    said = {row.setting.id: findings.state_words(row, analysis) for row in analysis.settings}
    assert said["threads=2"] == "eliminated in round 1"
    assert said["threads=128"] == "eliminated in round 4"
    assert said["threads=64"] == "leader"
    assert said["threads=32"] == "equivalent"
    assert said["threads=1"] == "violates SLO"  # the stronger reason
    plain = synthetic.analysis()
    assert findings.state_words(plain.settings[1], plain) == "worse"


def test_an_exploration_and_a_capacity() -> None:
    assert findings.exploration_words(Exploration(1240, 60, 12)) == (
        "60 of 1,240 settings were tried once each, and the best 12 of them raced."
    )
    found = synthetic_verdicts.capacity(8)
    assert findings.capacity_words(found) == "370/s (363–378)"
    assert findings.capacity_trials(found) == 18
    assert findings.capacity_words(Capacity(None, (), "why")) == "–"
    guess = replace(found, curve=tuple(replace(point, held=0) for point in found.curve))
    assert findings.capacity_words(guess) == "–"


def test_rules_say_what_following_them_changes_or_why_they_are_silent() -> None:
    goetz, n_plus_1, _, erlang, usl = synthetic_verdicts.rules()
    base = synthetic_verdicts.race_analysis()
    assert findings.proposal_words(goetz) == "67.7"
    assert findings.rule_result(goetz, base) == "−0.1 % (−1.5 to +1.3)"
    assert findings.rule_result(n_plus_1, base) == "−93 % (−94 to −93)"
    assert findings.rule_result(erlang, base) == "0 %"
    assert findings.proposal_words(usl) == "–"
    assert findings.rule_result(usl, base).startswith("not applicable: throughput had not peaked")
    assert findings.rule_nearest(usl) == "–"
    assert findings.rule_nearest(goetz) == "threads=64"
    far = replace(goetz, setting=None, cost=None)
    assert (findings.rule_nearest(far), findings.rule_result(far, base)) == ("none is near", "–")
    barred = replace(base, settings=tuple(replace(row, feasible=False) for row in base.settings))
    assert findings.rule_result(goetz, barred) == "violates SLO", "a gain of a setting that is no answer counts nothing"


def test_ratios_as_changes() -> None:
    assert findings.range_phrase(Estimate(0.95, 0.931, 0.968, 0.95, 4)) == "−6.9 to −3.2 %"
    assert findings.range_phrase(Estimate(1.0, 0.9999, 1.2, 0.95, 4)) == "0.0 to +20 %"
    assert findings.range_phrase(Estimate(0.95, None, None, 0.95, 1)) == "−5.0 %"
    assert findings.range_phrase(None) == "–"
    assert findings.range_phrase(Estimate(1.2, 1.1, 1.3, 0.95, 4), at_least=True) == "≥ +10 %"
    assert findings.range_phrase(Estimate(1.05, 0.8, 1.3, 0.95, 4), at_least=True) == "≥ −20 %"
    assert findings.range_phrase(Estimate(1.2, None, None, 0.95, 1), at_least=True) == "≥ +20 %"


def test_ends_that_round_to_one_are_no_interval() -> None:
    near = Estimate(0.0636, 0.0611, 0.0642, 0.95, 3)
    assert (findings.ratio_phrase(near), findings.range_phrase(near)) == ("−94 %", "−94 %")
    assert findings.ratio_phrase(Estimate(50.0, 49.96, 50.04, 0.95, 5)) == "×50"


def test_an_interval_without_a_bound_worth_saying_shows_no_digits() -> None:
    assert findings.ratio_phrase(Estimate(0.21, 7.8e-14, 5.7e11, 0.95, 2)) == "−79 % (−100 to over +900)"
    assert findings.ratio_phrase(Estimate(367.4, 308.2, 439.1, 0.95, 5)) == "×367 (308 to 439)"
    assert findings.range_phrase(Estimate(0.96, 2e-17, 4.7e16, 0.95, 2)) == "−100 to over +900 %"
    assert ratio_words(Estimate(1.2, 1e-9, 5e9, 0.95, 2)) == "1.2 (1e-09 to any)"
    assert ratio_words(Estimate(0.0, -0.1, 0.1, 0.95, 5)) == "0 (-0.1 to 0.1)", "a difference of shares"


def test_a_large_ratio_is_told_in_full() -> None:
    assert ratio_words(Estimate(1234.0, 1100.0, 1380.4, 0.95, 5)) == "1,234 (1,100 to 1,380)"
    assert ratio_words(Estimate(999.7, 99.6, 5000.0, 0.95, 5)) == "1,000 (99.6 to 5,000)"
    table = PublishedTable("goodput_per_s", "per_s", "a", "", (PublishedRow("b", None, 1.0, None, 12_345.0, None),))
    assert findings.published_cells(table.rows[0], table)[2] == "12,345"


def test_a_clause_becomes_a_sentence() -> None:
    assert sentence("raise the pool") == "Raise the pool."
    assert sentence("Is it? Yes.") == "Is it? Yes."
    assert sentence("") == ""


def test_settings_that_never_stabilised() -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert findings.restless_settings(analysis) == {}  # one trial is no evidence
    moving = tuple(replace(t, steady=t.setting.id != "threads=64") for t in analysis.trials)
    assert findings.restless_settings(replace(analysis, trials=moving)) == {setting(threads=64): "in 8 of 8 trials"}


def test_a_person_stands_beside_the_crowd() -> None:
    analysis = synthetic.analysis()
    assert findings.visitor_rows(analysis) == []
    seen = {"visits": Estimate(12.0, 11.0, 13.0, 0.95, 3), "visit_time_ns_p50": Estimate(3.2e6, None, None, 0.95, 1)}
    row = replace(analysis.settings[0], estimates={**analysis.settings[0].estimates, **seen})
    (cells,) = findings.visitor_rows(replace(analysis, settings=(row, *analysis.settings[1:])))
    assert len(cells) == len(findings.VISITOR_HEADS)
    assert cells[0] == row.setting.id and cells[1] == "12" and cells[2] == "–" and cells[3] == "3.20 ms"


def test_what_left_a_race_for_another_reason_than_its_figures_was_not_shown_to_be_worse() -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert analysis.race is not None
    left = tuple(replace(each, worse=False) for each in analysis.race.departures)
    analysis = replace(analysis, race=replace(analysis.race, departures=left))
    row = next(row for row in analysis.settings if row.setting.id == "threads=128")
    assert findings.state_words(replace(row, verdict=Verdict.INCONCLUSIVE), analysis) == "inconclusive"
