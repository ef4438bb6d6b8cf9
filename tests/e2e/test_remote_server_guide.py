"""The first command of docs/remote-server.md runs as it stands there, only shorter and on a free port, and the one that
needs ssh is only parsed. `test_guides.py` runs the others."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.deployed import knob_server
from fakes.guides import shown, text_of, typed
from fakes.pages import ROOT
from powerband.cli import powerband
from powerband.cli.running import tuned
from powerband.model.experiment import Experiment

SHORT = ("--duration", "800ms", "--warmup", "300ms", "--repeats", "2", "--confirm", "0", "--order", "blocks")


def read(arguments: list[str]) -> Experiment:
    name, *rest = arguments
    options = powerband.commands[name].make_context(name, rest).params
    for own in ("runs", "progress", "live", "output"):
        options.pop(own)
    return tuned(options.pop("command"), **options)


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.crowded
@pytest.mark.usefixtures("engine", "no_process_left")
def test_the_command_on_the_example_names_its_best_setting(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "knob_server.py", tmp_path / "examples")
    assert typed("remote-server.md", "python3 ") == "python3 examples/knob_server.py --port 8080"
    with knob_server(script=tmp_path / "examples" / "knob_server.py") as server:
        given = [
            word.replace(":8080/", f":{server.port}/") for word in shown("remote-server.md", "tune", "-P", "n=2,8,32")
        ]
        done = subprocess.run(
            [sys.executable, "-m", "powerband", *given, *SHORT],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        told = " ".join(done.stdout.split())
        assert "Use n=8" in told and "The server was set back to n=8." in told and server.knob() == 8
        assert "runs already" in done.stderr and f"--pid {server.process.pid} would watch it" in done.stderr


def test_the_command_for_another_machine_is_read_as_it_says() -> None:
    experiment = read(shown("remote-server.md", "tune", "-P", "quota=100,200,400"))
    deployed = experiment.subject.deployed
    assert deployed is not None and deployed.command is not None
    assert deployed.command[:3] == ("ssh", "app-1", "sudo") and deployed.command[-1] == "CPUQuota={quota}%"
    assert deployed.restore == {"quota": 400} and experiment.allow_hosts == ("app-1",)


def test_every_option_of_its_table_is_one_of_tune() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", text_of("remote-server.md")))
    options = {name for parameter in powerband.commands["tune"].params for name in parameter.opts}
    assert named <= options
