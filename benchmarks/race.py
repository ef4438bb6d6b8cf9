"""Compares a race with the full grid: both search for the best of 16 pool sizes to 3 %, with a verdict, in alternating
pairs.

Both may take 10 blocks of the same trials. The race's time includes the confirmation of its winner. A pair takes some
seven minutes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pairs import HEAD, figure
from benchmarks.sweeps import Sweep, sweep
from powerband.processes.stop_request import StopRequest

AT_MOST = 0.5
NAMES = {"race": "race", "blocks": "full grid"}
EXPERIMENT = """
name: pool-of-16
subject: {{use: reference, set: {{model: fixed, wait: 20ms, cpu: 100us}}}}
factors: {{threads: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]}}
load: {{users: 64, duration: 1s, drain: 2s}}
measure: {{warmup: 500ms, repeats: 10}}
design: {{order: {order}}}
objective: {{maximise: goodput, margin: 3%}}
"""


def against_grid(engine: str, pairs: int) -> Iterator[str]:
    counted: list[dict[str, Sweep]] = []
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder, StopRequest.on_signals() as stop:
        for number in range(pairs):
            orders = ("race", "blocks") if number % 2 == 0 else ("blocks", "race")
            done = {
                order: sweep(EXPERIMENT.format(order=order), Path(folder), stop, engine=engine, seed=number + 1)
                for order in orders
            }
            if stop.requested:
                return
            for order in orders:
                print(_told(number + 1, order, done[order]), file=sys.stderr)
            if any(each.analysis.answer.setting is None for each in done.values()):
                continue  # a search that names no setting does not count as fast
            counted.append(done)
    agreed = sum(_agree(done["race"], done["blocks"]) for done in counted)
    yield f"\n{len(counted)} of {pairs} pairs count: both named a setting; the same one in {agreed}\n"
    if not counted:
        return
    yield HEAD
    for order, name in NAMES.items():
        yield figure(f"{name}: time", [done[order].seconds for done in counted], "s", ".0f")
        yield figure(f"{name}: trials", [len(done[order].analysis.trials) for done in counted], "", ".0f")
    ratios = [done["race"].seconds / done["blocks"].seconds for done in counted]
    yield figure("time of the race, of the grid's", ratios, "", ".2f", at_most=AT_MOST)


def _told(pair: int, order: str, done: Sweep) -> str:
    trials = len(done.analysis.trials)
    why = "" if done.analysis.answer.setting is not None else f": {done.analysis.answer.sentences[0]}"
    return (
        f"pair {pair}, {NAMES[order]}: {done.seconds:.0f} s, {trials} trials ({done.invalid} invalid), "
        f"{done.answer}{why}"
    )


def _agree(race: Sweep, grid: Sweep) -> bool:
    """True if each names a setting that the other finds to be as good as its own."""
    a, b = race.analysis.answer, grid.analysis.answer
    return a.setting is not None and b.setting is not None and a.setting in b.equivalent and b.setting in a.equivalent
