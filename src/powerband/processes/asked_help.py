"""What can be learned of a server's program before anything is measured: what it says with `--help`, whether Go built
it, whether its jar is one of Spring Boot."""

from __future__ import annotations

import shutil
import struct
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from powerband.processes.elf import Elf, ElfError
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed
from powerband.processes.go_memory import GO_SECTION
from powerband.processes.probe_process import command_up
from powerband.processes.stop_request import StopRequest
from powerband.wire.specs import Launch

HELP_WITHIN_S = 5.0
"""A program that does not know `--help` may begin to serve: it is ended then, with all that it started."""
_MOST_BYTES = 1 << 18  # arbitrary: help is some KB
_GRACE_NS = 200_000_000


def is_go(command: Sequence[str]) -> bool:
    path = shutil.which(command[0])
    if path is None:
        return False
    try:
        with Elf(Path(path)) as program:
            return program.section(GO_SECTION) is not None
    except (OSError, ElfError, struct.error):
        return False


def is_spring(command: Sequence[str]) -> bool:
    """Whether the file after `-jar` is laid out as Spring Boot does it."""
    if "-jar" not in command[:-1]:
        return False
    try:
        with zipfile.ZipFile(command[list(command).index("-jar") + 1]) as jar:
            return any(name.startswith("BOOT-INF/") for name in jar.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def help_command(command: Sequence[str]) -> list[str]:
    """The command up to its first option or number, with `--help`."""
    words = [command[0]]
    for word in command[1:]:
        if word.startswith("-") or word.isdigit() or "{" in word:
            break
        words.append(word)
    return [*words, "--help"]


def help_of(command: Sequence[str], engine: Path) -> str:
    """What `help_command` prints; empty where it cannot be started. It runs under a probe of ours, and nothing that it
    started outlives this."""
    with tempfile.TemporaryDirectory(prefix="powerband-") as folder:
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
        return log.read_bytes()[:_MOST_BYTES].decode(errors="replace")
