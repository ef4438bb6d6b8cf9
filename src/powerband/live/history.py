"""The runs of a folder, for the first page. In: names of folders. Out: one `HistoryLine` each, reading as little as
possible.

Usually only the beginning of an analysis is read, which contains the answer; it is cached until the file changes. This
module also decides which names are valid in requests: those of folders directly in the runs folder, and nothing else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from powerband.files.experiment_file import parse_experiment
from powerband.live.growing_files import (
    begun_s,
    changed_at,
    is_held,
    plain_text,
    raise_if_out_of_files,
    read_plain,
    run_refused,
)
from powerband.live.live_standing import status_at_rest
from powerband.live.state import RunStatus
from powerband.store import NOT_AS_WRITTEN, RunDir

_HEADS_BYTES = (1 << 16, 1 << 20, 1 << 24)  # an analysis begins with the answer, which names up to 10,000 settings
_DATED = re.compile(r"\d{8}-\d{6}-(.+)")
_RECORD_HEAD_BYTES = 1 << 13  # the status comes after the spec, in the first few hundred bytes
_SHOWN_MAX = 4000  # characters of a text from a file: arbitrary, a screen
T = TypeVar("T")


@dataclass(frozen=True)
class HistoryLine:
    """One run of a folder. `folder`: its directory's name; `name`, `question`: those of its experiment, as its analysis
    has them; without one, the folder's name without its date, and an empty question. `answer`: the first sentence of
    its last analysis, else empty; `sure`: the second. `trials`: lines of its plan; `began_s`: time of day. `status`: as
    shown on its page, as far as it can be found without reading every experiment: see `_at_rest`. `has_report`: it
    holds a report.html."""

    folder: str
    name: str
    question: str
    status: RunStatus
    answer: str
    sure: str
    trials: int
    began_s: float | None
    has_report: bool


class _Plan(NamedTuple):
    """The plan's state. `recorded`: its last trial has a record; `stopped`: that trial was interrupted; `lacking`: more
    trials were planned."""

    trials: int
    recorded: bool = False
    stopped: bool = False
    lacking: bool = False


class _Kept(Generic[T]):
    """A cache of data read from each run, valid until its files change."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Any, T]] = {}

    def get(self, folder: str, version: Any, read: Callable[[], T]) -> T:
        kept = self._of.get(folder)
        if kept is None or kept[0] != version:
            kept = self._of[folder] = version, read()
        return kept[1]

    def forget(self, folder: str) -> None:
        self._of.pop(folder, None)


class History:
    """The run directories of the folder `root`. What was read of each is kept until its files change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._heads = _Kept[dict[str, str]]()
        self._plans = _Kept[_Plan]()
        self._ends = _Kept[RunStatus]()
        self._begins = _Kept[float | None]()

    def lines(self) -> list[HistoryLine]:
        """All runs, the latest first; empty if the folder cannot be read."""
        found = [self._line(folder) for folder in self.names()]
        return sorted(found, key=lambda line: (line.began_s or 0.0, line.folder), reverse=True)

    def names(self) -> list[str]:
        """Names of the folders that contain an experiment; names that are no valid text are skipped. Raises OSError if
        `is_out_of_files`, as all of this class."""
        try:
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if self._is_run(entry))
        except OSError as error:
            raise_if_out_of_files(error)
            return []

    def find(self, name: str) -> Path | None:
        """The run directory of this name; None unless the name is that of a folder directly in the runs folder, even if
        it is a path to something else. The folder may contain no run; its page then explains this."""
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            return None
        try:
            with os.scandir(self.root) as entries:
                there = any(entry.name == name and entry.is_dir(follow_symlinks=False) for entry in entries)
        except OSError as error:
            raise_if_out_of_files(error)
            return None
        return self.root / name if there else None

    def _is_run(self, entry: os.DirEntry[str]) -> bool:
        named = plain_text(entry.name) == entry.name and not entry.name.startswith(".")
        here = named and entry.is_dir(follow_symlinks=False)
        return here and os.path.isfile(os.path.join(entry.path, "experiment.yaml"))  # noqa: PTH113, PTH118

    def _line(self, folder: str) -> HistoryLine:
        path = self.root / folder
        head, plan = self._head(path), self._plan(path)
        dated = _DATED.fullmatch(folder)
        return HistoryLine(
            folder=folder,
            name=head.get("name") or (dated[1] if dated else folder),
            question=head.get("question", ""),
            status=RunStatus.RUNNING if is_held(path / ".lock") else self._at_rest(RunDir(path), plan),
            answer=head.get("answer", ""),
            sure=head.get("sure", ""),
            trials=plan.trials,
            began_s=self._began_s(RunDir(path)),
            has_report=changed_at(path / "report.html") is not None,
        )

    def _began_s(self, run: RunDir) -> float | None:
        """The time that host.json tells, else that of the experiment's file."""
        told = self._begins.get(run.path.name, changed_at(run.host), lambda: begun_s(run.host))
        experiment = changed_at(run.experiment)
        return experiment[2] / 1e9 if told is None and experiment is not None else told

    def _head(self, path: Path) -> dict[str, str]:
        file = path / "analysis.json"
        return self._heads.get(path.name, changed_at(file), lambda: _head_in(file))

    def _plan(self, path: Path) -> _Plan:
        version = changed_at(path / "plan.jsonl"), changed_at(path / "analysis.json")
        plan = self._plans.get(path.name, version, lambda: _plan_of(RunDir(path)))
        if not plan.recorded:
            self._plans.forget(path.name)  # the missing record is no part of the version
        return plan

    def _at_rest(self, run: RunDir, plan: _Plan) -> RunStatus:
        """The status of a run that no process holds. The experiment is read only if the plan does not determine the
        status."""
        if run_refused(run):
            return RunStatus.UNREADABLE
        if not plan.recorded:
            return RunStatus.STALE
        if plan.lacking and not plan.stopped:
            version = changed_at(run.experiment), changed_at(run.analysis)
            return self._ends.get(run.path.name, version, lambda: _end_of(run))
        return status_at_rest(stopped=plan.stopped, lacking=plan.lacking, warnings=())


def _head_in(file: Path) -> dict[str, str]:
    """The head of an analysis, from as much of the file as it needs."""
    head: dict[str, str] = {}
    for most in _HEADS_BYTES:
        data = read_plain(file, most) or b""
        head = _head_of(data)
        if "answer" in head or len(data) < most:
            break
    return head


def _head_of(data: bytes) -> dict[str, str]:
    """Name, question and the answer's first sentences; missing or damaged ones are omitted."""
    text = data.decode("utf-8", "ignore")
    found = {}
    for key in ("name", "question"):
        if isinstance(value := _value(text, key), str):
            found[key] = value
    answer = _value(text, "answer")
    sentences = answer.get("sentences") if isinstance(answer, dict) else None
    if isinstance(sentences, list):
        found |= {key: str(said) for key, said in zip(("answer", "sure"), sentences, strict=False)}
    return {key: value[:_SHOWN_MAX] for key, value in found.items()}


def _value(text: str, key: str) -> Any:
    """The first value with this key; None if there is none, or if it is incomplete."""
    match = re.search(rf'"{key}":\s*', text)
    try:
        return None if match is None else json.JSONDecoder().raw_decode(text, match.end())[0]
    except (ValueError, RecursionError):
        return None


def _plan_of(run: RunDir) -> _Plan:
    lines = (read_plain(run.plan) or b"").splitlines()
    try:
        last = json.loads(lines[-1])
        record = read_plain(run.trial(int(last["number"])).record, _RECORD_HEAD_BYTES)
        total = last.get("planned_total")
    except NOT_AS_WRITTEN:
        return _Plan(len(lines))
    if record is None:
        return _Plan(len(lines))
    lacking = isinstance(total, int) and len(lines) < total
    return _Plan(len(lines), recorded=True, stopped=b'"status": "interrupted"' in record, lacking=lacking)


def _end_of(run: RunDir) -> RunStatus:
    """The status of a run that has fewer trials than planned, none of them interrupted."""
    try:
        parse_experiment((read_plain(run.experiment) or b"").decode(), str(run.experiment))
    except Exception as error:  # a foreign directory may contain anything; its page reports the error
        raise_if_out_of_files(error)
        return RunStatus.UNREADABLE
    analysis = (read_plain(run.analysis) or b"").decode("utf-8", "ignore")
    stopped, warnings = _value(analysis, "ended_by") in ("running", "stopped"), _value(analysis, "warnings")
    told = [str(text) for text in warnings] if isinstance(warnings, list) else None
    return status_at_rest(stopped=stopped, lacking=True, warnings=told)
