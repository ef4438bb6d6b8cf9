"""Every `powerband` command in the docs is accepted by the command line, with its options."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from fakes.pages import ROOT, command_lines, commands
from powerband.cli import powerband
from powerband.cli.options import parse_overrides
from powerband.files.experiment_file import load_experiment

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "subjects").glob("*/README.md")]
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
# Parts of this repository, without files that a run makes.
OURS = re.compile(r"`((?:src|tests|engine|scripts|docs|examples|experiments|benchmarks|subjects|protocol)/[\w./-]+)`")
SHOWN = [
    (path, arguments)
    for path in sorted(PAGES)
    if path.name != "options.md"  # made from the code, with the forms of commands
    for arguments in commands(path.read_text())
]


@pytest.mark.parametrize(
    ("page", "arguments"), SHOWN, ids=lambda value: value.stem if isinstance(value, Path) else None
)
def test_a_shown_command_is_taken(page: Path, arguments: list[str]) -> None:
    name, *rest = arguments
    if "..." in rest or "…" in rest:  # a form, not an example
        return
    assert name in powerband.commands, f"{page.name}: there is no `powerband {name}`"
    try:
        whole = click.Context(powerband, info_name="powerband", **powerband.context_settings)
        powerband.commands[name].make_context(name, list(rest), parent=whole)
    except click.ClickException as error:
        pytest.fail(f"{page.name}: powerband {' '.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize(
    "arguments", [words for _, words in SHOWN if words[0] in ("run", "plan") and "--set" in words], ids=" ".join
)
def test_what_a_shown_command_sets_fits_its_file(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    asked = powerband.commands[arguments[0]].make_context(arguments[0], arguments[1:]).params
    overrides = parse_overrides(asked["overrides"])
    made = load_experiment(asked["file_or_name"], asked["profile"], overrides, to_run=True)
    assert len(made.settings()) > 1


@pytest.mark.parametrize("page", sorted({page for page, _ in SHOWN}), ids=lambda page: page.stem)
def test_a_shell_makes_the_words_of_a_command_that_are_tested(page: Path) -> None:
    """No command needs quotes that it does not have."""
    lines = command_lines(page.read_text())
    script = "set -f\npowerband() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\n" + "\n".join(lines)
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    told = "".join(f"{word}\0" for arguments in commands(page.read_text()) for word in (*arguments, "\n"))
    assert done.stdout == told


def test_the_tutorial_shows_commands() -> None:
    """The test above would also pass if it found no command."""
    assert len([page for page, _ in SHOWN if page.name == "tutorial.md"]) >= 6


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.stem)
def test_each_target_and_file_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    assert {target for target in re.findall(r"`make ([a-z-]+)", text) if target not in TARGETS} == set()
    named = {file for file in OURS.findall(text) if "NAME" not in file} - {"src/benchmark/PingPong"}  # of Akka.NET
    assert {file for file in named if not (ROOT / file).exists()} == set()
    assert set(re.findall(r"`powerband ([a-z]+)", text)) <= {*powerband.commands, "visit"}  # `visit` is a console's
