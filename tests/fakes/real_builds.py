"""Builds the servers of `real/`, each once from the same sources: builds are kept in the cache folder, as those of
subjects are."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from fakes.stand import FAKES
from powerband.base.machine import cache_folder
from powerband.processes.dotnet import find_dotnet, numbers
from powerband.processes.jdk import find_jdk
from powerband.processes.locked_jars import LIST, wrong_jars
from powerband.processes.toolchain import build_once

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
    pom = REAL / "jars" / "pom.xml"
    expected = pom.with_name(LIST)

    def fetch(jars: str) -> None:
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
        _run("mvn", "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={jars}", f"-Dtarget={jars}")
        if wrong := wrong_jars(Path(jars), expected):
            raise RuntimeError(f"Maven fetched other jars: {'; '.join(wrong)}")

    jars = _kept("jars", fetch, pom, expected)
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
    manifest = REAL / "axum" / "Cargo.toml"
    words = ("cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", str(manifest), "--target-dir")
    target = _kept("axum", lambda folder: _run(*words, folder), *_files(manifest.parent), _said("cargo", "--version"))
    return f"{target}/release/server"


@cache
def further_python() -> str:
    """The path of a Python in an environment of its own, with the servers of `real/python/`, which only these tests
    need."""
    uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    listed = REAL / "python" / "requirements.txt"

    def install(folder: str) -> None:
        _run(uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder)
        _run(uv, "pip", "install", "--quiet", "--python", f"{folder}/bin/python", "--require-hashes", "-r", str(listed))

    return f"{_kept('venv', install, listed, sys.executable, sys.version)}/bin/python"


def virtual_java() -> str:
    return str(find_jdk(VIRTUAL_LEAST, compiles=True).home / "bin" / "java")


@cache
def virtual_classes() -> str:
    return _compiled((), "Work.java", "VirtualServer.java", release=VIRTUAL_LEAST)


@cache
def kestrel_server() -> str:
    """The assembly of the Kestrel server, compiled against the runtimes beside the SDK, without a restore."""
    sdk = find_dotnet(DOTNET_LEAST)
    runtimes = [
        max((sdk.home / "shared" / name).iterdir(), key=lambda each: numbers(each.name)) for name in _KESTREL_RUNTIMES
    ]
    references = [f"-reference:{file}" for runtime in runtimes for file in sorted(runtime.glob("*.dll"))]
    compiler = sdk.home / "sdk" / sdk.version / "Roslyn" / "bincore" / "csc.dll"
    frameworks = [{"name": runtime.parent.name, "version": runtime.name} for runtime in runtimes]
    options = {"frameworks": frameworks, "configProperties": {"System.GC.Server": False}}
    source = REAL / "Kestrel.cs"

    def compile_in(folder: str) -> None:
        words = ["-target:exe", "-optimize+", "-debug-", f"-out:{folder}/Kestrel.dll", str(source), *references]
        Path(folder, "options.rsp").write_text("\n".join(f'"{word}"' for word in words))
        asked = ("-nologo", "-noconfig", "-nostdlib+", f"@{folder}/options.rsp")
        _run(str(sdk.program), "exec", str(compiler), *asked)
        Path(folder, "Kestrel.runtimeconfig.json").write_text(json.dumps({"runtimeOptions": options}))

    return f"{_kept('kestrel', compile_in, source, str(compiler), repr(options))}/Kestrel.dll"


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


def _kept(name: str, build: Callable[[str], None], *made_from: Path | str) -> str:
    """The folder that `build` filled. `made_from`: all that the result depends on, sources and texts. The folder's real
    path is used: the scripts of a Python environment name it, and a test run's link to the builds is gone later."""
    parts = [each.read_bytes() if isinstance(each, Path) else each.encode() for each in made_from]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    folder = (cache_folder() / "subjects").resolve() / f"test-{name}-{digest}"

    def fill(given: Mapping[str, str]) -> bool:
        build(given["build"])
        return True

    build_once({"build": str(folder)}, fill)
    return str(folder)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _compiled(options: Sequence[str], *names: str, release: int = JAVA_LEAST) -> str:
    jdk, sources = find_jdk(release, compiles=True), [REAL / name for name in names]
    words = (str(jdk.home / "bin" / "javac"), "--release", str(release), *options, "-d")
    return _kept("java", lambda folder: _run(*words, folder, *map(str, sources)), *sources, *words, str(jdk.version))


def _go(folder: Path, source: str) -> str:
    def build(target: str) -> None:
        _run("go", "build", "-o", f"{target}/server", source, cwd=folder)

    sources = _files(folder) if source == "." else [folder / source]
    return f"{_kept('go', build, *sources, _said('go', 'version'))}/server"


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def _run(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, timeout=300, cwd=cwd)
