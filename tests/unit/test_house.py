"""The layout that ARCHITECTURE.md describes: no circle of files, a small root, a sentence for each room, one name for
one thing. The layers are import-linter's (`make lint`)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "powerband"
ENGINE = ROOT / "engine" / "src"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
TWO_FORMS = {"Step", "Checks", "Tally", "WebSocket"}  # in a file (`model/`) and on the wire (`wire/`): the same thing


def test_no_python_files_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("powerband", cache_dir=None, exclude_type_checking_imports=True)
    # A package that only hands names on (its __init__.py) is left out: it imports its parts, and they live in it.
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError with the files of a circle


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
