"""The check of acknowledged writes, on a server that is still working at earlier writes."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import cast

import pytest

from powerband.model.experiment import Acknowledged
from powerband.model.load import Step
from powerband.processes.engine_process import Pump
from powerband.processes.requests import Client, HttpAnswer
from powerband.processes.stop_request import StopRequest
from powerband.trials.instruments import acknowledged_writes
from powerband.trials.instruments.acknowledged_writes import check_acknowledged, count_in


def test_earlier_writes_that_go_on_are_waited_for() -> None:
    rest = [300]  # rows that a load left behind: 100 appear with each read

    class Handler(BaseHTTPRequestHandler):
        rows = 0

        def answer(self, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            step = min(100, rest[0])
            rest[0] -= step
            Handler.rows += step
            self.answer(Handler.rows)

        def do_POST(self) -> None:
            rest[0] += 200
            self.answer("accepted")

        def do_DELETE(self) -> None:
            Handler.rows = 0
            self.answer("gone")

        def log_message(self, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        of = Acknowledged.model_validate(
            {
                "reset": {"method": "DELETE", "path": "/", "name": "DELETE /"},
                "write": {"method": "POST", "path": "/", "name": "POST /"},
                "read": {"method": "GET", "path": "/", "name": "GET /"},
                "expect": 200,
                "rounds": 2,
            }
        )
        stop = StopRequest()
        with Pump(stop) as pump, Client(f"http://127.0.0.1:{server.server_port}/", 60, pump) as client:
            rounds = check_acknowledged(of, client, time.sleep)
        stop.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [one.seen for one in rounds] == [100, 100] and all(one.visible_ns for one in rounds)


class SlowServer:
    """A server with a clock of its own, on which each request takes 1 us, and by which the check pauses. A write
    removes its four rows; each read then shows one more."""

    def __init__(self) -> None:
        self.now_ns, self.rows = 0, 0

    def send(self, request: Step) -> HttpAnswer:
        sent_ns, self.now_ns = self.now_ns, self.now_ns + 1000
        self.rows = min(4, self.rows + 1) if request.method == "GET" else 0
        return HttpAnswer(200, json.dumps(self.rows).encode(), sent_ns, self.now_ns)

    def pause(self, length_s: float) -> None:
        self.now_ns += round(length_s * 1e9)

    def monotonic(self) -> float:
        return self.now_ns / 1e9


def asked(rounds: int) -> Acknowledged:
    steps = {"write": "POST", "read": "GET"}
    named = {name: {"method": method, "path": "/", "name": name} for name, method in steps.items()}
    return Acknowledged.model_validate({**named, "expect": 4, "rounds": rounds})


def test_a_write_is_seen_when_the_read_was_sent_that_saw_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SlowServer()
    monkeypatch.setattr(acknowledged_writes, "time", server)
    (found,) = check_acknowledged(asked(rounds=1), cast(Client, server), server.pause)
    assert (found.acknowledged_ns, found.seen, found.read_ns) == (1000, 1, 1000)
    assert found.visible_ns == 3 * 1000 + round(1e6 * (1 + 1.3 + 1.3**2))


class AddingServer(SlowServer):
    """A server that keeps the rows that are there: each write adds four more, which appear `delay_ns` later."""

    def __init__(self, delay_ns: int) -> None:
        super().__init__()
        self.delay_ns = delay_ns
        self.written_ns: list[int] = []

    def send(self, request: Step) -> HttpAnswer:
        sent_ns, self.now_ns = self.now_ns, self.now_ns + 1000
        if request.method == "POST":
            self.written_ns.append(sent_ns)
        rows = 4 * sum(at_ns + self.delay_ns <= sent_ns for at_ns in self.written_ns)
        return HttpAnswer(200, json.dumps(rows).encode(), sent_ns, self.now_ns)


@pytest.mark.parametrize(
    ("server", "failed"),
    [
        (SlowServer(), [False, False, False]),
        (AddingServer(0), [False, True, True]),
        (AddingServer(300_000_000), [False, False, True]),
    ],
)
def test_a_write_that_adds_to_what_the_last_one_left_needs_a_reset(
    server: SlowServer, failed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledged_writes, "time", server)
    found = check_acknowledged(asked(rounds=3), cast(Client, server), server.pause)
    assert [bool(each.failed) for each in found] == failed
    told = [each.failed for each in found if each.failed]
    assert all("counted 4 before a write" in each and "name reset" in each for each in told)


@pytest.mark.parametrize("body", [b"NaN", b"-Infinity", b"1e999", b"[" * 100_000, b"9" * 5000])
def test_an_answer_that_no_number_can_be_made_of_holds_nothing(body: bytes) -> None:
    assert count_in(body, "json") == 0
