"""Keeps one page open in a real browser while the load runs, to measure the times that a person sees, beside those that
the load engine measures.

In: the address of a page of the server, which does again and again what a person would do, and prints each such visit
to its console, as `powerband visit {"at_ms": ..., "took_ms": ...}` (wall clock; `error` instead of `took_ms` if it
failed). Out: these visits. Not here: their figures (`analyze/trial/visits.py`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from powerband.loads.driver import TrialSetup
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.probe_process import command_up
from powerband.processes.subject_process import RunningSubject
from powerband.store import NOT_AS_WRITTEN, TrialDir
from powerband.trials.instruments.instrument import Instrument
from powerband.wire.specs import Launch

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_GRACE_NS = 5_000_000_000  # arbitrary: Chromium ends within a second; its visits are in the log already
# A line of Chromium's log: [1121/101500.123456:INFO:CONSOLE(7)] "powerband visit {...}", source: http://... (7)
_VISIT = re.compile(r'CONSOLE[(:]\d+\)?\] "powerband visit (\{.*?\})", source: ')


@dataclass(frozen=True)
class Visit:
    """A visit of the page. `at_ns`: wall-clock time at which it began. `took_ns`: None if it failed; `error` says
    why."""

    at_ns: int
    took_ns: int | None
    error: str = ""


def find_browser() -> str | None:
    """The path of a Chromium on PATH; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class NoVisitorError(Exception):
    """Raised if there is no browser; the message says why, and what would help."""


@dataclass(frozen=True)
class Visitor:
    """A browser that runs. `pid`: that of the process from which all its other processes descend; `log`: its log, with
    the page's console."""

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
    """Keeps `subject.visitor_url` open during the load, on the CPUs of the load engine. If no browser starts, the trial
    goes on, and its record says why."""

    def __init__(self, setup: TrialSetup) -> None:
        self._setup = setup
        self._visits: list[Visit] = []
        self._missing = ""

    @contextmanager
    def around_load(self, subject: RunningSubject, pump: Pump) -> Iterator[None]:
        """Opens the page before the load, and reads its visits after it."""
        page, setup = subject.rendered.visitor_url, self._setup
        with ExitStack() as stack:
            visitor = None
            try:
                if page is not None:
                    up = visitor_up(setup.engine, page, setup.directory, setup.cpus.engine, pump)
                    visitor = stack.enter_context(up)
                    subject.probe.watch("visitor", visitor.pid)
            except NoVisitorError as missing:
                self._missing = str(missing)
            yield
            if visitor is not None:
                self._visits = visitor.visits()

    def record(self) -> dict[str, Any]:
        return {"visits": tuple(asdict(visit) for visit in self._visits), "no_visitor": self._missing}


@contextmanager
def visitor_up(engine: Path, page: str, files: TrialDir, cpus: tuple[int, ...], pump: Pump) -> Iterator[Visitor]:
    """Opens the page in a browser, which ends when the block is left, or if powerband is killed. `files`: the directory
    for the browser's log, with the page's console, and for its profile while it runs; `cpus`: the CPUs that it may use,
    empty for all.

    Raises NoVisitorError if there is no browser, or none that starts; TrialFailed(probe_failed)."""
    browser = find_browser()
    if browser is None:
        raise NoVisitorError(
            "there is no browser user (measure.visitor): there is no Chromium on PATH; install chromium"
        )
    with TemporaryDirectory(prefix="visitor-", dir=files.path, ignore_cleanup_errors=True) as profile:
        command = (
            browser,
            "--headless=new",
            "--enable-logging=stderr",
            "--no-first-run",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium's sandbox refuses to run for root
            page,
        )
        log = str(files.visitor_log.absolute())
        # Its temporary files go into the profile too, by a relative path, since the path of a socket must be short.
        launch = Launch(
            name="visitor",
            argv=command,
            env=(("TMPDIR", "."),),
            cwd=profile,
            log_file=log,
            cpus=cpus,
            grace_ns=_GRACE_NS,
        )
        with ExitStack() as stack:
            try:
                keeper = stack.enter_context(command_up(engine, launch, files.engine_log, pump))
            except TrialFailed as failed:
                if failed.failure.code != Code.LAUNCH_FAILED:
                    raise
                raise NoVisitorError(f"there is no browser user (measure.visitor): {failed}") from failed
            assert keeper.launched is not None
            yield Visitor(keeper.launched.pid, files.visitor_log)


def _visit(text: str) -> Visit | None:
    """The visit in a console line; None if the line has another form."""
    try:
        try:
            told = json.loads(text)
        except ValueError:  # some versions of Chromium escape it once more
            told = json.loads(json.loads(f'"{text}"'))
        at_ns = round(float(told["at_ms"]) * 1000) * 1000
        if "error" in told:
            return Visit(at_ns, None, str(told["error"])[:200] or "no reason given")
        return Visit(at_ns, round(float(told["took_ms"]) * 1e6))
    except NOT_AS_WRITTEN:
        return None
