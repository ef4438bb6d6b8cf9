"""The findings of a conversion: refusals with place, reason and remedy, and differences from JMeter. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from powerband.base.errors import UsageError
from powerband.base.units import plural
from powerband.jmx.tree import Element
from powerband.jmx.values import Unresolved, Values

REFUSALS_SHOWN = 100  # arbitrary: more than anybody mends at once; a plan may have a refusal for each element
WHY_MAX = 400  # characters of a reason, which may hold a value of the plan: arbitrary
Number = TypeVar("Number", int, float)

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Refusal:
    """An element that cannot be converted. `line`: where it stands in the plan's file. `path`: its name after those
    around it. `what`: its kind. `why`: the reason. `instead`: what the user can do."""

    line: int
    path: str
    what: str
    why: str
    instead: str


class ImportRefused(UsageError):  # noqa: N818  (named after what happened)
    """The plan contains elements that powerband cannot convert. The text lists all of them."""

    def __init__(self, file: str, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(sorted(refusals, key=lambda refusal: refusal.line))
        lines = [f"{file} is not converted, and nothing is written: {plural(len(self.refusals), 'obstacle')}"]
        for refusal in self.refusals[:REFUSALS_SHOWN]:
            lines += [
                f"  {file}:{refusal.line}: {refusal.path} ({refusal.what})",
                f"      {refusal.why}",
                f"      instead: {refusal.instead}",
            ]
        if len(self.refusals) > REFUSALS_SHOWN:
            lines.append(f"  ... and {len(self.refusals) - REFUSALS_SHOWN:,} more")
        lines.append(
            "  An element may be left out, with all below it, where you name it: --partial 'NAME', or its whole path. "
            f"Or run the plan in JMeter itself: load: {{jmeter: {file}}}"
        )
        super().__init__("\n".join(lines))


@dataclass
class Findings:
    """The findings so far, collected by the converters. `refusals`: in order, each once. `notes`: differences from
    JMeter, each once, with the names of all elements that it concerns (the dicts serve as ordered sets)."""

    refusals: dict[Refusal, None] = field(default_factory=dict)
    notes: dict[str, dict[str, None]] = field(default_factory=dict)

    def refuse(self, element: Element, why: str, instead: str) -> None:
        """Adds a refusal; long texts, which may hold values of the plan, are cut."""
        refusal = Refusal(element.line, element.full_path, element.kind, _cut(why), _cut(instead))
        self.refusals[refusal] = None

    def note(self, text: str, element: Element | None = None) -> None:
        """Adds a difference from JMeter. `element`: the one that it concerns; None: the whole plan."""
        names = self.notes.setdefault(text, {})
        if element is not None:
            names[element.name] = None

    def text(self, element: Element, values: Values, text: str, what: str) -> str | None:
        """The text with all variables filled in; None, and a refusal, if that is impossible."""
        try:
            return values.resolve(text)
        except Unresolved as error:
            self.refuse(element, f"{what}: {error.why}", error.instead)
            return None

    def number(
        self, element: Element, values: Values, name: str, what: str, *, kind: Callable[[str], Number], default: Number
    ) -> Number | None:
        """A property that is a number not below 0; None, and a refusal, if it is not."""
        written = element.text_of(name)
        text = self.text(element, values, written, what)
        if text is None:
            return None
        if not text.strip():
            return default
        try:
            number: Number | None = kind(text.strip())
        except ValueError:
            number = None
        if number is None or not 0 <= number < 1e15:
            self.refuse(element, f"{what} is {text!r}, which is no number that can be used here", "write a number")
            return None
        return number

    def flag(self, element: Element, values: Values, name: str, what: str, default: bool = False) -> bool:
        """A switch; a value other than true or false counts as false, as in JMeter."""
        found = element.find(name)
        if found is None:
            return default
        return (self.text(element, values, found.text, what) or "").strip().lower() == "true"


def _cut(text: str) -> str:
    return text if len(text) <= WHY_MAX else f"{text[:WHY_MAX]}..."


def whole(text: str) -> int:
    """A whole number, read as Java reads it. Raises ValueError."""
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def decimal(text: str) -> float:
    """A decimal number, read as Java reads it. Raises ValueError."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no number")
    return float(text)
