"""The runs of a folder, for the first page: names in, one `HistoryLine` each out, read as little as will do.

Of an analysis only its beginning is read, where the answer stands; what was read is kept until the file changes. Which
name may be asked for is decided here: that of a folder which lies in the runs folder itself, and of nothing else.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from powerband.live.files import changed_at, is_held, read_plain
from powerband.live.state import Status

_HEAD_BYTES = 1 << 16
_DATED = re.compile(r"\d{8}-\d{6}-(.+)")
_RECORD_HEAD_BYTES = 1 << 13
_SHOWN_MAX = 4000  # characters of a text from a file


@dataclass(frozen=True)
class HistoryLine:
    """One run of a folder. `folder`: its directory's name; `answer`: the first sentence of its last analysis, else
    empty; `sure`: the second. `trials`: lines of its plan; `began_s`: time of day. `status`: as far as it can be told
    without reading the run."""

    folder: str
    name: str
    question: str
    status: Status
    answer: str
    sure: str
    objective: str
    trials: int
    began_s: float | None
    has_report: bool


class History:
    """The runs of one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._heads: dict[str, tuple[Any, dict[str, str]]] = {}
        self._plans: dict[str, tuple[Any, tuple[int, bool, bool]]] = {}

    def lines(self) -> list[HistoryLine]:
        """The latest first. A folder that cannot be read is empty."""
        found = [self._line(folder) for folder in self.names()]
        return sorted(found, key=lambda line: (line.began_s or 0.0, line.folder), reverse=True)

    def names(self) -> list[str]:
        """Folders of the runs folder that hold an experiment."""
        try:
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if self._is_run(entry))
        except OSError:
            return []

    def find(self, name: str) -> Path | None:
        """The run directory of this name; None for anything that is not the name of a folder right here, whatever else
        it may be a path to. What is no run directory may be found: it is explained, not hidden."""
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            return None
        try:
            with os.scandir(self.root) as entries:
                there = any(entry.name == name and entry.is_dir(follow_symlinks=False) for entry in entries)
        except OSError:
            return None
        return self.root / name if there else None

    def _is_run(self, entry: os.DirEntry[str]) -> bool:
        here = not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        return here and os.path.isfile(os.path.join(entry.path, "experiment.yaml"))  # noqa: PTH113, PTH118

    def _line(self, folder: str) -> HistoryLine:
        path = self.root / folder
        head = self._head(path)
        trials, recorded, interrupted = self._plan(path)
        experiment = changed_at(path / "experiment.yaml")
        dated = _DATED.fullmatch(folder)
        if is_held(path / ".lock"):
            status = Status.RUNNING
        elif interrupted:
            status = Status.INTERRUPTED
        else:
            status = Status.FINISHED if recorded else Status.STALE
        return HistoryLine(
            folder=folder,
            name=head.get("name") or (dated[1] if dated else folder),
            question=head.get("question", ""),
            status=status,
            answer=head.get("answer", ""),
            sure=head.get("sure", ""),
            objective=head.get("objective", ""),
            trials=trials,
            began_s=None if experiment is None else experiment[2] / 1e9,
            has_report=changed_at(path / "report.html") is not None,
        )

    def _head(self, path: Path) -> dict[str, str]:
        version = changed_at(path / "analysis.json")
        kept = self._heads.get(path.name)
        if kept is None or kept[0] != version:
            kept = version, _head_of(read_plain(path / "analysis.json", _HEAD_BYTES) or b"")
            self._heads[path.name] = kept
        return kept[1]

    def _plan(self, path: Path) -> tuple[int, bool, bool]:
        version = changed_at(path / "plan.jsonl"), changed_at(path / "analysis.json")
        kept = self._plans.get(path.name)
        if kept is None or kept[0] != version or not kept[1][1]:
            kept = version, _plan_of(path)
            self._plans[path.name] = kept
        return kept[1]


def _head_of(data: bytes) -> dict[str, str]:
    """Name, question, objective and the answer's first sentences; what is not there, or damaged, is left out."""
    text = data.decode("utf-8", "ignore")
    found = {}
    for key in ("name", "question", "objective"):
        if isinstance(value := _value(text, key), str):
            found[key] = value
    answer = _value(text, "answer")
    sentences = answer.get("sentences") if isinstance(answer, dict) else None
    if isinstance(sentences, list):
        found |= {key: str(said) for key, said in zip(("answer", "sure"), sentences, strict=False)}
    return {key: value[:_SHOWN_MAX] for key, value in found.items()}


def _value(text: str, key: str) -> Any:
    """The first value of this name; None where there is none, or it is cut short."""
    match = re.search(rf'"{key}":\s*', text)
    try:
        return None if match is None else json.JSONDecoder().raw_decode(text, match.end())[0]
    except ValueError:
        return None


def _plan_of(path: Path) -> tuple[int, bool, bool]:
    """Trials begun, whether the last of them has a record, and whether that one was interrupted."""
    lines = (read_plain(path / "plan.jsonl") or b"").splitlines()
    try:
        number = int(json.loads(lines[-1])["number"])
    except (IndexError, ValueError, KeyError, TypeError):
        return len(lines), False, False
    record = read_plain(path / "trials" / f"{number:04d}" / "record.json", _RECORD_HEAD_BYTES)
    return len(lines), record is not None, b'"status": "interrupted"' in (record or b"")
