"""How much of the error a look at a race may spend, so that all looks together spend no more than was asked for.

In: the most blocks that a race may take. Out: the share of the error for an interval over so many blocks. Why these
shares, their source, and what was tried beside them: docs/methods/racing.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from powerband.experiment import Experiment

FIRST_WEIGHT = 0.5
LAST_WEIGHT = 4.0


@dataclass(frozen=True)
class Spending:
    """Error spending over looks (Lan & DeMets 1983), fixed before the race: a look after each block from the second on,
    `blocks_most` at most. Whatever the looks lead to, by the union bound the chance that any of them is wrong is no
    more than the whole error."""

    blocks_most: int

    def share(self, blocks: float) -> float:
        """Of the whole error, for an interval from so many blocks (2 at least). The last look, whose verdicts are
        final, gets most; the first, with one degree of freedom, half of a usual one."""
        return self._weight(min(int(blocks), self.blocks_most)) / self._weights

    def _weight(self, blocks: int) -> float:
        if blocks >= self.blocks_most:
            return LAST_WEIGHT
        return FIRST_WEIGHT if blocks == 2 else 1.0

    @property
    def _weights(self) -> float:
        return sum(self._weight(blocks) for blocks in range(2, max(self.blocks_most, 2) + 1))


def spending_of(experiment: Experiment) -> Spending | None:
    """None where the plan is fixed beforehand: then there is one look, at its end."""
    return Spending(experiment.measure.repeats) if experiment.is_race else None
