"""Slots: how many requests a server serves at once, from the rates that different numbers of users got.

In: answers, seconds and the spread of the service time. Out: `Slots`. Little's law (J. D. C. Little 1961, "A proof for
the queuing formula L = lambda W") with one user who never pauses gives X(1) = 1 / S, S the time that one request takes;
with n users X(n) = k / S, where k <= n are served at once (utilisation law of Denning and Buzen 1978). So
k = X(n) / X(1), and no distribution is assumed. More users show whether k is a limit: where it is, X(2n) = X(n).
Pure. Not here: when it is measured (`trials/instruments/slot_looks.py`). Method and doubts: docs/methods/slots.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

Z_95 = 1.96  # of the normal distribution, two-sided
ANSWERS_LEAST = 10  # of one user: fewer do not even tell how much its service time varies
# Standard error of the logarithm of one user's rate: that of thirty answers of a Poisson process. A service time that
# hardly varies gets as far with fewer.
ERROR_MOST = 1 / math.sqrt(30)
# Twice the users get more where the gain is above this, noise apart. Servers at their limit got 0.79 to 1.12 times as
# much, those that were not about 2.
MORE_GAIN = 1.15
MOST_SHARE = 0.5  # most users: the opposite of few, where the looks contradict each other
LIMITED_GAIN = 1.5  # halfway to what no limit at all would give
ONE_AT_A_TIME = 1.5  # fewer slots are one, and work outside of it
WHOLE_BELOW = 10.0  # slots: what a service time that depends on the load is wrong by, a tenth, is less than one of them
ALL_SHARE = 0.9  # slots for so many of the users: as good as one for each of them


@dataclass(frozen=True)
class UsersServed:
    """`users` users who never pause got so many `answers` in so many `seconds`."""

    users: int
    answers: int
    seconds: float

    @property
    def rate_per_s(self) -> float:
        return self.answers / self.seconds


@dataclass(frozen=True)
class Slots:
    """`value`: requests served at once, a whole number where the looks leave one alone; `low` to `high`: the 95 %
    interval of the rates' ratio, down to that number. `users`: who asked for them; `gain`: the rate of twice the users
    over theirs, `gain_low` the lower end of its 95 % interval. `alone_ns`: how long a request of one user alone takes,
    mean; `most_per_s`: the rate of all users."""

    value: float
    low: float
    high: float
    users: int
    gain: float
    gain_low: float
    alone_ns: float
    most_per_s: float

    @property
    def more_is_served(self) -> bool:
        """Twice the users got clearly more."""
        return self.gain_low > MORE_GAIN

    @property
    def limited(self) -> bool:
        """There are slots for only a part of the users, so that the others wait; and twice as many got not clearly
        more, and nothing like twice as much."""
        return not self.more_is_served and self.gain < LIMITED_GAIN and self.high < ALL_SHARE * self.users

    @property
    def one_at_a_time(self) -> bool:
        return self.limited and self.value < ONE_AT_A_TIME

    @property
    def enough(self) -> bool:
        """Each user has a slot: none of them waits for another."""
        return self.high >= ALL_SHARE * self.users

    @property
    def load_is_limit(self) -> bool:
        """More users would get more, and most of those there are have a slot. Where few have one and twice as many got
        clearly more all the same, the looks contradict each other."""
        return self.enough or (self.more_is_served and self.high >= MOST_SHARE * self.users)


class NotExactError(Exception):
    """The looks do not suffice; the message says why."""


def estimate_slots(
    alone: UsersServed, loaded: UsersServed, doubled: UsersServed, variation: float, outside: float = 0.0
) -> Slots:
    """`variation`: the squared coefficient of variation of one user's service times; `outside`: requests that are at
    most, on average, read, written or handed over while they have no slot.

    The answers of one slot are a renewal process, whose count has the variance count x variation (Cox 1962, "Renewal
    Theory", section 4.5) and, however regular it is, that of where the look begins, 1/12 at each end. The logarithm of
    a ratio of counts has the sum of their relative variances (delta method). Raises NotExactError."""
    if alone.answers < ANSWERS_LEAST:
        raise NotExactError(
            f"one user alone got {alone.answers} answers in {alone.seconds:.1f} s, and {ANSWERS_LEAST} are the least"
        )
    error = math.sqrt(_relative_variance(alone, variation))
    if error > ERROR_MOST:
        raise NotExactError(
            f"one user alone got {alone.answers} answers in {alone.seconds:.1f} s, whose times vary too much for a rate"
        )
    if loaded.answers < 1 or doubled.answers < 1:
        raise NotExactError(f"{(doubled if loaded.answers else loaded).users} users got no answer")
    value = loaded.rate_per_s / alone.rate_per_s
    spread = math.exp(Z_95 * math.hypot(error, math.sqrt(_relative_variance(loaded, variation))))
    gain = doubled.rate_per_s / loaded.rate_per_s
    gain_variance = _relative_variance(loaded, variation) + _relative_variance(doubled, variation)
    slots = Slots(
        value=value,
        low=value / spread,
        high=value * spread,
        users=loaded.users,
        gain=gain,
        gain_low=gain * math.exp(-Z_95 * math.sqrt(gain_variance)),
        alone_ns=1e9 / alone.rate_per_s,
        most_per_s=loaded.rate_per_s,
    )
    return _whole(slots, outside) if slots.limited else slots


def _whole(slots: Slots, outside: float) -> Slots:
    """One user's S holds what a request does outside of its slot: k = X(n) S is too high by the requests that are
    there, by Little's law, 0 to `outside` of them. The whole number that this leaves, if it leaves a single one."""
    first = math.ceil(max(slots.low - outside, 0.5))
    if slots.value >= WHOLE_BELOW or not first <= slots.high < first + 1:
        return slots
    return replace(slots, value=float(first), low=min(slots.low, float(first)))


def _relative_variance(look: UsersServed, variation: float) -> float:
    return (max(variation, 0.0) * look.answers + 1 / 6) / look.answers**2
