"""analysis.json read back: its text in, the `Analysis` that it was written from out.

`results.py` says its shape: each value is read as its dataclass declares it, so that a new field needs nothing here.
Keys that this version does not know are left out; no file is opened here, and nothing is computed.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from powerband.base.errors import UsageError
from powerband.model.metrics import METRICS
from powerband.model.plan import Setting
from powerband.model.results import FORMAT, Analysis

_Read = Callable[[Any], Any]


def stored_analysis(text: str) -> Analysis:
    """Raises UsageError for what is no analysis, is damaged, or was written by another version."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UsageError(f"it is damaged ({error})") from None
    if not isinstance(data, dict):
        raise UsageError("it is no analysis of a run")
    if data.get("format") != FORMAT:
        raise UsageError(f"its format is {data.get('format')!r}, and this version of powerband reads {FORMAT}")
    try:
        found = _reader(Analysis)(data)
        assert isinstance(found, Analysis)
        METRICS[found.objective]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"it is damaged, or another version wrote it ({type(error).__name__}: {error})") from None
    return found


@cache
def _reader(hint: Any) -> _Read:
    """Makes a value of this declared type out of plain JSON. Raises TypeError, KeyError or ValueError."""
    if hint is Setting:
        return lambda value: Setting(tuple(value["levels"].items()))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(arguments)
    if origin is tuple:
        return _many(arguments)
    if origin is not None:
        assert issubclass(origin, Mapping), origin
        read = _reader(arguments[1])
        return lambda value: {key: read(item) for key, item in value.items()}
    if is_dataclass(hint):
        return _record(hint)
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else _plain(hint)


def _one_of(arguments: tuple[Any, ...]) -> _Read:
    """`X | None`, or one of several plain types, which JSON keeps apart by itself."""
    wanted = [argument for argument in arguments if argument is not types.NoneType]
    if len(wanted) == 1:
        read = _reader(wanted[0])
        return lambda value: None if value is None else read(value)
    return lambda value: _checked(value, tuple(wanted))


def _many(arguments: tuple[Any, ...]) -> _Read:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        read = _reader(arguments[0])
        return lambda value: tuple(read(item) for item in _checked(value, (list,)))
    each = [_reader(argument) for argument in arguments]
    return lambda value: tuple(read(item) for read, item in zip(each, _checked(value, (list,)), strict=True))


def _record(kind: Any) -> _Read:
    hints = get_type_hints(kind)
    known = {field.name: _reader(hints[field.name]) for field in fields(kind)}

    def read(value: Any) -> Any:
        return kind(**{name: known[name](item) for name, item in _checked(value, (dict,)).items() if name in known})

    return read


def _plain(kind: Any) -> _Read:
    wanted = (int, float) if kind is float else (kind,)
    if not all(isinstance(each, type) for each in wanted):
        return lambda value: value
    number = kind in (int, float)

    def read(value: Any) -> Any:
        if number and isinstance(value, bool):
            raise TypeError(f"{value!r} is no number")
        return _checked(value, wanted)

    return read


def _checked(value: Any, kinds: tuple[Any, ...]) -> Any:
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        raise ValueError(f"{str(value)[:40]} is no number")
    if not isinstance(value, kinds):
        raise TypeError(f"{str(value)[:40]!r} stands where {' or '.join(kind.__name__ for kind in kinds)} is wanted")
    return value
