"""Planted cases that are tried until the machine does not disturb them, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from fakes.confusion import Tried, try_all
from fakes.disturbance import ATTEMPTS
from fakes.needs import without
from fakes.planted import Case

HOPELESS = 2  # cases that are disturbed in each attempt, before the first one that is not


def undisturbed(cases: Sequence[Case], least: int) -> list[Tried]:
    """The trials of the cases that nothing disturbed: a disturbed trial does not show the planted bottleneck. If fewer
    than `least` can be had, the test is skipped or fails."""
    fair: list[Tried] = []
    spoilt = 0
    for tried in try_all(cases, ATTEMPTS):
        spoilt += tried.disturbed
        if spoilt > len(cases) - least or (spoilt >= HOPELESS and not fair):
            others = f"other programs or the hypervisor disturbed all {ATTEMPTS} trials of"
            without(f"{others} {spoilt} of {len(fair) + spoilt} cases: run this on a quiet machine")
        if not tried.disturbed:
            fair.append(tried)
    return fair
