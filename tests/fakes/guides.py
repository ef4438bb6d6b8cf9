"""Runs commands of the docs as they stand on their pages, only shorter: with fewer levels and short trials.

In: a page, and the beginning of a command. Out: its words, its trials, the output of its servers. All assertions here
hold on a busy machine as well."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fakes.pages import ROOT, blocks, commands, tables
from fakes.smoke import LATE, exit_code, failed_share
from powerband.analyze.trial.faults import STOPPED
from powerband.analyze.trial.honesty import MACHINE_CODES
from powerband.processes.ports import someone_listens
from powerband.store import RunDir

# Each setting has one fresh start, so that there is nothing to race. Beside other tests a server may start late.
SHORT = (
    *("--duration", "1s", "--warmup", "300ms", "--repeats", "1", "--order", "blocks", "--ready-timeout", "2m"),
    *("--format", "json"),
)
# For users that pause there are no looks with one user and with twice the users, which take seconds.
PAUSING = ("--think", "1ms")
UP_S = 60.0

Found = TypeVar("Found")


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def _only(found: Sequence[Found], page: str, start: object) -> Found:
    assert len(found) == 1, f"docs/{page} has {len(found)} of {start!r}: a test takes exactly one"
    return found[0]


def shown(page: str, *start: str) -> list[str]:
    """The arguments of the one `powerband` command of the page that begins with these words."""
    return _only([given for given in commands(text_of(page)) if given[: len(start)] == list(start)], page, start)


def typed(page: str, start: str) -> str:
    """The one line of the page's blocks that begins with this text: a command of another program."""
    lines = [block.text.splitlines() for block in blocks(text_of(page)) if block.language in ("", "sh")]
    return _only([line for each in lines for line in each if line.startswith(start)], page, start)


def words_of(page: str, start: str) -> list[str]:
    """The words of the one span of code in the page's text that begins with this text."""
    spans = re.findall(r"`([^`\n]+)`", text_of(page))
    return shlex.split(_only([span for span in spans if span.startswith(start)], page, start))


def block_of(page: str, part: str) -> str:
    """The text of the one block of the page that contains this text."""
    return _only([block.text for block in blocks(text_of(page)) if part in block.text], page, part)


def knobs(page: str) -> list[list[list[str]]]:
    """For each row of the page's table of knobs, the words of each span of code that shows how to vary the knob."""
    return [[shlex.split(span) for span in re.findall(r"`([^`]+)`", row[1])] for row in tables(text_of(page))[0][1:]]


def levelled(words: Sequence[str], levels: Mapping[str, str]) -> list[str]:
    """The words of a command with these levels for each factor that they name."""
    found = list(words)
    for at, word in enumerate(words):
        if word == "-P":
            name = words[at + 1].partition("=")[0]
            found[at + 1] = f"{name}={levels[name]}"
    return found


def shorter(given: Sequence[str], levels: Mapping[str, str], *more: str) -> list[str]:
    """The command with these levels, short trials and more options."""
    server = given.index("--")
    return [*levelled(given[:server], levels), *SHORT, *more, *given[server:]]


def measured(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, inside: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Runs a command and returns its trials, which were all measured. `inside`: the words of a program that runs it."""
    command = [*inside, sys.executable, "-m", "powerband", *arguments]
    around = {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    analysis = json.loads(done.stdout)
    # A busy machine may make all trials invalid.
    assert done.returncode == exit_code(analysis, {*LATE, *MACHINE_CODES}), done.stderr
    trials: list[dict[str, Any]] = analysis["trials"]
    assert {trial["status"] for trial in trials} == {"measured"}, done.stderr
    return trials


def answered(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Runs a command and returns its trials, which were all measured, with every request answered. A busy machine may
    leave some users waiting for the whole of so short a window, or all of them: such a trial is left out, if another of
    its setting got answers."""
    trials = measured(folder, *arguments, env=env)
    found = [trial for trial in trials if trial["metrics"]["goodput_per_s"] > 0]
    for trial in found:
        assert failed_share(trial["metrics"]) == pytest.approx(0), trial["problems"]
    for trial in trials:
        problems = trial["problems"]
        fatal = {problem["code"] for problem in problems if problem["fatal"]}
        assert trial in found or fatal & {*MACHINE_CODES, STOPPED}, problems
    assert {trial["setting"]["id"] for trial in found} == {trial["setting"]["id"] for trial in trials}
    return found


def most(slots_per_s: float, users: int, window_s: float = 1.0) -> float:
    """The highest rate of answers that a window can show if the server gives so many a second: one for each user may
    have come before the window to a load engine that other programs kept from reading it until then."""
    return slots_per_s + users / window_s


def sets(*options: str) -> list[str]:
    """Options of `powerband run` that set these keys."""
    return [word for option in options for word in ("--set", option)]


def by_level(trials: Sequence[dict[str, Any]], factor: str) -> dict[Any, dict[str, float]]:
    """The metrics of one trial of each level: of several, of a valid one, of those of the one that other programs held
    up least."""

    def trust(trial: dict[str, Any]) -> tuple[bool, float]:
        valid = not any(problem["fatal"] for problem in trial["problems"])
        return valid, -trial["metrics"].get("held_up_share_max", 0.0)

    ordered = sorted(trials, key=trust)
    return {trial["setting"]["levels"][factor]: trial["metrics"] for trial in ordered}


def run_of(folder: Path) -> RunDir:
    """The only run in the folder."""
    (run,) = (folder / "runs").iterdir()
    return RunDir.open(run)


def load(folder: Path, *arguments: str) -> None:
    """Runs `powerband load` for a second; every request ends ok."""
    command = [sys.executable, "-m", "powerband", "load", *arguments, "-d", "1s", "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    assert set(json.loads(done.stdout)["outcomes"]) == {"ok"}


def said(folder: Path) -> list[str]:
    """The output of the server in each trial of the runs in this folder, oldest first."""
    return [log.read_text() for log in sorted(folder.glob("runs/*/trials/*/subject.log"))]


@contextmanager
def serving(folder: Path, port: int, *command: str) -> Iterator[None]:
    """Runs a server that powerband did not start, and ends it after the block."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + UP_S
            while not someone_listens("127.0.0.1", port):
                assert server.poll() is None and time.monotonic() < deadline, command
                time.sleep(0.05)
            yield
        finally:
            server.terminate()
