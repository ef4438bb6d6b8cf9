"""`subject.deployed`, and the options of `tune` that stand for it: a server that already runs is not started."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.tuned import tune_experiment
from powerband.base.errors import ExperimentError, UsageError
from powerband.files.experiment_file import experiment_of, parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment

URL = "http://127.0.0.1:8080/"
APPLY = ["POST /knob {n}"]


def written(subject: dict[str, Any], **more: Any) -> Experiment:
    base = {"url": URL, "apply": [{"post": "/knob?n={n}"}], "deployed": True}
    parts = {"factors": {"n": [1, 2]}, "load": {"users": 2, "duration": "1s"}}
    return experiment_of({"name": "x", "subject": {**base, **subject}, **parts, **more})


def refused(subject: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ExperimentError) as error:
        written(subject, **more)
    return str(error.value)


def test_true_is_a_server_whose_requests_change_it() -> None:
    deployed = written({}).subject.deployed
    assert deployed is not None and deployed.command is None and deployed.restore == {} and deployed.pid is None


def test_false_is_a_server_that_needs_a_command() -> None:
    assert "subject.command: required, but missing" in refused({"deployed": False})
    assert "subject.command: required, but missing" in refused({"deployed": None})


def test_what_a_run_directory_keeps_is_read_as_the_same() -> None:
    made = written({"deployed": {"command": "ssh a set {n}", "restore": {"n": 8}, "pid": 12}})
    assert made.subject.command is None and made.subject.deployed is not None
    assert made.subject.deployed.command == ("ssh", "a", "set", "{n}")
    assert parse_experiment(resolved_yaml(made), "experiment.yaml") == made


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("command", "./server {n}"),
        ("env", {"A": "b"}),
        ("build", "make"),
        ("jdk", 17),
        ("dotnet", 8),
        ("services", {"postgresql": {}}),
        ("stop", {"grace": "1s"}),
        ("counts", "jobs_total"),
        ("last_words", "^final"),
    ],
)
def test_what_is_about_starting_and_ending_is_refused(key: str, value: Any) -> None:
    assert f"is neither started nor ended: leave {key} out" in refused({key: value})


def test_what_else_cannot_be() -> None:
    assert "what a server prints that runs already is not seen" in refused({"ready": {"log": "up"}})
    assert "which CPUs a server has that runs already" in refused({}, host={"cpus": 1})
    assert "not done to a server that runs already" in refused({}, measure={"snapshots": True})
    assert "a JMeter plan drives only servers" in refused({}, load={"jmeter": "plan.jmx", "duration": "1s"})
    assert "{port} is filled in for a server that powerband starts" in refused({"url": "http://127.0.0.1:{port}/"})
    assert "app-1 is not this machine" in refused({"url": "http://app-1/"})
    assert written({"url": "http://app-1/"}, allow_hosts=["app-1"]).allow_hosts == ("app-1",)


def test_a_count_that_no_start_of_the_server_begins_anew_is_not_compared_with_the_messages_of_a_trial() -> None:
    load = {"users": 2, "websocket": {"tally": "count "}, "scenario": [{"message": "x"}]}
    url = {"url": "ws://127.0.0.1:8080/"}
    assert "load.websocket.tally: the server runs already" in refused(url, load=load)
    made = written({**url, "deployed": {"command": "./restart {n}"}}, load=load)
    assert made.load.websocket is not None and made.load.websocket.tally is not None
    assert written(url, load={**load, "websocket": {}}).subject.deployed is not None


@pytest.mark.parametrize("name", ["build", "java_home", "dotnet", "link_a", "postgresql_port", "postgresql_password"])
def test_a_parameter_with_the_name_of_what_only_a_start_has_is_refused(name: str) -> None:
    said = refused({"apply": [{"post": f"/knob?n={{n}}&b={{{name}}}"}]}, factors={"n": [1, 2], name: ["a", "b"]})
    assert f"{{{name}}} is filled in for a server that powerband starts" in said
    assert name in refused({"deployed": {"command": f"./set {{n}} {{{name}}}"}})


@pytest.mark.parametrize(("name", "level"), [("host.cpu_quota", 0.5), ("host.memory_limit", "64MiB")])
def test_a_limit_as_a_factor_would_limit_nothing(name: str, level: Any) -> None:
    said = refused({}, factors={"n": [1, 2], name: [level]})
    assert f"factors.{name}: the server runs already" in said and f"leave {name} out" in said
    with pytest.raises(ExperimentError, match=f"-P {name}={level}: the server runs already"):
        tune_experiment((), ["n=1,2", f"{name}={level}"], url=URL, apply=APPLY)


def test_its_address_is_needed() -> None:
    subject = {"apply": [{"post": "/knob?n={n}"}], "deployed": True}
    with pytest.raises(ExperimentError, match="nothing says where the server listens"):
        experiment_of({"name": "x", "subject": subject, "factors": {"n": [1]}, "load": {"users": 1}})


def test_a_factor_that_nothing_changes_is_an_error() -> None:
    assert "occurs neither in subject.apply nor in subject.deployed.command" in refused({"apply": []})
    assert written({"apply": [], "deployed": {"command": ["set", "{n}"]}}).subject.apply == ()


def test_what_is_restored_is_the_whole_setting() -> None:
    both = {"apply": [{"post": "/knob?n={n}&m={m}"}]}
    factors = {"n": [1, 2], "m": [1, 2], "load.users": [1, 2]}
    load = {"users": 2, "duration": "1s"}
    made = written({**both, "deployed": {"restore": {"n": 1, "m": 9}}}, factors=factors, load=load)
    assert made.subject.deployed is not None and made.subject.deployed.restore == {"n": 1, "m": 9}
    said = refused({**both, "deployed": {"restore": {"n": 1}}}, factors=factors, load=load)
    assert "m is varied too: write the value that it gets back" in said
    assert "no parameter o is varied" in refused({"deployed": {"restore": {"o": 1}}})


def test_tune_without_a_command() -> None:
    made = tune_experiment(
        (), ["n=1,2"], url="http://app-1:81/x", apply=APPLY, restore=["n=08"], options={"--pid": "7"},
        allow_hosts=["app-1"],
    )  # fmt: skip
    (step,) = made.subject.apply
    assert (step.method, step.path, step.body, made.subject.name) == ("POST", "/knob", "{n}", "app-1")
    assert made.subject.deployed is not None
    assert (made.subject.deployed.restore, made.subject.deployed.pid) == ({"n": "08"}, 7)
    assert made.load.scenario[0].path == "/x"


def test_tune_by_a_command_that_changes_the_setting() -> None:
    made = tune_experiment((), ["n=1,2"], url=URL, options={"--apply-command": "ssh a 'set n={n}%'"})
    assert made.subject.deployed is not None and made.subject.deployed.command == ("ssh", "a", "set n={n}%")


def test_the_load_alone_may_vary() -> None:
    made = tune_experiment((), ["load.users=1,2"], url=URL)
    assert made.subject.deployed is not None and made.subject.apply == ()


def test_with_a_command_the_requests_are_made_once_it_is_ready() -> None:
    made = tune_experiment(("./server", "{port}"), ["n=1,2"], apply=["put /knob?n={n}"])
    assert made.subject.deployed is None and made.subject.apply[0].method == "PUT"


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ((), {}, "no command: write it after --"),
        ((), {"apply": APPLY}, "--url is missing"),
        ((), {"url": URL, "apply": ["/knob {n}"]}, "write method, path and"),
        ((), {"url": URL, "apply": ["POST"]}, "write method, path and"),
        ((), {"url": URL, "apply": APPLY, "restore": ["n"]}, "write NAME=value, for example n=8"),
        (("./s", "{port}", "{n}"), {"restore": ["n=1"]}, "--restore: that is of a server that runs already"),
        (("./s", "{port}", "{n}"), {"options": {"--pid": "1"}}, "--pid: that is of a server that runs already"),
        (("./s", "{n}"), {"options": {"--apply-command": "x"}}, "--apply-command: that is of a server"),
    ],
)
def test_options_that_do_not_go_together(command: tuple[str, ...], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tune_experiment(command, ["n=1,2"], **given)


def test_errors_name_the_option() -> None:
    with pytest.raises(ExperimentError, match=r"-P m=1.*occurs neither in subject\.apply"):
        tune_experiment((), ["n=1,2", "m=1"], url=URL, apply=APPLY)
    with pytest.raises(ExperimentError, match="--restore m=1: no parameter m is varied"):
        tune_experiment((), ["n=1,2"], url=URL, apply=APPLY, restore=["m=1"])
    with pytest.raises(ExperimentError, match="--env: the server runs already"):
        tune_experiment((), ["n=1,2"], url=URL, apply=APPLY, env=["A=b"])
    with pytest.raises(ExperimentError, match="--cpus 1: which CPUs"):
        tune_experiment((), ["n=1,2"], url=URL, apply=APPLY, options={"--cpus": "1"})
