"""The phase of a trial by its lines: engines say when a phase begins; the intervals of a self-driven subject contain
it."""

from __future__ import annotations

import json

from powerband.live.seconds import LoadSeconds

S = 10**9


def interval(phase: str, start_s: float) -> bytes:
    return json.dumps(
        {"type": "interval", "phase": phase, "start_ns": int(start_s * S), "end_ns": int((start_s + 0.2) * S)}
    ).encode()


def phase(name: str, at_s: float) -> bytes:
    return json.dumps({"type": "phase", "phase": name, "at_ns": int(at_s * S)}).encode()


def test_of_a_self_driven_subject_the_intervals_tell_it() -> None:
    load = LoadSeconds()
    for line in (interval("warmup", 1.0), interval("warmup", 1.2), interval("measure", 1.4), interval("measure", 1.6)):
        load.take(line)
    assert load.phases_ns == {"warmup": int(1.0 * S), "measure": int(1.4 * S)}
    assert load.origin_ns == 1 * S


def test_where_engines_say_when_a_phase_begins_that_holds() -> None:
    load = LoadSeconds()
    for line in (phase("warmup", 1.0), interval("warmup", 1.0), phase("measure", 1.5), interval("warmup", 1.3)):
        load.take(line)
    assert list(load.phases_ns.items()) == [("warmup", int(1.0 * S)), ("measure", int(1.5 * S))]
