from __future__ import annotations

import re
from pathlib import Path

from powerband.processes.failures import Code

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "failures.md"


def test_every_code_is_documented_and_none_that_does_not_exist() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(code.value for code in Code)
