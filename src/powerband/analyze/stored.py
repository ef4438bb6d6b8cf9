"""Reads analysis.json back. In: its text. Out: the `Analysis` that it was written from.

`results.py` defines its shape: each value is read as its dataclass declares it, so that a new field needs nothing here.
Keys that this version does not know are left out. No file is opened here, and nothing is computed.
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from powerband.base.errors import UsageError
from powerband.model.metrics import METRICS, OWN
from powerband.model.results import FORMAT, Analysis, TrialResult


def stored_analysis(text: str) -> Analysis:
    """Returns the analysis in a text. Raises UsageError if it is no analysis, is damaged, or was written by another
    version."""
    try:
        data = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is damaged ({error})") from None
    if not isinstance(data, dict):
        raise UsageError("it is no analysis of a run")
    if data.get("format") != FORMAT:
        raise UsageError(f"its format is {data.get('format')!r}, and this version of powerband reads {FORMAT}")
    whole = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")  # lone surrogates are no JSON
    found: Analysis = _validated(Analysis, whole)
    if found.objective not in METRICS and not found.objective.startswith(OWN):
        raise UsageError(f"it is damaged, or another version wrote it (there is no metric {found.objective})")
    return found


def stored_results(text: str) -> tuple[TrialResult, ...]:
    """Returns the trials in a text, which has them as analysis.json does. Raises UsageError for anything else."""
    found: tuple[TrialResult, ...] = _validated(tuple[TrialResult, ...], text)
    return found


def _finite(number: str) -> float:
    if not math.isfinite(found := float(number)):
        raise ValueError(f"{number[:40]} is no number")
    return found


def _whole(number: str) -> int:
    _finite(number)
    return int(number)


def _validated(kind: Any, text: str | bytes) -> Any:
    try:
        return _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"it is damaged, or another version wrote it ({where}: {first['msg']})") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
