"""Debian's real Prometheus watches real runs through a live page: every query of every panel of a dashboard returns
data, and every metric of a subject's own page has a panel. Without Prometheus the runs are not watched, and a test that
checks a dashboard is skipped there, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.needs import find_prometheus, need_prometheus
from fakes.prometheus import Prometheus, prometheus_up
from fakes.smoke import run
from fakes.watch import watching
from powerband.files.library import dashboards


@dataclass(frozen=True)
class Watch:
    """A live page of a folder of runs, and the Prometheus that scrapes it, if there is one."""

    runs: Path
    prometheus: Prometheus | None

    def run(self, experiment: str, *options: str) -> Seen:
        """Runs an experiment, and waits until Prometheus has seen the end of the run."""
        before = set(self.runs.iterdir())
        start_s = time.time()
        analysis = run(experiment, self.runs, *options)
        (path,) = set(self.runs.iterdir()) - before
        if self.prometheus is not None:
            self.prometheus.await_series(f'powerband_run_status{{run="{path.name}",status="finished"}} == 1')
        return Seen(self.prometheus, path, analysis, start_s, time.time())


@dataclass(frozen=True)
class Seen:
    """A run: its analysis, its folder, and what Prometheus saw of it."""

    prometheus: Prometheus | None
    path: Path
    analysis: dict[str, Any]
    start_s: float
    end_s: float

    def has(self, expr: str) -> bool:
        """True if a panel with this query would draw any finite value."""
        found = self.series(expr)
        return any(math.isfinite(float(value)) for series in found for _, value in series["values"])

    def series(self, expr: str) -> list[dict[str, Any]]:
        return self._asked().over_time(self._filled(expr), self.start_s, self.end_s)

    def values(self, label: str, selector: str) -> list[str]:
        return self._asked().label_values(label, self._filled(selector), self.start_s, self.end_s)

    def bounds(self) -> set[str]:
        """The names of the known figures of the objective over all settings: a setting with too few valid trials has no
        interval."""
        found = [row["estimates"].get(self.analysis["objective"], {}) for row in self.analysis["settings"]]
        return {bound for row in found for bound in ("value", "low", "high") if row.get(bound) is not None}

    def own_metrics(self) -> set[str]:
        """The names of the metrics of the subject's page."""
        return set(self.values("__name__", '{job="subject",run="$run"}'))

    def _asked(self) -> Prometheus:
        if self.prometheus is None:
            need_prometheus()
        assert self.prometheus is not None
        return self.prometheus

    def _filled(self, expr: str) -> str:
        """The query with Grafana's variables filled in, for every setting. Rates are over ten scrapes, where Grafana
        takes four or more, since a busy machine misses some."""
        return expr.replace("$run", self.path.name).replace("$setting", ".*").replace("$__rate_interval", "10s")


def check_dashboard(name: str, runs: Sequence[Seen], without_panel: str = "$.") -> None:
    """Checks that every query, and every variable, returns data of one of the runs, and that each metric of the
    subject's page has a panel, apart from those that match `without_panel`. Queries about nodes may be empty: these
    runs are on one machine."""
    known = set().union(*(seen.bounds() for seen in runs))
    wanted = [
        expr for expr in _queries(name) if (bound := re.search(r'bound="(\w+)"', expr)) is None or bound[1] in known
    ]
    nowhere = [expr for expr in wanted if not any(seen.has(expr) for seen in runs)]
    assert [expr for expr in nowhere if not expr.startswith("powerband_node_")] == []
    for variable in _dashboard(name)["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            assert any(seen.values(label, selector) for seen in runs), variable["query"]
    if name != "bench":
        shown = {word for expr in _queries(name) for word in re.findall(r"[a-z_]\w+", expr)}
        told = set().union(*(seen.own_metrics() for seen in runs))
        assert told and {metric for metric in told - shown if not re.match(without_panel, metric)} == set()


def _dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dashboards() / f"{name}.json").read_text())
    return found


def _queries(name: str) -> list[str]:
    return [target["expr"] for panel in _dashboard(name)["panels"] for target in panel.get("targets", [])]


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """Yields one Prometheus for all runs of a module."""
    folder = tmp_path_factory.mktemp("watch")
    runs = folder / "runs"
    runs.mkdir()
    binary = find_prometheus()
    if binary is None:
        yield Watch(runs, None)
        return
    with watching(runs) as page:
        command = [sys.executable, "-m", "powerband", "prometheus", page, "-o", str(folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        subprocess.run(["promtool", "check", "config", folder / "prometheus.yml"], check=True, capture_output=True)
        with prometheus_up(binary, folder / "prometheus.yml", folder) as prometheus:
            yield Watch(runs, prometheus)
