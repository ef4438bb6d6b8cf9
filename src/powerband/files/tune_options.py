"""Turns the options of `powerband tune` into an Experiment, in the same way as a file, except that errors name the
option.

Defaults, chosen to answer within minutes: 64 users without think time (enough to fill most pools, few enough for any
descriptor limit), a race over at most 12 blocks with 10 s measured in each trial, most goodput with under 1 % errors.
With a counter the program drives itself: there is no load, and so there are no errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from powerband.base.errors import ExperimentError, FileProblem, UsageError, did_you_mean
from powerband.base.hosts import LOADABLE, split_url
from powerband.base.yaml_document import Node, from_plain, merge, parse_scalar, parse_yaml
from powerband.files.checks.capacity_checks import metric_of
from powerband.files.experiment_file import at_path, build_experiment
from powerband.files.key_options import DEFAULT_URL, KEY_OPTIONS, PROFILES, profile_for
from powerband.files.levels import parse_levels
from powerband.files.step_forms import METHODS
from powerband.loads import kind_of_options, kind_of_url
from powerband.model.experiment import Experiment
from powerband.model.load import Load
from powerband.model.plan import REVISION, Level
from powerband.model.templates import placeholders

DEFAULT_USERS = 64  # enough to fill most pools, few enough for any descriptor limit
DEFAULT_SCREEN = "500ms"  # at 100 answers a second this counts 50, to 2 %, so that a difference of a quarter shows
# Options whose values are texts, also where they look like numbers.
_TEXTS = ("--apply-command", "--cwd", "--name", "--ready-http", "--ready-log", "--ca-file")
DEFAULT_PAGE = "http://127.0.0.1:{metrics_port}/metrics"


@dataclass(frozen=True)
class Tuning:
    """One command line of `powerband tune` or `compare`, every value as it was typed. `command`: starts the server,
    empty if it runs already; `url`: where it is reached; `slo`: conditions, several in one text by commas; `objective`:
    `maximise`, `minimise` or `objective` (the way in which it gets better), and a metric; `expect`: texts that each
    answer must hold; `allow_hosts`: hosts besides this one that may be loaded."""

    command: Sequence[str]
    parameters: Sequence[str | tuple[str, str | tuple[Level, ...]]]
    """`-P` texts (`threads=1,2,4`, `threads=1..64`), or a name with such levels or with a tuple of levels."""
    url: str = DEFAULT_URL
    options: Mapping[str, str] = field(default_factory=dict)
    """Options that stand for a key, by the names of `KEY_OPTIONS`."""
    slo: Sequence[str] = ()
    objective: tuple[str, str] = ("objective", "goodput")
    env: Sequence[str] = ()
    """Each is `NAME=value`, or the `NAME` of a variable of the user's own environment."""
    request: Mapping[str, str] = field(default_factory=dict)
    """`method` and `body`; for a WebSocket url `message`."""
    expect: Sequence[str] = ()
    headers: Sequence[str] = ()
    """Each is `Name: value`."""
    profile: str | None = None
    """None: the profile that fits `--budget`."""
    allow_hosts: Sequence[str] = ()
    revisions: tuple[str, str] | None = None
    """OLD and NEW of `powerband compare`, which become the levels of one more factor."""
    counts: str | None = None
    """The counter of a program that drives itself; nothing about requests may then be given."""
    metrics_url: str | None = None
    """The page of that counter, if the program does not send it."""
    apply: Sequence[str] = ()
    """Requests that change the setting of a running server, such as `POST /knob {n}`."""
    restore: Sequence[str] = ()
    """Each is `NAME=value`: the setting that a server that runs already gets back."""

    def experiment(self) -> Experiment:
        """Returns the experiment. Raises ExperimentError whose problems name the option, UsageError for an option of
        the wrong form."""
        deployed = self._is_deployed()
        if deployed and self.url == DEFAULT_URL:
            raise UsageError("--url is missing: say where the server listens, for example --url http://127.0.0.1:8080/")
        if not self.command and not deployed:
            raise UsageError(
                "no command: write it after --, for example: powerband tune -P threads=1..64 -- ./server ...; or, of "
                "a server that runs already, what changes its setting: --apply 'POST /knob {n}', --apply-command"
            )
        if not self.parameters and self.revisions is None:
            raise ExperimentError(
                "nothing to vary: name a setting of the command, for example -P threads=1..64", key="-P"
            )
        problems: list[FileProblem] = []
        # A bound on regret allows for looking often and picking: only short trials alone need fresh starts (`race.py`).
        confirm = {"confirm": 0} if "--regret" in self.options else {}
        race = {"name": "tune", "design": {"order": "race", "screen": DEFAULT_SCREEN, "confirm_early": True, **confirm}}
        root = _node("", race) if self.revisions is None else _of_revisions(alone=not self.parameters)
        profile = self.profile or profile_for(self.options.get("--budget"))
        if profile not in PROFILES:
            raise UsageError(f"there is no profile {profile}; {did_you_mean(profile, PROFILES)}")
        for key, text in PROFILES[profile].items():
            root = merge(root, _at(key, f"--profile {profile}", parse_scalar(text)))
        kind = kind_of_options(self.url, self.counts)
        factors = _factors(self.parameters, problems)
        rates = factors.children.get("load.rate") if "--users" not in self.options else None
        root = _with_options(root, self.options, closed=kind.sends_requests and rates is None)
        if rates is not None and rates.items:  # the load has a rate, then, and no number of users
            root = merge(root, Node({"load": Node({"rate": rates.items[0]}, "-P load.rate")}))
        root = merge(root, _subject(self.command, self.url, self.env))
        if self.apply:
            root = merge(root, Node({"subject": Node({"apply": _requests(self.apply)})}))
        if deployed:
            root = merge(root, _deployed(self.url, self.restore))
        if self.metrics_url is not None:
            root = merge(root, _at("subject.metrics_url", f"--metrics-url {self.metrics_url}", self.metrics_url))
        if self.counts is None:
            root = merge(root, _request(self.url, self.request, self.expect, self.headers))
        else:
            _refuse_requests(self.url, self.request, self.expect, self.headers)
            root = merge(root, _counter(self.counts, self.metrics_url, [*self.command, *self.env]))
        root = merge(root, _objective(self.objective, self.slo, kind.default_slo))
        root = merge(root, _at("allow_hosts", "--allow-host", list(self.allow_hosts)))
        if self.revisions is not None:
            factors = _with_revisions(factors, self.revisions, problems)
        root = root.with_children({"factors": factors})
        return build_experiment(root, problems, Path(), to_run=True)

    def _is_deployed(self) -> bool:
        """True if the server runs already: there is no command, but something that changes its setting, or its load.
        Raises UsageError if options for such a server come with a command that starts one."""
        of_deployed = ["--apply-command"] if "--apply-command" in self.options else []
        if not self.command:
            names = [each.partition("=")[0] if isinstance(each, str) else each[0] for each in self.parameters]
            of_load = bool(names) and all(name.startswith("load.") for name in names) and self.url != DEFAULT_URL
            return bool(self.apply or of_deployed or of_load)
        of_deployed += ["--restore"] if self.restore else []
        of_deployed += ["--pid"] if "--pid" in self.options else []
        if of_deployed:
            raise UsageError(
                f"{', '.join(of_deployed)}: that is of a server that runs already, and the command after -- starts "
                "one: leave out one of the two"
            )
        return False


def tuning(
    command: Sequence[str],
    parameters: Sequence[str | tuple[str, str | tuple[Level, ...]]],
    given: Mapping[str, Any],
    revisions: tuple[str, str] | None = None,
) -> Tuning:
    """Makes a Tuning. `given`: the options by their names with `_` for `-`, in the form of `Tuning`; None: not
    given."""
    rest = {name: value for name, value in given.items() if value is not None}
    asked = [(name, rest.pop(name)) for name in ("objective", "maximise", "minimise") if name in rest]
    own = {each.name for each in fields(Tuning)}
    values = {name: rest.pop(name) for name in given if name in own and name in rest}
    options, request = split_options(rest)
    values |= {"objective": asked[0]} if asked else {}
    return Tuning(command, parameters, options=options, request=request, revisions=revisions, **values)


def split_options(given: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits options into those that stand for a key, by the names of `KEY_OPTIONS`, and those that say what is
    requested."""
    texts = {name: str(value) for name, value in given.items() if value is not None}
    request: dict[str, str] = {name: texts.pop(name) for name in ("method", "body", "message") if name in texts}
    return {f"--{name.replace('_', '-')}": text for name, text in texts.items()}, request


def load_of(
    url: str, options: Mapping[str, str], request: Mapping[str, str], expect: Sequence[str], headers: Sequence[str]
) -> Load:
    """Returns the load of `powerband load`: the same options and errors, without a server to start."""
    # A load is checked as part of an experiment, so a stand-in takes the place of the server that runs already.
    stand_in = {"command": ["server"], "url": kind_of_url(url).local_url}
    root = _with_options(_node("", {"name": "load", "subject": stand_in}), options, closed=True)
    return build_experiment(merge(root, _request(url, request, expect, headers)), [], Path(), to_run=True).load


def _node(key: str, value: object) -> Node:
    return from_plain(value, key, None)


def _at(path: str, label: str, value: object) -> Node:
    return at_path(path.split("."), label, value)


def _with_options(root: Node, given: Mapping[str, str], *, closed: bool) -> Node:
    """Lays the options over the tree. `closed`: users load the server unless a rate is given, by default the usual
    number."""
    fixed = {"--users": str(DEFAULT_USERS)} if closed and "--rate" not in given else {}
    for option, text in {**fixed, **given}.items():
        root = merge(root, _at(KEY_OPTIONS[option].key, f"{option} {text}", _value(option, text)))
    return root


def _value(option: str, text: str) -> object:
    if text and option in _TEXTS:
        return text
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
        if not name:
            raise UsageError("--env: write NAME=value, or NAME for a variable of your own environment")
        variables[name] = Node(value if equals else None, f"--env {name}")
    parts: dict[str, Node] = {"url": Node(url, f"--url {url}"), "env": Node(variables, "--env")}
    if command:
        parts = {"command": _node("command", list(command)), **parts}
    return Node({"subject": Node(parts, "command")})


def _requests(texts: Sequence[str]) -> Node:
    """Turns texts such as `POST /knob {n}` into the steps of `subject.apply`."""
    steps = []
    for text in texts:
        method, _, rest = text.strip().partition(" ")
        path, _, body = rest.strip().partition(" ")
        if method.lower() not in METHODS or not path:
            raise UsageError(f"--apply {text!r}: write method, path and, where there is one, body: 'POST /knob {{n}}'")
        label = f"--apply {text!r}"
        step = {"method": Node(method.upper(), label), "path": Node(path, label)}
        steps.append(Node(step | ({"body": Node(body.strip(), label)} if body.strip() else {}), label))
    return Node(tuple(steps), "--apply")


def _deployed(url: str, restore: Sequence[str]) -> Node:
    """Returns the subject that runs already, named after its host."""
    levels = {}
    for text in restore:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--restore {text}: write NAME=value, for example n=8")
        levels[name] = Node(parse_scalar(value), f"--restore {text}", text=value)
    back = {"restore": Node(levels, "--restore")} if levels else {}
    try:
        name = split_url(url, LOADABLE).hostname or "server"
    except ValueError:
        name = "server"
    return Node({"subject": Node({"name": Node(name), "deployed": Node(back, "--apply")}, "--url")})


def _counter(counts: str, metrics_url: str | None, templates: Sequence[str]) -> Node:
    """Returns the counter of the program. Its page, unless given, is `DEFAULT_PAGE` if the command or env has
    `{metrics_port}`."""
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
    """Returns the load: one request, or one message over a WebSocket."""
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
    elif "body" in request:  # as other clients do
        step["method"] = Node("POST", "--body")
    step |= {key: Node(request[key], f"--{key}") for key in ("body", "message") if key in request}
    if expect:
        step["expect"] = Node(tuple(Node(text, f"--expect {text}") for text in expect), "--expect")
    return Node({"load": Node(kind_of_url(url).load_of_options(url, step, _node("--header", pairs)), "load")})


def _objective(objective: tuple[str, str], slo: Sequence[str], default_slo: str | None) -> Node:
    """Returns the objective. `default_slo`: a condition on errors, which holds unless another one is given."""
    direction, metric = objective
    conditions = [(text, condition.strip()) for text in slo for condition in text.split(",") if condition.strip()]
    constraints = [Node(condition, f"--slo {text}") for text, condition in conditions]
    # The highest rate with no condition but errors is seldom what is meant, so capacity must come with an SLO.
    asked = bool(slo) or metric not in ("capacity", "capacity_per_s")
    if default_slo and asked and not any(metric_of(condition) == "error_rate" for _, condition in conditions):
        constraints.append(Node(default_slo, "--slo"))
    key = "metric" if direction == "objective" else direction
    entries = {key: Node(metric, f"--{direction} {metric}"), "subject_to": Node(tuple(constraints), "--slo")}
    return Node({"objective": Node(entries, "objective")})


def _factors(parameters: Sequence[str | tuple[str, str | tuple[Level, ...]]], problems: list[FileProblem]) -> Node:
    factors: dict[str, Node] = {}
    for given in parameters:
        name, equals, levels = given.partition("=") if isinstance(given, str) else (given[0], "=", given[1])
        label = f"-P {given}" if isinstance(given, str) else f"-P {name}"
        if name in factors:
            problems.append(FileProblem(f"{name} has values already; give all of them in one -P", label))
            continue
        try:
            if not equals or not name:
                raise ValueError("write NAME=VALUES, for example threads=1,2,4 or threads=1..64")
            values = parse_levels(levels, label) if isinstance(levels, str) else [Node(each, label) for each in levels]
        except ValueError as error:
            problems.append(FileProblem(str(error), label))
            values = [Node(0, label)]  # a stand-in, so that {NAME} in the command is not reported as unknown
        factors[name] = Node(tuple(values), label)
    return Node(factors, "-P")


def _with_revisions(factors: Node, revisions: tuple[str, str], problems: list[FileProblem]) -> Node:
    """Adds the factor `revision` to the others; it varies fastest, so that both of a pair stand side by side."""
    label = "OLD and NEW"
    if revisions[0] == revisions[1]:
        problems.append(FileProblem(f"both are {revisions[0]}; name two that differ", label))
    if REVISION in factors.children:
        problems.append(FileProblem(f"{REVISION} stands for OLD and NEW; choose another name", f"-P {REVISION}"))
    levels = Node(tuple(Node(revision, label) for revision in revisions), label)
    return factors.with_children({REVISION: levels})


def _of_revisions(*, alone: bool) -> Node:
    """Returns the design of a comparison. Two revisions alone race, so that the run stops once it is decided, without a
    confirmation, since nothing was picked out of many. With several settings every pair is wanted, not the best of all,
    so none may be eliminated."""
    design = {"order": "race", "confirm": 0} if alone else {"order": "blocks"}
    return _node("", {"name": "compare", "design": design})
