"""Checks an experiment with a self-driven subject: its load has only a duration, and its counter can be read.

In: the tree of an experiment whose subject has `counts`. Out: problems, and the tree with a load that the models
accept.
"""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node
from powerband.model.experiment import Experiment
from powerband.model.subjects import STATSD, check_metrics_page, has_series

LOAD_KEYS = ("duration",)
_ALONE = "a program without requests is not loaded, so its load has a duration only"


def check_self_driven(root: Node) -> Iterator[FileProblem]:
    """Checks that the load has a duration and no other key, and that nothing else of it varies."""
    for key, node in root.at("load").children.items():
        if key not in LOAD_KEYS and node.value is not None:
            yield node.key_problem(f"{_ALONE}: leave {key} out")
    for name, factor in root.at("factors").children.items():
        if name.startswith("load.") and name.removeprefix("load.") not in LOAD_KEYS:
            yield factor.key_problem(f"{_ALONE}, and {name} cannot vary")


def with_stand_in(root: Node) -> Node:
    """Returns the tree with a load that the models accept."""
    load = root.children.get("load", root.child("load", {}))
    if load.value is not None and not isinstance(load.value, dict):
        return root  # the model reports it
    kept = {key: node for key, node in load.children.items() if key in LOAD_KEYS}
    filled = {"users": load.child("users", 1)}  # a load needs users or a rate; nothing uses these
    return root.with_children({"load": Node({**filled, **kept}, load.key, load.position, load.key_position)})


def check_counter(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the counter is on a page or sent to the sink, and that the page is on this machine or an allowed
    host."""
    subject, where = experiment.subject, root.at("subject", "counts")
    if not has_series(subject):
        yield where.problem(
            "nothing says where this counter can be read: name the program's Prometheus page in subject.metrics_url, "
            f"or give the program {{{STATSD[0]}}} or {{{STATSD[1]}}} in its command or env, and it sends StatsD "
            "metrics there"
        )
    try:
        check_metrics_page(experiment)
    except ValueError as error:
        yield where.problem(str(error))
