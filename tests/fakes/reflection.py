"""Actors that reflect messages for ever (subjects `pekko`, `akka-net`), started without the bench, and their metrics
page and last log line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from powerband.model.experiment import Subject
from powerband.model.plan import Level, Setting
from powerband.model.subjects import BUILT_IN, render_command, render_env, render_text
from powerband.processes.ports import pick_ports
from powerband.processes.toolchain import build_once, given_values

READY_S = 60
FINAL_S = 60


@dataclass(frozen=True)
class Built:
    """A subject that is built. `given`: the values of its placeholders."""

    subject: Subject
    given: Mapping[str, str]

    def command(self, page_port: int = 0, statsd_port: int = 0, **levels: Level) -> list[str]:
        ports = {"metrics_port": str(page_port), "statsd_port": str(statsd_port)}
        return render_command(self.subject, Setting(tuple(levels.items())), {**self.given, **ports})

    def env(self) -> dict[str, str]:
        return {**os.environ, **render_env(self.subject, Setting(()), self.given)}

    @contextmanager
    def playing(self, log: Path, statsd_port: int = 0, **levels: Level) -> Iterator[Playing]:
        """Starts the subject, and yields once it says that it is ready. `log`: the file of its output."""
        (port,) = pick_ports(1)
        with log.open("w") as out:
            process = subprocess.Popen(
                self.command(port, statsd_port, **levels),
                stdout=out, stderr=out, text=True, start_new_session=True, env=self.env(),
            )  # fmt: skip
        try:
            deadline = time.monotonic() + READY_S
            while "ready: " not in log.read_text():
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield Playing(process, f"http://127.0.0.1:{port}/metrics", log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


@dataclass(frozen=True)
class Playing:
    """A subject that has said that it is ready."""

    process: subprocess.Popen[str]
    page: str
    log: Path

    def series(self) -> dict[str, float]:
        with urllib.request.urlopen(self.page, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}

    def log_lines(self) -> int:
        """The number of lines in the subject's own log file, which is unlinked but open."""
        files = Path(f"/proc/{self.process.pid}/fd").iterdir()
        (file,) = [each for each in files if "/powerband-" in _target(each)]
        return file.read_bytes().count(b"\n")

    def wait_for(self, reached: Callable[[Mapping[str, float]], bool]) -> dict[str, float]:
        deadline = time.monotonic() + READY_S
        while not reached(series := self.series()):
            assert time.monotonic() < deadline, series
            time.sleep(0.05)
        return series

    def final(self) -> dict[str, int]:
        """Stops the whole process group at once, as the bench does; returns the figures of its last line."""
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(FINAL_S)
        text = self.log.read_text()
        (line,) = re.findall(r"^final: (.*)$", text, re.MULTILINE)
        return {name: int(value) for name, value in re.findall(r"(\w+)=(-?\d+)", line)}


def built(subject: Subject, engine: Path, env: Sequence[tuple[str, str]] = ()) -> Built:
    """Builds the subject unless it is built already; `env` is added to the build's environment."""
    given = {**dict.fromkeys(BUILT_IN, ""), **given_values(subject, engine)}

    def build(inside: Mapping[str, str]) -> bool:
        words = [render_text(subject, Setting(()), inside, word) for word in subject.build or ()]
        subprocess.run(words, check=True, env={**os.environ, **dict(env)}, timeout=600)
        return True

    build_once(given, build)
    return Built(subject, given)


def assert_no_ball_lost(final: Mapping[str, int], balls: int) -> None:
    assert final["balls"] == balls and final["balls_lost"] == 0
    assert final["received"] == final["sent"] == final["ball_counts"] == final["messages"] > balls
    assert final["uncounted"] == 0 and final["unreceived"] == 0


def _target(link: Path) -> str:
    """The target of a link; empty if the link no longer exists."""
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""
