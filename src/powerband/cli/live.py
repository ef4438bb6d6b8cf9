"""The command watch: serves the live page of a run, or of a folder of runs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from powerband.base.errors import UsageError
from powerband.cli.options import progress


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path("runs"))
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Where to listen; 0: any free port.  [default: 8420, or any]"
)
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on. Anything but this machine's own asks viewers for a token.")  # fmt: skip
@click.option("--token", metavar="TEXT", help="Token that viewers need.  [default: drawn, where --host needs one]")
def watch(directory: Path, port: int | None, host: str, token: str | None) -> None:
    """Open the live page of a run, or of all runs of a folder.

    DIRECTORY is a run directory, or the folder that runs are made in (runs). The page follows a run in progress,
    and shows finished ones; it changes nothing. Open the printed address in a browser; Ctrl-C ends the page.
    """
    from powerband.live.watch import watch as serve

    if token is not None and not re.fullmatch(r"[A-Za-z0-9._~-]{8,}", token):
        raise UsageError("--token: write 8 or more of the characters A-Z, a-z, 0-9, '.', '_', '~' and '-'")
    serve(
        directory,
        host=host,
        port=port,
        token=token,
        told=lambda address: progress(f"live page: {address} (Ctrl-C ends it)"),
    )
