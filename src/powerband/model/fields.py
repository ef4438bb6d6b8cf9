"""Field types of an experiment: durations, rates and shares in human notation, commands, and base classes.

A value written by a user without a unit is an error; a resolved value is already a number. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from powerband.base.units import LONGEST_NS, parse_duration_ns, parse_rate, parse_share

# What may stand before the program of a command: one that starts it, an option or a number of that, a variable.
_STARTERS = "sudo|doas|pkexec|env|stdbuf|nice|ionice|chrt|taskset|nohup|setsid|time|timeout|exec"
_BEFORE = re.compile(rf"(.*/)?({_STARTERS})|-.*|\w+=.*|[\d.,-]+[smhd]?", re.S)
_TAKES_A_WORD = re.compile(r"-[EHin]*[CDghpRTu]|--(user|group|chdir|chroot|unset)")  # of these options
# Validation context of values written by a user: there, a duration without a unit is an error, never taken as ns.
AS_WRITTEN = "as written"


def _duration(value: Any, info: ValidationInfo) -> Any:
    if info.context == AS_WRITTEN and isinstance(value, int | float) and value != 0:
        raise ValueError(f"{value} has no unit: write {value}s, {value}ms or another of ns, us, ms, s, m, h")
    return parse_duration_ns(value)


def _share(value: Any) -> Any:
    share = parse_share(value)
    if 1 < share <= 100 and not str(value).strip().endswith("%"):
        raise ValueError(f"{value} is above 1: write {share:g}% or {share / 100:g}")
    return share


def listed(value: Any) -> Any:
    """Turns a single value into a list of one."""
    return [value] if isinstance(value, int | str) else value


def _argv(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


def program_of(command: Sequence[str]) -> str:
    """The name of the program that a command starts, by `sudo`, `env` and the like or without; empty if it names
    none."""
    after = zip(("", *command), command, strict=False)
    words = (word for last, word in after if not (_BEFORE.fullmatch(word) or _TAKES_A_WORD.fullmatch(last)))
    return PurePath(next(words, "")).name


def pairs(value: Any) -> Any:
    """Turns a mapping into a tuple of its pairs; any other value is returned unchanged."""
    return tuple(value.items()) if isinstance(value, Mapping) else value


Ns = Annotated[int, BeforeValidator(_duration), Field(ge=0, le=LONGEST_NS)]
# The load engine's own limits (its check.rs), so that `check` refuses the same values.
MINUTE_NS = 60 * 10**9
DAY_NS = 24 * 60 * MINUTE_NS
RATE_MAX_PER_S = 1e8  # 10 ns between two sends
WithinDay = Annotated[int, BeforeValidator(_duration), Field(ge=0, le=DAY_NS)]
Timeout = Annotated[int, BeforeValidator(_duration), Field(ge=1, le=DAY_NS)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
Rate = Annotated[float, BeforeValidator(parse_rate)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_argv), Field(min_length=1)]


class Frozen(BaseModel):
    """Base of all models: unknown keys are errors, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, coerce_numbers_to_str=True)


class Section(Frozen):
    """Base of models with numbers: `users: true` is an error in them, although Python would accept it as 1."""

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        numbers = (int, float, int | None, float | None)
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in numbers:
            raise ValueError(f"{str(value).lower()} is no number")
        return value


def field_named(model: type[BaseModel], key: str) -> str:
    """The field for a key of a file: by its alias, or its own name. An unknown key is returned unchanged."""
    return next((name for name, field in model.model_fields.items() if key == (field.alias or name)), key)
