"""No load: the program drives itself, and a counter says how much it does."""

from __future__ import annotations

from powerband.loads.kind import LoadKind


class SelfDriven(LoadKind):
    """No load: the program drives itself, and a counter says how much it does."""

    name = "counted"
