"""The answer for machines: `--format json`, with the schema docs/reference/analysis.schema.json.

A change of the schema needs a new `format`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from powerband.model.results import Analysis


def to_document(analysis: Analysis, run: Path | None) -> dict[str, Any]:
    """The analysis with the run directory's absolute path (None: the analysis of no run on disk)."""
    return {"run": None if run is None else str(run.resolve()), **analysis.to_json()}


def render_json(analysis: Analysis, run: Path | None) -> str:
    """One JSON document, indented, ending in a newline; numbers in full precision, never NaN or infinity.

    Raises ValueError for a number that JSON cannot hold, which would be our own bug."""
    return json.dumps(to_document(analysis, run), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
