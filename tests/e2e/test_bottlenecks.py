"""Bottlenecks planted in the reference subject are named rightly, each in a real trial, and no healthy trial is
accused. A case that other programs or the hypervisor disturb, by the kernel's counters, is tried again up to a limit,
whatever was named, and is then left out. If too many cases are left out, the test has no result."""

from __future__ import annotations

import pytest

from fakes.planted import CASES, HEALTHY
from fakes.planted_held_out import SAMPLE
from fakes.undisturbed import undisturbed
from powerband.model.bottlenecks import BottleneckName

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

SPOILT_MOST = 3  # cases that other programs on the machine may disturb
BY_CHANCE = "generator: late"  # the kernel may wake a mostly idle engine on time in spite of other programs
SAMPLE_RIGHT_LEAST = 0.75  # shows a broken rule; the docs have the share on unseen cases
ONE_OF_EACH = {case.expected: case for case in CASES if case.name != BY_CHANCE}
# The names of the sample below, of the reference server's cases in test_advice.py and test_slots.py, and of real
# servers in test_real_servers.py and test_dotnet_servers.py.
ELSEWHERE = {
    *(case.expected for case in SAMPLE),
    BottleneckName.ACCEPT_BACKLOG,
    BottleneckName.DOWNSTREAM,
    BottleneckName.EVENT_LOOP_BLOCKED,
    BottleneckName.GARBAGE_COLLECTION,
}
# One healthy case of each kind that looks like a limit.
HEALTHY_SOME = (
    "CPU at 40 %",
    "bounded at 40 %",
    "lock at 30 %",
    "downstream at a third",
    "users that pause",
    "event loop, all users",
)


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param(False, id="named here alone", marks=pytest.mark.long),
        pytest.param(True, id="named elsewhere, too", marks=pytest.mark.table),
    ],
)
def test_planted_bottlenecks_are_named(elsewhere: bool) -> None:
    """The cases are one of each name. `make bottlenecks` tries all cases and writes the table in the docs."""
    cases = [case for name, case in ONE_OF_EACH.items() if (name in ELSEWHERE) is elsewhere]
    fair = undisturbed(cases, len(cases) - SPOILT_MOST)
    wrong = [str(tried) for tried in fair if not tried.right]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "some",
    [
        pytest.param(True, id="one of each kind", marks=pytest.mark.long),
        pytest.param(False, id="the others", marks=pytest.mark.table),
    ],
)
def test_healthy_trials_are_not_accused(some: bool) -> None:
    cases = [case for case in HEALTHY if (case.name in HEALTHY_SOME) is some]
    assert len(cases) == (len(HEALTHY_SOME) if some else len(HEALTHY) - len(HEALTHY_SOME))
    accused = [str(tried) for tried in undisturbed(cases, len(cases) - SPOILT_MOST) if not tried.right]
    assert not accused, "\n".join(accused)


def test_a_sample_of_the_held_out_is_named() -> None:
    fair = undisturbed(SAMPLE, len(SAMPLE) // 2)
    wrong = [str(tried) for tried in fair if not tried.right]
    assert len(fair) - len(wrong) >= SAMPLE_RIGHT_LEAST * len(fair), "\n".join(wrong)
