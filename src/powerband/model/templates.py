"""Fills in texts that contain `{name}`. Pure.

`{{` and the `}}` that closes it are literal braces, and any other brace that does not enclose a name is unchanged, so
JSON needs no escapes. If only closing braces were doubled, so that each `}}` is one brace too many, it is one brace.
The callers define the names (`subjects.py`, `experiment.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from powerband.base.errors import ExperimentError, UsageError, did_you_mean

_FROM_ENVIRONMENT = re.compile(r"\{env:([A-Za-z_]\w*)\}")
_TEMPLATE = re.compile(r"\{\{|\}\}|\{([^\W\d][\w.-]*)\}")


def fill(template: str, values: Mapping[str, str], key: str) -> str:
    """The template with its placeholders replaced. Raises ExperimentError naming `key`."""
    doubled = sum(match[0] == "}}" for match in _TEMPLATE.finditer(template))
    too_many = template.count("}") - template.count("{")
    escapes_open = doubled if too_many == doubled and "{{" not in template else 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal escapes_open
        if match[1] is None:
            if match[0] == "}}" and not escapes_open:
                return match[0]
            escapes_open += 1 if match[0] == "{{" else -1
            return match[0][0]
        if match[1] not in values:
            raise ExperimentError(f"{{{match[1]}}} stands for nothing; {did_you_mean(match[1], values)}", key=key)
        return values[match[1]]

    return _TEMPLATE.sub(replacement, template)


def placeholders(templates: Iterable[str]) -> set[str]:
    """The names that occur in templates."""
    return {match[1] for text in templates for match in _TEMPLATE.finditer(text) if match[1]}


def variables_named(headers: Iterable[tuple[str, str | None]]) -> set[str]:
    """The variables of the environment that headers take values from."""
    return {name for _, text in headers for name in _FROM_ENVIRONMENT.findall(text or "")}


def headers_sent(headers: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The headers with `{env:NAME}` replaced by that variable, so that no file and no command line holds a secret.
    Raises UsageError if the variable is not set, or has a value that a header cannot have."""

    def replacement(match: re.Match[str]) -> str:
        value = environment.get(match[1])
        if value is None:
            raise UsageError(f"{match[1]} is not set, and a header takes its value from it: export it first")
        if any((character < " " and character != "\t") or character == "\x7f" for character in value):
            raise UsageError(f"{match[1]} cannot be the value of a header: it holds a control character")
        return value

    return tuple((name, _FROM_ENVIRONMENT.sub(replacement, text)) for name, text in headers)
