"""A server whose limit is changed while it runs, to try powerband on a server that it does not start.

    python3 examples/knob_server.py --port 8080
    powerband tune -P n=2,8,32 --url http://127.0.0.1:8080/ --apply 'POST /knob {n}' --restore n=8

It serves `n` requests at once. Each takes 20 ms while `n` is 8 or less, and longer above that, as if they waited for
one another: 8 is best. `POST /knob` with a number as its body sets `n`, `GET /knob` returns it.
"""

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BEST = 8


class Limit:
    """How many requests are served at once."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._inside = 0
        self._changed = threading.Condition()

    def set(self, n: int) -> None:
        with self._changed:
            self.n = n
            self._changed.notify_all()

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._inside < self.n)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify()


LIMIT = Limit(BEST)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent in one piece: the second of two would wait for the first to be acknowledged

    def do_GET(self) -> None:
        if self.path == "/knob":
            self.answer(200, f"{LIMIT.n}\n")
            return
        with LIMIT:
            time.sleep(0.020 * max(1.0, LIMIT.n / BEST) ** 2)
        self.answer(200, "served\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if self.path != "/knob":
            self.answer(404, "there is no such knob\n")
        elif not body.isdigit() or int(body) < 1:
            self.answer(422, f"{body!r} is no number of requests\n")
        else:
            LIMIT.set(int(body))
            self.answer(200, f"{LIMIT.n}\n")

    def answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class names it so)
        """No access log."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up before its answer is not an error of the server."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--n", type=int, default=BEST)
    options = parser.parse_args()
    LIMIT.set(options.n)
    Server((options.host, options.port), Handler).serve_forever()
