"""What one machine's clock shows when another's shows a given time: an offset, and how wrong it may be. Pure.

In: the four instants of each exchange. Out: the offset with its bound, and what a trial is to make of it. All in ns of
each machine's CLOCK_MONOTONIC, which begin anywhere: an offset may be hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from powerband.base.units import format_duration

MOST_NS = 10_000_000
MOST_OF_WINDOW = 0.01
MOST_DRIFT = 1e-4  # crystals differ by less; over an hour that is 360 ms, which an hour bears


@dataclass(frozen=True)
class Exchange:
    """A question and its answer: `sent_ns` and `back_ns` by the clock here, `got_ns` and `answered_ns` by the one
    there."""

    sent_ns: int
    got_ns: int
    answered_ns: int
    back_ns: int

    @property
    def on_the_way_ns(self) -> int:
        """Both ways together."""
        return (self.back_ns - self.sent_ns) - (self.answered_ns - self.got_ns)


@dataclass(frozen=True)
class Offset:
    """The clock there less the clock here, at some time; the truth is within `uncertainty_ns` of it."""

    ns: int
    uncertainty_ns: int

    def there(self, here_ns: int) -> int:
        return max(0, here_ns + self.ns)

    def here(self, there_ns: int) -> int:
        return max(0, there_ns - self.ns)


def offset_of(exchanges: Iterable[Exchange]) -> Offset:
    """By the exchange that was least long on the way; its two ways may have been unequal, one of them 0 at the least,
    so that half of both is the bound (Cristian, Probabilistic clock synchronization, 1989; the four instants and the
    choice of the least delay are those of NTP, RFC 5905, sections 8 and 10). Raises ValueError for none."""
    best = min(exchanges, key=lambda exchange: exchange.on_the_way_ns)
    ns = ((best.got_ns - best.sent_ns) + (best.answered_ns - best.back_ns)) // 2
    # Rounded up, and 1 ns for the halving above.
    return Offset(ns, (max(0, best.on_the_way_ns) + 1) // 2 + 1)


@dataclass(frozen=True)
class GeneratorNode:
    """A node whose engines loaded the server of another: its clock less that of the server's node, before the trial (by
    which all instants were sent and told) and after it. `engines`: their numbers in events.jsonl. `run_wait_ns`: how
    long their threads were runnable without a CPU in the measured window, in `turns`; None: not known."""

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
        """`clock of node b: -21.0 us ± 90.0 us`, before the trial."""
        return f"clock of {self.node}: {format_duration(self.offset_ns)} ± {format_duration(self.uncertainty_ns)}"

    @property
    def drift_ns(self) -> int:
        """How much the clocks went apart during the trial, as far as the two readings show it."""
        return self.after_offset_ns - self.offset_ns

    @property
    def error_ns(self) -> int:
        """No instant of the trial is further from the truth than this."""
        return max(self.uncertainty_ns, abs(self.drift_ns) + self.after_uncertainty_ns)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "engines": list(self.engines)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GeneratorNode:
        return cls(**{**data, "engines": tuple(data["engines"])})


def most_error_ns(window_ns: int) -> float:
    """The largest error of a clock that a measured window of this length bears, clocks that go apart included."""
    return min(MOST_NS, MOST_OF_WINDOW * window_ns) + MOST_DRIFT * window_ns
