"""Published figures stand beside the measured ones, and the finding is put in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import parse_experiment
from powerband.model.experiment import Claim, Objective, Published
from powerband.model.plan import Setting, named_settings
from powerband.model.results import Analysis, Problem, TrialResult

FIGURES = {"threads=1": 100.0, "threads=2": 140.0, "threads=16": 150.0, "threads=4": 150.0}
CLAIMS = (
    Claim(id="a", says="Two serve more than one", holds="goodput[threads=2] > goodput[threads=1]"),
    Claim(
        id="b", says="Four serve more than two", holds="goodput[threads=4] > goodput[threads=2]", published="7 % more"
    ),
)
DRIFT = (1.0, 1.3, 0.8, 1.1, 0.95)


def analysed(rates: dict[int, float], drift: tuple[float, ...] = DRIFT, claims: tuple[Claim, ...] = CLAIMS) -> Analysis:
    """An analysis of trials with these rates by threads. `drift`: the speed of each block as a whole."""
    trials = [
        TrialResult(
            10 * block + number,
            block,
            1,
            Setting((("threads", threads),)),
            "measured",
            () if rate else (Problem("died", "it died"),),
            {"goodput_per_s": rate * factor * (1 + 0.001 * ((block * 7 + number * 3) % 5))},
        )
        for block, factor in enumerate(drift)
        for number, (threads, rate) in enumerate(rates.items())
    ]
    made = experiment(
        {"threads": (1, 2, 4)},
        objective=Objective(),
        claims=claims,
        published=(Published(metric="goodput", by=FIGURES, note="one run each"),),
    )
    return analyse(made, trials)


def test_ours_are_ratios_within_blocks_to_the_first_that_both_have() -> None:
    found = analysed({1: 1000.0, 2: 1400.0, 4: 900.0})
    (table,) = found.published
    assert (table.metric, table.unit, table.base, table.note) == ("goodput_per_s", "per_s", "threads=1", "one run each")
    rows = {row.name: row for row in table.rows}
    assert [row.published_ratio for row in table.rows] == [1.0, 1.4, 1.5, 1.5]
    ours = rows["threads=2"].our_ratio
    assert ours is not None and ours.low is not None and ours.high is not None
    assert ours.value == pytest.approx(1.4, rel=0.01) and ours.high - ours.low < 0.02, "drift cancels within blocks"
    assert rows["threads=16"].setting is None and rows["threads=16"].ours is None
    json.dumps(found.to_json(), allow_nan=False)


def test_the_base_is_the_first_that_was_measured() -> None:
    (table,) = analysed({1: 0.0, 2: 1400.0, 4: 2800.0}).published
    assert table.base == "threads=2"
    assert [row.our_ratio and row.our_ratio.value for row in table.rows][:2] == [None, 1.0]
    assert table.rows[3].our_ratio is not None and table.rows[3].our_ratio.value == pytest.approx(2.0, rel=0.01)


def test_a_percentile_that_is_only_a_lower_bound_has_no_ratio() -> None:
    """With 4 threads one request in twenty failed."""
    trials = [
        TrialResult(
            block, block, 1, Setting((("threads", threads),)), "measured", (),
            {"response_time_ns_p99": p99, "error_rate": bad},
        )
        for block in range(4)
        for threads, p99, bad in ((1, 1e7, 0.0), (2, 2e7, 0.0), (4, 1e10, 0.05))
    ]  # fmt: skip
    published = {"metric": "p99", "by": {"threads=1": "10ms", "threads=2": "20ms", "threads=4": "10s"}}
    made = experiment({"threads": (1, 2, 4)}, published=(Published.model_validate(published),))
    (table,) = analyse(made, trials).published
    first, second, third = table.rows
    assert second.our_ratio is not None and second.our_ratio.value == pytest.approx(2.0)
    assert third.our_ratio is None and third.ours is not None and third.ours.at_least
    assert first.ours is not None and not first.ours.at_least


def test_the_paragraph_is_made_of_the_figures() -> None:
    said = " ".join(analysed({1: 1000.0, 2: 1400.0, 4: 900.0}).found)
    assert said.startswith("Claims: 1 confirmed and 1 refuted. Confirmed: two serve more than one.")
    assert "Refuted: four serve more than two (published: 7 % more); 917/s is 0.64" in said
    assert "threads=2 had the best goodput" in said and "threads=4 the worst" in said and "a factor of 1.5" in said
    assert "As ratios to threads=1, 1 of 2 published figures for goodput lie within the measured intervals" in said
    assert "farthest off is threads=4: published 1.5, here 0.9" in said


def test_one_block_is_no_interval_and_nothing_is_held_against_it() -> None:
    found = analysed({1: 1000.0, 2: 1400.0, 4: 900.0}, drift=(1.0,))
    assert found.published[0].rows[1].our_ratio is not None and found.published[0].rows[1].our_ratio.low is None
    assert "within the measured intervals" not in " ".join(found.found) and "2 inconclusive" in " ".join(found.found)


def test_nothing_claimed_and_nothing_cited_is_nothing_found() -> None:
    trial = TrialResult(1, 0, 1, Setting((("threads", 1),)), "measured", (), {"goodput_per_s": 1.0})
    assert analyse(experiment({"threads": (1, 2)}), [trial]).found == ()
    assert analysed({1: 0.0, 2: 0.0, 4: 0.0}).found == ("No trial counts, so nothing was found.",)


def test_equivalent_settings_are_called_so() -> None:
    said = " ".join(analysed({1: 1000.0, 2: 1001.0, 4: 1000.5}, claims=CLAIMS[:1]).found)
    assert "(still equivalent)" in said


def test_names_stand_for_settings() -> None:
    settings = [Setting((("core", core), ("pool", pool))) for core in (1, 2) for pool in ("bounded:1,2,3", "cached")]
    assert named_settings("core=1", settings) == settings[:2]
    assert named_settings("pool=cached, core=2", settings) == [settings[3]]
    assert named_settings(settings[0].id, settings) == [settings[0]]
    assert named_settings("core=9", settings) == []
    # Only the cached pool of one core was run: it does not read the number of cores.
    kept = {each: settings[1] if each == settings[3] else each for each in settings}
    assert named_settings("pool=cached, core=2", settings[:3], kept) == [settings[1]]
    assert named_settings("core=2", settings[:3], kept) == [settings[2]]


@pytest.mark.parametrize(
    ("name", "said"),
    [("thread=1", "there is no parameter thread; did you mean threads"), ("threads=4", "stands for 2 settings")],
)
def test_a_name_that_stands_for_no_one_setting_is_refused(name: str, said: str) -> None:
    text = f"""
    subject: {{command: ["x", "{{port}}", "{{threads}}", "{{queue}}"]}}
    factors: {{threads: [1, 4], queue: [1, 2]}}
    load: {{users: 1}}
    published: [{{metric: goodput, by: {{"{name}": 3}}}}]
    """
    with pytest.raises(ExperimentError, match=said):
        parse_experiment(text, "x.yaml")


def test_figures_are_written_as_people_write_them() -> None:
    assert Published(metric="p50", by={"a=1": "13.9s"}).by == {"a=1": 13.9e9}  # type: ignore[dict-item]
    assert Published(metric="errors", by={"a=1": "2.5%", "a=2": 0.5}).by == {"a=1": 0.025, "a=2": 0.5}  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="no duration"):
        Published(metric="p50", by={"a=1": "thirteen"})  # type: ignore[dict-item]


def test_a_published_figure_of_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no metric goodputt"):
        Published(metric="goodputt", by={"a=1": 1.0})


def test_a_spread_with_a_lower_bound_has_no_factor() -> None:
    p99 = {"metric": "response_time_ns_p99", "direction": "minimise"}
    trials = [
        TrialResult(
            block, block, 1, Setting((("threads", threads),)), "measured", (),
            {"response_time_ns_p99": ns, "error_rate": bad},
        )
        for block in range(4)
        for threads, ns, bad in ((1, 1e7, 0.0), (2, 1e10, 0.05))
    ]  # fmt: skip
    claims = (Claim(id="a", says="One is fast", holds="p99[threads=1] < 1s"),)
    said = " ".join(analyse(experiment({"threads": (1, 2)}, objective=Objective(**p99), claims=claims), trials).found)
    assert "threads=2 the worst, at least 10.0 s." in said
    failing = [replace(trial, metrics={**trial.metrics, "error_rate": 0.05}) for trial in trials]
    both = analyse(experiment({"threads": (1, 2)}, objective=Objective(**p99), claims=claims), failing).found
    assert both and "had the best" not in " ".join(both), "the other may be the best"
