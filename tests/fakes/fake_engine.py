#!/usr/bin/env python3
"""A scripted stand-in for `powerband-engine`: `load` speaks the wire contract without sending anything.

`probe`, `serve` and everything else go to the real binary in $FAKE_ENGINE_REAL. $FAKE_ENGINE says how `load` behaves:
`ok` answers 1,000 requests a second; `crash` ends after go; `limit` refuses; `mute` is never armed.
"""

import base64
import json
import os
import select
import sys
import time
import zlib

EMPTY_HISTOGRAM = base64.b64encode(zlib.compress(b"")).decode()
INTERVAL_NS = 100_000_000


def say(**event):
    sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def now():
    return time.monotonic_ns()


def next_command(until_ns):
    """The next command on stdin, or None if there is none until the given time. Ends the process at the end of
    stdin."""
    left_s = max(0.0, (until_ns - now()) / 1e9)
    if not select.select([sys.stdin], [], [], left_s)[0]:
        return None
    line = os.read(0, 65536)
    if not line:
        sys.exit(3)
    return json.loads(line.splitlines()[0])


def counts(number):
    return {"scheduled": number, "sent": number, "dropped": 0, "outcomes": {"ok": number} if number else {}}


def interval(start_ns, phase):
    say(
        type="interval",
        start_ns=start_ns,
        end_ns=start_ns + INTERVAL_NS,
        phase=phase,
        **counts(100),
        in_flight_now=5,
        connections_now=5,
        users_now=5,
        response_time_ns_sum=100 * 5_000_000,
        response_time_ns_max=6_000_000,
        service_time_ns_sum=100 * 5_000_000,
        send_lag_ns_max=1000,
        cpu_ns=1_000_000,
    )


def summary(go_ns, measure_ns, end_ns, number):
    names = ("response_time_ns", "service_time_ns", "failed_time_ns", "send_lag_ns", "dropped_wait_ns")
    say(
        type="summary",
        go_ns=go_ns,
        measure_start_ns=measure_ns,
        measure_end_ns=end_ns,
        end_ns=end_ns,
        total=counts(number),
        cohort=counts(number),
        cohort_times=dict.fromkeys(names, EMPTY_HISTOGRAM),
        steps=[],
        window={
            "outcomes": {"ok": number},
            "bytes_received": 0,
            "bytes_sent": 0,
            "time_in_system_ns_sum": 0,
            "think_ns_sum": 0,
            "user_ns": 0,
            "carried_in_ns_sum": 0,
            "carried_out_ns_sum": 0,
            "unanswered": 0,
        },
        connections={
            "opened": 5,
            "failed": 0,
            "closed_by_peer": 0,
            "open_max": 5,
            "connect_time_ns": EMPTY_HISTOGRAM,
        },
        cpu_user_ns=1,
        cpu_system_ns=1,
        thread_cpu_ns=[2],
        max_rss_bytes=1,
        ended_by="time",
    )


def load(how):
    spec = json.loads(sys.stdin.readline())
    say(
        type="hello",
        protocol=spec["protocol"],
        version="fake",
        pid=os.getpid(),
        monotonic_ns=now(),
        wall_ns=time.time_ns(),
        descriptor_limit=1024,
    )
    if how == "limit":
        say(type="error", kind="limit", message="5 connections need 60 descriptors, 8 are allowed")
        return 1
    if how == "mute":
        next_command(now() + 3600 * 10**9)
    say(type="armed", at_ns=now())
    go_ns = next_command(now() + 3600 * 10**9)["at_ns"]
    if how == "crash":
        sys.stderr.write("fake engine: going down\n")
        return 70
    phase, tick, number, measure_ns = "warmup", go_ns, 0, None
    warmup_ns = spec["phases"].get("warmup_ns")
    say(type="phase", phase=phase, at_ns=go_ns)
    while True:
        command = next_command(tick + INTERVAL_NS)
        if command is None:
            interval(tick, phase)
            tick += INTERVAL_NS
            number += 100
        fixed = warmup_ns is not None and now() >= go_ns + warmup_ns
        if phase == "warmup" and (fixed or (command and command["type"] == "measure")):
            phase, measure_ns = "measure", now()
            say(type="phase", phase=phase, at_ns=measure_ns)
        if phase == "measure" and now() >= measure_ns + spec["phases"]["measure_ns"]:
            say(type="phase", phase="drain", at_ns=now())
            summary(go_ns, measure_ns, now(), number)
            return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["load"]:
        sys.exit(load(os.environ.get("FAKE_ENGINE", "ok")))
    os.execv(os.environ["FAKE_ENGINE_REAL"], [os.environ["FAKE_ENGINE_REAL"], *sys.argv[1:]])
