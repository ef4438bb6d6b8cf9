"""The command line's answer when a real server cannot start with any setting, or with one of them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

POWERBAND = str(Path(sys.executable).with_name("powerband"))
SERVER = """
import sys

def pool(size):
    return int(size + "x")

try:
    pool(sys.argv[1])
except ValueError as error:
    raise RuntimeError("no server") from error
"""


def test_a_server_that_starts_with_no_setting_ends_the_run_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    began = time.monotonic()
    tuned = subprocess.run(
        [POWERBAND, "tune", "-P", "threads=1,2,4,8", "--", sys.executable, "server.py", "{threads}", "{port}"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert tuned.returncode == 4, tuned.stderr
    assert "ValueError: invalid literal for int()" in tuned.stderr
    assert "Traceback" not in tuned.stderr and "RuntimeError" not in tuned.stderr
    assert "first 4 starts, at 4 settings" in tuned.stderr
    assert time.monotonic() - began < 60  # four starts take some ten seconds on an idle machine
