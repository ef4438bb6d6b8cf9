"""The content of a wheel and the requirements of its build are defined once in code, and every text agrees with
them."""

import json
import runpy
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from powerband.files.library import dashboards, experiment_names, library_root, subject_names

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]


def test_the_wheel_carries_every_experiment_subject_and_dashboard() -> None:
    carried = {target: ROOT / source for source, target in WHEEL["sources"].items()}
    # An installed package looks in these places: see library_root().
    assert set(carried) == {"", *(f"powerband/data/{kind}" for kind in ("dashboards", "experiments", "subjects"))}
    assert library_root() == ROOT
    assert carried["powerband/data/dashboards"] == dashboards()
    assert {path.stem for path in carried["powerband/data/experiments"].glob("*.yaml")} == set(experiment_names())
    assert {path.parent.name for path in carried["powerband/data/subjects"].glob("*/subject.yaml")} == set(
        subject_names()
    )


def test_what_npm_leaves_beside_the_sources_gets_into_no_wheel() -> None:
    assert "node_modules/" in (ROOT / ".gitignore").read_text().splitlines()
    assert "force-include" not in WHEEL and "artifacts" not in WHEEL, "these ignore .gitignore"


@pytest.mark.parametrize("source", PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
def test_what_the_source_package_carries_is_there(source: str) -> None:
    assert (ROOT / source).exists()


@pytest.mark.parametrize(
    "text", ["README.md", "CONTRIBUTING.md", "docs/install.md", "hatch_build.py", "engine/Cargo.toml"]
)
def test_every_text_names_the_same_rust(text: str) -> None:
    needed = tomllib.loads((ROOT / "engine/Cargo.toml").read_text())["package"]["rust-version"]
    said = (ROOT / text).read_text()
    assert f"Rust {needed} or later" in said or f'rust-version = "{needed}"' in said


@pytest.mark.parametrize(
    ("version", "said"),
    [("echo cargo 1.75.0", "; here is cargo 1.75.0"), ("exit 1", "; the cargo here does not run (rustup: ")],
)
def test_an_engine_that_is_not_built_says_which_rust_there_is(
    version: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second case is rustup's cargo without a toolchain."""
    with pytest.raises(SystemExit) as ended:
        built_by(f'[ "$1" = --version ] && {{ {version}; exit; }}\nexit 1', tmp_path, monkeypatch)
    assert said in str(ended.value)


def test_the_engine_is_taken_from_where_cargo_says_that_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target in the user's own cargo configuration has a folder of its own, beside that of an older build."""
    older, engine = (tmp_path / "target" / name / "powerband-engine" for name in ("release", "musl/release"))
    older.parent.mkdir(parents=True)
    older.touch()
    lines = [{"reason": "compiler-artifact", "executable": path} for path in (None, str(engine))]
    told = "\n".join(map(json.dumps, [*lines, {"reason": "build-finished", "success": True}]))
    assert built_by(f"echo '{told}'", tmp_path, monkeypatch) == engine


def built_by(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The engine that a build by this cargo makes."""
    hatch = ModuleType("hatchling.builders.hooks.plugin.interface")
    hatch.BuildHookInterface = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, hatch.__name__, hatch)
    cargo = folder / "cargo"
    cargo.write_text(f"#!/bin/sh\n{script}\n")
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    engine = runpy.run_path(str(ROOT / "hatch_build.py"))["_build"](folder)
    assert isinstance(engine, Path)
    return engine
