"""The guides by stack name files, bottlenecks and servers that there are. Their commands are run by
`tests/e2e/test_guides.py` and `test_examples.py`; that of Docker, which no test runs, is read here."""

from __future__ import annotations

import re

import pytest
from ruamel.yaml import YAML

from fakes.guides import text_of, yaml_of
from fakes.pages import ROOT, commands
from powerband.cli import powerband
from powerband.cli.running import tuned
from powerband.files.known_knobs import GO, known_server
from powerband.model.bottlenecks import BottleneckName

GUIDES = ("jvm-servers", "node", "python-servers", "go-servers", "dotnet-servers", "docker")


@pytest.mark.parametrize("given", commands(text_of("docker.md")))
def test_a_command_of_docker_makes_an_experiment(given: list[str]) -> None:
    assert given[0] == "tune" and "docker" in given
    options = powerband.commands["tune"].make_context("tune", list(given[1:])).params
    for own in ("runs", "progress", "live", "output"):
        options.pop(own)
    experiment = tuned(options.pop("command"), **options)
    assert experiment.is_race and experiment.factors


def test_docker_says_that_it_was_not_tried() -> None:
    assert commands(text_of("docker.md")) and "None was tried with a running container engine" in text_of("docker.md")


def test_the_file_of_the_jvm_guide_is_that_of_its_sample() -> None:
    """Whose run is tested."""
    yaml = YAML(typ="safe")
    part = yaml.load(yaml_of("jvm-servers.md", "metrics_url"))
    whole = yaml.load((ROOT / "examples" / "boot-app" / "live-limit.yaml").read_text())
    assert part == {name: {key: whole[name][key] for key in keys} for name, keys in part.items()}


@pytest.mark.parametrize("page", GUIDES)
def test_what_an_answer_names_is_called_so(page: str) -> None:
    """Words between backticks, three or more, are a bottleneck's."""
    named = set(re.findall(r"`((?:[A-Za-z]+ ){2,}[a-z]+)`", text_of(f"{page}.md")))
    assert named <= {each.words for each in BottleneckName}
    assert named or page in ("jvm-servers", "dotnet-servers", "docker")


def test_the_python_servers_are_known_ones() -> None:
    rows = re.findall(r"^\| (\w+)(?:, \w+)? \| `([^`]+)` \|$", text_of("python-servers.md"), re.M)
    assert len(rows) == 5
    for label, command in rows:
        known = known_server(command.split())
        assert known is not None and known.name.lower() == label.lower()
        assert all(f"{{{knob.name}}}" in command for knob in known.knobs)


def test_the_knobs_of_node_and_go_are_the_known_ones() -> None:
    for page, known in (("node", known_server(["node", "server.js"])), ("go-servers", GO)):
        assert known is not None
        assert all(f"--env {knob.variable}={{{knob.name}}}" in text_of(f"{page}.md") for knob in known.knobs)
