"""Checks whether engines on other nodes began at the commanded instant, as far as their clocks are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from powerband.base.units import format_duration
from powerband.model.clocks import GeneratorNode, most_error_ns
from powerband.model.results import Problem
from powerband.wire.load_events import Summary


def clock_problems(clocks: Sequence[GeneratorNode], summaries: Sequence[Summary], window_ns: int) -> Iterator[Problem]:
    """Yields the problems of one load, whose instants are all by one clock; none if it came from one machine, or if no
    engine reached its window."""
    reached = [summary for summary in summaries if summary["measure_start_ns"]]
    if not clocks or not reached:
        return
    most_ns = most_error_ns(window_ns)
    worst = max(clocks, key=lambda clock: clock.error_ns)
    if worst.error_ns > most_ns:
        yield Problem(
            "clock_unknown",
            f"the clock of {worst.node} was known only to within {format_duration(worst.error_ns)} "
            f"({format_duration(most_ns)} allowed; it drifted {format_duration(abs(worst.drift_ns))} meanwhile): its "
            "load generators may have begun at another time than the others; use nodes with a shorter way between "
            "them, or a longer load.duration",
        )
    for what, instants in (
        ("load", [summary["go_ns"] for summary in reached]),
        ("measured window", [summary["measure_start_ns"] for summary in reached]),
    ):
        if (apart_ns := max(instants) - min(instants)) > most_ns:
            yield Problem(
                "engines_apart",
                f"the {what} began {format_duration(apart_ns)} later on one load generator than on another "
                f"({format_duration(most_ns)} allowed): a node that makes the load, or the way to it, was too busy to "
                "take the command in time",
            )
