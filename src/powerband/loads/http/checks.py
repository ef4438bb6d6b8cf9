"""Checks a load of HTTP requests, with checks that a load of WebSockets shares. Each yields problems."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from powerband.base.errors import FileProblem
from powerband.base.hosts import request_target
from powerband.base.yaml_document import Node
from powerband.model.experiment import Experiment
from powerband.model.metrics import ALIASES
from powerband.model.secrets import without_secrets

ONLY_OPEN: dict[str, tuple[object, ...]] = {
    "arrivals": ("poisson",),
    "ramp_from": (0, "0", "0/s"),
    "max_in_flight": (10_000,),  # resolved files of older versions have it
}
"""Keys of an open load beside its rate, each with the values that a resolved file has for any load."""


def check_http(root: Node, url: str) -> Iterator[FileProblem]:
    """Checks that neither the load nor its steps have keys of WebSocket users."""
    yield from check_own_requests(root)
    if isinstance(root.at("load").value, dict):
        yield from check_joining(root.at("load"))
        yield from _check_requests(root.at("load"), url)


def with_scenario(root: Node, url: str) -> Node:
    """Returns the tree, in which a load without a scenario is one GET of the path of `url`."""
    load = root.at("load")
    if not isinstance(load.value, dict) or "scenario" in load.children:
        return root
    path = request_target(url)
    scenario = load.child("scenario", [{"name": without_secrets(f"GET {path}"), "path": path}])
    return root.with_children({"load": load.with_children({"scenario": scenario})})


def check_own_requests(root: Node) -> Iterator[FileProblem]:
    """Checks that the requests that powerband itself makes go over HTTP, whatever the load."""
    acknowledged = root.at("measure", "acknowledged")
    for step in (*root.at("subject", "apply").items, *map(acknowledged.at, ("reset", "write", "read"))):
        if "message" in step.children:
            yield step.children["message"].key_problem("this request is made over HTTP, and cannot be a message")


def check_joining(load: Node) -> Iterator[FileProblem]:
    """Checks that `join`, the rate at which users begin, stands neither beside `ramp` nor in an open load."""
    join = is_set(load, "join")
    if join is None:
        return
    if is_set(load, "ramp", 0, "0s") is not None:
        yield join.key_problem(
            "ramp is set too: both say how fast users begin, join as a rate and ramp as a time; keep one"
        )
    if is_set(load, "rate") is not None:
        yield join.key_problem("join is the rate at which users begin, and an open load (rate) has none")


def check_open(root: Node) -> Iterator[FileProblem]:
    """Checks that a load of users neither has nor varies what only an open load reads, and that an open load has and
    varies no pause or ramp that changes nothing. A search for capacity opens the load. Old runs may have it, and can be
    read."""
    load, metric = root.at("load"), str(root.at("objective", "metric").value)
    if ALIASES.get(metric, metric) == "capacity_per_s":
        return
    if load.at("rate").value is not None:
        yield from _check_arrivals(root, load)
        return
    if load.at("users").value is None:
        return
    for entry in set_keys(load, ONLY_OPEN):
        yield entry.key_problem(
            "belongs to an open load, but this one has users, who wait for their answers: write rate (--rate) in place "
            "of users, or leave this out"
        )
    for factor in varied_keys(root, ONLY_OPEN):
        yield factor.key_problem(
            "belongs to an open load, but this one has users, so that all settings would be the same: write rate "
            "(--rate) in place of users, or vary another key"
        )


def _check_arrivals(root: Node, load: Node) -> Iterator[FileProblem]:
    steps = load.at("scenario").items
    if len(steps) == 1:
        why = "each arrival sends one request, and pauses after none: write users (--users) in place of rate"
        yield from _unread(root, (load, *steps), "think", (0, "0s"), why)
    if is_set(load, "ramp", 0, "0s") is None and not any(varied_keys(root, ("ramp",))):
        yield from _unread(root, (load,), "ramp_from", ONLY_OPEN["ramp_from"], "nothing ramps up: write ramp (--ramp)")


def _unread(
    root: Node, owners: Collection[Node], key: str, defaults: tuple[object, ...], why: str
) -> Iterator[FileProblem]:
    """Yields a problem for each of the load and its steps that sets a key which changes nothing, and for a factor that
    varies it."""
    for entry in filter(None, (is_set(owner, key, *defaults) for owner in owners)):
        yield entry.key_problem(f"{why}, or leave this out")
    for factor in varied_keys(root, (key,)):
        yield factor.key_problem(f"{why}, or vary another key")


def check_pipeline(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that requests are not lined up on connections that a step asks to close. Old runs may have both."""
    if experiment.load.pipeline > 1 and any(step.says_close for step in experiment.load.scenario):
        yield root.at("load", "pipeline").key_problem(
            "above 1, but a step says Connection: close: a connection of one request has nothing to line up"
        )


def set_keys(load: Node, keys: Mapping[str, tuple[object, ...]]) -> Iterator[Node]:
    """Yields the entries of `keys` that the load sets to another value than their defaults."""
    return filter(None, (is_set(load, key, *defaults) for key, defaults in keys.items()))


def varied_keys(root: Node, keys: Collection[str]) -> Iterator[Node]:
    """Yields the factors that vary one of these keys of the load."""
    factors = root.at("factors").children
    return (factors[f"load.{key}"] for key in keys if f"load.{key}" in factors)


def _check_requests(load: Node, url: str) -> Iterator[FileProblem]:
    """Checks that the load has no key and no step that only a WebSocket load may have."""
    websocket, pace = is_set(load, "websocket"), is_set(load, "pace")
    if websocket is not None:
        yield websocket.key_problem(
            f"the url makes a load one of WebSockets, and it is {url}: write ws:// or wss:// there"
        )
    if pace is not None:
        yield pace.key_problem(
            "an HTTP user waits for its answer before it goes on, so it has no pace: write think for the pause "
            "after an answer, or rate for requests that wait for nobody"
        )
    for step in load.at("scenario").items:
        message, answered = step.children.get("message"), step.children.get("answered")
        if message is not None:
            yield message.key_problem(
                f"a message goes over a WebSocket, and the url is {url}: write ws:// or wss:// there"
            )
        elif answered is not None and answered.value is False:
            yield answered.key_problem("every HTTP request is answered; only a message may be one-way")


def is_set(node: Node, key: str, *defaults: object) -> Node | None:
    """Returns the entry of a key; None if it is missing, null or one of the defaults."""
    entry = node.children.get(key)
    if entry is None or entry.value is None or (defaults and entry.value in defaults):
        return None
    return entry
