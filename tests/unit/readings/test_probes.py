"""Counters between readings: at times off the grid, with a change of slope, with repeated and missing values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from powerband.readings.probe_samples import Counters, read_probe

MS = 1_000_000
SECOND = 1_000_000_000


def tree(
    at: range, threads: int, counter: Callable[[int], int], *, read_every: int = 1, ending: Sequence[int] = ()
) -> Counters:
    """A tree sampled at `at`. Its per-thread counters are read at every `read_every`th sample, and repeated in
    between. `ending`: how many threads are left at each of the last samples; the counts of those that have ended since
    the reading before are lost."""
    samples: list[dict[str, Any]] = []
    full, seen = len(at) - len(ending), 0
    for number, now in enumerate(at):
        read = at[number - number % read_every]
        subject = {
            "name": "subject",
            "threads_now": threads,
            "cpu_user_ns": counter(now),
            "voluntary_switches": 2 * counter(read),
            "involuntary_switches": 7,
            "run_wait_ns": counter(read),
            "minor_faults": 3,
            "major_faults": 0,
            "context_switches": counter(read),
        }
        if number >= full:
            left = ending[number - full]
            before = at[full - 1 - (full - 1) % read_every]
            seen = max(seen, counter(before) + (counter(now) - counter(before)) * left // threads)
            subject |= {"threads_now": left, "voluntary_switches": 2 * seen, "run_wait_ns": seen}
        samples.append({"type": "sample", "at_ns": now, "trees": [subject], "host": {"forks": 1}})
    probe = read_probe(samples)
    assert probe is not None
    return probe.trees["subject"]


def bent(at: int) -> int:
    """A counter that grows by 1 per ns up to 2.1 s, then by 3."""
    return at + 2 * max(0, at - 2_100 * MS)


def test_counters_are_interpolated_to_edges_that_no_sample_meets() -> None:
    counters = tree(range(0, 5 * SECOND, 700 * MS), 4, bent)
    assert counters.growth("cpu_user_ns", 1_000 * MS, 3_000 * MS) == pytest.approx(bent(3_000 * MS) - bent(1_000 * MS))
    assert counters.growth("cpu_user_ns", 2_050 * MS, 2_200 * MS) == pytest.approx(50 * MS + 3 * 100 * MS)


def test_repeated_values_are_no_readings() -> None:
    """The counters are read once a second, 0.9 s out of step with the window: an even counter must have an even
    rate."""
    at = range(0, 8 * SECOND, 100 * MS)
    counters = tree(at, 65, lambda now: now, read_every=10)
    assert counters.growth("run_wait_ns", 2_900 * MS, 5_900 * MS) == pytest.approx(3 * SECOND)
    assert counters.growth("voluntary_switches", 2_900 * MS, 5_900 * MS) == pytest.approx(6 * SECOND)
    assert counters.growth("minor_faults", 2_900 * MS, 5_900 * MS) == 0
    for name in ("run_wait_ns", "context_switches"):
        slopes = counters.slopes(name)
        assert slopes[:70] == pytest.approx([1.0] * 70), "no spikes"
        assert slopes[70:] == (None,) * 9, "after the last reading nothing is known"


def test_a_counter_that_rests_at_the_end_does_not_grow_there() -> None:
    at = range(0, 8 * SECOND, 100 * MS)
    counters = tree(at, 65, lambda now: min(now, 4 * SECOND), read_every=10)
    assert counters.growth("context_switches", 0, 7_900 * MS) == pytest.approx(4 * SECOND)
    seldom = tree(range(0, 9 * SECOND, 100 * MS), 65, lambda now: now, read_every=30)
    assert seldom.slopes("context_switches")[60:] == (None,) * 29, "the next reading may be still to come"


@pytest.mark.parametrize("ending", [(0,), (40, 20, 0)])
def test_what_threads_did_before_they_ended_unread_is_not_taken_for_nothing(ending: tuple[int, ...]) -> None:
    """The last reading is at 7 s; the server is stopped after the window, before the next one was due."""
    at = range(0, 8 * SECOND, 100 * MS)
    counters = tree(at, 128, lambda now: now, read_every=10, ending=ending)
    for name, each in (("run_wait_ns", 1), ("voluntary_switches", 2)):
        assert counters.growth(name, 2_900 * MS, 7_600 * MS) == pytest.approx(each * 4_700 * MS)
        assert counters.slopes(name)[70:] == (None,) * 9
    assert counters.growth("context_switches", 2_900 * MS, 7_000 * MS) == pytest.approx(4_100 * MS)


def test_a_server_that_goes_on_with_fewer_threads_is_read_as_before() -> None:
    """88 of 128 threads end at 4 s, and the others go on."""
    at = range(0, 8 * SECOND, 100 * MS)
    counters = tree(at, 128, lambda now: now, read_every=10, ending=(40,) * 40)
    assert counters.growth("run_wait_ns", 4_500 * MS, 7_500 * MS) == pytest.approx(3 * SECOND * 40 / 128)


def test_few_threads_are_read_every_time_so_an_even_value_is_one() -> None:
    def late(now: int) -> int:
        return max(0, now - 2 * SECOND)

    counters = tree(range(0, 4 * SECOND, 100 * MS), 64, late)
    assert counters.growth("run_wait_ns", 1 * SECOND, 2 * SECOND) == 0
    assert counters.slopes("run_wait_ns")[:20] == (0.0,) * 20


def test_a_rate_stands_for_the_stretch_it_covers_and_too_little_is_nothing() -> None:
    counters = tree(range(SECOND, 3 * SECOND + 1, 100 * MS), 4, lambda now: now)
    assert counters.growth("cpu_user_ns", 0, 3 * SECOND) == pytest.approx(3 * SECOND)
    assert counters.growth("cpu_user_ns", SECOND, 5 * SECOND) == pytest.approx(4 * SECOND)
    assert counters.growth("cpu_user_ns", SECOND, 6 * SECOND) is None
    assert counters.growth("cpu_user_ns", 4 * SECOND, 5 * SECOND) is None
    assert counters.growth("nothing", 0, 3 * SECOND) is None


def test_readings_that_only_touch_the_window_say_nothing_of_it() -> None:
    counters = tree(range(SECOND, 3 * SECOND + 1, 100 * MS), 4, lambda now: now)
    assert counters.growth("cpu_user_ns", 3 * SECOND, 4 * SECOND, covered_least=0.0) is None
    assert counters.growth("cpu_user_ns", 0, SECOND, covered_least=0.0) is None


def test_only_the_threads_of_the_subject_are_kept() -> None:
    sample = {"type": "sample", "at_ns": 0, "trees": [], "host": {"forks": 1}}
    mine, others = ({"type": "threads", "at_ns": 1, "tree": tree, "pools": []} for tree in ("subject", "engine"))
    probe = read_probe([sample, others, mine])
    assert probe is not None and probe.threads == (mine,)
