"""Every `powerband` command that the docs show is one that the command line takes: no option that there is not."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from fakes.pages import ROOT, commands
from powerband.cli import powerband

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "experiments").glob("*.md")]
SHOWN = [(path, arguments) for path in sorted(PAGES) for arguments in commands(path.read_text())]


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


def test_the_tutorial_shows_commands() -> None:
    """So that the test above cannot pass by finding none."""
    assert len([page for page, _ in SHOWN if page.name == "tutorial.md"]) >= 6
