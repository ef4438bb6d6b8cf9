"""Checks that no `(hidden)` of a report stands where a secret was."""

from __future__ import annotations

import re
from collections.abc import Iterator

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node
from powerband.model.secrets import HIDDEN, hides_secret

_WHOLE = re.compile(r"(?:^|\.)(?:command|build|env|headers|parameters|properties|set)\b|^--(?:env|header)\b")
"""The keys below which a secret is a whole value. Elsewhere `(hidden)` alone may be meant, as the text of a page."""


def check_hidden(root: Node) -> Iterator[FileProblem]:
    """Checks that every secret that a report hides has been written in again; yields a problem for each place, in the
    order of the tree. The names of steps are shown alone, and hide theirs in a run's own file, too."""
    value = root.value
    alone = value == HIDDEN and _WHOLE.search(root.key)
    if isinstance(value, str) and HIDDEN in value and (alone or hides_secret(value)):
        yield root.problem(
            f"a report shows {HIDDEN} here in place of a secret, and of what may have followed it: write these in"
        )
    for name, child in root.children.items():
        if name != "name":
            yield from check_hidden(child)
    for item in root.items:
        yield from check_hidden(item)
