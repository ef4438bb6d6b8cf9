"""Writes the configuration of a Prometheus that watches runs, and of a Grafana's data source. In: the address of a live
page. Out: the text of files.

Two jobs with one fixed target each, for all runs and trials: powerband's own metrics, and the server's page, which the
live page relays. There is no service discovery: Prometheus takes up to ten seconds to see a new target, longer than a
trial may last.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import parse_qs

from powerband.base.hosts import split_url
from powerband.base.units import duration_text

METRICS_PATH = "/metrics"
SUBJECT_PATH = "/subject/metrics"
MS_NS = 1_000_000


@dataclass(frozen=True)
class Watched:
    """A live page, parsed from its URL. `scheme`: `http` or `https`. `address`: `host:port`. `token`: the one that
    requests from other machines need; None if they need none."""

    scheme: str
    address: str
    token: str | None = None

    @classmethod
    def parse(cls, url: str) -> Watched:
        """Parses any URL of the page, whatever its path. Raises ValueError with a sentence."""
        parts = split_url(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        tokens = parse_qs(parts.query).get("token")
        return cls(parts.scheme, f"{host}:{port}", tokens[0] if tokens else None)


def prometheus_yml(page: Watched, every_ns: int) -> str:
    """The text of prometheus.yml. `every_ns`: the time between two scrapes."""
    every = _every(every_ns)
    jobs = _job("powerband", METRICS_PATH, page) + _job("subject", SUBJECT_PATH, page, "    honor_labels: true\n")
    return (
        f"# Written by `powerband prometheus {page.scheme}://{page.address}/`: powerband, and the trial's server,\n"
        "# whose page the live page passes on with the labels run, trial and setting.\n"
        f"global:\n  scrape_interval: {every}\n  scrape_timeout: {every}\nscrape_configs:\n{jobs}"
    )


def with_interval(datasource: str, every_ns: int) -> str:
    """The text of Grafana's data source with this time between two scrapes, from which Grafana takes how far back rates
    look. `datasource`: the text of the file that comes with powerband."""
    return re.sub(r"(?<=timeInterval: )\S+", _every(every_ns), datasource)


def _every(every_ns: int) -> str:
    return duration_text(every_ns // MS_NS * MS_NS)  # neither program accepts a unit below milliseconds


def _job(name: str, path: str, page: Watched, more: str = "") -> str:
    token = "" if page.token is None else f"    authorization: {{credentials: {json.dumps(page.token)}}}\n"
    return (
        f"  - job_name: {name}\n    scheme: {page.scheme}\n    metrics_path: {path}\n{more}{token}"
        f"    static_configs: [{{targets: [{json.dumps(page.address)}]}}]\n"
    )
