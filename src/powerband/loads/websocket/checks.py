"""Checks a load of WebSockets: its users, its messages, its dialect. Each check yields problems, with their places.

A url with ws:// or wss:// makes the load one of WebSockets, whether or not it has `load.websocket`.
"""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node
from powerband.loads.http.checks import (
    ONLY_OPEN,
    check_joining,
    check_own_requests,
    is_set,
    set_keys,
    varied_keys,
)

_OPEN: dict[str, tuple[object, ...]] = {"rate": (), **ONLY_OPEN}
_EVENTS = ("event", "call", "publish")
_ID = "{id}"


def check_websocket(root: Node) -> Iterator[FileProblem]:
    """Checks that the load has users who stay, and messages of its dialect."""
    load = root.children.get("load", Node({}))
    yield from check_own_requests(root)
    if not isinstance(load.value, dict):
        return
    yield from check_joining(load)
    yield from _check_users(root, load)
    steps = load.at("scenario").items
    if "scenario" not in load.children:
        yield load.problem(
            "a WebSocket load needs a scenario that says what to send: for example "
            "scenario: [{message: ping, expect: pong}]"
        )
    for step in steps:
        yield from _check_message(step)
    yield from _check_dialect(load.at("websocket"), steps)
    yield from _check_answers(load.at("websocket"), steps)


def with_websocket(root: Node) -> Node:
    """Returns the tree with `load.websocket`, which has a default for everything."""
    load = root.children.get("load", Node({}))
    if not isinstance(load.value, dict) or load.at("websocket").value is not None:
        return root
    return root.with_children({"load": load.with_children({"websocket": load.child("websocket", {})})})


def _check_users(root: Node, load: Node) -> Iterator[FileProblem]:
    """Checks that the load has users who stay, and nothing of an open load; they pause or have a pace, not both."""
    for entry in set_keys(load, _OPEN):
        yield entry.key_problem(
            "belongs to an open load, whose requests come and go; a WebSocket load has users who stay: write users, "
            "join for how fast they come, and pace for how often each sends"
        )
    for factor in varied_keys(root, (*_OPEN, "keep_alive")):
        yield factor.key_problem("a WebSocket load has no such key to vary: vary load.users or load.pace")
    keep_alive = is_set(load, "keep_alive")
    if keep_alive is not None and keep_alive.value is False:
        yield keep_alive.key_problem("a WebSocket is a connection that is kept: leave this out")
    pace = is_set(load, "pace")
    if pace is None and "load.pace" not in root.at("factors").children:
        return
    for owner in (load, *load.at("scenario").items):
        think = is_set(owner, "think", 0, "0s")
        if think is not None:
            yield think.key_problem(
                "pace is set too: think is the pause after an answer, pace the time between sends whether or not "
                "they were answered; keep one"
            )


def _check_message(step: Node) -> Iterator[FileProblem]:
    if not isinstance(step.value, dict):
        return
    of_requests = list(_of_requests(step))
    yield from of_requests
    status = step.at("check").children.get("status")
    if status is not None and status.plain() != []:
        yield status.key_problem("a message has no status: write expect for what its answer holds")
    message = step.children.get("message")
    if message is None:
        if not of_requests:
            yield step.problem(
                "each step of a WebSocket load is a message: write message, binary, event, call or publish"
            )
        return
    yield from _check_one_way(step, message)


def _of_requests(step: Node) -> Iterator[FileProblem]:
    """Yields one problem for each part of an HTTP request in a message; a short form, which is method and path in one
    place, counts once."""
    instead = {
        "path": "the path of the handshake is the url's",
        "headers": "load.websocket.headers are those of the handshake",
    }
    told: set[str] = set()
    for key, defaults in (("method", ("GET",)), ("path", ("/",)), ("headers", ([], {})), ("body", (None,))):
        entry = step.children.get(key)
        if entry is None or entry.plain() in defaults or entry.key in told:
            continue
        told.add(entry.key)
        advice = instead.get(entry.key.rpartition(".")[2], "write message, binary, event, call or publish")
        yield entry.key_problem(f"belongs to an HTTP request, but the url makes this a WebSocket load: {advice}")


def _check_one_way(step: Node, message: Node) -> Iterator[FileProblem]:
    answered = step.children.get("answered", Node(True)).value is not False
    contains = step.at("check").children.get("contains")
    if not answered and contains is not None and contains.plain() != []:
        yield contains.key_problem("nothing can be expected of a message that is not answered (answered: false)")
    if _kind(message) != "event":
        return
    answer = message.children.get("answer")
    named = answer is not None and answer.value is not None
    if answered and not named:
        yield message.problem(
            "which event answers it? Write answer: NAME; or answered: false, if none does; or call: in its place, "
            "which is answered by its number"
        )
    if not answered and named and answer is not None:
        yield answer.key_problem("answered is false: a message without an answer has no name for it")


def _check_dialect(websocket: Node, steps: tuple[Node, ...]) -> Iterator[FileProblem]:
    """Checks that events have a dialect of SocketCluster, and texts the plain one."""
    dialect = websocket.children.get("dialect", Node("plain")).value
    plain = dialect == "plain"
    for step in steps:
        message = step.children.get("message")
        if message is None:
            continue
        kind = _kind(message)
        if plain and kind in _EVENTS:
            yield message.key_problem(
                f"{kind} belongs to SocketCluster: say which, with load.websocket.dialect: socketcluster20 (or "
                "socketcluster14); over a plain WebSocket write message"
            )
        elif not plain and kind not in _EVENTS:
            yield message.key_problem(
                f"the dialect {dialect} sends events: write event, call or publish, each with data"
            )
    subscribe, match = websocket.children.get("subscribe"), websocket.children.get("match")
    if plain and subscribe is not None and subscribe.plain() not in ([], None):
        yield subscribe.key_problem(
            "channels belong to SocketCluster (load.websocket.dialect); over a plain WebSocket write what subscribes "
            "as a greeting: greetings: ['...']"
        )
    if not plain and match is not None and match.plain() != "order":
        yield match.key_problem(
            f"the dialect {dialect} matches answers itself: events by name, calls by number; leave it out"
        )


def _check_answers(websocket: Node, steps: tuple[Node, ...]) -> Iterator[FileProblem]:
    """Checks that a message contains the number by which its answer is known, and that a tally counts the messages of
    one step, which is answered."""
    plain = websocket.children.get("dialect", Node("plain")).value == "plain"
    if plain and "id_after" in websocket.at("match").children:
        for step in steps:
            message = step.children.get("message")
            awaited = step.children.get("answered", Node(True)).value is not False
            if message is not None and awaited and _ID not in _text(message):
                yield message.problem(
                    f"its answer is known by a number (load.websocket.match), and the message holds none: write "
                    f"{_ID} where it goes, or answered: false"
                )
    tally = is_set(websocket, "tally")
    one_way = [step for step in steps if step.children.get("answered", Node(True)).value is False]
    if tally is not None and (len(steps) > 1 or one_way):
        yield tally.key_problem(
            "the server's count is compared with the messages sent, so a tally needs a scenario of one step that is "
            "answered: leave tally out, or keep one step"
        )


def _kind(message: Node) -> str:
    """Returns the kind of a message; a short `message` is a text."""
    return str(message.children.get("kind", Node("text")).value)


def _text(message: Node) -> str:
    """Returns the parts of a message that may contain a token."""
    parts = [message.at(key) for key in ("text", "data")] if message.children else [message]
    return " ".join(str(part.plain()) for part in parts)
