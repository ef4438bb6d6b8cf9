"""An HTTP server that serves N keep-alive connections at a time: `prefork_server.py PORT N HOW`; with N = 0 all of
them.

`hold` (the default) has N processes, each of which serves one connection until the client closes it; the others wait in
the accept queue for ever. `queue`: like `hold` with an accept queue of four, so that most cannot even connect.
`descriptors`: one process whose descriptors suffice for N connections. `refuse`: one process that answers the others
with 503."""

from __future__ import annotations

import os
import resource
import selectors
import signal
import socket
import sys
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REFUSAL = b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno"
END = b"\r\n\r\n"


def hold(listener: socket.socket) -> None:
    """Serves one connection after the other, each until the client closes it."""
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                while received := connection.recv(65_536):
                    connection.sendall(ANSWER * received.count(END))
            except OSError:
                continue


def share(listener: socket.socket, welcome: int | None = None) -> None:
    """Serves all connections in turn. `welcome`: serves only so many of them, and answers the requests of others with
    503."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    guests: set[socket.socket] = set()
    while True:
        for key, _ in selector.select():
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            if peer is listener:
                try:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                except OSError:
                    time.sleep(0.001)
                continue
            try:
                received = peer.recv(65_536)
                if received:
                    if welcome is None or len(guests) < welcome:
                        guests.add(peer)
                    heard = welcome is None or peer in guests
                    peer.sendall((ANSWER if heard else REFUSAL) * received.count(END))
                    continue
            except OSError:
                pass
            guests.discard(peer)
            selector.unregister(peer)
            peer.close()


def spare_descriptors(connections: int) -> None:
    """Limits the descriptors of this process to the open ones, one for the selector, and so many connections."""
    lowest_free = os.dup(0)
    os.close(lowest_free)
    most = lowest_free + 1 + connections
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(port: int, processes: int, how: str = "hold") -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=4 if how == "queue" else 256)
    if how == "descriptors" and processes:
        spare_descriptors(processes)
    if not processes or how in ("descriptors", "refuse"):
        share(listener, processes if how == "refuse" and processes else None)
    children = []
    for _ in range(processes):
        if (child := os.fork()) == 0:
            hold(listener)
        children.append(child)

    def end(number: int, frame: object) -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
