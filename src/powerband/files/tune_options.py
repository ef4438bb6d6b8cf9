"""From the options of `powerband tune` to an Experiment, by the way that files go: only that errors name the option.

Defaults, chosen to answer within minutes: 64 users without think time (enough to fill most pools, few enough for any
descriptor limit), a race over at most 12 blocks with 10 s measured in each trial, most goodput with under 1 % errors.
With a counter the program drives itself: there is no load, and so no errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from powerband.base.errors import ExperimentError, FileProblem, UsageError
from powerband.base.yaml_document import Node, from_plain, merge, parse_scalar, parse_yaml
from powerband.files.experiment_file import build_experiment
from powerband.files.levels import parse_levels
from powerband.loads import SELF_DRIVEN, kind_of_url
from powerband.model.experiment import Experiment, parse_constraint
from powerband.model.load import Load
from powerband.model.plan import REVISION, Level
from powerband.model.templates import placeholders

DEFAULT_USERS = 64
DEFAULT_URL = "http://127.0.0.1:{port}/"
DEFAULT_PAGE = "http://127.0.0.1:{metrics_port}/metrics"

# How much is measured, at most: a first look, the default, and for small differences or a noisy machine.
PROFILES: dict[str, dict[str, str]] = {
    "quick": {"load.duration": "3s", "measure.warmup_max": "5s", "measure.repeats": "5"},
    "normal": {"load.duration": "10s", "measure.repeats": "12"},
    "thorough": {"load.duration": "20s", "measure.repeats": "25"},
}

# Each option, and the key of an experiment file that it stands for.
OPTIONS = {
    "--name": "name",
    "--users": "load.users",
    "--rate": "load.rate",
    "--arrivals": "load.arrivals",
    "--think": "load.think",
    "--join": "load.join",
    "--pace": "load.pace",
    "--ramp": "load.ramp",
    "--duration": "load.duration",
    "--timeout": "load.timeout",
    "--connect-timeout": "load.connect_timeout",
    "--pipeline": "load.pipeline",
    "--keep-alive": "load.keep_alive",
    "--max-in-flight": "load.max_in_flight",
    "--precision": "load.precision",
    "--threads": "load.engine_threads",
    "--insecure": "load.tls_insecure",
    "--ca-file": "load.tls_ca_file",
    "--warmup": "measure.warmup",
    "--repeats": "measure.repeats",
    "--margin": "objective.margin",
    "--confidence": "objective.confidence",
    "--order": "design.order",
    "--budget": "design.budget",
    "--confirm": "design.confirm",
    "--seed": "design.seed",
    "--ready-http": "subject.ready.http",
    "--ready-log": "subject.ready.log",
    "--ready-timeout": "subject.ready.timeout",
    "--stop-signal": "subject.stop.signal",
    "--stop-grace": "subject.stop.grace",
    "--cwd": "subject.cwd",
}


def tune_experiment(
    command: Sequence[str],
    parameters: Sequence[str | tuple[str, str | tuple[Level, ...]]],
    *,
    url: str = DEFAULT_URL,
    options: Mapping[str, str] | None = None,
    slo: Sequence[str] = (),
    objective: tuple[str, str] = ("maximise", "goodput"),
    env: Sequence[str] = (),
    request: Mapping[str, str] | None = None,
    expect: Sequence[str] = (),
    headers: Sequence[str] = (),
    profile: str = "normal",
    allow_hosts: Sequence[str] = (),
    revisions: tuple[str, str] | None = None,
    counts: str | None = None,
    metrics_url: str | None = None,
) -> Experiment:
    """The experiment of one command line.

    `parameters` are `-P` texts (`threads=1,2,4`, `threads=1..64`), or a name with such levels, or with a tuple of them.
    `options` are texts by the names in OPTIONS, `request` may hold `method` and `body`, or of a WebSocket url
    `message`; `expect`: what each answer holds; `headers` are `Name: value`, `env` `NAME=value`, `allow_hosts` names.
    `revisions`: OLD and NEW of `powerband compare`, the levels of a factor beside the others. `counts`: the counter of
    a program that drives itself, of the page `metrics_url` or of what it sends; then nothing about requests may be
    given.
    Raises ExperimentError whose problems name the option, UsageError for an option of the wrong form."""
    if not command:
        raise UsageError("no command: write it after --, for example: powerband tune -P threads=1..64 -- ./server ...")
    if not parameters and revisions is None:
        raise ExperimentError("nothing to vary: name a setting of the command, for example -P threads=1..64", key="-P")
    problems: list[FileProblem] = []
    given = dict(options or {})
    race = {"name": "tune", "design": {"order": "race"}}
    root = _node("", race) if revisions is None else _of_revisions(alone=not parameters)
    for key, text in PROFILES[profile].items():
        root = merge(root, _at(key, f"--profile {profile}", parse_scalar(text)))
    if "--rate" not in given and counts is None:
        given.setdefault("--users", str(DEFAULT_USERS))
    for option, text in given.items():
        root = merge(root, _at(OPTIONS[option], f"{option} {text}", _value(option, text)))
    root = merge(root, _subject(command, url, env))
    if metrics_url is not None:
        root = merge(root, _at("subject.metrics_url", f"--metrics-url {metrics_url}", metrics_url))
    if counts is None:
        root = merge(root, _request(url, request or {}, expect, headers))
    else:
        _refuse_requests(url, request or {}, expect, headers)
        root = merge(root, _counter(counts, metrics_url, [*command, *env]))
    kind = kind_of_url(url) if counts is None else SELF_DRIVEN
    root = merge(root, _objective(objective, slo, kind.default_slo))
    root = merge(root, _at("allow_hosts", "--allow-host", list(allow_hosts)))
    factors = _factors(parameters, problems)
    if revisions is not None:
        factors = _with_revisions(factors, revisions, problems)
    root = root.with_children({"factors": factors})
    return build_experiment(root, problems, Path())


def load_of(
    url: str, options: Mapping[str, str], request: Mapping[str, str], expect: Sequence[str], headers: Sequence[str]
) -> Load:
    """The load of `powerband load`: the same options and errors, without a server to start."""
    fixed = {"--users": str(DEFAULT_USERS)} if "--rate" not in options else {}
    # A load is checked as part of an experiment; its server stands in for the one that runs already.
    stand_in = {"command": ["server"], "url": kind_of_url(url).local_url}
    root = _node("", {"name": "load", "subject": stand_in})
    for option, text in {**fixed, **options}.items():
        root = merge(root, _at(OPTIONS[option], f"{option} {text}", _value(option, text)))
    return build_experiment(merge(root, _request(url, request, expect, headers)), [], Path()).load


def _node(key: str, value: object) -> Node:
    return from_plain(value, key, None)


def _at(path: str, label: str, value: object) -> Node:
    """A value at a dotted path; an error about it names `label`."""
    node = _node(label, value)
    for part in reversed(path.split(".")):
        node = Node({part: node}, label)
    return node


def _value(option: str, text: str) -> object:
    if option not in ("--think", "--pace"):
        return parse_scalar(text)
    try:
        return parse_yaml(text, option, []).plain()
    except ExperimentError as error:
        raise UsageError(f"{option} {text}: {error}") from None


def _subject(command: Sequence[str], url: str, env: Sequence[str]) -> Node:
    variables = {}
    for text in env:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--env {text}: write NAME=value")
        variables[name] = Node(value, f"--env {text}")
    return Node(
        {
            "subject": Node(
                {
                    "command": _node("command", list(command)),
                    "url": Node(url, f"--url {url}"),
                    "env": Node(variables, "--env"),
                },
                "command",
            )
        }
    )


def _counter(counts: str, metrics_url: str | None, templates: Sequence[str]) -> Node:
    """What the program counts; its page is at the usual place of the port that it is given, unless that is said."""
    root = _at("subject.counts", f"--counts {counts}", counts)
    if metrics_url is None and "metrics_port" in placeholders(templates):
        root = merge(root, _at("subject.metrics_url", f"--metrics-url {DEFAULT_PAGE}", DEFAULT_PAGE))
    return root


def _refuse_requests(url: str, request: Mapping[str, str], expect: Sequence[str], headers: Sequence[str]) -> None:
    given = {"--url": url != DEFAULT_URL, "--expect": bool(expect), "--header": bool(headers)}
    given |= {f"--{name}": True for name in request}
    if names := [name for name, is_given in given.items() if is_given]:
        raise UsageError(
            f"{', '.join(names)}: with --counts the program drives itself and is sent no requests: leave "
            f"{'them' if len(names) > 1 else 'it'} out, or --counts"
        )


def _request(url: str, request: Mapping[str, str], expect: Sequence[str], headers: Sequence[str]) -> Node:
    """The load: one request, or one message over a WebSocket."""
    pairs = []
    for text in headers:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header {text}: write 'Name: value'")
        pairs.append([name.strip(), value.strip()])
    step: dict[str, Node] = {}
    if "method" in request:
        method = request["method"].upper()
        step["method"] = Node(method, f"--method {method}")
    step |= {key: Node(request[key], f"--{key}") for key in ("body", "message") if key in request}
    if expect:
        step["expect"] = Node(tuple(Node(text, f"--expect {text}") for text in expect), "--expect")
    return Node({"load": Node(kind_of_url(url).load_of_options(url, step, _node("--header", pairs)), "load")})


def _objective(objective: tuple[str, str], slo: Sequence[str], default_slo: str | None) -> Node:
    """`default_slo`: a condition on errors, which holds unless another one is given."""
    direction, metric = objective
    conditions = [(text, condition.strip()) for text in slo for condition in text.split(",") if condition.strip()]
    constraints = [Node(condition, f"--slo {text}") for text, condition in conditions]
    # The highest rate at which nothing but errors count is seldom what is meant: that SLO is asked for.
    asked = bool(slo) or metric not in ("capacity", "capacity_per_s")
    if default_slo and asked and not any(_concerns_errors(condition) for _, condition in conditions):
        constraints.append(Node(default_slo, "--slo"))
    entries = {direction: Node(metric, f"--{direction} {metric}"), "subject_to": Node(tuple(constraints), "--slo")}
    return Node({"objective": Node(entries, "objective")})


def _concerns_errors(text: str) -> bool:
    try:
        return bool(parse_constraint(text)["metric"] == "error_rate")
    except ValueError:
        return False  # reported with the others


def _factors(parameters: Sequence[str | tuple[str, str | tuple[Level, ...]]], problems: list[FileProblem]) -> Node:
    factors: dict[str, Node] = {}
    for given in parameters:
        name, equals, levels = given.partition("=") if isinstance(given, str) else (given[0], "=", given[1])
        label = f"-P {given}" if isinstance(given, str) else f"-P {name}"
        if name in factors:
            problems.append(FileProblem(f"{name} has levels already; give all of them in one -P", label))
            continue
        try:
            if not equals or not name:
                raise ValueError("write NAME=levels, for example threads=1,2,4 or threads=1..64")
            values = parse_levels(levels) if isinstance(levels, str) else list(levels)
        except ValueError as error:
            problems.append(FileProblem(str(error), label))
            values = [0]  # stands in, so that nobody takes {NAME} in the command for unknown
        factors[name] = Node(tuple(Node(level, label) for level in values), label)
    return Node(factors, "-P")


def _with_revisions(factors: Node, revisions: tuple[str, str], problems: list[FileProblem]) -> Node:
    """The factor `revision` beside the others; it varies fastest, so that both of a pair stand side by side."""
    label = "OLD and NEW"
    if revisions[0] == revisions[1]:
        problems.append(FileProblem(f"both are {revisions[0]}; name two that differ", label))
    if REVISION in factors.children:
        problems.append(FileProblem(f"{REVISION} stands for OLD and NEW; choose another name", f"-P {REVISION}"))
    levels = Node(tuple(Node(revision, label) for revision in revisions), label)
    return factors.with_children({REVISION: levels})


def _of_revisions(*, alone: bool) -> Node:
    """Two revisions alone race, so that it stops once it is decided, without a confirmation: nothing was picked out of
    many. Of several settings every pair is wanted, not the best of all, so none may leave."""
    design = {"order": "race", "confirm": 0} if alone else {"order": "blocks"}
    return _node("", {"name": "compare", "design": design})
