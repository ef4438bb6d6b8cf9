"""Commands of the docs, run as they stand on their pages, only shorter: fewer levels, short trials.

In: a page, and how the command begins. Out: its words, what it measured, what its servers printed. All that is asserted
here holds on a busy machine, too."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.pages import ROOT, blocks, commands, tables
from fakes.smoke import LATE, exit_code

# Each fresh start once, so that there is nothing to race.
SHORT = ("--duration", "500ms", "--warmup", "300ms", "--repeats", "1", "--order", "blocks", "--format", "json")
# Users that pause at all are not looked at alone and doubled, which takes seconds.
PAUSING = ("--think", "1ms")
UP_S = 20.0


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def shown(page: str, *start: str) -> list[str]:
    """The arguments of the one `powerband` command of the page that begins so."""
    (found,) = [given for given in commands(text_of(page)) if given[: len(start)] == list(start)]
    return found


def typed(page: str, start: str) -> str:
    """The one line of the page's blocks that begins so: a command of another program."""
    lines = [block.text.splitlines() for block in blocks(text_of(page)) if block.language in ("", "sh")]
    (found,) = [line for each in lines for line in each if line.startswith(start)]
    return found


def words_of(page: str, start: str) -> list[str]:
    """The words of the one span of code in the page's text that begins so."""
    (found,) = [span for span in re.findall(r"`([^`\n]+)`", text_of(page)) if span.startswith(start)]
    return shlex.split(found)


def yaml_of(page: str, part: str) -> str:
    """The one file of the page, or part of one, in which this stands."""
    (found,) = [block.text for block in blocks(text_of(page)) if block.language == "yaml" and part in block.text]
    return found


def knobs(page: str) -> list[list[list[str]]]:
    """The page's table of knobs: of each row, how to vary the knob, as the words of each span of code."""
    return [[shlex.split(span) for span in re.findall(r"`([^`]+)`", row[1])] for row in tables(text_of(page))[0][1:]]


def levelled(words: Sequence[str], levels: Mapping[str, str]) -> list[str]:
    """The words with these levels in place of their own, of each factor that they name."""
    found = list(words)
    for at, word in enumerate(words):
        if word == "-P":
            name = words[at + 1].partition("=")[0]
            found[at + 1] = f"{name}={levels[name]}"
    return found


def shorter(given: Sequence[str], levels: Mapping[str, str], *more: str) -> list[str]:
    """The command with these levels, with short trials, and with more options."""
    server = given.index("--")
    return [*levelled(given[:server], levels), *SHORT, *more, *given[server:]]


def measured(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The trials of a command, all of which were measured."""
    command = [sys.executable, "-m", "powerband", *arguments]
    around = {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    analysis = json.loads(done.stdout)
    # A busy machine may let no trial count.
    assert done.returncode == exit_code(analysis, {*LATE, "host_foreign", "host_steal"}), done.stderr
    trials: list[dict[str, Any]] = analysis["trials"]
    assert {trial["status"] for trial in trials} == {"measured"}, done.stderr
    return trials


def answered(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The trials of a command, all of which were measured, and in which every request was answered; but a busy machine
    may keep some users waiting all through so short a window."""
    trials = measured(folder, *arguments, env=env)
    for trial in trials:
        metrics = trial["metrics"]
        assert metrics["error_rate"] == pytest.approx(metrics.get("users_unserved_share", 0.0)), trial["problems"]
        assert metrics["goodput_per_s"] > 0
    return trials


def sets(*options: str) -> list[str]:
    """Options of `powerband run` that set these keys."""
    return [word for option in options for word in ("--set", option)]


def by_level(trials: Sequence[dict[str, Any]], factor: str) -> dict[Any, dict[str, float]]:
    """The metrics of a trial of each level."""
    return {trial["setting"]["levels"][factor]: trial["metrics"] for trial in trials}


def said(folder: Path) -> list[str]:
    """What the server printed in each trial of the runs below this folder, in the order of time."""
    return [log.read_text() for log in sorted(folder.glob("runs/*/trials/*/subject.log"))]


@contextmanager
def serving(folder: Path, port: int, *command: str) -> Iterator[None]:
    """A server that runs already, in no tree of powerband's."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + UP_S
            while not _accepts(port):
                assert server.poll() is None and time.monotonic() < deadline, command
                time.sleep(0.05)
            yield
        finally:
            server.terminate()


def _accepts(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
