"""The programs that a test needs: without them the test is skipped, and fails if POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from fakes.hosts import why_not
from powerband.base.errors import MeasurementError, SubjectError
from powerband.base.machine import cache_folder
from powerband.loads.jmeter.install import JMeter, installed_jmeter
from powerband.processes.dotnet import find_dotnet
from powerband.processes.engine_fleet import find_engine
from powerband.processes.jdk import find_jdk
from powerband.processes.stop_request import StopRequest
from powerband.trials.instruments.link import check_link
from powerband.trials.instruments.visitor import find_browser
from powerband.trials.postgresql import find_binaries

_CACHE = cache_folder().parent  # of the user who runs the tests, before a test has its own
_DOTNET_BESIDE = Path(__file__).parents[3] / "shared" / "dotnet" / "use"


def without(reason: str) -> NoReturn:
    """Ends the test for want of something: it is skipped, or fails if POWERBAND_NO_SKIP=1."""
    if os.environ.get("POWERBAND_NO_SKIP") == "1":
        pytest.fail(f"{reason}, and POWERBAND_NO_SKIP=1 forbids to skip")
    pytest.skip(reason)


def need_root() -> None:
    if os.geteuid() != 0:
        without("only root can become another user")


def need_jdk(*, maven: bool = False) -> None:
    """Needs a JDK with a compiler that the bench finds."""
    try:
        find_jdk(21, compiles=True)
    except SubjectError as error:
        without(str(error))
    if maven and shutil.which("mvn") is None:
        without("no Maven (mvn) here: install Debian's package maven")


def need_jmeter() -> JMeter:
    """Needs the real JMeter, which is fetched if it is missing."""
    try:
        with closing(StopRequest()) as stop:
            return installed_jmeter(stop)
    except (MeasurementError, SubjectError) as error:
        without(str(error))


def need_postgresql() -> None:
    try:
        find_binaries()
    except SubjectError as error:
        without(str(error))


def need_browser() -> str:
    """Needs a Chromium; returns its path."""
    browser = find_browser()
    if browser is None:
        without("no Chromium on PATH: install Debian's package chromium")
    return browser


def need_link() -> None:
    """Needs network namespaces, and a link between two of them."""
    try:
        check_link(find_engine())
    except SubjectError as error:
        without(str(error))


def need_hosts() -> None:
    """Needs network namespaces that stand for hosts with addresses of their own, and Ray."""
    if why := why_not():
        without(why)


def need_javac() -> None:
    """Needs any JDK on PATH, for a test that compiles by itself."""
    if shutil.which("javac") is None or shutil.which("java") is None:
        without("no JDK (java and javac) on PATH: install Debian's package default-jdk-headless")


def need_node() -> None:
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        without(f"no {' and no '.join(missing)} here: install Debian's packages nodejs and npm")


def find_prometheus() -> str | None:
    """The path of a Prometheus with its `promtool` on PATH; None if there is none."""
    return shutil.which("prometheus") if shutil.which("promtool") else None


def need_prometheus() -> None:
    if find_prometheus() is None:
        without("no Prometheus on PATH: install Debian's package prometheus")


def need_dotnet() -> None:
    """Needs a .NET SDK that the bench finds, or the one of a folder `shared/dotnet` beside the repository."""
    try:
        find_dotnet(8)
        return
    except SubjectError as error:
        missing = str(error)
    if not _DOTNET_BESIDE.exists():
        without(missing)
    script = f'eval "$({shlex.quote(str(_DOTNET_BESIDE))})" && env -0'
    env = {**os.environ, "XDG_CACHE_HOME": str(_CACHE)}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        without(f"{_DOTNET_BESIDE} failed: {done.stderr}")
    told = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    os.environ.update({name: told[name] for name in told if name == "RestoreSources" or name.startswith("DOTNET_")})
