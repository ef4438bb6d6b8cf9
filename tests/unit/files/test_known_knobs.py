"""Commands of known servers, and help texts of several libraries, become commands with placeholders."""

from __future__ import annotations

import shlex

import pytest

from powerband.files.known_knobs import KNOWN, Flag, knobs_in_help, known_server, with_flag, with_port
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
    assert known is not None and known.name == name and known.port is not None and known.knobs[0].flag is not None
    made = with_flag(with_flag(words, known.knobs[0].flag), known.port)
    assert made == shlex.split(proposed)


def test_others_are_known_by_their_executable_or_not_at_all() -> None:
    go = known_server(["./server"], is_go=True)
    assert go is not None and go.knobs[0].set_by == "GOMAXPROCS"
    assert known_server(["node", "app.js"]) is not None
    for launcher in (["/usr/bin/docker", "run", "image"], ["doppler", "run", "--", "node", "app.js"]):
        assert known_server(launcher, is_go=True) is None, "what it starts may read no GOMAXPROCS"
    assert known_server(["./server"]) is None and known_server(["java", "-jar"]) is None


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
