"""Asks for a server's command, when `powerband tune` has no arguments and runs on a terminal; proposes the line that
tunes it, and runs that if the user agrees. Nothing is guessed silently: the user sees where each knob was found, and
the line, before anything starts."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from powerband.base.errors import EXIT_OK, UsageError
from powerband.cli.options import progress

if TYPE_CHECKING:
    from powerband.files.known_knobs import Knob, KnownServer

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_NEEDS_NO_QUOTES = re.compile(r"[\w@%+=:,./{}-]+")
_LIST_OR_RANGE = re.compile(r"\{[^}]*(,|\.\.)[^}]*\}")  # a shell would expand it


def can_ask() -> bool:
    """True if a person can read questions and answer them: stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask() -> int:
    """Asks, and runs the line in place of this process; returns an exit code if the user does not want to run it."""
    from powerband.files.known_knobs import without_reload
    from powerband.files.levels import parse_levels

    progress("Which command starts your server? As you type it in a shell, in the foreground, without `&`.")
    command, options, known = _varied(*_command())
    if known is None or not known.knobs:
        knobs = [(name, "") for name in _placeholders([*command, *options])]
    else:
        for knob in _chosen(known):
            command, options = _with_knob(command, options, knob)
        taken = _placeholders([*command, *options])
        knobs = [(knob.name, _filled(knob.levels)) for knob in known.knobs if knob.name in taken]
    parameters: list[str] = []
    for name, proposed in knobs:
        levels = _prompt(f"Values of {name}: a list (1,2,4), or a range that doubles (1..8)", proposed or "1..8")
        try:
            parse_levels(levels)
        except ValueError as error:
            raise UsageError(f"-P {name}={levels}: {error}") from None
        parameters += ["-P", f"{name}={levels}"]
    if (steady := without_reload(command)) != command:
        progress("--reload is left out: it restarts workers, and uvicorn then ignores --workers")
        command = steady
    command, options = _address(command, options, known)
    budget = _prompt("How long may it take?", "5m")
    line = ["tune", *parameters, *options, "--budget", budget, "--", *command]
    progress(f"\nThis measures it:\n  powerband {' '.join(map(_quoted, line))}\n")
    if not click.confirm("Run it now?", default=False, err=True):
        progress("Nothing was started. Change the line as you like: `powerband tune --help` lists every option.")
        return EXIT_OK
    os.execv(sys.executable, [sys.executable, "-P", "-m", "powerband", *line])
    return EXIT_OK


def _command() -> tuple[list[str], list[str]]:
    """A command that the user types, and the options that set the variables before it, as in a shell."""
    while True:
        text = _prompt("Command")
        try:
            words = shlex.split(text)
        except ValueError as error:
            progress(f"That cannot be read as a shell would ({error}).")
            continue
        options: list[str] = []
        while len(words) > 1 and _VARIABLE.match(words[0]):
            options += ["--env", words.pop(0)]
        if words:
            return words, options


def _placeholders(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for word in words for name in _PLACEHOLDER.findall(word) if name != "port"))


def _varied(command: list[str], options: list[str]) -> tuple[list[str], list[str], KnownServer | None]:
    """The command, its options, and what can vary in it; None, or a row without knobs, if placeholders say that. If
    nothing is found, the user is asked for a command with placeholders."""
    from powerband.files.known_knobs import known_server
    from powerband.processes.asked_help import has_tomcat_pool, is_go, is_spring

    if _placeholders([*command, *options]):
        return command, options, None
    has_pool = has_tomcat_pool(command, options)
    known = known_server(command, is_go=is_go(command), is_spring=is_spring(command), has_pool=has_pool)
    if known is not None and known.knobs:
        progress(f"This is {known.name}. It can vary ({known.source}):")
        return command, options, known
    if known is not None:
        progress(f"This is {known.name}, in which no pool of Tomcat's threads serves: powerband knows nothing to vary.")
    elif (found := _helped(command)) is not None:
        return command, options, found
    progress(
        "Write it again with a name in braces where the number stands that is to vary: ./server --threads {threads}"
    )
    command, options = _command()
    if not _placeholders([*command, *options]):
        raise UsageError("nothing to vary: no {NAME} stands in that command")
    return command, options, known if is_spring(command) else None


def _helped(command: list[str]) -> KnownServer | None:
    """Returns what the command's help names; None if it names nothing, or if the user does not want it to be asked."""
    from powerband.files.known_knobs import knobs_in_help
    from powerband.processes.asked_help import help_command, help_of
    from powerband.processes.engine_fleet import find_engine

    asked = " ".join(map(_quoted, help_command(command)))
    progress(f"This is no server that powerband knows. `{asked}` may name its settings; it is ended after 5 s.")
    if not click.confirm("Run that?", default=True, err=True):
        return None
    found = knobs_in_help(help_of(command, find_engine()))
    if found is None:
        progress("It names no option for threads, workers or the like.")
    else:
        progress("Its help names what can vary:")
    return found


def _chosen(known: KnownServer) -> list[Knob]:
    for number, knob in enumerate(known.knobs, 1):
        progress(f"  {number}  {knob.name} ({knob.set_by}): {knob.about}")
    if len(known.knobs) == 1:
        return list(known.knobs)
    while True:
        numbers = _prompt("Which? A number; several (1,2) make a grid", "1").split(",")
        try:
            return [known.knobs[[str(at + 1) for at in range(len(known.knobs))].index(one.strip())] for one in numbers]
        except ValueError:
            progress(f"Write numbers from 1 to {len(known.knobs)}.")


def _with_knob(command: list[str], options: list[str], knob: Knob) -> tuple[list[str], list[str]]:
    from powerband.files.known_knobs import with_flag

    if knob.flag is None:
        return command, [*options, "--env", f"{knob.variable}={{{knob.name}}}"]
    return with_flag(command, knob.flag), options


def _address(command: list[str], options: list[str], known: KnownServer | None) -> tuple[list[str], list[str]]:
    """The command with its port filled in or made `{port}`, unless a variable has it, and the options with the one that
    says what is requested."""
    from powerband.files.known_knobs import with_flag, with_port

    port = "{port}"
    if not any("{port}" in word for word in [*command, *options]):
        flag = None if known is None else known.port_in(command)
        if flag is not None:
            command = with_flag(command, flag)
        else:
            number = _prompt("Which port does it listen on?", "8080")
            with_it = with_port(command, number)
            command, port = (command, number) if with_it is None else (with_it, port)
    path = _prompt("Which path does the load request?", "/")
    address = f"http://127.0.0.1:{port}/{path.lstrip('/')}"
    return command, options if address == "http://127.0.0.1:{port}/" else [*options, "--url", address]


def _filled(levels: str) -> str:
    """The levels with twice the CPUs that powerband, and so the server, may use at once or by its quota."""
    from powerband.processes.cgroups import quota_of

    allowed, quota = len(os.sched_getaffinity(0)), quota_of()
    return levels.replace("{twice}", str(2 * (allowed if quota is None else min(allowed, math.ceil(quota)))))


def _quoted(word: str) -> str:
    if _NEEDS_NO_QUOTES.fullmatch(word) and not _LIST_OR_RANGE.search(word):
        return word
    return shlex.quote(word)


def _prompt(question: str, default: str | None = None) -> str:
    return str(click.prompt(question, default=default, err=True)).strip()
