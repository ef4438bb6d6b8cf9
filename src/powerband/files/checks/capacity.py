"""Checks of an experiment whose objective is capacity; fills in the users of its first look, if none are named."""

from __future__ import annotations

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node, from_plain
from powerband.loads.kind import LoadKind
from powerband.model.experiment import CAPACITY_USERS, parse_constraint
from powerband.model.metrics import metric_named

CAPACITY = "capacity_per_s"
_SEARCHED = ("users", "join", "rate", "arrivals", "ramp", "ramp_from", "requests_per_user")
_RATES = ("goodput_per_s", "achieved_rate_per_s", "offered_rate_per_s")


def check_capacity(root: Node, kind: LoadKind, problems: list[FileProblem]) -> Node:
    """The tree, with the users of the first look. Problems: no SLO, a rate, what cannot be compared at many rates."""
    objective = root.at("objective")
    conditions = objective.at("subject_to")
    written = conditions.items or ((conditions,) if isinstance(conditions.value, str) else ())
    measured = [(condition, _metric_of(condition)) for condition in written]
    for condition, metric in measured:
        if metric == CAPACITY:
            problems.append(condition.problem("capacity is what is searched for under conditions, and cannot be one"))
    metric_node = objective.children.get("metric")
    if metric_node is None or _named(metric_node) != CAPACITY:
        return root
    if kind.no_capacity is not None:
        problems.append(metric_node.problem(kind.no_capacity))
    if not written:
        problems.append(
            metric_node.problem(
                "capacity is the highest rate at which an SLO holds, and none is given: write "
                "{maximise: capacity, subject_to: [p99 < 50ms, errors < 0.1%]}, or --slo 'p99<50ms,errors<0.1%'"
            )
        )
    direction = objective.children.get("direction")
    if direction is not None and direction.value == "minimise":
        problems.append(metric_node.problem("capacity is maximised: the more a server bears the better"))
    for condition, metric in measured:
        if metric in _RATES:
            problems.append(
                condition.problem(f"{metric} cannot be a condition of capacity: the rate is what is searched for")
            )
    _check_load(root, problems)
    if root.at("claims").items:
        problems.append(
            root.children["claims"].key_problem(
                "claims compare settings under one load, and with the objective capacity each trial has a rate of its "
                "own: leave the claims out, or take another objective"
            )
        )
    return root if kind.load_keys is not None else _with_users(root)


def _check_load(root: Node, problems: list[FileProblem]) -> None:
    load = root.at("load").children
    for key in ("rate", "ramp_from", "arrivals"):
        entry = load.get(key)
        if entry is not None and entry.value not in (None, 0, "0", "poisson"):
            problems.append(
                entry.key_problem(
                    "with the objective capacity the rate is searched for, and arrivals are Poisson: leave this out"
                )
            )
    for name, factor in root.at("factors").children.items():
        if name.removeprefix("load.") in _SEARCHED and name.startswith("load."):
            problems.append(factor.key_problem("cannot vary with the objective capacity: the load is searched for"))


def _with_users(root: Node) -> Node:
    load = root.children.get("load", Node({}))
    named = [load.at(key).value for key in ("users", "rate")]
    if named != [None, None] or not isinstance(load.value, dict):
        return root
    users = from_plain(CAPACITY_USERS, "load.users", None)
    return root.with_children({"load": load.with_children({"users": users})})


def _metric_of(condition: Node) -> str | None:
    try:
        return str(parse_constraint(str(condition.value))["metric"])
    except ValueError:
        return None  # the model says so


def _named(node: Node) -> str | None:
    try:
        return metric_named(str(node.value)).name
    except ValueError:
        return None
