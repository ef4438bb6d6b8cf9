"""Hides the secrets of an experiment. A run directory keeps them, since a run is resumed from it, but nothing shows
them.

A secret is the value of a header, of a variable, of a parameter, of a command's option, or of a text in JSON whose name
says so (`Authorization`, `DB_PASSWORD`, `-Ddb.password=...`, `--db-password ...`), and the password in a URL. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from powerband.model.experiment import Experiment, Parameter

HIDDEN = "(hidden)"
_PASSWORD = r"pass(?:word|wd|phrase)|pwd|secret"
_OTHERS = r"pass(?![a-z])|token|credential|authori[sz]ation|cookie|api-?_?key|access-?_?key|private-?_?key|signature"
_LAST = r"(?:(?<![a-z])(?:key|auth)|(?-i:(?<=[a-z\d])(?:Key|Auth)))(?![\w.-])"
"""Words that ask for a secret if a name ends with them: `APP_KEY`, `AccountKey`, not `key_count` or `KEYSPACE`."""
_WORDS = rf"{_PASSWORD}|{_OTHERS}|{_LAST}"
_NAME = re.compile(_WORDS, re.IGNORECASE)
_OPTION = rf"-[\w.-]*(?:{_WORDS})[\w.-]*"
_ASKS = re.compile(_OPTION, re.IGNORECASE)
"""An option whose value is the next word."""
_OTHER_OPTION = r"-\w(?!\S)|--\w"
"""The beginning of the next word if that is an option itself."""
_NUMBER = r"-?\d+(?:\.\d+)?"
_PLAIN = rf"(?:{_NUMBER}|on|off|true|false)"
_ORDINARY = re.compile(rf"\{{[\w.-]+\}}|{_NUMBER}\.\.{_NUMBER}|{_PLAIN}(?:,{_PLAIN})*", re.IGNORECASE)
"""A value that is no secret, such as a factor's, its levels or a number of tokens."""
_BY_NAME = ("env", "properties", "set")
"""Fields that are mappings of names to values."""
_IN_TEXT = re.compile(
    rf"(?<=://)(?P<user>[^/\s:@]*:)[^/\s@]+(?=@)"
    rf"|(?P<json>\"[\w.-]*(?:{_WORDS})[\w.-]*\"\s*:\s*\")(?P<quoted>(?:[^\"\\]|\\.)+)"
    rf"|(?P<name>^[\w.=-]*(?:{_WORDS})[\w.-]*(?:=(?!=)|:)\s*"
    rf"|(?<=[\s;?&|('\"])\w*(?:{_WORDS})\w*=(?=[^\s=])"  # a variable in a shell's command, or in a query
    rf"|(?<!\S){_OPTION}(?:[=:]|\s+(?=\S)(?!{_OTHER_OPTION})))(?P<value>.+)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(?:(?:apikey|basic|bearer|token)\s+|[\w.-]+=)?\{env:[A-Za-z_]\w*\}", re.IGNORECASE)
"""A value that names a variable of the environment, with what stands before it in a header: it is no secret itself."""
_STAND_IN = "?hidden?"
Shown = TypeVar("Shown")


def text_without_secrets(text: str) -> str:
    """The text of a file that cannot be read as an experiment, with all that follows a secret's name hidden, to the end
    of the line."""
    return re.sub(rf"(?im)^(.*?(?:{_WORDS})[\w-]*\W).*$", rf"\1{HIDDEN}", without_secrets(text))


def hides_secret(text: str) -> bool:
    """True if `(hidden)` stands in the text where `without_secrets` would put it."""
    secret = text.replace(HIDDEN, _STAND_IN)
    return without_secrets(secret).count(_STAND_IN) < secret.count(_STAND_IN)


def command_without_secrets(arguments: Sequence[str], experiment: Experiment) -> list[str]:
    """The arguments of a command line, with the secrets of the experiment that it started replaced by `(hidden)`."""
    pairs = [pair for key in (*_BY_NAME, "headers") for pair in pairs_of(experiment, key)]
    pairs += _text_defaults(experiment.subject.parameters).items()
    texts = [(name, value) for name, value in pairs if value and isinstance(value, str)]
    secrets = [(name, value) for name, value in texts if _is_secret(name, value)]

    def shown(argument: str) -> str:
        values = (value for name, value in secrets if name.lower() in argument.lower())
        return reduce(lambda text, value: text.replace(value, HIDDEN), values, argument)

    return list(without_secrets(tuple(map(shown, arguments))))


def without_secrets(value: Shown, key: str = "") -> Shown:
    """An experiment, a part of it or a text with every secret replaced by `(hidden)`; an equal one if it has none.
    `key`: the name of the field that holds it."""
    found: Any = value
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        hidden = {name: without_secrets(item, name) for name, item in fields.items()}
        found = value.model_copy(update={name: hidden[name] for name in fields if hidden[name] != fields[name]})
    elif isinstance(value, dict):
        named = key in _BY_NAME
        found = {
            name: _hidden_pair(name, item) if named and isinstance(item, str) else without_secrets(item)
            for name, item in value.items()
        }
        for name, default in _text_defaults(found).items():
            found[name] = found[name].model_copy(update={"default": _hidden_pair(name, default)})
    elif isinstance(value, tuple) and key == "headers":
        found = tuple((name, _hidden_pair(name, item)) for name, item in value)
    elif isinstance(value, tuple):
        found = tuple(map(_hidden_word, ("", *value), value))
    elif isinstance(value, str):
        found = _IN_TEXT.sub(_hidden_match, value)
    return cast(Shown, found)


def _hidden_match(match: re.Match[str]) -> str:
    if match["json"]:
        return f"{match['json']}{HIDDEN}" if _is_secret(match["json"], match["quoted"]) else match[0]
    name, value = match["user"] or match["name"], match["value"] or ""
    (first,) = [value] if _REFERENCE.fullmatch(value) else re.findall(r"^\S*", value)
    if match["user"] or _is_secret(name, first):
        return f"{name}{HIDDEN}"
    return f"{name}{first}{without_secrets(value[len(first) :])}"


def _is_secret(name: str, value: str) -> bool:
    """True if the name asks for a secret and the value may be one. A password may consist of digits."""
    digits = value.isdigit() and re.search(_PASSWORD, name, re.IGNORECASE)
    harmless = _ORDINARY.fullmatch(value) or _REFERENCE.fullmatch(value)
    return bool(_NAME.search(name) and (digits or not harmless))


def _hidden_word(before: Shown, value: Shown) -> Shown:
    """An item of a list, without its secrets: all of it if the item before it is an option that asks for one."""
    if isinstance(before, str) and isinstance(value, str) and _ASKS.fullmatch(before):
        asked = _is_secret(before, value) and not re.match(_OTHER_OPTION, value)
        return cast(Shown, HIDDEN) if asked else without_secrets(value)
    return without_secrets(value)


def _text_defaults(items: Mapping[str, object]) -> dict[str, str]:
    """The default of each parameter among the items whose type is text. Others are numbers, times or known choices."""
    parameters = {name: each for name, each in items.items() if isinstance(each, Parameter) and each.type == "string"}
    return {name: each.default for name, each in parameters.items() if isinstance(each.default, str)}


def _hidden_pair(name: str, value: str) -> str:
    return HIDDEN if value and _is_secret(name, value) else without_secrets(value)


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
