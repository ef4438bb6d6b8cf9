"""The layout that ARCHITECTURE.md describes: no cycle of files, a small root, a sentence for each room, one name for
one thing. import-linter checks the layers (`make lint`)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import grimp
import pytest

import powerband

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "powerband"
ENGINE = ROOT / "engine" / "src"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
VISIBLE = r"(?:pub(?:\([\w ]+\))? )?"
TWO_FORMS = {"Step", "Checks", "Tally", "WebSocket"}  # one form in a file (`model/`), one on the wire (`wire/`)


def test_no_python_files_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("powerband", cache_dir=None, exclude_type_checking_imports=True)
    # A package whose __init__.py only re-exports names is left out: it imports its parts, which lie in it.
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError with the files of a cycle


def _modules(root: Path) -> dict[str, Path]:
    """The path of each Rust module of a crate, by its name from the crate's root; test files are left out."""
    modules = {}
    for path in root.rglob("*.rs"):
        if path.stem not in ("main", "tests") and not path.stem.endswith("_tests"):
            parts = path.relative_to(root).with_suffix("").parts
            modules["::".join(parts[:-1] if parts[-1] == "mod" else parts)] = path
    return modules


def _leaves(tree: str) -> Iterator[str]:
    """The paths of one `use`, whose braces may be nested: `a::{b, c::{d, e}}` is a::b, a::c::d and a::c::e."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        yield re.sub(r"\s+as\s+\w+$", "", head)
        return
    depth, start, inner = 0, 0, rest.rstrip().removesuffix("}")
    for at, character in enumerate([*inner, ","]):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if part := inner[start:at].strip():
                yield from (head + leaf for leaf in _leaves(part))
            start = at + 1


def _absolute(path: str, place: list[str], children: list[str]) -> list[str]:
    """The parts of a path from the crate's root; empty for a path of another crate, or of a name in scope."""
    parts = path.split("::")
    if parts[0] == "crate":
        return parts[1:]
    if parts[0] == "self":
        return place + parts[1:]
    if parts[0] == "super":
        ups = len(list(takewhile(lambda part: part == "super", parts)))
        return place[: len(place) - ups] + parts[ups:]
    return place + parts if parts[0] in children else []


def _rust_imports(root: Path) -> dict[str, set[str]]:
    """The modules that each Rust module names, in `use` and in paths. The declaration of a child is no import, and test
    modules do not count."""
    modules = _modules(root)
    imports = {}
    for name, path in modules.items():
        text = re.sub(r"//.*", "", path.read_text())
        text = re.sub(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)?mod \w+ \{.*?^\}", "", text, flags=re.M | re.S)
        trees = re.findall(rf"^\s*{VISIBLE}use ([^;]+);", text, re.M)
        text = re.sub(r"\buse [^;]+;", "", text)
        children = re.findall(rf"^\s*{VISIBLE}mod (\w+);", text, re.M)
        begins = "|".join(["crate", "super", *children])
        paths = [leaf for tree in trees for leaf in _leaves(tree)]
        paths += re.findall(rf"(?<!::)\b(?:{begins})(?:::\w+)+", text)
        named = [_absolute(path, name.split("::"), children) for path in paths]
        # The longest prefix that is a module; the rest of the path is an item in it.
        places = (["::".join(parts[:end]) for end in range(len(parts), 0, -1)] for parts in named)
        found = (next((place for place in begun if place in modules), name) for begun in places)
        imports[name] = set(found) - {name}
    return imports


def test_no_rust_modules_import_each_other_in_a_circle() -> None:
    imports = _rust_imports(ENGINE)
    assert sum(map(len, imports.values())) > 300  # checks that imports are found at all
    TopologicalSorter(imports).prepare()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("use crate::room::b::B;", "use crate::a::A;"),
        ("use crate::{\n    room::{b::{B, C as D}},\n};", "use super::super::a::A;"),
        ("fn f() { crate::room::b::f() }", "pub(super) use crate::a::f;"),
        ("use crate::room::b;", "fn f() -> super::super::a::A { A }"),
    ],
)
def test_a_circle_of_rust_modules_is_found(tmp_path: Path, one: str, other: str) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "a.rs").write_text(one)
    (tmp_path / "room" / "mod.rs").write_text("pub mod b;\n")
    b = tmp_path / "room" / "b.rs"
    b.write_text(f"// {other}\n#[cfg(test)]\nmod tests {{\n    {other}\n}}\n")
    assert _rust_imports(tmp_path) == {"a": {"room::b"}, "room": set(), "room::b": set()}
    b.write_text(other)
    with pytest.raises(CycleError):
        TopologicalSorter(_rust_imports(tmp_path)).prepare()


def test_at_most_eight_modules_lie_in_the_root() -> None:
    assert len(list(SOURCE.glob("*.py"))) <= 8


@pytest.mark.parametrize(
    "room",
    sorted(str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE),
)
def test_each_room_has_a_sentence(room: str) -> None:
    assert re.search(rf"^\| `{re.escape(room)}/` \| \S.*\w", ARCHITECTURE, re.M)


def test_no_two_classes_share_a_name_and_mean_different_things() -> None:
    places = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(SOURCE))
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert set(shared) <= TWO_FORMS
    assert all({path.parts[0] for path in paths} == {"model", "wire"} for paths in shared.values())


def test_files_that_share_a_name_are_the_same_part_of_a_load_kind() -> None:
    places = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        if path.name not in ("__init__.py", "__main__.py"):
            places[path.name].append(path.relative_to(SOURCE))
    shared = [path for paths in places.values() if len(paths) > 1 for path in paths]
    assert all(path.parts[0] == "loads" for path in shared), shared


def test_a_command_that_is_started_in_another_folder_runs_the_code_under_test(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import powerband; print(powerband.__file__)"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == str(Path(powerband.__file__).absolute())
