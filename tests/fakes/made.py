"""A table of the docs that is put together from simulated cases. Each case draws from a seed of its own, so that a test
can compute one of them anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Made:
    """A table. `title`: in its marks; `page`: its file in docs/methods; `cases`: by name what simulates each and
    returns numbers; `text`: the table from the results of all cases, by name; `cheap`: the case that takes least
    time."""

    title: str
    page: str
    cases: Mapping[str, Callable[[], Any]]
    text: Callable[[Mapping[str, Any]], str]
    cheap: str

    def found(self, case: str) -> Any:
        """The result of a case, as JSON can hold it."""
        return _plain(self.cases[case]())


def _plain(found: Any) -> Any:
    if isinstance(found, Mapping):
        return {name: _plain(value) for name, value in found.items()}
    return found.item() if isinstance(found, np.generic) else found
