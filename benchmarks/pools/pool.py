"""A pool of threads: requests wait, first come first served, for a thread, which sleeps for a random time. pool.py PORT
THREADS SERVICE MEAN_US, where SERVICE is fixed, exponential or heavy."""

from __future__ import annotations

import random
import selectors
import socket
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

PORT, THREADS, SERVICE, MEAN_S = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]) / 1e6
HEAVY_SIGMA = 1.27  # squared coefficient of variation 4
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"
waiting: SimpleQueue[socket.socket] = SimpleQueue()


def takes_s() -> float:
    if SERVICE == "fixed":
        return MEAN_S
    if SERVICE == "exponential":
        return random.expovariate(1 / MEAN_S)
    return MEAN_S * random.lognormvariate(-(HEAVY_SIGMA**2) / 2, HEAVY_SIGMA)


def work() -> None:
    while True:
        connection = waiting.get()
        time.sleep(takes_s())
        with suppress(OSError):  # the client went away
            connection.sendall(ANSWER)


for _ in range(THREADS):
    threading.Thread(target=work, daemon=True).start()
sys.setswitchinterval(0.0005)
listener = socket.create_server(("127.0.0.1", PORT), backlog=1024)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ)
            continue
        connection = key.fileobj
        try:
            asked = connection.recv(65536)
        except OSError:
            asked = b""
        if asked:
            waiting.put(connection)  # the load engine sends a request at once, and none before the answer
        else:
            selector.unregister(connection)
            connection.close()
