"""Hides the secrets of an experiment. A run directory keeps them, since a run is resumed from it, but nothing shows
them.

A secret is the value of a header, of a variable or of a command's option whose name says so (`Authorization`,
`DB_PASSWORD`, `-Ddb.password=...`, `--db-password ...`), and the password in a URL. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from powerband.model.experiment import Experiment

HIDDEN = "(hidden)"
_WORDS = r"pass|pwd|secret|token|credential|authori[sz]ation|cookie|api-?_?key|access-?_?key|private-?_?key|signature"
_NAME = re.compile(_WORDS, re.IGNORECASE)
_OPTION = rf"-[\w.-]*(?:{_WORDS})[\w.-]*"
_ASKS = re.compile(_OPTION, re.IGNORECASE)
"""An option whose value is the next word."""
_IN_TEXT = re.compile(
    rf"(?<=://)(?P<user>[^/\s:@]*:)[^/\s@]+(?=@)"
    rf"|(?P<name>^[\w.=-]*(?:{_WORDS})[\w.-]*(?:=(?!=)|:)\s*|(?<=\s){_OPTION}(?:[=:]|\s+(?=[^\s-]))).+",
    re.IGNORECASE,
)
Shown = TypeVar("Shown")


def without_secrets(experiment: Experiment) -> Experiment:
    """The experiment with every secret replaced by `(hidden)`; an equal one if it has none."""
    return _hidden(experiment)


def text_without_secrets(text: str) -> str:
    """The text of a file that cannot be read as an experiment, with all that follows a secret's name hidden, to the end
    of the line."""
    return re.sub(rf"(?im)^(.*?(?:{_WORDS})[\w-]*\W).*$", rf"\1{HIDDEN}", _hidden(text))


def command_without_secrets(arguments: Sequence[str], experiment: Experiment) -> list[str]:
    """The arguments of a command line, with the secrets of the experiment that it started replaced by `(hidden)`."""
    pairs = (pair for key in ("env", "headers") for pair in pairs_of(experiment, key))
    secrets = [(name, value) for name, value in pairs if value and _NAME.search(name)]

    def shown(argument: str, hidden: str) -> str:
        values = (value for name, value in secrets if name.lower() in argument.lower())
        return reduce(lambda text, value: text.replace(value, HIDDEN), values, hidden)

    return list(map(shown, arguments, _hidden(tuple(arguments))))


def _hidden(value: Shown, key: str = "") -> Shown:
    """The value without its secrets. `key`: the name of the field that holds it."""
    found: Any = value
    if isinstance(value, BaseModel):
        fields = {name: _hidden(getattr(value, name), name) for name in type(value).model_fields}
        found = value.model_copy(update=fields)
    elif isinstance(value, dict):
        found = {name: _hidden_pair(name, item) if key == "env" else _hidden(item) for name, item in value.items()}
    elif isinstance(value, tuple) and key == "headers":
        found = tuple((name, _hidden_pair(name, item)) for name, item in value)
    elif isinstance(value, tuple):
        found = tuple(map(_hidden_word, ("", *value), value))
    elif isinstance(value, str):
        found = _IN_TEXT.sub(lambda match: f"{match['user'] or match['name']}{HIDDEN}", value)
    return cast(Shown, found)


def _hidden_word(before: Shown, value: Shown) -> Shown:
    """An item of a list, without its secrets: all of it if the item before it is an option that asks for one."""
    asked = isinstance(before, str) and isinstance(value, str) and _ASKS.fullmatch(before) and value[:1] != "-"
    return cast(Shown, HIDDEN) if asked else _hidden(value)


def _hidden_pair(name: str, value: str | None) -> str | None:
    return HIDDEN if value and _NAME.search(name) else _hidden(value)


def pairs_of(value: object, wanted: str, key: str = "") -> Iterator[tuple[str, str | None]]:
    """The names and values of all fields named `wanted`, wherever they are: `headers` or `env`."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from pairs_of(getattr(value, name), wanted, name)
    elif isinstance(value, dict | tuple) and key == wanted:
        yield from value.items() if isinstance(value, dict) else value
    elif isinstance(value, tuple):
        for item in value:
            yield from pairs_of(item, wanted)
