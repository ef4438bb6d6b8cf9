"""Relays the server's own metrics page to Prometheus, under one address for the whole run, with the labels run, trial
and setting. The page's port changes with each trial, and service discovery in Prometheus takes longer than a trial.

In: the states of runs. Out: text in Prometheus' format. Only pages on this machine are requested, only while a trial
runs, and only valid metrics pages are relayed, which are bounded in time, size and lines. Pages are requested once for
all who ask at the same time, and nothing is kept longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from powerband.base.hosts import is_loopback, request_target, split_url
from powerband.live.growing_files import plain_text, read_plain
from powerband.live.state import RunState, TrialPhase
from powerband.model.load import Step
from powerband.model.secrets import without_secrets
from powerband.processes.engine_process import Pump
from powerband.processes.requests import Client, RequestFailedError
from powerband.processes.stop_request import StopRequest
from powerband.store import RunDir, SubjectAddress

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TIMEOUT_S = 0.8  # of a whole page: with a scrape every second, one must not delay the next
FRESH_S = 0.5  # for so long one answer serves all who ask: the server is asked at most twice a second
PAGE_BYTES_MAX = 8 * 1024 * 1024  # arbitrary: far above a real page; each running subject's is held in memory
LINES_MAX = 100_000  # arbitrary: ten times the series that the probe keeps
LINE_MAX = 64 * 1024  # arbitrary: far above a name with its labels
ADDRESS_BYTES_MAX = 64 * 1024  # arbitrary: two URLs are a few hundred bytes

# Each pattern reads on from where the one before ended, and none can end in more than one place: linear time.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BLANKS = re.compile(r"[ \t]*")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*|"(?:[^"\\]|\\.)*")[ \t]*=[ \t]*"(?:[^"\\]|\\.)*"[ \t]*')
_VALUE = re.compile(r"([^ \t]{1,64})(?:[ \t]+[-+0-9.eE]{1,64})?(?:[ \t]+#.*)?")
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")  # OpenMetrics has more


class NoPageError(Exception):
    """The page of a server that should have one cannot be relayed; the message gives the reason."""


@dataclass(frozen=True)
class ScrapeTarget:
    """The metrics page of the trial in flight. `run`: the name of its directory. `trial`: its number. `setting`: its
    id. `url`: where the page is now."""

    run: str
    trial: int
    setting: str
    url: str

    @property
    def labels(self) -> dict[str, str]:
        """The labels that every sample of the page gets."""
        return {"run": self.run, "trial": str(self.trial), "setting": self.setting}


class Relay:
    """The metrics pages of the servers of `runs`, for any number of viewers. Used from one event loop."""

    def __init__(self, runs: Callable[[], Awaitable[list[RunState]]]) -> None:
        self._runs = runs
        self._answer: asyncio.Future[str | NoPageError] | None = None
        self._requested_s = 0.0

    async def page(self) -> str:
        """Returns what `subject_pages` does: the answer that is on its way or was requested within `FRESH_S`, else a
        new one."""
        now = time.monotonic()
        if self._answer is None or (self._answer.done() and now - self._requested_s >= FRESH_S):
            self._answer, self._requested_s = asyncio.ensure_future(self._request()), now
        found = await asyncio.shield(self._answer)
        if isinstance(found, NoPageError):
            raise found
        return found

    async def _request(self) -> str | NoPageError:
        runs = await self._runs()
        try:
            return await asyncio.to_thread(subject_pages, runs)
        except NoPageError as error:
            return error


def subject_pages(runs: Iterable[RunState]) -> str:
    """The pages of all servers that are ready, one after another, each `# HELP` and `# TYPE` once; empty if there is
    none. Blocks until they have answered, or for `TIMEOUT_S` each. Raises NoPageError if there are some and none
    answers."""
    lines: dict[str, None] = {}  # keeps the order, and each line once
    problems = []
    for target in filter(None, map(target_of, runs)):
        try:
            page = labelled(fetch(target.url), target.labels)
        except NoPageError as error:
            problems.append(str(error))
            continue
        lines |= dict.fromkeys(page.split("\n")[:-1])
    if problems and not lines:
        raise NoPageError("; ".join(problems))
    return "".join(f"{line}\n" for line in lines)


def target_of(run: RunState) -> ScrapeTarget | None:
    """The metrics page of a run's server; None if no trial is running, the server is not ready yet or has ended, or has
    no page."""
    trial = run.current
    if trial is None or trial.phase in (TrialPhase.STARTING, TrialPhase.LAUNCHED, TrialPhase.ENDING):
        return None
    told = read_plain(RunDir(Path(run.path)).trial(trial.number).subject, ADDRESS_BYTES_MAX)
    address = SubjectAddress.parse(told or b"")
    if address is None or address.metrics_url is None:
        return None
    return ScrapeTarget(Path(run.path).name, trial.number, trial.setting, address.metrics_url)


def fetch(url: str) -> str:
    """Fetches a page. Raises NoPageError."""
    try:
        host = split_url(url).hostname or ""
    except ValueError as error:
        raise NoPageError(str(error)) from None
    shown = without_secrets(url)
    if not is_loopback(host):
        raise NoPageError(f"{shown} is not on this machine: let Prometheus scrape it where it is")
    asked = Step(name="GET", path=request_target(url), headers=(("Accept", "text/plain;version=0.0.4"),))
    try:
        with (
            contextlib.closing(StopRequest()) as nobody_stops,
            Pump(nobody_stops) as pump,
            Client(url, TIMEOUT_S, pump, PAGE_BYTES_MAX) as client,
        ):
            answer = client.answer_to(asked)
    except (OSError, RequestFailedError) as error:
        raise NoPageError(f"{shown} does not answer: {error}") from error
    if answer.status != http.HTTPStatus.OK:
        raise NoPageError(f"{shown} answers with status {answer.status}")
    return answer.body.decode("utf-8", errors="replace")


def labelled(page: str, labels: Mapping[str, str]) -> str:
    """A page in Prometheus' text format or in OpenMetrics, with `labels` added to every sample. If the page itself has
    a label of the same name, it becomes `exported_NAME`, as in Prometheus. Times and exemplars are removed: all values
    are current. Raises NoPageError if a line is not that of a metrics page, or if there are too many."""
    added = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    written = page.split("\n", LINES_MAX)
    if len(written) > LINES_MAX:
        raise NoPageError(f"the server's metrics_url has more than {LINES_MAX:,} lines")
    lines = []
    for number, line in enumerate(written, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            if (sample := _labelled(text, added, labels)) is None:
                raise NoPageError(f"the server's metrics_url is no metrics page: its line {number} is no sample")
            lines.append(sample)
        elif _is_kept(text):
            lines.append(text)
    return "".join(f"{line}\n" for line in lines)


def _labelled(line: str, added: str, labels: Mapping[str, str]) -> str | None:
    name = _NAME.match(line)
    if name is None or len(line) > LINE_MAX:
        return None
    parts, at = [added], _after_blanks(line, name.end())
    if line.startswith("{", at):
        at += 1
        while label := _LABEL.match(line, at):
            own = f"exported_{label[1]}" if label[1] in labels else label[1]
            parts.append(f"{line[at : label.start(1)]}{own}{line[label.end(1) : label.end()]}")
            at = label.end() + 1
            if not line.startswith(",", label.end()):
                at = label.end()
                break
        at = _after_blanks(line, at)
        if not line.startswith("}", at):
            return None
        at = _after_blanks(line, at + 1)
    elif at == name.end():
        return None
    value = _VALUE.fullmatch(line, at)
    if value is None or not _is_number(value[1]):
        return None
    return f"{name[0]}{{{','.join(filter(None, parts))}}} {value[1]}"


def _after_blanks(line: str, at: int) -> int:
    blanks = _BLANKS.match(line, at)
    return at if blanks is None else blanks.end()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii()


def _is_kept(comment: str) -> bool:
    match comment.split(None, 3):
        case ["#", "HELP", *_]:
            return True
        case ["#", "TYPE", _, kind]:
            return kind in _TYPES
    return False


def _escaped(value: str) -> str:
    return plain_text(value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
