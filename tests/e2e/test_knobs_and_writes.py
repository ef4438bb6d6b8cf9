"""Live knobs, the check of acknowledged writes, and a private PostgreSQL, on a real server with the real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.needs import need_postgresql

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

SERVER = Path(__file__).parents[1] / "fakes" / "late_store.py"
EXPERIMENT = """
name: late
subject:
  command: [{python}, {server}, --port, "{{port}}", --late, "{{late}}", --pg, "{{postgresql_port}}",
            --page, "{{page}}"]
  metrics_url: http://127.0.0.1:{{port}}/metrics
  services: {{postgresql: {{when: {{database: postgresql}}}}}}
  parameters:
    late: {{type: int, default: 0, help: reads}}
    page: {{type: string, default: rows, help: which page}}
    size: {{type: int, default: 40, help: things in a write}}
    database: {{type: choice, choices: [none, postgresql], default: none, help: which}}
  env: {{DATABASE: "{{database}}"}}
  apply: [{{put: "/knob?size={{size}}"}}]
factors: {factors}
load: {{users: 2, duration: 300ms, scenario: [{{get: /size}}]}}
measure:
  warmup: 200ms
  repeats: 1
  slots: false
  foreign_cpu_max: 100%
  steal_max: 100%
  acknowledged: {{reset: {{delete: /}}, write: {{post: /}}, read: {{get: /rows}}, expect: 40, rounds: 4}}
"""


def run(folder: Path, factors: str, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    file = folder / "late.yaml"
    file.write_text(EXPERIMENT.format(python=sys.executable, server=SERVER, factors=factors))
    command = [sys.executable, "-m", "powerband", "run", str(file), "--format", "json", "--runs", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done, json.loads(done.stdout) if done.stdout else {}


def test_what_is_late_is_seen_and_what_is_not_is_not(tmp_path: Path) -> None:
    done, analysis = run(tmp_path, "{late: [0, 3]}")
    found = {trial["setting"]["levels"]["late"]: trial["metrics"] for trial in analysis["trials"]}
    assert found[0]["missing_at_acknowledgement_max"] == 0, done.stderr
    assert found[3]["missing_at_acknowledgement_mean"] == found[3]["missing_at_acknowledgement_max"] == 20
    assert found[3]["visible_delay_ns_p50"] > 3e6, "two reads and two pauses of a millisecond and more lie between"
    assert found[3]["acknowledge_ns_p50"] > 0


def test_a_read_that_never_sees_all_is_said(tmp_path: Path) -> None:
    _, analysis = run(
        tmp_path, "{late: [0]}", "--set", "subject.set.size=30", "--set", "measure.acknowledged.timeout=100ms"
    )
    trial = analysis["trials"][-1]
    (said,) = [problem for problem in trial["problems"] if problem["code"] == "acknowledged_never_seen"]
    assert not said["fatal"] and "after 4 of 4 writes" in said["message"]
    assert trial["metrics"]["missing_at_acknowledgement_mean"] == 10
    assert "visible_delay_ns_p50" not in trial["metrics"]


def test_a_knob_is_set_and_one_that_is_refused_fails_the_trial(tmp_path: Path) -> None:
    _, analysis = run(tmp_path, "{size: [40, 0]}")
    trials = {trial["setting"]["levels"]["size"]: trial for trial in analysis["trials"]}
    assert trials[40]["status"] == "measured" and trials[40]["metrics"]["missing_at_acknowledgement_max"] == 0
    assert trials[0]["status"] == "failed"
    (problem,) = trials[0]["problems"]
    assert problem["code"] == "apply_failed" and "PUT /knob?size=0: status 422" in problem["message"]


@pytest.mark.parametrize(
    ("page", "said"), [("garbage", "it is no Prometheus page"), ("slow", "it took longer than"), ("rows", None)]
)
def test_a_metrics_page_that_is_garbage_or_slow_is_said_and_spoils_nothing(
    page: str, said: str | None, tmp_path: Path
) -> None:
    # A slow page is read every two seconds, on a busy machine every three: at least once within the window.
    sets = (f"subject.set.page={page}", "measure.acknowledged=null", "load.duration=3500ms")
    options = [word for text in sets for word in ("--set", text)]
    done, analysis = run(tmp_path, "{late: [0]}", *options, "--set", "measure.metrics={app_rows: last(rows)}")
    assert "Traceback" not in done.stderr
    trial = analysis["trials"][-1]
    assert trial["status"] == "measured" and trial["metrics"]["goodput_per_s"] > 0
    found = [problem for problem in trial["problems"] if problem["code"] == "metrics_page"]
    assert ("app_rows" in trial["metrics"]) == (page == "rows")
    assert found or said is None
    # On a busy machine a good page may be late, too.
    assert all((said or "it took longer than") in each["message"] and not each["fatal"] for each in found), found


def test_a_private_postgresql_serves_those_settings_that_use_it_and_is_gone_afterwards(tmp_path: Path) -> None:
    need_postgresql()
    done, analysis = run(tmp_path, "{database: [none, postgresql]}")
    found = {trial["setting"]["levels"]["database"]: trial for trial in analysis["trials"]}
    assert all(trial["status"] == "measured" for trial in found.values()), done.stderr
    assert (
        "services_cpu_cores" in found["postgresql"]["metrics"] and "services_cpu_cores" not in found["none"]["metrics"]
    )
    (folder,) = tmp_path.glob("*-late")
    assert "database system is shut down" in (folder / "postgresql.log").read_text()
    assert not (folder / "postgresql").exists()
    assert all("postgresql" not in trial["metrics"] for trial in analysis["trials"])
