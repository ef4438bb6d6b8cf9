"""The programs that disturbed a run are named once, and the possible loss of a trial widens the intervals of
comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fakes.races import race_of, result_of, threads
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.disturbers import disturbers
from powerband.analyze.trial.faults import has_figure, is_failed_start, limited_by_generator
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Analysis, Estimate, Problem, TrialResult, Verdict
from powerband.search.planners import planner_for

BESIDE = {"java": 0.5, "cc1": 0.25, "sshd": 0.001}


def served(spec: TrialSpec) -> Mapping[str, float]:
    """The second setting is 20 % faster than the first; starts differ by 1 %."""
    rate = 1000 * (1 + 0.2 * threads(spec)) * (1 + 0.01 * (spec.block % 3 - 1))
    return {"goodput_per_s": rate, "host_foreign_cores": sum(BESIDE.values())}


def run(held_up: Mapping[int, float]) -> Analysis:
    """Analyses a run. `held_up`: the share of each trial that was lost at most, by setting."""
    made = race_of(2, repeats=4, confirm=0, order="blocks")
    planner = planner_for(made, 7)
    results = []
    while (spec := planner.ask()) is not None:
        lost = held_up.get(threads(spec), 0.0)
        results.append(replace(result_of(spec, served(spec)), held_up=lost, neighbours=BESIDE if lost else {}))
        planner.tell(results[-1])
    return analyse(made, results, planner.progress)


def verdict(found: Analysis, setting: str) -> Verdict:
    return next(row.verdict for row in found.settings if row.setting.id == setting)


def test_what_the_slower_may_have_lost_leaves_it_in_and_what_the_faster_lost_does_not() -> None:
    assert verdict(run({}), "threads=0") is Verdict.WORSE
    assert verdict(run({1: 0.3}), "threads=0") is Verdict.WORSE, "undisturbed the faster is only faster"
    assert verdict(run({0: 0.3}), "threads=0") is Verdict.INCONCLUSIVE
    assert verdict(run({0: 0.1}), "threads=0") is Verdict.WORSE, "0.9 of what it may give is less than the other gave"


def test_a_difference_is_the_measured_one_and_only_its_interval_holds_what_may_be_lost() -> None:
    def effect(held_up: Mapping[int, float]) -> Estimate:
        (found,) = (row.effect for row in run(held_up).settings if row.setting.id == "threads=0")
        assert found is not None and found.high is not None
        return found

    quiet, disturbed = effect({}), effect({0: 0.3})
    assert disturbed.value == pytest.approx(quiet.value) == pytest.approx(1000 / 1200)
    assert (disturbed.low, disturbed.high) == (pytest.approx(quiet.low), pytest.approx(quiet.high / 0.7))


def test_a_bound_holds_what_another_may_have_lost() -> None:
    quiet, disturbed = run({}).answer.regret, run({0: 0.3}).answer.regret
    assert quiet == 0.0 and disturbed is not None
    assert disturbed > 1000 / 0.7 / 1200 - 1 - 0.03


def test_a_headline_interval_goes_as_far_as_undisturbed_it_may() -> None:
    figures = [run(held_up).answer.figure for held_up in ({}, {1: 0.2})]
    (quiet, disturbed) = (figure.estimate for figure in figures if figure is not None)
    assert quiet.high is not None and disturbed.high is not None
    assert (disturbed.low, disturbed.high) == (quiet.low, pytest.approx(quiet.high / 0.8))


def test_the_figure_of_fresh_starts_goes_as_far_too() -> None:
    def confirmed(held_up: float) -> Estimate:
        made = race_of(2, confirm=3)
        planner, results = planner_for(made, 7), []
        while (spec := planner.ask()) is not None:
            result = result_of(spec, served(spec))
            lost = held_up if spec.stage is Stage.CONFIRM else 0.0
            results.append(replace(result, held_up=lost, neighbours=BESIDE if lost else {}))
            planner.tell(results[-1])
        figure = analyse(made, results, planner.progress).answer.figure
        assert figure is not None and figure.fresh
        return figure.estimate

    quiet, disturbed = confirmed(0.0), confirmed(0.2)
    assert quiet.high is not None and disturbed.high is not None
    assert (disturbed.low, disturbed.high) == (quiet.low, pytest.approx(quiet.high / 0.8))


def test_who_disturbed_is_told_once_with_its_cost() -> None:
    (said,) = (warning for warning in run({0: 0.3}).warnings if "disturbed" in warning)
    assert said.startswith("other programs (java 0.50 CPUs, cc1 0.25) disturbed 4 of 8 trials: 4 trials may have lost")
    assert "30 %" in said and "sshd" not in said
    assert not [warning for warning in run({}).warnings if "disturbed" in warning]


def test_a_server_that_the_server_may_call_is_not_to_be_quiet() -> None:
    made = result_of(TrialSpec(1, 0, 1, race_of(2).settings()[0], 1), {"goodput_per_s": 1.0, "host_foreign_cores": 1.0})
    for name, own in (("node", True), ("cc1", False)):
        (said,) = disturbers(race_of(2), [replace(made, held_up=0.1, neighbours={name: 1.0})])
        assert (f"if {name} is the server's own database, or a server that it calls" in said) is own


def test_trials_that_tell_nothing_and_a_hypervisor_are_told_too() -> None:
    problem = Problem("host_steal", "the hypervisor took 30 %")
    spec = TrialSpec(1, 0, 1, race_of(2).settings()[0], 1)
    made = result_of(spec, {"goodput_per_s": 1.0, "host_steal_share": 0.3})
    # Without `host_foreign_cores` a container is not told from other programs, and may be one of these.
    spoilt: TrialResult = replace(made, problems=(problem,), neighbours=BESIDE)
    (said,) = disturbers(race_of(2), [spoilt])
    assert said.startswith("the hypervisor (30.0 % of the CPU time) disturbed 1 of 1 trial: 1 trial is excluded")


def test_of_trials_whose_quiet_time_counts_it_is_said_how_long_that_was() -> None:
    setting = race_of(2).settings()[0]
    parts = [
        result_of(TrialSpec(n, n, 1, setting, 1), {"goodput_per_s": 1.0, "quiet_s": s})
        for n, s in ((1, 0.3), (2, 1.42))
    ]
    whole = result_of(TrialSpec(3, 2, 1, setting, 1), {"goodput_per_s": 1.0})
    (said,) = disturbers(race_of(2), [replace(parts[0], held_up=0.08), parts[1], whole])
    assert said.startswith(
        "other programs disturbed 2 of 3 trials: of 2 trials only the quiet 0.3 to 1.4 s count and "
        "1 trial may have lost up to 8 % by it, and the intervals"
    ), "half of one trial is none"


def test_a_disturbed_machine_excuses_server_and_generator_and_a_little_disturbance_does_not() -> None:
    made = result_of(TrialSpec(1, 0, 1, race_of(2).settings()[0], 1), {"goodput_per_s": 1.0})
    for code, blamed in (("generator_cpu", limited_by_generator), ("no_request_ok", is_failed_start)):
        faulty = replace(made, problems=(Problem(code, "it is so"),))
        assert [blamed(replace(faulty, held_up=share)) for share in (0.0, 0.05, 0.2)] == [True, True, False]
        in_part = replace(faulty, metrics={"goodput_per_s": 1.0, "quiet_s": 0.5, "held_up_share_max": 0.2})
        assert not blamed(in_part), "the fault may have come while others ran"


@pytest.mark.parametrize("code", ["memory_kills", "invariant"])
def test_no_disturbance_excuses_what_no_lack_of_cpu_causes(code: str) -> None:
    made = result_of(TrialSpec(1, 0, 1, race_of(2).settings()[0], 1), {"goodput_per_s": 1.0})
    problems = (Problem(code, "it is so"), Problem("host_foreign", "it is so"))
    assert is_failed_start(replace(made, problems=problems[:1], held_up=0.2))
    assert is_failed_start(replace(made, problems=problems, held_up=0.5))


def test_no_answer_while_the_load_engine_stood_still_is_no_fault_of_the_server() -> None:
    made = result_of(TrialSpec(1, 0, 1, race_of(2).settings()[0], 1), {"goodput_per_s": 1.0})
    for code, blamed in (("no_request_ended", False), ("memory_kills", True)):
        problems = (Problem(code, "it is so"), Problem("engine_stopped", "it is so"))
        assert is_failed_start(replace(made, problems=problems)) is blamed


def test_of_a_server_that_outran_the_load_only_what_it_served_is_known() -> None:
    seen = {"goodput_per_s": 1.0, "response_time_ns_p99": 1.0, "subject_cpu_cores": 1.0, "threads_max": 4.0}
    made = result_of(TrialSpec(1, 0, 1, race_of(2).settings()[0], 1), seen)
    limited = replace(made, problems=(Problem("generator_cpu", "it is so"),))
    assert [has_figure(made, metric) for metric in (*seen, "rss_max")] == [True, True, True, True, False]
    assert [has_figure(limited, metric) for metric in seen] == [True, True, False, False]
