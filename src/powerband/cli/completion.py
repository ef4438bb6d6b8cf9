"""The command completion: prints the code by which a shell completes commands, options and names of experiments."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from powerband.base.errors import EXIT_OK
from powerband.files.library import experiment_names


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the code by which a shell completes powerband's commands and options.

    \b
    eval "$(powerband completion bash)"            in ~/.bashrc; zsh alike, in ~/.zshrc
    powerband completion fish > ~/.config/fish/completions/powerband.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # click has all of the choices
    click.echo(made(context.find_root().command, {}, "powerband", "_POWERBAND_COMPLETE").source())
    return EXIT_OK


def complete_experiment(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """The experiments whose names begin with the typed text; if there is none, files."""
    named = [CompletionItem(name) for name in experiment_names() if name.startswith(typed)]
    return named or [CompletionItem(typed, type="file")]
