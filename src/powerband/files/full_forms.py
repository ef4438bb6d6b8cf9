"""The short forms of an experiment file in full: what the models and the checks read. Each value keeps its place.

In: the tree of a file. Out: the same tree with the subject that it uses, ranges as lists, steps and objective in the
models' own form, and paths from the folder of their file. What values mean is checked later.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node, from_plain, join, merge, parse_yaml, read_file
from powerband.files.levels import parse_range
from powerband.files.library import find_subject
from powerband.files.step_forms import full_step, with_steps


def in_full(root: Node, problems: list[FileProblem], folder: Path) -> Node:
    """The tree without profiles, every part of it in its full form; without its subject where that does not exist.
    `folder` is what relative paths are relative to."""
    parts: dict[str, Callable[[Node], Node | None]] = {
        "subject": lambda node: full_subject(node, problems, folder),
        "factors": lambda node: _factors(node, problems),
        "load": lambda node: _load(node, problems, folder),
        "measure": lambda node: _measure(node, problems),
        "objective": lambda node: _objective(node, problems),
    }
    full = {key: in_its_form(root.children[key]) for key, in_its_form in parts.items() if key in root.children}
    return root.with_children({"profiles": None, **full})


def full_subject(node: Node, problems: list[FileProblem], folder: Path) -> Node | None:
    """The subject laid over the one that it uses; None where that does not exist, which is a problem."""
    used = _over_used(node, problems, folder)
    return None if used is None else with_steps(used, "apply", problems)


def _over_used(node: Node, problems: list[FileProblem], folder: Path) -> Node | None:
    if isinstance(node.value, str):
        node = Node({"use": node}, node.key, node.position)
    use = node.children.get("use")
    if use is None:
        return _named(_rooted(node, folder))
    try:
        file = find_subject(str(use.plain()), folder)
    except ValueError as error:
        problems.append(use.problem(str(error)))
        return None
    base = parse_yaml(read_file(file), str(file), problems)
    if "name" not in base.children:
        base = base.with_children({"name": base.child("name", file.parent.name)})
    base = _rooted(base, file.parent).with_children({"folder": base.child("folder", str(file.parent.resolve()))})
    return merge(base, _rooted(node.with_children({"use": None}), folder))


def _rooted(node: Node, folder: Path) -> Node:
    """A relative `cwd` is relative to the file in which it stands."""
    cwd = node.children.get("cwd")
    if cwd is None or not isinstance(cwd.value, str):
        return node
    return node.with_children({"cwd": Node(str((folder / cwd.value).resolve()), cwd.key, cwd.position)})


def _named(node: Node) -> Node:
    """A server written inline is called after its program, unless it has a name."""
    if "name" in node.children or not isinstance(node.value, dict):
        return node
    command = node.children.get("command", Node("server"))
    words = command.value.split() if isinstance(command.value, str) else [str(word.value) for word in command.items]
    return node.with_children({"name": node.child("name", Path(words[0]).name if words else "server")})


def _factors(node: Node, problems: list[FileProblem]) -> Node:
    """Each factor as a list: a range is unfolded, one value stands for itself."""
    return node.with_children({name: _levels(levels, problems) for name, levels in node.children.items()})


def _levels(node: Node, problems: list[FileProblem]) -> Node:
    if isinstance(node.value, tuple | dict):
        return node
    try:
        levels = parse_range(node.value) if isinstance(node.value, str) else None
    except ValueError as error:
        problems.append(node.problem(str(error)))
        levels = None
    return from_plain([node.value] if levels is None else levels, node.key, node.position)


def _load(node: Node, problems: list[FileProblem], folder: Path) -> Node:
    changes: dict[str, Node | None] = {}
    node = with_steps(node, "scenario", problems)
    for key in ("tls_ca_file", "jmeter"):
        file = node.children.get(key)
        if file is not None and file.value and isinstance(file.value, str):
            changes[key] = Node(str((folder / file.value).resolve()), file.key, file.position, file.key_position)
    return node.with_children(changes) if changes else node


def _measure(node: Node, problems: list[FileProblem]) -> Node:
    """The requests of `acknowledged`, as steps."""
    check = node.children.get("acknowledged")
    if check is None or not isinstance(check.value, dict):
        return node
    steps = {
        key: full_step(check.children[key], problems) for key in ("reset", "write", "read") if key in check.children
    }
    return node.with_children({"acknowledged": check.with_children(dict(steps))})


def _objective(node: Node, problems: list[FileProblem]) -> Node:
    """`{maximise: goodput}` as metric and direction; a metric alone is to be maximised."""
    if isinstance(node.value, str):
        return Node({"metric": node}, node.key, node.position)
    directions = [key for key in ("maximise", "minimise") if key in node.children]
    if len(directions) == 2:
        problems.append(node.children["minimise"].key_problem("an objective either maximises or minimises"))
    if not directions:
        return node
    metric = node.children[directions[0]]
    return node.with_children(
        {
            "maximise": None,
            "minimise": None,
            "metric": metric,
            "direction": Node(directions[0], join(node.key, "direction"), metric.key_position),
        }
    )
