"""The kinds of load: which one an experiment or a file has, and the properties of each."""

from __future__ import annotations

import pytest

from powerband.base.yaml_document import from_plain
from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.loads import HTTP, JMETER, SELF_DRIVEN, WEBSOCKET, kind_in_file, kind_of, kind_of_load, kind_of_url
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load
from powerband.model.metrics import METRICS
from powerband.processes.failures import Code

KINDS = (HTTP, WEBSOCKET, JMETER, SELF_DRIVEN)
SERVER = "subject: {command: './s {port}'}\n"
TEXTS = {
    HTTP: SERVER + "load: {users: 2}\n",
    WEBSOCKET: SERVER.replace("}'}", "}', url: 'ws://127.0.0.1:{port}/'}")
    + "load: {users: 2, join: 1/s, scenario: [{message: a}]}\n",
    JMETER: SERVER + "load: {jmeter: plan.jmx, duration: 3s}\n",
    SELF_DRIVEN: "subject: {command: './s {statsd_port}', counts: {series: n_total, noun: message}}\n",
}


def made(kind: LoadKind, more: str = "") -> Experiment:
    return parse_experiment(TEXTS[kind] + more, "x.yaml")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_an_experiment_has_one_kind_whichever_way_it_is_asked(kind: LoadKind) -> None:
    experiment = made(kind)
    assert kind_of(experiment) is kind
    assert kind_of(parse_experiment(resolved_yaml(experiment), "again.yaml")) is kind
    if kind is not SELF_DRIVEN:
        assert kind_of_load(experiment.load) is kind


def test_a_file_says_its_kind_before_it_is_valid() -> None:
    def asked(**keys: object) -> LoadKind:
        return kind_in_file(from_plain(keys, "", None), None)

    assert asked() is asked(load={"jmeter": None, "websocket": None}) is asked(load=5) is HTTP
    assert asked(load={"websocket": {}}) is WEBSOCKET
    assert asked(load={"jmeter": "x", "websocket": {}}) is JMETER
    assert asked(load={"jmeter": "x"}, subject={"counts": "n"}) is SELF_DRIVEN
    page = Subject.model_validate({"name": "x", "command": "x", "url": "ws://127.0.0.1/"})
    assert kind_in_file(from_plain({}, "", None), page) is WEBSOCKET
    assert (kind_of_url("http://127.0.0.1/"), kind_of_url("wss://127.0.0.1/")) == (HTTP, WEBSOCKET)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_what_a_kind_says_of_its_keys_is_true_of_the_model(kind: LoadKind) -> None:
    Load.model_validate({"users": 1, **kind.beside_level})
    keys = {field.alias or name for name, field in Load.model_fields.items()}
    assert set(kind.load_keys or ()) <= keys


def test_a_resolved_file_keeps_the_keys_that_the_kind_reads() -> None:
    assert "load:\n  duration: 10s\n" in resolved_yaml(made(SELF_DRIVEN))
    assert "users" not in resolved_yaml(made(JMETER)) and "engine_threads" in resolved_yaml(made(JMETER))
    assert "users: 2" in resolved_yaml(made(HTTP))


def test_metrics_of_requests_users_and_engines_need_a_load() -> None:
    lacked = {name for name in METRICS if not SELF_DRIVEN.has_metric(name)}
    assert {"response_time_ns_p99", "error_rate", "engine_cpu_cores", "joined_users", "finish_s"} <= lacked
    assert not {"goodput_per_s", "achieved_rate_per_s", "subject_cpu_cores", "link_dropped", "app_x"} & lacked
    assert all("only a load has" in (SELF_DRIVEN.why_missing(name) or "") for name in lacked)
    assert SELF_DRIVEN.why_missing("goodput_per_s") is None
    for kind in (HTTP, WEBSOCKET, JMETER):
        assert all(kind.has_metric(name) for name in METRICS)
    assert "1 ms" in (JMETER.why_missing("connect_time_ns_p99") or "")
    assert JMETER.why_missing("goodput_per_s") is HTTP.why_missing("connect_time_ns_p99") is None


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        ("response_time_ns_p99", 500_000),
        ("burst_response_time_ns_max", 500_000),
        ("response_time_ns_mean", 0),
        ("goodput_per_s", 0),
        ("app_response_time_ns_p99", 0),
    ],
)
def test_times_of_jmeter_are_off_by_half_a_millisecond(metric: str, error: float) -> None:
    assert JMETER.clock_error(metric) == error
    assert JMETER.clock_words(metric) == ("the load's clock counts steps of 1.00 ms" if error else "")
    assert HTTP.clock_error(metric) == WEBSOCKET.clock_error(metric) == SELF_DRIVEN.clock_error(metric) == 0
    assert HTTP.clock_words(metric) == ""


def test_capacity_is_a_matter_of_http_loads() -> None:
    assert [kind.no_capacity is None for kind in KINDS] == [True, False, False, False]
    assert parse_experiment(
        SERVER + "load: {}\nobjective: {maximise: capacity, subject_to: [p99 < 1s]}", "x"
    ).load.users


def test_what_sentences_call_the_rate() -> None:
    assert [kind.goodput_words(made(kind)) for kind in KINDS] == ["goodput", "goodput", "goodput", "messages"]


@pytest.mark.parametrize(
    ("factors", "code", "every"),
    [
        ("{threads: [2, 8]}", Code.PLAN_ENDED, True),
        ("{users: [4, 8]}", Code.PLAN_ENDED, False),
        ('{"load.duration": [5s, 60s]}', Code.PLAN_ENDED, False),
        ("{threads: [2, 8]}", Code.CLOCK_SET, False),
    ],
)
def test_a_plan_fails_every_trial_unless_a_factor_changes_it(factors: str, code: Code, *, every: bool) -> None:
    users = ', users: "{users}"' if "users" in factors else ""
    load = f'{{jmeter: plan.jmx, properties: {{port: "{{port}}"{users}}}}}'
    text = f"name: x\nsubject: {{use: reference, set: {{model: fixed}}}}\nload: {load}\nfactors: {factors}\n"
    assert JMETER.fails_every_trial(parse_experiment(text, "x.yaml"), code) is every
