"""Learns about a server's program before anything is measured: what it prints with `--help`, whether Go built it, and
whether its jar is one of Spring Boot."""

from __future__ import annotations

import shutil
import struct
import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from powerband.processes.elf import Elf, ElfError
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed
from powerband.processes.go_memory import GO_SECTION
from powerband.processes.probe_process import command_up
from powerband.processes.stop_request import StopRequest
from powerband.store import temporary
from powerband.wire.specs import Launch

HELP_WITHIN_S = 5.0
"""The time limit: a program that does not know `--help` may begin to serve, and is then ended with all that it
started."""
_MOST_BYTES = 1 << 18  # arbitrary: a help text is some KB
_GRACE_NS = 200_000_000


def is_go(command: Sequence[str]) -> bool:
    """True if Go built the program that the command starts; False also if its file cannot be read."""
    path = shutil.which(command[0])
    if path is None:
        return False
    try:
        with Elf(Path(path)) as program:
            return program.section(GO_SECTION) is not None
    except (OSError, ElfError, struct.error):
        return False


def is_spring(command: Sequence[str]) -> bool:
    """True if the file after `-jar` has the layout of a Spring Boot jar."""
    if "-jar" not in command[:-1]:
        return False
    try:
        with zipfile.ZipFile(command[list(command).index("-jar") + 1]) as jar:
            return any(name.startswith("BOOT-INF/") for name in jar.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def help_command(command: Sequence[str]) -> list[str]:
    """Returns the command up to its first option, number or placeholder, with `--help`."""
    words = [command[0]]
    for word in command[1:]:
        if word.startswith("-") or word.isdigit() or "{" in word:
            break
        words.append(word)
    return [*words, "--help"]


def help_of(command: Sequence[str], engine: Path) -> str:
    """Returns what `help_command` prints; empty if it cannot be started. It runs under a probe, so that nothing it
    started outlives this call."""
    with temporary(partial(tempfile.TemporaryDirectory, prefix="powerband-")) as folder:
        log = Path(folder, "help.log")
        launch = Launch(name="help", argv=tuple(help_command(command)), log_file=str(log), grace_ns=_GRACE_NS)
        stop = StopRequest()
        try:
            with Pump(stop) as pump, command_up(engine, launch, Path(folder, "engine.log"), pump) as asked:
                pump.wait(lambda: asked.exited is not None, HELP_WITHIN_S)
        except TrialFailed:
            return ""
        finally:
            stop.close()
        with log.open("rb") as said:
            return said.read(_MOST_BYTES).decode(errors="replace")
