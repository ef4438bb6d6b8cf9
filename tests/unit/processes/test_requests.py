"""The bench's own requests to malicious servers: each ends in time, in little memory and with a sentence."""

from __future__ import annotations

import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fakes.hostile_server import KINDS, hostile
from fakes.needs import without
from fakes.pages import ROOT
from powerband.model.load import Checks, Step
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialInterrupted
from powerband.processes.requests import Client, HttpAnswer, RequestFailedError, refused
from powerband.processes.stop_request import StopRequest

STEP = Step(name="ask", path="/")
WITHIN_S = 0.4
SLACK_S = 3.0  # one that never ends its answer would never end


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_ends_in_time_however_it_is_answered(kind: str, stop: StopRequest) -> None:
    begun_s, before_kib = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = STEP if kind != "deaf" else STEP.model_copy(update={"method": "POST", "body": "x" * (8 << 20)})
    with (
        hostile(kind) as url,
        Pump(stop) as pump,
        Client(url, WITHIN_S, pump) as client,
        pytest.raises(RequestFailedError) as failed,
    ):
        client.send(step)
    assert time.monotonic() - begun_s < WITHIN_S + SLACK_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 300 << 10
    assert len(str(failed.value)) < 400 and str(failed.value).isprintable()


@pytest.mark.parametrize("kind", ["drip", "drip-body", "silent", "endless", "continue"])
def test_a_person_who_stops_does_not_wait_for_the_answer(kind: str, stop: StopRequest) -> None:
    threading.Timer(0.2, stop.request).start()
    begun_s = time.monotonic()
    with (
        hostile(kind) as url,
        Pump(stop) as pump,
        Client(url, 30, pump) as client,
        pytest.raises((TrialInterrupted, RequestFailedError)) as ended,
    ):
        client.send(STEP)
    assert time.monotonic() - begun_s < 5
    if kind != "endless":  # `endless` is refused earlier for its length
        assert ended.type is TrialInterrupted


def test_the_status_is_known_before_the_body_has_come(stop: StopRequest) -> None:
    with hostile("drip-body") as url, Pump(stop) as pump, Client(url, WITHIN_S, pump) as client:
        assert client.status_of(STEP) == 200


class _Right(BaseHTTPRequestHandler):
    """It answers with the request's type of content."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        answer = (self.headers.get("Content-Type") or "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def self_signed(tmp_path: Path) -> Iterator[str]:
    """The url of a server whose certificate nobody has signed but itself."""
    if shutil.which("openssl") is None:
        without("no openssl here")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=elsewhere")
    made = ("openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(certificate))
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with HTTPServer(("127.0.0.1", 0), _Right) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_no_certificate_is_verified(self_signed: str, stop: StopRequest) -> None:
    """SECURITY.md says so. The load engine verifies them (engine/tests/load_tls.rs)."""
    with Pump(stop) as pump, Client(self_signed, 5, pump) as client:
        assert client.send(STEP).status == 200
    assert "own requests (`ready.http`, `apply`, `acknowledged`) verify none" in (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize(
    ("body", "headers", "sent"),
    [
        ('{"size": 8}', {}, b"application/json"),
        ("[8]", {}, b"application/json"),
        ('{"size": 8}', {"content-type": "text/plain"}, b"text/plain"),
        ("8", {}, b""),
        ("size=8", {}, b""),
        (None, {}, b""),
    ],
)
def test_a_body_of_json_is_named_as_such(
    body: str | None, headers: dict[str, str], sent: bytes, stop: StopRequest
) -> None:
    """Spring and ASP.NET refuse it otherwise, and Express takes it for an empty one."""
    with HTTPServer(("127.0.0.1", 0), _Right) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        step = Step(name="set", path="/", body=body, headers=headers)
        with Pump(stop) as pump, Client(f"http://127.0.0.1:{server.server_port}/", 5, pump) as client:
            assert client.send(step).body == sent
        thread.join()


def test_a_connection_is_used_again_and_opened_again(stop: StopRequest) -> None:
    with hostile("short") as url, Pump(stop) as pump, Client(url, WITHIN_S, pump) as client:
        for _ in range(3):
            with pytest.raises(RequestFailedError, match="ask: "):
                client.send(STEP)


def test_a_server_that_listens_on_one_of_its_names_addresses_is_reached(
    stop: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed, hostile("drip-body") as url:
        addresses = [closed.getsockname(), ("127.0.0.1", urlsplit(url).port)]
        closed.close()
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with Pump(stop) as pump, Client("http://localhost:1/", 5, pump) as client:
            assert client.status_of(STEP) == 200
        del found[1:]
        refused = pytest.raises(RequestFailedError, match=r"ConnectionRefusedError.*cannot connect to localhost:1")
        with Pump(stop) as pump, Client("http://localhost:1/", 5, pump) as client, refused:
            client.send(STEP)


@pytest.mark.parametrize(
    ("status", "wanted", "said"),
    [
        (200, (), ""),
        (303, (), ""),
        (301, (), "status 301, a redirect, which is not followed"),
        (308, (), "status 308, a redirect, which is not followed"),
        (308, (308,), ""),
        (404, (), "status 404"),
    ],
)
def test_a_request_that_is_sent_elsewhere_has_changed_nothing(status: int, wanted: tuple[int, ...], said: str) -> None:
    """A server that speaks https alone redirects http://app/knob so."""
    assert refused(Checks(status=wanted), HttpAnswer(status, b"", 0, 0)) == said
