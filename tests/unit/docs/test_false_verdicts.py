"""The page on comparing settings promises false verdicts in at most 5 % of sweeps."""

from __future__ import annotations

import re

from fakes.pages import ROOT, tables


def test_false_verdicts_of_equal_settings_are_at_most_five_percent_in_each_cell() -> None:
    page = (ROOT / "docs" / "methods" / "comparing-settings.md").read_text()
    (block,) = re.findall(r"<!-- false verdicts: begin -->\n(.*?)<!-- false verdicts: end -->", page, re.S)
    ((head, *rows),) = tables(block)
    assert head[1:] == ["3 rounds", "5", "10", "races"] and len(rows) > 10
    assert max(float(cell.rstrip("%")) for row in rows for cell in row[1:]) <= 5
