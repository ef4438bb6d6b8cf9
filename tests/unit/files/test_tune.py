"""`powerband tune`: options become an experiment; mistakes name the option."""

import re
from typing import Any

import pytest

from fakes.tuned import tune_experiment
from powerband.base.errors import ExperimentError, UsageError
from powerband.files.experiment_file import parse_experiment
from powerband.files.key_options import KEY_OPTIONS
from powerband.files.resolved import resolved_yaml
from powerband.files.tune_options import load_of
from powerband.model.load import Exponential, Load
from powerband.model.websocket import Text

COMMAND = ("./server", "--port", "{port}", "-t", "{threads}")


def test_the_defaults() -> None:
    experiment = tune_experiment(COMMAND, ["threads=1..8"])
    assert experiment.name == "tune"
    assert experiment.subject.name == "server"
    assert experiment.subject.command == COMMAND
    assert experiment.factors == {"threads": (1, 2, 4, 8)}
    assert (experiment.load.users, experiment.load.rate_per_s) == (64, None)
    assert experiment.load.duration_ns == 10 * 10**9
    assert (experiment.measure.warmup_ns, experiment.measure.repeats) == (None, 12)
    assert (experiment.design.order, experiment.design.budget_ns, experiment.design.confirm) == ("race", None, 3)
    assert (experiment.objective.metric, experiment.objective.direction) == ("goodput_per_s", "maximise")
    assert [constraint.text for constraint in experiment.objective.constraints] == ["error_rate < 1%"]


def test_every_option_arrives() -> None:
    experiment = tune_experiment(
        (*COMMAND, "{mode}"),
        ["threads=1,2", "mode=a,b"],
        url="http://127.0.0.1:{port}/x?y=1",
        options={
            "--name": "mine", "--rate": "100/s", "--arrivals": "constant", "--ramp": "2s",
            "--duration": "7s", "--timeout": "1s", "--pipeline": "4", "--warmup": "2s",
            "--repeats": "3", "--order": "blocks", "--budget": "10m", "--confirm": "1", "--soak": "2m",
            "--margin": "5%", "--confidence": "90%", "--seed": "9", "--ready-log": "up: [0-9]+",
            "--ready-timeout": "9s", "--stop-signal": "INT", "--stop-grace": "8s",
        },
        slo=["p99<50ms", "errors<5%"],
        objective=("minimise", "p99"),
        env=["N={threads}"],
        request={"method": "post", "body": "hello"},
        headers=["A: b: c"],
    )  # fmt: skip
    load, measure, subject = experiment.load, experiment.measure, experiment.subject
    assert (experiment.name, experiment.design.seed, len(experiment.settings())) == ("mine", 9, 4)
    assert (load.users, load.rate_per_s, load.arrivals, load.ramp_ns) == (None, 100, "constant", 2 * 10**9)
    assert (load.duration_ns, load.timeout_ns, load.pipeline) == (7 * 10**9, 10**9, 4)
    (step,) = load.scenario
    assert (step.method, step.path, step.body, step.headers) == ("POST", "/x?y=1", "hello", (("A", "b: c"),))
    assert (measure.warmup_ns, measure.repeats) == (2 * 10**9, 3)
    design = experiment.design
    assert (design.order, design.budget_ns, design.confirm) == ("blocks", 600 * 10**9, 1)
    assert (design.soak_ns, experiment.without_soak().design.budget_ns) == (120 * 10**9, 480 * 10**9)
    assert (subject.ready.log, subject.ready.timeout_ns) == ("up: [0-9]+", 9 * 10**9)
    assert (subject.stop.signal, subject.stop.grace_ns, subject.env) == ("INT", 8 * 10**9, {"N": "{threads}"})
    objective = experiment.objective
    assert (objective.metric, objective.direction) == ("response_time_ns_p99", "minimise")
    assert (objective.margin, objective.confidence) == (0.05, 0.9)
    assert [constraint.text for constraint in objective.constraints] == ["p99<50ms", "errors<5%"]
    assert parse_experiment(resolved_yaml(experiment), "experiment.yaml") == experiment


def test_the_pause_of_users_arrives() -> None:
    load = tune_experiment(COMMAND, ["threads=1,2"], options={"--think": "{exponential: 3s}"}).load
    assert load.think == Exponential(mean=3 * 10**9)


def test_a_body_alone_is_posted() -> None:
    (step,) = tune_experiment(COMMAND, ["threads=1"], request={"body": "x"}).load.scenario
    assert (step.method, step.body) == ("POST", "x")


def test_the_rate_may_vary_without_an_option_that_makes_the_load_open() -> None:
    made = tune_experiment(COMMAND[:-2], ["load.rate=100,200"])
    loads = [made.load_for(setting) for setting in made.settings()]
    assert [(load.users, load.rate_per_s) for load in loads] == [(None, 100), (None, 200)]
    assert parse_experiment(resolved_yaml(made), "experiment.yaml") == made


def test_a_run_that_goes_on_waits_as_long_as_before_for_the_last_answers_where_the_timeout_varies() -> None:
    made = tune_experiment(COMMAND[:-2], ["load.timeout=5s,50s"])
    again = parse_experiment(resolved_yaml(made), "experiment.yaml")
    for kept in (made, again):
        assert [kept.load_for(setting).drain_ns // 10**9 for setting in kept.settings()] == [10, 50]
    given = made.model_copy(update={"load": Load(users=1, drain="20s")})
    assert parse_experiment(resolved_yaml(given), "experiment.yaml").load.drain_ns == 20 * 10**9


def test_the_server_gets_texts_as_they_were_typed() -> None:
    made = tune_experiment(
        COMMAND, ["threads=1.9,1.10,'8',0x10"], env=["V=0755"], options={"--cwd": "007", "--name": "1e3"}
    )
    assert made.factors == {"threads": (1.9, "1.10", "8", "0x10")}
    assert (made.name, made.subject.env) == ("1e3", {"V": "0755"}) and (made.subject.cwd or "").endswith("/007")


@pytest.mark.parametrize(("profile", "seconds", "repeats"), [("quick", 3, 5), ("normal", 10, 12), ("thorough", 20, 25)])
def test_profiles_set_how_much_is_measured(profile: str, seconds: int, repeats: int) -> None:
    experiment = tune_experiment(COMMAND, ["threads=1"], profile=profile)
    assert (experiment.load.duration_ns, experiment.measure.repeats) == (seconds * 10**9, repeats)
    chosen = tune_experiment(COMMAND, ["threads=1"], profile=profile, options={"--duration": "1s"})
    assert chosen.load.duration_ns == 10**9


@pytest.mark.parametrize(("budget", "repeats"), [("1m", 5), ("150s", 5), ("5m", 12), ("30m", 25), (None, 12)])
def test_a_budget_chooses_the_profile_unless_one_is_named(budget: str | None, repeats: int) -> None:
    options = {"--duration": "1s"} if budget is None else {"--duration": "1s", "--budget": budget}
    assert tune_experiment(COMMAND, ["threads=1,2"], options=options).measure.repeats == repeats
    named = tune_experiment(COMMAND, ["threads=1,2"], profile="normal", options=options)
    assert named.measure.repeats == 12


def test_a_ramp_within_the_warm_up_counts_once_in_the_budget() -> None:
    """Two trials of 10 s of warm-up, in which the users begin, and 10 s of measuring."""
    options = {"--ramp": "10s", "--warmup": "10s", "--duration": "10s", "--budget": "41s"}
    assert tune_experiment(COMMAND, ["threads=1,2"], options=options).design.budget_ns == 41 * 10**9
    with pytest.raises(ExperimentError, match=r"2 settings of at least 20\.0 s each"):
        tune_experiment(COMMAND, ["threads=1,2"], options={**options, "--budget": "39s"})


def test_a_race_of_several_settings_begins_with_short_trials_where_these_say_something() -> None:
    def screened_s(levels: str, **options: str) -> float | None:
        given = {f"--{name}": text for name, text in options.items()}
        screened_ns = tune_experiment(COMMAND, [f"threads={levels}"], options=given).screened_ns
        return None if screened_ns is None else screened_ns / 1e9

    assert screened_s("1,2,4") == 0.5
    assert screened_s("1,2") is None, "two settings"
    assert screened_s("1,2,4", rate="100") is None, "an open load is answered alike by all"
    assert screened_s("1,2,4", think="1s") is None, "users who pause"
    assert screened_s("1,2,4", duration="800ms") is None, "full trials are hardly longer"
    assert screened_s("1,2,4", order="blocks") is None


def test_a_budget_for_short_trials_is_enough_where_the_race_begins_with_them() -> None:
    many = [f"threads={','.join(map(str, range(1, 31)))}"]
    made = tune_experiment(COMMAND, many, options={"--budget": "5m", "--duration": "10s"})
    assert made.screened_ns is not None and len(made.settings()) == 30
    with pytest.raises(ExperimentError, match=r"30 settings of at least 1\.00 s each take 30\.0 s") as error:
        tune_experiment(COMMAND, many, options={"--budget": "29s", "--duration": "10s"})
    assert "load.duration" not in str(error.value), "a shorter one would change nothing"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parameters": []}, "-P: nothing to vary: name a setting of the command, for example -P threads=1..64"),
        ({"parameters": ["threads=1,2"], "options": {"--budget": "20s", "--duration": "10s"}},
         "--budget 20s: 20.0 s is too little for one round: 2 settings of at least 10.5 s each take 21.0 s, and a "
         "comparison needs two rounds: allow more time, name fewer values, or shorten load.duration"),
        ({"parameters": ["threads=1,2"], "options": {"--soak": "1s"}},
         "--soak 1s: 1.00 s is no long run: at least 2.00 s"),
        ({"parameters": ["threads=1,2"], "options": {"--soak": "10m", "--budget": "10m"}},
         "--soak 10m: the soak takes 10 min of a budget of 10 min, which leaves nothing to find an answer in: allow "
         "more time (design.budget), or a shorter soak"),
        ({"parameters": ["threads=1,2"], "options": {"--soak": "50s", "--budget": "1m", "--duration": "10s"}},
         "--budget 1m: 10.0 s beside the soak is too little for one round: 2 settings of at least 10.5 s each take "
         "21.0 s, and a comparison needs two rounds: allow more time, name fewer values, or shorten load.duration"),
        ({"parameters": ["threads=1,2"], "options": {"--order": "races"}},
         "--order races: 'races' is not allowed; did you mean race?"),
        ({"parameters": ["threads"]}, "-P threads: write NAME=VALUES, for example threads=1,2,4 or threads=1..64"),
        ({"parameters": ["threads=1,,2"]}, "-P threads=1,,2: a value is empty"),
        ({"parameters": ["threads=8..x"]}, "-P threads=8..x: '8..x' is no range: write 1..64 or 1..64 step 8, or put "
         "it in quotes if it is a text"),
        ({"parameters": ["threads=8..1"]}, "-P threads=8..1: '8..1': a range goes from the smaller to the larger"),
        ({"parameters": ["threads=1", "threads=2"]},
         "-P threads=2: threads has values already; give all of them in one -P"),
        ({"parameters": ["threads=1"], "command": ("./s", "{port}")},
         "-P threads=1: {threads} occurs nowhere in the command, the url or env; write {threads} where the server is "
         "told its value"),
        ({"parameters": ["threads=1", "thread=2"]},
         "-P thread=2: {thread} occurs nowhere in the command, the url or env; did you mean threads?"),
        ({"parameters": ["threads=1"], "command": ("./s", "{port}")},
         "-P threads=1: {threads} occurs nowhere in the command, the url or env; write {threads} where the server is "
         "told its value"),
        ({"parameters": ["threads=1"], "command": ("./s", "{port}", "{threads}", "{cores}")},
         "command[3]: {cores} stands for nothing; known: address, build, dotnet, dotnet_version, engine, folder, "
        "java, java_home, metrics_port, port, statsd_port, statsd_socket, threads"),
        ({"options": {"--users": "many"}}, "--users many: 'many' is no whole number"),
        ({"options": {"--duration": "10"}},
         "--duration 10: 10 has no unit: write 10s, 10ms or another of ns, us, ms, s, m, h"),
        ({"options": {"--users": "5", "--rate": "5"}},
         "--rate 5: users is set too; users is the closed model, rate the open one: keep one, or set the other to "
         "null where a profile changes the model"),
        ({"options": {"--arrivals": "constant"}},
         "--arrivals constant: belongs to an open load, but this one has users, who wait for their answers: write rate "
         "(--rate) in place of users, or leave this out"),
        ({"options": {"--rate": "5", "--think": "1s"}},
         "--think 1s: each arrival sends one request, and pauses after none: write users (--users) in place of rate, "
         "or leave this out"),
        ({"parameters": ["threads=1", "load.arrivals=poisson,constant"]},
         "-P load.arrivals=poisson,constant: belongs to an open load, but this one has users, so that all settings "
         "would be "
         "the same: write rate (--rate) in place of users, or vary another key"),
        ({"options": {"--stop-signal": "TREM"}}, "--stop-signal TREM: 'TREM' is not allowed; did you mean TERM?"),
        ({"slo": ["p99.9<5ms"]}, "--slo p99.9<5ms: there is no metric p99.9; did you mean p999?"),
        ({"options": {"--regret": "5"}}, "--regret 5: 5 is above 1: write 5% or 0.05"),
        ({"options": {"--regret": "1"}}, "--regret 1: 1 is all: write 1%"),
        ({"options": {"--margin": "1"}}, "--margin 1: 1 is all: write 1% or 100%"),
        ({"options": {"--allow-failed-starts": "1"}}, "--allow-failed-starts 1: 1 is all: write 1% or 100%"),
        ({"slo": ["p9<5ms"]}, "--slo p9<5ms: there is no metric p9; did you mean p99?"),
        ({"objective": ("maximise", "memry")}, "--maximise memry: there is no metric memry; did you mean memory?"),
        ({"objective": ("minimise", "memry")}, "--minimise memry: there is no metric memry; did you mean memory?"),
        ({"url": "http://127.0.0.1:{port}/a b"},
         "--url http://127.0.0.1:{port}/a b: 'http://127.0.0.1:{port}/a b' "
         "holds a character that a URL cannot: percent-encode it (a blank is %20)"),
        ({"url": "localhost:{port}/"},
         "--url localhost:{port}/: 'localhost:{port}/' is no URL: it has no scheme; write http://localhost:{port}/"),
        ({"options": {"--ready-http": "/gesundheit-ü"}},
         "--ready-http /gesundheit-ü: 'http://localhost/gesundheit-ü' holds a character that a URL cannot: "
         "percent-encode it (a blank is %20)"),
        ({"options": {"--ready-http": "http://localhost:99999/"}},
         "--ready-http http://localhost:99999/: 'http://localhost:99999/' is no URL: port out of range 0-65535"),
        ({"options": {"--duration": "9999999h"}}, "--duration 9999999h: '9999999h' is longer than 30 days"),
        ({"url": "http://127.0.0.1:8080/"},
         "--url http://127.0.0.1:8080/: the command is told {port}, which powerband picks, but the url names another "
         "port, where the server will not listen: write {port} in the url too, or the fixed port in the command"),
        ({"url": "http://example.com/"},
         "--url http://example.com/: the url must reach the server that powerband starts here: write "
         "http://127.0.0.1:{port}/"),
        ({"slo": ["p99 < 100"]},
         "--slo p99 < 100: '100' is no duration: write a number with a unit ns, us, ms, s, m or h, for example 500ms "
         "or 3s"),
        ({"command": ("./s", "{threads}")},
         "--url http://127.0.0.1:{port}/: the url has {port}, which powerband picks, but the server is not told it: "
         "write {port} in the command or env too, or the server's fixed port in the url"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_option(change: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {"command": COMMAND, "parameters": ["threads=1,2"], **change}
    with pytest.raises(ExperimentError) as caught:
        tune_experiment(**arguments)
    assert [str(problem) for problem in caught.value.problems] == [said]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"command": ()}, "no command: write it after --"),
        ({"profile": "fast"}, "there is no profile fast; known: quick, normal, thorough"),
        ({"profile": "quik"}, "there is no profile quik; did you mean quick?"),
        ({"env": ["=A"]}, "--env: write NAME=value"),
        ({"headers": ["A"]}, "--header A: write 'Name: value'"),
        ({"options": {"--think": "{a"}}, "--think {a: "),
    ],
)
def test_options_of_a_wrong_form(change: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {"command": COMMAND, "parameters": ["threads=1,2"], **change}
    with pytest.raises(UsageError) as caught:
        tune_experiment(**arguments)
    assert str(caught.value).startswith(said)


def test_mistakes_come_together() -> None:
    with pytest.raises(ExperimentError) as caught:
        tune_experiment(COMMAND, ["threads=1", "x"], options={"--users": "x", "--stop-grace": "5"}, slo=["slow"])
    named = [problem.key for problem in caught.value.problems]
    assert set(named) == {"-P x", "--users x", "--stop-grace 5", "--slo slow"}


def test_two_revisions_race_and_with_settings_every_pair_is_measured() -> None:
    alone = tune_experiment(["{revision}", "--port", "{port}"], (), revisions=("./old", "./new"))
    assert alone.name == "compare"
    assert alone.factors == {"revision": ("./old", "./new")}
    assert (alone.design.order, alone.design.confirm) == ("race", 0)
    both = tune_experiment(["s", "{threads}", "{port}"], ["threads=1,2"], env=["TAG={revision}"], revisions=("1", "2"))
    assert [setting.id for setting in both.settings()][:2] == ["threads=1,revision=1", "threads=1,revision=2"]
    assert both.factors["revision"] == ("1", "2"), "a text, whatever it looks like"
    assert (both.design.order, both.design.confirm) == ("blocks", 3)


def test_the_help_has_the_defaults_of_a_comparison_where_they_differ() -> None:
    assert KEY_OPTIONS["--order"].help.endswith("[default: race; compare with -P: blocks]")
    assert KEY_OPTIONS["--confirm"].help.endswith("compare without -P: 0]")


@pytest.mark.parametrize(
    ("parameters", "revisions", "said"),
    [
        ((), ("a", "a"), "OLD and NEW: both are a; name two that differ"),
        (("revision=1,2",), ("a", "b"), "-P revision: revision stands for OLD and NEW; choose another name"),
    ],
)
def test_mistakes_with_revisions(parameters: tuple[str, ...], revisions: tuple[str, str], said: str) -> None:
    with pytest.raises(ExperimentError, match=re.escape(said)):
        tune_experiment(["{revision}", "{port}"], parameters, revisions=revisions)


def test_a_revision_that_is_used_nowhere() -> None:
    with pytest.raises(ExperimentError, match="revision"):
        tune_experiment(["./server", "{port}"], (), revisions=("a", "b"))


def test_a_websocket_url_with_its_message() -> None:
    experiment = tune_experiment(
        COMMAND,
        ["threads=1,2"],
        url="ws://127.0.0.1:{port}/chat",
        options={"--users": "50", "--join": "10/s", "--pace": "{exponential: 6s}"},
        request={"message": '{"op":"ping"}'},
        expect=['"pong"', "1"],
        headers=["Origin: http://a"],
    )
    load = experiment.load
    assert load.websocket is not None and load.websocket.headers == (("Origin", "http://a"),)
    assert (load.users, load.joining_ns, load.pace) == (50, 5 * 10**9, Exponential(mean=6 * 10**9))
    (step,) = load.scenario
    assert (step.name, step.message) == ('{"op":"ping"}', Text(text='{"op":"ping"}'))
    assert step.checks.body_contains == ('"pong"', "1")
    assert parse_experiment(resolved_yaml(experiment), "experiment.yaml") == experiment


@pytest.mark.parametrize(
    ("url", "options", "request_", "said"),
    [
        ("ws://127.0.0.1:{port}/", {}, {}, "--url ws://127.0.0.1:{port}/: a WebSocket load sends messages: name one"),
        ("ws://127.0.0.1:{port}/", {}, {"message": "x", "body": "y"}, "--body: belongs to an HTTP request"),
        ("ws://127.0.0.1:{port}/", {"--rate": "5"}, {"message": "x"}, "--rate 5: belongs to an open load"),
        ("ws://127.0.0.1:{port}/", {"--pace": "1s", "--think": "1s"}, {"message": "x"}, "--think 1s: pace is set too"),
        ("http://127.0.0.1:{port}/", {}, {"message": "x"}, "--message: a message goes over a WebSocket"),
        ("http://127.0.0.1:{port}/", {"--pace": "1s"}, {}, "--pace 1s: an HTTP user waits for its answer"),
    ],
)
def test_mistakes_with_messages_name_the_option(
    url: str, options: dict[str, str], request_: dict[str, str], said: str
) -> None:
    with pytest.raises((ExperimentError, UsageError), match=re.escape(said)):
        tune_experiment(COMMAND, ["threads=1,2"], url=url, options=options, request=request_)


def test_powerband_load_takes_the_same() -> None:
    load = load_of("wss://127.0.0.1:8080/x", {"--users": "3"}, {"message": "ping"}, ["pong"], [])
    assert load.websocket is not None and load.scenario[0].message == Text(text="ping")


@pytest.mark.parametrize(("option", "text"), [("--arrivals", "constant"), ("--max-in-flight", "50")])
def test_powerband_load_refuses_what_is_of_an_open_load_without_a_rate(option: str, text: str) -> None:
    with pytest.raises(ExperimentError, match=f"{option} {text}: belongs to an open load, but this one has users"):
        load_of("http://127.0.0.1:8080/", {option: text}, {}, [], [])
    assert load_of("http://127.0.0.1:8080/", {option: text, "--rate": "5"}, {}, [], []).rate_per_s == 5
