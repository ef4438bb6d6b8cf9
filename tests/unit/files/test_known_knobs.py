"""Commands of known servers, and help texts of several libraries, become commands with placeholders."""

from __future__ import annotations

import shlex

import pytest

from powerband.files.known_knobs import (
    KNOWN,
    Flag,
    knobs_in_help,
    known_server,
    with_flag,
    with_port,
    without_reload,
)
from powerband.files.levels import parse_levels

ARGPARSE_OLD = """\
usage: server.py [-h] [-t THREADS] [--port PORT]
options:
  -h, --help            show this help message and exit
  -t THREADS, --threads THREADS
                        threads that serve
  --port PORT           where it listens
  --worker-timeout SECONDS
"""
ARGPARSE_NEW = "  -t, --threads THREADS  threads that serve\n  --port PORT\n"
CLAP = "      --threads <THREADS>\n          How many\n      --verbose\n          Use threads\n  -p, --port <PORT>\n"
GO_FLAGS = 'Usage of ./server:\n  -addr string\n    \taddress (default ":8080")\n  -workers int\n    \t(default 4)\n'
COMMANDER = "  -w, --workers <n>  processes\n  --listen <address>\n"


@pytest.mark.parametrize(
    ("text", "names", "first", "port"),
    [
        (ARGPARSE_OLD, ["threads"], ("--threads", "-t"), ("--port",)),
        (ARGPARSE_NEW, ["threads"], ("--threads", "-t"), ("--port",)),
        (CLAP, ["threads"], ("--threads",), ("--port", "-p")),
        (GO_FLAGS, ["workers"], ("-workers",), None),
        (COMMANDER, ["workers"], ("--workers", "-w"), ("--listen",)),
    ],
    ids=["argparse", "argparse of 3.13", "clap", "Go", "commander"],
)
def test_help_names_what_counts_and_takes_a_value(
    text: str, names: list[str], first: tuple[str, ...], port: tuple[str, ...] | None
) -> None:
    found = knobs_in_help(text)
    assert found is not None and [knob.name for knob in found.knobs] == names
    assert found.knobs[0].flag is not None and found.knobs[0].flag.spellings == first
    assert (found.port and found.port.spellings) == port


def test_help_without_such_an_option_names_nothing() -> None:
    assert knobs_in_help("usage: x [--verbose]\n  --threads  Use threads\n  --pool-timeout S\n") is None


@pytest.mark.parametrize(
    ("command", "name", "proposed"),
    [
        ("gunicorn app:app", "gunicorn", "gunicorn app:app -w {workers} -b 127.0.0.1:{port}"),
        ("python3.12 -m gunicorn -w4 app:app", "gunicorn",
         "python3.12 -m gunicorn -w {workers} app:app -b 127.0.0.1:{port}"),
        ("gunicorn --workers=4 --bind :8000 app:app", "gunicorn",
         "gunicorn --workers={workers} --bind 127.0.0.1:{port} app:app"),
        ("/bin/uvicorn app:app --port 8000", "uvicorn", "/bin/uvicorn app:app --port {port} --workers {workers}"),
        ("bundle exec puma -t 5:5", "Puma", "bundle exec puma -t {threads}:{threads} -p {port}"),
        ("waitress-serve --threads=4 app:app", "Waitress", "waitress-serve --port {port} --threads={threads} app:app"),
        ("waitress-serve --port 80 app:app", "Waitress", "waitress-serve --threads {threads} --port {port} app:app"),
        ("waitress-serve --listen=0.0.0.0:8000 app:app", "Waitress",
         "waitress-serve --threads {threads} --listen=127.0.0.1:{port} app:app"),
        ("waitress-serve --listen *:8000 app:app", "Waitress",
         "waitress-serve --threads {threads} --listen 127.0.0.1:{port} app:app"),
        ("uv run python -m waitress app:app", "Waitress",
         "uv run python -m waitress --port {port} --threads {threads} app:app"),
        ("java -Xmx1g -jar quarkus-run.jar", "Quarkus",
         "java -Xmx1g -Dquarkus.thread-pool.max-threads={threads} -Dquarkus.http.port={port} -jar quarkus-run.jar"),
        ("java -jar shop.jar", "a Spring Boot jar",
         "java -jar shop.jar --server.tomcat.threads.max={threads} --server.port={port}"),
    ],
)  # fmt: skip
def test_known_servers_are_told_the_first_knob_and_the_port(command: str, name: str, proposed: str) -> None:
    words = shlex.split(command)
    known = known_server(words, is_spring="shop.jar" in command)
    assert known is not None and known.name == name and known.knobs[0].flag is not None
    port = known.port_in(words)
    assert port is not None
    made = with_flag(with_flag(words, known.knobs[0].flag), port)
    assert made == shlex.split(proposed)


def test_others_are_known_by_their_executable_or_not_at_all() -> None:
    go = known_server(["./server"], is_go=True)
    assert go is not None and go.knobs[0].set_by == "GOMAXPROCS"
    assert known_server(["node", "app.js"]) is not None
    for launcher in (["/usr/bin/docker", "run", "image"], ["doppler", "run", "--", "node", "app.js"]):
        assert known_server(launcher, is_go=True) is None, "what it starts may read no GOMAXPROCS"
    assert known_server(["./server"]) is None and known_server(["java", "-jar"]) is None


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("gunicorn app:app", ["workers", "threads"]),
        ("gunicorn -k sync app:app", ["workers", "threads"]),
        ("gunicorn --worker-class=gthread app:app", ["workers", "threads"]),
        ("gunicorn -k gunicorn.workers.gthread.ThreadWorker app:app", ["workers", "threads"]),
        ("python -m gunicorn -k uvicorn.workers.UvicornWorker app:app", ["workers"]),
        ("gunicorn -kgevent app:app", ["workers"]),
        ("gunicorn --worker-class eventlet app:app", ["workers"]),
    ],
)
def test_workers_that_have_no_pool_of_threads_are_given_none(command: str, names: list[str]) -> None:
    known = known_server(shlex.split(command))
    assert known is not None and [knob.name for knob in known.knobs] == names


@pytest.mark.parametrize("server", ["gunicorn", "python -m uvicorn", "uv run hypercorn", "/bin/granian"])
def test_servers_of_python_do_not_reload_while_they_are_measured(server: str) -> None:
    made = without_reload([*server.split(), "--reload", "app:app", "--reload-dir", "x"])
    assert made == [*server.split(), "app:app", "--reload-dir", "x"]
    assert without_reload(["./server", "--reload"]) == ["./server", "--reload"]


def test_a_spring_boot_jar_without_a_pool_of_threads_keeps_only_its_port() -> None:
    known = known_server(["java", "-jar", "shop.jar"], is_spring=True, has_pool=False)
    assert known is not None and known.name == "a Spring Boot jar" and known.knobs == ()
    assert known.port is not None and known.port.value == "{port}"


def test_each_row_says_where_it_is_from_and_its_levels_can_be_read() -> None:
    for known in KNOWN:
        assert known.source.startswith("https://") and known.knobs
        for knob in known.knobs:
            assert parse_levels(knob.levels.replace("{twice}", "4"))
            assert f"{{{knob.name}}}" in (knob.flag.value if knob.flag else f"{{{knob.name}}}")


def test_a_value_that_stands_there_is_replaced_once() -> None:
    flag = Flag(("-w", "--workers"), "{workers}")
    assert with_flag(["x", "-w", "2"], flag) == ["x", "-w", "{workers}"]
    assert with_flag(["x", "--workers", "2"], flag) == ["x", "--workers", "{workers}"]
    assert with_flag(["x", "-walk"], flag) == ["x", "-walk", "-w", "{workers}"]


def test_a_port_is_replaced_where_it_stands_once() -> None:
    assert with_port(["x", "--listen", ":8080"], "8080") == ["x", "--listen", ":{port}"]
    assert with_port(["x", "18080"], "8080") is None
    assert with_port(["x", "8080", "8080"], "8080") is None
    assert with_port(["x", "--forward", "8080:8080"], "8080") == ["x", "--forward", "{port}:8080"]


@pytest.mark.parametrize(
    ("command", "number", "made"),
    [
        ("docker run -p 8080:8080 image", "8080", "docker run -p {port}:8080 image"),
        ("docker run -p 127.0.0.1:8080:8080 image", "8080", "docker run -p 127.0.0.1:{port}:8080 image"),
        ("docker run -p 3000:8080 image", "8080", "docker run -p {port}:8080 image"),
        ("docker run -p 3000:8080 image", "3000", "docker run -p {port}:8080 image"),
        ("docker run -p 8080:8080/tcp image", "8080", "docker run -p {port}:8080/tcp image"),
        ("docker run -p 443:443/udp -p 443:443 image", "443", "docker run -p 443:443/udp -p {port}:443 image"),
        ("docker run -p 8080:80 -p 3000:8080 image", "8080", "docker run -p {port}:80 -p 3000:8080 image"),
        ("docker run -p 8080 image", "8080", "docker run -p {port}:8080 image"),
        ("docker run -p 127.0.0.1::8080 image", "8080", "docker run -p 127.0.0.1:{port}:8080 image"),
        ("docker run -itp 80:80 -e PORT=80 image", "80", "docker run -itp {port}:80 -e PORT=80 image"),
        ("sudo podman run --publish=[::1]:80:80 image", "80", "sudo podman run --publish=[::1]:{port}:80 image"),
        ("/bin/docker compose -p x run -p8080:80 web", "80", "/bin/docker compose -p x run -p{port}:80 web"),
        ("docker run --network host image -p 8080", "8080", "docker run --network host image -p {port}"),
    ],
)
def test_a_container_is_published_at_the_port_of_the_trial(command: str, number: str, made: str) -> None:
    assert with_port(shlex.split(command), number) == shlex.split(made)


@pytest.mark.parametrize("options", ["-p 8080-8090:8080-8090", "-p 3000:80", "-e PORT=8080", "-p 8080:8080/udp"])
def test_a_container_that_does_not_publish_the_port_keeps_its_command(options: str) -> None:
    assert with_port(["docker", "run", *options.split(), "image"], "8080") is None
