"""The end of a long run is compared with the trials before it: the result lasts, does not last, or could not be
measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import Progress, analyse
from powerband.analyze.settings.soak import soak_of
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage
from powerband.model.results import Problem, Soak, TrialResult

S_NS = 10**9
SCHEMA = json.loads((Path(__file__).parents[4] / "docs/reference/analysis.schema.json").read_text())
SETTING = Setting((("threads", 4),))
FIGURES = {
    "goodput_per_s": 1000.0,
    "response_time_ns_p99": 10e6,
    "rss_bytes_max": float(100 << 20),
    "error_rate": 0.0,
    "memory_growth_bytes_per_s": 0.0,
}


def case(**design: Any) -> Experiment:
    return experiment({"threads": (4,)}, design={"soak_ns": 600 * S_NS, **design})


def trial(number: int, noise: float = 1.0, stage: Stage = Stage.COMPARE, **figures: float) -> TrialResult:
    metrics = {name: value * noise for name, value in {**FIGURES, **figures}.items()}
    return TrialResult(number, number, 1, SETTING, "measured", (), metrics, stage=stage)


BEFORE = [trial(number, noise) for number, noise in enumerate((1.0, 1.01, 0.99, 1.0, 1.005), 1)]


def soaked(soak: TrialResult) -> Soak:
    found = soak_of(case(), [*BEFORE, soak])
    assert found is not None
    return found


def after(**figures: float) -> Soak:
    return soaked(trial(6, stage=Stage.SOAK, **figures))


def test_a_server_that_goes_on_as_before_lasts() -> None:
    found = after(goodput_per_s=990.0)
    assert found.lasts is True and not any(figure.worse for figure in found.figures)
    assert found.sentence == (
        "Run for 10 min more, threads=4 lasts: in its last 1 min goodput 990/s (1,001/s before), response time "
        "p99 10.0 ms (10.0 ms before) and memory 100 MiB (100 MiB before)."
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"goodput_per_s": 700.0}, "goodput 700/s (1,001/s before: worse)"),
        ({"goodput_per_s": 0.0}, "goodput 0/s (1,001/s before: worse)"),
        ({"response_time_ns_p99": 15e6}, "response time p99 15.0 ms (10.0 ms before: worse)"),
        ({"response_time_ns_p99": 6e10, "error_rate": 0.2}, "p99 at least 60.0 s (10.0 ms before: worse)"),
        ({"error_rate": 0.2}, "it misses error_rate < 1%: it was 20.0 %"),
        ({"memory_growth_bytes_per_s": 2e6, "memory_lasts_s": 600.0}, "to the end memory grows by 1.91 MiB/s, full in"),
    ],
)
def test_what_got_worse_on_the_way_is_told(changed: dict[str, float], said: str) -> None:
    constraint = {"metric": "error_rate", "op": "<", "threshold": 0.01, "text": "error_rate < 1%"}
    made = case()
    made = made.model_copy(update={"objective": type(made.objective).model_validate({"constraints": (constraint,)})})
    found = soak_of(made, [*BEFORE, trial(6, stage=Stage.SOAK, **changed)])
    assert found is not None and found.lasts is False
    assert "threads=4 does not last" in found.sentence and said in found.sentence


@pytest.mark.parametrize(("soaked_rate", "lasts"), [(0.0, True), (0.02, True), (0.05, False)])
def test_an_objective_that_was_0_before_may_get_worse(soaked_rate: float, lasts: bool) -> None:
    """The margin of a share is in percentage points."""
    made = case()
    aim = {"metric": "error_rate", "direction": "minimise"}
    made = made.model_copy(update={"objective": type(made.objective).model_validate(aim)})
    found = soak_of(made, [*BEFORE, trial(6, stage=Stage.SOAK, error_rate=soaked_rate)])
    assert found is not None and found.lasts is lasts


@pytest.mark.parametrize(
    ("aim", "unknown"),
    [
        ({"subject_to": ["p999 < 200ms"]}, "p999 < 200ms: response time p99.9 was not measured"),
        ({"metric": "response_time_ns_p999", "direction": "minimise"}, "response time p99.9 was not measured"),
    ],
)
def test_a_soak_too_short_for_what_was_asked_is_not_said_to_last(aim: dict[str, Any], unknown: str) -> None:
    """Its last minute has 6,000 requests, at a hundred per second."""
    made = case().model_copy(update={"objective": experiment(objective=aim).objective})
    before = [replace(each, metrics={**each.metrics, "response_time_ns_p999": 150e6}) for each in BEFORE]
    found = soak_of(made, [*before, trial(6, stage=Stage.SOAK)])
    assert found is not None and found.lasts is None
    assert f"threads=4 could not be judged ({unknown}): in its last 1 min goodput" in found.sentence


def test_a_single_trial_before_a_soak_says_nothing() -> None:
    found = soak_of(case(), [BEFORE[0], trial(6, stage=Stage.SOAK, goodput_per_s=500.0)])
    assert found is not None and found.lasts is None
    assert "threads=4 cannot be compared with its only trial before: in its last 1 min goodput 500/s" in found.sentence
    short = soak_of(case(), [trial(1, stage=Stage.SCREEN), trial(6, stage=Stage.SOAK, goodput_per_s=500.0)])
    assert (
        short is not None and short.lasts is None and "cannot be compared with any full trial before" in short.sentence
    )
    missed = soak_of(case(), [BEFORE[0], trial(6, stage=Stage.SOAK, memory_growth_bytes_per_s=2e6)])
    assert missed is not None and missed.lasts is False


@pytest.mark.parametrize(
    ("changed", "margin", "lasts"),
    [
        ({"goodput_per_s": 650.0}, 0.03, None),
        ({"response_time_ns_p99": 14e6}, 0.03, None),
        ({"goodput_per_s": 800.0, "rss_bytes_max": float(300 << 20)}, 0.03, True),
        ({"goodput_per_s": 650.0}, 0.5, True),
        ({"goodput_per_s": 300.0}, 0.03, False),
    ],
)
def test_a_loss_of_more_than_a_quarter_never_lasts_however_wide_the_interval(
    changed: dict[str, float], margin: float, lasts: bool | None
) -> None:
    """With two trials before, one more may lie anywhere between 430/s and 2,400/s."""
    made = case().model_copy(update={"objective": experiment(objective={"margin": margin}).objective})
    before = [trial(1, 1.0), trial(2, 1.04)]
    found = soak_of(made, [*before, trial(6, stage=Stage.SOAK, **changed)])
    assert found is not None and found.lasts is lasts
    said = "threads=4 is too far from its 2 trials before to say that it lasts: in its last 1 min goodput"
    assert (said in found.sentence) is (lasts is None)
    assert any(figure.worse for figure in found.figures) is (lasts is False)


def test_memory_that_has_filled_is_told_and_no_failure() -> None:
    found = after(rss_bytes_max=float(300 << 20))
    assert found.lasts is True and "memory 300 MiB (100 MiB before)" in found.sentence


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"jvm_gc_per_s": 0.05}, "its heap was collected too seldom"),
        ({"jvm_gc_per_s": 2.0}, "it could not be read"),
        ({}, "it could not be read"),
        ({"jvm_gc_per_s": 0.05, "memory_growth_bytes_per_s": 0.0}, ""),
    ],
)
def test_memory_that_was_not_judged_is_told(seen: dict[str, float], why: str) -> None:
    """A minute with fewer than six collections says nothing of a JVM's heap."""
    without = {name: value for name, value in FIGURES.items() if name != "memory_growth_bytes_per_s"}
    found = soaked(replace(trial(6, stage=Stage.SOAK), metrics={**without, **seen}))
    assert found.lasts is True
    assert ("whether memory grows" in found.sentence) is bool(why)
    assert found.sentence.endswith(f"; whether memory grows was not seen, since {why}." if why else "before).")


def test_what_got_better_is_no_failure() -> None:
    found = after(goodput_per_s=1500.0, response_time_ns_p99=5e6, rss_bytes_max=float(50 << 20))
    assert found.lasts is True


def test_equal_servers_are_seldom_said_not_to_last() -> None:
    """With three figures of 3 % noise and five trials before the soak, at most 5 % of runs do not last, as the
    confidence says."""
    dice = np.random.default_rng(3)

    def noisy(number: int, stage: Stage = Stage.COMPARE) -> TrialResult:
        made = trial(number, stage=stage)
        return replace(made, metrics={k: v * math.exp(dice.normal(0, 0.03)) for k, v in made.metrics.items()})

    runs = 300
    wrong = 0
    for _ in range(runs):
        found = soak_of(case(), [*(noisy(number) for number in range(1, 6)), noisy(6, Stage.SOAK)])
        wrong += found is not None and found.lasts is False
    assert wrong <= 0.05 * runs


def test_a_server_that_died_did_not_last_and_a_disturbed_machine_says_nothing() -> None:
    died = replace(
        trial(6, stage=Stage.SOAK), status="failed", problems=(Problem("died", "it was killed: out of memory"),)
    )
    assert soaked(died).lasts is False
    assert soaked(died).sentence == "Run for 10 min more, threads=4 did not last: it was killed: out of memory."
    disturbed = replace(died, status="measured", problems=(Problem("foreign_cpu", "others took the CPUs"),))
    assert soaked(disturbed).lasts is None
    assert "could not be measured: others took" in soaked(disturbed).sentence


@pytest.mark.parametrize(
    ("changed", "held_up", "lasts"),
    [
        ({"response_time_ns_p99": 18e6}, 0.3, None),
        ({"response_time_ns_p99": 18e6, "quiet_s": 20.0}, 0.0, None),
        ({"response_time_ns_p99": 6e6}, 0.3, True),
        ({"goodput_per_s": 800.0}, 0.3, None),
        ({"goodput_per_s": 500.0}, 0.3, False),
        ({"goodput_per_s": 800.0, "quiet_s": 20.0}, 0.0, False),
        ({"response_time_ns_p99": 18e6, "memory_growth_bytes_per_s": 2e6}, 0.3, False),
    ],
)
def test_what_other_programs_may_have_made_worse_is_not_held_against_a_server(
    changed: dict[str, float], held_up: float, lasts: bool | None
) -> None:
    found = soaked(replace(trial(6, stage=Stage.SOAK, **changed), held_up=held_up))
    assert found.lasts is lasts
    if lasts is None:
        assert "threads=4 could not be judged, since it was disturbed: in its last 1 min" in found.sentence
        assert not any(figure.worse for figure in found.figures) and ": worse" not in found.sentence


@pytest.mark.parametrize(("rate", "lasts"), [(850.0, None), (600.0, False)])
def test_a_condition_on_a_rate_allows_for_what_others_took(rate: float, lasts: bool | None) -> None:
    soak = replace(trial(6, stage=Stage.SOAK, goodput_per_s=rate), held_up=0.3)
    limited = experiment(objective={"constraints": ["goodput > 900/s"]}).objective
    found = soak_of(case().model_copy(update={"objective": limited}), [*BEFORE, soak])
    assert found is not None and found.lasts is lasts and ("it misses" in found.sentence) is (lasts is False)


def test_the_times_of_disturbed_trials_are_no_measure_for_a_soak() -> None:
    beside = [replace(trial(number, response_time_ns_p99=40e6), held_up=0.3) for number in (7, 8)]
    slow = trial(9, stage=Stage.SOAK, response_time_ns_p99=20e6)
    found = soak_of(case(), [*BEFORE, *beside, slow])
    assert found is not None and found.lasts is False and "p99 20.0 ms (10.0 ms before: worse)" in found.sentence


def test_a_soak_changes_no_figure_of_the_comparison() -> None:
    slow = trial(6, stage=Stage.SOAK, goodput_per_s=1.0)
    plain, soaking = analyse(case(soak_ns=None), BEFORE), analyse(case(), [*BEFORE, slow])
    assert soaking.settings == plain.settings
    first, *rest = plain.answer.sentences
    assert soaking.soak is not None and first.startswith("Use ")
    assert soaking.answer.sentences == (f"{soaking.soak.sentence} But for that, u{first[1:]}", *rest)
    jsonschema.validate({"run": None, **soaking.to_json()}, SCHEMA)
    assert soaking.trials[-1] == slow and soaking.to_json()["soak"]["lasts"] is False


def test_a_soak_that_lasts_is_told_at_the_end() -> None:
    analysis = analyse(case(), [*BEFORE, trial(6, stage=Stage.SOAK)])
    assert analysis.soak is not None and analysis.answer.sentences[-1] == analysis.soak.sentence
    assert analysis.answer.sentences[0].startswith("Use threads=4: ")


def test_the_answer_leaves_the_log_of_a_server_that_did_not_last_to_the_report() -> None:
    died = Problem("died", "it exited with code 1; its last log lines:\n  out of memory")
    analysis = analyse(case(), [*BEFORE, replace(trial(6, stage=Stage.SOAK), status="failed", problems=(died,))])
    told = "Run for 10 min more, threads=4 did not last: it exited with code 1. But for that, use threads=4: "
    assert analysis.answer.sentences[0].startswith(told)


def test_a_new_revision_that_does_not_last_takes_nothing_from_the_old_one_to_use() -> None:
    made = experiment({"revision": ("old", "new"), "threads": (4,)}, design={"soak_ns": 600 * S_NS})
    old, new = made.settings()
    rows = [
        replace(each, number=2 * each.number + index, setting=setting, metrics={**each.metrics, "goodput_per_s": rate})
        for each in BEFORE
        for index, (setting, rate) in enumerate(((old, 1000.0 + each.number), (new, 500.0 + each.number)))
    ]
    soak = replace(trial(20, stage=Stage.SOAK, goodput_per_s=100.0), setting=new)
    analysis = analyse(made, [*rows, soak])
    assert analysis.soak is not None and analysis.soak.lasts is False
    assert analysis.answer.sentences[0].startswith(f"{analysis.soak.sentence} Use revision=old,threads=4: ")


def test_what_stops_growing_in_a_soak_is_not_told_of_the_trials_before() -> None:
    before = [trial(number, memory_growth_bytes_per_s=2e6) for number in range(1, 6)]
    assert [warning for warning in analyse(case(soak_ns=None), before).warnings if "may not last" in warning]
    stays = trial(6, stage=Stage.SOAK)
    assert not [warning for warning in analyse(case(), [*before, stays]).warnings if "may not last" in warning]


def test_a_soak_for_which_no_setting_is_fit_is_told_of() -> None:
    said = "the soak of 10 min did not run: no setting is fit for it"
    broken = [replace(each, problems=(Problem("no_request_ok", "so it is"),)) for each in BEFORE]
    assert said in analyse(case(), broken, Progress()).warnings
    assert said not in analyse(case(), broken, Progress(to_come=3)).warnings
    assert said not in analyse(case(), broken).warnings, "its plan is not known"
    assert said not in analyse(case(), [*BEFORE, trial(6, stage=Stage.SOAK)], Progress()).warnings


def test_a_soak_that_has_not_run_is_missed() -> None:
    analysis = analyse(case(), BEFORE, Progress(soak_to_come=True))
    assert analysis.soak is None
    assert "the soak of 10 min has not run; resume the run to finish it" in analysis.warnings
