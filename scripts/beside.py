"""Akka.NET compared with Pekko, from the kept data of both: `python -m scripts.beside` draws the picture of the
page.

Only what one machine measured on one day stands side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from powerband.model.results import Estimate
from scripts import keep

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "akka-net-beside-pekko.png"
METRIC = "goodput_per_s"
NAMES = ("Akka.NET", "Pekko")
SUSPICIONS = ("akka-net-suspicions", "reflection-suspicions")
GRIDS = ("akka-net-reflection", "infinite-reflection")
# Both have a fork-join of 8 threads, throughput 100, one pair and 6 balls, apart from what is named.
CHANGES: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("baseline", {}),
    ("one thread in place of eight", {"parallelism": 1}),
    ("two datagrams a message", {"metrics": "datagram"}),
    ("a line of debug log a message", {"debug_log": True}),
    ("a message used again and again", {"message": "reused"}),
    ("two busy neighbours", {"neighbours": 2}),
)
CROSSED: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("thread pool, one pair", {"dispatcher": "thread-pool", "pairs": 1}),
    ("fork-join, five pairs", {"dispatcher": "fork-join", "pairs": 5}),
    ("thread pool, five pairs", {"dispatcher": "thread-pool", "pairs": 5}),
)
ONLY = {"metrics": "off", "throughput": 100, "balls": 6}  # the levels shown of a grid with these factors


@dataclass(frozen=True)
class Row:
    """A setting, with its messages a second on each of the two frameworks."""

    name: str
    rates: tuple[Estimate, Estimate]


def rows() -> Iterator[Row]:
    for pair, wanted in ((SUSPICIONS, CHANGES), (GRIDS, CROSSED)):
        found = [_newest(name) for name in pair]
        for name, levels in wanted:
            yield Row(name, (_rate(found[0], levels), _rate(found[1], levels)))


def draw(into: Path = FIGURE) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 -- needed for drawing only

    shown = list(rows())
    figure = Figure(figsize=(8, 0.5 * len(shown) + 1.2), layout="constrained")
    axes = figure.subplots()
    for index, (name, colour, marker) in enumerate(zip(NAMES, ("#2563a8", "#c2570c"), "os", strict=True)):
        rates = [row.rates[index] for row in shown]
        places = [place + 0.16 * (2 * index - 1) for place in range(len(shown))]
        ends = [[rate.value - rate.ends[0] for rate in rates], [rate.ends[1] - rate.value for rate in rates]]
        axes.errorbar(
            [rate.value for rate in rates], places, xerr=ends, fmt=marker, color=colour, capsize=3, label=name
        )
    axes.set_yticks(range(len(shown)), [row.name for row in shown])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("messages a second, with their 95 % intervals (logarithmic)")
    axes.grid(axis="x", which="both", alpha=0.25)
    axes.legend(loc="lower left")
    figure.savefig(into, dpi=110, metadata={"Software": None})


def _newest(name: str) -> keep.Kept:
    return max((each for each in keep.all_kept() if each.analysis["name"] == name and each.profile is None), key=_date)


def _date(kept: keep.Kept) -> str:
    return kept.date


def _rate(kept: keep.Kept, levels: Mapping[str, Any]) -> Estimate:
    """The rate of the setting with these levels. A factor without a level here has its level of `ONLY`, or its first
    one. Raises LookupError if that setting was not measured."""
    found = [row for row in kept.analysis["settings"] if METRIC in row["estimates"]]
    first = kept.analysis["settings"][0]["setting"]["levels"]
    wanted = {**first, **{name: level for name, level in ONLY.items() if name in first}, **levels}
    for row in found:
        if all(row["setting"]["levels"][name] == level for name, level in wanted.items()):
            return Estimate(**row["estimates"][METRIC])
    raise LookupError(f"{kept.folder}: no setting has {wanted}")


if __name__ == "__main__":
    draw()
