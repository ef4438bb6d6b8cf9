"""Measures how well a link in user space works on this machine: how much longer than theory a round trip takes, and
what share of the link's rate a TCP stream gets, alone and while other programs keep all CPUs busy. Needs root.

Round trips are UDP packets of 64 bytes between two Python programs, whose own time is included.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import kept_lines
from benchmarks.pairs import spread
from powerband.analyze.trial.instruments import LATE_SHARE, SHORT_DELAY_NS
from powerband.processes.engine_process import Pump
from powerband.processes.stop_request import StopRequest
from powerband.trials.instruments.link import link_up
from powerband.wire.link_messages import LinkSpec

TRIPS = 400
STREAM_S = 2.0
LINKS = [(0, None), (0, 10**9), (200_000, 10**8), (200_000, 10**9), (1_000_000, 10**9), (10_000_000, 10**8)]
PACKET_BYTES = 64
HEADER_BYTES = 14 + 20 + 8
SEGMENT_SHARE = 1448 / 1514  # payload of a TCP stream, of the bytes on the wire

FAR = """
import socket, sys, threading
address = sys.argv[1]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((address, 7))
def echo():
    while True:
        data, sender = udp.recvfrom(2048)
        udp.sendto(data, sender)
threading.Thread(target=echo, daemon=True).start()
with socket.create_server((address, 9)) as server:
    print("ready", flush=True)
    stream, _ = server.accept()
    while stream.recv(1 << 20):
        pass
"""
BUSY = "while True: pass"


@dataclass(frozen=True)
class Found:
    """The results of one link: how much longer than theory its round trips took, what a stream got, and what the link
    reports of itself. `late_us` is None if the kernel's netem makes the link, which reports no lateness."""

    over_us: tuple[float, float, float]  # least, p50, p99
    stream_mbit: float
    late_us: tuple[float, float] | None  # p50, p99
    cpu_us: float  # per packet
    missed: int


def limits(engine: str, pairs: int) -> Iterator[str]:
    cases = [
        (load, spinning, *link) for load, spinning in (("idle", 0), ("busy", os.cpu_count() or 1)) for link in LINKS
    ]
    rounds = [
        [
            measured(Path(engine), LinkSpec(delay_ns=delay_ns, rate_bits_per_s=rate), spinning)
            for _, spinning, delay_ns, rate in cases
        ]
        for _ in range(pairs)
    ]
    yield (
        "| CPUs | delay | rate | round trip over theory, p50 / p99, us | late p99, us | at most | "
        "| stream, of the rate | CPU us a packet | missed, most |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for (load, _, delay_ns, rate), found in zip(cases, zip(*rounds, strict=True), strict=True):
        yield line(load, delay_ns, rate, found)
    yield "\nlate at most: what a trial bears without the note `link_late`"


@kept_lines.row
def line(load: str, delay_ns: int, rate: int | None, found: Sequence[Found]) -> str:
    """A line of the table, with medians over links of the same kind."""

    def middle(values: Iterable[float], form: str) -> str:
        return spread(list(values)).text(form)

    over = " / ".join(
        f"{spread(column).middle:,.0f}" for column in zip(*(one.over_us[1:] for one in found), strict=True)
    )
    if rate is None:
        carried = f"{middle((one.stream_mbit for one in found), ',.0f')} Mbit/s"
    else:
        carried = middle((one.stream_mbit * 1e6 / (rate * SEGMENT_SHARE) for one in found), ".3f")
    late = [one.late_us for one in found if one.late_us is not None]
    told = ["-", "", ""]
    if late:
        most_us = LATE_SHARE * max(delay_ns, SHORT_DELAY_NS) / 1e3
        tails = spread([p99 for _, p99 in late])
        told = [tails.text(",.0f"), f"{most_us:,.0f}", tails.verdict(at_most=most_us)]
    return (
        f"| {load} | {delay_ns / 1e6:g} ms | {'none' if rate is None else f'{rate / 1e6:,.0f} Mbit/s'} | {over} | "
        f"{' | '.join(told)} | {carried} | "
        f"{middle((one.cpu_us for one in found), '.1f')} | {max(one.missed for one in found):,} |"
    )


def found_of(trips_ns: Sequence[int], stream_bits_per_s: float, facts: Mapping[str, Any]) -> Found:
    """The results from raw figures. `trips_ns`: sorted; `facts`: the summary of the link once it has ended."""
    rate = facts["rate_bits_per_s"]
    sending_ns = 0 if rate is None else (PACKET_BYTES + HEADER_BYTES) * 8e9 / rate
    theory_ns = 2 * (facts["delay_ns"] + sending_ns)
    least, half, tail = ((trips_ns[round(q * (len(trips_ns) - 1))] - theory_ns) / 1e3 for q in (0.0, 0.5, 0.99))
    p50, p99 = facts["late_ns_p50"], facts["late_ns_p99"]
    packets = facts["a_to_b"]["packets"] + facts["b_to_a"]["packets"]
    return Found(
        over_us=(least, half, tail),
        stream_mbit=stream_bits_per_s / 1e6,
        late_us=None if p50 is None or p99 is None else (p50 / 1e3, p99 / 1e3),
        cpu_us=facts["cpu_ns"] / 1e3 / max(1, packets),
        missed=facts["a_to_b"]["missed"],
    )


def measured(engine: Path, spec: LinkSpec, spinning: int) -> Found:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for _ in range(spinning):
            stack.enter_context(running([sys.executable, "-c", BUSY]))
        pump = stack.enter_context(Pump(StopRequest()))
        with link_up(engine, spec, Path(folder) / "log", pump) as link:
            ends = link.given()
            far = ["nsenter", f"--net={ends['link_b']}", sys.executable, "-c", FAR, ends["link_b_address"]]
            with running(far) as process:
                assert process.stdout is not None and process.stdout.readline() == b"ready\n"
                trips = round_trips(ends["link_b_address"])
                speed = stream(ends["link_b_address"])
    return found_of(trips, speed, link.facts())


def round_trips(address: str) -> list[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5)
        udp.connect((address, 7))
        took = []
        for _ in range(TRIPS):
            begun_ns = time.monotonic_ns()
            udp.send(b"x" * PACKET_BYTES)
            udp.recv(2048)
            took.append(time.monotonic_ns() - begun_ns)
    return sorted(took)


def stream(address: str) -> float:
    """Bits per second that one TCP stream gets, including its slow start and the time until all is acknowledged."""
    block = b"x" * (1 << 16)
    with socket.create_connection((address, 9)) as tcp:
        begun, sent = time.monotonic(), 0
        while time.monotonic() < begun + STREAM_S:
            sent += tcp.send(block)
        tcp.shutdown(socket.SHUT_WR)
        tcp.recv(1)  # the other end closes once it has read everything
        return 8 * sent / (time.monotonic() - begun)


@contextmanager
def running(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
