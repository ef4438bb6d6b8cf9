"""Experiments whose load is a JMeter plan: their keys, and the message for each mistake."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import load_experiment, parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "jmeter"
GOOD = (FOLDER / "experiment.yaml").read_text()


def parse(text: str = GOOD, folder: Path = FOLDER, *, to_run: bool = True) -> Experiment:
    return parse_experiment(text, str(folder / "x.yaml"), to_run=to_run)


def errors_of(text: str, folder: Path = FOLDER) -> str:
    with pytest.raises(ExperimentError) as caught:
        parse(text, folder)
    return str(caught.value)


PORT = 'properties: {port: "{port}"}'


def with_load(load: str, **top: str) -> str:
    more = "".join(f"{key}: {value}\n" for key, value in top.items())
    return f"name: x\nsubject: {{use: reference}}\nload: {{jmeter: plan.jmx, {load}}}\n{more}"


def test_the_example_is_valid_and_that_of_the_page() -> None:
    made = load_experiment(FOLDER / "experiment.yaml", to_run=True)
    assert made.load.jmeter == str(FOLDER / "plan.jmx")
    assert made.load.properties == {"host": "{host}", "port": "{port}", "users": "24", "think_ms": "20"}
    assert (made.load.users, made.load.rate_per_s, made.load.jvm_args) == (None, None, None)
    (page,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "jmeter.md").read_text(), re.S)
    assert page == "".join(GOOD.splitlines(keepends=True)[1:])


def test_it_reads_back_from_what_a_run_keeps() -> None:
    made = parse(GOOD.replace("duration: 8s", "duration: 8s\n  jvm_args: -Xmx2g -Dx=y"))
    assert made.load.jvm_args == ("-Xmx2g", "-Dx=y")
    kept = resolved_yaml(made)
    assert "arrivals" not in kept and "scenario" not in kept
    assert parse(kept, Path("/elsewhere")) == made


def test_an_old_run_is_read_without_its_plan(tmp_path: Path) -> None:
    assert parse(GOOD, tmp_path, to_run=False).load.jmeter == str(tmp_path / "plan.jmx")
    assert "there is no JMeter plan" in errors_of(GOOD, tmp_path)


def test_a_factor_reaches_the_plan_as_a_property() -> None:
    properties = 'properties: {port: "{port}", users: "{users}", on: true, share: 0.5}'
    made = parse(with_load(properties, factors="{users: [4, 8]}"))
    assert made.load.properties == {"port": "{port}", "users": "{users}", "on": "true", "share": "0.5"}
    assert [setting.id for setting in made.settings()] == ["users=4", "users=8"]
    varied = parse(with_load(PORT, factors='{"load.duration": [5s, 6s]}'))
    assert [varied.load_for(setting).duration_ns for setting in varied.settings()] == [5 * 10**9, 6 * 10**9]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (with_load("users: 64"), r"load\.users.*leave users out.*\$\{__P\(users\)\}"),
        (with_load("rate: 100/s"), r"load\.rate.*leave rate out"),
        (with_load("scenario: [{get: /x}]"), r"load\.scenario.*leave scenario out"),
        (with_load("think: 1s, ramp: 1s"), r"(?s)leave think out.*leave ramp out"),
        (with_load("duration: 0s"), "a duration of 0 measures nothing"),
        (with_load("duration: 5s", factors='{"load.users": [1, 2]}'), r'properties: \{users: "\{users\}"\}'),
        (with_load("duration: 5s", objective="{maximise: capacity, subject_to: [p99 < 50ms]}"), "a plan has its own"),
        (with_load("properties: {users: '{thread}'}"), r"load\.properties\.users.*stands for nothing.*threads"),
        (with_load("properties: {users: null}"), "needs a value"),
        (with_load("properties: {'a b': 1}"), "no name of a JMeter property"),
        (with_load("properties: {jmeter.save.saveservice.url: true}"), "powerband sets this property itself"),
        (with_load("properties: [1]"), r"load\.properties"),
        (with_load("jvm_args: []"), r"load\.jvm_args"),
        (with_load("properti: {}"), "properti"),
        (with_load("duration: 5s"), r"the plan is not told the port.*\$\{__P\(port\)\}"),
        (with_load('properties: {ports: "{port}"}'), "the plan is not told the port"),
        (
            with_load('properties: {port: "{port}", user: "{u}"}', factors="{u: [1, 2]}"),
            r"nothing in the plan reads the property user,.*\$\{__P\(user\)\}",
        ),
        (with_load("properties: {host: shop.example}"), r"goes to shop\.example.*--allow-host"),
        (GOOD.replace("plan.jmx", "experiment.yaml"), "no valid XML"),
        (GOOD.replace("plan.jmx", "plan.jm"), "there is no JMeter plan"),
        ("subject: {use: reference}\nload: {users: 1, properties: {a: 1}}", "properties and jvm_args are JMeter's"),
    ],
)
def test_each_mistake_is_told_at_its_place(text: str, said: str) -> None:
    message = errors_of(text)
    assert re.search(said, message), message
    assert "x.yaml:" in message


def test_a_host_that_is_allowed_may_be_loaded() -> None:
    made = parse(with_load('properties: {host: shop.example, port: "{port}"}', allow_hosts="[shop.example]"))
    assert made.allow_hosts == ("shop.example",)


def test_a_host_that_varies_is_looked_at_in_each_trial() -> None:
    assert parse(
        with_load('properties: {host: "{where}", port: "{port}"}', factors="{where: [shop.example, 127.0.0.1]}")
    )


def test_a_broken_plan_is_told_with_its_line(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "plan.jmx", tmp_path / "plan.jmx")
    text = (tmp_path / "plan.jmx").read_text()
    (tmp_path / "plan.jmx").write_text(text.replace("</TestPlan>", "</TestPlam>"))
    assert re.search(r"no valid XML \(mismatched tag: line 14", errors_of(GOOD, tmp_path))


def test_a_plan_that_speaks_tcp_to_a_container_must_say_when_that_is_ready(tmp_path: Path) -> None:
    (tmp_path / "plan.jmx").write_text(
        "<jmeterTestPlan><hashTree><TestPlan/><hashTree><ThreadGroup/><hashTree><TCPSampler><stringProp>${__P(port)}"
        "</stringProp></TCPSampler><hashTree/></hashTree></hashTree></hashTree></jmeterTestPlan>"
    )
    command = 'command: [docker, run, -p, "{port}:7", echo]'
    text = f"name: x\nsubject: {{{command}}}\nload: {{jmeter: plan.jmx, {PORT}}}\n"
    assert "subject.ready.log, --ready-log" in errors_of(text, tmp_path)
    parse(text.replace("subject: {", "subject: {ready: {log: listening}, "), tmp_path)
    parse(text.replace("docker, run", "./echo"), tmp_path)
