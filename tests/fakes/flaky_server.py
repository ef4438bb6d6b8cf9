"""An HTTP server that fails some of its starts at one level: `flaky_server.py PORT LEVEL COUNT_FILE`.

A request takes 250 ms at level 1, 125 at level 2 and 50 at level 3, so that level 3 is clearly faster, even on a
disturbed machine, where a load engine that others hold up for some ms is not too late for any of them. But at level 3
two of five starts exit before they are ready: the second, the fourth, the seventh and so on, counted in COUNT_FILE."""

from __future__ import annotations

import socket
import sys
import threading
import time
from pathlib import Path

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BAD = 3
PAUSES_S = {1: 0.25, 2: 0.125, BAD: 0.05}


def serve(connection: socket.socket, pause_s: float) -> None:
    with connection:
        try:
            while received := connection.recv(65_536):
                time.sleep(pause_s)
                connection.sendall(ANSWER * received.count(b"\r\n\r\n"))
        except OSError:
            return


def main(port: int, level: int, starts: Path) -> None:
    if level == BAD:
        before = int(starts.read_text()) if starts.exists() else 0
        starts.write_text(str(before + 1))
        if before % 5 in (1, 3):
            sys.exit(f"ValueError: start {before + 1} found its cache half written")
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, PAUSES_S[level]), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
