"""The servers of `real/` that must be built, each once for the tests of this process."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from fakes.stand import FAKES
from powerband.processes.jdk import find_jdk
from powerband.processes.locked_jars import LIST, wrong_jars

REAL = FAKES / "real"
JAVA_LEAST = 17


@cache
def java_classes() -> str:
    """The folder of the JDK's own server."""
    return _compiled((), "Work.java", "Server.java")


@cache
def container_path() -> str:
    """The class path of Tomcat, Jetty and what they need, as Maven fetched it. Raises RuntimeError where it fetched
    anything else than it should."""
    jars = tempfile.mkdtemp(prefix="powerband-jars-")
    pom = REAL / "jars" / "pom.xml"
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}", f"-Dtarget={jars}")
    _run("mvn", "-q", "-B", "-f", str(pom), *goal)
    if wrong := wrong_jars(Path(jars), pom.with_name(LIST)):
        raise RuntimeError(f"Maven fetched other jars: {'; '.join(wrong)}")
    return f"{_compiled(('-cp', f'{jars}/*'), 'Work.java', 'Containers.java')}:{jars}/*"


@cache
def go_server() -> str:
    return _go(REAL, "server.go")


@cache
def go_database() -> str:
    return _go(REAL / "database", ".")


# By its name in a command.
BUILT: Mapping[str, Callable[[], str]] = {
    "{go}": go_server,
    "{classes}": java_classes,
    "{containers}": container_path,
    "{go-database}": go_database,
}


def built(command: Sequence[str]) -> tuple[str, ...]:
    """The command with what it names built."""
    words = list(command)
    for name, build in BUILT.items():
        words = [word.replace(name, build()) if name in word else word for word in words]
    return tuple(words)


def _compiled(options: Sequence[str], *sources: str) -> str:
    folder = tempfile.mkdtemp(prefix="powerband-java-")
    compiler = find_jdk(JAVA_LEAST, compiles=True).home / "bin" / "javac"
    _run(str(compiler), "--release", str(JAVA_LEAST), *options, "-d", folder, *(str(REAL / name) for name in sources))
    return folder


def _go(folder: Path, source: str) -> str:
    target = tempfile.mkdtemp(prefix="powerband-go-")
    _run("go", "build", "-o", f"{target}/server", source, cwd=folder)
    return f"{target}/server"


def _run(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, timeout=300, cwd=cwd)
