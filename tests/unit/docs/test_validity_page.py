"""docs/reference/validity.md names every code that the gate can give, and none that it cannot."""

from __future__ import annotations

import re
from pathlib import Path

from powerband.analyze.trial.processes import PARTIAL_SWITCHES

ROOT = Path(__file__).parents[3]


def test_the_page_and_the_gate_know_the_same_codes() -> None:
    page = (ROOT / "docs/reference/validity.md").read_text()
    documented = {code for row in re.findall(r"^\| (`.*?) \|", page, re.M) for code in re.findall(r"`(\w+)`", row)}
    source = "".join(
        path.read_text()
        for room in ("analyze/trial", "loads")
        for path in sorted((ROOT / "src/powerband" / room).rglob("*.py"))
    )
    given = set(re.findall(r'Problem\(\s*"(\w+)"', source)) | {"host_foreign", "host_foreign_some"}
    given |= {PARTIAL_SWITCHES, *(f"generator_{outcome}" for outcome in ("no_descriptors", "no_ports"))}
    assert documented == given
