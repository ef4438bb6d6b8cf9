"""A server that somebody else started is tuned where it runs, and the best setting is named. Beside other tests the
load may be late at every trial of the faster setting, which then cannot be judged: these tests measure alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.deployed import KNOB, OUTLASTING, knob_server, tune
from fakes.guides import shown, typed
from fakes.pages import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]


def test_the_best_setting_is_named_and_the_knob_gets_its_value_back(tmp_path: Path) -> None:
    with knob_server(n=3) as server:
        done, analysis = tune(tmp_path, server.url, "-P", "n=1,8", *KNOB, "--restore", "n=3", *OUTLASTING)
        assert done.returncode == 0, done.stderr
        assert analysis["deployed"] and analysis["answer"]["leader"]["id"] == "n=8", analysis["trials"]
        said = " ".join(analysis["answer"]["sentences"])
        assert "was not restarted between settings" in said and "from outside" in said
        assert "start" not in said.replace("not restarted", "").replace("between its starts", "")
        assert said.endswith("The server was set back to n=3.")
        assert server.is_alive and server.knob() == 3 and not (Path(analysis["run"]) / "restore.log").exists()
        assert not any("subject_cpu_cores" in trial["metrics"] for trial in analysis["trials"])
        assert not any("host_foreign_cores" in trial["metrics"] for trial in analysis["trials"])
        told = subprocess.run(
            [sys.executable, "-m", "powerband", "report", analysis["run"], "--format", "json"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert json.loads(told.stdout)["answer"]["sentences"] == analysis["answer"]["sentences"]


def test_a_setting_that_is_refused_is_no_answer_and_the_others_are(tmp_path: Path) -> None:
    with knob_server(n=3) as server:
        _, analysis = tune(tmp_path, server.url, "-P", "n=0,8", *KNOB, "--restore", "n=3", *OUTLASTING)
        failed = [trial for trial in analysis["trials"] if trial["setting"]["id"] == "n=0"]
        assert {trial["problems"][0]["code"] for trial in failed} == {"apply_failed"}
        assert analysis["answer"]["leader"]["id"] == "n=8" and server.knob() == 3


@pytest.mark.long
def test_the_page_names_the_best_setting_of_its_example(tmp_path: Path) -> None:
    """The first two commands of docs/remote-server.md, on a free port, name the best setting of the example and restore
    the first."""
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "knob_server.py", tmp_path / "examples")
    assert typed("remote-server.md", "python3 ") == "python3 examples/knob_server.py --port 8080"
    short = (*OUTLASTING, "--warmup", "300ms", "--repeats", "2", "--confirm", "0", "--order", "blocks")
    with knob_server(script=tmp_path / "examples" / "knob_server.py") as server:
        command = shown("remote-server.md", "tune", "-P", "n=2,8,32")
        given = [word.replace("http://127.0.0.1:8080/", server.url) for word in command]
        done = subprocess.run(
            [sys.executable, "-m", "powerband", *given, *short],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        told = " ".join(done.stdout.split())
        # So few trials may not suffice for "Use".
        assert "Use n=8" in told or "n=8 looks best" in told, told
        assert "The server was set back to n=8." in told and server.knob() == 8
        assert "runs already" in done.stderr and f"--pid {server.process.pid} would watch it" in done.stderr
