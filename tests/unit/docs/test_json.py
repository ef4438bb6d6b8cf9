"""json-output.md and engine.md agree with the programs: every command that answers has a section that names every
key."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import Figures, summary
from powerband.analyze.runs.changes import Change, RunComparison
from powerband.cli import invoke, powerband
from powerband.doctor import CheckStatus, Finding
from powerband.model.load import Load
from powerband.model.plan import Setting
from powerband.model.results import Estimate, Verdict
from powerband.readings.fleet import merge_fleet
from powerband.report.terminal.load_text import load_document
from powerband.search.calibrate import Calibration, CalibrationCheck, Served
from powerband.search.pilot import pilot_of

DOCS = Path(__file__).parents[3] / "docs" / "reference"
PAGE = (DOCS / "json-output.md").read_text()
# Objects whose keys are data: names of factors, profiles and outcomes.
FREE = {"levels", "profiles", "outcomes"}


def sections() -> dict[str, str]:
    """The text from a command's heading to the next command's, by command."""
    found = {}
    for part in re.split(r"^## (?=`)", PAGE, flags=re.M)[1:]:
        heading = part.split("\n")[0]
        found |= dict.fromkeys(re.findall(r"`([a-z]+)`", heading), part)
    return found


def keys(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield key
            if key not in FREE:
                yield from keys(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from keys(child)


def undocumented(command: str, document: Any) -> set[str]:
    return {key for key in keys(document) if f"`{key}`" not in sections()[command]}


def test_every_command_that_answers_has_a_section() -> None:
    answering = {name for name, made in powerband.commands.items() if any(p.name == "output" for p in made.params)}
    assert {name for name in sections() if name in powerband.commands} == answering


@pytest.mark.parametrize("command", ["plan", "check", "list"])
def test_what_starts_nothing(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([command, *([] if command == "list" else ["quickstart"]), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == 1
    for trial in document.get("trials", []):
        trial["setting"] = None  # its keys are the names of factors
    assert undocumented(command, document) == set()


def test_a_file_that_is_not_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("subject: reference\n")
    assert invoke(["check", str(tmp_path / "x.yaml"), "--format", "json"]) == 3
    assert undocumented("check", json.loads(capsys.readouterr().out)) == set()


def test_load() -> None:
    fleet = merge_fleet([summary(Figures())])
    assert fleet is not None
    assert undocumented("load", load_document(fleet, Load(users=64))) == set()


def test_compare() -> None:
    value = Estimate(1.0, None, None, 0.95, 1)
    change = Change(Setting((("threads", 1),)), value, value, value, Verdict.EQUIVALENT)
    document = RunComparison("goodput_per_s", "maximise", 0.95, 0.03, (change,), (), ()).to_json()
    document |= dict.fromkeys(("first", "second", "run"))
    common = {"id", "levels"}  # keys of a setting, which the page explains once
    assert undocumented("compare", document) <= common
    assert all(f"`{key}`" in PAGE for key in common)


def test_doctor() -> None:
    document = {"format": 1, "findings": [asdict(Finding("cores", CheckStatus.OK, "8"))], "pilot": asdict(pilot_of([]))}
    assert undocumented("doctor", document) == set()


def test_calibrate() -> None:
    named = {"passed", *(field.name for made in (Calibration, CalibrationCheck, Served) for field in fields(made))}
    assert undocumented("calibrate", dict.fromkeys(named)) == set()


@pytest.mark.parametrize("part", ["load", "probe"])
def test_the_engine_s_own_options(part: str, engine: Path) -> None:
    said = subprocess.run([engine, part, "--help"], capture_output=True, text=True, check=True).stdout
    page = (DOCS / "engine.md").read_text().split(f"## powerband-engine {part}\n")[1].split("\n## ")[0]
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", said, re.M)) - {"--help"}
    assert options
    assert {option for option in options if option not in page} == set()
