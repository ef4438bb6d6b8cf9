"""From an experiment's factors to settings, and the trials of a plan. Values only: nothing is run or read here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Level = bool | int | float | str


@dataclass(frozen=True)
class Setting:
    """One level of every factor, in the order of the experiment's factors."""

    levels: tuple[tuple[str, Level], ...]

    @property
    def id(self) -> str:
        """`threads=4,queue=100`: unique within an experiment; `default` where there are no factors."""
        return ",".join(f"{name}={format_level(level)}" for name, level in self.levels) or "default"

    def as_dict(self) -> dict[str, Level]:
        return dict(self.levels)


def format_level(level: Level) -> str:
    """As a person would type it: true/false in lower case, floats without a trailing .0 where they are whole."""
    if isinstance(level, bool):
        return "true" if level else "false"
    if isinstance(level, float) and level.is_integer():
        return str(int(level))
    return str(level)


def grid(factors: Mapping[str, tuple[Level, ...]]) -> list[Setting]:
    """Every combination of levels; the last factor varies fastest."""
    names = list(factors)
    return [Setting(tuple(zip(names, levels, strict=True))) for levels in itertools.product(*factors.values())]


@dataclass(frozen=True)
class TrialSpec:
    """One fresh start of the subject that is to be measured.

    `number` counts trials of the run from 1; `block` from 0; `attempt` from 1 (the repeat of an invalid trial has 2).
    `seed` decides every random choice of the load, and is the same for all settings of a block.
    """

    number: int
    block: int
    attempt: int
    setting: Setting
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "block": self.block,
            "attempt": self.attempt,
            "setting": self.setting.as_dict(),
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrialSpec:
        setting = Setting(tuple(data["setting"].items()))
        return cls(data["number"], data["block"], data["attempt"], setting, data["seed"])
