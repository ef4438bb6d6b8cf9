"""Checks an experiment whose objective is capacity, and fills in the users of its first look if none are named."""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node, from_plain
from powerband.loads.kind import LoadKind
from powerband.model.constraint import parse_constraint
from powerband.model.experiment import CAPACITY_USERS
from powerband.model.metrics import metric_named

CAPACITY = "capacity_per_s"
_SEARCHED = ("users", "join", "rate", "arrivals", "ramp", "ramp_from", "requests_per_user")
_RATES = ("goodput_per_s", "achieved_rate_per_s", "offered_rate_per_s")


def check_capacity(root: Node, kind: LoadKind) -> Iterator[FileProblem]:
    """Checks that capacity is no condition; as the objective it needs an SLO, a load whose rate is open, and no
    claims."""
    objective = root.at("objective")
    conditions = objective.at("subject_to")
    written = conditions.items or ((conditions,) if isinstance(conditions.value, str) else ())
    measured = [(condition, metric_of(str(condition.value))) for condition in written]
    for condition, metric in measured:
        if metric == CAPACITY:
            yield condition.problem("capacity is what is searched for under conditions, and cannot be one")
    metric_node = objective.at("metric")
    if _named(metric_node) != CAPACITY:
        return
    if kind.no_capacity is not None:
        yield metric_node.problem(kind.no_capacity)
    if not written:
        yield metric_node.problem(
            "capacity is the highest rate at which an SLO holds, and none is given: write "
            "{maximise: capacity, subject_to: [p99 < 50ms, errors < 0.1%]}, or --slo 'p99<50ms,errors<0.1%'"
        )
    direction = objective.children.get("direction")
    if direction is not None and direction.value == "minimise":
        yield metric_node.problem("capacity is maximised: the more a server bears the better")
    for condition, metric in measured:
        if metric in _RATES:
            yield condition.problem(f"{metric} cannot be a condition of capacity: the rate is what is searched for")
    yield from _check_load(root)
    if root.at("claims").items:
        yield root.children["claims"].key_problem(
            "claims compare settings under one load, and with the objective capacity each trial has a rate of its "
            "own: leave the claims out, or take another objective"
        )


def _check_load(root: Node) -> Iterator[FileProblem]:
    load = root.at("load").children
    for key in ("rate", "ramp_from", "arrivals"):
        entry = load.get(key)
        if entry is not None and entry.value not in (None, 0, "0", "poisson"):
            yield entry.key_problem(
                "with the objective capacity the rate is searched for, and arrivals are Poisson: leave this out"
            )
    for name, factor in root.at("factors").children.items():
        if name.removeprefix("load.") in _SEARCHED and name.startswith("load."):
            yield factor.key_problem("cannot vary with the objective capacity: the load is searched for")


def with_users(root: Node, kind: LoadKind) -> Node:
    """Returns the tree, with the users of the first look if a search for capacity names none."""
    load = root.children.get("load", Node({}))
    named = [load.at(key).value for key in ("users", "rate")]
    searches = _named(root.at("objective", "metric")) == CAPACITY and kind.load_keys is None
    if not searches or named != [None, None] or not isinstance(load.value, dict):
        return root
    users = from_plain(CAPACITY_USERS, "load.users", None)
    return root.with_children({"load": load.with_children({"users": users})})


def metric_of(condition: str) -> str | None:
    """Returns the metric of a condition; None for a text that is no condition."""
    try:
        return str(parse_constraint(condition)["metric"])
    except ValueError:
        return None  # the model reports it


def _named(node: Node) -> str | None:
    try:
        return metric_named(str(node.value)).name
    except ValueError:
        return None
