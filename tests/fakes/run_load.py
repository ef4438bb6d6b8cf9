"""`run_load.py URL [users=N]`: a short load in a process of its own; prints what came of it as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter

from powerband.base.errors import PowerbandError
from powerband.model.load import Load
from powerband.processes.stop_request import StopRequest
from powerband.trials.loadgen import run_load


def main() -> None:
    options = dict(option.partition("=")[::2] for option in sys.argv[2:])
    load = Load(users=int(options["users"]), duration_ns=500_000_000, drain_ns=2_000_000_000)
    try:
        result = run_load(sys.argv[1], load, stop=StopRequest())
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
