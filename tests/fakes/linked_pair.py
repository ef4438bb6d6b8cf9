"""A subject of two processes: an HTTP server, and a second process that each answer takes a round trip to. If there is
a link, the second process runs at its other end.

    python linked_pair.py --port 8080 [--far-namespace PATH --far-address 198.18.0.2]
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FAR_PORT = 7777


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--far-namespace", default="")
    parser.add_argument("--far-address", default="")
    parser.add_argument("--echo", action="store_true")
    options = parser.parse_args()
    address = options.far_address or "127.0.0.1"
    if options.echo:
        echo(address)
    prefix = ["nsenter", f"--net={options.far_namespace}"] if options.far_namespace else []
    far = subprocess.Popen(
        [*prefix, sys.executable, __file__, "--echo", "--far-address", address], stdout=subprocess.PIPE, text=True
    )
    assert far.stdout is not None
    say(f"here: {namespace()}; there: {far.stdout.readline().strip()}")
    connection = socket.create_connection((address, FAR_PORT), timeout=20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body after its head waits 40 ms for the client's delayed ACK

        def do_GET(self) -> None:
            with lock:
                connection.sendall(b"x")
                data = connection.recv(1)
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


def echo(address: str) -> None:
    with socket.create_server((address, FAR_PORT)) as server:
        say(namespace())
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(4096):
            connection.sendall(data)
    sys.exit()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def namespace() -> str:
    return str(Path("/proc/self/ns/net").readlink())


if __name__ == "__main__":
    main()
