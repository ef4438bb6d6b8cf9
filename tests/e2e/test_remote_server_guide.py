"""The commands of docs/remote-server.md run as they stand there, only shorter and on a free port. Commands that need
another machine are only parsed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.deployed import knob_server
from fakes.pages import ROOT, blocks, commands
from powerband.cli import powerband
from powerband.cli.running import tuned
from powerband.files.experiment_file import load_experiment
from powerband.model.experiment import Experiment

PAGE = (ROOT / "docs" / "remote-server.md").read_text()
SHORT = ("--duration", "800ms", "--warmup", "300ms", "--repeats", "2", "--confirm", "0", "--order", "blocks")


def shown(text: str) -> list[str]:
    (found,) = [given for given in commands(PAGE) if any(text in word for word in given)]
    return found


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
    assert "python3 examples/knob_server.py --port 8080" in PAGE
    with knob_server(script=tmp_path / "examples" / "knob_server.py") as server:
        given = [word.replace(":8080/", f":{server.port}/") for word in shown("POST /knob {n}")]
        done = subprocess.run(
            [sys.executable, "-m", "powerband", *given, *SHORT],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        told = " ".join(done.stdout.split())
        assert "Use n=8" in told and "The server was set back to n=8." in told and server.knob() == 8
        assert "runs already" in done.stderr and f"--pid {server.process.pid} would watch it" in done.stderr


def test_the_command_for_another_machine_is_read_as_it_says() -> None:
    experiment = read(shown("set-property"))
    deployed = experiment.subject.deployed
    assert deployed is not None and deployed.command is not None
    assert deployed.command[:3] == ("ssh", "app-1", "sudo") and deployed.command[-1] == "CPUQuota={quota}%"
    assert deployed.restore == {"quota": 400} and experiment.allow_hosts == ("app-1",)


def test_the_file_is_valid(tmp_path: Path) -> None:
    (text,) = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    file = tmp_path / "staging.yaml"
    file.write_text(text)
    experiment = load_experiment(file, to_run=True)
    assert experiment.subject.deployed is not None and experiment.subject.apply[0].body == '{"size": {size}}'


def test_every_option_of_its_table_is_one_of_tune() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    options = {name for parameter in powerband.commands["tune"].params for name in parameter.opts}
    assert named <= options
