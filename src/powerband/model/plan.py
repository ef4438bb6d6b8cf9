"""Settings made from an experiment's factors, and the trials of a plan. Values only: nothing is run or read here."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from powerband.model.fields import pairs

Level = bool | int | float | str

REVISION = "revision"
"""The name of the factor whose two levels are revisions of a server, which are compared setting by setting."""


class Stage(StrEnum):
    """The purpose of a trial. `COMPARE` trials are compared with each other, and so are `SCREEN` trials, but never one
    kind with the other."""

    EXPLORE = "explore"  # exploration of a large space, outside of any block
    SCREEN = "screen"  # a short trial of each setting before a race; compared only with others of this stage
    COMPARE = "compare"  # a block of the plan or of the race
    CONFIRM = "confirm"  # a fresh start of the winner or its nearest rival, after the race
    SATURATE = "saturate"  # the setting's maximum throughput, at the beginning of a capacity search
    CAPACITY = "capacity"  # one offered rate of a capacity search
    SOAK = "soak"  # the answer's setting once more, for a long time, after all else


@dataclass(frozen=True)
class Setting:
    """One level of every factor. `levels`: pairs of factor and level, in the order of the experiment's factors."""

    levels: Annotated[tuple[tuple[str, Level], ...], BeforeValidator(pairs)]

    @property
    def id(self) -> str:
        """The name of the setting, unique within an experiment: `threads=4,queue=100`, or `default` without factors."""
        return ",".join(f"{name}={format_level(level)}" for name, level in self.levels) or "default"

    def as_dict(self) -> dict[str, Level]:
        """The level of each factor, by the factor's name."""
        return dict(self.levels)

    @property
    def revision(self) -> Level | None:
        """The level of the factor `revision`; None if there is no such factor."""
        return self.as_dict().get(REVISION)


_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def format_level(level: Level) -> str:
    """The level as a user would type it: true and false in lower case, whole floats without a trailing .0."""
    if isinstance(level, bool):
        return "true" if level else "false"
    if isinstance(level, float) and level.is_integer():
        return str(int(level))
    return str(level)


def number_of(level: Level) -> float | None:
    """The number that a level stands for, also where it is a text because servers get it as written (`1.0`, `1e3`);
    None for anything else (`0x10`, `1_000`)."""
    if isinstance(level, bool) or (isinstance(level, str) and not _DECIMAL.fullmatch(level)):
        return None
    number = float(level)
    return number if math.isfinite(number) else None


def numbers_of(levels: Collection[Level]) -> list[float] | None:
    """The numbers of a factor's levels, which order them; None unless each is a number, and each another one (`1` and
    `1.0` are two levels of one number)."""
    found = [number for level in levels if (number := number_of(level)) is not None]
    return found if len(set(found)) == len(levels) else None


def grid(factors: Mapping[str, tuple[Level, ...]]) -> list[Setting]:
    """Every combination of levels; the last factor varies fastest."""
    names = list(factors)
    return [Setting(tuple(zip(names, levels, strict=True))) for levels in itertools.product(*factors.values())]


Conditions = tuple[tuple[str, tuple[tuple[str, tuple[Level, ...]], ...]], ...]
"""For each name, the names and values that it depends on."""


def is_met(conditions: Iterable[tuple[str, tuple[Level, ...]]], levels: Mapping[str, Level]) -> bool:
    """True if each of these names has one of its values; a value may be a pattern (`fixed:*`). `levels`: the value of
    each name."""
    return all(
        any(fnmatchcase(format_level(levels[name]), format_level(pattern)) for pattern in patterns)
        for name, patterns in conditions
    )


class Kept(NamedTuple):
    """The `settings` of a grid that the server tells apart, in grid order. `stands_for`: every setting of the grid,
    with the one of these that stands for it."""

    settings: tuple[Setting, ...]
    stands_for: Mapping[Setting, Setting]


@lru_cache(maxsize=64)
def kept_settings(
    factors: tuple[tuple[str, tuple[Level, ...]], ...],
    conditions: Conditions,
    others: tuple[tuple[str, Level], ...],
    written: str,
) -> Kept:
    """Keeps of the settings of the grid of `factors` that differ only in values that the server does not read the
    first. `conditions`: of the factors that it does not always read; `others`: the values of what does not vary;
    `written`: tells levels apart that are equal (1, 1.0)."""
    found: dict[tuple[Level | None, ...], Setting] = {}
    kept: dict[Setting, Setting] = {}
    for setting in grid(dict(factors)):
        levels = {**dict(others), **setting.as_dict()}
        unread = {name for name, wanted in conditions if not is_met(wanted, levels)}
        read = tuple(None if name in unread else level for name, level in setting.levels)
        kept[setting] = found.setdefault(read, setting)
    return Kept(tuple(found.values()), kept)


def one_at_a_time(factors: Mapping[str, tuple[Level, ...]]) -> list[Setting]:
    """The baseline, which has the first level of every factor, and then each other level of each factor alone."""
    base = {name: levels[0] for name, levels in factors.items()}
    changed = [{**base, name: level} for name, levels in factors.items() for level in levels[1:]]
    return [Setting(tuple(levels.items())) for levels in (base, *changed)]


@dataclass(frozen=True)
class TrialSpec:
    """One fresh start of the server with `setting`, to be measured; `stage`: its purpose.

    `number` counts trials of the run from 1; `block` from 0; `attempt` from 1 (the repeat of an invalid trial has 2).
    `seed` determines every random choice of the load; all settings of a block share it. `rate_per_s`: the offered rate
    of this trial (Poisson arrivals) in place of the experiment's load; None: the load unchanged. `window_ns`: the
    measured time of this trial; None: that of the experiment, `load.duration`.
    """

    number: int
    block: int
    attempt: int
    setting: Setting
    seed: int
    stage: Stage = Stage.COMPARE
    rate_per_s: float | None = None
    window_ns: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON types, as in `plan.jsonl` and `spec.json`."""
        return {**vars(self), "setting": self.setting.as_dict(), "stage": self.stage.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrialSpec:
        """Reads the result of `to_json`. Raises KeyError, TypeError, AttributeError or ValueError for anything else."""
        setting = Setting(tuple(data["setting"].items()))
        stage = Stage(data.get("stage", Stage.COMPARE))  # absent: written before there were stages
        rate_per_s, window_ns = data.get("rate_per_s"), data.get("window_ns")
        whole = [data[name] for name in ("number", "block", "attempt", "seed")]
        numbers = [value for _, value in setting.levels if not isinstance(value, str)] + [rate_per_s or 0.0]
        if not all(type(each) is int and 0 <= each < 2**64 for each in whole):
            raise ValueError(f"{whole} are not four counts")
        if not all(isinstance(each, int | float) and abs(each) <= sys.float_info.max for each in numbers):
            raise ValueError(f"{numbers} are not all levels and a rate")
        if not (window_ns is None or (type(window_ns) is int and 0 < window_ns < 2**63)):
            raise ValueError(f"{window_ns!r} is no measured time")
        number, block, attempt, seed = whole
        return cls(number, block, attempt, setting, seed, stage, rate_per_s, window_ns)


def named_settings(
    name: str, settings: Sequence[Setting], kept: Mapping[Setting, Setting] | None = None
) -> list[Setting]:
    """The settings that have every level in `name`, such as `core=20,max=100`; if a setting has this id, only that one.
    If none has them, those that stand for settings with these levels. `kept`: as `Experiment.kept` returns it; None: no
    setting stands for another."""
    if found := _with_levels(name, settings):
        return found
    kept = kept or {}
    return list(dict.fromkeys(kept[setting] for setting in _with_levels(name, list(kept))))


def _with_levels(name: str, settings: Sequence[Setting]) -> list[Setting]:
    if whole := [setting for setting in settings if setting.id == name]:
        return whole
    wanted = [tuple(part.strip() for part in word.partition("=")[::2]) for word in name.split(",")]
    found = []
    for setting in settings:
        levels = {factor: format_level(level) for factor, level in setting.levels}
        if all(levels.get(factor) == level for factor, level in wanted):
            found.append(setting)
    return found
