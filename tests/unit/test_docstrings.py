"""Every public class, function, method and field of powerband says what it is. A field's sentence stands in its class's
docstring (by the field's name), in a comment on it or above it, or below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

import powerband

SOURCES = Path(powerband.__file__).parent
ROOMS = sorted(path.name for path in SOURCES.iterdir() if path.suffix == ".py" or any(path.rglob("*.py")))
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _described_by_protocols() -> frozenset[str]:
    """The methods that a protocol or an abstract class of powerband describes: who implements one need not say more."""
    classes = (
        node
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    return frozenset(
        method.name
        for each in classes
        if {ast.unparse(base).partition("[")[0] for base in each.bases} & {"Protocol", "ABC"}
        for method in each.body
        if isinstance(method, Function) and ast.get_docstring(method)
    )


def _undescribed(body: Sequence[ast.stmt], lines: Sequence[str], within: str = "") -> Iterator[str]:
    for node in body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        implements = bool(within) and node.name in _described_by_protocols()
        overloads = any(ast.unparse(each) == "overload" for each in node.decorator_list)
        if not (ast.get_docstring(node) or implements or overloads):
            yield f"{within}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _undescribed_fields(node, lines, f"{within}{node.name}.")
            yield from _undescribed(node.body, lines, f"{within}{node.name}.")


def _undescribed_fields(of: ast.ClassDef, lines: Sequence[str], within: str) -> Iterator[str]:
    docstring = ast.get_docstring(of) or ""
    for node, after in zip(of.body, [*of.body[1:], None], strict=True):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        name = node.target.id
        above = lines[node.lineno - 2].strip().startswith("#")
        beside = any("  # " in line for line in lines[node.lineno - 1 : node.end_lineno])
        below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if not (name.startswith("_") or above or beside or below or f"`{name}`" in docstring):
            yield f"{within}{name}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_says_what_it_is(room: str) -> None:
    paths = [SOURCES / room] if room.endswith(".py") else sorted((SOURCES / room).rglob("*.py"))
    missing = [
        f"{path.relative_to(SOURCES)}: {name}"
        for path in paths
        for source in [path.read_text()]
        for name in _undescribed(ast.parse(source).body, source.splitlines())
    ]
    assert not missing, "\n" + "\n".join(missing)
