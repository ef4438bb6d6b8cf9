"""The dashboards agree with Grafana's own types: TypeScript's compiler finds nothing missing, unknown or of another
type. Needs npm, which fetches `@grafana/schema`: skipped without it, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.needs import need_node
from powerband.files.library import dashboards

pytestmark = [pytest.mark.e2e, pytest.mark.crowded]

TYPES = Path(__file__).parents[1] / "grafana"
NAMES = sorted(file.stem for file in dashboards().glob("*.json"))
COMPILER = (
    "node", "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck",
    "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler",
)  # fmt: skip


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `@grafana/schema` and TypeScript are installed in the versions of the lock file."""
    need_node()
    folder = tmp_path_factory.mktemp("types")
    for name in ("package.json", "package-lock.json", "written.ts"):
        shutil.copy(TYPES / name, folder)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def compiled(folder: Path, sources: dict[str, dict[str, Any]]) -> str:
    """The compiler's complaints; empty if there are none."""
    for name, dashboard in sources.items():
        (folder / f"{name}.ts").write_text("\n".join(typescript(dashboard)) + "\n")
    files = [f"{name}.ts" for name in sources]
    done = subprocess.run(
        [*COMPILER, *files],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == (done.stdout == ""), done.stdout + done.stderr
    return done.stdout


def typescript(dashboard: dict[str, Any]) -> Iterator[str]:
    """Yields the dashboard as a literal that the compiler checks against its type, and the options of each panel as
    literals of the types of its kind."""
    yield "import type { Custom, Dashboard, Options } from './written';"
    yield f"export const dashboard = {json.dumps(dashboard)} satisfies Dashboard;"
    for panel in dashboard["panels"]:
        if (kind := panel["type"]) == "row":
            continue
        if options := panel.get("options"):
            yield f"export const options{panel['id']} = {json.dumps(options)} satisfies Options[{kind!r}];"
        if custom := panel["fieldConfig"]["defaults"].get("custom"):
            yield f"export const custom{panel['id']} = {json.dumps(custom)} satisfies Custom[{kind!r}];"


def test_grafana_knows_every_field_of_every_dashboard(schema: Path) -> None:
    sources = {name: json.loads((dashboards() / f"{name}.json").read_text()) for name in NAMES}
    assert compiled(schema, sources) == ""


def test_the_compiler_says_what_grafana_does_not_know(schema: Path) -> None:
    """Each file has one mistake, and the compiler complains about each file."""
    mistakes: dict[str, tuple[tuple[str, ...], object]] = {
        "a_key_of_the_dashboard": (("timezoen",), "browser"),
        "a_key_of_a_panel": (("panels", "gridpos"), {}),
        "a_type": (("panels", "gridPos", "w"), "wide"),
        "an_option": (("panels", "options", "legend", "displayMode"), "tree"),
        "a_key_of_a_chart": (("panels", "fieldConfig", "defaults", "custom", "lineWidht"), 1),
    }
    sources = {}
    for name, (path, value) in mistakes.items():
        dashboard = json.loads((dashboards() / "bench.json").read_text())
        place = dashboard
        for key in path[:-1]:
            place = next(it for it in place[key] if it["type"] == "timeseries") if key == "panels" else place[key]
        place[path[-1]] = value
        sources[name] = dashboard
    said = compiled(schema, sources)
    assert {name for name in mistakes if f"{name}.ts(" not in said} == set(), said
