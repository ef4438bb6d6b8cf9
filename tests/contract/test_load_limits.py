"""`powerband check` and the engine have the same limits: both accept a value at a limit, and both refuse the next
one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from powerband.loads.engine_specs import fleet_specs
from powerband.model.load import Load
from powerband.model.websocket import WebSocket
from powerband.wire.message import encode

DAY_NS = 24 * 3600 * 10**9
LAST_REQUESTS = 2**32 - 2


def step(**fields: Any) -> dict[str, Any]:
    return {"users": 1, "scenario": [{"name": "a", **fields}]}


def within(key: str, least: Any, most: Any, **others: Any) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yields both limits of a field, which are accepted, and the values one beyond them, which are refused. All fields
    here are whole numbers."""
    for value, good in ((least, True), (least - 1, False), (most, True), (most + 1, False)):
        yield {key: value, **others}, good


CASES: list[tuple[dict[str, Any], bool]] = [
    *within("pipeline", 1, 1024, users=1),
    *within("requests_per_user", 1, LAST_REQUESTS, users=1),
    *within("timeout_ns", 1, DAY_NS, users=1),
    *within("connect_timeout_ns", 1, DAY_NS, users=1),
    *within("precision_ns", 0, DAY_NS, users=1),
    *within("ramp_ns", 0, DAY_NS, users=1),
    *within("ramp_ns", 0, DAY_NS, rate=10),
    *within("engine_threads", 1, 1024, users=2000),
    ({"users": 1, "pipeline": 2, "keep_alive": False}, False),
    ({"users": 1, "pipeline": 1, "keep_alive": False}, True),
    *(({"users": 1, "scenario": [{"name": "a"}] * count}, count == 2**14) for count in (2**14, 2**14 + 1)),
    ({"rate": 10, "max_in_flight": 3, "engine_threads": 3}, True),
    ({"rate": 10, "max_in_flight": 2, "engine_threads": 3}, False),
    ({"rate": 1e8}, True),
    ({"rate": 1.1e8}, False),
    ({"rate": 10, "ramp": "1s", "ramp_from": 1e8}, True),
    ({"rate": 10, "ramp": "1s", "ramp_from": 1.1e8}, False),
    *(({"users": 1, "think": think}, good) for value, good in ((DAY_NS, True), (DAY_NS + 1, False)) for think in (
        value, {"uniform": [0, value]}, {"exponential": value})),
    *((step(check={"status": status}), True) for status in (200, 999)),
    *((step(check={"status": status}), False) for status in (199, 1000)),
    (step(headers=[["X-a_1!", "x"]]), True),
    *((step(headers=[[name, "x"]]), False) for name in ("", "a b", "a:")),
    *((step(headers=[["a", value]]), True) for value in ("", "\té")),
    *((step(headers=[["a", value]]), False) for value in ("a\r\nb: c", "\x7f")),
    *((step(path=path), good) for path, good in (("/é?a=b", True), ("/a b", False), ("/\x7f", False), ("a", False))),
    *((step(method=method), good) for method, good in (("PURGE", True), ("CONNECT", False), ("", False))),
]  # fmt: skip


def unchecked(fields: dict[str, Any]) -> Load:
    """The load with these fields, checked for nothing but their types."""
    sound = Load.model_validate(
        {key: value for key, value in fields.items() if key in ("users", "rate")} or {"users": 1}
    )
    changes: dict[str, Any] = {"rate_per_s" if key == "rate" else key: value for key, value in fields.items()}
    if "scenario" in changes:
        raw = changes["scenario"][0]
        plain = Load(users=1).scenario[0]
        checks = plain.checks.model_copy(update={"status": (raw["check"]["status"],)} if "check" in raw else {})
        parts = {key: value for key, value in raw.items() if key != "check"} | {"checks": checks}
        parts["headers"] = tuple(tuple(pair) for pair in raw.get("headers", ()))
        changes["scenario"] = (plain.model_copy(update=parts),) * len(changes["scenario"])
    for key in ("ramp", "ramp_from"):
        if key in changes:
            changes[f"{key}_{'ns' if key == 'ramp' else 'per_s'}"] = 10**9 if key == "ramp" else changes[key]
            del changes[key]
    if "think" in changes:
        changes["think"] = distribution(changes["think"])
    return sound.model_copy(update=changes)


def distribution(think: Any) -> Any:
    zero = Load.model_validate({"users": 1, "think": {"uniform": [0, 0]}}).think
    match think:
        case {"uniform": [low, high]}:
            return zero.model_copy(update={"min_ns": low, "max_ns": high})
        case {"exponential": mean}:
            soon = Load.model_validate({"users": 1, "think": {"exponential": 1}}).think
            return soon.model_copy(update={"mean_ns": mean})
    return Load(users=1).think.model_copy(update={"ns": think})


def engine_accepts(engine: Path, load: Load) -> bool:
    """True if the engine gets ready with this load; it is never told to start."""
    (spec,) = fleet_specs(load, url="http://127.0.0.1:9/", seed=1, descriptor_limit=10**6)
    ran = subprocess.run([engine, "load"], check=False, input=encode(spec), capture_output=True, timeout=30)
    kinds = [line.split(b'"type":"')[1].split(b'"')[0] for line in ran.stdout.splitlines()]
    return b"armed" in kinds


@pytest.mark.parametrize(("fields", "good"), CASES, ids=[f"{fields}"[:80] for fields, _ in CASES])
def test_both_sides_draw_the_line_at_the_same_place(engine: Path, fields: dict[str, Any], good: bool) -> None:
    try:
        Load.model_validate(fields)
        checked = True
    except ValidationError:
        checked = False
    try:
        ready = engine_accepts(engine, unchecked(fields))
    except ValidationError:  # the wire's types refuse it before the engine
        ready = False
    assert (checked, ready) == (good, good)


WEBSOCKET_CASES: list[tuple[str, Any, bool]] = [
    *(("message_bytes_max", value, good) for value, good in ((0, False), (1, True), (2**30, True), (2**30 + 1, False))),
    *(("rejoin_after_ns", value, good) for value, good in (
        (999_999, False), (10**6, True), (DAY_NS, True), (DAY_NS + 1, False))),
    *(("headers", ((name, "x"),), good) for name, good in (
        ("Origin", True), ("Host", False), ("upgrade", False), ("Sec-WebSocket-Key", False), ("a b", False))),
    *(("subprotocols", (name,), good) for name, good in (("chat", True), ("a b", False))),
    *(("path", path, good) for path, good in (("/x?y=1", True), ("x", False), ("/a b", False))),
    *(("unsolicited", (text,), good) for text, good in (("a", True), ("", False))),
    *(("stamp_after", text, good) for text, good in (("a", True), ("", False))),
]  # fmt: skip


def crowd(pace_ns: int = 10**6) -> Load:
    return Load.model_validate(
        {"users": 1, "websocket": {}, "pace": {"constant": pace_ns}, "scenario": [{"name": "x", "message": "x"}]}
    )


@pytest.mark.parametrize(("field", "value", "good"), WEBSOCKET_CASES)
def test_both_sides_take_the_same_websockets(engine: Path, field: str, value: Any, good: bool) -> None:
    sound = crowd().websocket
    assert sound is not None
    try:
        WebSocket.model_validate({field: value})
        checked = True
    except ValidationError:
        checked = False
    unchecked_websocket = sound.model_copy(update={field: value})
    ready = engine_accepts(engine, crowd().model_copy(update={"websocket": unchecked_websocket}))
    assert (checked, ready) == (good, good)


def test_both_sides_take_the_same_shortest_pace(engine: Path) -> None:
    assert engine_accepts(engine, crowd(1000))
    with pytest.raises(ValidationError):
        crowd(999)
    shorter = crowd().model_copy(update={"pace": Load(users=1).think.model_copy(update={"ns": 999})})
    assert not engine_accepts(engine, shorter)
