"""Checks of `subject`: parameters, `set`, placeholders, ports, build, services, and the host of its url."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath
from urllib.parse import urlsplit

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.hosts import is_loopback, loadable_host
from powerband.base.units import parse_bit_rate, parse_duration_ns
from powerband.base.yaml_document import Node, join
from powerband.files.checks.deployed_checks import check_deployed
from powerband.loads import kind_of
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment, Subject
from powerband.model.plan import Level
from powerband.model.subjects import (
    BUILT_IN,
    DOTNET,
    LINK,
    LINK_DELAY,
    LINK_RATE,
    PASSWORD,
    PORTS,
    POSTGRESQL,
    SERVICES,
    STAND_INS,
    STATSD,
    check_level,
    command_and_env,
    render_text,
    service_parameters,
    templates_of,
)
from powerband.model.templates import placeholders


def check_subject(subject: Subject, root: Node, kind: LoadKind) -> Iterator[FileProblem]:
    """Checks that parameters and `set` values have their types, that every placeholder stands for something, and that
    every parameter has a placeholder."""
    node, factors = root.at("subject"), tuple(root.at("factors").children)
    if subject.deployed is not None:
        yield from check_deployed(subject, root)
    elif subject.command is None:
        yield FileProblem("required, but missing", join(node.key, "command"), node.position)
        return
    yield from _check_container(subject, root)
    used = placeholders(templates_of(subject))
    asked = used | service_parameters(subject)
    parameters = node.at("parameters")
    for name, parameter in subject.parameters.items():
        entry = parameters.children[name]
        if parameter.type == "choice" and not parameter.choices:
            yield entry.problem("a parameter of type choice needs choices")
            continue
        if name not in asked:
            yield entry.key_problem(f"occurs in no template; write {{{name}}} in command, url or env")
        yield from check_value(parameter.default, entry.children["default"], subject, name)
        for other in sorted(parameter.used_when.keys() - subject.parameters):
            yield (
                entry.children["used_when"]
                .children[other]
                .key_problem(f"there is no parameter {other}; {did_you_mean(other, subject.parameters)}")
            )
    for name, entry in node.at("set").children.items():
        if not is_known(name, subject, asked):
            yield entry.key_problem(unknown_name(name, subject, asked))
        elif isinstance(entry.value, bool | int | float | str):
            yield from check_value(entry.value, entry, subject, name)
        if name in factors:
            yield entry.key_problem(f"{name} varies (factors.{name}), and the values there decide: leave it out here")
    if subject.deployed is None:
        yield from _check_started(subject, node, kind, factors, used)
    known = {*subject.parameters, *subject.set, *factors, *BUILT_IN} - (set() if subject.services else set(SERVICES))
    for name in sorted(used - known - set(SERVICES)):
        where = next((entry for entry in _templates(node) if name in placeholders([str(entry.value)])), node)
        yield where.problem(f"{{{name}}} stands for nothing; {did_you_mean(name, sorted(known))}")


def _check_started(
    subject: Subject, node: Node, kind: LoadKind, factors: Sequence[str], used: Collection[str]
) -> Iterator[FileProblem]:
    """Checks what only a server has that powerband starts; `check_deployed` refuses it of others."""
    if kind.uses_url:
        yield from _check_port(subject, node)
    yield from _check_build(subject, node, factors, used)
    yield from _check_services(subject, node, factors, used)


def _check_container(subject: Subject, root: Node) -> Iterator[FileProblem]:
    """Checks that nothing is set of a container engine's client, which is not the server: a limit, or a variable that
    does not reach the container."""
    for key, option in (("cpu_quota", "--cpus"), ("memory_limit", "--memory")) if subject.container_client else ():
        for entry in (root.at("host", key), root.at("factors", f"host.{key}")):
            if entry.plain() is not None:
                yield entry.key_problem(
                    f"this would limit `docker run`, which is not the server: leave it out, and give docker {option}"
                )
    client = subject.container_client
    if not client or PurePath(client[-1]).name != "docker":  # of `docker compose`, they may stand in its file
        return
    words = (subject.command or ())[len(client) :]
    after = [word for before, word in pairwise(words) if before in ("-e", "--env")]
    joined = [word.removeprefix("--env=").removeprefix("-e") for word in words if word.startswith(("--env=", "-e"))]
    passed = {word.partition("=")[0] for word in (*after, *joined)}
    for name, entry in root.at("subject", "env").children.items():
        names = placeholders([str(entry.value)])
        if names and name not in passed and not any(word.startswith("--env-file") for word in words):
            yield entry.key_problem(
                f"this reaches `docker run`, which does not pass it on: write -e {name} before the image"
            )


def _check_port(subject: Subject, node: Node) -> Iterator[FileProblem]:
    """Checks that the port that powerband picks is in the url and in the command or env, or in none of them."""
    in_url = "port" in placeholders([subject.url])
    told = "port" in placeholders(command_and_env(subject))
    where = node.children.get("url", node.at("command"))
    if told and not in_url and not is_loopback(urlsplit(subject.url).hostname or ""):
        yield where.problem("the url must reach the server that powerband starts here: write http://127.0.0.1:{port}/")
    elif told and not in_url:
        yield where.problem(
            "the command is told {port}, which powerband picks, but the url names another port, where the server "
            "will not listen: write {port} in the url too, or the fixed port in the command"
        )
    if in_url and not told:
        yield where.problem(
            "the url has {port}, which powerband picks, but the server is not told it: write {port} in the command "
            "or env too, or the server's fixed port in the url"
        )


def _check_build(subject: Subject, node: Node, factors: Sequence[str], used: Collection[str]) -> Iterator[FileProblem]:
    """Checks the placeholders of the build. `used`: placeholders of the subject's other templates."""
    fixed = ({*subject.parameters, *subject.set, *BUILT_IN} - set(factors)) - {*PORTS, *STATSD}
    for name in sorted(placeholders(subject.build or ()) - fixed):
        yield node.children["build"].problem(
            f"{{{name}}} cannot stand here: the server is built once, before the first trial, so only parameters "
            "that do not vary, set values and {engine}, {folder}, {build} and those of a JDK or .NET SDK have one value"
        )
    if subject.jdk is None and {"java", "java_home"} & {*used, *placeholders(subject.build or ())}:
        yield node.children["command"].problem(
            "{java} and {java_home} are those of a JDK that powerband finds: say which version is the least that "
            "does, for example jdk: 17"
        )
    if subject.dotnet is None and set(DOTNET) & {*used, *placeholders(subject.build or ())}:
        yield node.children["command"].problem(
            "{dotnet} and {dotnet_version} are those of a .NET SDK that powerband finds: say which version is the "
            "least that does, for example dotnet: 8"
        )
    if "build" in used and subject.build is None:
        yield node.children["command"].problem("{build} is the folder that subject.build fills, and there is no build")


def _check_services(
    subject: Subject, node: Node, factors: Sequence[str], used: Collection[str]
) -> Iterator[FileProblem]:
    """Checks that every name in `when` is a parameter or factor, and that a placeholder of a service comes with that
    service."""
    known = {*subject.parameters, *subject.set, *factors, *used} - set(BUILT_IN)
    services = node.at("services")
    for name, service in subject.services.items():
        for value in service.when:
            if value not in known:
                where = services.children[name].children["when"].children[value]
                yield where.key_problem(f"there is no parameter {value}; {did_you_mean(value, known)}")
    for parameter in (LINK_DELAY, LINK_RATE) if "link" in subject.services else ():
        if parameter not in known:
            yield services.children["link"].key_problem(
                f"nothing says what the link is like: it needs {LINK_DELAY} (one way, for example 500us) and "
                f"{LINK_RATE} (for example 1gbit, or unlimited) under subject.parameters or factors; there is no "
                f"{parameter}"
            )
    if set(LINK) & set(used) and "link" not in subject.services:
        yield node.children["command"].problem(
            "{link_a}, {link_b} and their addresses are those of a link that powerband makes: ask for it with "
            "services: {link: {}}"
        )
    if set(POSTGRESQL) & set(used) and "postgresql" not in subject.services:
        yield node.children["command"].problem(
            "{postgresql_port}, {postgresql_user}, {postgresql_database} and {postgresql_password} are those of a "
            "PostgreSQL that powerband starts: ask for it with services: {postgresql: {}}"
        )
    if PASSWORD in placeholders(templates_of(subject.model_copy(update={"env": {}}))):
        yield node.children["command"].problem(
            f"{{{PASSWORD}}} may stand in subject.env only, since every user of this machine can read the command of "
            f"a process: write it there, or {{{PASSWORD}_file}} here, the path of a file that holds it"
        )


def check_url(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the host of the url is this machine or an allowed one, at every setting."""
    if not kind_of(experiment).uses_url:
        return
    subject, node = experiment.subject, root.at("subject")
    varies = placeholders([subject.url]) & set(experiment.factors)
    settings = experiment.settings() if varies else experiment.settings()[:1]
    for url in dict.fromkeys(render_text(subject, setting, STAND_INS, subject.url) for setting in settings):
        try:
            loadable_host(url, experiment.allow_hosts)
        except ValueError as error:
            yield node.children.get("url", node.at("command")).problem(str(error))
            return


def check_used(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the server reads each value that the experiment gives to a parameter, in at least one setting. A
    value in `set` may stay unread if a factor decides whether it is read, since the levels of that factor may have been
    cut."""
    subject, node = experiment.subject, root.at("subject")
    factors = root.at("factors").children
    given = {**node.at("set").children, **factors}
    left = {name: subject.parameters[name] for name in given if name in subject.parameters}
    for setting in experiment.settings():
        levels = subject.levels_at(setting)
        left = {name: parameter for name, parameter in left.items() if not parameter.is_used(levels)}
        if not left:
            return
    for name, parameter in left.items():
        if name not in factors and parameter.used_when.keys() & factors.keys():
            continue
        yield given[name].key_problem(
            f"{subject.name} reads {name} only with {parameter.needed}, and no setting is so: leave {name} out"
        )


def is_known(name: str, subject: Subject, used: set[str]) -> bool:
    """Returns True if the subject has this parameter; without declared parameters, if one of the templates uses the
    name (`used`)."""
    return name in (subject.parameters or used)


def unknown_name(name: str, subject: Subject, used: set[str]) -> str:
    """Returns the message about a name for which `is_known` is False, with the nearest known one."""
    if subject.parameters:
        return f"server {subject.name} has no parameter {name}; {did_you_mean(name, subject.parameters)}"
    free = sorted(used - set(BUILT_IN))
    if subject.deployed is not None:
        return f"{{{name}}} occurs neither in subject.apply nor in subject.deployed.command, so that nothing changes it"
    cure = did_you_mean(name, free) if free else f"write {{{name}}} where the server is told its value"
    return f"{{{name}}} occurs nowhere in the command, the url or env; {cure}"


def check_value(level: Level, node: Node, subject: Subject, name: str) -> Iterator[FileProblem]:
    """Checks that a value has the type of its parameter, or is a delay or rate of a link. `name`: of the parameter or
    factor; one that has neither takes any value."""
    if name in subject.parameters:
        try:
            check_level(subject.parameters[name], level)
        except ValueError as error:
            yield node.problem(str(error))
            return
    if "link" in subject.services and name in (LINK_DELAY, LINK_RATE):
        try:
            parse_duration_ns(level) if name == LINK_DELAY else parse_bit_rate(level)
        except ValueError as error:
            yield node.problem(str(error))


def _templates(node: Node) -> Iterable[Node]:
    """Yields every text of a subject that may contain placeholders."""
    for name in ("command", "url", "env", "ready", "cwd", "metrics_url", "visitor_url", "apply", "deployed"):
        yield from _texts(node.at(name))


def _texts(node: Node) -> Iterable[Node]:
    if isinstance(node.value, str):
        yield node
    for child in (*node.children.values(), *node.items):
        yield from _texts(child)
