"""The subject's metrics page is passed on: every sample carries its run, and nothing but a metrics page is passed
on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as plain

from powerband.live.state import RunState, RunStatus, TrialPhase, TrialState
from powerband.live.subject_page import (
    FRESH_S,
    TIMEOUT_S,
    NoPageError,
    Relay,
    fetch,
    labelled,
    subject_pages,
    target_of,
)

LABELS = {"run": "r", "trial": "3", "setting": "threads=4"}
ADDED = 'run="r",trial="3",setting="threads=4"'


@pytest.mark.parametrize(
    ("line", "passed_on"),
    [
        ("requests_total 5", f"requests_total{{{ADDED}}} 5"),
        ("requests_total\t5.5e3", f"requests_total{{{ADDED}}} 5.5e3"),
        ("queue_limit{} +Inf", f"queue_limit{{{ADDED}}} +Inf"),
        ('loops{loop="0",} 1 1700000000000', f'loops{{{ADDED},loop="0"}} 1'),
        ('a:b{x="}", y = "a\\"b{"} NaN', f'a:b{{{ADDED},x="}}", y = "a\\"b{{"}} NaN'),
        ('t{trial="9",not="run=1",run="me"} 1', f't{{{ADDED},exported_trial="9",not="run=1",exported_run="me"}} 1'),
        ('s_bucket{le="0.1"} 8 # {trace_id="a"} 0.05 1700000000.1', f's_bucket{{{ADDED},le="0.1"}} 8'),
        ("# HELP a What a is.", "# HELP a What a is."),
        ("# TYPE a counter", "# TYPE a counter"),
    ],
)
def test_a_line_is_passed_on_with_labels(line: str, passed_on: str) -> None:
    assert labelled(f"{line}\n", LABELS) == f"{passed_on}\n"
    assert list(plain(labelled(f"{line}\n", LABELS))) or line.startswith("# ")


@pytest.mark.parametrize("line", ["", "# EOF", "# UNIT a seconds", "# TYPE a stateset", "# a remark", "#"])
def test_what_the_text_format_does_not_have_is_left_out(line: str) -> None:
    assert labelled(f"{line}\n", LABELS) == ""


@pytest.mark.parametrize(
    "line",
    ["<html>", '{"secret": 1}', "abc1", "a b", 'a{x="1} 2', "a{} ", "a 1 2 3 4", "1a 5", "a 1_000", "root:x:0:0"],
)
def test_what_is_no_sample_is_refused_and_not_repeated(line: str) -> None:
    with pytest.raises(NoPageError) as refused:
        labelled(f"ok 1\n{line}\n", LABELS)
    assert "line 2" in str(refused.value) and "secret" not in str(refused.value)


def test_values_of_labels_are_escaped() -> None:
    (family,) = plain(labelled("a 1", {"setting": 'path="C:\\x"\n'}))
    assert family.samples[0].labels == {"setting": 'path="C:\\x"\n'}


@contextmanager
def page(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.server.asked.append((self.path, self.headers["Accept"]))  # type: ignore[attr-defined]
            self.send_response(status)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with pytest.MonkeyPatch.context() as patched, ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        patched.setattr("powerband.live.subject_page.TIMEOUT_S", 20.0)  # a busy machine may hold up an answer
        server.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics?all=1"
        finally:
            server.shutdown()
            thread.join()
    assert all(asked == ("/metrics?all=1", "text/plain;version=0.0.4") for asked in server.asked)  # type: ignore[attr-defined]


def run_with(folder: Path, metrics_url: str | None, phase: TrialPhase = TrialPhase.MEASURE) -> RunState:
    trial = folder / "trials" / "0003"
    trial.mkdir(parents=True)
    (trial / "subject.json").write_text(json.dumps({"url": "http://127.0.0.1:1/", "metrics_url": metrics_url}))
    current = TrialState(3, "threads=4", 0, "compare", None, phase, None, None)
    return RunState(path=str(folder), name="test", status=RunStatus.RUNNING, current=current)


def test_the_page_of_the_trial_in_flight_is_passed_on(tmp_path: Path) -> None:
    with page(b"# TYPE a gauge\na 1\n") as url:
        text = subject_pages([run_with(tmp_path / "r", url)])
    assert text == f"# TYPE a gauge\na{{{ADDED}}} 1\n"


def test_two_runs_stand_in_one_page_and_what_they_have_in_common_stands_once(tmp_path: Path) -> None:
    with page(b"# TYPE a gauge\na 1\n") as url:
        text = subject_pages([run_with(tmp_path / "r", url), run_with(tmp_path / "s", url)])
    assert text.count("# TYPE") == 1
    (family,) = plain(text)
    assert [sample.labels["run"] for sample in family.samples] == ["r", "s"]


@pytest.mark.parametrize("phase", [TrialPhase.STARTING, TrialPhase.LAUNCHED, TrialPhase.ENDING])
def test_a_subject_that_is_not_ready_or_ends_is_not_asked(tmp_path: Path, phase: TrialPhase) -> None:
    assert subject_pages([run_with(tmp_path, "http://127.0.0.1:1/metrics", phase)]) == ""


def test_a_subject_without_a_page_has_none(tmp_path: Path) -> None:
    assert subject_pages([run_with(tmp_path, None)]) == ""


def test_between_two_trials_there_is_no_page() -> None:
    assert subject_pages([RunState(path="runs/x", name="x", status=RunStatus.RUNNING)]) == ""


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"url": "http://127.0.0.1:1/"}'])
def test_an_address_that_is_not_there_yet_is_none(tmp_path: Path, text: str) -> None:
    run = run_with(tmp_path, "http://127.0.0.1:1/metrics")
    (tmp_path / "trials" / "0003" / "subject.json").write_text(text)
    assert target_of(run) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/metrics", "not on this machine"),
        ("http://169.254.169.254/latest/meta-data", "not on this machine"),
        ("file:///etc/passwd", "no URL of a server"),
        ("http://127.0.0.1:1/metrics", "does not answer"),
        ("http://127.0.0.1:1/metrics?token=tiger-7", r"/metrics\?token=\(hidden\) does not answer"),
        ("http://example.com/?token=tiger-7", r"/\?token=\(hidden\) is not on this machine"),
    ],
)
def test_only_this_machine_is_asked(tmp_path: Path, url: str, reason: str) -> None:
    with pytest.raises(NoPageError, match=reason):
        subject_pages([run_with(tmp_path, url)])


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [(404, b"", "status 404"), (302, b"", "status 302"), (200, b"<html>", "no metrics page")],
)
def test_an_answer_that_is_no_metrics_page_is_not_passed_on(
    tmp_path: Path, status: int, body: bytes, reason: str
) -> None:
    with page(body, status, {"Location": "http://example.com/"}) as url, pytest.raises(NoPageError, match=reason):
        subject_pages([run_with(tmp_path, url)])


def test_one_subject_that_does_not_answer_hides_no_other(tmp_path: Path) -> None:
    with page(b"a 1\n") as url:
        runs = [run_with(tmp_path / "s", "http://127.0.0.1:1/metrics"), run_with(tmp_path / "r", url)]
        assert subject_pages(runs) == f"a{{{ADDED}}} 1\n"


@pytest.mark.parametrize(
    "line",
    [
        "a" * 60_000,
        "a{" + "b" * 60_000 + "} 1",
        'a{b="' + "\\n" * 30_000,
        "a{" + '"' * 60_000,
        'a{b="' + "c=" * 30_000 + '"} 1 x',
        "a{" + 'b="",' * 12_000 + "} 1 x",
        "a" + " " * 60_000 + "x",
        "a 1" + " " * 60_000 + "x",
        "a " + "1" * 60_000,
    ],
)
def test_a_hostile_line_is_refused_in_linear_time(line: str) -> None:
    began = time.process_time()
    with pytest.raises(NoPageError, match="its line 101 is no sample"):
        labelled("a 1\n" * 100 + line, LABELS)
    assert time.process_time() - began < 3, "it takes milliseconds; where time is quadratic, half a minute"


def test_a_page_is_bounded_in_lines_and_each_line_in_length() -> None:
    assert labelled(f'a{{b="{"x" * 60_000}"}} 1', LABELS).endswith('"} 1\n')
    with pytest.raises(NoPageError, match="its line 1 is no sample"):
        labelled(f'a{{b="{"x" * 70_000}"}} 1', LABELS)
    with pytest.raises(NoPageError, match="more than 100,000 lines"):
        labelled("a 1\n" * 100_001, LABELS)


@given(st.text(st.sampled_from('a{}="\\, 1#\tx_:'), max_size=40))
def test_whatever_is_passed_on_is_a_metrics_page(line: str) -> None:
    try:
        page = labelled(f"{line}\n", LABELS)
    except NoPageError:
        return
    if page and not page.startswith("#"):
        assert page.startswith(line.strip()[:1]) and f"{{{ADDED}" in page and page.count("\n") == 1


@contextmanager
def dripping(head: bytes, drop: bytes) -> Iterator[str]:
    """Runs a server that begins to answer, and then sends a few bytes at a time for ever."""

    def drip() -> None:
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError):
            client.sendall(head)
            while True:
                client.sendall(drop)
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=drip, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        thread.join()


@pytest.mark.parametrize(
    ("head", "drop"),
    [(b"", b"H"), (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"), (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"a")],
)
def test_a_page_that_drips_is_given_up(head: bytes, drop: bytes) -> None:
    began = time.monotonic()
    with dripping(head, drop) as url, pytest.raises(NoPageError, match="does not answer"):
        fetch(url)
    assert time.monotonic() - began < 10 * TIMEOUT_S


def test_who_asks_at_the_same_time_gets_the_same_answer(tmp_path: Path) -> None:
    async def asked_by_many() -> tuple[list[str], str, int]:
        asked = 0

        async def runs() -> list[RunState]:
            nonlocal asked
            asked += 1
            return [run_with(tmp_path / f"r{asked}", url)]

        relay = Relay(runs)
        same = await asyncio.gather(*(relay.page() for _ in range(20)))
        await asyncio.sleep(FRESH_S)
        return same, await relay.page(), asked

    with page(b"a 1\n") as url:
        same, later, asked = asyncio.run(asked_by_many())
    assert len(set(same)) == 1 and 'run="r1"' in same[0]
    assert 'run="r2"' in later and asked == 2
