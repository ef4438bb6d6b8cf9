"""A real Prometheus for a test: started on a port and in a folder of its own, queried, and ended."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from powerband.processes.ports import pick_port

READY_S = 60.0
SEEN_S = 60.0


class Prometheus:
    """The part of Prometheus's HTTP API that Grafana uses."""

    def __init__(self, url: str) -> None:
        self.url = url

    def newest(self, expr: str) -> list[dict[str, Any]]:
        """The current series of a query."""
        found: list[dict[str, Any]] = self._ask("query", {"query": expr})["result"]
        return found

    def await_series(self, expr: str) -> None:
        """Returns once there is such a series."""
        deadline = time.monotonic() + SEEN_S
        while not self.newest(expr):
            assert time.monotonic() < deadline, f"Prometheus never saw {expr}"
            time.sleep(0.2)

    def over_time(self, expr: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """The series that a panel would draw, with a point a second."""
        found: list[dict[str, Any]] = self._ask(
            "query_range", {"query": expr, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": "1"}
        )["result"]
        return found

    def label_values(self, label: str, selector: str, start_s: float, end_s: float) -> list[str]:
        found: list[str] = self._ask(
            f"label/{label}/values", {"match[]": selector, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        )
        return found

    def _ask(self, what: str, parameters: Mapping[str, str]) -> Any:
        with urlopen(f"{self.url}/api/v1/{what}?{urlencode(parameters)}", timeout=30) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]


@contextmanager
def prometheus_up(binary: str, configuration: Path, folder: Path) -> Iterator[Prometheus]:
    """Runs Prometheus, and yields its API once it is ready."""
    address = f"127.0.0.1:{pick_port()}"
    command = [
        binary, f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--log.level=warn",
    ]  # fmt: skip
    with prometheus_started(command, address, folder) as prometheus:
        yield prometheus


@contextmanager
def prometheus_started(command: Sequence[str], address: str, folder: Path) -> Iterator[Prometheus]:
    """Runs the Prometheus of this command, which makes it listen at the address; yields its API once it is ready."""
    log = folder / "prometheus.log"
    with log.open("wb") as file, subprocess.Popen(command, cwd=folder, stdout=file, stderr=file) as process:
        try:
            deadline = time.monotonic() + READY_S
            while not _is_ready(f"http://{address}/-/ready"):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()
            process.wait(60)


def _is_ready(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
