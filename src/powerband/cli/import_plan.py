"""The command import: writes a JMeter test plan as an experiment file, or lists every reason why it cannot be one."""

from __future__ import annotations

from pathlib import Path

import click

from powerband.base.errors import UsageError
from powerband.cli.options import parse_pairs, progress


@click.command("import")
@click.argument("plan", type=click.Path(path_type=Path, dir_okay=False), metavar="PLAN.JMX")
@click.argument("command", nargs=-1, metavar="[-- COMMAND]")
@click.option(
    "-o",
    "--output",
    "written",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the experiment file is written; never over one that is there.  [default: stdout]",
)
@click.option(
    "--partial",
    multiple=True,
    metavar="NAME",
    help="Leave out the elements of this name, or whole path, with all below them. May be repeated.",
)
@click.option(
    "-J", "--property", "properties", multiple=True, metavar="NAME=VALUE",
    help="A property, as JMeter's -J: what ${__P(NAME)} stands for. May be repeated.",
)  # fmt: skip
def import_plan(
    plan: Path, command: tuple[str, ...], written: Path | None, partial: tuple[str, ...], properties: tuple[str, ...]
) -> None:
    """Convert a JMeter test plan into an experiment file.

    Nothing is written if the plan has elements that cannot be converted (exit code 2): each is listed with its path,
    its line and what to do instead. COMMAND starts your server; without it the file has a place for it.

    \b
    powerband import plan.jmx -o plan.yaml -- ./my-server --port {port}
    powerband import plan.jmx --partial 'HTTP Cookie Manager' -J users=50
    """
    from powerband.jmx.importing import import_plan as convert
    from powerband.store import write_atomically

    if written is not None and written.exists():
        raise UsageError(f"{written} is there already, and is not overwritten: remove it, or choose another with -o")
    imported = convert(
        plan, command=command, properties=parse_pairs("-J", properties, "NAME=VALUE", "users=50"), partial=partial
    )
    if written is None:
        click.echo(imported.text, nl=False)
    else:
        try:
            write_atomically(written, imported.text, private=False)
        except OSError as error:
            raise UsageError(f"cannot write {written}: {error.strerror or error}") from None
    shown = written or "the file"
    progress(f"{plan}: {imported.summary}, listed at the top of {shown}")
    if not command:
        progress(f"fill in subject.command in {shown}, then: powerband check {written or 'FILE'}")
