"""The command prometheus: writes what a Prometheus and a Grafana need in order to watch runs."""

from __future__ import annotations

from pathlib import Path

import click

from powerband.base.errors import UsageError
from powerband.cli.options import duration_of, progress

EVERY_NS_MIN = 100_000_000  # time between two reports of an engine


@click.command()
@click.argument("url", required=False)
@click.option("--every", metavar="TIME", default="1s", show_default=True, help="Time between two scrapes.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write prometheus.yml into this folder, and Grafana's dashboards with their provisioning into grafana/ in it.",
)
def prometheus(url: str | None, every: str, folder: Path | None) -> None:
    """Print the configuration of a Prometheus that scrapes a live page.

    URL is the page's, as `powerband watch` and --live print it; by default http://127.0.0.1:8420/. The configuration
    holds for every run and trial that the page shows, and reaches the running server's own metrics too. Nothing is
    started.

    \b
    powerband watch runs
    powerband prometheus > prometheus.yml
    prometheus --config.file=prometheus.yml --web.listen-address=127.0.0.1:9090
    """
    from powerband.files.library import dashboards
    from powerband.live.prometheus_config import Watched, prometheus_yml
    from powerband.live.watch import HOST, PORT

    try:
        page = Watched.parse(url or f"http://{HOST}:{PORT}/")
    except ValueError as error:
        raise UsageError(str(error)) from None
    every_ns = duration_of("--every", every)
    if every_ns < EVERY_NS_MIN:
        raise UsageError(
            f"--every {every}: figures are not renewed more often than 10 times a second; write 100ms or more"
        )
    text = prometheus_yml(page, every_ns)
    if folder is None:
        click.echo(text, nl=False)
        return
    _write(folder, text, dashboards(), every_ns, secret=page.token is not None)
    progress(f"Written to {folder}: prometheus.yml, and Grafana's dashboards with their provisioning in grafana/")


def _write(folder: Path, configuration: str, dashboards: Path, every_ns: int, *, secret: bool) -> None:
    """Writes the files. `every_ns`: the time between two scrapes; `secret`: the configuration holds a token, so only
    this user may read it."""
    import shutil

    from powerband.live.prometheus_config import with_interval

    source = folder / "grafana" / "provisioning" / "datasources" / "powerband.yaml"
    file = folder / "prometheus.yml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if secret:
            file.touch(0o600)
            file.chmod(0o600)
        file.write_text(configuration)
        shutil.copytree(dashboards, folder / "grafana", dirs_exist_ok=True)
        source.write_text(with_interval(source.read_text(), every_ns))
    except (OSError, shutil.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"cannot write to {folder}: {reason}: choose another folder with --output") from None
