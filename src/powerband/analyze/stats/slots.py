"""Estimates a server's slots, i.e. how many requests it serves at once, from the rates of several numbers of users.

In: answers, seconds and the spread of the service time. Out: `Slots`. For one user who never pauses, Little's law
(J. D. C. Little 1961, "A proof for the queuing formula L = lambda W") gives X(1) = 1 / S, where S is the time of one
request. For n users, X(n) = k / S, where k <= n are served at once (utilisation law of Denning and Buzen 1978). So
k = X(n) / X(1), and no distribution is assumed. Twice the users show whether k is a limit: if it is, X(2n) = X(n).
Pure. Not here: when it is measured (`trials/instruments/slot_looks.py`). Method and doubts: docs/methods/slots.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

Z_95 = 1.96  # quantile of the normal distribution, two-sided
ANSWERS_LEAST = 10  # of one user: fewer do not even show how much its service time varies
# The largest standard error of the logarithm of one user's rate: that of thirty answers of a Poisson process. If the
# service time hardly varies, fewer answers reach it.
ERROR_MOST = 1 / math.sqrt(30)
# Twice the users are served more if the gain, less its noise, is above this. Servers at their limit served twice the
# users 0.79 to 1.12 times as much, others about twice as much.
MORE_GAIN = 1.15
MOST_SHARE = 0.5  # of the users have a slot: if fewer do, a clear gain contradicts the number of slots
LIMITED_GAIN = 1.5  # halfway to what no limit at all would give
ONE_AT_A_TIME = 1.5  # fewer slots are one, and work outside of it
WHOLE_BELOW = 10.0  # slots: the error due to a service time that depends on the load, a tenth, is then less than one
ALL_SHARE = 0.9  # of the users have a slot: as good as one for each of them


@dataclass(frozen=True)
class UsersServed:
    """The `answers` that `users` users who never pause got in `seconds`."""

    users: int
    answers: int
    seconds: float

    @property
    def rate_per_s(self) -> float:
        """Answers per second, of all users together."""
        return self.answers / self.seconds


@dataclass(frozen=True)
class Slots:
    """The estimated slots of a server. `value`: requests served at once, a whole number if only one is possible. `low`
    to `high`: the 95 % interval of the rates' ratio, extended down to that whole number. `users`: the number of users
    who asked for them. `gain`: the rate of twice the users over theirs; `gain_low`: the lower end of its 95 % interval.
    `alone_ns`: the mean time of a request of one user alone, and `network_ns` the part of it on the network between two
    nodes, where it occupies no slot. `most_per_s`: the rate of all users."""

    value: float
    low: float
    high: float
    users: int
    gain: float
    gain_low: float
    alone_ns: float
    most_per_s: float
    network_ns: float = 0.0

    @property
    def more_is_served(self) -> bool:
        """True if twice the users got clearly more."""
        return self.gain_low > MORE_GAIN

    @property
    def limited(self) -> bool:
        """True if there are slots for only a part of the users, so that the others wait, and twice as many users got
        not clearly more, and nothing like twice as much."""
        return not self.more_is_served and self.gain < LIMITED_GAIN and not self.enough

    @property
    def one_at_a_time(self) -> bool:
        """True if only one request is served at once, though more users ask."""
        return self.limited and self.value < ONE_AT_A_TIME

    @property
    def enough(self) -> bool:
        """True if each user may have a slot, so that none of them waits for another."""
        return self._with_those_on_the_network >= ALL_SHARE * self.users

    @property
    def load_is_limit(self) -> bool:
        """True if more users would get more, and most of the present ones have a slot. If few have one and twice as
        many got clearly more all the same, the looks contradict each other. If twice as many got no more, it takes the
        estimate itself, not the upper end of its interval, to show that each user has a slot."""
        if self.more_is_served:
            return self._with_those_on_the_network >= MOST_SHARE * self.users
        each_has_one = self.value + self._on_the_network >= ALL_SHARE * self.users
        return each_has_one or (self.enough and self.gain >= LIMITED_GAIN)

    @property
    def _with_those_on_the_network(self) -> float:
        """The highest number of requests that are in a slot or on the network: none of them waits for another."""
        return self.high + self._on_the_network

    @property
    def _on_the_network(self) -> float:
        """The requests on the network between two nodes (Little's law)."""
        return self.most_per_s * self.network_ns / 1e9


class NotExactError(Exception):
    """Raised if the looks do not suffice; the message says why."""


def estimate_slots(
    alone: UsersServed,
    loaded: UsersServed,
    doubled: UsersServed,
    variation: float,
    outside: float = 0.0,
    *,
    network_ns: float = 0.0,
) -> Slots:
    """Estimates the slots from the answers of one user, of all users, and of twice as many. `variation`: the squared
    coefficient of variation of one user's service times. `outside`: the highest mean number of requests that are read,
    written or handed over while they have no slot. `network_ns`: the time of each request on the network between two
    nodes, by which X(n) S is too high: X(n) times that many are there (Little's law). Raises NotExactError.

    The answers of one slot are a renewal process. Their count has the variance count x variation (Cox 1962, "Renewal
    Theory", section 4.5) and, however regular the process is, that of where the look begins, 1/12 at each end. The
    variance of the logarithm of a ratio of counts is the sum of their relative variances (delta method)."""
    if alone.answers < ANSWERS_LEAST:
        raise NotExactError(
            f"one user alone got {alone.answers} answers in {alone.seconds:.1f} s, and at least {ANSWERS_LEAST} are "
            "needed"
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
    away = loaded.rate_per_s * network_ns / 1e9
    low, high = (max(0.0, each - away) for each in (value / spread, value * spread))
    gain = doubled.rate_per_s / loaded.rate_per_s
    gain_variance = _relative_variance(loaded, variation) + _relative_variance(doubled, variation)
    slots = Slots(
        value=max(0.0, value - away),
        low=low,
        high=high,
        users=loaded.users,
        gain=gain,
        gain_low=gain * math.exp(-Z_95 * math.sqrt(gain_variance)),
        alone_ns=1e9 / alone.rate_per_s,
        most_per_s=loaded.rate_per_s,
        network_ns=network_ns,
    )
    return _whole(slots, outside) if slots.limited else slots


def _whole(slots: Slots, outside: float) -> Slots:
    """The slots as a whole number, if exactly one is possible. One user's S includes the time that a request spends
    outside of its slot, so that k = X(n) S is too high by the requests that are there (Little's law), 0 to `outside` of
    them."""
    first = math.ceil(max(slots.low - outside, 0.5))
    if slots.value >= WHOLE_BELOW or not first <= slots.high < first + 1:
        return slots
    return replace(slots, value=float(first), low=min(slots.low, float(first)))


def _relative_variance(look: UsersServed, variation: float) -> float:
    return (max(variation, 0.0) * look.answers + 1 / 6) / look.answers**2
