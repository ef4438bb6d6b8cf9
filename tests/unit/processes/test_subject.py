from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fakes.pages import ROOT
from powerband.base.hosts import http_url
from powerband.base.procfs import ProcessStat, tcp_sockets
from powerband.model.experiment import Ready, Subject
from powerband.model.plan import Setting
from powerband.processes import deployed_subject, ports, subject_process
from powerband.processes.cpus import CpuSplit
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.line_file import LineFile
from powerband.processes.ports import (
    Stranger,
    listener,
    local_port_range,
    pick_port,
    port_is_free,
    serving,
    someone_listens,
    stranger_on,
)
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import (
    Rendered,
    RunningSubject,
    SubjectFiles,
    check_command,
    describe_exit,
    last_lines,
    listens_elsewhere,
    ports_held,
    probe_spec,
    ready_check,
    render,
    served_by,
)
from powerband.store import Failure
from powerband.wire.probe_events import Exited

ENGINE = Path("/opt/engine")


def rendered(**fields: object) -> Rendered:
    subject = Subject(name="s", command=("server", "{port}"), ready=Ready(**fields))  # type: ignore[arg-type]
    return render(subject, Setting(()), ENGINE)


def test_a_websocket_url_is_asked_over_http() -> None:
    result = render(Subject(name="s", command=("s",), url="wss://localhost/chat"), Setting(()), ENGINE)
    assert (result.host, result.port, result.url) == ("localhost", 443, "wss://localhost/chat")
    assert http_url("ws://127.0.0.1:81/chat") == "http://127.0.0.1:81/chat"


@pytest.fixture
def pump() -> Iterator[Pump]:
    stop = StopRequest()
    with Pump(stop) as waits:
        yield waits
    stop.close()


def test_templates_are_filled_in_and_the_port_is_the_same_everywhere() -> None:
    subject = Subject(
        name="s",
        command=("{engine}", "--port={port}", "{threads}"),
        env={"PORT": "{port}"},
        url="http://127.0.0.1:{port}/x",
        ready=Ready(http="/health?port={port}"),
    )
    result = render(subject, Setting((("threads", 4),)), ENGINE)
    assert result.own_port
    assert result.argv == ("/opt/engine", f"--port={result.port}", "4")
    assert result.env == (("PORT", str(result.port)),)
    assert result.url == f"http://127.0.0.1:{result.port}/x"
    assert result.ready.http == f"/health?port={result.port}"


@pytest.mark.parametrize(
    ("cwd", "of", "folder"),
    [
        ("/here/{of}", "old", "/here/old"),
        ("/here/{of}/src", "/there/old", "/there/old/src"),
        ("/{of}", "/there", "/there"),
        ("/here", "old", "/here"),
    ],
)
def test_a_folder_may_be_named_by_a_value(cwd: str, of: str, folder: str) -> None:
    subject = Subject(name="s", command=("server",), cwd=cwd, url="http://localhost:8081/")
    assert render(subject, Setting((("of", of),)), ENGINE).cwd == folder


def test_a_port_that_only_the_command_is_told_does_not_make_the_urls_port_ours() -> None:
    subject = Subject(name="s", command=("server", "{port}"), url="http://localhost:8081/")
    result = render(subject, Setting(()), ENGINE)
    assert (result.own_port, result.port) == (False, 8081)


def test_a_fixed_port_is_taken_from_the_url() -> None:
    subject = Subject(name="s", command=("server",), url="http://localhost:8081/")
    result = render(subject, Setting(()), ENGINE)
    assert (result.own_port, result.host, result.port) == (False, "localhost", 8081)


@pytest.mark.parametrize(("url", "port"), [("http://localhost/", 80), ("https://localhost/", 443)])
def test_without_a_port_the_scheme_decides(url: str, port: int) -> None:
    assert render(Subject(name="s", command=("server",), url=url), Setting(()), ENGINE).port == port


def test_a_picked_port_is_free_and_outside_the_kernels_range() -> None:
    low, high = local_port_range()
    for _ in range(5):
        port = pick_port()
        assert port_is_free(port)
        assert not low <= port <= high


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not port_is_free(port)
        assert someone_listens("127.0.0.1", port)
    assert not someone_listens("127.0.0.1", port)


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        ("Error: listen EADDRINUSE: address already in use :::3000", {3000}),
        ("12:34:56.789 main.go:45: listen tcp :8080: bind: address already in use", {8080}),
        ("bind() to 0.0.0.0:80 failed (98: Address already in use)", {80}),
        ("[2026-11-29 12:34:56 +0000] [77] [ERROR] Connection in use: ('127.0.0.1', 8000)", {8000}),
        ("Web server failed to start. Port 9090 was already in use.", {9090}),
        ("failed to bind host port 127.0.0.1:8081/tcp: address already in use", {8081}),
        ("failed to bind host port for 0.0.0.0:8081:172.17.0.2:80/tcp: address already in use", {8081, 80}),
        ('Address already in use - bind(2) for "127.0.0.1" port 9292 (Errno::EADDRINUSE)', {9292}),
        ("java.net.BindException: Address already in use", set()),
        ('{"level":"ERROR","level_value":40000,"trace":"java.net.BindException: Address already in use"}', set()),
        ('{"level":50,"pid":12345,"msg":"listen EADDRINUSE: address already in use :::3000"}', {3000}),
        ('{"code":"EADDRINUSE","errno":-98,"address":"::","port":3000}', {3000}),
        ("OSError: [Errno 98] Address already in use", set()),
        ("Port already in use: 9010; nested exception is: ", {9010}),
        ("bind: Address already in use: 0.0.0.0", set()),
        ("listening on port 8080", None),
    ],
)
def test_which_ports_a_log_says_are_in_use(line: str, ports: set[int] | None) -> None:
    assert ports_held(f"started on port 1234\n{line}\n  port: 4321\n") == ports


def test_where_the_kernel_may_take_every_port_one_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "local_port_range", lambda: (1024, 65535))
    assert 10_000 <= pick_port() <= 65_535


def test_who_listens_on_a_port_is_told_by_age_and_descent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        time.sleep(0.05)  # start times are counted in hundredths of a second
        with subprocess.Popen(["sleep", "60"]) as younger:
            try:
                assert stranger_on(port, younger.pid) == Stranger(f"{own_name()} (pid {os.getpid()})", older=True)
                assert stranger_on(port, os.getpid()) is None
                assert stranger_on(port, os.getppid()) is None
            finally:
                younger.kill()
    assert stranger_on(port, os.getpid()) is None


def test_how_many_processes_serve_a_port() -> None:
    """The parent of workers only holds the socket that it has passed on."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as workers:
        port = server.getsockname()[1]
        for count in (1, 2):
            worker = workers.enter_context(subprocess.Popen(["sleep", "60"], pass_fds=[server.fileno()]))
            workers.callback(worker.kill)
            assert serving(port) == count
    assert serving(port) == 0


@pytest.mark.parametrize(
    ("holders", "found"),
    [
        ([("systemd", 1, 0), ("nginx", 9, 20), ("nginx", 8, 10)], ("nginx", 8)),
        ([("systemd", 1, 0)], ("systemd", 1)),
        ([("gunicorn", 1, 0), ("gunicorn", 9, 10)], ("gunicorn", 1)),
        ([], None),
    ],
    ids=["a service that was started", "one that was not", "a container's first process", "nobody"],
)
def test_who_was_given_a_socket_listens_and_not_systemd(
    monkeypatch: pytest.MonkeyPatch, holders: list[tuple[str, int, int]], found: tuple[str, int] | None
) -> None:
    stats = [ProcessStat(pid, name, "S", 0, pid, started, 0, 0, 0) for name, pid, started in holders]
    monkeypatch.setattr(ports, "_holders", lambda port: stats)
    assert listener(80) == found


@pytest.mark.parametrize("older", [True, False])
def test_a_container_may_be_served_by_what_ran_before_it_but_no_other_server(
    monkeypatch: pytest.MonkeyPatch, *, older: bool
) -> None:
    """Docker Desktop's own program holds the ports of all containers."""
    engine = Stranger("com.docker.backend (pid 7)", older=older)
    monkeypatch.setattr(subject_process, "stranger_on", lambda port, root: engine)
    probe = cast(Any, SimpleNamespace(pid=os.getpid()))
    container = Subject(name="s", command=("docker", "run", "-p", "{port}:80", "image"))
    assert served_by(render(container, Setting(()), ENGINE), probe) == engine.name
    if older:
        assert failure(lambda: served_by(rendered(), probe)) == Code.PORT_IN_USE
    else:
        assert served_by(rendered(), probe) == engine.name


def own_name() -> str:
    return Path("/proc/self/comm").read_text().strip()


def failure(check: Callable[[], None]) -> str:
    with pytest.raises(TrialFailed) as failed:
        check()
    return failed.value.failure.code


def with_command(program: str, cwd: str | None = None) -> Rendered:
    subject = Subject(name="s", command=(program,), cwd=cwd)
    return render(subject, Setting(()), ENGINE)


def test_commands_are_checked_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("")
    check_command(with_command("sh"))
    check_command(with_command("/bin/sh"))
    assert failure(lambda: check_command(with_command("no-such-program"))) == Code.COMMAND_NOT_FOUND
    assert failure(lambda: check_command(with_command("./nowhere", str(tmp_path)))) == Code.COMMAND_NOT_FOUND
    assert failure(lambda: check_command(with_command("./script", str(tmp_path)))) == Code.NOT_EXECUTABLE
    assert failure(lambda: check_command(with_command("sh", str(tmp_path / "gone")))) == Code.LAUNCH_FAILED


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        ("no-such-program", "check its spelling"),
        ("PORT={port} node app.js", "write variables in subject.env"),
        ("no-such-program app && npm start", "write sh -c '...'"),
    ],
)
def test_what_only_a_shell_understands_is_told_of(command: str, cure: str) -> None:
    with pytest.raises(TrialFailed, match=re.escape(cure)):
        check_command(render(Subject(name="s", command=tuple(command.split())), Setting(()), ENGINE))


@pytest.mark.parametrize("command", ["python3 server.py {port}", "python3 /srv/server.py {port}"])
def test_a_command_that_is_one_quoted_word_is_told_of(command: str) -> None:
    with pytest.raises(TrialFailed, match="write its words apart, without quotes"):
        check_command(render(Subject(name="s", command=(command,)), Setting(()), ENGINE))


def test_a_program_is_looked_for_on_the_subjects_own_path(tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    subject = Subject(name="s", command=("only-here",), env={"PATH": str(tmp_path)})
    check_command(render(subject, Setting(()), ENGINE))


def test_last_lines_are_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == "; it printed nothing"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    words = last_lines(log)
    assert words.endswith("  line 9999")
    assert "line 9991" not in words


@pytest.mark.parametrize(
    ("code", "number", "words"),
    [
        (3, None, "exit code 3"),
        (None, 9, "killed by SIGKILL"),
        (None, 99, "killed by signal 99"),
        (0, None, "foreground"),
        (0, None, "its stdin is empty"),
    ],
)
def test_an_exit_in_words(code: int | None, number: int | None, words: str) -> None:
    exited = Exited(
        type="exited",
        name="subject",
        at_ns=0,
        exit_code=code,
        signal=number,
        asked=False,
        cpu_user_ns=0,
        cpu_system_ns=0,
        max_rss_bytes=0,
        voluntary_switches=0,
        involuntary_switches=0,
    )
    assert words in describe_exit(exited)


@pytest.mark.parametrize(
    ("counts", "code", "number", "ended_as"),
    [
        (True, 0, None, Code.WORK_ENDED),
        (True, 3, None, Code.DIED),
        (True, None, 9, Code.DIED),
        (False, 0, None, Code.DIED),
    ],
)
def test_a_program_that_drives_itself_may_be_done_but_a_server_may_not(
    tmp_path: Path, counts: bool, code: int | None, number: int | None, ended_as: Code
) -> None:
    (tmp_path / "log").write_text("all 1000 rows loaded\n")
    probe = SimpleNamespace(exited=SimpleNamespace(asked=False, exit_code=code, signal=number), jvms=list)
    counter = SimpleNamespace() if counts else None
    running = RunningSubject(rendered(), cast(Any, probe), tmp_path / "log", cast(Any, counter))
    with pytest.raises(TrialFailed) as failed:
        running.check_alive()
    assert failed.value.failure.code == ended_as
    assert failed.value.failure.message.endswith("all 1000 rows loaded")


def test_the_processes_of_a_server_are_those_below_powerbands_own_or_of_one_that_runs_already_all(
    tmp_path: Path,
) -> None:
    """In place of the keeper, the probe and the server there are this process, a shell and what that starts."""
    script = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, process_group=0) as shell:
        try:
            assert shell.stdout is not None
            server = int(shell.stdout.readline())
            probe = cast(Any, SimpleNamespace(pid=os.getpid()))
            assert {os.getpid(), shell.pid, server} & RunningSubject(rendered(), probe, tmp_path).pids() == {server}
            found = deployed_subject.DeployedSubject(rendered(), probe, tmp_path / "log", pid=shell.pid)
            assert found.pids() == {shell.pid, server} and not replace(found, pid=None).pids()
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_an_address_is_told_as_a_url_has_it() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert {each.host for each in tcp_sockets() if each.port == server.getsockname()[1]} == {"[::1]"}


def test_where_a_server_listens_in_place_of_its_url() -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().partition(" port ")[2].split()[0])
        wanted = rendered()
        said = f"; let it listen on 127.0.0.1:{wanted.port}, or correct subject.url (--url)"
        assert listens_elsewhere(wanted, server.pid) == f"it listens on port {port}{said}"
        there = replace(wanted, host="127.0.0.9", port=port)
        assert listens_elsewhere(there, server.pid).startswith(
            f"it listens on 127.0.0.1:{port}; let it listen on 127.0.0.9:"
        )
        assert listens_elsewhere(replace(there, ready=Ready(http="/")), server.pid) == "", "it may only be slow"
        assert listens_elsewhere(rendered(log="up"), server.pid) == ""
        assert listens_elsewhere(rendered(http="http://127.0.0.1:1/"), server.pid) == ""
        server.kill()
    assert listens_elsewhere(wanted, server.pid) == ""


def test_ready_by_log(tmp_path: Path, pump: Pump) -> None:
    log = tmp_path / "log"
    wanted = rendered(log=r"^Started in \d")
    with ready_check(wanted, log, pump) as is_ready, log.open("w", buffering=1) as file:
        assert not is_ready(1)
        file.write("starting\nnot Started in 2 s\nStar")
        assert not is_ready(1)
        file.write("ted in 3 s\n")
        assert is_ready(1)


@contextmanager
def answering(status: int, after_s: float = 0.0) -> Iterator[str]:
    """Yields the url of a server that answers one path with this status, and the others with 500, each after a time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(after_s)
            self.send_response(status if self.path == "/up?next=http://elsewhere/" else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("status", "expected"), [(200, True), (404, True), (503, False)])
def test_ready_by_http(tmp_path: Path, status: int, expected: bool, pump: Pump) -> None:
    with answering(status) as url:
        subject = Subject(name="s", command=("server",), url=url, ready=Ready(http="/up?next=http://elsewhere/"))
        with ready_check(render(subject, Setting(()), ENGINE), tmp_path / "log", pump) as is_ready:
            assert is_ready(1) is expected


@pytest.mark.parametrize("command", [("server",), ("docker", "run", "image")])
def test_a_server_that_answers_slowly_is_ready_within_the_time_that_there_is(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(subject_process, "ANSWER_WITHIN_S", 0.05)
    ready = Ready() if "docker" in command else Ready(http="/up?next=http://elsewhere/")
    with answering(200, after_s=0.15) as url:
        subject = Subject(name="s", command=command, url=url, ready=ready)
        with ready_check(render(subject, Setting(()), ENGINE), tmp_path / "log", pump) as is_ready:
            assert any(is_ready(10) for _ in range(8))


def test_a_container_is_ready_once_its_url_answers_whatever_takes_its_connections(tmp_path: Path, pump: Pump) -> None:
    def is_ready(url: str) -> bool:
        subject = Subject(name="s", command=("sudo", "docker", "run", "image"), url=url)
        with ready_check(render(subject, Setting(()), ENGINE), tmp_path / "log", pump) as ready:
            return ready(0.1)

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        assert not is_ready(f"http://127.0.0.1:{proxy.getsockname()[1]}/")
    with answering(500) as url:
        assert is_ready(url) and is_ready(url.replace("http", "ws"))


def test_ready_by_http_when_nobody_listens(tmp_path: Path, pump: Pump) -> None:
    with ready_check(rendered(http="/"), tmp_path / "log", pump) as is_ready:
        assert not is_ready(1)


class MeetsItself(socket.socket):
    """A socket that the kernel gives the port to which it connects."""

    def connect(self, address: tuple[str, int]) -> None:  # type: ignore[override]
        self.bind(address)
        super().connect(address)

    def connect_ex(self, address: tuple[str, int]) -> int:  # type: ignore[override]
        self.bind(address)
        return super().connect_ex(address)


@pytest.mark.parametrize("ready", [{}, {"http": "/"}])
def test_a_connection_to_itself_is_no_server_and_leaves_the_port_to_one(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch, ready: dict[str, str]
) -> None:
    there = rendered(**ready)
    monkeypatch.setattr(socket, "socket", MeetsItself)
    with ready_check(there, tmp_path / "log", pump) as is_ready:
        assert not is_ready(1)
    assert deployed_subject._refusal(there, 1, held=False) == "nobody listens there"
    assert port_is_free(there.port)


@pytest.mark.parametrize(
    ("split", "count"),
    [(CpuSplit((0, 1), (3,), (2,)), 4), (CpuSplit((), (3,), (3,), machine=(0, 1, 2, 3)), 4), (CpuSplit(), 0)],
)
def test_the_host_s_cpu_time_is_that_of_the_whole_trial(split: CpuSplit, count: int, tmp_path: Path) -> None:
    subject = Subject(name="s", command=("server", "{port}"))
    assert probe_spec(subject, rendered(), split, tmp_path / "log", ()).host_cpus == tuple(range(count))


@pytest.mark.parametrize(("counted", "per_s"), [(False, 10), (True, 2)])
def test_a_program_without_requests_is_sampled_as_often_as_its_counter_is_read(
    counted: bool, per_s: int, tmp_path: Path
) -> None:
    """The page of the counters says both."""
    subject = Subject(name="s", command=("server", "{port}"))
    spec = probe_spec(subject, rendered(), CpuSplit(), tmp_path / "log", (), counted=counted)
    assert spec.interval_ns == 10**9 // per_s
    page = (ROOT / "docs" / "methods" / "process-counters.md").read_text()
    assert "ten times a second (without requests: twice)" in page


@contextmanager
def started(subject: Subject, log: Path, pump: Pump) -> Iterator[RunningSubject]:
    """Yields the subject once it is ready; `log`: its output."""
    with LineFile(log.with_name("lines")) as lines, subject_process.subject_up(
        subject,
        Setting(()),
        engine=ENGINE,
        cpus=CpuSplit(),
        files=SubjectFiles(log, log.with_name("engine.log"), lines, log, lambda _: None),
        pump=pump,
        on_launched=lambda _: None,
    ) as running:  # fmt: skip
        yield running


def failure_of(subject: Subject, log: Path, pump: Pump) -> Failure:
    """How a start of the subject fails."""
    with pytest.raises(TrialFailed) as failed, started(subject, log, pump):
        pass
    return failed.value.failure


def test_what_powerband_does_with_a_server_that_is_ready_is_no_part_of_its_start(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_ns = []
    running = SimpleNamespace(exited=None, pid=os.getpid())
    monkeypatch.setattr(subject_process, "probe_up", lambda *_: nullcontext(running))
    monkeypatch.setattr(subject_process, "served_by", lambda *_: asked_ns.append(time.monotonic_ns()) or "")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(subject_process, "pick_ports", lambda count: [port] * count)
        with started(Subject(name="s", command=("sh", "{port}")), tmp_path / "log", pump) as found:
            assert found.ready_ns <= asked_ns[0]


@pytest.mark.parametrize("said", ["", "starting\n"])
@pytest.mark.parametrize("log", ["^Serving$", None])
def test_a_log_that_stays_empty_may_wait_in_a_buffer(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch, log: str | None, said: str
) -> None:
    (tmp_path / "log").write_text(said)
    running = SimpleNamespace(exited=None, pid=os.getpid())
    monkeypatch.setattr(subject_process, "probe_up", lambda *_: nullcontext(running))
    subject = Subject(name="s", command=("sh", "{port}"), ready=Ready(log=log, timeout_ns=1))
    failed = failure_of(subject, tmp_path / "log", pump)
    assert failed.code == Code.NOT_READY
    hint = r"it printed nothing, or its output waits in a buffer.* PYTHONUNBUFFERED=1.*stdbuf -oL"
    assert bool(re.search(hint, failed.message)) is (log is not None and not said)


@pytest.mark.parametrize(
    "said",
    [
        "bind: Address already in use",
        "Error: That port is already in use.",
        "Web server failed to start. Port 8080 was already in use.",
        "Bind for 0.0.0.0:8080 failed: port is already allocated.",
        "[ERROR] Connection in use: ('127.0.0.1', 8080)",
        "listen tcp :8081: bind: address already in use",
    ],
)
def test_a_start_on_another_port_is_judged_by_its_own_part_of_the_log(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    log, launched = tmp_path / "log", []

    @contextmanager
    def first_loses_its_port(*_: object) -> Iterator[SimpleNamespace]:
        launched.append(log)
        with log.open("a") as file:
            file.write(f"ready\n{said}\n" if len(launched) == 1 else "broken\n")
        ended = Exited.model_construct(exit_code=1, signal=None)
        yield SimpleNamespace(exited=ended, pid=1)

    monkeypatch.setattr(subject_process, "probe_up", first_loses_its_port)
    monkeypatch.setattr(subject_process, "pick_ports", lambda count: [*range(8080, 8080 + count)])
    monkeypatch.setattr(subject_process, "POLL_FIRST_S", 0.0)
    subject = Subject(
        name="s",
        command=("sh", "{port}", "{metrics_port}"),
        metrics_url="http://127.0.0.1:{metrics_port}/metrics",
        ready=Ready(log="^never$", timeout_ns=10**9),
    )
    assert failure_of(subject, log, pump).code == Code.DIED_BEFORE_READY and len(launched) == 2
    ready_once = subject.model_copy(update={"ready": Ready(log="^ready$", timeout_ns=10**9)})
    with ready_check(render(ready_once, Setting(()), ENGINE), log, pump, None, log.stat().st_size) as is_ready:
        assert not is_ready(1)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("OSError: [Errno 98] Address already in use", "its log does not say which"),
        ("ERROR: transport error 202: bind failed: Address already in use", "its log does not say which"),
        ("listen tcp 127.0.0.1:8080: bind: address already in use", "could not listen on port 8080"),
    ],
)
def test_the_port_that_was_picked_is_blamed_only_if_the_log_names_it(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    log, launched = tmp_path / "log", []

    def loses_a_port(*_: object) -> nullcontext[SimpleNamespace]:
        launched.append(log)
        with log.open("a") as file:
            file.write(f"{said}\n")
        return nullcontext(SimpleNamespace(exited=Exited.model_construct(exit_code=1, signal=None), pid=1))

    monkeypatch.setattr(subject_process, "probe_up", loses_a_port)
    monkeypatch.setattr(subject_process, "pick_ports", lambda count: [*range(8080, 8080 + count)])
    subject = Subject(name="s", command=("sh", "{port}"), ready=Ready(log="^never$", timeout_ns=10**9))
    failed = failure_of(subject, log, pump)
    assert failed.code == Code.PORT_IN_USE and len(launched) == subject_process.PORT_ATTEMPTS
    assert told in failed.message and ("8080" in failed.message.partition("; its last log")[0]) == ("8080" in said)


def test_the_socket_of_the_sink_is_short_wherever_temporary_files_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Subject(name="s", command=("s", "{statsd_socket}"))
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    for folder in (tmp_path, deep):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with subject_process._statsd_folder(told) as given, socket.socket(socket.AF_UNIX) as sink:
            sink.bind(given["statsd_socket"])
