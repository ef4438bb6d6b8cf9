"""`make bench`: each speed that powerband promises, measured side by side and printed next to its target.

    python -m benchmarks [--only SECTION ...] [--pairs 5]

The generator runs on CPU 0 and the server on CPU 1. Figures are CPU (user and kernel) of the finished process, so they
hold better than wall-clock on a noisy machine; the ratio is the median over alternating pairs. Nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks import (
    analysis,
    control_plane,
    engines,
    http,
    jmeter_pairs,
    link,
    live,
    probe,
    race,
    statsd,
    watching,
    websocket,
)

SECTIONS: dict[str, Callable[[str, int], Iterator[str]]] = {
    "http": http.cpu_per_request,
    "memory": http.memory_per_connection,
    "open-loop": http.open_loop,
    "websocket": websocket.cpu_per_message,
    "websocket-memory": websocket.memory_per_user,
    "websocket-crowd": websocket.crowd,
    "websocket-waiting": websocket.waiting_users,
    "engines": engines.against_other,
    "probe": probe.cost,
    "watching": watching.cost,
    "statsd": statsd.updates_per_core,
    "link": link.limits,
    "jmeter": jmeter_pairs.against_engine,
    "control-plane": control_plane.cost,
    "live": live.cost,
    "analysis": analysis.speed,
    "race": race.against_grid,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--engine", required=True, help="the powerband-engine binary (a release build)")
    options = parser.parse_args()
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPUs, Linux {platform.release()}, {platform.machine()}")
    if (os.cpu_count() or 1) < 2:
        print("a single CPU: generator and server would share it, and nothing here would mean anything")
        return 1
    for name in options.only:
        print(f"\n## {name}\n", flush=True)
        for line in SECTIONS[name](options.engine, options.pairs):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
