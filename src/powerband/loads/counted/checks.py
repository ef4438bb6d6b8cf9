"""What an experiment with a self-driven subject may say of its load, and where its counter is told. Adds problems.

In: the tree of an experiment whose subject has `counts`. Out: the same tree with a load that the models accept: only
its duration means anything. Every other experiment passes through.
"""

from __future__ import annotations

from powerband.base.errors import FileProblem
from powerband.base.hosts import loadable_host
from powerband.base.yaml_document import Node
from powerband.model.experiment import Experiment, Subject
from powerband.model.subjects import STATSD, is_told_statsd, render_text

_NOTHING = Node({})
_ALONE = "a self-driven subject is not loaded, so its load has a duration only"
_OF_A_LOAD = (
    *("response_time", "service_time", "connect_time", "send_lag", "error_rate", "run_error_rate", "dropped_rate"),
    *("offered_rate", "engine_", "users_mean", "in_flight", "littles_law", "join", "drop", "rejoins", "deliver"),
    *("tally", "finish_s", "burst_response_time", "burst_error_rate"),
)
_STAND_IN = {"users": 1}  # a load needs users or a rate; nobody looks at them


def is_self_driven(subject: Node | None) -> bool:
    return subject is not None and subject.children.get("counts", Node(None)).value is not None


def check_self_driven(root: Node, problems: list[FileProblem]) -> Node:
    """The tree with its load filled in."""
    load = root.children.get("load", root.child("load", {}))
    for key, node in load.children.items():
        if key != "duration" and node.value is not None:
            problems.append(node.key_problem(f"{_ALONE}: leave {key} out"))
    for name, factor in root.children.get("factors", _NOTHING).children.items():
        if name.startswith("load.") and name != "load.duration":
            problems.append(factor.key_problem(f"{_ALONE}, and {name} cannot vary"))
    objective = root.children.get("objective", _NOTHING).children.get("metric")
    if objective is not None and objective.value in ("capacity", "capacity_per_s"):
        problems.append(
            objective.problem("a self-driven subject has no capacity, for no rate is offered: maximise goodput")
        )
    if load.value is not None and not isinstance(load.value, dict):
        return root  # the model says so
    kept = {key: node for key, node in load.children.items() if key == "duration"}
    filled = {name: load.child(name, value) for name, value in _STAND_IN.items()}
    return root.with_children({"load": Node({**filled, **kept}, load.key, load.position, load.key_position)})


def check_counter(experiment: Experiment, given: dict[str, str], node: Node, problems: list[FileProblem]) -> None:
    """The counter stands on a page, or is sent to the sink; the page is this machine's, or an allowed host's."""
    subject = experiment.subject
    if subject.counts is None:
        return
    where = node.children["counts"]
    if not has_series(subject):
        problems.append(
            where.problem(
                "nothing says where this counter is told: name the program's Prometheus page in subject.metrics_url, "
                f"or give the program {{{STATSD[0]}}} or {{{STATSD[1]}}} in its command or env, and it sends StatsD "
                "metrics there"
            )
        )
    elif subject.metrics_url is not None:
        page = render_text(subject, experiment.settings()[0], given, subject.metrics_url)
        try:
            loadable_host(page, experiment.allow_hosts)
        except ValueError as error:
            problems.append(where.problem(f"subject.metrics_url: {error}"))


def needs_load(metric: str) -> bool:
    """Whether a metric is of requests, users or engines, so that a self-driven subject never has it."""
    return metric.startswith(_OF_A_LOAD)


def has_series(subject: Subject) -> bool:
    """Whether anything of the subject's own can be read: its page, or what it sends to the sink."""
    return subject.metrics_url is not None or is_told_statsd(subject)
