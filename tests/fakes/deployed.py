"""Servers that a test starts itself, so that powerband finds them running."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.needs import need_root, without
from fakes.pages import ROOT
from powerband.processes.ports import pick_port, someone_listens

KNOB_SERVER = ROOT / "examples" / "knob_server.py"
SHORT = ("--duration", "300ms", "--warmup", "100ms", "--repeats", "2", "--confirm", "0", "--order", "blocks")
PAUSES = ("--think", "1ms")  # users that pause get no looks at slots, which take two seconds
KNOB = ("--apply", "POST /knob {n}")
OUTLASTING = ("--duration", "1s")  # a pause of the machine


@dataclass(frozen=True)
class RunningServer:
    process: subprocess.Popen[bytes]
    port: int
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/"

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def knob(self) -> int:
        with urllib.request.urlopen(f"{self.url}knob", timeout=10) as answer:
            return int(answer.read())


@contextmanager
def knob_server(
    n: int = 8, script: Path = KNOB_SERVER, port: int | None = None, machine: OtherMachine | None = None
) -> Iterator[RunningServer]:
    """Runs `examples/knob_server.py`, which serves best with n=8. `machine`: the machine it runs on; None: this one."""
    port, host = port or pick_port(), "127.0.0.1" if machine is None else machine.address
    inside = [] if machine is None else ["ip", "netns", "exec", machine.name]
    given = ["--host", host, "--port", str(port), "--n", str(n)]
    process = subprocess.Popen([*inside, sys.executable, str(script), *given], start_new_session=True)
    try:
        while not someone_listens(host, port):
            assert process.poll() is None, "the server of the test ended"
        yield RunningServer(process, port, host)
    finally:
        process.kill()
        process.wait()


def command(folder: Path, url: str, *options: str) -> list[str]:
    """The command that tunes a running server, with short trials: users wait at most 160 ms with n=1, 20 ms with n=8,
    so that each is served within a trial on a busy machine, too."""
    users = ("--users", "8", *PAUSES, "--runs", str(folder / "runs"), "--format", "json", "--no-progress")
    return [sys.executable, "-m", "powerband", "tune", "--url", url, *SHORT, *users, *options]


def tune(folder: Path, url: str, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Runs that command. Returns how it ended, and its analysis, which is empty if it printed none."""
    done = subprocess.run(command(folder, url, *options), capture_output=True, text=True, timeout=120, check=False)
    return done, json.loads(done.stdout) if done.stdout else {}


@dataclass(frozen=True)
class OtherMachine:
    """A network namespace, which counts as another host. `here`: the address of this machine's end of the cable."""

    name: str
    address: str
    here: str


@contextmanager
def other_machine() -> Iterator[OtherMachine]:
    """Yields a network namespace whose end of a cable has an address of RFC 2544, which no real host has, and no other
    test. Without root the test is skipped."""
    need_root()
    if shutil.which("ip") is None:
        without("ip (iproute2) is not installed")
    name, cable = f"pb{os.getpid()}m", f"pb{os.getpid()}c"
    net, at = divmod(os.getpid() % 2**14, 64)
    here, there = (f"198.19.{net}.{4 * at + end}" for end in (1, 2))
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        without(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        for words in (
            f"ip link add {cable} type veth peer name eth0 netns {name}",
            f"ip address add {here}/30 dev {cable}",
            f"ip link set {cable} up",
            f"ip -n {name} address add {there}/30 dev eth0",
            f"ip -n {name} link set eth0 up",
        ):
            subprocess.run(words.split(), check=True)
        yield OtherMachine(name, there, here)
    finally:
        # The kernel ends a namespace's end of a cable some time after the namespace, and with it the one here.
        subprocess.run(["ip", "link", "del", cable], check=False)
        subprocess.run(["ip", "netns", "del", name], check=True)
