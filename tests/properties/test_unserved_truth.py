"""Users without an answer in a window: of a slow server they are told from those whom a server never serves.

Closed loads of users who never pause are simulated, and what the load generator would report of a window is judged.
After the window users send nothing more."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from fakes.trials import SECOND, START_NS, Figures, histogram, summary
from powerband.loads.measured import unserved_share
from powerband.model.load import Load
from powerband.readings.fleet import merge_fleet

WINDOWS = 100
Request = tuple[int, float, float]  # user, start, end
Draw = Callable[[np.random.Generator], float]

SHAPES: dict[str, Draw] = {
    "fixed": lambda rng: 1.0,
    "exponential": lambda rng: rng.exponential(),
    "lognormal": lambda rng: rng.lognormal(-0.5, 1.0),
}


@dataclass(frozen=True)
class Case:
    """`places`: slots or CPUs. The window is `window` long, and begins at `begin`. All users begin within 0.01."""

    rng: np.random.Generator
    users: int
    places: int
    draw: Draw
    begin: float
    window: float

    def request(self, user: int, start: float, end: float) -> Request:
        """With times from the start of the window on."""
        return user, start - self.begin, end - self.begin


def in_line(case: Case) -> list[Request]:
    """Users wait in one line for slots, whose mean service time is 1."""
    free = [0.0] * case.places
    coming = [(float(case.rng.uniform(0, 0.01)), user) for user in range(case.users)]
    heapq.heapify(coming)
    done = []
    while coming:
        start, user = heapq.heappop(coming)
        end = max(start, heapq.heappop(free)) + case.draw(case.rng)
        heapq.heappush(free, end)
        done.append(case.request(user, start, end))
        if end < case.begin + case.window:
            heapq.heappush(coming, (end, user))
    return done


def shared(case: Case) -> list[Request]:
    """All requests share the CPUs, each at most one; a request takes 1 of CPU time on average."""
    now = work = 0.0  # work: done for each request that has been there from the start
    coming = [(case.draw(case.rng), user, now) for user in range(case.users)]
    heapq.heapify(coming)
    done = []
    while coming:
        due, user, start = heapq.heappop(coming)
        now += (due - work) * max(1.0, (len(coming) + 1) / case.places)
        work = due
        done.append(case.request(user, start, now))
        if now < case.begin + case.window:
            heapq.heappush(coming, (work + case.draw(case.rng), user, now))
    return done


def share_unserved(requests: list[Request], users: int, stuck: int, window: float) -> float:
    """The share of users that powerband calls unserved in the window that begins at 0. `stuck` more users wait all
    through it, and are answered after it, when the others have closed their connections."""
    lasted = {user for user, start, end in requests if start < 0 and end >= window}
    within = [end - start for _, start, end in requests if 0 <= end < window]
    served = {user for user, _, end in requests if 0 <= end < window}
    cohort = [end - start for _, start, end in requests if 0 <= start < window]
    counts = {"scheduled": len(cohort), "sent": len(cohort), "dropped": 0, "outcomes": {"ok": len(cohort)}}
    told = summary(Figures(users=users + stuck, window_s=window))
    told |= {
        "end_ns": START_NS + 11 * round(window * SECOND),
        "total": {**counts, "scheduled": len(requests), "outcomes": {"ok": len(requests)}},
        "cohort": counts,
        "cohort_times": {**told["cohort_times"], "response_time_ns": histogram([round(t * SECOND) for t in cohort])},
        "window": {
            **told["window"],
            "outcomes": {"ok": len(within)},
            "time_in_system_ns_sum": round(sum(within) * SECOND),
            "users_unserved": len(lasted - served) + stuck,
            "users_unserved_requests": 0,
        },
    }
    fleet = merge_fleet([told])
    assert fleet is not None
    return unserved_share(fleet, Load(users=users + stuck, duration=round(window * SECOND)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("longer", [1, 2, 4])
@pytest.mark.parametrize(
    ("serve", "users", "places"),
    [(in_line, 8, 8), (in_line, 16, 4), (in_line, 64, 32), (shared, 16, 2), (shared, 64, 2)],
)
def test_a_slow_server_leaves_nobody_out(
    serve: Callable[[Case], list[Request]], users: int, places: int, longer: float, shape: str
) -> None:
    """The mean response takes as long as the window, or longer. Users are still in step, or have long not been."""
    rng = np.random.default_rng(users + places + 100 * int(longer))
    mean = users / places
    for rounds in (1.3, 20.0):
        judged = accused = 0
        for _ in range(WINDOWS):
            begin, window = mean * rng.uniform(rounds, rounds + 1), mean / longer
            requests = serve(Case(rng, users, places, SHAPES[shape], begin, window))
            if any(0 <= end < window for _, _, end in requests):
                judged += 1
                accused += share_unserved(requests, users, 0, window) > 0
        assert judged and accused <= 0.05 * WINDOWS, rounds


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("users", "stuck"), [(8, 56), (8, 1), (63, 1)])
def test_users_who_get_nothing_are_never_taken_for_slow_ones(users: int, stuck: int, shape: str) -> None:
    """The window has 30 responses of each served user."""
    rng = np.random.default_rng(users + stuck)
    for _ in range(WINDOWS // 4):
        requests = in_line(Case(rng, users, users, SHAPES[shape], 3.0, 30.0))
        assert share_unserved(requests, users, stuck, 30.0) >= stuck / (users + stuck)
