"""A Docker engine of a test's own, in a network namespace of its own, with an image of a static server.

What it started is ended by pid, its mounts vanish with its mount namespace, and the network namespace is removed."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fakes.needs import need_root, without
from powerband.base.procfs import all_processes, tree_of

IMAGE = "my-image"
SOURCE = Path(__file__).with_suffix(".go")
_MADE = itertools.count()  # counts the engines of this process
UP_S, ENDS_S = 60.0, 20.0


@dataclass(frozen=True)
class DockerEngine:
    """A running Docker engine. `name`: its network namespace; `env`: variables by which `docker` finds it."""

    name: str
    env: dict[str, str]

    def inside(self, *command: str | Path) -> list[str]:
        """The command, run in the engine's network namespace. `ip netns exec` would hide the cgroups."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *map(str, command)]

    def docker(self, *words: str | Path) -> str:
        command = self.inside("docker", *words)
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def pids(self) -> set[int]:
        """The processes of its network namespace and their descendants: those of containers have other namespaces."""
        told = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True).stdout
        processes = all_processes()
        return set().union(*(tree_of(int(pid), processes) for pid in told.split()))


def need_docker() -> None:
    need_root()
    missing = [name for name in ("dockerd", "docker", "ip", "nsenter") if shutil.which(name) is None]
    if missing:
        without(f"no {missing[0]} on PATH: install Debian's packages docker.io, iproute2 and util-linux")
    if shutil.which("go") is None:
        without("no Go on PATH: install Debian's package golang-go")


@contextmanager
def docker_engine(**configuration: object) -> Iterator[DockerEngine]:
    """Yields a Docker engine that has the image `my-image`. `configuration`: of its daemon.json."""
    need_docker()
    name = f"pb{os.getpid()}d{next(_MADE)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        without(f"no network namespace can be made here: {made.stderr.strip()}")
    folder = Path(tempfile.mkdtemp(prefix="pb", dir="/tmp"))  # the path of a Unix socket must be short
    engine = DockerEngine(name, {**os.environ, "DOCKER_HOST": f"unix://{folder}/d.sock", "DOCKER_CONFIG": str(folder)})
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        (folder / "daemon.json").write_text(json.dumps(configuration))
        daemon = [
            "unshare", "--mount", "dockerd", "--config-file", folder / "daemon.json", "--data-root", folder / "data",
            "--exec-root", folder / "x", "--pidfile", folder / "pid", "--host", engine.env["DOCKER_HOST"],
        ]  # fmt: skip
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(engine.inside(*daemon), stdout=log, stderr=log, start_new_session=True) as process,
        ):
            try:
                _wait_up(engine, process, folder / "log")
                _make_image(engine, folder)
                yield engine
            finally:
                _end(engine)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_up(engine: DockerEngine, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + UP_S
    while subprocess.run(engine.inside("docker", "info"), env=engine.env, capture_output=True, check=False).returncode:
        assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()[-4000:]
        time.sleep(0.1)


def _make_image(engine: DockerEngine, folder: Path) -> None:
    env = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", folder / "server", SOURCE], env=env, check=True, timeout=300)
    subprocess.run(["tar", "-C", folder, "-cf", folder / "image.tar", "server"], check=True)
    engine.docker("import", "--change", 'ENTRYPOINT ["/server"]', folder / "image.tar", IMAGE)


def _end(engine: DockerEngine) -> None:
    """Kills all that runs in the engine's namespaces: a container's processes descend from its shim."""
    deadline_s = time.monotonic() + ENDS_S
    while (pids := engine.pids()) and time.monotonic() < deadline_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
