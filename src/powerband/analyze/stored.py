"""analysis.json read back: its text in, the `Analysis` that it was written from out.

`results.py` says its shape: each value is read as its dataclass declares it, so that a new field needs nothing here.
Keys that this version does not know are left out; no file is opened here, and nothing is computed.
"""

from __future__ import annotations

import json
import math
from functools import cache

from pydantic import TypeAdapter, ValidationError

from powerband.base.errors import UsageError
from powerband.model.metrics import METRICS
from powerband.model.results import FORMAT, Analysis, TrialResult


def stored_analysis(text: str) -> Analysis:
    """Raises UsageError for what is no analysis, is damaged, or was written by another version."""
    try:
        data = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is damaged ({error})") from None
    if not isinstance(data, dict):
        raise UsageError("it is no analysis of a run")
    if data.get("format") != FORMAT:
        raise UsageError(f"its format is {data.get('format')!r}, and this version of powerband reads {FORMAT}")
    try:
        whole = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")  # halves of characters are no JSON
        found = _analysis().validate_json(whole, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"it is damaged, or another version wrote it ({where}: {first['msg']})") from None
    if found.objective not in METRICS:
        raise UsageError(f"it is damaged, or another version wrote it (there is no metric {found.objective})")
    return found


def stored_results(text: str) -> tuple[TrialResult, ...]:
    """Trials as an analysis has them. Raises UsageError for anything else."""
    try:
        return _results().validate_json(text, strict=True)
    except ValidationError as error:
        raise UsageError(f"it is damaged, or another version wrote it ({error.error_count()} errors)") from None


def _finite(number: str) -> float:
    if not math.isfinite(found := float(number)):
        raise ValueError(f"{number[:40]} is no number")
    return found


def _whole(number: str) -> int:
    _finite(number)
    return int(number)


@cache
def _analysis() -> TypeAdapter[Analysis]:
    return TypeAdapter(Analysis)


@cache
def _results() -> TypeAdapter[tuple[TrialResult, ...]]:
    return TypeAdapter(tuple[TrialResult, ...])
