"""How long compilers worked lately, from what a JVM tells of itself and what its threads did."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest

from powerband.processes.probe_process import RunningProbe

S = 10**9


def probe(*events: dict[str, Any]) -> RunningProbe:
    nothing: Any = None
    made = RunningProbe(nothing, BytesIO(), 1.0)  # type: ignore[arg-type]
    for event in events:
        made.on_line(json.dumps(event, separators=(",", ":")).encode())
    return made


def jvm(at_s: float, compiled_s: float) -> dict[str, Any]:
    return {"type": "jvm", "pid": 7, "at_ns": round(at_s * S), "compile_ns": round(compiled_s * S)}


def threads(at_s: float, pool: str, on_cpu_s: float, run_wait_s: float = 0.0, tree: str = "subject") -> dict[str, Any]:
    used = {"pool": pool, "on_cpu_ns": round(on_cpu_s * S), "run_wait_ns": round(run_wait_s * S)}
    other = {"pool": "java", "on_cpu_ns": round(at_s * S), "run_wait_ns": 0}
    return {"type": "threads", "at_ns": round(at_s * S), "tree": tree, "pools": [used, other]}


def test_what_a_jvm_tells_counts_where_no_thread_is_known() -> None:
    assert probe().compile_share(2 * S) == 0
    assert probe(jvm(0, 5), jvm(1, 5), jvm(2, 5.5), jvm(3, 6)).compile_share(2 * S) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["C2 CompilerThre", "C1 Com..hread0", ".NET Tiered Com"])
def test_a_method_that_takes_long_to_compile_is_seen_before_it_counts(name: str) -> None:
    """The compiler waits for a CPU most of the time: threads of the server have it."""
    told = [jvm(at_s, 8.0) for at_s in range(7)]
    seen = [threads(at_s, name, 0.1 * at_s, 0.9 * at_s) for at_s in range(7)]
    assert probe(*told, *seen).compile_share(2 * S) == pytest.approx(1.0)


def test_a_compiler_that_is_done_is_done_however_long_it_worked() -> None:
    seen = [threads(at_s, "C2 CompilerThre", min(at_s, 4)) for at_s in range(8)]
    assert probe(*seen).compile_share(2 * S) == 0


def test_other_threads_and_other_programs_compile_nothing() -> None:
    seen = [threads(at_s, "http-nio", at_s) for at_s in range(4)]
    beside = [threads(at_s, "C2 CompilerThre", at_s, tree="jmeter") for at_s in range(4)]
    assert probe(*seen, *beside).compile_share(2 * S) == 0
