"""Reads YAML. In: text. Out: a tree of nodes, each with its file, line, column and full key.

It is YAML 1.2 (`on` is text, `12:30` is text). Duplicate keys are errors; the meaning of keys is decided elsewhere.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from powerband.base.errors import ExperimentError, FileProblem, Position, UsageError

Scalar = bool | int | float | str | None
_FOLD_MARK = "\a"  # the reader marks places where it folded a line, so that it could write the same text again
_NODES_MAX = 100_000  # limits a file of aliases of aliases, which could exhaust the memory
_TEXT_MAX = 1 << 24  # characters of all its texts together, for the same reason
_FILE_BYTES_MAX = 1 << 22  # arbitrary: a thousand times an experiment; the YAML reader is slow on more
_BRACKETS_MAX = 500  # arbitrary: each nests calls of the YAML reader, of which Python allows a thousand
_DIGITS_MAX = 300  # a longer number has no use, and its conversion takes quadratic time
_INTEGER_MAX = 2**64 - 1  # the largest that the load engine accepts
_NO_UNICODE = re.compile(r"[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
# Errors that the reader of YAML raises for some invalid texts, besides its own.
_NO_YAML = (YAMLError, ValueError, TypeError, AttributeError, LookupError, OverflowError, AssertionError)


@dataclass(frozen=True)
class Node:
    """A value with its position. `key`: its full path for people (`load.scenario[0].get`), or an option. `position`:
    None for a value that stands in no file. `key_position`: the position of the key itself, for errors about the key.
    `text`: a scalar without quotes, as it was written."""

    value: Any  # None | bool | int | float | str | tuple[Node, ...] | dict[str, Node]
    key: str = ""
    position: Position | None = None
    key_position: Position | None = None
    text: str | None = None

    @property
    def children(self) -> Mapping[str, Node]:
        """The entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple[Node, ...]:
        """The entries of a list; empty for anything else."""
        return self.value if isinstance(self.value, tuple) else ()

    def at(self, *keys: str) -> Node:
        """The entry at a path of keys; an empty node if there is none."""
        node = self
        for key in keys:
            node = node.children.get(key, _NOTHING)
        return node

    def plain(self) -> Any:
        """The bare value, without positions."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return [item.plain() for item in self.value]
        return self.value

    def with_children(self, changes: Mapping[str, Node | None]) -> Node:
        """The mapping with entries replaced, added, or (None) removed. Without changes any value stays what it is."""
        if not changes:
            return self
        merged = {**self.children, **changes}
        return replace(self, value={key: child for key, child in merged.items() if child is not None})

    def child(self, key: str, value: Any) -> Node:
        """A new entry at the position of this node."""
        return from_plain(value, join(self.key, key), self.position)

    def problem(self, message: str) -> FileProblem:
        """A mistake in this value, at the value's position."""
        return FileProblem(message, self.key, self.position)

    def key_problem(self, message: str) -> FileProblem:
        """A mistake in this value's key, at the key's position."""
        return FileProblem(message, self.key, self.key_position or self.position)


_NOTHING = Node(None)


def read_file(path: Path) -> str:
    """The text of an experiment or subject file. Raises UsageError if it cannot be read, ExperimentError if it is no
    UTF-8 or too large."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise ExperimentError(f"{path} is larger than {_FILE_BYTES_MAX // 2**20} MB, which no experiment is")
    try:
        return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()
    except UnicodeDecodeError as error:
        raise ExperimentError(f"{path} is not UTF-8 text (byte {error.start}): {error.reason}") from None


def parse_yaml(text: str, file: str, problems: list[FileProblem]) -> Node:
    """The tree of a document. Raises ExperimentError if it is no YAML; adds a problem for each duplicate key."""
    root, found = _parsed(text, file)
    problems += found
    return root


@lru_cache(maxsize=8)  # an experiment and its subject are asked for once a profile
def _parsed(text: str, file: str) -> tuple[Node, tuple[FileProblem, ...]]:
    if _brackets_open(text) > _BRACKETS_MAX:
        raise ExperimentError(f"{file} is nested too deeply")
    yaml = YAML(typ="rt", pure=True)
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        raise _syntax_error(error, file) from None
    except RecursionError:
        raise ExperimentError(f"{file} is nested too deeply") from None
    except _NO_YAML as error:
        raise ExperimentError(f"{file} is not valid YAML: {error}") from None
    if root is None:
        return Node({}, "", Position(file, 1, 1)), ()
    problems: list[FileProblem] = []
    try:
        return _TreeConverter(file, problems).convert(root, "", None), tuple(problems)
    except RecursionError:
        raise ExperimentError(f"{file} is nested too deeply") from None


def from_plain(value: Any, key: str, position: Position | None) -> Node:
    """A tree of plain values, all at one position."""
    if isinstance(value, Node):
        return value
    if isinstance(value, Mapping):
        return Node({k: from_plain(v, join(key, k), position) for k, v in value.items()}, key, position)
    if isinstance(value, list | tuple):
        return Node(tuple(from_plain(v, f"{key}[{i}]", position) for i, v in enumerate(value)), key, position)
    return Node(value, key, position)


def under(key: str, node: Node) -> Node:
    """Returns the same tree without positions, at another key."""
    value = node.value
    if isinstance(value, dict):
        value = {name: under(join(key, name), child) for name, child in value.items()}
    elif isinstance(value, tuple):
        value = tuple(under(f"{key}[{i}]", item) for i, item in enumerate(value))
    return Node(value, key, text=node.text)


def merge(base: Node, over: Node) -> Node:
    """Merges `over` into `base`: mappings merge key by key at every depth, anything else is replaced."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    merged = dict(base.value)
    for key, child in over.value.items():
        merged[key] = merge(merged[key], child) if key in merged else child
    return replace(base, value=merged)


def unusable_values(root: Node) -> Iterator[FileProblem]:
    """A problem for each number that is infinite, `.nan`, or an integer of more than 64 bits, and for each text that
    holds bytes in another encoding than UTF-8, as an argument may."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting.extend(node.items or node.children.values())
        if isinstance(node.value, float) and not math.isfinite(node.value):
            yield node.problem("this number is infinite, too large, or none: write one that is finite")
        elif isinstance(node.value, int) and abs(node.value) > _INTEGER_MAX:
            yield node.problem("this number takes more than 64 bits: write a smaller one, or text in quotes")
        elif isinstance(node.value, str) and _NO_UNICODE.search(node.value):
            yield node.problem("this text is not UTF-8: write it so, and rename a file whose name is not")


def parse_scalar(text: str) -> Scalar:
    """A plain scalar as YAML 1.2's core schema reads it; a number of very many digits becomes infinite."""
    for pattern, make in _SCALARS:
        if pattern.fullmatch(text):
            return make(text) if len(text) <= _DIGITS_MAX else math.inf
    return text


def join(parent: str, key: str) -> str:
    """The full path of a key: `load.users` for `users` below `load`; `parent` is empty at the top."""
    return f"{parent}.{key}" if parent else key


def _brackets_open(text: str) -> int:
    """The most brackets that are open at one place, whatever they belong to; the YAML reader takes quadratic time for
    them."""
    depth = most = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        most = max(most, depth)
    return most


def _is_bare(node: Any) -> bool:
    return isinstance(node, ScalarNode) and node.style in ("", None)


class _TreeConverter:
    def __init__(self, file: str, problems: list[FileProblem]) -> None:
        self.file = file
        self.problems = problems
        self.count = self.characters = 0
        self.open: set[int] = set()  # nodes above the present one: an alias to one of them has no end

    def convert(self, node: Any, key: str, key_position: Position | None) -> Node:
        position = self._position(node)
        self.count += 1
        self.characters += len(node.value) if isinstance(node, ScalarNode) else 0
        if id(node) in self.open or self.count > _NODES_MAX or self.characters > _TEXT_MAX:
            raise ExperimentError("this alias contains itself, or aliases multiply without end", position=position)
        self.open.add(id(node))
        try:
            text = node.value if _is_bare(node) else None
            return Node(self._value(node, key), key, position, key_position, text)
        finally:
            self.open.discard(id(node))

    def _value(self, node: Any, key: str) -> Any:
        if isinstance(node, MappingNode):
            return dict(self._entries(node, key))
        if isinstance(node, SequenceNode):
            return tuple(self.convert(item, f"{key}[{i}]", None) for i, item in enumerate(node.value))
        if _is_bare(node) and not str(node.tag).endswith(":str"):
            return parse_scalar(node.value)
        if isinstance(node, ScalarNode) and node.style == ">":
            return node.value.replace(_FOLD_MARK, "")
        return node.value

    def _entries(self, node: MappingNode, key: str) -> Iterator[tuple[str, Node]]:
        first: dict[str, Position] = {}
        for key_node, value_node in node.value:
            position = self._position(key_node)
            if not isinstance(key_node, ScalarNode):
                self.problems.append(FileProblem("a key must be plain text", key, position))
                continue
            name = str(key_node.value)
            if name == "<<" and _is_bare(key_node):  # of YAML 1.1
                self.problems.append(FileProblem("keys are not merged here: write them out", join(key, name), position))
                continue
            if name in first:
                self.problems.append(
                    FileProblem(
                        f"duplicate key: it stands on line {first[name].line} already; keep one of the two",
                        join(key, name),
                        position,
                    )
                )
                continue
            first[name] = position
            yield name, self.convert(value_node, join(key, name), position)

    def _position(self, node: Any) -> Position:
        return Position(self.file, node.start_mark.line + 1, node.start_mark.column + 1)


def _syntax_error(error: MarkedYAMLError, file: str) -> ExperimentError:
    mark = error.problem_mark or error.context_mark
    position = Position(file, mark.line + 1, mark.column + 1) if mark else None
    what = " ".join(str(part) for part in (error.context, error.problem) if part)
    hint = "; within {...} a text that holds braces needs quotes" if "'{'" in what else ""
    hint = hint or ("; indent with spaces in place of the tab" if r"'\t'" in what else "")
    return ExperimentError(f"not valid YAML: {what}{hint}", position=position)


_SCALARS: list[tuple[re.Pattern[str], Callable[[str], Scalar]]] = [
    (re.compile(r"|~|null|Null|NULL"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", ""))),
]
