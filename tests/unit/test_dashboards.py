"""Grafana's dashboards as they are checked in: they are the script's present output, and use existing metrics."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from scripts.grafana import DASHBOARDS
from scripts.grafana.panels import COLUMNS, Dashboard, to_json

from powerband.files.library import dashboards, subject_names
from powerband.live.openmetrics import FAMILIES

FILES = sorted(dashboards().glob("*.json"))
DOCS = (Path(__file__).parents[2] / "docs" / "prometheus.md").read_text()
OWN = {"powerband_run_info", *(family.name for family in FAMILIES)}


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def queries(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


@pytest.mark.parametrize("made", DASHBOARDS, ids=lambda made: made.name)
def test_the_file_is_what_the_script_makes(made: Dashboard) -> None:
    assert (dashboards() / f"{made.name}.json").read_text() == to_json(made), "run `make dashboards`"


def test_there_is_one_for_the_bench_and_for_each_subject() -> None:
    assert {file.stem for file in FILES} == {"bench", *subject_names()} == {made.name for made in DASHBOARDS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(file: Path) -> None:
    panels = read(file)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= COLUMNS and place["h"] > 0 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_query_asks_for_the_chosen_run_and_has_a_letter_of_its_own(file: Path) -> None:
    dashboard = read(file)
    assert queries(dashboard)
    for expr in queries(dashboard):
        selectors = re.findall(r"[a-z_]+\{([^}]*)\}", expr)
        assert selectors and all('run="$run"' in selector for selector in selectors), expr
    for panel in dashboard["panels"]:
        letters = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(letters)) == len(letters)


def test_the_bench_shows_every_metric_of_powerband_and_no_other() -> None:
    dashboard = read(dashboards() / "bench.json")
    used = {name for expr in queries(dashboard) for name in re.findall(r"([a-z_]+)\{", expr)}
    # The first fills the variable `run`; the second, the number of trials of each setting, is for a user's own alerts.
    assert used == OWN - {"powerband_run_info", "powerband_setting_trials"}
    assert "powerband_run_info" in json.dumps(dashboard["templating"])


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_metric_of_powerband_is_documented(name: str) -> None:
    assert f"| `{name}` |" in DOCS


def test_the_provisioning_finds_the_dashboards_and_the_prometheus() -> None:
    folder = dashboards() / "provisioning"
    (source,) = YAML(typ="safe").load(folder / "datasources" / "powerband.yaml")["datasources"]
    assert (source["type"], source["url"], source["jsonData"]["timeInterval"]) == (
        "prometheus",
        "http://127.0.0.1:9090",
        "1s",
    )
    (provider,) = YAML(typ="safe").load(folder / "dashboards" / "powerband.yaml")["providers"]
    assert provider["options"]["path"].replace("$GF_PATHS_PROVISIONING", str(folder)) == f"{folder}/.."
