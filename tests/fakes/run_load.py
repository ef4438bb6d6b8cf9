"""A short load in a process of its own: `run_load.py URL [users=N] [seconds=S] [generator=JSON]`. It runs here or
through a generator, and its outcome is printed as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from urllib.parse import urlsplit

from powerband.base.errors import PowerbandError
from powerband.cluster.far_engines import FarEngines, Generator
from powerband.model.load import Load
from powerband.processes.stop_request import StopRequest
from powerband.trials.loadgen import run_load


def main() -> None:
    options = dict(option.partition("=")[::2] for option in sys.argv[2:])
    seconds = float(options.get("seconds", "0.5"))
    load = Load(users=int(options["users"]), duration_ns=int(seconds * 1e9), drain_ns=20_000_000_000)
    engines, host = None, urlsplit(sys.argv[1]).hostname
    if "generator" in options:
        engines = FarEngines([Generator(**json.loads(options["generator"]))], "")
    try:
        result = run_load(sys.argv[1], load, stop=StopRequest(), allow_hosts=[str(host)], engines=engines)
    except PowerbandError as error:
        json.dump({"error": str(error)}, sys.stdout)
        return
    outcomes = sum((Counter(summary["total"]["outcomes"]) for summary in result.summaries), Counter())
    connections = sum(summary["connections"]["open_max"] for summary in result.summaries)
    json.dump(
        {
            "engines": len(result.summaries),
            "ok": outcomes["ok"],
            "outcomes": dict(outcomes),
            "connections": connections,
        },
        sys.stdout,
    )


main()
