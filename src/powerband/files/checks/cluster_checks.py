"""Checks a load from other nodes than the server's (`cluster.generators`): can they make it, and reach the server?"""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.errors import FileProblem
from powerband.base.hosts import LOADABLE, is_loopback, split_url
from powerband.base.yaml_document import Node
from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.host_use import Pinning
from powerband.model.subjects import ADDRESS, STAND_INS, render_text, uses
from powerband.model.templates import placeholders


def check_generators(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the kind of load can come from other nodes, that these reach the server at its url, and that no key
    is set that needs both on one node. Looks at nothing without `cluster.generators`."""
    if not experiment.generators:
        return
    asked, subject = root.at("cluster", "generators"), experiment.subject
    if (why := kind_of(experiment).not_apart) is not None:
        yield asked.problem(f"{why}: leave generators out")
        return
    if any(uses(subject, "link", setting) for setting in experiment.settings()):
        yield asked.problem(
            "a server behind a link of subject.services is reached from its own node alone: leave generators out, or "
            "shape the network between the nodes"
        )
    url = render_text(subject, experiment.settings()[0], STAND_INS, subject.url)
    if ADDRESS not in placeholders([subject.url]) and is_loopback(split_url(url, LOADABLE).hostname or ""):
        where = root.at("subject").children.get("url", asked)
        yield where.problem(
            f"other nodes are to load this server, and {subject.url} is reached from its own node alone: write "
            "http://{address}:{port}/, and have the server listen on {address} (127.0.0.1 where the load comes from "
            "its own machine) or on 0.0.0.0"
        )
    if experiment.load.tls_ca_file is not None:
        yield root.at("load", "tls_ca_file").problem(
            "this file is not on the nodes that make the load: write tls_insecure"
        )
    if isinstance(experiment.host.pinning, Pinning):
        yield root.at("host", "pinning").problem(
            "the load generator runs on other nodes, and the server has its node to itself: leave pinning out, or use "
            "host.cpus"
        )


def check_one_clock(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that deliveries, which are timed from the stamp of their sender, are made and received on one node."""
    websocket = experiment.load.websocket
    if experiment.generators > 1 and websocket is not None and websocket.stamp_after is not None:
        yield root.at("load", "websocket", "stamp_after").problem(
            "a delivery is timed by one clock, and each node that makes the load has its own: write generators: 1, or "
            "leave stamp_after out"
        )
