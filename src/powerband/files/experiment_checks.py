"""What only shows when parts of an experiment meet: factors and the subject, claims and factors. Adds problems.

Works on the tree and not on the models, so that one bad value does not hide another error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from powerband.base.errors import ExperimentError, FileProblem, did_you_mean
from powerband.base.hosts import loadable_host
from powerband.base.units import format_duration, parse_bit_rate, parse_duration_ns
from powerband.base.yaml_document import Node
from powerband.loads.counted.checks import needs_load
from powerband.loads.jmeter.checks import told_to_plan
from powerband.model.claim_expression import Claimed, check_levels, parse_claim, settings_of
from powerband.model.experiment import Experiment, Subject, count_settings
from powerband.model.fields import AS_WRITTEN, field_named
from powerband.model.load import Load
from powerband.model.metrics import OWN
from powerband.model.plan import Level, format_level, named_settings, one_at_a_time
from powerband.model.subjects import (
    BUILT_IN,
    LINK,
    LINK_DELAY,
    LINK_RATE,
    PORTS,
    POSTGRESQL,
    SERVICES,
    STATSD,
    asked_by_services,
    check_level,
    is_told_statsd,
    render_text,
    templates_of,
)
from powerband.model.templates import placeholders

_SETTINGS_MAX = 10_000
SOME_GIVEN = {**dict.fromkeys(BUILT_IN, "x"), **dict.fromkeys((*PORTS, STATSD[0]), "80")}
_NOTHING = Node({})


def check_subject(subject: Subject, node: Node, factors: Sequence[str], problems: list[FileProblem]) -> None:
    """Parameters and `set` values have their types, and every placeholder stands for something, and the reverse."""
    used = placeholders(templates_of(subject))
    asked = used | asked_by_services(subject)
    parameters = node.children.get("parameters", _NOTHING)
    for name, parameter in subject.parameters.items():
        entry = parameters.children[name]
        if parameter.type == "choice" and not parameter.choices:
            problems.append(entry.problem("a parameter of type choice needs choices"))
            continue
        if name not in asked:
            problems.append(entry.key_problem(f"occurs in no template; write {{{name}}} in command, url or env"))
        _check_value(parameter.default, entry.children["default"], subject, name, problems)
    for name, entry in node.children.get("set", _NOTHING).children.items():
        if not _is_known(name, subject, asked):
            problems.append(entry.key_problem(_unknown(name, subject, asked)))
        elif isinstance(entry.value, bool | int | float | str):
            _check_value(entry.value, entry, subject, name, problems)
        if name in factors:
            problems.append(
                entry.key_problem(f"{name} is a factor too; a factor's levels decide, so leave it out here")
            )
    in_url = "port" in placeholders([subject.url])
    told = "port" in placeholders([*subject.command, *subject.env.values()])
    if subject.counts is not None:
        told = in_url  # the url is not used
    if told and not in_url:
        problems.append(
            (node.children.get("url") or node.children["command"]).problem(
                "the command is told {port}, which powerband picks, but the url names another port, where the server "
                "will not listen: write {port} in the url too, or the fixed port in the command"
            )
        )
    if in_url and not told:
        problems.append(
            (node.children.get("url") or node.children["command"]).problem(
                "the url has {port}, which powerband picks, but the server is not told it: write {port} in the command "
                "or env too, or the server's fixed port in the url"
            )
        )
    _check_build(subject, node, factors, used, problems)
    _check_services(subject, node, factors, used, problems)
    known = {*subject.parameters, *subject.set, *factors, *BUILT_IN} - (set() if subject.services else set(SERVICES))
    for name in sorted(used - known - set(SERVICES)):
        where = next((entry for entry in _templates(node) if name in placeholders([str(entry.value)])), node)
        problems.append(where.problem(f"{{{name}}} stands for nothing; {did_you_mean(name, sorted(known))}"))


def _check_build(
    subject: Subject, node: Node, factors: Sequence[str], used: Collection[str], problems: list[FileProblem]
) -> None:
    """`used`: placeholders of the subject's other templates."""
    fixed = ({*subject.parameters, *subject.set, *BUILT_IN} - set(factors)) - {*PORTS, *STATSD}
    for name in sorted(placeholders(subject.build or ()) - fixed):
        problems.append(
            node.children["build"].problem(
                f"{{{name}}} cannot stand here: the subject is built once, before the first trial, so only parameters "
                "that do not vary, set values and {engine}, {folder}, {build}, {java} and {java_home} have one value"
            )
        )
    if subject.jdk is None and {"java", "java_home"} & {*used, *placeholders(subject.build or ())}:
        problems.append(
            node.children["command"].problem(
                "{java} and {java_home} are those of a JDK that powerband finds: say which version is the least that "
                "does, for example jdk: 17"
            )
        )
    if "build" in used and subject.build is None:
        problems.append(
            node.children["command"].problem("{build} is the folder that subject.build fills, and there is no build")
        )


def _check_services(
    subject: Subject, node: Node, factors: Sequence[str], used: Collection[str], problems: list[FileProblem]
) -> None:
    """What decides whether a service is used is known, and who is told of one has it."""
    known = {*subject.parameters, *subject.set, *factors, *used} - set(BUILT_IN)
    services = node.children.get("services", _NOTHING)
    for name, service in subject.services.items():
        for value in service.when:
            if value not in known:
                where = services.children[name].children["when"].children[value]
                problems.append(where.key_problem(f"there is no parameter {value}; {did_you_mean(value, known)}"))
    for parameter in (LINK_DELAY, LINK_RATE) if "link" in subject.services else ():
        if parameter not in known:
            problems.append(
                services.children["link"].key_problem(
                    f"nothing says what the link is like: it needs {LINK_DELAY} (one way, for example 500us) and "
                    f"{LINK_RATE} (for example 1gbit, or unlimited) as parameters or factors; there is no {parameter}"
                )
            )
    if set(LINK) & set(used) and "link" not in subject.services:
        problems.append(
            node.children["command"].problem(
                "{link_a}, {link_b} and their addresses are those of a link that powerband makes: ask for it with "
                "services: {link: {}}"
            )
        )
    if set(POSTGRESQL) & set(used) and "postgresql" not in subject.services:
        problems.append(
            node.children["command"].problem(
                "{postgresql_port}, {postgresql_user} and {postgresql_database} are those of a PostgreSQL that "
                "powerband starts: ask for it with services: {postgresql: {}}"
            )
        )


def check_url(experiment: Experiment, node: Node, problems: list[FileProblem]) -> None:
    """The load goes to this machine or to an allowed host, whatever the levels fill into the url."""
    if experiment.is_self_driven:
        return
    subject = experiment.subject
    varies = placeholders([subject.url]) & set(experiment.factors)
    settings = experiment.settings() if varies else experiment.settings()[:1]
    for url in dict.fromkeys(render_text(subject, setting, SOME_GIVEN, subject.url) for setting in settings):
        try:
            loadable_host(url, experiment.allow_hosts)
        except ValueError as error:
            problems.append((node.children.get("url") or node.children["command"]).problem(str(error)))
            return


def check_factors(root: Node, subject: Subject | None, problems: list[FileProblem]) -> None:
    """Every factor is known to the subject (or is one of the load's), has levels, each once and of the right type.

    `subject` is None where it is not valid itself: then only what needs no subject is checked."""
    levels: dict[str, tuple[Node, ...]] = {}
    for name, factor in root.children.get("factors", _NOTHING).children.items():
        if not _is_list_of_levels(factor, problems):
            continue
        levels[name] = factor.items
        seen: set[str] = set()
        for level in factor.items:
            text = format_level(level.value)
            if text in seen:
                problems.append(
                    level.problem(
                        f"level {text} stands there twice; to enter a setting again as if it were different, "
                        "add a factor named aa or label.NAME, which reaches no command"
                    )
                )
            seen.add(text)
        if subject is not None:
            _check_factor(name, factor, subject, root.children.get("load", _NOTHING), problems)
    vary = root.children.get("design", _NOTHING).children.get("vary", Node("all")).value
    count = count_settings(levels, str(vary))
    if count > _SETTINGS_MAX:
        problems.append(root.children["factors"].key_problem(f"{count} settings are more than {_SETTINGS_MAX}"))


def check_load(root: Node, problems: list[FileProblem]) -> bool:
    """Whether users and rate are both set, which is a problem."""
    load = root.children.get("load", _NOTHING).children
    users, rate = (load.get(key, Node(None)) for key in ("users", "rate"))
    both = users.value is not None and rate.value is not None
    if both:
        where = f" (on line {users.key_position.line})" if users.key_position else ""
        problems.append(
            rate.key_problem(
                f"users is set too{where}; users is the closed model, rate the open one: keep one, "
                "or set the other to null where a profile changes the model"
            )
        )
    return both


def check_every_load(experiment: Experiment, root: Node, problems: list[FileProblem]) -> None:
    """Every setting has a load: keys of it that vary go together, and its dialect is one. The first that has none is
    told."""
    websocket = experiment.load.websocket
    dialect = None if websocket is None else websocket.dialect
    if not any(name.startswith("load.") for name in experiment.factors) and not (dialect and placeholders([dialect])):
        return
    for setting in experiment.settings():
        try:
            experiment.load_for(setting)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]
            said = reason.get("ctx", {}).get("error", reason["msg"])
            problems.append(root.children.get("factors", root).key_problem(f"at {setting.id}: {said}"))
            return
        except (ValueError, ExperimentError) as error:
            problems.append(root.children["load"].children["websocket"].children["dialect"].problem(str(error)))
            return


def check_claims(root: Node, problems: list[FileProblem]) -> None:
    """Claims have different ids and name factors and levels that there are."""
    factors: dict[str, list[Level]] = {
        name: [level.value for level in factor.items]
        for name, factor in root.children.get("factors", _NOTHING).children.items()
    }
    vary = root.children.get("design", _NOTHING).children.get("vary", Node("all")).value
    ids: dict[object, Node] = {}
    for claim in root.children.get("claims", _NOTHING).items:
        identity = claim.children.get("id")
        if identity is not None and isinstance(identity.value, str | int):
            if identity.value in ids:
                problems.append(identity.problem(f"another claim has the id {identity.value} already"))
            ids.setdefault(identity.value, identity)
        text = claim.children.get("holds")
        if text is None or not isinstance(text.value, str):
            continue
        try:
            claimed = parse_claim(text.value)
        except ValueError:
            continue  # the model says so
        try:
            check_levels(claimed, factors)
        except ValueError as error:
            problems.append(text.problem(str(error)))
            continue
        if vary == "one-at-a-time" and all(factors.values()) and not _is_tried(claimed, factors):
            problems.append(
                text.problem(
                    "one factor varies at a time, so that no setting has all these levels: a claim is on the baseline, "
                    "or on one changed factor"
                )
            )


def _is_tried(claimed: Claimed, factors: Mapping[str, Sequence[Level]]) -> bool:
    """Whether all that a claim compares is among the settings at some levels of the factors that it leaves out."""
    levels = {name: tuple(of) for name, of in factors.items()}
    there = set(one_at_a_time(levels))
    return any(there.issuperset(case.values()) for case in settings_of(claimed, levels))


def check_published(experiment: Experiment, root: Node, problems: list[FileProblem]) -> None:
    """Each published figure is one setting's, or that of a size which this run does not have."""
    settings = experiment.settings()
    for node, published in zip(root.children.get("published", _NOTHING).items, experiment.published, strict=False):
        for name in published.by:
            place = node.children["by"].children[name]
            factors = [word.partition("=")[0].strip() for word in name.split(",")]
            unknown = [factor for factor in factors if factor not in experiment.factors]
            found = named_settings(name, settings)
            if unknown and not found:
                hint = did_you_mean(unknown[0], experiment.factors)
                problems.append(place.key_problem(f"{name}: there is no factor {unknown[0]}; {hint}"))
            elif len(found) > 1:
                problems.append(
                    place.key_problem(
                        f"{name} stands for {len(found)} settings, and a figure is one setting's: name the levels of "
                        "more factors"
                    )
                )


def check_own_metrics(experiment: Experiment, root: Node, problems: list[FileProblem]) -> None:
    """A metric of the subject's own is defined before it is used, and the subject has a page to read it off; and a page
    for a visitor, where one is asked for."""
    defined, subject = experiment.measure.metrics, experiment.subject
    measure = root.children.get("measure", _NOTHING)
    of_page = [name for name, own in experiment.measure.own_metrics().items() if not own.is_final]
    if of_page and subject.metrics_url is None and not is_told_statsd(subject):
        problems.append(
            measure.children["metrics"].key_problem(
                "the subject has no metrics page: name it in subject.metrics_url, for example "
                "http://127.0.0.1:{port}/metrics; or give it {statsd_port} in its command or env, to send StatsD "
                "metrics to"
            )
        )
    elif of_page and subject.metrics_url is not None:
        page = render_text(subject, experiment.settings()[0], SOME_GIVEN, subject.metrics_url)
        try:
            loadable_host(page, experiment.allow_hosts)
        except ValueError as error:
            problems.append(measure.children["metrics"].key_problem(f"subject.metrics_url: {error}"))
    if len(of_page) < len(defined) and subject.last_words is None:
        problems.append(
            measure.children["metrics"].key_problem(
                "final(...) is of the subject's last words, and nothing says which line of its log they are: set "
                "subject.last_words, for example '^final: '"
            )
        )
    if experiment.measure.visitor and experiment.subject.visitor_url is None:
        problems.append(
            measure.children["visitor"].key_problem(
                "the subject has no page for a visitor: name it in subject.visitor_url; the page prints each visit"
            )
        )
    for node, names in _named_metrics(experiment, root):
        for name in names:
            if name.startswith(OWN) and name not in defined:
                hint = did_you_mean(name, defined) if defined else "define it there"
                problems.append(node.problem(f"measure.metrics defines no {name}; {hint}"))
            elif experiment.is_self_driven and needs_load(name):
                problems.append(node.problem(f"only a load has {name}, and a self-driven subject has none: its rate is "
                                             "goodput"))  # fmt: skip


def _named_metrics(experiment: Experiment, root: Node) -> Iterator[tuple[Node, list[str]]]:
    """Where metrics are named, and which."""
    objective = experiment.objective
    where = root.children.get("objective", root)
    yield where, [objective.metric, *(constraint.metric for constraint in objective.constraints)]
    if invariants := experiment.measure.invariants:
        yield root.children["measure"].children["invariants"], [constraint.metric for constraint in invariants]
    for node, claim in zip(root.children.get("claims", _NOTHING).items, experiment.claims, strict=False):
        yield node.children["holds"], [reference.metric for reference in parse_claim(claim.holds).references]


def check_budget(experiment: Experiment, root: Node, problems: list[FileProblem]) -> None:
    """The time for the run holds one trial of every setting that is compared, even if servers start at once."""
    budget_ns, measure = experiment.design.budget_ns, experiment.measure
    budget = root.children.get("design", _NOTHING).children.get("budget")
    if budget_ns is None or budget is None:
        return
    settings = experiment.settings()
    compared = min(len(settings), experiment.design.finalists) if experiment.explores else len(settings)
    warmup_ns = measure.warmup_min_ns if measure.warmup_ns is None else measure.warmup_ns
    loads = [experiment.load_for(setting) for setting in settings]
    trial_ns = min(load.joining_ns + warmup_ns + load.duration_ns for load in loads)
    least_ns = compared * trial_ns
    if budget_ns < least_ns:
        each = f"{compared} setting{'s' if compared > 1 else ''} of at least {format_duration(trial_ns)} each"
        problems.append(
            budget.problem(
                f"{format_duration(budget_ns)} is too little for one block: {each} take {format_duration(least_ns)}, "
                "and it takes two blocks to compare anything: allow more time, name fewer levels, or shorten "
                "load.duration"
            )
        )


def is_label(name: str) -> bool:
    """Whether a factor only labels settings and reaches neither subject nor load."""
    return name == "aa" or name.startswith("label.")


def _is_list_of_levels(factor: Node, problems: list[FileProblem]) -> bool:
    if not isinstance(factor.value, tuple):
        problems.append(factor.problem("levels are a list ([1, 2, 4]) or a range (1..64)"))
        return False
    if not factor.items:
        problems.append(factor.problem("a factor needs at least one level"))
    bad = [level for level in factor.items if not isinstance(level.value, bool | int | float | str)]
    problems.extend(level.problem("a level is a number, a text, true or false") for level in bad)
    return not bad


def _check_factor(name: str, factor: Node, subject: Subject, load: Node, problems: list[FileProblem]) -> None:
    used = placeholders(templates_of(subject)) | asked_by_services(subject)
    if is_label(name):
        return
    if name.startswith("load."):
        _check_load_factor(name.removeprefix("load."), factor, load, problems)
    elif name in BUILT_IN:
        problems.append(factor.key_problem(f"{name} is filled in by powerband itself; give the factor another name"))
    elif not _is_known(name, subject, used):
        if name not in told_to_plan(load):
            problems.append(factor.key_problem(_unknown(name, subject, used)))
    else:
        for level in factor.items:
            _check_value(level.value, level, subject, name, problems)


def _check_load_factor(key: str, factor: Node, load: Node, problems: list[FileProblem]) -> None:
    keys = [field.alias or name for name, field in Load.model_fields.items() if name not in ("scenario", "websocket")]
    if key not in keys:
        problems.append(factor.key_problem(f"load has no key {key} that can vary; {did_you_mean(key, keys)}"))
        return
    other = {"users": "rate", "rate": "users"}.get(key)
    if other and load.children.get(other, Node(None)).value is not None:
        problems.append(
            factor.key_problem(f"load sets {other}, so {key} cannot vary; users and rate exclude each other")
        )
        return
    base: dict[str, object] = {} if other else {"users": 1}
    if load.children.get("websocket", Node(None)).value is not None:
        base |= {"users": 1, "websocket": {}, "scenario": [{"name": "x", "message": "x"}]}
    for level in factor.items:
        try:
            Load.model_validate({**base, field_named(Load, key): level.value}, context=AS_WRITTEN)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]
            problems.append(level.problem(f"{format_level(level.value)} is no value for load.{key}: {reason['msg']}"))


def _is_known(name: str, subject: Subject, used: set[str]) -> bool:
    return name in (subject.parameters or used)


def _unknown(name: str, subject: Subject, used: set[str]) -> str:
    if subject.parameters:
        return f"subject {subject.name} has no parameter {name}; {did_you_mean(name, subject.parameters)}"
    free = sorted(used - set(BUILT_IN))
    return f"{{{name}}} occurs nowhere in the command, the url or env; {did_you_mean(name, free)}"


def _check_value(level: Level, node: Node, subject: Subject, name: str, problems: list[FileProblem]) -> None:
    if name in subject.parameters:
        try:
            check_level(subject.parameters[name], level)
        except ValueError as error:
            problems.append(node.problem(str(error)))
            return
    if "link" in subject.services and name in (LINK_DELAY, LINK_RATE):
        try:
            parse_duration_ns(level) if name == LINK_DELAY else parse_bit_rate(level)
        except ValueError as error:
            problems.append(node.problem(str(error)))


def _templates(node: Node) -> Iterable[Node]:
    """Every node of a subject that holds text."""
    for name in ("command", "url", "env", "ready", "cwd", "metrics_url", "visitor_url", "apply"):
        yield from _texts(node.children.get(name, _NOTHING))


def _texts(node: Node) -> Iterable[Node]:
    if isinstance(node.value, str):
        yield node
    for child in (*node.children.values(), *node.items):
        yield from _texts(child)
