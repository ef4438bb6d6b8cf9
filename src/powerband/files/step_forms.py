"""Expands short forms of steps on the tree, `{get: /test}` and `{event: ping, answer: pong}`, to the models' own form.

Each value keeps its place. Not here: which steps go with which load (`loads/<kind>/checks.py`).
"""

from __future__ import annotations

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node
from powerband.model.secrets import without_secrets

METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
# Kinds of message by their key in a file: what the key's value is called, and which other keys of the step belong to
# it.
_MESSAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "message": ("text", ()),
    "binary": ("base64", ()),
    "event": ("event", ("data", "answer")),
    "call": ("event", ("data",)),
    "publish": ("channel", ("data",)),
}
MESSAGE_KEYS = ("binary", "event", "call", "publish", "data", "answer", "expect")  # `message` is the model's key too
_SHOWN = 40  # characters of a text that names its step: arbitrary, a column of a table


def with_steps(node: Node, key: str, problems: list[FileProblem]) -> Node:
    """Returns the node with its list of requests or messages in their full form."""
    listed = node.children.get(key)
    if listed is None or not listed.items:
        return node
    steps = tuple(full_step(step, problems) for step in listed.items)
    return node.with_children({key: Node(steps, listed.key, listed.position)})


def full_step(node: Node, problems: list[FileProblem]) -> Node:
    """Returns one step in full; its name is its request, without secrets, or message unless it has one."""
    if not isinstance(node.value, dict):
        return node
    asked = [key for key in (*METHODS, *_MESSAGES) if key in node.children]
    for key in asked[1:]:
        what = "request" if asked[0] in METHODS else "message"
        problems.append(node.children[key].key_problem(f"a step has one {what}, and this one has {asked[0]} already"))
    changes: dict[str, Node | None] = dict.fromkeys(asked)
    if asked:
        kind = asked[0]
        changes |= _request(node.children[kind], kind) if kind in METHODS else _message(node, kind)
    step = _expecting(node.with_children(_without_strays(node, asked, problems) | changes), problems)
    if "name" in step.children:
        return step
    return step.with_children({"name": step.child("name", _name(node, step))})


def _request(path: Node, verb: str) -> dict[str, Node | None]:
    return {"method": Node(verb.upper(), path.key, path.key_position), "path": path}


def _message(node: Node, kind: str) -> dict[str, Node | None]:
    written = node.children[kind]
    if kind == "message":
        return {"message": written}
    field, own = _MESSAGES[kind]
    parts = {"kind": Node(kind, written.key, written.position), field: written}
    parts |= {key: node.children[key] for key in own if key in node.children}
    return {"message": Node(parts, written.key, written.position, written.key_position)}


def _without_strays(node: Node, asked: list[str], problems: list[FileProblem]) -> dict[str, Node | None]:
    """Returns the keys to be removed from a step: those that went into its message and, with a problem, those that
    cannot."""
    own = _MESSAGES[asked[0]][1] if asked and asked[0] in _MESSAGES else ()
    for key in ("data", "answer"):
        if key in node.children and key not in own:
            of = "an event" if key == "answer" else "an event, a call or a publish"
            problems.append(node.children[key].key_problem(f"{key} belongs to {of}; this step has none"))
    return dict.fromkeys(("data", "answer"))


def _expecting(step: Node, problems: list[FileProblem]) -> Node:
    """Turns `expect` into `check: {contains: ...}`."""
    expect, check = step.children.get("expect"), step.children.get("check")
    if expect is None:
        return step
    if check is not None and "contains" in check.children:
        problems.append(expect.key_problem("check.contains says the same; keep one of the two"))
        return step.with_children({"expect": None})
    contains = {"contains": expect}
    changed = Node(contains, expect.key, expect.position) if check is None else check.with_children(contains)
    return step.with_children({"expect": None, "check": changed})


def _name(node: Node, step: Node) -> str:
    kind = next((key for key in _MESSAGES if key in node.children), None)
    if kind is None:
        method, path = step.children.get("method", Node("GET")), step.children.get("path", Node("/"))
        return without_secrets(f"{method.value} {path.value}")
    text = str(node.children[kind].value)
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return {"message": shown, "binary": "binary message", "event": shown}.get(kind, f"{kind} {shown}")
