"""Builds the servers of `real/`, each once for the tests of this process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from fakes.stand import FAKES
from powerband.processes.dotnet import find_dotnet, numbers
from powerband.processes.jdk import find_jdk
from powerband.processes.locked_jars import LIST, wrong_jars

REAL = FAKES / "real"
ROOT = FAKES.parent.parent
JAVA_LEAST = 17
VIRTUAL_LEAST = 21
DOTNET_LEAST = 8
_KESTREL_RUNTIMES = ("Microsoft.NETCore.App", "Microsoft.AspNetCore.App")


@cache
def java_classes() -> str:
    """The class path of the JDK's own server, compiled."""
    return _compiled((), "Work.java", "Server.java")


@cache
def container_path() -> str:
    """The class path of Tomcat, Jetty, Undertow and their libraries, as Maven fetched them. Raises RuntimeError if the
    jars differ from the list of expected ones."""
    jars = tempfile.mkdtemp(prefix="powerband-jars-")
    pom = REAL / "jars" / "pom.xml"
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}", f"-Dtarget={jars}")
    _run("mvn", "-q", "-B", "-f", str(pom), *goal)
    if wrong := wrong_jars(Path(jars), pom.with_name(LIST)):
        raise RuntimeError(f"Maven fetched other jars: {'; '.join(wrong)}")
    return f"{_compiled(('-cp', f'{jars}/*'), 'Work.java', 'Containers.java', 'Worker.java')}:{jars}/*"


@cache
def go_server() -> str:
    return _go(REAL, "server.go")


@cache
def go_database() -> str:
    return _go(REAL / "database", ".")


@cache
def fasthttp_server() -> str:
    return _go(REAL / "fasthttp", ".")


@cache
def axum_server() -> str:
    """The path of the axum server, whose build takes a minute."""
    target = tempfile.mkdtemp(prefix="powerband-axum-")
    manifest = REAL / "axum" / "Cargo.toml"
    _run("cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", str(manifest), "--target-dir", target)
    return f"{target}/release/server"


@cache
def further_python() -> str:
    """The path of a Python in an environment of its own, with the servers of `real/python/`, which only these tests
    need."""
    uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    folder = tempfile.mkdtemp(prefix="powerband-python-")
    _run(uv, "venv", "--quiet", "--python", sys.executable, folder)
    python = f"{folder}/bin/python"
    listed = str(REAL / "python" / "requirements.txt")
    _run(uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", listed)
    return python


def virtual_java() -> str:
    return str(find_jdk(VIRTUAL_LEAST, compiles=True).home / "bin" / "java")


@cache
def virtual_classes() -> str:
    return _compiled((), "Work.java", "VirtualServer.java", release=VIRTUAL_LEAST)


@cache
def kestrel_server() -> str:
    """The assembly of the Kestrel server, compiled against the runtimes beside the SDK, without a restore."""
    sdk = find_dotnet(DOTNET_LEAST)
    folder = Path(tempfile.mkdtemp(prefix="powerband-kestrel-"))
    runtimes = [
        max((sdk.home / "shared" / name).iterdir(), key=lambda each: numbers(each.name)) for name in _KESTREL_RUNTIMES
    ]
    references = [f"-reference:{file}" for runtime in runtimes for file in sorted(runtime.glob("*.dll"))]
    words = [
        "-target:exe",
        "-optimize+",
        "-debug-",
        f"-out:{folder}/Kestrel.dll",
        str(REAL / "Kestrel.cs"),
        *references,
    ]
    (folder / "options.rsp").write_text("\n".join(f'"{word}"' for word in words))
    compiler = sdk.home / "sdk" / sdk.version / "Roslyn" / "bincore" / "csc.dll"
    _run(str(sdk.program), "exec", str(compiler), "-nologo", "-noconfig", "-nostdlib+", f"@{folder}/options.rsp")
    frameworks = [{"name": runtime.parent.name, "version": runtime.name} for runtime in runtimes]
    options = {"frameworks": frameworks, "configProperties": {"System.GC.Server": False}}
    (folder / "Kestrel.runtimeconfig.json").write_text(json.dumps({"runtimeOptions": options}))
    return str(folder / "Kestrel.dll")


# The builds by their names in a command.
BUILT: Mapping[str, Callable[[], str]] = {
    "{go}": go_server,
    "{classes}": java_classes,
    "{containers}": container_path,
    "{go-database}": go_database,
    "{kestrel}": kestrel_server,
    "{fasthttp}": fasthttp_server,
    "{axum}": axum_server,
    "{further-python}": further_python,
    "{java-21}": virtual_java,
    "{classes-21}": virtual_classes,
}


def built(command: Sequence[str]) -> tuple[str, ...]:
    """The command with the servers that it names built, and their names replaced by paths."""
    words = list(command)
    for name, build in BUILT.items():
        words = [word.replace(name, build()) if name in word else word for word in words]
    return tuple(words)


def _compiled(options: Sequence[str], *sources: str, release: int = JAVA_LEAST) -> str:
    folder = tempfile.mkdtemp(prefix="powerband-java-")
    compiler = find_jdk(release, compiles=True).home / "bin" / "javac"
    _run(str(compiler), "--release", str(release), *options, "-d", folder, *(str(REAL / name) for name in sources))
    return folder


def _go(folder: Path, source: str) -> str:
    target = tempfile.mkdtemp(prefix="powerband-go-")
    _run("go", "build", "-o", f"{target}/server", source, cwd=folder)
    return f"{target}/server"


def _run(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, timeout=300, cwd=cwd)
