"""Checks of `subject.deployed`: a server that runs already is neither started nor ended, so no key may say how."""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.yaml_document import Node
from powerband.model.experiment import Experiment, Subject, SubjectStop
from powerband.model.host_use import HostUse
from powerband.model.subjects import BUILT_IN, knob_templates
from powerband.model.templates import placeholders

STARTS = ("command", "env", "build", "jdk", "dotnet", "services", "stop", "counts", "last_words")
"""The keys of a subject that say how it is started, or what is read of its output and messages."""


def check_deployed(subject: Subject, root: Node) -> Iterator[FileProblem]:
    """Checks that the subject has an address, nothing that only a server started by powerband can have, and the whole
    setting that it gets back."""
    node = root.at("subject")
    assert subject.deployed is not None
    for key in STARTS:
        value = getattr(subject, key)
        if key in node.children and value not in (None, {}, SubjectStop()):
            yield node.children[key].key_problem(
                f"the server runs already (subject.deployed), and is neither started nor ended: leave {key} out"
            )
    if subject.ready.log is not None:
        yield (
            node.at("ready")
            .children["log"]
            .key_problem("what a server prints that runs already is not seen: leave log out, or write http")
        )
    if "url" not in node.children:
        yield node.problem("nothing says where the server listens: write subject.url, such as http://127.0.0.1:8080/")
    for text in [subject.url, *knob_templates(subject)]:
        for name in sorted(placeholders([text]) & set(BUILT_IN)):
            yield node.problem(
                f"{{{name}}} is filled in for a server that powerband starts, and this one runs already: write the "
                "value itself"
            )
    yield from _check_restored(subject, root)
    yield from _check_beside(root)


def _check_restored(subject: Subject, root: Node) -> Iterator[FileProblem]:
    """Checks that the setting that the server gets back is complete."""
    assert subject.deployed is not None
    restore = root.at("subject", "deployed", "restore")
    changed = sorted(placeholders(knob_templates(subject)) & root.at("factors").children.keys())
    for name in sorted(subject.deployed.restore.keys() - set(changed)):
        yield restore.children[name].key_problem(f"no parameter {name} is varied; {did_you_mean(name, changed)}")
    missing = [name for name in changed if name not in subject.deployed.restore]
    if subject.deployed.restore and missing:
        yield restore.problem(f"{missing[0]} is varied too: write the value that it gets back at the end")


def _check_beside(root: Node) -> Iterator[FileProblem]:
    """Checks the parts of the file besides the subject."""
    host = root.children.get("host")
    usual = HostUse().model_dump(by_alias=True)
    if host is not None and not (isinstance(host.plain(), dict) and host.plain().items() <= usual.items()):
        yield host.key_problem("which CPUs a server has that runs already is not for powerband to say: leave host out")
    for name, factor in root.at("factors").children.items():
        if name.startswith("host."):
            yield factor.key_problem(
                "the server runs already, and powerband limits only servers that it starts, so that this would change "
                f"nothing: leave {name} out, or change the limit by subject.deployed"
            )
    if "cluster" in root.children and root.children["cluster"].plain() is not None:
        yield root.children["cluster"].key_problem(
            "nodes of a cluster each start a server of their own, and this one runs already: leave cluster out"
        )
    if root.at("measure", "snapshots").value is True:
        yield root.at("measure", "snapshots").key_problem(
            "a snapshot stops a JVM while it counts its objects, which is not done to a server that runs already"
        )
    if root.at("load", "jmeter").value is not None:
        yield root.at("load", "jmeter").key_problem(
            "a JMeter plan drives only servers that powerband starts: write its requests as load.scenario"
        )


def check_tally(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the server's own count of messages begins anew with each trial. The count of a server that runs
    already goes on, unless a command that changes the server starts it again."""
    deployed, websocket = experiment.subject.deployed, experiment.load.websocket
    if deployed is not None and deployed.command is None and websocket is not None and websocket.tally is not None:
        yield root.at("load", "websocket", "tally").problem(
            "the server runs already, so that its count goes on from one trial to the next, and is compared with the "
            "messages of one: leave tally out, or have subject.deployed.command start the server again"
        )
