"""The tables of docs/methods that `make statistics` makes: how often verdicts and figures are wrong on servers whose
truth is known.

`python -m fakes.made_tables [WORD...]` simulates all cases of the tables whose titles hold one of the words (of all
without any), keeps their results in docs/methods/data/simulated.jsonl, and writes the tables between their marks into
the pages, with the date and the commit. `tests/properties/test_made_tables.py` holds the pages to the results, and the
results to the code."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.footer import ROOT, commit
from benchmarks.kept_rows import read_rows, write_rows

from fakes import capacities, day_effects, failing, regrets, starts, windows
from fakes.confusion import put

METHODS = ROOT / "docs" / "methods"
KEPT = METHODS / "data" / "simulated.jsonl"
TABLES = (
    starts.VERDICTS,
    failing.OUTCOMES,
    starts.FIGURES,
    capacities.COVERAGE,
    regrets.BOUNDS,
    day_effects.SESSIONS,
    windows.WINDOWS,
)


@dataclass(frozen=True)
class Row:
    """The result of one case of the table with this title."""

    table: str
    case: str
    found: Any


def kept_results() -> dict[str, dict[str, Any]]:
    """The results of all cases by the titles of the tables and the names of the cases."""
    results: dict[str, dict[str, Any]] = {}
    for row in read_rows(KEPT, Row):
        results.setdefault(row.table, {})[row.case] = row.found
    return results


def main(words: Sequence[str]) -> None:
    made_at = f"*{time.strftime('%Y-%m-%d')}, commit {commit()}*"
    results = kept_results()
    for table in TABLES:
        if words and not any(word in table.title for word in words):
            continue
        results[table.title] = {case: table.found(case) for case in table.cases}
        text = f"{table.text(results[table.title])}\n{made_at}\n"
        page = METHODS / table.page
        page.write_text(put(page.read_text(), table.title, text))
        kept = [(each.title, results.get(each.title, {})) for each in TABLES]
        write_rows(KEPT, [Row(title, case, found) for title, cases in kept for case, found in cases.items()])
        sys.stdout.write(f"{table.title}\n{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
