"""Computes the offset between the clocks of two machines, and how wrong it may be. Pure.

In: the four instants of each exchange. Out: the offset with its bound, and the error that does no harm. All times are
ns of each machine's CLOCK_MONOTONIC, which begins anywhere: an offset may be hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from powerband.base.units import format_duration

MOST_NS = 10_000_000
MOST_OF_WINDOW = 0.01
MOST_DRIFT = 1e-4  # crystals differ by less; over an hour that is 360 ms, which does no harm there


@dataclass(frozen=True)
class Exchange:
    """A question to another machine and its answer. `sent_ns`, `back_ns`: when the question was sent and the answer
    received, by the clock here; `got_ns`, `answered_ns`: the instants between them, by the clock there."""

    sent_ns: int
    got_ns: int
    answered_ns: int
    back_ns: int

    @property
    def on_the_way_ns(self) -> int:
        """The time on the network, both ways together."""
        return (self.back_ns - self.sent_ns) - (self.answered_ns - self.got_ns)


@dataclass(frozen=True)
class Offset:
    """The clock there minus the clock here, at some time. The true offset is within `uncertainty_ns` of `ns`."""

    ns: int
    uncertainty_ns: int

    def there(self, here_ns: int) -> int:
        """The instant here by the clock there, at least 0."""
        return max(0, here_ns + self.ns)

    def here(self, there_ns: int) -> int:
        """The instant there by the clock here, at least 0."""
        return max(0, there_ns - self.ns)


def offset_of(exchanges: Iterable[Exchange]) -> Offset:
    """The offset by the exchange that was on the way for the shortest time. One of its two ways may have taken no time,
    so half of both together is the bound of the error (Cristian, Probabilistic clock synchronization, 1989; the four
    instants and the choice of the least delay are those of NTP, RFC 5905, sections 8 and 10). Raises ValueError if
    there is no exchange."""
    best = min(exchanges, key=lambda exchange: exchange.on_the_way_ns)
    ns = ((best.got_ns - best.sent_ns) + (best.answered_ns - best.back_ns)) // 2
    # Rounded up, and 1 ns for the halving above.
    return Offset(ns, (max(0, best.on_the_way_ns) + 1) // 2 + 1)


@dataclass(frozen=True)
class GeneratorNode:
    """A node whose engines loaded the server of another node. `node`: its name; `engines`: the numbers of its engines
    in events.jsonl. `offset_ns`, `uncertainty_ns`: its clock minus that of the server's node before the trial, by which
    all instants were converted; `after_offset_ns`, `after_uncertainty_ns`: the same after the trial. `run_wait_ns`: how
    long the engines' threads were runnable without a CPU in the measured window; `turns`: how often they got one; None:
    not known."""

    node: str
    engines: tuple[int, ...]
    offset_ns: int
    uncertainty_ns: int
    after_offset_ns: int
    after_uncertainty_ns: int
    run_wait_ns: int | None = None
    turns: int | None = None

    @property
    def words(self) -> str:
        """The offset before the trial in words: `clock of node b: -21.0 us ± 90.0 us`."""
        return f"clock of {self.node}: {format_duration(self.offset_ns)} ± {format_duration(self.uncertainty_ns)}"

    @property
    def drift_ns(self) -> int:
        """The change of the offset during the trial, as far as the two readings show it."""
        return self.after_offset_ns - self.offset_ns

    @property
    def error_ns(self) -> int:
        """The largest error that any instant of the trial can have."""
        return max(self.uncertainty_ns, abs(self.drift_ns) + self.after_uncertainty_ns)

    @property
    def wait_ns_mean(self) -> float | None:
        """The mean time in ns for which a thread of an engine was runnable before it got a CPU; None: not known."""
        return None if self.run_wait_ns is None or not self.turns else self.run_wait_ns / self.turns

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON types, as in `record.json`."""
        return {**asdict(self), "engines": list(self.engines)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GeneratorNode:
        """Reads the result of `to_json`. Raises KeyError or TypeError for other fields."""
        return cls(**{**data, "engines": tuple(data["engines"])})


def most_starved(nodes: Sequence[GeneratorNode]) -> GeneratorNode | None:
    """The node whose engines lacked a CPU most, by how long each of their waits took and which share of the time they
    waited. None if there is no node, or if the waits of one are not known."""
    if not nodes or any(node.wait_ns_mean is None for node in nodes):
        return None
    return max(nodes, key=lambda node: (node.run_wait_ns or 0) / len(node.engines) * (node.wait_ns_mean or 0.0))


def most_error_ns(window_ns: int) -> float:
    """The largest error of a clock that does no harm to a measured window of this length, with an allowance for
    drift."""
    return min(MOST_NS, MOST_OF_WINDOW * window_ns) + MOST_DRIFT * window_ns
