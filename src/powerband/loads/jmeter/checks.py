"""Checks an experiment whose load is a JMeter plan, and the plan itself. Each check yields problems.

A plan defines who sends which requests and when, so every other key of a load that defines this is an error, and is
taken out of the tree. The plan itself is read only if a run could start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.yaml_document import Node
from powerband.loads.jmeter.plan_file import Plan, check_hosts, read_plan
from powerband.model.experiment import Experiment, Subject
from powerband.model.subjects import command_and_env
from powerband.model.templates import placeholders

LOAD_KEYS = ("jmeter", "properties", "jvm_args", "duration", "drain", "engine_threads")
GIVEN = ("port", "host", "url")
"""The placeholders of a property besides parameters and factors: they say where the subject listens."""
VARIABLE_KEYS = ("duration", "drain", "engine_threads")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_OURS = ("jmeter.save.saveservice.", "sampleresult.", "jmeterengine.nongui.", "jmeterengine.force.")


def check_jmeter(root: Node, subject: Subject | None) -> Iterator[FileProblem]:
    """Checks that the load has only a plan's keys, and properties that JMeter can be given."""
    load = root.children["load"]
    for key, node in load.children.items():
        if key not in LOAD_KEYS and node.value is not None:
            yield node.key_problem(
                f"the plan defines users and requests: leave {key} out; what the plan reads by "
                f"${{__P({key})}} is given to it as properties: {{{key}: ...}}"
            )
    for name, factor in root.at("factors").children.items():
        key = name.removeprefix("load.")
        if name.startswith("load.") and key not in VARIABLE_KEYS:
            yield factor.key_problem(
                f"the plan says this, so that {name} cannot vary: let the plan read ${{__P({key})}}, write "
                f'load.properties: {{{key}: "{{{key}}}"}} and call the parameter {key}'
            )
    yield from _check_properties(load, root, subject)


def with_plan_keys(root: Node) -> Node:
    """Returns the tree with a load that has only a plan's keys."""
    load = root.children["load"]
    kept = {key: node for key, node in load.children.items() if key in LOAD_KEYS}
    return root.with_children({"load": Node(kept, load.key, load.position, load.key_position)})


def _check_properties(load: Node, root: Node, subject: Subject | None) -> Iterator[FileProblem]:
    factors = root.at("factors").children
    known = {*GIVEN, *factors, *(() if subject is None else (*subject.parameters, *subject.set))}
    for name, node in load.at("properties").children.items():
        if not _NAME.fullmatch(name):
            yield node.key_problem(f"{name!r} is no name of a JMeter property, as in ${{__P(name)}}")
        elif name.startswith(_OURS):
            yield node.key_problem("powerband sets this property itself, to read JMeter's results and to end it")
        if not isinstance(node.value, bool | int | float | str):
            yield node.problem(f"the property {name} needs a value: a number, a text, true or false")
        elif subject is not None:
            for unknown in sorted(placeholders([str(node.value)]) - known):
                yield node.problem(f"{{{unknown}}} stands for nothing; {did_you_mean(unknown, known)}")


def check_plan(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the plan exists, that JMeter can read it, and that it sends requests only to hosts that may be
    loaded."""
    try:
        check_plan_file(experiment)
    except ValueError as error:
        yield root.at("load", "jmeter").problem(str(error))


def check_plan_file(experiment: Experiment) -> None:
    """Raises ValueError if the plan cannot be run. A property that varies is checked again in each trial."""
    if experiment.load.jmeter is None:
        return
    file = Path(experiment.load.jmeter)
    if not file.is_file():
        raise ValueError(f"there is no JMeter plan {file}: a relative path counts from the folder of this file")
    plan, subject = read_plan(file), experiment.subject
    if plan.only_tcp and subject.container_client and subject.ready.log is None and subject.ready.http is None:
        raise ValueError(
            f"{file} speaks TCP, and a container's port takes connections before its server does: say by which line "
            "of its log the server is ready (subject.ready.log, --ready-log)"
        )
    # The value of a property that varies is known only in a trial; until then it depends on something unknown.
    known = {name: "${}" if placeholders([text]) else text for name, text in (experiment.load.properties or {}).items()}
    check_hosts(plan, known, experiment.allow_hosts)
    _check_read(plan, experiment)


def _check_read(plan: Plan, experiment: Experiment) -> None:
    """Raises ValueError if the plan cannot know the port that powerband picks, or does not read a value that varies: it
    would load another server, or the same way at every setting."""
    given = {name: placeholders([text]) for name, text in (experiment.load.properties or {}).items()}
    read = [asked for name, asked in given.items() if plan.reads(name)]
    picked = "port" in placeholders(command_and_env(experiment.subject))
    if picked and not any({"port", "url"} & asked for asked in read):
        raise ValueError(
            'the plan is not told the port that powerband picks for the server: write properties: {port: "{port}"}, '
            "and let the plan read ${__P(port)}"
        )
    for name, asked in given.items():
        if not asked <= {*GIVEN} and not plan.reads(name):
            raise ValueError(
                f"nothing in the plan reads the property {name}, so that its value changes nothing: let the plan read "
                f"${{__P({name})}}, or correct the name"
            )
