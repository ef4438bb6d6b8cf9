"""`make bench`: each speed that powerband promises, measured side by side and printed next to its target.

    python -m benchmarks --engine ENGINE [--only SECTION ...] [--pairs 6] [--keep FOLDER]

The generator runs on CPU 0 and the server on CPU 1. Figures are CPU (user and kernel) of the finished process, so they
hold better than wall-clock on a noisy machine. Each section repeats what it measures `--pairs` times, and one rule for
all says `met`, `NOT met` or `undecided` (`benchmarks/pairs.py`). Each section that ends is kept with the values of
every repeat, and `make reference` writes it into the page. Nothing else should run. All sections take hours.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    analysis,
    answer,
    bench_share,
    calibration,
    control_plane,
    engines,
    http,
    jmeter_pairs,
    kept_lines,
    link,
    live,
    own_code,
    probe,
    race,
    statsd,
    switches,
    watching,
    websocket,
)
from benchmarks.footer import machine
from powerband.search.noise import cpu_times

PAIRS = 6  # the fewest repeats whose median has a 95 % interval


@dataclass(frozen=True)
class Section:
    """One section of the benchmarks. `measured` takes the engine's path and the number of repeats; `repeats` names what
    one repeat is. `kept`: whether a page has it. `once`: it repeats by itself, and is done once."""

    measured: Callable[[str, int], Iterator[str]]
    repeats: str
    kept: bool = True
    once: bool = False


SECTIONS = {
    "http": Section(http.cpu_per_request, "alternating pairs of runs"),
    "own-code": Section(own_code.shares, "runs"),
    "memory": Section(http.memory_per_connection, "fresh engines with many connections and with one"),
    "open-loop": Section(http.open_loop, "rounds of all precisions"),
    "websocket": Section(websocket.cpu_per_message, "alternating pairs of runs"),
    "websocket-memory": Section(websocket.memory_per_user, "fresh engines with many users and with one"),
    "websocket-crowd": Section(websocket.crowd, "fresh starts of each server and its fleet"),
    "websocket-waiting": Section(websocket.waiting_users, "fresh starts of servers and fleet"),
    "engines": Section(engines.against_other, "alternating pairs of runs", kept=False),
    "probe": Section(probe.cost, "fresh probes of one server"),
    "bench-share": Section(bench_share.cost, "fresh starts of the server"),
    "switches": Section(switches.cost, "alternating pairs of runs"),
    "watching": Section(
        watching.cost, f"fresh JVMs, each the median of {watching.WINDOWS} alternating pairs of windows"
    ),
    "statsd": Section(statsd.updates_per_core, "fresh sinks, in rounds of all rows"),
    "link": Section(link.limits, "fresh links, in rounds of all rows"),
    "jmeter": Section(
        jmeter_pairs.against_engine, "alternating pairs of trials, those that a disturbance spoilt included"
    ),
    "control-plane": Section(control_plane.cost, "whole runs"),
    "live": Section(live.cost, "fresh runs, each with a live page of its own"),
    "analysis": Section(analysis.speed, "fresh processes over one run, and openings of its report"),
    "answer": Section(answer.seconds, "whole runs of each row"),
    "calibration": Section(calibration.checks, "calibration, each of its servers in many trials", once=True),
    "race": Section(race.against_grid, "alternating pairs of whole runs"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="repeats of each section; fewer than 6 have no interval"
    )
    parser.add_argument("--engine", required=True, help="the powerband-engine binary (a release build)")
    parser.add_argument(
        "--keep", type=Path, default=kept_lines.FOLDER, help="where each section that ends is kept (of the pages' data)"
    )
    options = parser.parse_args()
    if options.pairs < 1:
        parser.error("--pairs: at least 1")
    print(machine())
    if (os.cpu_count() or 1) < 2:
        print("a single CPU: generator and server would share it, and nothing here would mean anything")
        return 1
    for name in options.only:
        print(f"\n## {name}\n", flush=True)
        before, section, lines = cpu_times(), SECTIONS[name], list[str]()
        repeats = 1 if section.once else options.pairs
        for line in section.measured(options.engine, repeats):
            print(line, flush=True)
            lines.append(line)
        command = f"python -m benchmarks --only {name} --pairs {repeats}"
        found = kept_lines.Kept.now(name, command, repeats=repeats, of=section.repeats, before=before, lines=lines)
        print(f"\n{found.footer}", flush=True)
        if section.kept and found.rows:
            kept_lines.write(found, options.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
