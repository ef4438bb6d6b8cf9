"""`powerband prometheus`: a configuration for any live page, and also a folder for users who already have a Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from powerband.cli import invoke, powerband
from powerband.files.library import dashboards
from powerband.live.watch import HOST, PORT

PAGE = "http://127.0.0.1:8420/"


def said(*arguments: str) -> str:
    result = CliRunner().invoke(powerband, ["prometheus", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def configuration(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(said(*arguments))
    return found


def jobs(*arguments: str) -> dict[str, dict[str, Any]]:
    return {job["job_name"]: job for job in configuration(*arguments)["scrape_configs"]}


def test_the_bench_and_the_subject_are_a_job_each() -> None:
    found = jobs(PAGE)
    assert {name: job["metrics_path"] for name, job in found.items()} == {
        "powerband": "/metrics",
        "subject": "/subject/metrics",
    }
    for job in found.values():
        assert job["scheme"] == "http" and job["static_configs"] == [{"targets": ["127.0.0.1:8420"]}]
        assert "authorization" not in job
    # The labels of the subject's own page are kept: Vert.x has one named `instance`.
    assert found["subject"]["honor_labels"] is True


def test_any_url_of_the_page_will_do_and_its_token_goes_with_it() -> None:
    found = jobs("https://[::1]/runs/x/?token=a%22b#top")
    assert {job["scheme"] for job in found.values()} == {"https"}
    assert {job["static_configs"][0]["targets"][0] for job in found.values()} == {"[::1]:443"}
    assert {job["authorization"]["credentials"] for job in found.values()} == {'a"b'}


@pytest.mark.parametrize(("every", "interval"), [("1s", "1s"), ("500ms", "500ms"), ("0.25s", "250ms"), ("60s", "1m")])
def test_the_time_between_scrapes_is_written_as_prometheus_and_grafana_read_it(
    every: str, interval: str, tmp_path: Path
) -> None:
    told = configuration(PAGE, "--every", every)["global"]
    assert told == {"scrape_interval": interval, "scrape_timeout": interval}
    said(PAGE, "--every", every, "-o", str(tmp_path))
    file = Path("provisioning", "datasources", "powerband.yaml")
    mine, theirs = (YAML(typ="safe").load(folder / file) for folder in (tmp_path / "grafana", dashboards()))
    theirs["datasources"][0]["jsonData"]["timeInterval"] = interval
    assert mine == theirs


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["127.0.0.1:8420"], "has no scheme"),
        (["ftp://127.0.0.1/"], "no URL of a server"),
        (["http://127.0.0.1:port/"], "is no URL"),
        ([PAGE, "--every", "soon"], "--every"),
        ([PAGE, "--every", "1ms"], "100ms or more"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["prometheus", *arguments]) == 2
    told = capsys.readouterr()
    assert reason in told.err and told.out == "" and "Traceback" not in told.err


def test_a_folder_gets_what_prometheus_and_grafana_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert said(PAGE, "-o", str(folder)) == ""
    assert (folder / "prometheus.yml").read_text() == said(PAGE)
    written = {path.relative_to(folder / "grafana") for path in folder.rglob("*") if "grafana" in path.parts}
    there = {path.relative_to(dashboards()) for path in dashboards().rglob("*")}
    assert {path for path in written if path.parts} == there
    assert said(PAGE, "-o", str(folder)) == "", "once more over what is there"


def test_a_folder_that_cannot_be_written_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert invoke(["prometheus", PAGE, "-o", str(tmp_path / "file" / "folder")]) == 2
    assert "cannot write to" in capsys.readouterr().err


def test_without_a_url_it_is_where_a_live_page_listens_first() -> None:
    assert f"http://{HOST}:{PORT}/" == PAGE
    assert said() == said(PAGE)
    assert PAGE in said("--help")


def test_a_configuration_with_a_token_is_for_this_user_alone(tmp_path: Path) -> None:
    said(f"{PAGE}?token=secret-enough", "-o", str(tmp_path))
    assert (tmp_path / "prometheus.yml").stat().st_mode & 0o777 == 0o600
