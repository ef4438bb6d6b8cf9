"""A CPU-bound server of any number of processes: each request is a fixed amount of arithmetic, and the processes share
nothing.

Started as `forking_server.py PORT PROCESSES ROUNDS`: each process accepts from one listening socket.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def answer(connection: socket.socket, rounds: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        left = b""
        while data := connection.recv(65_536):
            left += data
            while b"\r\n\r\n" in left:
                left = left.split(b"\r\n\r\n", 1)[1]
                total = 0
                for number in range(rounds):
                    total += number * number
                body = str(total).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def main() -> None:
    port, processes, rounds = map(int, sys.argv[1:])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    for _ in range(processes - 1):
        if os.fork() == 0:
            break
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, rounds), daemon=True).start()


if __name__ == "__main__":
    main()
