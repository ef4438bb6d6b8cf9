"""What a link in user space is good for on this machine: how much later than theory a round trip is, and how much of
its rate a TCP stream gets, alone and while other programs keep all CPUs busy. Needs root.

Round trips are UDP packets of 64 bytes from one Python program to another and back, whose own time they hold too.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from powerband.processes.engine_process import Pump
from powerband.processes.stop_request import StopRequest
from powerband.trials.instruments.link import Link, link_up
from powerband.wire.link_messages import LinkSpec

TRIPS = 400
STREAM_S = 2.0
LINKS = [(0, None), (0, 10**9), (200_000, 10**8), (200_000, 10**9), (1_000_000, 10**9), (10_000_000, 10**8)]
PACKET_BYTES = 64
HEADER_BYTES = 14 + 20 + 8
SEGMENT_SHARE = 1448 / 1514  # of the wire's bytes, those of a TCP stream

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
    trips_ns: list[int]  # sorted
    stream_bits_per_s: float
    link: Link

    def line(self, load: str) -> str:
        facts = self.link.facts()
        rate, delay_ns = facts["rate_bits_per_s"], facts["delay_ns"]
        sending_ns = 0 if rate is None else (PACKET_BYTES + HEADER_BYTES) * 8e9 / rate
        theory_ns = 2 * (delay_ns + sending_ns)
        over = [(self.trips_ns[round(q * (len(self.trips_ns) - 1))] - theory_ns) / 1e3 for q in (0.0, 0.5, 0.99)]
        packets = facts["a_to_b"]["packets"] + facts["b_to_a"]["packets"]
        share = "" if rate is None else f"{self.stream_bits_per_s / (rate * SEGMENT_SHARE):.3f}"
        late = ["-" if facts[name] is None else f"{facts[name] / 1e3:,.0f}" for name in ("late_ns_p50", "late_ns_p99")]
        return (
            f"| {load} | {delay_ns / 1e6:g} ms | {'none' if rate is None else f'{rate / 1e6:,.0f} Mbit/s'} | "
            f"{over[0]:,.0f} / {over[1]:,.0f} / {over[2]:,.0f} | {' / '.join(late)} | "
            f"{self.stream_bits_per_s / 1e6:,.0f} | {share} | {facts['cpu_ns'] / 1e3 / max(1, packets):.1f} | "
            f"{facts['a_to_b']['missed']} |"
        )


def limits(engine: str, pairs: int) -> Iterator[str]:
    del pairs
    yield (
        "| CPUs | delay | rate | round trip over theory, least / p50 / p99, us | late p50 / p99, us | "
        "stream Mbit/s | of the rate | CPU us a packet | missed |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for load, spinning in (("idle", 0), ("busy", os.cpu_count() or 1)):
        for delay_ns, rate in LINKS:
            yield measured(Path(engine), LinkSpec(delay_ns=delay_ns, rate_bits_per_s=rate), spinning).line(load)


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
    return Found(trips, speed, link)


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
    """Bits a second that one TCP stream gets, its slow start and the time until all is acknowledged included."""
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
