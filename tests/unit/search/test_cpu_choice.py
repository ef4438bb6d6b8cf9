from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import Figures, experiment, record_of, write_trial
from fakes.tuned import tune_experiment
from powerband.model.cpu_use import CpuUse, shares_well
from powerband.model.experiment import Experiment, Service
from powerband.model.host_use import HostUse
from powerband.model.load import Load
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import Problem, TrialResult
from powerband.processes.cpus import cpu_split
from powerband.processes.stop_request import StopRequest
from powerband.search.cpu_choice import OWN_AFFINITY, CpuChoice
from powerband.search.observer import Observer
from powerband.search.session import run_session
from powerband.store import RunDir, TrialDir, TrialRecord


@pytest.mark.parametrize(
    ("server", "generator", "expected"),
    [
        (1.0, 0.1, True),
        (1.0, 0.101, False),
        (7.5, 0.5, True),
        (0.0, 0.0, False),
        (None, 0.1, False),
        (1.0, None, False),
    ],
)
def test_all_cpus_are_shared_from_ten_times_the_generators_cost_on(
    server: float | None, generator: float | None, expected: bool
) -> None:
    assert shares_well(server, generator) is expected


def a_result(*codes: str, server: float = 0.95, shared: bool = False, machine: int = 2, number: int = 1) -> TrialResult:
    return TrialResult(
        number=number,
        block=0,
        attempt=1,
        setting=Setting((("threads", 1),)),
        status="measured",
        problems=tuple(Problem(code, code) for code in codes),
        metrics={"subject_cpu_cores": server, "engine_cpu_cores": 0.05},
        cpus=CpuUse(2.0 if shared else 1.0, machine, shared),
    )


def test_a_dear_server_is_measured_again_on_all_cpus_and_that_is_kept() -> None:
    choice = CpuChoice(experiment())
    assert choice.experiment.host == HostUse()
    assert choice.again(a_result()) and choice.experiment.host == HostUse(cpus="all")
    assert not choice.again(a_result(shared=True)) and choice.shared
    assert not choice.again(a_result("generator_starved", shared=True)) and choice.shared, "it is decided once"


def test_a_cheap_server_keeps_sets_of_its_own() -> None:
    choice = CpuChoice(experiment())
    assert not choice.again(a_result(server=0.49)) and not choice.shared
    assert not choice.again(a_result()) and not choice.shared, "it is decided once"


def test_a_generator_that_comes_too_late_gets_its_cpus_back() -> None:
    choice = CpuChoice(experiment())
    assert choice.again(a_result()) and choice.again(a_result("generator_starved", shared=True))
    assert choice.experiment.host == HostUse() and not choice.again(a_result())


def test_a_trial_that_other_programs_spoilt_decides_nothing_and_takes_nothing_back() -> None:
    choice = CpuChoice(experiment())
    assert not choice.again(a_result("host_foreign")) and not choice.shared
    assert choice.again(a_result())
    assert not choice.again(a_result("generator_starved", "host_foreign", shared=True)) and choice.shared


def test_a_trial_that_answered_nothing_decides_nothing() -> None:
    choice = CpuChoice(experiment())
    assert not choice.again(a_result("no_request_ok"))
    assert choice.again(a_result())


@pytest.mark.parametrize("host", [HostUse(pinning="off"), HostUse(cpus=1), HostUse(cpus="all")])
def test_what_was_asked_for_is_left_alone(host: HostUse) -> None:
    choice = CpuChoice(experiment(host=host))
    assert not choice.again(a_result()) and choice.experiment.host == host


@pytest.mark.parametrize("shared", [True, False])
def test_a_resumed_run_goes_on_as_it_began(shared: bool) -> None:
    choice = CpuChoice(experiment(), [a_result("host_foreign"), a_result(shared=shared, number=2)])
    assert choice.shared is shared and not choice.again(a_result(shared=shared))


def test_a_server_that_leaves_its_cpus_decides_like_another_and_so_after_a_resume() -> None:
    cheap, much = (a_result(OWN_AFFINITY, server=cores, shared=True) for cores in (0.3, 0.9))
    cheap, much = (
        replace(each, problems=tuple(replace(problem, fatal=False) for problem in each.problems))
        for each in (cheap, much)
    )
    choice = CpuChoice(experiment())
    assert not choice.again(cheap) and not choice.shared
    assert not CpuChoice(experiment(), [cheap]).shared
    assert CpuChoice(experiment()).again(much)


def dear(cpus: list[Any]) -> Callable[..., TrialRecord]:
    """Makes up trials of a server that costs twenty times as much CPU as the generator, on a machine with two CPUs."""

    def run_one(made: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
        split = cpu_split([[0], [1]], made.host)
        cpus.append((spec.number, split.subject))
        rate = 100.0 * int(spec.setting.as_dict()["threads"]) + spec.block
        figures = Figures(goodput_per_s=rate, response_ns=10 / rate * 1e9, window_s=5, thread_share=0.04,
                          subject_cores=0.8)  # fmt: skip
        record = replace(
            record_of(spec, figures), cpus={**{k: list(v) for k, v in vars(split).items()}, "machine": [0, 1]}
        )
        return write_trial(directory, record, figures)

    return run_one


def test_all_trials_that_count_have_the_same_cpus_and_so_after_a_resume(tmp_path: Path) -> None:
    run, cpus = RunDir.create(tmp_path, "fake", "name: fake\n", {}), []  # type: tuple[RunDir, list[Any]]
    trial, stop = dear(cpus), StopRequest()

    def stopping(made: Experiment, spec: TrialSpec, directory: TrialDir, **rest: Any) -> TrialRecord:
        if spec.number == 4:
            stop.request()
        return trial(made, spec, directory, **rest)

    run_session(experiment(), run, Observer(), stop, trial=stopping)
    stop.close()
    assert cpus == [(1, (0,)), (1, ()), (2, ()), (3, ()), (4, ())]
    again = StopRequest()
    analysis = run_session(experiment(), run, Observer(), again, trial=trial)
    again.close()
    assert [number for number, _ in cpus[5:]] == [5, 6, 7, 8, 9] and {each for _, each in cpus[5:]} == {()}
    assert {tuple(record.cpus["subject"]) for record in run.records()} == {()}
    assert (
        "with 10 users that never pause, on all 2 CPUs of this machine (the load took 2.0 % of them)."
        in (analysis.answer.sentences[0])
    )
    trials = json.loads(run.analysis.read_text())["trials"]
    assert all(each["cpus"] == {"server": 2.0, "machine": 2, "shared": True} for each in trials)
    assert not any("kept from the server" in warning for warning in analysis.warnings)


def test_a_trial_that_is_measured_again_takes_its_time_from_the_budget_twice(tmp_path: Path) -> None:
    def trials(name: str, **design: object) -> tuple[TrialResult, ...]:
        run, stop = RunDir.create(tmp_path, name, "name: fake\n", {}), StopRequest()
        analysis = run_session(experiment(design={"seed": 7, **design}), run, Observer(), stop, trial=dear([]))
        stop.close()
        assert [record.repeated_s for record in run.records()] == [each.repeated_s for each in analysis.trials]
        return analysis.trials

    first, *others = trials("all")
    assert first.took_s and first.repeated_s == first.took_s and not any(each.repeated_s for each in others)
    assert len(trials("seven", budget=f"{7.1 * first.took_s}s")) == 6
    assert len(trials("six", budget=f"{6.9 * first.took_s}s")) == 3


def test_where_cpus_were_kept_from_the_server_the_answer_says_so(tmp_path: Path) -> None:
    run, stop = RunDir.create(tmp_path, "fake", "name: fake\n", {}), StopRequest()
    analysis = run_session(experiment(host=HostUse(cpus=1)), run, Observer(), stop, trial=dear([]))
    stop.close()
    told = "with 10 users that never pause, on 1 of this machine's 2 CPUs, the load generator on the other."
    assert analysis.answer.sentences[0].endswith(told)
    assert analysis.warnings[0].startswith("with more CPUs another value of threads may be best: the server had 1 of ")


def test_the_option_of_tune_is_the_key_of_a_file() -> None:
    for text, cpus in (("2", 2), ("all", "all"), ("0-1", "0-1"), ("0,1", "0,1")):
        made = tune_experiment(["server", "{port}", "{n}"], ["n=1,2"], options={"--cpus": text})
        assert made.host == HostUse(cpus=cpus)


def test_a_database_that_is_used_or_a_plan_of_jmeter_keeps_cpus_of_its_own() -> None:
    made = experiment()
    database = made.subject.model_copy(update={"services": {"postgresql": Service()}})
    unused = made.subject.model_copy(update={"services": {"postgresql": Service(when={"database": "postgresql"})}})
    assert CpuChoice(made.model_copy(update={"subject": unused})).again(a_result())
    others = ({"subject": database}, {"load": Load(jmeter="plan.jmx")})
    for other in (made.model_copy(update=changes) for changes in others):
        choice = CpuChoice(other)
        assert not choice.again(a_result()) and choice.experiment is other
