"""A small real server that acknowledges a write before the work is done, as `@Async` does: half of the rows are there
at once, the rest after `--late` reads. `PUT /knob?size=N` sets how many rows a write adds; `GET /size` shows it.
`GET /metrics` is a page of metrics, or what `--page` makes of it.

    python late_store.py --port 8080 --late 3 [--pg PORT]
"""

from __future__ import annotations

import argparse
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Store:
    def __init__(self, late: int, database: str, page: str) -> None:
        self.rows: list[int] = []
        self.size = 1
        self.late = late
        self.database = database
        self.page = page
        self.rest: list[int] = []
        self.reads = 0

    def write(self) -> None:
        first = self.size // 2 if self.late else self.size
        self.rows += range(first)
        self.rest = list(range(self.size - first))
        self.reads = 0

    def read(self) -> list[int]:
        found = list(self.rows)
        self.reads += 1
        if self.reads == self.late:
            self.rows += self.rest
        return found


def handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, body: Any, status: int = 200) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer_with(json.dumps(body).encode(), status)

        def answer_with(self, data: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path == "/metrics":
                return self.metrics_page()
            known = {"/size": store.size, "/database": store.database}
            self.answer(known[self.path] if self.path in known else store.read())

        def metrics_page(self) -> None:
            """Answers with the number of rows; or with garbage, or later than any client waits."""
            if store.page == "slow":
                time.sleep(5)
            text = "\x01\x02 {{{ 1 2 3\n<html>" if store.page == "garbage" else f"rows {len(store.rows)}\n"
            self.answer_with(text.encode())

        def do_POST(self) -> None:
            store.write()
            self.answer("accepted")

        def do_DELETE(self) -> None:
            store.rows.clear()
            self.answer("gone")

        def do_PUT(self) -> None:
            size = int(parse_qs(urlsplit(self.path).query)["size"][0])
            if size > 0:
                store.size = size
            self.answer(size, 200 if size > 0 else 422)

        def log_message(self, *args: object) -> None: ...

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--late", type=int, default=0, help="reads")
    parser.add_argument("--pg", default="")
    parser.add_argument("--page", default="rows")
    options = parser.parse_args()
    store = Store(options.late, options.pg, options.page)
    ThreadingHTTPServer(("127.0.0.1", options.port), handler(store)).serve_forever()


if __name__ == "__main__":
    main()
