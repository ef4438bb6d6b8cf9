"""Texts with `{name}` in them, and what stands for each name. Pure.

`{{` and `}}` are the braces themselves, and a brace that does not enclose a name stays as it is, so JSON can be written
plainly. What the names are is decided by those who call (`subjects.py`, `experiment.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from powerband.base.errors import ExperimentError, did_you_mean

_TEMPLATE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}")


def fill(template: str, values: Mapping[str, str], key: str) -> str:
    """The template with its placeholders replaced. Raises ExperimentError naming `key`."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        if match[1] not in values:
            raise ExperimentError(f"{{{match[1]}}} stands for nothing; {did_you_mean(match[1], values)}", key=key)
        return values[match[1]]

    return _TEMPLATE.sub(replacement, template)


def placeholders(templates: Iterable[str]) -> set[str]:
    """The names that occur in templates."""
    return {match[1] for text in templates for match in _TEMPLATE.finditer(text) if match[1]}
