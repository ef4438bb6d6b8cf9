"""The live page's metrics for Prometheus: the latest run and those in progress, and the pages of running subjects."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict

from fakes.asgi import Answered, asked
from fakes.live_runs import on_nodes, written
from fakes.live_trials import write_lines
from powerband.live import growing_files
from powerband.live.guard import access_for
from powerband.live.server import LivePages
from powerband.store import RunDir

OPENMETRICS = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}


def get(runs: Path, target: str, token: str | None = None, **headers: str) -> Answered:
    pages = LivePages(runs, access_for("127.0.0.1", 8420, token, "machine"))
    return asked(pages.app, target, headers=headers)


def told(answer: Answered, name: str) -> set[tuple[str, ...]]:
    """The label values, `run` first, of each sample that is not 0."""
    assert answer.status == 200
    return {
        tuple(sample.labels.values())
        for family in strict(answer.text)
        for sample in family.samples
        if sample.name == name and sample.value
    }


def test_the_latest_run_is_told_and_older_ones_that_rest_are_not(tmp_path: Path) -> None:
    for name in ("20261120-100000-old", "20261121-100000-new"):
        written(tmp_path, name)
    answer = get(tmp_path, "/metrics", **OPENMETRICS)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert {run for run, _ in told(answer, "powerband_run_status")} == {latest(tmp_path)}
    settings = {labels[-1] for labels in told(answer, "powerband_setting_trials")}
    assert "threads=32" in settings


def test_an_older_run_that_goes_on_is_told_too(tmp_path: Path) -> None:
    for name in ("20261120-100000-old", "20261121-100000-new"):
        written(tmp_path, name)
    other = next(path for path in tmp_path.iterdir() if path.name != latest(tmp_path))
    with RunDir(other).locked():
        statuses = dict(sorted(told(get(tmp_path, "/metrics", **OPENMETRICS), "powerband_run_status")))
    assert statuses[other.name] == "running" and len(statuses) == 2


def test_the_figures_are_those_of_now_however_much_was_written_since_the_last_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = on_nodes(tmp_path / "run", trials=1, cluster=False)
    write_lines(run.trial(1), 20)
    with run.locked():
        whole = rates(get(tmp_path, "/metrics"))
        monkeypatch.setattr(growing_files, "CHUNK_BYTES", 4096)
        assert rates(get(tmp_path, "/metrics")) == whole != []


def rates(answer: Answered) -> list[str]:
    return [line for line in answer.text.splitlines() if line.startswith(("powerband_rate", "powerband_cpu"))]


def latest(runs: Path) -> str:
    return max(runs.iterdir(), key=lambda path: ((path / "experiment.yaml").stat().st_mtime_ns, path.name)).name


def test_without_a_run_there_is_an_empty_page(tmp_path: Path) -> None:
    assert told(get(tmp_path, "/metrics", **OPENMETRICS), "powerband_run_info") == set()


def test_the_older_format_is_for_those_who_ask_for_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, "20261120-100000-old")
    answer = get(tmp_path, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert '\npowerband_run_info{name="pool-size",run="20261120-100000-old"} 1' in answer.text


def test_a_run_without_a_trial_in_flight_has_no_subject(tmp_path: Path) -> None:
    written(tmp_path, "20261120-100000-old")
    answer = get(tmp_path, "/subject/metrics")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("target", ["/metrics", "/subject/metrics"])
def test_a_token_is_asked_for_and_taken_as_prometheus_sends_it(tmp_path: Path, target: str) -> None:
    token = "a-token-of-some-length"
    assert get(tmp_path, target, token).status == 401
    assert get(tmp_path, target, token, authorization=f"Bearer {token}").status == 200


@pytest.mark.parametrize("target", ["/metrics", "/subject/metrics"])
def test_another_site_cannot_read_it(tmp_path: Path, target: str) -> None:
    assert get(tmp_path, target, origin="http://example.com").status == 403
