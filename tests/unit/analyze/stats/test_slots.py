"""The estimate of slots is checked on queues with a known number of servers: closed systems, simulated event by
event."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from powerband.analyze.stats.slots import NotExactError, Slots, UsersServed, estimate_slots

SERVICE_S = 0.02
Service = Callable[[random.Random], float]


def constant(_: random.Random) -> float:
    return SERVICE_S


def exponential(generator: random.Random) -> float:
    return generator.expovariate(1 / SERVICE_S)


def served(servers: int, users: int, seconds: float, service: Service, seed: int) -> tuple[UsersServed, float]:
    """The look at users who never pause before so many servers, which begins after 0.3 s; and the squared coefficient
    of variation of the service times."""
    generator = random.Random(seed)
    busy = min(servers, users)  # this stays so, since a user who got an answer sends the next request
    ends = [generator.random() * service(generator) for _ in range(busy)]
    heapq.heapify(ends)
    answers, times = 0, []
    while ends[0] < 0.3 + seconds:
        end, took = heapq.heappop(ends), service(generator)
        answers += end >= 0.3
        times.append(took)
        heapq.heappush(ends, end + took)
    mean = sum(times) / len(times)
    variation = sum((each - mean) ** 2 for each in times) / len(times) / mean**2
    return UsersServed(users, answers, seconds), variation


def estimated(servers: int, users: int, service: Service, seed: int) -> Slots:
    alone, variation = served(servers, 1, 1.6, service, seed)
    loaded, _ = served(servers, users, 5, service, seed + 1)
    doubled, _ = served(servers, 2 * users, 0.8, service, seed + 2)
    return estimate_slots(alone, loaded, doubled, variation)


@pytest.mark.parametrize("servers", [1, 2, 4, 16, 32])
def test_slots_of_constant_service_are_within_a_tenth(servers: int) -> None:
    tries = [estimated(servers, 64, constant, 1000 * seed) for seed in range(40)]
    assert sum(abs(each.value / servers - 1) <= 0.1 for each in tries) >= 0.9 * len(tries)
    assert all(each.limited and not each.more_is_served for each in tries)


def test_the_interval_allows_for_where_a_look_begins_however_regular_the_service() -> None:
    """In a look of 12.5 service times one user gets 12 or 13 answers."""
    loaded, doubled = (served(16, users, 5, constant, 1)[0] for users in (64, 128))
    for seed in range(20):
        alone, variation = served(16, 1, 12.5 * SERVICE_S, constant, seed)
        found = estimate_slots(alone, loaded, doubled, variation)
        assert found.low <= 16 <= found.high


@pytest.mark.parametrize("servers", [1, 4, 16, 32])
def test_the_interval_of_random_service_holds_the_slots(servers: int) -> None:
    """80 answers of one user give an exponential mean within 11 %, however long the other looks are; the interval
    allows for that."""
    tries = [estimated(servers, 64, exponential, 1000 * seed) for seed in range(200)]
    assert sum(each.low <= servers <= each.high for each in tries) >= 0.9 * len(tries)
    assert sum(each.limited for each in tries) >= 0.9 * len(tries)


def test_a_slot_for_each_user_is_no_limit() -> None:
    for seed in range(40):
        slots = estimated(1000, 32, constant, 1000 * seed)
        assert slots.more_is_served and slots.enough and not slots.limited
        assert slots.value == pytest.approx(32, rel=0.1)


def test_a_pool_just_as_large_as_the_users_is_enough_for_them_and_for_no_more() -> None:
    slots = estimated(32, 32, constant, 7)
    assert slots.enough and not slots.limited and not slots.more_is_served


def test_looks_that_contradict_each_other_name_neither_the_load_nor_a_limit() -> None:
    """The slots are few, and yet twice the users got 1.6 times as many answers: something else disturbed one of the
    looks."""
    slots = estimate_slots(UsersServed(1, 50, 1.0), UsersServed(64, 2000, 5.0), UsersServed(128, 640, 1.0), 0.0)
    assert slots.more_is_served and not slots.limited and not slots.load_is_limit


@pytest.mark.parametrize(
    ("value", "gain", "the_load"),
    [
        pytest.param(48.0, 1.0, False, id="a pool of 48, or one for each user: it does not show"),
        pytest.param(60.0, 1.0, True, id="nearly one for each user"),
        pytest.param(80.0, 1.0, True, id="one user alone is slow, as clocks are then"),
        pytest.param(48.0, 1.6, True, id="twice the users probably got more"),
    ],
)
def test_the_upper_end_of_an_interval_shows_no_slot_for_each_user(value: float, gain: float, the_load: bool) -> None:
    """64 users, and 40 answers of one of them, whose times vary."""
    slots = Slots(value, value / 1.36, value * 1.36, 64, gain, gain / 1.4, SERVICE_S * 1e9, 50 * value)
    assert not slots.limited and not slots.more_is_served
    assert slots.load_is_limit is the_load


def test_the_forecast() -> None:
    slots = estimate_slots(UsersServed(1, 50, 1.0), UsersServed(64, 1000, 5.0), UsersServed(128, 200, 1.0), 0.0)
    assert (slots.value, slots.alone_ns, slots.most_per_s, slots.gain) == pytest.approx((4.0, 20e6, 200.0, 1.0))
    assert slots.low < 4 < slots.high


@pytest.mark.parametrize(
    ("alone", "variation", "why"),
    [
        (UsersServed(1, 9, 1.6), 0.0, "9 answers in 1.6 s, and at least 10 are needed"),
        (UsersServed(1, 29, 1.6), 1.0, "29 answers in 1.6 s, whose times vary too much"),
    ],
)
def test_too_few_answers_are_refused(alone: UsersServed, variation: float, why: str) -> None:
    with pytest.raises(NotExactError, match=why):
        estimate_slots(alone, UsersServed(64, 1000, 5), UsersServed(128, 200, 1), variation)


def test_users_without_an_answer_are_refused() -> None:
    with pytest.raises(NotExactError, match="128 users got no answer"):
        estimate_slots(UsersServed(1, 50, 1), UsersServed(64, 1000, 5), UsersServed(128, 0, 1), 0.0)


def test_fewer_answers_suffice_where_they_hardly_vary() -> None:
    slots = estimate_slots(UsersServed(1, 16, 1.6), UsersServed(64, 200, 5), UsersServed(128, 32, 0.8), 0.01)
    assert slots.value == pytest.approx(4) and slots.high / slots.low < 1.2


@pytest.mark.parametrize(
    ("planted", "held_ms", "outside_ms", "most", "found"),
    [
        pytest.param(1, 1.1, 0.2, 0.4, 1.0, id="a lock, and reading and writing before it"),
        pytest.param(2, 5.0, 0.5, 0.4, 2.0, id="two loops that wait for the network"),
        pytest.param(4, 20.0, 1.0, 0.3, 4.0, id="a semaphore"),
        pytest.param(1, 1.1, 0.2, 0.1, 1.18, id="more was outside than there can have been"),
        pytest.param(4, 2.0, 0.5, 1.7, 5.0, id="two whole numbers are left"),
    ],
)
def test_what_is_done_outside_of_the_slots_is_taken_off(
    planted: int, held_ms: float, outside_ms: float, most: float, found: float
) -> None:
    """With k slots held for a time, X(n) = k / held, and one user alone has X(1) = 1 / (held + outside)."""
    alone = UsersServed(1, round(1600 / (held_ms + outside_ms)), 1.6)
    loaded, doubled = (UsersServed(users, round(2000 * planted / held_ms), 2.0) for users in (64, 128))
    slots = estimate_slots(alone, loaded, doubled, 0.0, most)
    assert slots.value == pytest.approx(found, rel=0.01)
    assert slots.low <= slots.value <= slots.high


def test_no_whole_number_is_made_of_what_is_no_limit() -> None:
    slots = estimate_slots(UsersServed(1, 50, 1.0), UsersServed(16, 3900, 5.0), UsersServed(32, 1560, 1.0), 0.0, 1.0)
    assert slots.value == pytest.approx(15.6)


@pytest.mark.parametrize(
    ("users", "per_s", "doubled_per_s", "found", "limited"),
    [
        pytest.param(64, 4000, 4000, 8.0, True, id="24 of the users are at the server"),
        pytest.param(64, 5333, 10667, 10.7, False, id="a slot for each of those who are there"),
        pytest.param(50, 4000, 4000, 8.0, False, id="just enough for those who are there"),
    ],
)
def test_a_request_on_the_network_occupies_no_slot(
    users: int, per_s: int, doubled_per_s: int, found: float, limited: bool
) -> None:
    """A request alone takes 2 ms, and 10 ms on the network."""
    alone = UsersServed(1, 100, 1.2)
    loaded, doubled = UsersServed(users, 5 * per_s, 5.0), UsersServed(2 * users, doubled_per_s, 1.0)
    slots = estimate_slots(alone, loaded, doubled, 0.0, network_ns=10e6)
    assert slots.value == pytest.approx(found, rel=0.01) and slots.low <= slots.value <= slots.high
    assert (slots.limited, slots.load_is_limit) == (limited, not limited)
    assert slots.alone_ns == pytest.approx(12e6)
