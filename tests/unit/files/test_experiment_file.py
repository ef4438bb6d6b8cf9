"""Every mistake is reported with its place; short forms have the documented meaning."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from powerband.base.errors import ExperimentError, UsageError
from powerband.files.experiment_file import load_experiment, load_subject, parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.constraint import parse_constraint
from powerband.model.experiment import Experiment
from powerband.model.load import Constant, Exponential, Uniform
from powerband.model.plan import Setting
from powerband.model.subjects import render_command

GOOD = """\
name: demo
subject: {command: "./server --port {port} -t {threads}"}
factors: {threads: [1, 2]}
load: {users: 5}
"""


def parse(text: str, profile: str | None = None, **overrides: str) -> Experiment:
    return parse_experiment(
        text, "x.yaml", profile, {key.replace("__", "."): value for key, value in overrides.items()}
    )


def with_lines(*lines: str, without: str = "") -> str:
    kept = [line for line in GOOD.splitlines() if not (without and line.startswith(without))]
    return "\n".join([*kept, *lines]) + "\n"


def errors_of(text: str, profile: str | None = None) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        parse_experiment(text, "x.yaml", profile, to_run=True)
    return [str(problem) for problem in caught.value.problems]


# Each has the text, and the whole message, its place included.
MISTAKES = {
    "wrong key at the top": (
        with_lines("mesure: {repeats: 3}"),
        "mesure in x.yaml:5:1: unknown key; did you mean measure?",
    ),
    "what is no range": (
        with_lines("factors: {threads: [1, 8..x]}", without="factors"),
        "factors.threads[1] in x.yaml:4:24: '8..x' is no range: write 1..64 or 1..64 step 8, or put it in quotes if it "
        "is a text",
    ),
    "levels that are equal": (
        with_lines("factors: {threads: [1, true]}", without="factors"),
        "factors.threads[1] in x.yaml:4:24: value true is equal to value 1: put one of them in quotes, as a text",
    ),
    "keys to be merged": (
        with_lines("load: {<<: {users: 5}, users: 4}", without="load"),
        "load.<< in x.yaml:4:8: keys are not merged here: write them out",
    ),
    "series without a page": (
        with_lines("measure: {series: [jobs]}"),
        "measure.series in x.yaml:5:19: the server has no metrics page to read them from: name it in "
        "subject.metrics_url",
    ),
    "series of a page elsewhere": (
        GOOD.replace("}\"}", "}\", metrics_url: http://a/m}") + "measure: {series: [jobs]}\n",
        "measure.series in x.yaml:5:19: subject.metrics_url: a is not this machine, and load goes only where it is "
        "wanted: add --allow-host a (in an experiment file: allow_hosts: [a]) if that server is yours to load",
    ),
    "a page over https": (
        GOOD.replace("}\"}", "}\", metrics_url: https://127.0.0.1/m}") + "measure: {series: [jobs]}\n",
        "subject.metrics_url in x.yaml:2:72: metrics are read over http alone, not https: name an http:// address of "
        "that page",
    ),
    "factors that are no mapping": (
        GOOD.replace(" -t {threads}", "").replace("{threads: [1, 2]}", "[threads]"),
        "factors in x.yaml:3:10: ['threads'] must be a mapping of keys to values",
    ),
    "set values that are no mapping": (
        with_lines("subject: {use: reference, set: [threads=8]}", without="subject"),
        "subject.set in x.yaml:4:32: ['threads=8'] must be a mapping of keys to values",
    ),
    "wrong key below": (
        with_lines("load: {users: 5, duraton: 3s}", without="load"),
        "load.duraton in x.yaml:4:18: unknown key; did you mean duration?",
    ),
    "wrong key in a step": (
        with_lines("load: {users: 5, scenario: [{get: /, cheks: {status: 200}}]}", without="load"),
        "load.scenario[0].cheks in x.yaml:4:38: unknown key; did you mean check?",
    ),
    "wrong method key": (
        with_lines("load: {users: 5, scenario: [{gett: /}]}", without="load"),
        "load.scenario[0].gett in x.yaml:4:30: unknown key; did you mean get?",
    ),
    "two methods": (
        with_lines("load: {users: 5, scenario: [{get: /, post: /}]}", without="load"),
        "load.scenario[0].post in x.yaml:4:38: a step has one request, and this one has get already",
    ),
    "duration without unit": (
        with_lines("load: {users: 5, duration: 60}", without="load"),
        "load.duration in x.yaml:4:28: 60 has no unit: write 60s, 60ms or another of ns, us, ms, s, m, h",
    ),
    "wrong unit": (
        with_lines("load: {users: 5, duration: 60 sec}", without="load"),
        "load.duration in x.yaml:4:28: '60 sec' is no duration: write a number with a unit ns, us, ms, s, m or h, "
        "for example 500ms or 3s",
    ),
    "wrong rate": (
        with_lines("load: {rate: fast}", without="load"),
        "load.rate in x.yaml:4:14: 'fast' is no rate: write a number per second, for example 100 or 100/s",
    ),
    "wrong think": (
        with_lines("load: {users: 5, think: {expo: 3s}}", without="load"),
        "load.think in x.yaml:4:25: a time is written 3s, {uniform: [1s, 2s]} or {exponential: 3s}",
    ),
    "think without unit": (
        with_lines("load: {users: 5, think: {uniform: [1, 2s]}}", without="load"),
        "load.think.uniform in x.yaml:4:35: 1 has no unit: write 1s, 1ms or another of ns, us, ms, s, m, h",
    ),
    "think backwards": (
        with_lines("load: {users: 5, think: {uniform: [2s, 1s]}}", without="load"),
        "load.think.uniform in x.yaml:4:35: the first time of uniform is longer than the second",
    ),
    "duplicate key": (
        with_lines("measure: {repeats: 3}", "measure: {repeats: 4}"),
        "measure in x.yaml:6:1: duplicate key: it stands on line 5 already; keep one of the two",
    ),
    "users and rate": (
        with_lines("load:", "  users: 5", "  rate: 100", without="load"),
        "load.rate in x.yaml:6:3: users is set too (on line 5); users is the closed model, rate the open one: "
        "keep one, or set the other to null where a profile changes the model",
    ),
    "neither users nor rate": (
        with_lines("load: {duration: 3s}", without="load"),
        "load in x.yaml:4:7: set users (closed: each waits for its answer) or rate (open: requests per second)",
    ),
    "requests_per_user in an open load": (
        with_lines("load: {rate: 5, requests_per_user: 3}", without="load"),
        "load in x.yaml:4:7: requests_per_user needs users; an open load (rate) has none",
    ),
    "true is no number": (
        with_lines("load: {users: true}", without="load"),
        "load.users in x.yaml:4:15: true is no number",
    ),
    "no whole number": (
        with_lines("load: {users: 1.5}", without="load"),
        "load.users in x.yaml:4:15: 1.5 is no whole number",
    ),
    "too small": (
        with_lines("measure: {repeats: 0}"),
        "measure.repeats in x.yaml:5:20: 0 must be at least 1",
    ),
    "wrong choice": (
        with_lines("load: {rate: 5, arrivals: poison}", without="load"),
        "load.arrivals in x.yaml:4:27: 'poison' is not allowed; did you mean poisson?",
    ),
    "no list": (
        with_lines("load: {users: 5, scenario: {get: /}}", without="load"),
        "load.scenario in x.yaml:4:28: {'get': '/'} must be a list",
    ),
    "path without slash": (
        with_lines("load: {users: 5, scenario: [{get: test}]}", without="load"),
        "load.scenario[0].get in x.yaml:4:35: a path starts with / and holds no space, for example /test?id=1",
    ),
    "unknown metric in objective": (
        with_lines("objective: {maximise: godput}"),
        "objective.maximise in x.yaml:5:23: there is no metric godput; did you mean goodput?",
    ),
    "both directions": (
        with_lines("objective: {maximise: goodput, minimise: p99}"),
        "objective.minimise in x.yaml:5:32: an objective either maximises or minimises",
    ),
    "a metric beside a direction that names one": (
        with_lines("objective: {maximise: goodput, metric: p99}"),
        "objective.metric in x.yaml:5:32: maximise says this already: keep one of the two",
    ),
    "constraint in a wrong unit": (
        with_lines("objective: {maximise: goodput, subject_to: [p99 < 5%]}"),
        "objective.subject_to[0] in x.yaml:5:45: '5%' is no duration: write a number with a unit "
        "ns, us, ms, s, m or h, for example 500ms or 3s",
    ),
    "direction alone": (
        with_lines("objective: {direction: minimise}"),
        "objective in x.yaml:5:12: of goodput more is better: write --maximise goodput_per_s, or {maximise: "
        "goodput_per_s} in a file",
    ),
    "margin of a bare 1": (
        with_lines("objective: {maximise: goodput, margin: 1}"),
        "objective.margin in x.yaml:5:40: 1 is all: write 1% or 100%",
    ),
    "constraint that always holds": (
        with_lines("objective: {maximise: goodput, subject_to: [errors < 1]}"),
        "objective.subject_to[0] in x.yaml:5:45: 'errors < 1' holds always, since 1 is all: write errors < 1%",
    ),
    "constraint that never holds": (
        with_lines("objective: {maximise: goodput, subject_to: [p99 < 1s, errors == 5]}"),
        "objective.subject_to[1] in x.yaml:5:55: 'errors == 5' holds never, since 1 is all: write errors == 5%",
    ),
    "invariant that never holds": (
        with_lines("measure: {invariants: host_busy_share > 80}"),
        "measure.invariants in x.yaml:5:23: 'host_busy_share > 80' holds never, since 1 is all: write "
        "host_busy_share > 80%",
    ),
    "claim that never holds": (
        with_lines('claims: [{id: a, says: b, holds: "errors[threads=1] > 5"}]'),
        "claims[0].holds in x.yaml:5:34: `errors[threads=1] > 5` holds never, since 1 is all: write 5%",
    ),
    "no constraint": (
        with_lines("objective: {maximise: goodput, subject_to: [fast]}"),
        "objective.subject_to[0] in x.yaml:5:45: 'fast' is no condition: write metric, comparison, threshold, "
        "for example p99 < 50ms",
    ),
    "claim with an unknown metric": (
        with_lines('claims: [{id: a, says: b, holds: "erors == 0"}]'),
        "claims[0].holds in x.yaml:5:34: there is no metric erors; did you mean errors?",
    ),
    "claim without a unit": (
        with_lines('claims: [{id: a, says: b, holds: "p99[threads=1] < 50000000"}]'),
        "claims[0].holds in x.yaml:5:34: in `p99[threads=1] < 50000000`: '50000000' is no duration: write a number "
        "with a unit ns, us, ms, s, m or h, for example 500ms or 3s",
    ),
    "claim with an unknown factor": (
        with_lines('claims: [{id: a, says: b, holds: "errors[thread=1] == 0"}]'),
        "claims[0].holds in x.yaml:5:34: there is no parameter thread; did you mean threads?",
    ),
    "claim with an unknown level": (
        with_lines('claims: [{id: a, says: b, holds: "errors[threads=3] == 0"}]'),
        "claims[0].holds in x.yaml:5:34: parameter threads has no value 3; known: 1, 2",
    ),
    "claims with one id": (
        with_lines("claims:", "  - {id: a, says: b, holds: p99 > 0}", "  - {id: a, says: c, holds: p99 > 0}"),
        "claims[1].id in x.yaml:7:10: another claim has the id a already",
    ),
    "claim without an expression": (
        with_lines("claims: [{id: a, says: b}]"),
        "claims[0].holds in x.yaml:5:10: required, but missing",
    ),
    "factor in no template": (
        with_lines("factors: {threads: [1, 2], queue: [1]}", without="factors"),
        "factors.queue in x.yaml:4:28: {queue} occurs nowhere in the command, the url or env; known: threads",
    ),
    "factor of a reserved name": (
        with_lines("factors: {threads: [1, 2], port: [1]}", without="factors"),
        "factors.port in x.yaml:4:28: port is filled in by powerband itself; give the parameter another name",
    ),
    "empty levels": (
        with_lines("factors: {threads: []}", without="factors"),
        "factors.threads in x.yaml:4:20: a parameter needs at least one value",
    ),
    "level twice": (
        with_lines("factors: {threads: [1, 2, 1]}", without="factors"),
        "factors.threads[2] in x.yaml:4:27: value 1 stands there twice; to enter a setting again as if it were "
        "different, add a parameter named aa or label.NAME, which reaches no command",
    ),
    "bad range": (
        with_lines("factors: {threads: 64..1}", without="factors"),
        "factors.threads in x.yaml:4:20: '64..1': a range goes from the smaller to the larger",
    ),
    "level that is none": (
        with_lines("factors: {threads: [1, [2]]}", without="factors"),
        "factors.threads[1] in x.yaml:4:24: a value is a number, a text, true or false; several stand in brackets",
    ),
    "levels without brackets": (
        with_lines("factors:", "  threads: 1,2", without="factors"),
        "factors.threads in x.yaml:5:12: several values stand in brackets, [1,2], and one text in quotes",
    ),
    "too many settings": (
        with_lines("factors: {threads: 1..200 step 1, aa: 1..200 step 1}", without="factors"),
        "factors in x.yaml:4:1: 40000 settings are more than 10000",
    ),
    "unknown field of the load": (
        with_lines("factors: {threads: [1], load.user: [5]}", without="factors"),
        "factors.load.user in x.yaml:4:25: load has no key user that can vary; did you mean users?",
    ),
    "rate varies in a closed load": (
        with_lines("factors: {threads: [1], load.rate: [5]}", without="factors"),
        "factors.load.rate in x.yaml:4:25: load sets users, so rate cannot vary; users and rate exclude each other",
    ),
    "arrivals of users": (
        with_lines("load: {users: 5, arrivals: constant}", without="load"),
        "load.arrivals in x.yaml:4:18: belongs to an open load, but this one has users, who wait for their answers: "
        "write "
        "rate (--rate) in place of users, or leave this out",
    ),
    "users who ramp from a rate": (
        with_lines("load: {users: 5, ramp: 1s, ramp_from: 10}", without="load"),
        "load.ramp_from in x.yaml:4:28: belongs to an open load, but this one has users, who wait for their answers: "
        "write "
        "rate (--rate) in place of users, or leave this out",
    ),
    "arrivals of users vary": (
        with_lines("factors: {threads: [1], load.arrivals: [poisson, constant]}", without="factors"),
        "factors.load.arrivals in x.yaml:4:25: belongs to an open load, but this one has users, so that all settings "
        "would "
        "be the same: write rate (--rate) in place of users, or vary another key",
    ),
    "pause of an arrival's only request": (
        with_lines("load: {rate: 5, think: {uniform: [1s, 2s]}}", without="load"),
        "load.think in x.yaml:4:17: each arrival sends one request, and pauses after none: write users (--users) in "
        "place of rate, or leave this out",
    ),
    "pause of that request itself": (
        with_lines("load: {rate: 5, scenario: [{get: /, think: 1s}]}", without="load"),
        "load.scenario[0].think in x.yaml:4:37: each arrival sends one request, and pauses after none: write users "
        "(--users) in place of rate, or leave this out",
    ),
    "pause of that request varies": (
        GOOD.replace("users", "rate").replace("[1, 2]", "[1], load.think: [1s, 2s]"),
        "factors.load.think in x.yaml:3:25: each arrival sends one request, and pauses after none: write users "
        "(--users) in place of rate, or vary another key",
    ),
    "rate to ramp from without a ramp": (
        with_lines("load: {rate: 5, ramp_from: 2}", without="load"),
        "load.ramp_from in x.yaml:4:17: nothing ramps up: write ramp (--ramp), or leave this out",
    ),
    "placeholder without a factor": (
        with_lines("subject: {command: './s {port} {threads} {cores}'}", without="subject"),
        "subject.command in x.yaml:4:20: {cores} stands for nothing; known: address, build, dotnet, dotnet_version, "
        "engine, folder, java, java_home, metrics_port, port, statsd_port, statsd_socket, threads",
    ),
    "port in the url only": (
        with_lines("subject: {command: './s {threads}'}", without="subject"),
        "subject.command in x.yaml:4:20: the url has {port}, which powerband picks, but the server is not told it: "
        "write {port} in the command or env too, or the server's fixed port in the url",
    ),
    "a build that varies": (
        with_lines("subject: {command: './s {port} {threads}', build: 'make {threads}'}", without="subject"),
        "subject.build in x.yaml:4:51: {threads} cannot stand here: the server is built once, before the first trial, "
        "so only parameters that do not vary, set values and {engine}, {folder}, {build} and those of a JDK or .NET "
        "SDK have one value",
    ),
    "dotnet without a version": (
        with_lines("subject: {command: '{dotnet} x.dll {port} {threads}'}", without="subject"),
        "subject.command in x.yaml:4:20: {dotnet} and {dotnet_version} are those of a .NET SDK that powerband finds: "
        "say which version is the least that does, for example dotnet: 8",
    ),
    "java without a version": (
        with_lines("subject: {command: '{java} -jar x.jar {port} {threads}'}", without="subject"),
        "subject.command in x.yaml:4:20: {java} and {java_home} are those of a JDK that powerband finds: say which "
        "version is the least that does, for example jdk: 17",
    ),
    "a build folder that nothing fills": (
        with_lines("subject: {command: '{build}/s {port} {threads}'}", without="subject"),
        "subject.command in x.yaml:4:20: {build} is the folder that subject.build fills, and there is no build",
    ),
    "a metric of the subject's own that is not defined": (
        with_lines("objective: {maximise: app_rate_per_s}", without="objective"),
        "objective in x.yaml:5:12: measure.metrics defines no app_rate_per_s; define it there",
    ),
    "open quote in the command": (
        with_lines("""subject: {command: "./s '{port} {threads}"}""", without="subject"),
        "subject.command in x.yaml:4:20: No closing quotation",
    ),
    "no command": (
        "subject: {url: 'http://127.0.0.1:8080/'}\nload: {users: 5}\n",
        "subject.command in x.yaml:1:10: required, but missing",
    ),
    "two ways to be ready": (
        with_lines("subject: {command: './s {port} {threads}', ready: {http: /, log: up}}", without="subject"),
        "subject.ready in x.yaml:4:51: http and log are both set; keep the one that shows best when the server can "
        "serve",
    ),
    "unreadable pattern": (
        with_lines("subject: {command: './s {port} {threads}', ready: {log: '('}}", without="subject"),
        "subject.ready.log in x.yaml:4:57: '(' is no regular expression: missing ), unterminated subpattern "
        "at position 0",
    ),
    "unknown subject": (
        with_lines("subject: {use: referense}", without="subject"),
        "subject.use in x.yaml:4:16: there is no server referense; did you mean reference?",
    ),
    "unknown parameter": (
        with_lines("subject: {use: reference, set: {wiat: 3ms}}", without="subject"),
        "subject.set.wiat in x.yaml:4:33: server reference has no parameter wiat; did you mean wait?",
    ),
    "parameter of a wrong type": (
        with_lines("subject: {use: reference, set: {wait: 3}}", without="subject"),
        "subject.set.wait in x.yaml:4:39: 3 has no unit: write 3s, 3ms or another of ns, us, ms, s, m, h",
    ),
    "parameter's choice": (
        with_lines("subject: {use: reference, set: {model: fixd}}", without="subject"),
        "subject.set.model in x.yaml:4:40: fixd is not one of its choices; did you mean fixed?",
    ),
    "factor that the subject does not know": (
        "subject: reference\nload: {users: 5}\nfactors: {thread: [1]}\n",
        "factors.thread in x.yaml:3:11: server reference has no parameter thread; did you mean threads?",
    ),
    "set and varied": (
        with_lines("subject: {use: reference, set: {threads: 3}}", without="subject"),
        "subject.set.threads in x.yaml:4:33: threads varies (factors.threads), and the values there decide: leave it "
        "out here",
    ),
    "no subject": (
        with_lines(without="subject"),
        "subject in x.yaml:1:1: required, but missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_place(name: str) -> None:
    text, message = MISTAKES[name]
    assert errors_of(text) == [message]


def test_an_old_run_with_a_claim_without_a_unit_is_read() -> None:
    assert parse(MISTAKES["claim without a unit"][0]).claims[0].holds == "p99[threads=1] < 50000000"


@pytest.mark.parametrize("what", ["constraint", "invariant", "claim"])
def test_an_old_run_with_what_never_holds_is_read(what: str) -> None:
    assert parse(MISTAKES[f"{what} that never holds"][0]).load.users == 5


def test_a_share_that_is_all_is_written_in_percent() -> None:
    shares = "margin: 100%, allow_unserved: 100%, allow_failed_starts: 100%"
    text = with_lines(f"objective: {{maximise: goodput, {shares}}}")
    made = parse_experiment(text, "x.yaml", to_run=True)
    assert made.objective.margin == made.objective.allow_unserved == made.objective.allow_failed_starts == 1
    assert parse_experiment(resolved_yaml(made), "x.yaml", to_run=True) == made
    bare = text.replace("100%", "1")
    assert len(errors_of(bare)) == 3 and parse(bare) == made, "an old run is read"


def test_an_old_run_of_users_with_arrivals_is_read() -> None:
    assert parse(with_lines("load: {users: 5, arrivals: constant}", without="load")).load.users == 5


def test_all_mistakes_are_reported_together_in_the_order_of_lines() -> None:
    text = with_lines("measure: {repets: 3, warmup: 5}", "objective: {maximise: godput}", "measure: {}")
    found = errors_of(text)
    assert [line.split(":")[1] for line in found] == ["5", "5", "6", "7"]
    with pytest.raises(ExperimentError, match=r"^4 errors\n  measure"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", r"x.yaml:\d+:\d+: not valid YAML"),
        ("- a", "x.yaml:1:1: an experiment is a mapping"),
        ("a: {b: x {c}}", "within {...} a text that holds braces needs quotes"),
        ("a:\n\tb: 1", "indent with spaces in place of the tab"),
        ("a: &a [*a]", "alias contains itself"),
        ("[1, 2]: 3", "a key must be plain text"),
        ("{" * 1200, "x.yaml"),  # deeper than Python recurses; ruamel's time grows with the square of the depth
    ],
)
def test_what_is_no_yaml_of_ours(text: str, said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        parse(text)


def test_an_empty_file_lacks_what_is_needed() -> None:
    assert [message.split(" ")[0] for message in errors_of("")] == ["subject", "load"]


def test_short_forms() -> None:
    experiment = parse("""
subject: {command: "./server --port {port}", env: {N: 5}, ready: {log: up}, stop: {signal: INT, grace: 1m}}
load:
  rate: 100/s
  think: {exponential: 3s}
  scenario:
    - {get: /test}
    - {post: /x, body: hello, headers: {A: 1}, check: {status: 200, contains: ok}, think: 1s, name: second}
    - {delete: /x, think: {uniform: [1s, 2s]}}
measure: {warmup: auto}
objective: {minimise: p99, subject_to: error_rate < 1%}
""")
    assert experiment.name == "x"
    assert experiment.subject.name == "server"
    assert experiment.subject.command == ("./server", "--port", "{port}")
    assert experiment.subject.env == {"N": "5"}
    assert experiment.subject.stop.grace_ns == 60 * 10**9
    assert experiment.load.rate_per_s == 100
    assert experiment.load.think == Exponential(mean=3 * 10**9)
    first, second, third = experiment.load.scenario
    assert (first.name, first.method, first.path) == ("GET /test", "GET", "/test")
    assert (second.name, second.body, second.headers) == ("second", "hello", (("A", "1"),))
    assert (second.checks.status, second.checks.body_contains) == ((200,), ("ok",))
    assert second.think == Constant(ns=10**9)
    assert third.method == "DELETE"
    assert third.think == Uniform(min=10**9, max=2 * 10**9)
    assert experiment.measure.warmup_ns is None
    assert (experiment.objective.metric, experiment.objective.direction) == ("response_time_ns_p99", "minimise")
    assert experiment.objective.constraints[0].threshold == 0.01


def test_yaml_12_reads_on_and_times_as_text() -> None:
    experiment = parse(with_lines("question: on", "source: 12:30"))
    assert (experiment.question, experiment.source) == ("on", "12:30")


def test_a_folded_text_is_one_line() -> None:
    experiment = parse(with_lines("question: >-", "  one line", "  and another", "", "  and a third"))
    assert experiment.question == "one line and another\nand a third"


def test_ranges_and_single_levels() -> None:
    experiment = parse(with_lines("factors: {threads: 1..8, aa: same}", without="factors"))
    assert experiment.factors == {"threads": (1, 2, 4, 8), "aa": ("same",)}


AS_WRITTEN = """\
subject:
  command: [./server, --port, "{port}", -t, "{threads}", -m, "{mode}", --mask, 0x1F, --tls, 1.0]
  env: {V: 0755, E: 1e3, ON: True, NONE: }
  set: {mode: 007}
factors: {threads: [1.9, 1.10, 007, True, 1.0, 8, "1..x"], load.users: [0x10]}
load: {users: 5, duration: 5s}
"""


def test_the_server_gets_levels_env_and_arguments_as_they_are_written() -> None:
    made = parse_experiment(AS_WRITTEN, "x.yaml", to_run=True)
    assert made.factors == {"threads": (1.9, "1.10", "007", "True", "1.0", 8, "1..x"), "load.users": (16,)}
    assert made.subject.command is not None and made.subject.command[-4:] == ("--mask", "0x1F", "--tls", "1.0")
    assert made.subject.env == {"V": "0755", "E": "1e3", "ON": "True", "NONE": None}
    assert made.subject.set == {"mode": "007"}
    assert parse(resolved_yaml(made)) == made, "and a run is read with the same levels"


def test_settings_that_differ_only_in_what_the_server_does_not_read_are_one() -> None:
    factors = "{model: [fixed, bounded, cached], threads: [8, 64], queue: [10, 100]}"
    text = f"subject: reference\nfactors: {factors}\nload: {{users: 1}}\n"
    assert [setting.id for setting in parse(text).settings()] == [
        "model=fixed,threads=8,queue=10",
        "model=fixed,threads=64,queue=10",
        "model=bounded,threads=8,queue=10",
        "model=bounded,threads=8,queue=100",
        "model=cached,threads=8,queue=10",
    ]
    again = f"{text}design: {{order: race, explore_above: 5}}"
    assert not parse(again).explores and parse(again.replace(": 5}", ": 4}")).explores
    entered_twice = parse(text.replace("threads: [8, 64]", "aa: [1, 2]")).settings()
    assert [setting.as_dict()["aa"] for setting in entered_twice].count(2) == 4


def test_what_is_sent_is_sent_as_it_is_written() -> None:
    step = "{put: /, headers: {Api-Version: 1.10, X-Id: 00042}, body: 007, expect: [00, ok]}"
    made = parse_experiment(
        with_lines(f"load: {{users: 1, scenario: [{step}]}}", without="load"), "x.yaml", to_run=True
    )
    (sent,) = made.load.scenario
    assert sent.headers == (("Api-Version", "1.10"), ("X-Id", "00042"))
    assert (sent.body, sent.checks.body_contains) == ("007", ("00", "ok"))
    assert parse(resolved_yaml(made)) == made


@pytest.mark.parametrize(("header", "refused"), [("keep-alive, Close", True), ("keep-alive", False)])
def test_requests_are_not_lined_up_on_a_connection_that_a_step_closes(header: str, refused: bool) -> None:
    step = f'{{get: /, headers: {{connection: "{header}"}}}}'
    text = with_lines(f"load: {{users: 1, pipeline: 2, scenario: [{step}]}}", without="load")
    assert parse(text).load.pipeline == 2, "an earlier run can be read"
    with pytest.raises(ExperimentError, match="nothing to line up") if refused else nullcontext():
        parse_experiment(text, "x.yaml", to_run=True)


def test_conditions_on_levels_are_read_like_them() -> None:
    text = """\
subject:
  command: [./server, "{port}", "{version}", "{threads}"]
  parameters:
    version: {type: string, default: 1.10, help: x}
    threads: {type: int, default: 0x8, help: x, used_when: {version: 1.10}}
factors: {version: [1.10, 1.9]}
load: {users: 5}
"""
    made = parse_experiment(text.replace("{version: 1.10}", "{version: [1.10]}"), "x.yaml", to_run=True)
    threads, version = made.subject.parameters["threads"], made.subject.parameters["version"]
    assert (threads.default, version.default) == (8, "1.10")
    assert [threads.is_used(setting.as_dict()) for setting in made.settings()] == [True, False]


def test_choices_are_read_like_the_levels() -> None:
    text = """\
subject:
  command: [./server, "{port}", "{version}"]
  parameters: {version: {type: choice, default: 1.10, choices: [1.9, 1.10], help: x}}
factors: {version: [1.10, 1.9]}
load: {users: 5}
"""
    made = parse_experiment(text, "x.yaml", to_run=True)
    version = made.subject.parameters["version"]
    assert (made.factors["version"], version.default, version.choices) == (("1.10", 1.9), "1.10", (1.9, "1.10"))


def test_levels_of_a_parameter_with_a_type_keep_it() -> None:
    text = "subject: reference\nload: {users: 5}\nfactors: {threads: [0x10, 020]}\n"
    assert parse_experiment(text, "x.yaml", to_run=True).factors == {"threads": (16, 20)}


@pytest.mark.parametrize("levels", ["0.5..4", "[1..2, '1..2', '.5..2']"])
def test_a_run_s_own_file_can_be_run_and_has_the_same_levels(levels: str) -> None:
    made = parse_experiment(with_lines(f"factors: {{threads: {levels}}}", without="factors"), "x.yaml", to_run=True)
    again = parse_experiment(resolved_yaml(made), "x.yaml", to_run=True)
    assert again == made and [each.id for each in again.settings()] == [each.id for each in made.settings()]


def test_a_run_whose_levels_are_whole_floats_is_read_as_it_was() -> None:
    ladder = parse_experiment(with_lines("factors: {threads: 0.5..4}", without="factors"), "x.yaml", to_run=True)
    assert parse(with_lines("factors: {threads: [0.5, 1.0, 2.0, 4.0]}", without="factors")) == ladder


def test_a_value_that_is_set_is_passed_on_as_it_is_written() -> None:
    given = {"factors.threads": "[1.10, 1..4]", "subject.env.V": "0755"}
    made = parse_experiment(GOOD, "x.yaml", overrides=given, to_run=True)
    assert made.factors == {"threads": ("1.10", 1, 2, 4)} and made.subject.env == {"V": "0755"}


def test_a_list_may_hold_ranges() -> None:
    text = with_lines("factors: {threads: [1..4, 8, '1..4']}", without="factors")
    assert parse_experiment(text, "x.yaml", to_run=True).factors == {"threads": (1, 2, 4, 8, "1..4")}


def test_a_name_may_be_of_any_language() -> None:
    experiment = parse(
        "subject: {command: './s {port} {스레드}'}\nfactors: {스레드: [1, 2]}\nload: {users: 1}\n"
        "claims: [{id: a, says: b, holds: 'goodput[스레드=2] > goodput[스레드=1]'}]\n"
    )
    assert render_command(experiment.subject, experiment.settings()[1], {"port": "80"}) == ["./s", "80", "2"]


def test_labels_reach_no_command() -> None:
    experiment = parse(with_lines("factors: {threads: [2], label.run: [a, b]}", without="factors"))
    assert len(experiment.settings()) == 2


def test_the_default_scenario_is_the_path_of_the_url() -> None:
    text = with_lines(
        "subject: {command: './s {port} {threads}', url: 'http://127.0.0.1:{port}/a?b=1'}", without="subject"
    )
    (step,) = parse(text).load.scenario
    assert (step.name, step.path) == ("GET /a?b=1", "/a?b=1")


def test_load_factors_change_the_load() -> None:
    text = "subject: {command: './s {port}'}\nload: {duration: 3s}\nfactors: {load.users: [4, 8], load.think: [1s]}\n"
    experiment = parse(text.replace("{duration", "{users: null, duration").replace("users: null, ", "users: 1, "))
    load = experiment.load_for(Setting((("load.users", 8), ("load.think", "1s"))))
    assert (load.users, load.think) == (8, Constant(ns=10**9))


def test_a_budget_may_be_shorter_than_the_most_that_users_take_who_leave() -> None:
    text = with_lines("load: {users: 5, requests_per_user: 9, duration: 1h}", "design: {budget: 10m}", without="load")
    assert parse(text).design.budget_ns == 600 * 10**9
    with pytest.raises(ExperimentError, match="is too little for one round"):
        parse(text.replace("requests_per_user: 9, ", ""))


def test_keys_of_an_open_load_may_stand_and_vary_beside_a_rate() -> None:
    beside = "factors: {threads: [1], load.arrivals: [poisson, constant], load.max_in_flight: [5, 9]}"
    load = "load: {rate: 5, arrivals: constant, ramp: 1s, ramp_from: 2, max_in_flight: 7}"
    text = with_lines(beside, load, without="factors").replace("load: {users: 5}\n", "")
    made = parse_experiment(text, "x.yaml", to_run=True)
    assert len(made.settings()) == 4 and made.load.max_in_flight == 7


def test_an_open_load_may_pause_between_requests_and_vary_its_ramp() -> None:
    load = "{rate: 5, think: 1s, ramp_from: 2, scenario: [{get: /a}, {get: /b}]}"
    text = with_lines(f"load: {load}", without="load").replace("[1, 2]", "[1], load.ramp: [1s, 2s]")
    assert parse(resolved_yaml(parse_experiment(text, "x.yaml", to_run=True))).load.think == Constant(ns=10**9)


def test_an_old_run_of_arrivals_that_pause_after_their_only_request_is_read() -> None:
    assert parse(MISTAKES["pause of an arrival's only request"][0]).load.rate_per_s == 5


def test_what_resolved_files_have_for_any_load_is_no_mistake() -> None:
    text = with_lines("load: {users: 5, arrivals: poisson, ramp_from: 0.0, max_in_flight: 10000}", without="load")
    assert parse(text).load.users == 5


def test_a_profile_is_merged_deeply() -> None:
    text = with_lines("profiles: {smoke: {load: {duration: 1s}, factors: {threads: [2]}}}")
    experiment = parse(text, "smoke")
    assert (experiment.load.users, experiment.load.duration_ns) == (5, 10**9)
    assert experiment.factors == {"threads": (2,)}
    assert experiment.profile == "smoke"
    with pytest.raises(UsageError, match=r"x.yaml has no profile smoek; did you mean smoke\?"):
        parse(text, "smoek")


SHORT = with_lines("objective: p99", "cluster: bench-1:6379", "profiles: {smoke: {objective: {confidence: 90%}}}")


def test_what_is_laid_over_a_short_form_keeps_what_that_says() -> None:
    made = parse(SHORT, "smoke", cluster__nodes="[a]")
    assert (made.objective.metric, made.objective.direction) == ("response_time_ns_p99", "minimise")
    assert made.objective.confidence == 0.9
    assert made.cluster is not None and (made.cluster.address, made.cluster.nodes) == ("bench-1:6379", ("a",))
    subject = parse("subject: reference\nfactors: {threads: [1]}\nload: {users: 1}", subject__set__wait="8ms").subject
    assert subject.name == "reference" and subject.set == {"wait": "8ms"}


@pytest.mark.parametrize("written", ["p99", "{minimise: p99}", "{metric: p99, direction: minimise}"])
@pytest.mark.parametrize(("key", "value"), [("maximise", "goodput"), ("metric", "goodput")])
def test_an_objective_laid_over_another_takes_its_place(written: str, key: str, value: str) -> None:
    changes = {f"objective.{key}": value}
    if key == "metric" and "direction" in written:
        changes["objective.direction"] = "maximise"
    made = parse_experiment(with_lines(f"objective: {written}"), "x.yaml", None, changes).objective
    assert (made.metric, made.direction) == ("goodput_per_s", "maximise")


@pytest.mark.parametrize("written", ["{maximise: goodput", "{metric: memory, direction: maximise"])
def test_a_short_form_leaves_what_is_given_beside_it(written: str) -> None:
    beside = "subject_to: [errors < 1%], margin: 5%, confidence: 90%, allow_unserved: 2%, allow_failed_starts: 10%"
    text = with_lines(f"objective: {written}, {beside}}}", "profiles: {quick: {objective: p99}}")
    wanted = parse(text, objective__minimise="p99").objective
    assert (wanted.metric, wanted.direction, wanted.margin) == ("response_time_ns_p99", "minimise", 0.05)
    assert parse(text, objective="p99").objective == parse(text, "quick").objective == wanted
    cluster = parse(with_lines("cluster: {address: 'a:6379', nodes: [b], files: [/c]}"), cluster="auto").cluster
    assert cluster is not None and (cluster.address, cluster.nodes, cluster.files) == ("auto", ("b",), ("/c",))


@pytest.mark.parametrize("text", ["doubled_users_gain < 1.1", "app_busy_ratio < 2", "jvm_compile_share <= 1"])
def test_a_ratio_that_is_no_share_of_a_whole_may_be_held_below_any_number(text: str) -> None:
    assert parse_constraint(text)["threshold"] >= 1


def test_a_share_of_the_servers_own_is_one_of_a_whole() -> None:
    with pytest.raises(ValueError, match="80%"):
        parse_constraint("app_thread_share < 80")


def test_a_time_laid_over_another_takes_its_place() -> None:
    text = with_lines(
        "load: {users: 5, think: {uniform: [1s, 2s]}}",
        "profiles: {poisson: {load: {think: {exponential: 3s}}}}",
        without="load",
    )
    assert parse(text, "poisson").load.think == Exponential(mean=3 * 10**9)
    assert parse(text, "poisson", load__think__constant="4s").load.think == Constant(ns=4 * 10**9)


def test_an_empty_profile_changes_nothing() -> None:
    text = with_lines("profiles:", "  full:", "  smoke: {load: {users: 1}}", "  wrong: smoke")
    assert parse(text, "full") == parse(text).model_copy(update={"profile": "full"})
    assert errors_of(text, "wrong") == ["profiles.wrong in x.yaml:8:10: a profile is a mapping of keys"]


def test_an_error_in_a_profile_stands_there() -> None:
    text = with_lines("profiles: {smoke: {load: {duration: 1}}}")
    assert errors_of(text, "smoke") == [
        "profiles.smoke.load.duration in x.yaml:5:37: 1 has no unit: write 1s, 1ms or another of ns, us, ms, s, m, h"
    ]


def test_overrides() -> None:
    experiment = parse(GOOD, load__users="7", factors__threads="[4, 8]", measure__warmup="2s")
    assert (experiment.load.users, experiment.factors["threads"]) == (7, (4, 8))
    assert experiment.measure.warmup_ns == 2 * 10**9
    with pytest.raises(ExperimentError, match=r"--set load\.usrs=7: unknown key; did you mean users"):
        parse(GOOD, load__usrs="7")
    with pytest.raises(UsageError, match=r"--set load=\{users: 7, users: 8\}: users: duplicate key"):
        parse(GOOD, load="{users: 7, users: 8}")


def test_a_subject_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "subject.yaml").write_text("command: ./run {port}\ncwd: .\n")
    (tmp_path / "x.yaml").write_text("subject: {use: ./mine}\nload: {users: 1}\n")
    subject = load_experiment(tmp_path / "x.yaml").subject
    assert (subject.name, subject.cwd) == ("mine", str(tmp_path / "mine"))


def test_an_error_in_a_subject_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "subject.yaml").write_text("command: ./run {port}\nredy: {http: /}\n")
    with pytest.raises(ExperimentError, match=r"redy in .*subject.yaml:2:1: unknown key; did you mean ready"):
        load_subject(f"{tmp_path}/")


def test_a_subject_file_is_checked_by_itself(tmp_path: Path) -> None:
    (tmp_path / "subject.yaml").write_text(
        "command: ./run {port} {a}\n"
        "parameters:\n"
        "  a: {type: int, default: x, help: h}\n"
        "  b: {type: int, default: 1, help: h}\n"
        "  c: {type: choice, default: 1, help: h}\n"
        "  d: {type: int, default: 1, help: h, used_when: {aa: [1]}}\n"
    )
    with pytest.raises(ExperimentError) as caught:
        load_subject(f"{tmp_path}/")
    assert [problem.message for problem in caught.value.problems] == [
        "x is no whole number",
        "occurs in no template; write {b} in command, url or env",
        "a parameter of type choice needs choices",
        "occurs in no template; write {d} in command, url or env",
        "there is no parameter aa; did you mean a?",
    ]


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ("set: {model: event-loop, threads: 8}", "reads threads only with model=fixed"),
        ("set: {keep_alive: 5s}", "reads keep_alive only with model=bounded or cached, and no"),
        ("set: {model: event-loop}}\nfactors: {threads: [1, 2]", "reads threads only with model=fixed"),
        ("set: {threads: 8}}\nfactors: {model: [event-loop, fixed]", None),
        # The experiment is cut down to one level, as with an option.
        ("set: {threads: 8}}\nfactors: {model: [event-loop]", None),
    ],
)
def test_a_parameter_that_no_setting_uses_is_refused(tmp_path: Path, given: str, refused: str | None) -> None:
    (tmp_path / "x.yaml").write_text(f"subject: {{use: reference, {given}}}\nload: {{users: 1, duration: 1s}}\n")
    if refused is None:
        load_experiment(tmp_path / "x.yaml")
        return
    with pytest.raises(ExperimentError) as caught:
        load_experiment(tmp_path / "x.yaml")
    (problem,) = caught.value.problems
    assert refused in problem.message


def test_a_pattern_says_where_a_parameter_is_used(tmp_path: Path) -> None:
    text = 'subject: {{use: threads, set: {{pool: "{}", policy: abort}}}}\nload: {{users: 1, duration: 1s}}\n'
    (tmp_path / "x.yaml").write_text(text.format("bounded:1,2,3"))
    load_experiment(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text(text.format("fixed:16"))
    with pytest.raises(ExperimentError, match=r"policy only with pool=bounded:\*"):
        load_experiment(tmp_path / "x.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(ExperimentError, match="is not UTF-8 text"):
        load_experiment(tmp_path / "x.yaml")
    with pytest.raises(UsageError, match="there is no file"):
        load_experiment(tmp_path / "y.yaml")
