"""Debian's real Prometheus watches real runs through a live page: every query of every panel of every dashboard returns
data, and no metric of a subject's own page is without a panel. Needs `prometheus`, and of each subject what it is built
with: skipped without, unless POWERBAND_NO_SKIP=1."""

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

from fakes.needs import need_jdk, need_node, need_prometheus
from fakes.prometheus import Prometheus, prometheus_up
from fakes.smoke import LONG, run
from fakes.watch import watching
from powerband.files.library import dashboards

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

SEEN_S = 60.0
ONE_LONG_TRIAL = (*LONG, "--set", "claims=[]")
REFERENCE = """
name: {name}
subject: {{use: reference, set: {{{settings}}}{more}}}
factors: {factors}
load: {{users: 8, duration: {duration}{load}}}
measure: {{warmup: 500ms, repeats: {repeats}, metrics: {{{metrics}}}}}
profiles: {{smoke: {{}}}}
"""


@dataclass(frozen=True)
class Watch:
    """A live page of a folder of runs, and the Prometheus that scrapes it."""

    runs: Path
    prometheus: Prometheus

    def run(self, experiment: str, *options: str) -> Seen:
        """A run from its start until Prometheus has seen its end."""
        before = set(self.runs.iterdir())
        start_s = time.time()
        run(experiment, self.runs, *options)
        (path,) = set(self.runs.iterdir()) - before
        deadline = time.monotonic() + SEEN_S
        while not self.prometheus.newest(f'powerband_run_status{{run="{path.name}",status="finished"}} == 1'):
            assert time.monotonic() < deadline, "Prometheus never saw the run finished"
            time.sleep(0.2)
        return Seen(self.prometheus, path, start_s, time.time())

    def reference(self, name: str, settings: str, **fields: str) -> Seen:
        defaults = {"factors": "{seed: [1]}", "repeats": "1", "metrics": "", "load": "", "more": "", "duration": "6s"}
        file = self.runs.parent / f"{name}.yaml"
        file.write_text(REFERENCE.format(name=name, settings=settings, **{**defaults, **fields}))
        return self.run(str(file))


@dataclass(frozen=True)
class Seen:
    """What Prometheus saw of one run."""

    prometheus: Prometheus
    path: Path
    start_s: float
    end_s: float

    def has(self, expr: str) -> bool:
        """Whether a panel of this query would draw anything but NaN."""
        found = self.prometheus.over_time(self._filled(expr), self.start_s, self.end_s)
        return any(math.isfinite(float(value)) for series in found for _, value in series["values"])

    def values(self, label: str, selector: str) -> list[str]:
        return self.prometheus.label_values(label, self._filled(selector), self.start_s, self.end_s)

    def bounds(self) -> set[str]:
        """What is known of any setting's objective: of too few trials that count there is no interval."""
        analysis = json.loads((self.path / "analysis.json").read_text())
        found = [row["estimates"].get(analysis["objective"], {}) for row in analysis["settings"]]
        return {bound for row in found for bound in ("value", "low", "high") if row.get(bound) is not None}

    def own_metrics(self) -> set[str]:
        """Of the subject's page."""
        return set(self.values("__name__", '{job="subject",run="$run"}'))

    def _filled(self, expr: str) -> str:
        """As Grafana fills it in: every setting. A rate over ten scrapes, where Grafana takes four or more: a busy
        machine misses some."""
        return expr.replace("$run", self.path.name).replace("$setting", ".*").replace("$__rate_interval", "10s")


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dashboards() / f"{name}.json").read_text())
    return found


def queries(name: str) -> list[str]:
    return [target["expr"] for panel in dashboard(name)["panels"] for target in panel.get("targets", [])]


def check(name: str, runs: Sequence[Seen], without_panel: str = "$.") -> None:
    """Every query returns data of one of the runs, and so do the variables; what the subject's page has is shown, apart
    from metrics that match `without_panel`."""
    known = set().union(*(seen.bounds() for seen in runs))
    wanted = [
        expr for expr in queries(name) if (bound := re.search(r'bound="(\w+)"', expr)) is None or bound[1] in known
    ]
    assert [expr for expr in wanted if not any(seen.has(expr) for seen in runs)] == []
    for variable in dashboard(name)["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            assert any(seen.values(label, selector) for seen in runs), variable["query"]
    if name != "bench":
        shown = {word for expr in queries(name) for word in re.findall(r"[a-z_]\w+", expr)}
        told = set().union(*(seen.own_metrics() for seen in runs))
        assert told and {metric for metric in told - shown if not re.match(without_panel, metric)} == set()


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    binary = need_prometheus()
    folder = tmp_path_factory.mktemp("watch")
    runs = folder / "runs"
    runs.mkdir()
    with watching(runs) as page:
        command = [sys.executable, "-m", "powerband", "prometheus", page, "-o", str(folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        subprocess.run(["promtool", "check", "config", folder / "prometheus.yml"], check=True, capture_output=True)
        with prometheus_up(binary, folder / "prometheus.yml", folder) as prometheus:
            yield Watch(runs, prometheus)


@pytest.mark.long
def test_the_bench_and_the_reference_subject(watch: Watch) -> None:
    pool = watch.reference(
        "pool",
        "model: bounded, max: 4, queue: 16, wait: 3ms, downstream_limit: 2, gc_every: 500ms, gc_for: 5ms",
        factors="{core: [1, 2]}",
        repeats="3",  # an interval takes two that count
        metrics="app_queue: mean(queue_length)",
    )
    check("bench", [pool])
    labels = {(labels["setting"], labels["trial"]) for labels in trials(pool, "powerband_rate_per_second")}
    assert labels == {(labels["setting"], labels["trial"]) for labels in trials(pool, "requests_total")}
    assert {setting for setting, _ in labels} == {"core=1", "core=2"} and len(labels) == 6
    loops = watch.reference("loops", "model: event-loop")
    websocket = watch.reference(
        "websocket",
        "model: event-loop, protocol: websocket",
        more=', url: "ws://127.0.0.1:{port}/"',
        load=", websocket: {}, scenario: [{message: ping}]",
    )
    check("reference", [pool, loops, websocket])


def trials(seen: Seen, metric: str) -> list[dict[str, str]]:
    return [series["metric"] for series in seen.prometheus.over_time(
        f'{metric}{{run="{seen.path.name}"}}', seen.start_s, seen.end_s
    )]  # fmt: skip


def test_the_subject_threads(watch: Watch) -> None:
    need_jdk()
    check("threads", [watch.run("thread-vs-pool", "--set", "factors.pool=[fixed:4]", *ONE_LONG_TRIAL)])


@pytest.mark.long
def test_the_subject_vertx(watch: Watch) -> None:
    need_jdk(maven=True)
    check("vertx", [watch.run("vertx-spread", *ONE_LONG_TRIAL)])


@pytest.mark.long
def test_the_subject_spring(watch: Watch) -> None:
    need_jdk(maven=True)
    seen = watch.run("spring-executor", "--set", "factors.core=[20]", "--set", "factors.queue=[1000]", *ONE_LONG_TRIAL)
    # What of the page is of no use to who asks about concurrency.
    others = "application_|jdbc_|tomcat_|hikaricp_connections_(creation|usage|min|timeout)|http_server_requests_active"
    check("spring", [seen], others)


@pytest.mark.long
def test_the_subject_pekko(watch: Watch) -> None:
    need_jdk(maven=True)
    check("pekko", [watch.run("infinite-reflection", "--set", "factors.dispatcher=[fork-join]", *ONE_LONG_TRIAL)])


@pytest.mark.long
def test_the_subject_socketcluster(watch: Watch) -> None:
    need_node()
    check("socketcluster", [watch.run("socketcluster-throughput", "--set", "factors.version=[14]", *ONE_LONG_TRIAL)])
