"""The guides by stack: every `powerband tune` in them is a valid command, and `tune` knows their servers. Nothing is
run."""

from __future__ import annotations

import re

import pytest

from fakes.pages import ROOT, commands
from powerband.cli import powerband
from powerband.cli.running import tuned
from powerband.files.known_knobs import GO, known_server

GUIDES = ("jvm-servers", "node", "python-servers", "go-servers", "dotnet-servers", "docker")
SHOWN = [
    (name, given)
    for name in GUIDES
    for given in commands((ROOT / "docs" / f"{name}.md").read_text())
    if given[0] == "tune"
]


def test_each_guide_shows_a_command() -> None:
    assert {name for name, _ in SHOWN} == set(GUIDES)


@pytest.mark.parametrize(("name", "given"), SHOWN, ids=[f"{name}-{number}" for number, (name, _) in enumerate(SHOWN)])
def test_a_command_of_a_guide_makes_an_experiment(name: str, given: list[str]) -> None:
    options = powerband.commands["tune"].make_context("tune", list(given[1:])).params
    for own in ("runs", "progress", "live", "output"):
        options.pop(own)
    experiment = tuned(options.pop("command"), **options)
    assert experiment.is_race and experiment.factors, name


def test_the_python_servers_are_known_ones() -> None:
    rows = re.findall(r"^\| (\w+)(?:, \w+)? \| `([^`]+)` \|$", (ROOT / "docs" / "python-servers.md").read_text(), re.M)
    assert len(rows) == 5
    for label, command in rows:
        known = known_server(command.split())
        assert known is not None and known.name.lower() == label.lower()
        assert all(f"{{{knob.name}}}" in command for knob in known.knobs)


def test_the_knobs_of_node_and_go_are_the_known_ones() -> None:
    for page, known in (("node", known_server(["node", "server.js"])), ("go-servers", GO)):
        assert known is not None
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert all(f"--env {knob.variable}={{{knob.name}}}" in text for knob in known.knobs)
