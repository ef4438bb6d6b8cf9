"""Relays the server's own metrics page to Prometheus, under one address for the whole run, with the labels run, trial
and setting. The page's port changes with each trial, and service discovery in Prometheus takes longer than a trial.

In: the states of runs. Out: text in Prometheus' format. Only pages on this machine are requested, only while a trial
runs, and only valid metrics pages are relayed. Nothing is kept.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from powerband.base.hosts import is_loopback, split_url
from powerband.live.growing_files import plain_text, read_plain
from powerband.live.state import RunState, TrialPhase
from powerband.processes.requests import connection_to
from powerband.store import RunDir, SubjectAddress

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TIMEOUT_S = 0.8  # with a scrape every second, one must not delay the next
PAGE_BYTES_MAX = 8 * 1024 * 1024
ADDRESS_BYTES_MAX = 64 * 1024

# A label's name in front of `=`, or a quoted value. One pattern matches both, so that a name within a quoted value is
# never matched.
_LABELS = r'\{(?:[^"}]|"(?:\\.|[^"\\])*")*\}'
_SAMPLE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]*({_LABELS})[ \t]*|[ \t]+)(\S+)(?:[ \t]+[-+0-9.eE]+)?(?:[ \t]+#.*)?"
)
_NAME_OR_VALUE = re.compile(r'"(?:\\.|[^"\\])*"|([a-zA-Z_][a-zA-Z0-9_]*)(?=[ \t]*=)')
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")  # OpenMetrics has more


class NoPageError(Exception):
    """The page of a server that should have one cannot be relayed; the message gives the reason."""


@dataclass(frozen=True)
class ScrapeTarget:
    """The metrics page of the trial in flight."""

    run: str
    trial: int
    setting: str
    url: str

    @property
    def labels(self) -> dict[str, str]:
        return {"run": self.run, "trial": str(self.trial), "setting": self.setting}


def subject_pages(runs: Iterable[RunState]) -> str:
    """The pages of all servers that are ready, one after another, each `# HELP` and `# TYPE` once; empty if there is
    none. Blocks until they have answered. Raises NoPageError if there are some and none answers."""
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
    """The page of a run's server; None if no trial is running, the server is not ready yet or has ended, or has no
    page."""
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
        parts = split_url(url)
    except ValueError as error:
        raise NoPageError(str(error)) from None
    if not is_loopback(parts.hostname or ""):
        raise NoPageError(f"{url} is not on this machine: let Prometheus scrape it where it is")
    connection = connection_to(url, TIMEOUT_S)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "text/plain;version=0.0.4"})
        response = connection.getresponse()
        body = response.read(PAGE_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoPageError(f"{url} does not answer: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise NoPageError(f"{url} answers with status {response.status}")
    if len(body) > PAGE_BYTES_MAX:
        raise NoPageError(f"{url} is longer than {PAGE_BYTES_MAX // 2**20} MB")
    return body.decode("utf-8", errors="replace")


def labelled(page: str, labels: Mapping[str, str]) -> str:
    """A page in Prometheus' text format or in OpenMetrics, with `labels` added to every sample. If the page itself has
    a label of the same name, it becomes `exported_NAME`, as in Prometheus. Times and exemplars are removed: all values
    are current. Raises NoPageError if a line is not that of a metrics page."""
    added = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    lines = []
    for number, line in enumerate(page.split("\n"), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            if (sample := _labelled(text, added, labels)) is None:
                raise NoPageError(f"the subject's metrics_url is no metrics page: its line {number} is no sample")
            lines.append(sample)
        elif _is_kept(text):
            lines.append(text)
    return "".join(f"{line}\n" for line in lines)


def _labelled(line: str, added: str, labels: Mapping[str, str]) -> str | None:
    sample = _SAMPLE.fullmatch(line)
    if sample is None or not _is_number(sample[3]):
        return None
    own = "" if sample[2] is None else sample[2][1:-1].strip().rstrip(",")
    return f"{sample[1]}{{{','.join(filter(None, (added, _renamed(own, labels))))}}} {sample[3]}"


def _renamed(own: str, labels: Mapping[str, str]) -> str:
    return _NAME_OR_VALUE.sub(lambda part: f"exported_{part[1]}" if part[1] in labels else part[0], own)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _is_kept(comment: str) -> bool:
    match comment.split(None, 3):
        case ["#", "HELP", *_]:
            return True
        case ["#", "TYPE", _, kind]:
            return kind in _TYPES
    return False


def _escaped(value: str) -> str:
    return plain_text(value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
