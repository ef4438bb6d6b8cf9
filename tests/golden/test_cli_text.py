"""The text of the command line, word for word. `make golden` writes the files anew; read the diff before a commit."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from powerband.cli import powerband

HERE = Path(__file__).parent


def check(name: str, text: str) -> None:
    path = HERE / name
    if os.environ.get("POWERBAND_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def said(*arguments: str) -> str:
    result = CliRunner().invoke(powerband, arguments, prog_name="powerband", terminal_width=100)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_help_of_the_whole() -> None:
    check("help/powerband.txt", said("--help"))


@pytest.mark.parametrize("command", sorted(powerband.commands))
def test_help_of_each_command(command: str) -> None:
    check(f"help/{command}.txt", said(command, "--help"))


def test_every_help_file_has_its_command() -> None:
    assert {path.stem for path in (HERE / "help").glob("*.txt")} == {"powerband", *powerband.commands}


def test_plan() -> None:
    check("plan.txt", said("plan", "quickstart", "--profile", "smoke", "--seed", "7"))


def test_plan_as_json() -> None:
    check("plan.json", said("plan", "quickstart", "--profile", "smoke", "--seed", "7", "--format", "json"))


def test_list() -> None:
    check("list.txt", said("list"))
