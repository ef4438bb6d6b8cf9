"""A table of servers whose settings are known, with the options of their command lines that set them and the port. With
it `powerband tune`, given nothing more, proposes a command line; it runs none unasked.

In: a command, and what it prints with `--help`. Out: knobs, and commands with placeholders for them. Pure. Sources:
each server's documentation of its command line, named in its row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from powerband.model.subjects import on_host_network


class Flag(NamedTuple):
    """An option of a server. `spellings`: options with the same meaning; the first one is added if the command has none
    of them; a spelling that ends with `=` is one word with its value. `value`: its value, with a placeholder such as
    `{port}`. `before_jar`: it comes before `-jar`, since the JVM reads it; `first`: before all other words, since the
    server reads no option after one that is none."""

    spellings: tuple[str, ...]
    value: str
    before_jar: bool = False
    first: bool = False


class Knob(NamedTuple):
    """A setting of a server. `name`: that of its placeholder; `levels`: as `-P` takes them, `{twice}` is twice the
    CPUs; `about`: what it counts, in a few words. `flag`: None if it is set by `variable`, of the environment."""

    name: str
    levels: str
    about: str
    flag: Flag | None = None
    variable: str = ""

    @property
    def set_by(self) -> str:
        """The option or the environment variable that sets it, for messages."""
        return self.variable if self.flag is None else self.flag.spellings[0].rstrip("=")


class KnownServer(NamedTuple):
    """A server in the table. `name`: in messages; `knobs`: its settings, the default choice first. `programs`: names of
    its program, or of the module after `python -m`; `jar`: a pattern of the file after `-jar`. `port`: the option that
    sets its port, None if there is none; `other_ports`: options that set it instead, and which it does not take beside
    `port`; `source`: address of its documentation."""

    name: str
    knobs: tuple[Knob, ...]
    programs: tuple[str, ...] = ()
    jar: str = ""
    port: Flag | None = None
    other_ports: tuple[Flag, ...] = ()
    source: str = ""

    def port_in(self, command: Sequence[str]) -> Flag | None:
        """Returns the option that sets the port of this command: of `other_ports` the one that it has, else `port`."""
        words = {word.partition("=")[0] for word in command}
        return next((flag for flag in self.other_ports if words.intersection(flag.spellings)), self.port)


_BIND = Flag(("-b", "--bind"), "127.0.0.1:{port}")
_PORT = Flag(("--port",), "{port}")
_WORKERS = Knob("workers", "1..{twice}", "processes that serve", Flag(("--workers",), "{workers}"))

KNOWN: tuple[KnownServer, ...] = (
    KnownServer(
        "gunicorn",
        (
            _WORKERS._replace(flag=Flag(("-w", "--workers"), "{workers}")),
            Knob("threads", "1..32", "threads of each process", Flag(("--threads",), "{threads}")),
        ),
        programs=("gunicorn",),
        port=_BIND,
        source="https://docs.gunicorn.org/en/stable/settings.html",
    ),
    KnownServer("uvicorn", (_WORKERS,), programs=("uvicorn",), port=_PORT, source="https://www.uvicorn.org/settings/"),
    KnownServer(
        "Hypercorn",
        (_WORKERS._replace(flag=Flag(("-w", "--workers"), "{workers}")),),
        programs=("hypercorn",),
        port=_BIND,
        source="https://hypercorn.readthedocs.io/en/latest/how_to_guides/configuring.html",
    ),
    KnownServer(
        "Granian",
        (_WORKERS,),
        programs=("granian",),
        port=_PORT,
        source="https://github.com/emmett-framework/granian",
    ),
    KnownServer(
        "Waitress",
        (Knob("threads", "1..64", "threads that serve", Flag(("--threads",), "{threads}", first=True)),),
        programs=("waitress-serve", "waitress"),
        port=Flag(("--port",), "{port}", first=True),
        other_ports=(Flag(("--listen",), "127.0.0.1:{port}", first=True),),
        source="https://docs.pylonsproject.org/projects/waitress/en/stable/runner.html",
    ),
    KnownServer(
        "Puma",
        (
            Knob("threads", "1..32", "threads of each process", Flag(("-t", "--threads"), "{threads}:{threads}")),
            Knob("workers", "1..{twice}", "processes that serve", Flag(("-w", "--workers"), "{workers}")),
        ),
        programs=("puma",),
        port=Flag(("-p", "--port"), "{port}"),
        source="https://github.com/puma/puma#usage",
    ),
    KnownServer(
        "Rails, with the Puma of its own configuration",
        (
            Knob("threads", "1..32", "threads of each process", variable="RAILS_MAX_THREADS"),
            Knob("workers", "1..{twice}", "processes that serve", variable="WEB_CONCURRENCY"),
        ),
        programs=("rails",),
        port=Flag(("-p", "--port"), "{port}"),
        source="https://guides.rubyonrails.org/configuring.html",
    ),
    KnownServer(
        "Quarkus",
        (
            Knob(
                "threads",
                "4..256",
                "threads of the worker pool at most",
                Flag(("-Dquarkus.thread-pool.max-threads=",), "{threads}", before_jar=True),
            ),
        ),
        jar=r"quarkus-run\.jar",
        port=Flag(("-Dquarkus.http.port=",), "{port}", before_jar=True),
        source="https://quarkus.io/guides/all-config",
    ),
    KnownServer(
        "a Spring Boot jar",
        (
            Knob(
                "threads",
                "8..256",
                "threads of its Tomcat at most",
                Flag(("--server.tomcat.threads.max=",), "{threads}"),
            ),
        ),
        jar="SPRING",  # stands for any jar with a folder BOOT-INF
        port=Flag(("--server.port=",), "{port}"),
        source="https://docs.spring.io/spring-boot/appendix/application-properties/",
    ),
    KnownServer(
        "Node.js",
        (
            Knob(
                "pool",
                "1..64",
                "threads of libuv's pool: files, DNS, compression, cryptography",
                variable="UV_THREADPOOL_SIZE",
            ),
        ),
        programs=("node", "nodejs"),
        source="https://docs.libuv.org/en/v1.x/threadpool.html",
    ),
)
GO = KnownServer(
    "a Go program",
    (Knob("procs", "1..{twice}", "threads that run Go code at once", variable="GOMAXPROCS"),),
    source="https://pkg.go.dev/runtime#GOMAXPROCS",
)
"""Any Go program, recognised by its executable and not by its name."""

_PYTHON = re.compile(r"python[\d.]*")
_RUNS_ANOTHER = {("bundle", "exec"), ("uv", "run"), ("poetry", "run"), ("pipenv", "run")}
_CONTAINER_CLIENTS = {"docker", "podman", "podman-remote", "nerdctl", "finch"}
# Go programs that start another one, which may not be Go's, or to which they pass no variables.
_LAUNCHERS = _CONTAINER_CLIENTS | {"docker-compose", "kubectl", "ctr", "limactl", "doppler", "op", "infisical"}
_LAUNCHERS |= {"chamber", "aws-vault", "direnv", "envconsul", "task"}
_PUBLISHES = re.compile(r"-[A-Za-z]*p|--publish")
# https://docs.docker.com/engine/network/port-publishing/: [[address:]outer:]inner[/protocol]. No ranges, no UDP.
_PUBLISHED = re.compile(
    r"(?P<option>(?:-[A-Za-z]*p=?|--publish=)?)(?:(?P<address>(?:[\w.-]+|\[[\w:.%]+\]):)?(?P<outer>\d*):)?"
    r"(?P<inner>\d+)(?P<protocol>(?:/tcp)?)"
)
_RELOAD = {"gunicorn", "uvicorn", "Hypercorn", "Granian"}
_WORKER_CLASS = re.compile(r"(?:-k|--worker-class)=?(.*)")
_THREADED = re.compile(r"sync|(?:.*#)?gthread|.*(?:Sync|Thread)Worker")
_OPTION = re.compile(r"^\s{0,12}(?:(-\w)(?:[ =]\S+)?,?\s+)?(--?[A-Za-z][\w-]*)(?:[ =]\[?<?([A-Za-z][\w-]*)>?\]?)?")
_COUNTS = re.compile(r"threads?|workers?|process(es)?|procs|concurrency|instances|executors|pool")
_OTHERWISE = {"timeout", "stack", "name", "class", "prefix", "type", "keepalive", "file", "dir", "group", "user"}
_PORTS = {"port": "{port}", "listen": "127.0.0.1:{port}", "bind": "127.0.0.1:{port}"}
_NO_VALUE = {"Show", "Print", "Enable", "Disable", "Use", "Whether", "Run", "Do", "show", "print", "enable", "disable"}


def known_server(
    command: Sequence[str], *, is_go: bool = False, is_spring: bool = False, has_pool: bool = True
) -> KnownServer | None:
    """Returns the row of the server that a command starts, with the knobs that have an effect there, which may be none;
    None if it is not known. `is_go`: its program was built by Go, which says nothing of a launcher's server;
    `is_spring`: the jar after `-jar` is one of Spring Boot; `has_pool`: a pool of Tomcat's threads serves in it."""
    words = list(command)
    at = _program_at(words)
    names = [PurePath(word).name for word in words[at : at + 1]]
    jar = PurePath(words[words.index("-jar") + 1]).name if "-jar" in words[:-1] else ""
    for known in KNOWN:
        if known.jar == "SPRING" and is_spring:
            return known if has_pool else _without_threads(known)
        if jar and known.jar and re.fullmatch(known.jar, jar):
            return known
        if names and names[0] in known.programs:
            return known if known.name != "gunicorn" or _has_threads(words) else _without_threads(known)
    return GO if is_go and not _LAUNCHERS.intersection(names) else None


def without_reload(command: Sequence[str]) -> list[str]:
    """Returns the command without `--reload`, if it starts a server of Python that has this option."""
    known = known_server(command)
    reloads = known is not None and known.name in _RELOAD
    return [word for word in command if not (reloads and word == "--reload")]


def _without_threads(known: KnownServer) -> KnownServer:
    return known._replace(knobs=tuple(knob for knob in known.knobs if knob.name != "threads"))


def _has_threads(gunicorn: Sequence[str]) -> bool:
    """True if the workers of this command serve with as many threads as `--threads` says. gunicorn takes `gthread` in
    place of `sync` by itself; workers of other classes read no such option."""
    classes = [
        found[1] or after
        for word, after in zip(gunicorn, [*gunicorn[1:], ""], strict=True)
        if (found := _WORKER_CLASS.fullmatch(word))
    ]
    return not classes or _THREADED.fullmatch(classes[-1]) is not None


def _program_at(words: Sequence[str]) -> int:
    """The place of the word that names the server's program, or the module after `python -m`."""
    at = 2 if tuple(words[:2]) in _RUNS_ANOTHER else 0
    is_module = words[at + 1 : at + 2] == ["-m"] and _PYTHON.fullmatch(PurePath(words[at]).name)
    return at + 2 if is_module else at


def knobs_in_help(text: str) -> KnownServer | None:
    """Returns a row made from a program's help: options with a value whose names count threads, workers and the like,
    and the option for its port. None if there is no such knob."""
    knobs: dict[str, Knob] = {}
    port = None
    for line in text.splitlines():
        found = _OPTION.match(line)
        if found is None or found[3] is None or found[3] in _NO_VALUE:
            continue
        spellings = tuple(filter(None, (found[2], found[1])))
        words = found[2].lstrip("-").lower().replace("_", "-").split("-")
        if any(_COUNTS.fullmatch(word) for word in words) and not _OTHERWISE & set(words):
            name = "_".join(words)
            about = line[found.end() :].strip(" :>]") or "a number"
            levels = "1..{twice}" if {"workers", "processes", "instances", "procs"} & set(words) else "1..64"
            knobs.setdefault(name, Knob(name, levels, about, Flag(spellings, f"{{{name}}}")))
        elif port is None and words[-1] in _PORTS and len(words) == 1:
            port = Flag(spellings, _PORTS[words[-1]])
    return KnownServer("its help", tuple(knobs.values()), port=port) if knobs else None


def with_flag(command: Sequence[str], flag: Flag) -> list[str]:
    """Returns the command with a flag, whose value replaces the one in the command or else is added."""
    words = list(command)
    for at, word in enumerate(words[1:], 1):
        for spelling in flag.spellings:
            bare = spelling.rstrip("=")
            if word == bare and at + 1 < len(words) and not spelling.endswith("="):
                return [*words[: at + 1], flag.value, *words[at + 2 :]]
            if word.startswith(f"{bare}=") and spelling.startswith(("--", "-D")):
                return [*words[:at], f"{bare}={flag.value}", *words[at + 1 :]]
            short = len(spelling) == 2 and word.startswith(spelling) and word[2:3].isdigit()
            if short:
                return [*words[:at], spelling, flag.value, *words[at + 1 :]]
    spelled = flag.spellings[0]
    added = [f"{spelled}{flag.value}"] if spelled.endswith("=") else [spelled, flag.value]
    at = len(words)
    if flag.before_jar and "-jar" in words:
        at = words.index("-jar")
    elif flag.first:
        at = _program_at(words) + 1
    return [*words[:at], *added, *words[at:]]


def with_port(command: Sequence[str], number: str) -> list[str] | None:
    """Returns the command with `{port}` in place of this port; None unless it occurs in exactly one word after the
    program. Of two in one word (`8080:8080`) the first is meant. A command that runs a container has `{port}` as the
    port outside of it, whichever of the two `number` is; None if the container publishes no such port."""
    if _starts_container(command):
        return _with_outer_port(command, number)
    pattern = re.compile(rf"(?<!\d){re.escape(number)}(?!\d)")
    places = [at for at, word in enumerate(command) if pattern.search(word)]
    if len(places) != 1 or places[0] == 0:
        return None
    return [pattern.sub("{port}", word, count=1) if at == places[0] else word for at, word in enumerate(command)]


def _starts_container(command: Sequence[str]) -> bool:
    """True if the command starts a container with a network of its own: on the host's network nothing is published."""
    words = list(command)
    client = words[: words.index("run")] if "run" in words else []
    is_client = any(PurePath(word).name in _CONTAINER_CLIENTS for word in client)
    return is_client and not on_host_network(words)


def _with_outer_port(command: Sequence[str], number: str) -> list[str] | None:
    published = [
        (at, found)
        for at in range(1, len(command))
        if (found := _PUBLISHED.fullmatch(command[at])) and (found["option"] or _PUBLISHES.fullmatch(command[at - 1]))
    ]
    for side in ("outer", "inner"):
        for at, found in published:
            if found[side] == number:
                # With its inner port alone a container gets any free one outside.
                word = f"{found['option']}{found['address'] or ''}{{port}}:{found['inner']}{found['protocol']}"
                return [*command[:at], word, *command[at + 1 :]]
    return None
