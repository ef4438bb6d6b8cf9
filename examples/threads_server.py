"""A small server to try `powerband tune` on: HTTP on a pool of threads, with the standard library only.

    powerband tune -P threads=1,2,4,8,16,32 -- python3 examples/threads_server.py --port {port} --threads {threads}

Each request waits 20 ms (a database, say) and then computes for about 0.2 ms.
"""

import argparse
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import socket
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers every GET after some waiting and some computing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(0.020)
        digest = b"powerband"
        for _ in range(200):
            digest = hashlib.sha256(digest).digest()
        body = digest.hex().encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class names it so)
        """No access log: writing it would cost more than the work."""


class PooledServer(HTTPServer):
    """One pool thread for each connection, for as long as it lasts."""

    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], threads: int) -> None:
        super().__init__(address, Handler)
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")

    def process_request(self, request: Any, client_address: Any) -> None:
        self.pool.submit(self._serve, request, client_address)

    def _serve(self, request: socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client went away
        finally:
            self.shutdown_request(request)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    PooledServer(("127.0.0.1", options.port), options.threads).serve_forever()
