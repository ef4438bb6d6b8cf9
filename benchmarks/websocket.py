"""Measures WebSocket load: CPU per message against peers, memory of waiting users, and a crowd of SocketCluster
users."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import kept_lines
from benchmarks.generators import PEERS, Generator, summary
from benchmarks.pairs import HEAD, Usage, compare, figure, row, run, spread, which, worst
from benchmarks.server import reference
from powerband.readings.fleet import MergedTimes
from powerband.trials.trial import pinned_to

GENERATOR_CPUS, SERVER_CPUS = {0}, {1}
EVENT_LOOP = ("--model", "event-loop", "--instances", "1", "--protocol")
ECHO = (*EVENT_LOOP, "websocket")
AT_MOST = {"k6": 0.4, "Artillery": 0.7}
USERS = 100
SECONDS = 8
IDLE_BYTES_MAX = 1536
MEASURED_USERS = 10_000
CROWD, PINGS_PER_S, JOINS_PER_S = 42_000, 7_000, 5_000
CROWD_CORES_MOST, CROWD_MB_MOST, PINGS_LEAST = 0.25, 300, 0.97
WAITING = 200_000
# Descriptors for connections of one process: the usual hard limit is 20,000, and its own files need some.
PER_PROCESS = 18_500
S = 10**9


def cpu_per_message(engine: str, pairs: int) -> Iterator[str]:
    """Echo ping-pong at 100 connections, every response time recorded, against each peer."""
    yield "| against | connections | ours us | theirs us | ratio | at most | |"
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
            result = compare(partial(message_us, engine, port), theirs, pairs)
            yield row(name, USERS, result, AT_MOST[name])
    yield from missing


def memory_per_user(engine: str, pairs: int) -> Iterator[str]:
    """(peak resident set at 10,000 connected users who have all been answered once - that at 1) / 9,999."""
    with reference(engine, SERVER_CPUS, *ECHO) as (port, _):
        found = [(_paced(engine, port, 1), _paced(engine, port, MEASURED_USERS)) for _ in range(pairs)]
    yield HEAD
    each = [(many["max_rss_bytes"] - one["max_rss_bytes"]) / (MEASURED_USERS - 1) for one, many in found]
    yield figure("of a user", each, "bytes", ",.0f", at_most=IDLE_BYTES_MAX)
    out = [MEASURED_USERS - many["websocket"]["joined"] for _, many in found]
    yield figure(f"not joined, of {MEASURED_USERS:,}", out, "", ",.0f", at_most=0)


def _paced(engine: str, port: int, users: int) -> Any:
    """The summary of a run with users who send a message every two seconds."""
    return summary(run(_load(engine), GENERATOR_CPUS, stdin=_spec(port, users, pace_s=2, seconds=6)))


def waiting_users(engine: str, pairs: int) -> Iterator[str]:
    """200,000 WebSockets to the reference server, both ends on this machine; each user sends a message per minute."""
    found = [_waiting(engine) for _ in range(pairs)]
    yield HEAD
    for name in ("not joined", "dropped", "messages lost"):
        yield figure(name, [one[name] for one in found], "", ",.0f", at_most=0)
    yield figure("messages answered", [one["answered"] for one in found], "", ",.0f")
    for name in ("engine", "server", "kernel, both ends"):
        yield figure(f"of a connection: {name}", [one[name] / WAITING for one in found], "bytes", ",.0f")


def _waiting(engine: str) -> dict[str, float]:
    """Counts of one start, and the memory of all its connections in bytes."""
    before = _kernel_bytes()
    spec = {"pace_s": 60, "seconds": 60, "ramp_s": 30, "warmup_s": 35}
    with _held(engine, WAITING, "websocket", ({0, 1}, {0, 1}), spec) as (servers, engines):
        time.sleep(60)  # all have joined, none has left
        kernel = _kernel_bytes() - before
        server_bytes = sum(map(_resident_bytes, servers))
        told = [_last_words(process) for process in engines]
    joined = sum(one["websocket"]["joined"] for one in told)
    drops = sum(sum(one["websocket"]["drops"].values()) for one in told)
    outcomes = _outcomes(told)
    return {
        "not joined": WAITING - joined,
        "dropped": drops,
        "messages lost": outcomes.total() - outcomes["ok"],
        "answered": outcomes["ok"],
        "engine": sum(one["max_rss_bytes"] for one in told),
        "server": server_bytes,
        "kernel, both ends": kernel,
    }


def crowd(engine: str, pairs: int) -> Iterator[str]:
    """42,000 SocketCluster users who send 7,000 pings a second in total. They join the real servers at 160 a second,
    and the reference server at 5,000 a second, which is more than the real servers could accept."""
    found: dict[tuple[str, str], list[Crowd]] = {}
    for _ in range(pairs):
        for server, one in _published_crowds():
            found.setdefault((server, "160/s"), []).append(one)
        found.setdefault(("reference", f"{JOINS_PER_S:,}/s"), []).append(_reference_crowd(engine))
    yield (
        "| server | joining | starts | joined | failed | fleet's CPU, of a core | its memory | pings/s "
        "| send lag p99 | |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for (server, rate), starts in found.items():
        yield crowd_row(server, rate, starts)
    yield (
        f"\ntargets: all joined, at most {CROWD_CORES_MOST:.0%} of a core and {CROWD_MB_MOST} MB, at least "
        f"{PINGS_LEAST:.0%} of {PINGS_PER_S:,} pings a second"
    )


@dataclass(frozen=True)
class Crowd:
    """The figures of one start: users who joined, reasons why others did not, and what the fleet used."""

    joined: int
    failures: Mapping[str, int]
    cores: float
    memory_mb: float
    pings_per_s: float
    lag_ms: float

    @classmethod
    def of(cls, engines: list[Mapping[str, Any]], cores: float) -> Crowd:
        window_s = (engines[0]["measure_end_ns"] - engines[0]["measure_start_ns"]) / S
        return cls(
            joined=sum(one["websocket"]["joined"] for one in engines),
            failures=sum((Counter(one["websocket"]["joins_failed"]) for one in engines), Counter[str]()),
            cores=cores,
            memory_mb=sum(one["max_rss_bytes"] for one in engines) / 1e6,
            pings_per_s=sum(sum(one["window"]["outcomes"].values()) for one in engines) / window_s,
            lag_ms=MergedTimes(one["cohort_times"]["send_lag_ns"] for one in engines).quantile(0.99) / 1e6,
        )


def _published_crowds() -> Iterator[tuple[str, Crowd]]:
    """The id of each setting whose start was measured, and its crowd."""
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as runs:
        command = [
            sys.executable, "-m", "powerband", "run", "socketcluster-concurrency", "--profile", "published",
            "--format", "json", "--runs", runs, "--set", "measure.repeats=1", "--set", "measure.retries=0",
            "--set", "load.duration=30s", "--set", "claims=[]", "--set", "published=[]",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if not done.stdout:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
        for trial in json.loads(done.stdout)["trials"]:
            record = next(Path(runs).glob(f"*/trials/{trial['number']:04d}/record.json"), None)
            if record is not None and trial["status"] == "measured":
                engines = json.loads(record.read_text())["engines"]
                yield trial["setting"]["id"], Crowd.of(engines, trial["metrics"]["engine_cpu_cores"])


def _reference_crowd(engine: str) -> Crowd:
    spec = {"seconds": 30, "ramp_s": CROWD / JOINS_PER_S, "warmup_s": 15, "crowd": True}
    with _held(engine, CROWD, "socketcluster", (SERVER_CPUS, GENERATOR_CPUS), spec) as (_, processes):
        engines = [_last_words(process) for process in processes]
    used_ns = sum(one["cpu_user_ns"] + one["cpu_system_ns"] for one in engines)
    return Crowd.of(engines, used_ns / max(one["end_ns"] - one["go_ns"] for one in engines))


@kept_lines.row
def crowd_row(server: str, rate: str, starts: Sequence[Crowd]) -> str:
    joined, cores, memory, pings, lag = (
        spread([getattr(one, name) for one in starts])
        for name in ("joined", "cores", "memory_mb", "pings_per_s", "lag_ms")
    )
    failures = sum((Counter(one.failures) for one in starts), Counter[str]())
    failed = ", ".join(f"{count} {reason}" for reason, count in failures.most_common()) or "0"
    verdict = worst(
        (
            spread([CROWD - one.joined for one in starts]).verdict(at_most=0),
            cores.verdict(at_most=CROWD_CORES_MOST),
            memory.verdict(at_most=CROWD_MB_MOST),
            pings.verdict(at_least=PINGS_LEAST * PINGS_PER_S),
        )
    )
    return (
        f"| {server} | {rate} | {len(starts)} | {joined.text(',.0f')} | {failed} | {cores.text('.1%')} "
        f"| {memory.text('.0f')} MB | {pings.text(',.0f')} | {lag.text('.2f')} ms | {verdict} |"
    )


@contextmanager
def _held(
    engine: str, users: int, protocol: str, cpus: tuple[set[int], set[int]], spec: Mapping[str, Any]
) -> Iterator[tuple[list[int], list[subprocess.Popen[str]]]]:
    """Yields the pids of reference servers, which run on the first of `cpus`, and their load engines, on the second.
    There is a pair for each share of the users that one process can hold."""
    processes = -(-users // PER_PROCESS)
    shares = [users // processes + (index < users % processes) for index in range(processes)]
    with ExitStack() as stack:
        servers = [stack.enter_context(reference(engine, cpus[0], *EVENT_LOOP, protocol)) for _ in shares]
        pairs = zip(servers, shares, strict=True)
        engines = [_started(engine, _spec(port, share, **spec), cpus[1]) for (port, _), share in pairs]
        yield [pid for _, pid in servers], engines


def _load(engine: str) -> list[str]:
    return [engine, "load"]


def _spec(
    port: int,
    users: int,
    *,
    pace_s: float = 0,
    seconds: float = SECONDS,
    ramp_s: float = 0,
    warmup_s: float = 1,
    crowd: bool = False,
) -> str:
    """A `LoadSpec` (protocol/load-spec.schema.json) whose run starts at once. `crowd`: users send SocketCluster's pings
    at random times."""
    model: dict[str, Any] = {"kind": "closed", "users": users, "ramp_ns": round(ramp_s * S)}
    message: dict[str, Any] = {"kind": "text", "text": "hello"}
    if pace_s:
        model["pace"] = {"kind": "constant", "ns": round(pace_s * S)}
    if crowd:
        model["pace"] = {"kind": "exponential", "mean_ns": round(CROWD / PINGS_PER_S * S)}
        message = {"kind": "event", "event": "ping", "data": '{"hello":"server"}', "answer": "ping"}
    spec = {
        "protocol": 1,
        # connect() becomes slow beyond some 14,000 connections from one address to one port.
        "target": {"url": f"http://127.0.0.1:{port}", "source_addresses": ["127.0.0.2", "127.0.0.3"]},
        "scenario": [{"name": "echo", "message": message}],
        "model": model,
        "connection": {"websocket": {"dialect": "socketcluster20"} if crowd else {}},
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


def message_us(engine: str, port: int) -> float:
    """CPU of the engine per answered message, in us."""
    usage = run(_load(engine), GENERATOR_CPUS, stdin=_spec(port, USERS))
    answered = int(summary(usage)["total"]["outcomes"]["ok"])
    return usage.cpu_s / answered * 1e6


def _outcomes(told: list[Any]) -> Counter[str]:
    return sum((Counter(one["total"]["outcomes"]) for one in told), Counter[str]())


def _started(engine: str, spec: str, cpus: set[int]) -> subprocess.Popen[str]:
    """Starts an engine and gives it its spec. Its stdin stays open, because the engine takes the end of stdin for the
    end of its controller."""
    with pinned_to(tuple(cpus)):
        process = subprocess.Popen(_load(engine), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(spec)
    process.stdin.flush()
    return process


def _last_words(process: subprocess.Popen[str]) -> Any:
    """The summary of an engine. Its stdin stays open until it has ended by itself."""
    assert process.stdout is not None and process.stdin is not None
    *_, summary_line = process.stdout.read().splitlines()
    process.stdin.close()
    process.wait(timeout=10)
    return json.loads(summary_line)


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
        del seconds  # the script sets the seconds
        return [
            program, "run", "--no-usage-report", "--no-color", "--vus", str(connections), "--iterations",
            str(connections), "-e", f"URL=ws://127.0.0.1:{port}/", str(script),
        ]  # fmt: skip

    return Generator("k6", argv, lambda usage: _count(r"ws_msgs_received[. ]*:\s*(\d+)", usage), SECONDS)


def _artillery(program: str) -> Generator:
    folder = Path(tempfile.mkdtemp(prefix="powerband-artillery-"))
    loops = 5_000  # enough to dilute the start-up

    def argv(port: int, connections: int, seconds: int) -> list[str]:
        del seconds  # the run takes as long as the messages take
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
    """Bytes that the kernel uses: slabs, and the buffers of TCP."""
    memory = {
        line.split(":")[0]: int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines()
    }
    sockets = Path("/proc/net/sockstat").read_text()
    match = re.search(r"^TCP:.* mem (\d+)", sockets, re.MULTILINE)
    return memory["Slab"] + (int(match[1]) * 4096 if match else 0)
