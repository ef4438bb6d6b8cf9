"""The page on WebSockets: each of its files is valid, and its sample is an existing file."""

import json
import re
from pathlib import Path

import pytest

from powerband.files.experiment_file import parse_experiment

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "websocket.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
SUBJECT = 'subject: {command: "node server.js {port}", url: "ws://127.0.0.1:{port}/"}\n'


@pytest.mark.parametrize("text", EXAMPLES)
def test_each_example_is_valid(text: str) -> None:
    experiment = parse_experiment(text if "subject:" in text else SUBJECT + text, "example.yaml")
    assert experiment.load.websocket is not None


def test_the_sample_is_there_and_its_version_fixed() -> None:
    folder = ROOT / "examples" / "ws-server"
    assert "node server.js {port} {processes}" in PAGE
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted
