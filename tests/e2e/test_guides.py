"""The commands of the guides run on a real server of each stack, as they stand on their pages, only shorter.

The guides of WebSockets and of the JVM have samples of their own (`test_examples.py`). No assertion depends on the
machine's speed: they check what was started, that all was measured and answered, and certain effects, such as that a
server of 4 slots of 20 ms answers at most 200 requests a second. `tests/unit/docs/test_guides.py` finds the blocks of a
page that no test takes from it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen
from xml.etree import ElementTree as Xml

import pytest
from ruamel.yaml import YAML

from fakes.guides import (
    PAUSING,
    SHORT,
    answered,
    block_of,
    by_level,
    knobs,
    levelled,
    load,
    measured,
    most,
    run_of,
    said,
    serving,
    sets,
    shorter,
    shown,
    text_of,
    typed,
    words_of,
)
from fakes.hosted_job import SERVERS, repository
from fakes.machine import machine
from fakes.needs import find_prometheus, need_dotnet, need_jmeter, need_node, need_prometheus, without
from fakes.pages import ROOT, tables
from fakes.prometheus import prometheus_started
from fakes.real_builds import REAL, further_python
from fakes.smoke import CALM
from fakes.watch import watched_by
from powerband.cli import invoke
from powerband.processes.dotnet import ENV, find_dotnet
from powerband.processes.ports import pick_port
from powerband.search import pilot

pytestmark = [
    pytest.mark.long,
    pytest.mark.e2e,
    pytest.mark.crowded,
    pytest.mark.usefixtures("engine", "no_process_left"),
]

# A trial that only shows what the program made of its settings.
ONCE = ("--duration", "300ms", "--warmup", "200ms", *PAUSING)
# A window in which a counter is read three times.
TOLD = ("--duration", "1s")
OWN = str(Path(sys.executable).parent)  # where gunicorn, uvicorn and powerband are


def on_path(*folders: str) -> dict[str, str]:
    return {"PATH": os.pathsep.join([*folders, os.environ["PATH"]])}


def test_go(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        without("no Go (go) here: install Debian's package golang")
    folder = Path(shutil.copytree(REAL / "go_guide", tmp_path / "go"))
    subprocess.run(typed("go-servers.md", "go build"), shell=True, cwd=folder, check=True, timeout=300)
    command = shown("go-servers.md", "tune")
    found = by_level(answered(folder, *shorter(command, {"conns": "4,64"}, "--duration", "2s", *PAUSING)), "conns")
    assert set(found) == {4, 64}
    assert found[4]["goodput_per_s"] <= most(4 / 0.02, 128, 2.0)
    assert found[64]["goodput_per_s"] > 2 * found[4]["goodput_per_s"]
    (threads,), (collector, limit), *_ = knobs("go-servers.md")
    own = [*levelled(threads, {"procs": "3"}), *levelled(collector, {"gc": "50"}), *limit]
    answered(folder, *shorter(command, {"conns": "4"}, *ONCE, *own))
    assert f"procs=3 gc=50 memory={512 * 2**20}" in said(folder)[-1]


NODE = """
const v8 = require("node:v8");
if (require("node:cluster").isPrimary) {
  const { UV_THREADPOOL_SIZE, POOL } = process.env;
  console.log(JSON.stringify({ heap: v8.getHeapStatistics().heap_size_limit, UV_THREADPOOL_SIZE, POOL }));
}
process.argv.push(process.env.PORT, "blocked", "1", process.env.WORKERS ?? "1");
require(%s);
"""


def test_node(tmp_path: Path) -> None:
    """Each request blocks the loop of its process for 5 ms, so a process answers at most 200 a second."""
    need_node()
    (tmp_path / "server.js").write_text(NODE % json.dumps(str(REAL / "server.js")))
    command = shown("node.md", "tune")
    found = by_level(answered(tmp_path, *shorter(command, {"processes": "1,2"}, *PAUSING)), "processes")
    assert set(found) == {1, 2}
    assert found[1]["goodput_per_s"] <= most(200, 64)
    # Not by rates: on a busy machine the second process may come so late that users keep connections to the first.
    assert found[2]["rss_bytes_max"] > 1.2 * found[1]["rss_bytes_max"]
    _, (pool,), (heap,), (own_pool,) = knobs("node.md")
    given = [*levelled(pool, {"pool": "7"}), *own_pool, *levelled(heap[: heap.index("--")], {"heap": "256"})]
    server = command.index("--")
    with_heap = [*command[:server], *heap[heap.index("--") :]]
    answered(tmp_path, *shorter(with_heap, {"processes": "1"}, *ONCE, *given))
    told = json.loads(said(tmp_path)[-1])
    assert (told["UV_THREADPOOL_SIZE"], told["POOL"]) == ("7", "7")
    assert 256 * 2**20 <= told["heap"] < 512 * 2**20


def python_application(folder: Path, kind: str) -> None:
    """Writes `app.py`, an application whose requests wait 20 ms."""
    folder.mkdir(exist_ok=True)
    shutil.copy(REAL / f"{kind}_app.py", folder / "app.py")


PYTHON = tables(text_of("python-servers.md"))[0][1:]


def test_gunicorn(tmp_path: Path) -> None:
    python_application(tmp_path, "wsgi")
    command = shown("python-servers.md", "tune")
    assert PYTHON[0] == ["gunicorn, threads", f"`{' '.join(command[command.index('--') + 1 :])}`"]
    asked = shorter(command, {"workers": "2", "threads": "2,16"}, *PAUSING)
    found = by_level(answered(tmp_path, *asked, env=on_path(OWN)), "threads")
    assert set(found) == {2, 16}
    assert found[2]["goodput_per_s"] <= most(4 / 0.02, 64)
    # Not by rates: on a busy machine a server may stand still for most of so short a window.
    assert found[16]["threads_max"] > 2 * found[2]["threads_max"]


@pytest.mark.parametrize(("name", "command"), PYTHON[1:], ids=[name for name, _ in PYTHON[1:]])
def test_other_servers_of_python(name: str, command: str, tmp_path: Path) -> None:
    """The application lies in another folder. The server finds it by one of the page's two remedies for a
    ModuleNotFoundError."""
    kind, where = {
        "uvicorn": ("asgi", "--cwd"),
        "Hypercorn": ("asgi", "--env PYTHONPATH=src"),
        "Granian": ("asgi", "--cwd"),
        "Waitress": ("wsgi", "--env PYTHONPATH=src"),
    }[name]
    assert f"`{where}`" in text_of("python-servers.md")
    python_application(tmp_path / "src", kind)
    factors = [f"{factor}={levels}" for factor, levels in (("workers", "2"), ("threads", "4,16")) if factor in command]
    options = [*(word for factor in factors for word in ("-P", factor)), *shlex.split(where)]
    options += ["src"] if where == "--cwd" else []
    env = on_path(OWN, str(Path(further_python()).parent))
    server = shlex.split(command.strip("`"))
    trials = answered(tmp_path, "tune", *options, "--users", "32", *SHORT, *PAUSING, "--", *server, env=env)
    if "threads" in trials[0]["setting"]["levels"]:
        found = by_level(trials, "threads")
        assert found[4]["goodput_per_s"] <= most(4 / 0.02, 32)
        assert found[16]["threads_max"] == found[4]["threads_max"] + 12


def test_dotnet(tmp_path: Path) -> None:
    """64 users wait for a pool of 2 threads, or of 64 (40 in hexadecimal)."""
    need_dotnet()
    sdk = find_dotnet(8)
    folder = Path(shutil.copytree(REAL / "MyApp", tmp_path / "MyApp"))
    project = folder / "MyApp.csproj"
    framework = f"net{sdk.major}.0"  # of the SDK that is here
    project.write_text(project.read_text().replace("net8.0", framework))
    # No process of the build outlives it.
    env = {**on_path(str(sdk.home)), **dict(ENV), "MSBUILDDISABLENODEREUSE": "1", "UseSharedCompilation": "false"}
    build = typed("dotnet-servers.md", "dotnet build")
    around = {**os.environ, **env}
    done = subprocess.run(
        build, shell=True, cwd=folder, env=around, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    command = [word.replace("net8.0", framework) for word in shown("dotnet-servers.md", "tune")]
    asked = shorter(command, {"least": "2,40"}, "--duration", "1s", "--warmup", "1s", *PAUSING)
    found = by_level(answered(folder, *asked, env=env), "least")
    assert set(found) == {2, 40}
    assert found[40]["dotnet_pool_threads_max"] > 40 > found[2]["dotnet_pool_threads_max"]
    assert set(re.findall("least=[0-9]+", " ".join(said(folder)))) == {"least=2", "least=64"}

    rows = [" ".join(row[1:]) for row in tables(text_of("dotnet-servers.md"))[0][1:]]
    least, *names = (name for row in rows for name in re.findall(r"DOTNET_\w+", row))
    assert f"{least}={{least}}" in command
    own = [f"{name}={value}" for name, value in zip(names, ("80", "1", "0", "C800000"), strict=True)]
    options = [word for each in own for word in ("--env", each)]
    (limit,) = re.findall(r"(--Kestrel\S+)\{most\}", rows[-1])
    answered(folder, *shorter([*command, f"{limit}1000"], {"least": "10"}, *ONCE, "--cpus", "all", *options), env=env)
    server = len(os.sched_getaffinity(0)) > 1
    expected = f"least=16 most=128 server={server} collects=Batch heap={200 * 2**20} connections=1000"
    assert expected in said(folder)[-1]


def test_a_program_without_requests(tmp_path: Path) -> None:
    """The sample runs by its command, by the page's file, and with the port in the variables of Datadog's libraries."""
    sample = tmp_path / "examples" / "statsd-app"
    shutil.copytree(ROOT / "examples" / "statsd-app", sample)
    command = shown("self-driven.md", "tune", "-P", "pairs=1,2,4")
    trials = measured(tmp_path, *shorter(command, {"pairs": "1,2"}, *TOLD))
    assert set(by_level(trials, "pairs")) == {1, 2}
    file = sample / "bounce.yaml"
    file.write_text(block_of("self-driven.md", "name: bounce"))
    options = ("load.duration=1s", "measure.warmup=300ms", "measure.repeats=1", "measure.bars=250ms")
    trials = measured(tmp_path, "run", str(file), "--format", "json", *CALM, *sets(*options))
    asked = [trial["setting"]["levels"] for trial in trials]
    assert {tuple(levels.values()) for levels in asked} == {("0s", 1, 1), ("1ms", 1, 1), ("0s", 4, 1), ("0s", 1, 20)}
    assert all(trial["metrics"]["app_balls_lost"] == 0 for trial in trials)
    told = '--sleep 1ms --statsd "$DD_AGENT_HOST:$DD_DOGSTATSD_PORT"'
    script = f'exec python3 examples/statsd-app/bounce.py --pairs "$0" {told}'
    by_environment = [*command[: command.index("--") + 1], "sh", "-c", script, "{pairs}"]
    variables = words_of("self-driven.md", "--env DD_AGENT_HOST")
    found = by_level(measured(tmp_path, *shorter(by_environment, {"pairs": "1"}, *TOLD, *variables)), "pairs")
    assert found[1]["goodput_per_s"] > 0


# Two processes throw a ball to each other; after every thousand messages one of them adds to the counter, as the page
# shows.
ERLANG = """
-module(reflect).
-export([main/1]).

main([Given]) ->
    io:format("schedulers=~b~n", [erlang:system_info(schedulers_online)]),
    {{ok, Socket}} = gen_udp:open(0),
    throw(spawn_link(fun back/0), Socket, list_to_integer(Given), 0).

back() -> receive From -> From ! ball, back() end.

throw(Other, Socket, Port, 1000) -> {send}, throw(Other, Socket, Port, 0);
throw(Other, Socket, Port, Thrown) -> Other ! self(), receive ball -> throw(Other, Socket, Port, Thrown + 1) end.
"""


def test_erlang(tmp_path: Path) -> None:
    if shutil.which("erlc") is None:
        without("no Erlang (erlc) here: install Debian's package erlang-base")
    (send,) = re.findall(r"`(gen_udp:send[^`]+)`", text_of("self-driven.md"))
    (tmp_path / "reflect.erl").write_text(ERLANG.format(send=send))
    subprocess.run(["erlc", "reflect.erl"], cwd=tmp_path, check=True, timeout=60)
    command = shown("self-driven.md", "tune", "-P", "schedulers=1..8")
    trials = measured(tmp_path, *shorter(command, {"schedulers": "1,3"}, *TOLD))
    assert all(metrics["goodput_per_s"] > 0 for metrics in by_level(trials, "schedulers").values())
    assert {text.split()[0] for text in said(tmp_path)} == {"schedulers=1", "schedulers=3"}


def test_socketcluster(tmp_path: Path) -> None:
    """The load that docs/websocket.md shows for SocketCluster is valid, and all of its messages are answered."""
    need_node()
    head = "name: sc\nsubject: {use: socketcluster, set: {version: 20}}\n"
    (tmp_path / "sc.yaml").write_text(head + block_of("websocket.md", "dialect"))
    # On a busy machine users take seconds to join.
    options = ("load.users=5", "load.pace=20/s", "load.duration=3s", "measure.warmup=2s", "measure.repeats=1")
    answered(tmp_path, "run", "sc.yaml", "--format", "json", *CALM, *sets(*options))


def test_the_job_of_gitlab(tmp_path: Path) -> None:
    """The job's script, apart from the installation, runs on two commits of a Python server."""
    job = YAML(typ="safe").load(block_of("ci.md", "CI_MERGE_REQUEST_DIFF_BASE_SHA"))["powerband"]
    install, *script = job["script"]
    assert install == "pip install --quiet powerband"
    server = SERVERS["Python"]
    assert f" -- {server.command} >" in script[-1]
    base, head = repository(tmp_path, server, (20, 20))
    short = "--users 8 --think 1ms --duration 500ms --warmup 200ms --repeats 2 -- "
    script[-1] = script[-1].replace("-- ", short, 1)
    env = {**os.environ, **on_path(OWN), "CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_COMMIT_SHA": head}
    command = ["bash", "-eo", "pipefail", "-c", "\n".join(script)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, 1, 5), done.stderr  # two rounds decide nothing for certain
    records = run_of(tmp_path).records()
    assert {record.status for record in records} == {"measured"}
    assert {dict(record.spec.setting.levels)["revision"] for record in records} == {"base", "head"}
    report = Xml.parse(tmp_path / job["artifacts"]["reports"]["junit"]).getroot()
    assert report.tag == "testsuites" and report.findall(".//testcase")
    assert [f"{path.name}/" for path in tmp_path.glob("run*")] == job["artifacts"]["paths"]


def test_prometheus(tmp_path: Path) -> None:
    """The commands run in the page's order, in an empty folder, on free ports."""
    need_prometheus()
    for line in block_of("prometheus.md", "powerband watch runs").splitlines():
        words = shlex.split(line, comments=True)
        if words[0] not in ("powerband", "prometheus"):
            subprocess.run(words, cwd=tmp_path, check=True)
    watch, written = shown("prometheus.md", "watch"), shown("prometheus.md", "prometheus")
    with watched_by(*watch, folder=tmp_path) as page:
        powerband = [sys.executable, "-m", "powerband"]
        subprocess.run([*powerband, *written], cwd=tmp_path, check=True, capture_output=True, timeout=60)
        file = tmp_path / "watch" / "prometheus.yml"
        assert '"127.0.0.1:8420"' in file.read_text() and (tmp_path / "watch" / "grafana").is_dir()
        # The page of another test may have the default port: the page tells what to type then.
        assert f"powerband prometheus URL {shlex.join(written[1:])}" in text_of("prometheus.md")
        subprocess.run([*powerband, written[0], page, *written[1:]], cwd=tmp_path, check=True, capture_output=True)
        port = pick_port()
        binary = find_prometheus() or ""
        words = shlex.split(typed("prometheus.md", "prometheus "))
        started = [binary, *(word.replace("127.0.0.1:9090", f"127.0.0.1:{port}") for word in words[1:])]
        with prometheus_started(started, f"127.0.0.1:{port}", tmp_path) as prometheus:
            run = [*shown("prometheus.md", "run"), "--profile", "smoke", *CALM, "--set", "measure.slots=false"]
            done = subprocess.run(
                [*powerband, *run], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
            )
            assert done.returncode in (0, 1, 5), done.stderr  # a busy machine serves few of its users
            path = run_of(tmp_path).path
            prometheus.await_series(f'powerband_run_status{{run="{path.name}",status="finished"}} == 1')
            jobs = {series["metric"]["job"] for series in prometheus.newest("up")}
            assert jobs == {"powerband", "subject"}


def test_a_server_elsewhere_by_ssh(engine: Path, tmp_path: Path) -> None:
    """systemd of another machine takes the limits of the page's command: a request burns 1 ms of CPU, so that 5 % of a
    CPU answer at most 50 a second. No key is in the files of the run."""
    server = (str(engine), "serve", "--host", "{address}", "--port", "8080", "--cpu", "1ms")
    with machine("app-1", tmp_path, server, 8080) as app:
        command = levelled(shown("remote-server.md", "tune", "-P", "quota=100,200,400"), {"quota": "5,100"})
        trials = measured(tmp_path, *command, *SHORT, *TOLD, *PAUSING, "--users", "16", inside=app.inside)
        found = by_level(trials, "quota")
        assert found[5]["goodput_per_s"] <= most(1.5 * 50, 16)
        assert found[100]["goodput_per_s"] > 2 * found[5]["goodput_per_s"]
        ask = ["ssh", "app-1", "systemctl", "show", "--property=CPUQuotaPerSecUSec", "app.service"]
        done = subprocess.run([*app.inside, *ask], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "CPUQuotaPerSecUSec=4s\n", "what --restore says"
        written = [path.read_bytes() for path in run_of(tmp_path).path.rglob("*") if path.is_file()]
        assert app.secrets() and not any(secret in file for file in written for secret in app.secrets())


# The example server, with the pool and the health page that a file of docs/remote-server.md asks for.
POOL = f"""
import json, sys
sys.path.insert(0, {str(ROOT / "examples")!r})
from knob_server import LIMIT, Handler, Server

class Pool(Handler):
    def do_PUT(self):
        size = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["size"]
        told = self.path, self.headers["Authorization"], self.headers["Content-Type"]
        right = told == ("/admin/pool", "Bearer secret", "application/json")
        if right:
            LIMIT.set(size)
        self.answer(200 if right else 403, "")

Server(("127.0.0.1", int(sys.argv[1])), Pool).serve_forever()
"""
DEPLOY = """#!/bin/sh
case "$1 $2" in "app-1 v1.4") n=8 ;; "app-1 v1.5") n=4 ;; esac
exec {python} -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], sys.argv[2].encode())' {url}knob $n
"""


def test_a_server_elsewhere(tmp_path: Path) -> None:
    """The page's file, and its comparison of two revisions, on a server of this machine in place of `app-1`."""
    port = pick_port()
    url = f"http://127.0.0.1:{port}/"
    (tmp_path / "staging.yaml").write_text(
        block_of("remote-server.md", "name: staging").replace("http://app-1:8080/", url)
    )
    (tmp_path / "deploy.sh").write_text(DEPLOY.format(python=sys.executable, url=url))
    (tmp_path / "deploy.sh").chmod(0o755)
    with serving(tmp_path, port, sys.executable, "-c", POOL, str(port)):
        short = (
            "load.users=16",
            "load.duration=500ms",
            "measure.warmup=300ms",
            "measure.repeats=1",
            "design.order=blocks",
        )
        run = ["run", "staging.yaml", "--format", "json", *CALM, *sets(*short, "measure.slots=false")]
        found = by_level(answered(tmp_path, *run, env={"ADMIN_AUTHORIZATION": "Bearer secret"}), "size")
        assert set(found) == {8, 16, 32} and urlopen(f"{url}knob").read() == b"16\n"
        shutil.rmtree(tmp_path / "runs")

        given = [word.replace("http://app-1:8080/", url) for word in shown("remote-server.md", "compare")]
        done = subprocess.run(
            [sys.executable, "-m", "powerband", *given, *SHORT, *PAUSING, "--repeats", "2"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1, 5), done.stderr  # two rounds decide nothing for certain
        records = run_of(tmp_path).records()
        assert {dict(record.spec.setting.levels)["revision"] for record in records} == {"v1.4", "v1.5"}
        assert {record.status for record in records} == {"measured"} and urlopen(f"{url}knob").read() == b"8\n"


def test_the_pilot_tells_the_smallest_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pilot makes three trials of a second here, instead of six of three. A busy machine may spoil every one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(pilot, "PILOT_TRIALS", 3)
    monkeypatch.setattr(pilot, "PILOT_SECONDS", 1)
    invoke([*words_of("troubleshooting.md", "powerband doctor --pilot")[1:], "--format", "json"])
    found = json.loads(capsys.readouterr().out)["pilot"]
    assert 3 <= found["trials"] + found["invalid"] <= 3 + pilot.PILOT_RETRIES
    assert (found["smallest_difference"] is None) == (found["trials"] < 3)


def test_the_live_page(tmp_path: Path) -> None:
    """A run shows its address, and `watch` serves every address of the page's table."""
    short = sets("factors.threads=[16]", "measure.repeats=1", "measure.slots=false")
    command = [sys.executable, "-m", "powerband", *shown("live.md", "run"), "--profile", "smoke", *CALM, *short]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    run = run_of(tmp_path).path
    address = rf"http://127\.0\.0\.1:[0-9]+/runs/{run.name}"
    assert done.returncode in (0, 1, 5), done.stderr  # a busy machine serves few of its users
    assert re.search(address, done.stderr), done.stderr
    shutil.copytree(run, run.with_name("another"))
    with watched_by(*shown("live.md", "watch"), "--port", "0", folder=tmp_path) as page:
        for row in tables(text_of("live.md"))[0][1:]:
            place = row[0].strip("`").replace("NAME", run.name).replace("OTHER", "another").replace("NUMBER", "1")
            with urlopen(f"{page.rstrip('/')}{place}", timeout=60) as answer:
                assert answer.readline(), place


@pytest.fixture
def my_server(tmp_path: Path, engine: Path) -> None:
    """Makes the script `./my-server`, which a command of README.md starts: it runs the reference server."""
    script = tmp_path / "my-server"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(engine))} serve --wait 5ms --payload 16 "$@"\n')
    script.chmod(0o755)


def test_a_plan_of_jmeter(tmp_path: Path) -> None:
    """The sample, whose file is on the page, in the real JMeter."""
    need_jmeter()
    example = shutil.copytree(ROOT / "examples" / "jmeter", tmp_path / "examples" / "jmeter")
    assert block_of("jmeter.md", "name: shop-by-jmeter") in (example / "experiment.yaml").read_text()
    command = [*shown("jmeter.md", "run"), "--format", "json", *CALM]
    short = ("load.duration=1500ms", "measure.warmup=2s", "measure.repeats=1", "factors.threads=[8]")
    trials = answered(tmp_path, *command, *sets(*short, "load.jvm_args=[-Xms256m]"))
    assert set(by_level(trials, "threads")) == {8}


@pytest.mark.usefixtures("my_server")
def test_a_plan_that_is_imported(tmp_path: Path) -> None:
    """The sample's plan stands for the reader's."""
    shutil.copy(ROOT / "examples" / "jmeter" / "plan.jmx", tmp_path)
    powerband = [sys.executable, "-m", "powerband"]
    subprocess.run([*powerband, *shown("jmeter-import.md", "import")], cwd=tmp_path, check=True, timeout=60)
    printed = words_of("coming-from.md", "powerband import")
    done = subprocess.run(
        [*powerband, *printed[1:]], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert "load:" in done.stdout
    short = ("load.duration=500ms", "measure.warmup=300ms", "measure.repeats=1")
    answered(tmp_path, *shown("jmeter-import.md", "run"), "--format", "json", *CALM, *sets(*short))


@pytest.mark.usefixtures("my_server")
def test_the_first_command_with_what_others_have(tmp_path: Path) -> None:
    """The first command of README.md runs with the options that docs/coming-from.md gives for k6 and JMeter."""
    rows = [row[2] for row in tables(text_of("coming-from.md"))[0][1:]]
    ours = [span for row in rows for span in re.findall(r"`([^`]+)`", row)]
    first = shown("../README.md", "tune")
    assert "./my-server" in first
    closed = ["--users 200 --think 1s", "--ramp 30s", "--slo 'p99<50ms,errors<0.1%'"]
    opened = ["tune --rate 500 --arrivals constant", "--expect TEXT"]
    assert not {*closed, *opened} - set(ours)
    options = [word for each in closed for word in shlex.split(each.replace("30s", "500ms"))]
    options += ["--duration", "1500ms"]  # longer than the users' pause
    found = by_level(answered(tmp_path, *shorter(first, {"threads": "1,8"}, *options)), "threads")
    assert set(found) == {1, 8}
    options = [word for each in opened for word in shlex.split(each.removeprefix("tune ").replace("TEXT", "quick"))]
    answered(tmp_path, *shorter(first, {"threads": "8"}, *options))


def test_a_load_as_of_wrk(url: str, tmp_path: Path) -> None:
    closed = words_of("coming-from.md", "powerband load URL -c")
    opened = words_of("coming-from.md", "powerband load URL -r")
    for words in (closed, opened):
        load(tmp_path, *(url if word == "URL" else word for word in words[2:]))


def test_completion(tmp_path: Path) -> None:
    (line,) = re.findall(r'`(eval "[^`]+)`', text_of("install.md"))
    done = subprocess.run(
        ["bash", "-ec", f"{line}; complete -p powerband"],
        cwd=tmp_path, env={**os.environ, **on_path(OWN)}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "powerband" in done.stdout


def test_a_table_of_runs(tmp_path: Path) -> None:
    """The commands of docs/history.md add the row of a run to a table, and make the same table from all runs."""
    (tmp_path / "bench.yaml").write_text(
        "name: bench\nsubject: {use: reference, set: {wait: 5ms}}\nfactors: {threads: [8]}\n"
        "load: {users: 8, duration: 300ms}\nmeasure: {warmup: 200ms, repeats: 1, slots: false}\n"
    )
    run, export = shown("history.md", "run"), shown("history.md", "export")
    powerband = [sys.executable, "-m", "powerband"]
    done = subprocess.run(
        [*powerband, *run, *CALM], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode in (0, 5), done.stderr
    path = run_of(tmp_path).path
    name = re.compile(r"\d{8}-\d{6}-bench")
    assert name.fullmatch(path.name)
    words = [name.sub(path.name, word) for word in export]
    assert words != export
    subprocess.run([*powerband, *words], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    rows = (tmp_path / "history.csv").read_text()
    every = " ".join(words_of("history.md", "powerband export runs/*"))
    subprocess.run(["bash", "-ec", every], cwd=tmp_path, env={**os.environ, **on_path(OWN)}, check=True, timeout=60)
    assert (tmp_path / "history.csv").read_text() == rows and len(rows.splitlines()) == 2
