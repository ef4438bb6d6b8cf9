"""WebSocket load: CPU per message against peers, memory of users that wait, and a crowd of SocketCluster users."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.generators import PEERS, Generator, summary
from benchmarks.pairs import Usage, compare, run, which
from benchmarks.server import reference
from powerband.run.trial import pinned_to

GENERATOR_CPUS, SERVER_CPUS = {0}, {1}
ECHO = ("--model", "event-loop", "--instances", "1", "--protocol", "websocket")
AT_MOST = {"k6": 0.4, "Artillery": 0.7}
USERS = 100
SECONDS = 8
IDLE_BYTES_MAX = 1536
CROWD, PINGS_PER_S = 42_000, 7_000
WAITING = 200_000
# What one process may open on a machine with the usual hard limit of 20,000, with room for its own files.
PER_PROCESS = 18_500
S = 10**9


def cpu_per_message(engine: str, pairs: int) -> Iterator[str]:
    """Echo ping-pong at 100 connections, every response time recorded, against each peer."""
    yield "| against | connections | ours us | theirs us | ratio (range) | at most | |"
    yield "|---|---|---|---|---|---|---|"
    missing = []
    with reference(engine, SERVER_CPUS, *ECHO) as (port, _):
        for name, make in (("k6", _k6), ("Artillery", _artillery)):
            program = which(name.lower(), PEERS / "bin")
            if program is None:
                missing.append(f"skipped: {name} is not installed: run `make bench-peers`")
                continue
            peer = make(program)
            theirs = partial(peer.cpu_us_per_request, port, USERS, GENERATOR_CPUS)
            result = compare(partial(_ours_us, engine, port), theirs, pairs)
            met = "met" if result.ratio <= AT_MOST[name] else "NOT met"
            yield (
                f"| {name} | {USERS} | {result.ours:.2f} | {result.theirs:.2f} | {result.ratio:.3f} "
                f"({result.ratio_low:.3f}-{result.ratio_high:.3f}) | {AT_MOST[name]:.3f} | {met} |"
            )
    yield from missing


def memory_per_user(engine: str, pairs: int) -> Iterator[str]:
    """(peak resident set at 10,000 connected users who have all been answered once - at 1) / 9,999."""
    del pairs
    with reference(engine, SERVER_CPUS, *ECHO) as (port, _):
        many, one = (
            summary(run(_load(engine), GENERATOR_CPUS, stdin=_spec(port, users, pace_s=2, seconds=6)))
            for users in (10_000, 1)
        )
    each = (many["max_rss_bytes"] - one["max_rss_bytes"]) / 9_999
    met = "met" if each <= IDLE_BYTES_MAX and many["websocket"]["joined"] == 10_000 else "NOT met"
    yield f"{each:,.0f} bytes a user ({many['websocket']['joined']:,} joined); target at most {IDLE_BYTES_MAX}: {met}"


def waiting_users(engine: str, pairs: int) -> Iterator[str]:
    """200,000 WebSockets to the reference server, both ends on this machine, a message a minute each."""
    del pairs
    processes = -(-WAITING // PER_PROCESS)
    before = _kernel_bytes()
    with ExitStack() as stack:
        servers = [stack.enter_context(reference(engine, {0, 1}, *ECHO)) for _ in range(processes)]
        shares = [WAITING // processes + (index < WAITING % processes) for index in range(processes)]
        specs = [
            _spec(port, users, pace_s=60, seconds=60, ramp_s=30, warmup_s=35)
            for (port, _), users in zip(servers, shares, strict=True)
        ]
        engines = [_started(engine, spec) for spec in specs]
        time.sleep(60)  # all have joined, none has left
        kernel = _kernel_bytes() - before
        server_bytes = sum(_resident_bytes(pid) for _, pid in servers)
        told = [json.loads(process.communicate(timeout=300)[0].strip().splitlines()[-1]) for process in engines]
    joined = sum(one["websocket"]["joined"] for one in told)
    drops = sum(sum(one["websocket"]["drops"].values()) for one in told)
    lost = sum(count for one in told for kind, count in one["total"]["outcomes"].items() if kind != "ok")
    answered = sum(one["total"]["outcomes"].get("ok", 0) for one in told)
    engine_bytes = sum(one["max_rss_bytes"] for one in told)
    yield f"{joined:,} joined, {drops:,} dropped, {answered:,} messages answered, {lost:,} lost"
    yield (
        f"bytes a connection: engine {engine_bytes / WAITING:,.0f}, server {server_bytes / WAITING:,.0f}, kernel (both "
        f"ends) {kernel / WAITING:,.0f}"
    )
    yield f"target: none lost: {'met' if joined == WAITING and drops == lost == 0 else 'NOT met'}"


def crowd(engine: str, pairs: int) -> Iterator[str]:
    """42,000 SocketCluster users who join at 160 and at 5,000 a second, then send 7,000 pings a second in all."""
    del engine, pairs
    yield "| joining | joined | failed | fleet's CPU, of a core | its memory | pings/s | send lag p99 | |"
    yield "|---|---|---|---|---|---|---|---|"
    for rate in ("160/s", "5000/s"):
        with tempfile.TemporaryDirectory(prefix="powerband-bench-") as runs:
            command = [
                sys.executable, "-m", "powerband", "run", "socketcluster-concurrency", "--profile", "published",
                "--format", "json", "--runs", runs, "--set", f"load.join={rate}", "--set", "measure.repeats=1",
                "--set", "load.duration=30s", "--set", "claims=[]", "--set", "published=[]",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
            if not done.stdout:
                raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
            for trial in json.loads(done.stdout)["trials"]:
                record = next(Path(runs).glob(f"*/trials/{trial['number']:04d}/record.json"), None)
                if record is not None and trial["status"] == "measured":
                    yield _crowd_row(rate, trial["metrics"], json.loads(record.read_text())["engines"])


def _crowd_row(rate: str, metrics: Mapping[str, float], engines: list[Mapping[str, Any]]) -> str:
    joined = sum(one["websocket"]["joined"] for one in engines)
    failed = sum(sum(one["websocket"]["joins_failed"].values()) for one in engines)
    memory = sum(one["max_rss_bytes"] for one in engines)
    cores = metrics["engine_cpu_cores"]
    pings = metrics["achieved_rate_per_s"]
    met = joined == CROWD and failed == 0 and cores < 0.25 and memory < 300e6 and pings > 0.97 * PINGS_PER_S
    return (
        f"| {rate} | {joined:,} | {failed} | {100 * cores:.1f} % | {memory / 1e6:.0f} MB | {pings:,.0f} "
        f"| {metrics['send_lag_ns_p99'] / 1e6:.2f} ms | {'met' if met else 'NOT met'} |"
    )


def _load(engine: str) -> list[str]:
    return [engine, "load"]


def _spec(
    port: int, users: int, *, pace_s: float = 0, seconds: float = SECONDS, ramp_s: float = 0, warmup_s: float = 1
) -> str:
    """A `LoadSpec` (protocol/load-spec.schema.json) that starts at once."""
    model: dict[str, Any] = {"kind": "closed", "users": users, "ramp_ns": round(ramp_s * S)}
    if pace_s:
        model["pace"] = {"kind": "constant", "ns": round(pace_s * S)}
    spec = {
        "protocol": 1,
        # From one address to one port connect() is slow past some 14,000.
        "target": {"url": f"http://127.0.0.1:{port}", "source_addresses": ["127.0.0.2", "127.0.0.3"]},
        "scenario": [{"name": "echo", "message": {"kind": "text", "text": "hello"}}],
        "model": model,
        "connection": {"websocket": {}},
        "timeouts": {"connect_ns": 30 * S, "request_ns": 30 * S},
        "phases": {
            "warmup_ns": round(warmup_s * S),
            "measure_ns": round(seconds * S),
            "drain_ns": 10 * S,
            "deadline_ns": round((warmup_s + seconds + 30) * S),
            "go_at_once": True,
        },
        "precision_ns": 1_000_000,
    }
    return json.dumps(spec) + "\n"


def _ours_us(engine: str, port: int) -> float:
    usage = run(_load(engine), GENERATOR_CPUS, stdin=_spec(port, USERS))
    answered = int(summary(usage)["total"]["outcomes"]["ok"])
    return usage.cpu_s / answered * 1e6


def _started(engine: str, spec: str) -> subprocess.Popen[str]:
    """An engine that has been given its spec; its end of stdin stays open, which it takes for its controller's life."""
    with pinned_to((0, 1)):
        process = subprocess.Popen(_load(engine), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(spec)
    process.stdin.flush()
    return process


def _k6(program: str) -> Generator:
    script = Path(tempfile.mkdtemp(prefix="powerband-k6-")) / "script.js"
    script.write_text(
        "import ws from 'k6/ws';\n"
        "export default function () {\n"
        "  ws.connect(__ENV.URL, {}, function (socket) {\n"
        "    socket.on('open', () => socket.send('hello'));\n"
        "    socket.on('message', () => socket.send('hello'));\n"
        f"    socket.setTimeout(() => socket.close(), {SECONDS * 1000});\n"
        "  });\n}\n"
    )

    def argv(port: int, connections: int, seconds: int) -> list[str]:
        del seconds  # the script's own
        return [
            program, "run", "--no-usage-report", "--no-color", "--vus", str(connections), "--iterations",
            str(connections), "-e", f"URL=ws://127.0.0.1:{port}/", str(script),
        ]  # fmt: skip

    return Generator("k6", argv, lambda usage: _count(r"ws_msgs_received[. ]*:\s*(\d+)", usage), SECONDS)


def _artillery(program: str) -> Generator:
    folder = Path(tempfile.mkdtemp(prefix="powerband-artillery-"))
    loops = 5_000  # long enough to dilute its start

    def argv(port: int, connections: int, seconds: int) -> list[str]:
        del seconds  # as long as the messages take
        plan = {
            "config": {
                "target": f"ws://127.0.0.1:{port}/",
                "phases": [{"duration": 1, "arrivalCount": connections}],
            },
            "scenarios": [
                {
                    "engine": "ws",
                    "flow": [
                        {
                            "loop": [{"send": {"payload": "hello", "capture": [{"regexp": "(.*)", "as": "echo"}]}}],
                            "count": loops,
                        }
                    ],
                }
            ],
        }
        file = folder / "plan.json"
        file.write_text(json.dumps(plan))
        return [program, "run", "--quiet", "--output", str(folder / "report.json"), str(file)]

    def count(usage: Usage) -> int:
        del usage
        counters = json.loads((folder / "report.json").read_text())["aggregate"]["counters"]
        return int(counters["websocket.messages_sent"])

    return Generator("Artillery", argv, count, SECONDS)


def _count(pattern: str, usage: Usage) -> int:
    match = re.search(pattern, usage.stdout)
    if match is None:
        raise RuntimeError(f"no {pattern!r} in the output: {usage.stdout[-400:]}")
    return int(match[1])


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmRSS:\s*(\d+) kB", status)
    return int(match[1]) * 1024 if match else 0


def _kernel_bytes() -> int:
    """What the kernel holds: slabs, and the buffers of TCP."""
    memory = {
        line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines()
    }
    sockets = Path("/proc/net/sockstat").read_text()
    match = re.search(r"^TCP:.* mem (\d+)", sockets, re.MULTILINE)
    return memory["Slab"] + (int(match[1]) * 4096 if match else 0)
