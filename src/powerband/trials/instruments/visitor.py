"""A real browser that keeps one page open while the load runs: the times that a person sees, beside those that the load
engine measures.

In: the address of a page, which does what a person would do and prints each thing that it did to its console, as
`powerband visit {"at_ms": ..., "took_ms": ...}` (wall clock; `error` instead of `took_ms` where it failed). Out: these
visits. Not here: their figures (`analyze/trial/visits.py`); the page is the subject's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from powerband.loads.driver import TrialSetup
from powerband.processes.subject_process import RunningSubject
from powerband.store import open_private
from powerband.trials.instruments.instrument import Instrument

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_END_S = 5.0
# A line of Chromium's log: [1121/101500.123456:INFO:CONSOLE(7)] "powerband visit {...}", source: http://... (7)
_VISIT = re.compile(r'CONSOLE[(:]\d+\)?\] "powerband visit (\{.*?\})", source: ')


@dataclass(frozen=True)
class Visit:
    """`at_ns`: wall clock, when the person asked. `took_ns` None: it failed, as `error` says."""

    at_ns: int
    took_ns: int | None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def find_browser() -> str | None:
    """A Chromium on PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class NoVisitorError(Exception):
    """No browser visits; the message says why, and what would help."""


@dataclass(frozen=True)
class Visitor:
    """A browser that runs; `pid` of the process that all its others descend from."""

    pid: int
    log: Path

    def visits(self) -> list[Visit]:
        """The visits that the page has printed so far, in their order."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return []
        return [visit for match in _VISIT.finditer(text) if (visit := _visit(match[1])) is not None]


class BrowserVisitor(Instrument):
    """Keeps `subject.visitor_url` open during the load, on the CPUs of the load engine. Where no browser starts, the
    trial goes on, and its record says why."""

    name = "visitor"

    def __init__(self, setup: TrialSetup) -> None:
        self._setup = setup
        self._visits: list[Visit] = []
        self._missing = ""

    @contextmanager
    def around_load(self, subject: RunningSubject) -> Iterator[None]:
        page = subject.rendered.visitor_url
        with ExitStack() as stack:
            visitor = None
            try:
                if page is not None:
                    up = visitor_up(page, self._setup.directory.visitor_log, self._setup.cpus.engine)
                    visitor = stack.enter_context(up)
                    subject.probe.watch("visitor", visitor.pid)
            except NoVisitorError as missing:
                self._missing = str(missing)
            yield
            if visitor is not None:
                self._visits = visitor.visits()

    def record(self) -> dict[str, Any]:
        return {"visits": tuple(visit.to_json() for visit in self._visits), "no_visitor": self._missing}


@contextmanager
def visitor_up(page: str, log: Path, cpus: tuple[int, ...]) -> Iterator[Visitor]:
    """Opens the page; on leaving, the browser has ended. `log`: of the browser, which holds the page's console; `cpus`:
    where it may run, empty for anywhere.

    Raises NoVisitorError where there is no browser, or none that starts."""
    browser = find_browser()
    if browser is None:
        raise NoVisitorError("no person visited (measure.visitor): there is no Chromium on PATH; install chromium")
    with TemporaryDirectory(prefix="powerband-visitor-") as profile, open_private(log, "wb") as output:
        command = [
            browser,
            "--headless=new",
            "--enable-logging=stderr",
            "--no-first-run",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # which Chromium's sandbox refuses to run for
            page,
        ]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise NoVisitorError(f"no person visited (measure.visitor): {browser}: {error.strerror}") from error
        try:
            if cpus:
                os.sched_setaffinity(process.pid, cpus)
            yield Visitor(process.pid, log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole group, which holds nothing but the browser's own processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _visit(text: str) -> Visit | None:
    """None for what no page should print."""
    try:
        told = json.loads(text.replace('\\"', '"'))
        at_ns = round(float(told["at_ms"]) * 1000) * 1000
        if "error" in told:
            return Visit(at_ns, None, str(told["error"])[:200])
        return Visit(at_ns, round(float(told["took_ms"]) * 1e6))
    except (ValueError, KeyError, TypeError):
        return None
