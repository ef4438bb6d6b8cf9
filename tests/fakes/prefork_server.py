"""An HTTP server of N processes, each of which serves one connection at a time until the client closes it: of more
keep-alive connections than processes, the rest wait in the accept queue for ever. With 0 processes one serves all.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
END = b"\r\n\r\n"


def hold(listener: socket.socket) -> None:
    """Serves one connection after the other, each as long as it stands."""
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                while received := connection.recv(65_536):
                    connection.sendall(ANSWER * received.count(END))
            except OSError:
                continue


def share(listener: socket.socket) -> None:
    """Serves all connections in turn."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            if peer is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            try:
                received = peer.recv(65_536)
                if received:
                    peer.sendall(ANSWER * received.count(END))
                    continue
            except OSError:
                pass
            selector.unregister(peer)
            peer.close()


def main(port: int, processes: int) -> None:
    """`processes` 0: one that shares itself among all connections."""
    listener = socket.create_server(("127.0.0.1", port), backlog=256)
    if not processes:
        share(listener)
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
    main(int(sys.argv[1]), int(sys.argv[2]))
