"""Resolves JMeter's `${name}` and `${__P(name,default)}` in the texts of a plan. Pure.

Only values that are equal for every user and request are filled in: user variables, rows of data, and properties. All
other functions are refused. Escapes (`\\$`, `\\,`) follow JMeter: they have a meaning only in a text with a `${...}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_ESCAPABLE = "$,\\"
DEPTH_MAX = 10  # arbitrary: variables may name each other in a circle
LENGTH_MAX = 1 << 19  # characters of a text with `${`, before and after it is filled in: arbitrary
_EACH_TIME = {
    "Random", "RandomString", "RandomDate", "RandomFromMultipleVars", "UUID", "time", "timeShift", "counter",
    "threadNum",
    "threadGroupName", "iterationNum", "samplerName", "log", "logn", "StringFromFile", "CSVRead", "XPath",
}  # fmt: skip


class Unresolved(Exception):  # noqa: N818  (no error of the program: the plan holds what cannot be converted)
    """A text of the plan cannot be resolved before the load. `why`: the reason. `instead`: what the user can do."""

    def __init__(self, why: str, instead: str) -> None:
        super().__init__(why)
        self.why = why
        self.instead = instead


@dataclass(frozen=True)
class FunctionCall:
    """A `${...}`: the `name` of a variable (`arguments` None), or of a function with its unevaluated arguments."""

    name: str
    arguments: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Values:
    """Values of names: `variables` of the plan (overridden by rows of data), and `properties` given with -J.

    `defaults` is filled while texts are resolved: the properties that were not given, with the default used for
    each."""

    variables: Mapping[str, str]
    properties: Mapping[str, str]
    defaults: dict[str, str] = field(default_factory=dict)

    def over(self, more: Mapping[str, str]) -> Values:
        """These values, with variables that are added or replaced; both share `defaults`."""
        return Values({**self.variables, **more}, self.properties, self.defaults)

    def resolve(self, text: str) -> str:
        """The text with everything filled in. Raises Unresolved."""
        if "${" not in text:
            return text
        if len(text) > LENGTH_MAX:
            raise _too_long()
        parts = parse(text)
        if all(isinstance(part, str) for part in parts):
            return text
        return self._joined(parts, 0)

    def _joined(self, parts: Sequence[str | FunctionCall], depth: int) -> str:
        """Returns the text of the parts. `depth`: how many calls are around them."""
        if depth > DEPTH_MAX:
            raise Unresolved(f"its ${{...}} are nested more than {DEPTH_MAX} deep", "write the value itself")
        length, found = 0, []
        for part in parts:
            found.append(part if isinstance(part, str) else self._value(part, depth))
            length += len(found[-1])
            if length > LENGTH_MAX:
                raise _too_long()
        return "".join(found)

    def _value(self, call: FunctionCall, depth: int) -> str:
        if call.arguments is None and not call.name.startswith("__"):
            if call.name not in self.variables:
                raise Unresolved(
                    f"${{{call.name}}} stands for nothing: no user variable and no data of this plan has that name, so "
                    "a script or an answer would have to set it",
                    "define it as a user variable, or write the value itself",
                )
            return self.variables[call.name]
        return self._property(call.name.strip().removeprefix("__"), call.arguments or (), depth)

    def _property(self, function: str, arguments: tuple[str, ...], depth: int) -> str:
        if function not in ("P", "property") or not arguments:
            raise _function_refused(function)
        given = [
            self._joined(parse(argument), depth + 1) for argument in arguments
        ]  # escapes have a meaning in all of them
        name = given[0]
        if function == "P":
            default = given[1] if len(given) > 1 else "1"  # JMeter's default if none is written
        else:
            if len(given) > 1 and given[1]:
                raise Unresolved(
                    f"${{__property}} also sets the variable {given[1]}",
                    f"write ${{__P({name})}}, and where the variable is used the same again",
                )
            default = given[2] if len(given) > 2 else name
        if given_value := self.properties.get(name):  # JMeter takes an empty one for one that is not given
            return given_value
        self.defaults[name] = default
        return default


def _too_long() -> Unresolved:
    return Unresolved(f"a text with ${{...}} that has over {LENGTH_MAX:,} characters is not filled in", "shorten it")


def _function_refused(function: str) -> Unresolved:
    if function in _EACH_TIME:
        return Unresolved(
            f"${{__{function}}} gives another value each time, and powerband sends a step the same each time",
            "write a fixed value, or list values in a CSV file that a CSV Data Set reads",
        )
    return Unresolved(
        f"the function ${{__{function}}} is not evaluated",
        "write the value itself, or a property, ${__P(name,default)}, that -J gives",
    )


def parse(text: str) -> list[str | FunctionCall]:
    """The texts and calls of a text, in order. Raises Unresolved for a `${` without an end."""
    parts: list[str | FunctionCall] = []
    buffer: list[str] = []
    at = 0
    after_dollar = False
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\" and at < len(text):
            buffer.append(text[at] if text[at] in _ESCAPABLE else character + text[at])
            at += 1
            after_dollar = False
        elif character == "{" and after_dollar:
            buffer.pop()
            if buffer:
                parts.append("".join(buffer))
                buffer.clear()
            call, at = _call(text, at)
            parts.append(call)
            after_dollar = False
        else:
            buffer.append(character)
            after_dollar = character == "$"
    if buffer:
        parts.append("".join(buffer))
    return parts


def _call(text: str, at: int) -> tuple[FunctionCall, int]:
    """The call after `${`, and the position of its end."""
    start = at
    name: list[str] = []
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\" and at < len(text):
            name.append(text[at])
            at += 1
        elif character == "(" and "".join(name).strip().startswith("__"):
            arguments, at = _arguments(text, at, start)
            while at < len(text) and text[at].isspace():
                at += 1
            if at >= len(text) or text[at] != "}":
                raise _endless(text, start)
            return FunctionCall("".join(name).strip(), arguments), at + 1
        elif character == "}":
            return FunctionCall("".join(name)), at
        else:
            name.append(character)
    raise _endless(text, start)


def _arguments(text: str, at: int, start: int) -> tuple[tuple[str, ...], int]:
    """The arguments as written, with escapes and nested calls untouched, and the position after the closing bracket."""
    found: list[str] = []
    buffer: list[str] = []
    calls = brackets = 0
    previous = ""
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\" and at < len(text):
            buffer.append(character + text[at])
            at += 1
            previous = ""
            continue
        if (calls == 0 and character == ",") or (calls == brackets == 0 and character == ")"):
            found.append("".join(buffer))
            buffer.clear()
            if character == ")":
                return (() if found == [""] else tuple(found)), at
            previous = ""
            continue
        if character == "{" and previous == "$":
            calls += 1
        elif character == "}" and calls:
            calls -= 1
        elif calls == 0 and character in "()":
            brackets += 1 if character == "(" else -1
        buffer.append(character)
        previous = character
    raise _endless(text, start)


def _endless(text: str, start: int) -> Unresolved:
    shown = text[start - 2 : start + 30]
    return Unresolved(f"{shown!r} has no end", "write the closing } (and the bracket before it)")
