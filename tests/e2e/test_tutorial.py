"""The commands of the tutorial run step by step on the example server, as they stand there, only shorter.

Only what does not depend on the machine is compared with the page: what was started and measured, and the form of the
answers. An answer needs valid trials: where there are none because the machine was disturbed, by the kernel's counters,
a command runs again, several times at most."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.disturbance import spoilt, undisturbed
from fakes.guides import run_of
from fakes.pages import ROOT, Block, blocks, commands
from powerband.model.plan import format_level

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
SHORT = ("--duration", "200ms", "--warmup", "100ms", "--repeats", "2", "--confirm", "0", "--format", "text")
# For users that pause there are no looks with one user and with twice the users, which take seconds.
PAUSING = ("--think", "1ms")
SERVER = "examples/threads_server.py"
NOTHING_COUNTS = 5


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the examples in it, as the tutorial has them."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("target", "node_modules"))
    return tmp_path


def powerband(folder: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "powerband", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def answered(folder: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command until its run was not disturbed. Its run is then the only one in the folder."""

    def once(_attempt: int) -> subprocess.CompletedProcess[str]:
        shutil.rmtree(folder / "runs", ignore_errors=True)
        return powerband(folder, arguments)

    return undisturbed(once, lambda done: spoilt(analysis(folder)) if done.returncode == NOTHING_COUNTS else "")


def shown(*start: str) -> list[str]:
    """The one command of the page that contains these words."""
    (found,) = [given for given in commands(PAGE) if all(word in given for word in start)]
    return found


def shorter(arguments: list[str], *more: str) -> list[str]:
    at = arguments.index("--")
    return [*arguments[:at], *SHORT, *more, *arguments[at:]]


def analysis(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_of(folder).analysis.read_text())
    return found


def measured(folder: Path, factor: str) -> set[str]:
    """The levels that were measured, as text."""
    return {
        format_level(dict(record.spec.setting.levels)[factor])
        for record in run_of(folder).records()
        if record.status == "measured"
    }


def after(command: list[str]) -> Block:
    """The block that follows a command on the page, which shows its output."""
    found = blocks(PAGE)
    at = next(index for index, block in enumerate(found) if command in commands(f"```sh\n{block.text}```\n"))
    return found[at + 1]


def heads(text: str) -> list[str]:
    """The headings of the first table of verdicts, which are the words of its first line."""
    rows = [line.split() for line in text.splitlines()]
    return next(row for row in rows if "verdict" in row and ("change" in row or "leader" in row))


def test_one_setting_once(clone: Path) -> None:
    command = shown("tune", "--repeats", "1", "--threads", SERVER, "--port")
    done = answered(clone, command)
    assert done.returncode == 0, done.stderr
    assert measured(clone, "threads") == {"8"}
    assert first_words(done.stdout) == "Use threads=N"


def first_words(answer: str) -> str:
    """The first sentence of an answer, with a placeholder for each figure, since figures differ between machines."""
    return re.sub(r"[\d.,]+(/s)?", "N", " ".join(answer.split())).partition(". ")[0].partition(":")[0]


def test_the_race(clone: Path) -> None:
    command = shown("tune", "quick", "32", SERVER)
    done = answered(clone, shorter(command, *PAUSING))
    assert done.returncode == 0, done.stderr
    assert measured(clone, "threads") == {"4", "8", "16", "32", "64"}
    assert "in a race of at most 2 rounds" in done.stderr
    # The other columns depend on the figures.
    needed = ["threads", "goodput", "interval", "p50", "p99", "leader", "verdict"]
    (answer,) = [block for block in blocks(PAGE) if "The race " in block.text and "\nthreads  goodput" in block.text]
    assert [head for head in heads(answer.text) if head in needed] == needed
    needed.remove("p99")  # so few requests give no p99
    assert [head for head in heads(done.stdout) if head in needed] == needed


@pytest.mark.crowded
def test_a_command_that_is_wrong_is_told(clone: Path) -> None:
    command = shown("tune", "--listen", SERVER)
    done = powerband(clone, command)
    assert done.returncode == 4
    assert done.stdout.partition("\n\n")[0].split() == after(command).text.split()


def test_capacity(clone: Path) -> None:
    command = shown("tune", "capacity", SERVER)
    done = answered(clone, shorter(command, "--repeats", "1"))
    # So short a search may find no rate at which either setting meets the SLO.
    assert done.returncode == (analysis(clone)["answer"]["kind"] == "none_feasible"), done.stderr
    assert measured(clone, "threads") == {"8", "32"}


def test_a_slower_server_is_compared(clone: Path) -> None:
    (edit,) = re.findall(r"^(sed .*)$", PAGE, re.M)
    subprocess.run(edit, shell=True, cwd=clone, check=True)
    assert (clone / "slower_server.py").read_text() != (clone / SERVER).read_text()
    command = shown("compare", SERVER)
    done = answered(clone, shorter(command, *PAUSING))
    assert done.returncode == done.stdout.startswith(f"slower_server.py is worse than {SERVER}"), (
        done.stdout + done.stderr
    )
    assert measured(clone, "revision") == {SERVER, "slower_server.py"}
    assert heads(done.stdout) == heads(after(command).text)
