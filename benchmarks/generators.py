"""The load generators that are compared: how each is started against a URL, and how many requests it reports as
completed."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pairs import Usage, run, which
from powerband.base.errors import PowerbandError
from powerband.loads.jmeter.install import JMeter, installed_jmeter
from powerband.processes.stop_request import StopRequest

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".tools" / "peers"


@dataclass(frozen=True)
class Generator:
    """A load generator. `argv(port, connections, seconds)`: the command; `requests(usage)`: the number of requests it
    completed."""

    name: str
    argv: Callable[[int, int, int], list[str]]
    requests: Callable[[Usage], int]
    seconds: int

    def cpu_us_per_request(self, port: int, connections: int, cpus: set[int]) -> float:
        """CPU per request of one run. The CPU of start-up (the JVM's, for one) is included, as a user pays it;
        `seconds` is long enough to dilute it."""
        usage = self.usage(port, connections, cpus)
        return usage.cpu_s / self.requests(usage) * 1e6

    def usage(self, port: int, connections: int, cpus: set[int]) -> Usage:
        return run(self.argv(port, connections, self.seconds), cpus)


def ours(engine: str, seconds: int = 4, extra: tuple[str, ...] = ()) -> Generator:
    return Generator(
        "powerband",
        lambda port, connections, s: [
            engine, "load", url(port), "-c", str(connections), "-t", "1", "-d", f"{s}s", "--json", *extra,
        ],
        lambda usage: summary(usage)["total"]["outcomes"].get("ok", 0),
        seconds,
    )  # fmt: skip


def summary(usage: Usage) -> dict[str, Any]:
    """The last JSON line of the engine's output, parsed."""
    told: dict[str, Any] = json.loads(usage.stdout.strip().splitlines()[-1])
    return told


def peers() -> tuple[list[Generator], list[str]]:
    """The installed generators, and a sentence for each that is not installed."""
    found: list[Generator] = []
    missing: list[str] = []
    for name, make in (("wrk", _wrk), ("oha", _oha), ("k6", _k6)):
        program = which(name, PEERS / "bin")
        if program is None:
            missing.append(f"{name} is not installed: run `make bench-peers`")
        else:
            found.append(make(program))
    try:
        with StopRequest.on_signals() as stop:
            found.append(_jmeter(installed_jmeter(stop)))
    except PowerbandError as error:
        missing.append(str(error))
    return found, missing


def wrk() -> Generator | None:
    """wrk as a generator; None if it is not installed."""
    program = which("wrk", PEERS / "bin")
    return None if program is None else _wrk(program)


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/"


def _wrk(program: str) -> Generator:
    return Generator(
        "wrk",
        lambda port, connections, s: [program, "-t1", f"-c{connections}", f"-d{s}s", "--latency", url(port)],
        lambda usage: int(_search(r"(\d+) requests in", usage.stdout)),
        4,
    )


def _oha(program: str) -> Generator:
    def count(usage: Usage) -> int:
        return sum(json.loads(usage.stdout)["statusCodeDistribution"].values())

    def argv(port: int, connections: int, s: int) -> list[str]:
        return [program, "-z", f"{s}s", "-c", str(connections), "--no-tui", "--output-format", "json", url(port)]

    return Generator("oha", argv, count, 4)


def _k6(program: str) -> Generator:
    script = Path(tempfile.mkdtemp(prefix="powerband-k6-")) / "script.js"
    script.write_text(
        "import http from 'k6/http';\nexport const options = { discardResponseBodies: true };\n"
        "export default function () { http.get(__ENV.URL); }\n"
    )
    return Generator(
        "k6",
        lambda port, connections, s: [
            program, "run", "--no-usage-report", "--no-color", "--vus", str(connections), "--duration", f"{s}s",
            "-e", f"URL={url(port)}", str(script),
        ],
        lambda usage: int(_search(r"http_reqs[. ]*:\s*(\d+)", usage.stdout)),
        8,
    )  # fmt: skip


def _jmeter(jmeter: JMeter) -> Generator:
    def argv(port: int, connections: int, s: int) -> list[str]:
        log = tempfile.mkdtemp(prefix="powerband-jmeter-")
        return [
            str(jmeter.jdk.java), "-Xmx1g", "-cp", str(jmeter.jar), "org.apache.jmeter.NewDriver", "-n",
            "-t", str(ROOT / "benchmarks/jmeter/plan.jmx"), f"-Jport={port}",
            f"-Jseconds={s}", f"-Jusers={connections}", "-l", f"{log}/results.jtl", "-j", f"{log}/jmeter.log",
        ]  # fmt: skip

    return Generator("JMeter", argv, lambda usage: int(re.findall(r"summary =\s*(\d+) in", usage.stdout)[-1]), 20)


def _search(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"no {pattern!r} in the output: {text[-400:]}")
    return match[1]
