"""Learns about a server's program before anything is measured: what it prints with `--help`, whether Go built it,
whether its jar is one of Spring Boot, and whether a pool of Tomcat's threads serves in that."""

from __future__ import annotations

import re
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
_VIRTUAL = "spring.threads.virtual.enabled"
# By precedence: arguments, then the JVM's properties, then variables.
# https://docs.spring.io/spring-boot/reference/features/external-config.html
_SETS_VIRTUAL = (f"--{_VIRTUAL}=", f"-D{_VIRTUAL}=", "SPRING_THREADS_VIRTUAL_ENABLED=")
_TRUE = {"true", "on", "yes", "1"}
_KEY = re.compile(r"( *)([\w.-]+) *[:=] *[\"']?(?:\$\{[\w.-]+:)?(\w*)")  # of `${NAME:default}` the default


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
    try:
        with zipfile.ZipFile(_jar(command)) as jar:
            return any(name.startswith("BOOT-INF/") for name in jar.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def has_tomcat_pool(command: Sequence[str], variables: Sequence[str]) -> bool:
    """True if a pool of Tomcat's threads serves in the Spring Boot jar after `-jar`: it contains Tomcat, and neither
    the command, the variables (`NAME=VALUE`) nor its own configuration asks for virtual threads."""
    try:
        with zipfile.ZipFile(_jar(command)) as jar:
            names = jar.namelist()
            files = [f"BOOT-INF/classes/application.{suffix}" for suffix in ("properties", "yml", "yaml")]
            texts = [jar.read(name).decode(errors="replace") for name in files if name in names]
    except (OSError, zipfile.BadZipFile):
        return False
    if not any(name.startswith("BOOT-INF/lib/tomcat-embed-core-") for name in names):
        return False
    for key in _SETS_VIRTUAL:
        for word in [*command, *variables]:
            if word.startswith(key):
                return word.removeprefix(key).lower() not in _TRUE
    return not any(map(_turns_virtual_on, texts))


def _jar(command: Sequence[str]) -> str:
    """The path after `-jar`; empty, which is no file, if there is none."""
    return command[list(command).index("-jar") + 1] if "-jar" in command[:-1] else ""


def _turns_virtual_on(text: str) -> bool:
    """True if properties, or YAML in its usual form, ask for virtual threads, be it for one profile only."""
    path: list[tuple[int, str]] = []  # the keys that a line of YAML is below, with their indents
    for line in text.splitlines():
        if found := _KEY.match(line):
            path = [*(each for each in path if each[0] < len(found[1])), (len(found[1]), found[2])]
            if ".".join(name for _, name in path) == _VIRTUAL and found[3].lower() in _TRUE:
                return True
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
