"""The looks with other numbers of users after a trial's load, merged and decoded once, however many stretches of the
trial are held against them.

In: `slots` of a trial's record. Out: fleets. Not here: what follows from them (`analyze/trial/tried_slots.py`).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from powerband.readings.fleet import MergedFleet, merge_fleet


class RecordedLooks:
    """`recorded`: the summaries of each look by its name, or why there are none."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.recorded = recorded

    @cached_property
    def alone(self) -> MergedFleet | None:
        """One user alone; None: no answer came in time."""
        return merge_fleet(self.recorded["alone"])

    @cached_property
    def doubled(self) -> MergedFleet | None:
        """Twice the users; None as above."""
        return merge_fleet(self.recorded["doubled"])

    @cached_property
    def prompt(self) -> MergedFleet | None:
        """One user who acknowledges at once; None: nobody tried."""
        return merge_fleet(self.recorded.get("prompt", ()))
