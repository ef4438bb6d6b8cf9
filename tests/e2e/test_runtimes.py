"""Real servers in Java, Go, .NET, Node.js and Python, with one CPU and with all: the number of CPUs that their runtimes
count."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import powerband
from fakes.needs import need_dotnet, need_javac, need_node, without
from fakes.stand import FAKES, experiment, run_one, short_load
from powerband.model.experiment import Subject
from powerband.model.host_use import HostUse
from powerband.processes.dotnet import find_dotnet
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

REAL = FAKES / "real"
COUNT = len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def two_cpus() -> None:
    if COUNT < 2:
        without("there is one CPU")


@pytest.fixture(scope="module")
def go_servers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A Go server built with symbols, without symbols, and as a position-independent executable."""
    if shutil.which("go") is None:
        without("no Go here: install Debian's package golang-go")
    folder = tmp_path_factory.mktemp("go")
    options = {"whole": [], "stripped": ["-ldflags=-s -w"], "movable": ["-buildmode=pie"]}
    for name, words in options.items():
        command = ["go", "build", *words, "-o", folder / name, REAL / "server.go"]
        subprocess.run(command, check=True, timeout=300)
    return {name: str(folder / name) for name in options}


@pytest.fixture(scope="module")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    need_javac()
    folder = tmp_path_factory.mktemp("java")
    subprocess.run(["javac", "-d", folder, REAL / "Work.java", REAL / "Server.java"], check=True, timeout=300)
    return str(folder)


@pytest.fixture(scope="module")
def net_server(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A .NET server, compiled by the SDK's compiler alone, which takes two seconds; a build by MSBuild takes ten."""
    need_dotnet()
    found, folder = find_dotnet(8), tmp_path_factory.mktemp("net")
    (compiler,) = found.home.glob(f"sdk/{found.version}/Roslyn/bincore/csc.dll")
    libraries = found.home.glob(f"packs/Microsoft.NETCore.App.Ref/*/ref/net{found.major}.0/*.dll")
    built = folder / "Counts.dll"
    command = [found.program, "exec", compiler, "-nologo", f"-out:{built}", *(f"-r:{each}" for each in libraries)]
    subprocess.run([*command, REAL / "Counts.cs"], check=True, timeout=300)
    framework = {"name": "Microsoft.NETCore.App", "version": f"{found.major}.0.0"}
    built.with_suffix(".runtimeconfig.json").write_text(json.dumps({"runtimeOptions": {"framework": framework}}))
    return str(found.program), str(built), "{port}"


def views(folder: Path, command: Sequence[str], cpus: int | str, **env: str) -> list[dict[str, Any]]:
    """The runtimes that a trial's record lists for a server on so many CPUs; the record on disk must be the same."""
    subject = Subject(name="real", command=tuple(command), env=env)
    record = run_one(experiment(subject, short_load(), host=HostUse(cpus=cpus)), folder)
    assert record.failure is None, record.failure
    assert TrialDir(folder / "0001").read_record() == record
    return [dict(view) for view in record.runtimes]


def counted(cpus: int | str) -> int:
    return COUNT if cpus == "all" else int(cpus)


@pytest.mark.parametrize("cpus", [1, "all"])
@pytest.mark.parametrize("build", ["whole", "movable"])
def test_go_is_read_from_its_memory(go_servers: dict[str, str], cpus: int | str, build: str, tmp_path: Path) -> None:
    (view,) = views(tmp_path, [go_servers[build], "127.0.0.1:{port}", "none", "1"], cpus)
    assert (view["runtime"], view["call"], view["source"]) == ("Go", "GOMAXPROCS", "read")
    assert view["cpus"] == view["usable"] == counted(cpus)


@pytest.mark.parametrize(("env", "source", "cpus"), [({}, "derived", 1), ({"GOMAXPROCS": "3"}, "set", 3)])
def test_go_without_symbols(
    go_servers: dict[str, str], env: dict[str, str], source: str, cpus: int, tmp_path: Path
) -> None:
    (view,) = views(tmp_path, [go_servers["stripped"], "127.0.0.1:{port}", "none", "1"], 1, **env)
    assert (view["source"], view["cpus"], view["usable"]) == (source, cpus, 1)


# `0.02+0.4/0.9/0.1+0.01 ms cpu`: a pause, assists, dedicated and idle marking, a pause (`runtime/extern.go`).
GC_TRACE = re.compile(r"([\d.]+)\+([\d.]+)/([\d.]+)/[\d.]+\+([\d.]+) ms cpu")


@pytest.mark.parametrize("build", ["stripped", "movable"])
def test_gos_collector_is_read_as_it_counts_itself(go_servers: dict[str, str], build: str, tmp_path: Path) -> None:
    env = {"GOGC": "20", "GODEBUG": "gctrace=1"}
    subject = Subject(name="go", command=(go_servers[build], "127.0.0.1:{port}", "garbage", "1"), env=env)
    record = run_one(experiment(subject, short_load(), host=HostUse(cpus=1)), tmp_path)
    (found,) = record.go_collected.values()
    assert found is not None and 0 < found["collecting_ns"] < found["busy_ns"]
    log = TrialDir(tmp_path / "0001").log.read_text()
    traced_ms = [sum(map(float, line)) for line in GC_TRACE.findall(log)]  # each has three digits, from the start
    # The load may end amid a collection: Go counts it once it ends.
    ended_ms = [pytest.approx(sum(traced_ms), rel=0.1), pytest.approx(sum(traced_ms[:-1]), rel=0.1)]
    assert found["collecting_ns"] / 1e6 in ended_ms


def test_a_go_program_that_does_not_collect_has_no_share(go_servers: dict[str, str], tmp_path: Path) -> None:
    subject = Subject(name="go", command=(go_servers["stripped"], "127.0.0.1:{port}", "none", "1"), env={"GOGC": "off"})
    assert run_one(experiment(subject, short_load()), tmp_path).go_collected == {}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other tests a JVM may need seconds to answer."""
    monkeypatch.setattr("powerband.processes.jvm_attach._SOCKET_WITHIN_S", 60.0)
    monkeypatch.setattr("powerband.processes.runtimes._ANSWERS_S", 60.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("cpus", "collector"), [(1, "Serial"), ("all", "G1")])
def test_a_jvm_is_asked(java_classes: str, cpus: int | str, collector: str, tmp_path: Path) -> None:
    """With one CPU the machine is no server-class machine, so the JVM takes the serial collector."""
    (view,) = views(tmp_path, ["java", "-cp", java_classes, "Server", "{port}", "sleep", "1", "4"], cpus)
    assert (view["runtime"], view["call"], view["source"]) == ("JVM", "availableProcessors", "asked")
    assert (view["cpus"], view["chosen"]) == (counted(cpus), {"collector": collector})


@pytest.mark.usefixtures("patient")
def test_a_jvm_that_is_told_a_number(java_classes: str, tmp_path: Path) -> None:
    options = ["-XX:ActiveProcessorCount=3", "-XX:+UseParallelGC"]
    (view,) = views(tmp_path, ["java", *options, "-cp", java_classes, "Server", "{port}", "sleep", "1", "4"], 1)
    assert (view["cpus"], view["usable"], view["chosen"]) == (3, 1, {"collector": "Parallel"})


def test_a_jvm_that_cannot_be_asked(java_classes: str, tmp_path: Path) -> None:
    """The collector of such a JVM is unknown."""
    closed = "-XX:+DisableAttachMechanism"
    (view,) = views(tmp_path, ["java", closed, "-cp", java_classes, "Server", "{port}", "sleep", "1", "4"], 1)
    assert (view["source"], view["cpus"], view["chosen"]) == ("derived", 1, {})


@pytest.mark.parametrize(
    ("env", "cpus", "source"),
    [
        ({"DOTNET_gcServer": "1"}, "all", "derived"),
        ({"DOTNET_gcServer": "1"}, 1, "derived"),  # on one CPU .NET does not use the server collector
        ({"DOTNET_PROCESSOR_COUNT": "3"}, 1, "set"),
    ],
)
def test_net_is_seen_as_it_counts_itself(
    net_server: tuple[str, ...], env: dict[str, str], cpus: int | str, source: str, tmp_path: Path
) -> None:
    (view,) = views(tmp_path, net_server, cpus, **env)
    counts = TrialDir(tmp_path / "0001").log.read_text().split()
    assert (view["runtime"], view["source"]) == (".NET", source)
    assert ["counts", str(view["cpus"]), view["chosen"]["collector"]] == counts


@pytest.mark.parametrize("cpus", [1, "all"])
def test_a_cluster_of_node(cpus: int | str, tmp_path: Path) -> None:
    need_node()
    command = ["node", str(REAL / "server.js"), "{port}", "none", "1", "2"]
    (view,) = views(tmp_path, command, cpus, UV_THREADPOOL_SIZE="7")
    assert (view["runtime"], view["processes"]) == ("Node.js", 3)  # the primary, which serves nothing, and two workers
    assert (view["cpus"], view["chosen"]) == (counted(cpus), {"UV_THREADPOOL_SIZE": "7"})


@pytest.mark.parametrize("cpus", [1, "all"])
def test_python_counts_the_machine_whatever_it_may_use(cpus: int | str, tmp_path: Path) -> None:
    (view,) = views(tmp_path, [sys.executable, str(FAKES / "forking_server.py"), "{port}", "2", "1"], cpus)
    assert (view["runtime"], view["processes"], view["call"]) == ("Python", 2, "os.cpu_count()")
    assert (view["cpus"], view["usable"]) == (os.cpu_count(), counted(cpus))


def test_a_server_of_none_of_them_has_no_named_view(tmp_path: Path) -> None:
    """Each request takes CPU time, so that the process is seen to work."""
    command = ["{engine}", "serve", "--cpu", "1ms", "--port", "{port}"]
    assert {view["runtime"] for view in views(tmp_path, command, 1)} == {""}


def test_more_workers_than_go_runs_at_once_are_told(go_servers: dict[str, str], tmp_path: Path) -> None:
    """The setting asks for two workers, but the environment limits GOMAXPROCS to one."""
    case = {
        "name": "limited",
        "subject": {
            "command": [go_servers["whole"], "127.0.0.1:{port}", "none", "{workers}"],
            "env": {"GOMAXPROCS": "1"},
        },
        "factors": {"workers": [1, 2]},
        "load": {"users": 2, "duration": "300ms", "drain": "1s"},
        "measure": {"warmup": "100ms", "repeats": 2, "slots": False, "foreign_cpu_max": "100%", "steal_max": "100%"},
        "host": {"cpus": "all"},
    }
    run = powerband.run(case, runs=tmp_path)
    (warning,) = [warning for warning in run.analysis.warnings if "run at once" in warning]
    has = f"Go has GOMAXPROCS 1, of the {COUNT} CPUs that the server has"
    assert warning == f"workers=2 counts more than can run at once: {has}"
    trials = run.analysis.to_json()["trials"]
    assert {trial["runtimes"][0]["cpus"] for trial in trials if not trial["problems"]} <= {1}
