"""A WebSocket load in a file: short forms have the documented meaning, and every wrong combination is reported with its
place."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.loads.engine_specs import fleet_specs
from powerband.model.experiment import Experiment
from powerband.model.load import Constant, Exponential
from powerband.model.plan import Setting
from powerband.model.websocket import Binary, Call, Event, IdAfter, Publish, Text
from powerband.wire import specs as wire

SUBJECT = 'subject: {command: "./s {port} {t}", url: "ws://127.0.0.1:{port}/chat?room=1"}\n'
HTTP = 'subject: {command: "./s {port} {t}"}\n'
SC = "websocket: {dialect: socketcluster20}"


def parse(load: str, rest: str = "", subject: str = SUBJECT) -> Experiment:
    return parse_experiment(f"name: n\n{subject}factors: {{t: [1, 2]}}\nload: {{{load}}}\n{rest}", "x.yaml")


def errors_of(load: str, rest: str = "", subject: str = SUBJECT) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        parse(load, rest, subject)
    return [str(problem) for problem in caught.value.problems]


def test_a_url_of_a_websocket_makes_the_load_one() -> None:
    experiment = parse("users: 320, join: 160/s, pace: 1700/s, scenario: [{message: ping, expect: pong}]")
    load = experiment.load
    assert load.websocket is not None and load.websocket.dialect == "plain"
    assert (load.joining_ns, load.ramp_ns, load.pace, load.longest_pause_ns) == (
        2 * 10**9,
        0,
        Constant(ns=588235),
        588235,
    )
    (step,) = load.scenario
    assert (step.name, step.message, step.checks.body_contains) == ("ping", Text(text="ping"), ("pong",))
    (spec,) = fleet_specs(load, url="wss://127.0.0.1:81/chat?room=1", seed=1, descriptor_limit=1000)
    assert spec.target.url == "https://127.0.0.1:81"
    assert spec.connection.websocket == wire.WebSocket(path="/chat?room=1")
    assert isinstance(spec.model, wire.Closed)
    assert (spec.model.ramp_ns, spec.model.pace) == (2 * 10**9, wire.ConstantTime(ns=588235))
    assert (spec.scenario[0].message, spec.scenario[0].answered) == (wire.TextMessage(text="ping"), True)


EVERYTHING = """\
users: 4, pipeline: 3, ramp: 1s, think: 1ms, websocket: {path: /x, headers: {Origin: a}, subprotocols: [a, b],
  match: {id_after: '"rid":'}, unsolicited: news, greetings: ['{"user":{user}}'], stamp_after: '"sent":',
  tally: {count_after: '"count":', label_after: '"worker":'}, message_bytes_max: 1MiB, rejoin_after: 1s},
  scenario: [{message: '{"id":{id}}'}]"""


def test_every_key_arrives_at_the_engine() -> None:
    load = parse(EVERYTHING).load
    assert load.websocket is not None and load.websocket.match == IdAfter(id_after='"rid":')
    (spec,) = fleet_specs(load, url="ws://127.0.0.1:81/chat", seed=1, descriptor_limit=1000)
    assert spec.connection.websocket == wire.WebSocket(
        path="/x",
        headers=(("Origin", "a"),),
        subprotocols=("a", "b"),
        matching=wire.MatchById(after='"rid":'),
        unsolicited=("news",),
        greetings=('{"user":{user}}',),
        stamp_after='"sent":',
        tally=wire.Tally(label_after='"worker":', count_after='"count":'),
        message_bytes_max=2**20,
        rejoin_after_ns=10**9,
    )


STEPS = """\
users: 1, websocket: {dialect: socketcluster14, subscribe: [news]}, scenario: [
  {event: ping, data: {a: [1, "x"]}, answer: pong, name: first}, {event: say, answered: false},
  {call: add, data: '[1,{id}]'}, {publish: news, data: '{"sent":{stamp}}', answered: false, think: 1s}]"""


def test_messages_of_a_dialect() -> None:
    steps = parse(STEPS).load.scenario
    assert [step.message for step in steps] == [
        Event(event="ping", data='{"a":[1,"x"]}', answer="pong"),
        Event(event="say", data="null"),
        Call(event="add", data="[1,{id}]"),
        Publish(channel="news", data='{"sent":{stamp}}'),
    ]
    assert [step.name for step in steps] == ["first", "say", "call add", "publish news"]
    assert [step.answered for step in steps] == [True, False, True, False]


@pytest.mark.parametrize(
    "load",
    [
        EVERYTHING,
        STEPS,
        "users: 9, join: 3/s, pace: {exponential: 6s}, scenario: [{binary: AAEC/w==}, {message: '{\"a\": 1}'}]",
    ],
)
def test_a_resolved_load_reads_back_the_same(load: str) -> None:
    experiment = parse(load)
    assert parse_experiment(resolved_yaml(experiment), "experiment.yaml") == experiment


def test_a_binary_message_and_a_pace_with_random_pauses() -> None:
    load = parse("users: 1, pace: {exponential: 6s}, scenario: [{binary: AAEC/w==, answered: false}]").load
    assert load.scenario[0].message == Binary(base64="AAEC/w==")
    assert load.pace == Exponential(mean=6 * 10**9)


def test_the_dialect_may_hang_on_a_parameter(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "subject.yaml").write_text(
        "command: ./s {port} {version}\nurl: 'ws://127.0.0.1:{port}/socketcluster/'\n"
        "parameters: {version: {type: choice, choices: [14, 20, 9], default: 20, help: h}}\n"
    )
    websocket = "websocket: {dialect: 'socketcluster{version}'}"
    load = f"load: {{users: 1, {websocket}, scenario: [{{event: a, answer: b}}]}}\n"
    text = f"name: n\nsubject: {{use: ./s}}\n%s{load}"
    file = str(tmp_path / "x.yaml")
    experiment = parse_experiment(text % "factors: {version: [14, 20]}\n", file)
    dialects = [experiment.load_for(setting).websocket for setting in experiment.settings()]
    assert [websocket and websocket.dialect for websocket in dialects] == ["socketcluster14", "socketcluster20"]
    default = parse_experiment(text % "", file).load_for(Setting(())).websocket
    assert default is not None and default.dialect == "socketcluster20"
    with pytest.raises(ExperimentError, match=r"dialect in .*: socketcluster\{version\} stands for socketcluster9"):
        parse_experiment(text % "factors: {version: [20, 9]}\n", file)
    with pytest.raises(ExperimentError, match=r"\{versoin\} stands for nothing; did you mean version"):
        parse_experiment((text % "").replace("cluster{version}", "cluster{versoin}"), file)


MISTAKES = {
    "pace with think": (
        "users: 1, pace: 6s, think: 1s, scenario: [{message: x}]",
        "load.think in x.yaml:4:28: pace is set too: think is the pause after an answer, pace the time between sends "
        "whether or not they were answered; keep one",
    ),
    "pace with the think of a step": (
        "users: 1, pace: 6s, scenario: [{message: x, think: 1s}]",
        "load.scenario[0].think in x.yaml:4:52: pace is set too",
    ),
    "pace of nothing": (
        "users: 1, pace: 0s, scenario: [{message: x}]",
        "load.pace in x.yaml:4:24: less than 1us between sends is no pace",
    ),
    "a rate": (
        "rate: 100/s, scenario: [{message: x}]",
        "load.rate in x.yaml:4:8: belongs to an open load, whose requests come and go",
    ),
    "no scenario": ("users: 1", "load in x.yaml:4:7: a WebSocket load needs a scenario"),
    "a request": (
        "users: 1, scenario: [{get: /x}]",
        "load.scenario[0].get in x.yaml:4:30: belongs to an HTTP request, but the url makes this a WebSocket load: "
        "write message, binary, event, call or publish",
    ),
    "headers of a message": (
        "users: 1, scenario: [{message: x, headers: {a: b}}]",
        "load.scenario[0].headers in x.yaml:4:42: belongs to an HTTP request, but the url makes this a WebSocket load: "
        "load.websocket.headers are those of the handshake",
    ),
    "a status": (
        "users: 1, scenario: [{message: x, check: {status: 200}}]",
        "load.scenario[0].check.status in x.yaml:4:50: a message has no status",
    ),
    "an empty step": (
        "users: 1, scenario: [{think: 1s}]",
        "load.scenario[0] in x.yaml:4:29: each step of a WebSocket load is a message",
    ),
    "two messages": (
        f"users: 1, {SC}, scenario: [{{call: a, publish: b}}]",
        "load.scenario[0].publish in x.yaml:4:78: a step has one message, and this one has call already",
    ),
    "connections of one message": (
        "users: 1, keep_alive: false, scenario: [{message: x}]",
        "load.keep_alive in x.yaml:4:18: a WebSocket is a connection that is kept",
    ),
    "an event without a dialect": (
        "users: 1, scenario: [{event: ping, answer: pong}]",
        "load.scenario[0].event in x.yaml:4:30: event belongs to SocketCluster",
    ),
    "a text in a dialect": (
        f"users: 1, {SC}, scenario: [{{message: ping}}]",
        "load.scenario[0].message in x.yaml:4:69: the dialect socketcluster20 sends events",
    ),
    "an event that nothing answers": (
        f"users: 1, {SC}, scenario: [{{event: ping}}]",
        "load.scenario[0].event in x.yaml:4:76: which event answers it?",
    ),
    "an answer of a one-way event": (
        f"users: 1, {SC}, scenario: [{{event: ping, answer: pong, answered: false}}]",
        "load.scenario[0].answer in x.yaml:4:82: answered is false",
    ),
    "an answer of a call": (
        f"users: 1, {SC}, scenario: [{{call: a, answer: b}}]",
        "load.scenario[0].answer in x.yaml:4:78: answer belongs to an event; this step has none",
    ),
    "expecting of a one-way message": (
        "users: 1, scenario: [{message: x, answered: false, expect: y}]",
        "load.scenario[0].expect in x.yaml:4:59: nothing can be expected",
    ),
    "data that is no JSON": (
        f"users: 1, {SC}, scenario: [{{call: a, data: hello}}]",
        "load.scenario[0].data in x.yaml:4:84: 'hello' is no JSON",
    ),
    "data with a number that JSON has not": (
        f"users: 1, {SC}, scenario: [{{call: a, data: '[-Infinity]'}}]",
        "load.scenario[0].data in x.yaml:4:84: '[-Infinity]' is no JSON (it has no -Infinity)",
    ),
    "no base64": (
        "users: 1, scenario: [{binary: '???'}]",
        "load.scenario[0].binary in x.yaml:4:38: '???' is no base64",
    ),
    "base64 with bits that are no byte's": (
        "users: 1, scenario: [{binary: AB==}]",
        "load.scenario[0].binary in x.yaml:4:38: 'AB==' is no base64: its bytes are written AA==",
    ),
    "an unknown dialect": (
        "users: 1, websocket: {dialect: socketcluster}, scenario: [{event: a, answer: b}]",
        "load.websocket.dialect in x.yaml:4:39: there is no dialect socketcluster; did you mean socketcluster",
    ),
    "channels of a plain WebSocket": (
        "users: 1, websocket: {subscribe: [a]}, scenario: [{message: x}]",
        "load.websocket.subscribe in x.yaml:4:30: channels belong to SocketCluster",
    ),
    "matching of a dialect": (
        "users: 1, websocket: {dialect: socketcluster20, match: {id_after: x}}, scenario: [{call: a}]",
        "load.websocket.match in x.yaml:4:56: the dialect socketcluster20 matches answers itself",
    ),
    "an unknown match": (
        "users: 1, websocket: {match: {id: x}}, scenario: [{message: x}]",
        "load.websocket.match in x.yaml:4:37: a match is written order",
    ),
    "a match by a number that is not sent": (
        "users: 1, websocket: {match: {id_after: x}}, scenario: [{message: x}]",
        "load.scenario[0].message in x.yaml:4:74: its answer is known by a number",
    ),
    "a tally of two steps": (
        "users: 1, websocket: {tally: x}, scenario: [{message: x}, {message: y}]",
        "load.websocket.tally in x.yaml:4:30: the server's count is compared with the messages sent",
    ),
    "an unknown key": (
        "users: 1, websocket: {rejoin: 1s}, scenario: [{message: x}]",
        "load.websocket.rejoin in x.yaml:4:30: unknown key; did you mean rejoin_after?",
    ),
    "join with ramp": (
        "users: 1, join: 1/s, ramp: 1s, scenario: [{message: x}]",
        "load.join in x.yaml:4:18: ramp is set too",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_combination_is_named_with_its_place(name: str) -> None:
    load, message = MISTAKES[name]
    (error,) = errors_of(load)
    assert error.startswith(message)


HTTP_MISTAKES = {
    "a websocket": ("users: 1, websocket: {}", "load.websocket in x.yaml:4:18: the url makes a load one of WebSockets"),
    "a pace": ("users: 1, pace: 1s", "load.pace in x.yaml:4:18: an HTTP user waits for its answer"),
    "a message": (
        "users: 1, scenario: [{message: x}]",
        "load.scenario[0].message in x.yaml:4:30: a message goes over a WebSocket",
    ),
    "a one-way request": (
        "users: 1, scenario: [{get: /, answered: false}]",
        "load.scenario[0].answered in x.yaml:4:38: every HTTP request is answered",
    ),
    "join of a rate": ("rate: 5, join: 1/s", "load.join in x.yaml:4:17: join is the rate at which users begin"),
    "expecting twice": (
        "users: 1, scenario: [{get: /, expect: a, check: {contains: b}}]",
        "load.scenario[0].expect in x.yaml:4:38: check.contains says the same",
    ),
}


@pytest.mark.parametrize("name", HTTP_MISTAKES)
def test_what_only_a_websocket_load_may_say(name: str) -> None:
    load, message = HTTP_MISTAKES[name]
    (error,) = errors_of(load, subject=HTTP)
    assert error.startswith(message)


def test_http_users_may_join_and_expect_too() -> None:
    load = parse("users: 10, join: 5/s, scenario: [{get: /, expect: [a, b]}]", subject=HTTP).load
    assert (load.joining_ns, load.scenario[0].checks.body_contains) == (2 * 10**9, ("a", "b"))


def test_the_highest_rate_of_a_websocket_load_is_not_searched_for() -> None:
    rest = "objective: {maximise: capacity, subject_to: [p99 < 5ms]}\n"
    (error,) = errors_of("users: 1, scenario: [{message: x}]", rest)
    assert error.startswith("objective.maximise in x.yaml:5:23: capacity is the highest rate of requests that come")


def test_the_bench_asks_over_http() -> None:
    steps = "measure: {acknowledged: {write: {post: /}, read: {message: x}, expect: 1}}\n"
    (error,) = errors_of("users: 1, scenario: [{message: x}]", steps)
    assert error.startswith("measure.acknowledged.read.message in x.yaml:5:51: this request is made over HTTP")
    page = SUBJECT.replace("}\n", ", metrics_url: 'ws://127.0.0.1:{port}/metrics'}\n")
    (error,) = errors_of("users: 1, scenario: [{message: x}]", subject=page)
    assert "is the URL of a WebSocket, and a page is wanted here: write http://127.0.0.1:" in error


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        ("load.rate: [1, 2]", "factors.load.rate in x.yaml:3:11: a WebSocket load has no such key to vary"),
        ("load.pace: [1s, 0s]", "factors.load.pace[1] in x.yaml:3:27: 0s is no value for load.pace"),
        ("load.websocket: [1]", "factors.load.websocket in x.yaml:3:11: load has no key websocket that can vary"),
    ],
)
def test_factors_of_the_load(factor: str, said: str) -> None:
    text = (
        f"name: n\n{SUBJECT.replace(' {t}', '')}factors: {{{factor}}}\nload: {{users: 1, scenario: [{{message: x}}]}}\n"
    )
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(text, "x.yaml")
    assert str(caught.value.problems[0]).startswith(said)


def test_the_pace_may_vary_and_keys_that_exclude_each_other_are_seen() -> None:
    text = f"name: n\n{SUBJECT.replace(' {t}', '')}factors: {{%s}}\nload: {{users: 4, %s scenario: [{{message: x}}]}}\n"
    experiment = parse_experiment(text % ("load.pace: [1s, 10/s]", ""), "x.yaml")
    paces = [experiment.load_for(setting).pace for setting in experiment.settings()]
    assert paces == [Constant(ns=10**9), Constant(ns=10**8)]
    with pytest.raises(ExperimentError, match=r"factors in x.yaml:3:1: at load.join=1: join is the rate"):
        parse_experiment(text % ("load.join: [1, 2]", "ramp: 1s,"), "x.yaml")
