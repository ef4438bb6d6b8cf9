"""What each kind of load is to the rest of powerband: one object that knows its part in every phase of a run.

Not here: which kind an experiment has (`loads/__init__.py`), and the parts themselves (the folder of each kind).
"""

from __future__ import annotations

from typing import ClassVar


class LoadKind:
    """A kind of load. What a method returns here holds for every kind that does not say otherwise."""

    name: ClassVar[str]
