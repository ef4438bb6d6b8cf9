"""Akka.NET beside Pekko, from the kept data of both: `python -m scripts.beside` draws the picture of the page.

The two tables of docs/experiments/akka-net.md are made by `scripts/reference.py`. Only what one machine measured
on one day stands side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from powerband.model.results import Estimate
from powerband.report.wording.numbers import format_estimate, format_interval
from scripts import keep

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "akka-net-beside-pekko.png"
METRIC = "goodput_per_s"
NAMES = ("Akka.NET", "Pekko")
SUSPICIONS = ("akka-net-suspicions", "reflection-suspicions")
GRIDS = ("akka-net-reflection", "infinite-reflection")
# In both, with fork-join of 8 threads, throughput 100, one pair and 6 balls but for what is named.
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
ONLY = {"metrics": "off", "throughput": 100, "balls": 6}  # of a grid, where it has these factors
# By the claim's name, which is the same in both experiments.
CLAIMS = (
    (GRIDS, "dispatcher-makes-no-great-difference"),
    (GRIDS, "five-pairs-are-slower"),
    (GRIDS, "millions-a-minute"),
    (SUSPICIONS, "datagrams-plateau"),
    (SUSPICIONS, "datagrams-explain-the-plateau"),
    (SUSPICIONS, "switches-govern"),
    (SUSPICIONS, "debug-log-costs-half"),
    (SUSPICIONS, "allocation-costs-little"),
    (SUSPICIONS, "neighbours-cost-at-most-half"),
)


@dataclass(frozen=True)
class Row:
    """A setting, and messages a second on each of the two frameworks."""

    name: str
    rates: tuple[Estimate, Estimate]


def rows() -> Iterator[Row]:
    for pair, wanted in ((SUSPICIONS, CHANGES), (GRIDS, CROSSED)):
        found = [_newest(name) for name in pair]
        for name, levels in wanted:
            yield Row(name, (_rate(found[0], levels), _rate(found[1], levels)))


def rates_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Messages a second with their intervals, and each as a multiple of the framework's own baseline."""
    cells: list[Sequence[str]] = []
    base: tuple[float, ...] = ()
    for row in rows():
        base = base or tuple(rate.value for rate in row.rates)
        shown = [f"{format_estimate(rate, METRIC)} ({format_interval(rate, METRIC)})" for rate in row.rates]
        times = [f"{rate.value / own:.2g}" for rate, own in zip(row.rates, base, strict=True)]
        cells.append((row.name, shown[0], times[0], shown[1], times[1]))
    return ("", NAMES[0], "to its baseline", NAMES[1], "to its baseline"), cells


def claims_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Each claim of both experiments, with the verdict on each framework and where it holds."""
    cells: list[Sequence[str]] = []
    for pair, name in CLAIMS:
        ours, theirs = (_claim(_newest(experiment), name) for experiment in pair)
        verdicts = [claim["verdict"] for claim in (ours, theirs)]
        cells.append((ours["says"], *(f"**{verdict}**" for verdict in verdicts), _where(verdicts)))
    return ("claim, in the words of the Akka.NET experiment", *NAMES, "holds on"), cells


def draw(into: Path = FIGURE) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 -- the tables are made without it

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
    """The rate of the setting with these levels. A factor that they do not name has its level of `ONLY`, or its first
    one. Raises LookupError where that setting was not measured."""
    found = [row for row in kept.analysis["settings"] if METRIC in row["estimates"]]
    first = kept.analysis["settings"][0]["setting"]["levels"]
    wanted = {**first, **{name: level for name, level in ONLY.items() if name in first}, **levels}
    for row in found:
        if all(row["setting"]["levels"][name] == level for name, level in wanted.items()):
            return Estimate(**row["estimates"][METRIC])
    raise LookupError(f"{kept.folder}: no setting has {wanted}")


def _claim(kept: keep.Kept, name: str) -> Mapping[str, Any]:
    return next(claim for claim in kept.analysis["claims"] if claim["id"] == name)


def _where(verdicts: Sequence[str]) -> str:
    if "undecided" in verdicts:
        return "open"
    held = [name for name, verdict in zip(NAMES, verdicts, strict=True) if verdict == "held"]
    return {2: "both", 1: f"{held[0]} alone" if held else "", 0: "neither"}[len(held)]


if __name__ == "__main__":
    draw()
