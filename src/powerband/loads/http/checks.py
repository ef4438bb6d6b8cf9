"""Checks of a load of HTTP requests, and those that a load of WebSockets shares. Each adds problems."""

from __future__ import annotations

from powerband.base.errors import FileProblem
from powerband.base.hosts import request_target
from powerband.base.yaml_document import Node


def check_http(root: Node, url: str, problems: list[FileProblem]) -> tuple[Node, bool]:
    """The tree, whose load without a scenario is one GET of the path of `url`, and whether any problem was found."""
    before = len(problems)
    load = root.children.get("load", Node({}))
    check_own_requests(root, problems)
    if isinstance(load.value, dict):
        check_joining(load, problems)
        _check_requests(load, url, problems)
    path = request_target(url)
    if "load" in root.children and isinstance(load.value, dict) and "scenario" not in load.children:
        scenario = load.child("scenario", [{"name": f"GET {path}", "path": path}])
        root = root.with_children({"load": load.with_children({"scenario": scenario})})
    return root, len(problems) > before


def check_own_requests(root: Node, problems: list[FileProblem]) -> None:
    """The requests that powerband itself makes go over HTTP, whatever the load."""
    acknowledged = root.at("measure", "acknowledged")
    for step in (*root.at("subject", "apply").items, *map(acknowledged.at, ("reset", "write", "read"))):
        if "message" in step.children:
            problems.append(
                step.children["message"].key_problem("this request is made over HTTP, and cannot be a message")
            )


def check_joining(load: Node, problems: list[FileProblem]) -> None:
    join = is_set(load, "join")
    if join is None:
        return
    if is_set(load, "ramp", 0, "0s") is not None:
        problems.append(
            join.key_problem(
                "ramp is set too: both say how fast users begin, join as a rate and ramp as a time; keep one"
            )
        )
    if is_set(load, "rate") is not None:
        problems.append(join.key_problem("join is the rate at which users begin, and an open load (rate) has none"))


def _check_requests(load: Node, url: str, problems: list[FileProblem]) -> None:
    """What only a WebSocket load may say, in a load of HTTP requests."""
    websocket, pace = is_set(load, "websocket"), is_set(load, "pace")
    if websocket is not None:
        problems.append(
            websocket.key_problem(
                f"the url makes a load one of WebSockets, and it is {url}: write ws:// or wss:// there"
            )
        )
    if pace is not None:
        problems.append(
            pace.key_problem(
                "an HTTP user waits for its answer before it goes on, so it has no pace: write think for the pause "
                "after an answer, or rate for requests that wait for nobody"
            )
        )
    for step in load.at("scenario").items:
        message, answered = step.children.get("message"), step.children.get("answered")
        if message is not None:
            problems.append(
                message.key_problem(
                    f"a message goes over a WebSocket, and the url is {url}: write ws:// or wss:// there"
                )
            )
        elif answered is not None and answered.value is False:
            problems.append(answered.key_problem("every HTTP request is answered; only a message may be one-way"))


def is_set(node: Node, key: str, *defaults: object) -> Node | None:
    """An entry that says something: not null, and none of the defaults."""
    entry = node.children.get(key)
    if entry is None or entry.value is None or (defaults and entry.value in defaults):
        return None
    return entry
