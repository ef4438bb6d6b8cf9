"""A scripted server for tests: `subject.py PORT HOW [STATE_FILE]`. Answers every request with 200 unless HOW says else.

`serve`; `exit:N` says something and exits with N; `port-taken` says that its port is taken and exits; `port-taken:N`
does so for its first N starts (counted in STATE_FILE); `port-held:N` says that port N is taken and exits;
`log-ready` says in its log that it is ready; `slow-stop:S` needs S seconds to stop; `many-children` leaves children
behind that ignore SIGTERM; `error-500` answers 500; `crash-on-load` dies at the 50th request; `listen-and-exit:N`
listens until it is asked, says something and exits with N.

It drives itself, and answers with a metrics page: `counts:R` counts R things a second; `counts-back:R,N` begins anew
at the Nth time it is read; `counts-still:R,S` stands still after S seconds; `counts-nothing` has another counter;
`counts-busy:R` has a busy thread beside it, `counts-turns:R` two processes that pass a byte to and fro. Asked to stop,
it says `final: done=N lost=0` (`lost=1` of `counts-lossy:R`).
"""

import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    status = 200
    die_at = None
    seen = 0

    def do_GET(self):
        Handler.seen += 1
        if Handler.die_at is not None and Handler.seen >= Handler.die_at:
            say("out of luck")
            os._exit(9)
        body = b"hello"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Page(Handler):
    """A metrics page with a counter that grows with time alone."""

    name = "fake_things_total"
    per_s = 0.0
    still_s = float("inf")
    anew_at = 0
    reads = 0
    began = time.monotonic()

    def do_GET(self):
        Page.reads += 1
        if self.reads == self.anew_at:
            Page.began = time.monotonic()
        body = f"# TYPE {self.name} counter\n{self.name} {self.count()}\nfake_other 1\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @classmethod
    def count(cls):
        return int(cls.per_s * min(cls.still_s, time.monotonic() - cls.began))


def drive_itself(how):
    kind, _, numbers = how.partition(":")
    figures = [float(number) for number in numbers.split(",") if number]
    if kind == "counts-nothing":
        Page.name = "something_else_total"
    Page.per_s = figures[0] if figures else 1.0
    if kind == "counts-back":
        Page.anew_at = figures[1]
    elif len(figures) > 1:
        Page.still_s = figures[1]

    if kind == "counts-busy" and os.fork() == 0:
        while True:
            pass
    if kind == "counts-turns":
        take_turns()

    def stop(*_):
        say(f"final: done={Page.count()} lost={int(kind == 'counts-lossy')}")
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    return Page


def take_turns():
    here, there = os.pipe(), os.pipe()
    for (mine, _), (_, others) in ((here, there), (there, here)):
        if os.fork() == 0:
            while True:
                os.write(others, os.read(mine, 1))
    os.write(here[1], b"x")


def port_is_taken(how, state_file):
    _, _, times = how.partition(":")
    if times:
        starts = int(state_file.read_text()) if state_file.exists() else 0
        state_file.write_text(str(starts + 1))
        if starts >= int(times):
            return False
    say("OSError: [Errno 98] Address already in use")
    return True


def main():
    port, how = int(sys.argv[1]), sys.argv[2]
    if how.startswith("exit:"):
        say("configuration error: no such pool")
        sys.exit(int(how.partition(":")[2]))
    if how.startswith("port-taken") and port_is_taken(how, Path(sys.argv[3]) if len(sys.argv) > 3 else None):
        sys.exit(1)
    if how.startswith("port-held:"):
        say(f"Error: listen EADDRINUSE: address already in use :::{how.partition(':')[2]}")
        sys.exit(1)
    if how == "many-children":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that they are deaf from the start
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
                os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if how == "error-500":
        Handler.status = 500
    if how == "crash-on-load":
        Handler.die_at = 50
    server = Server(("127.0.0.1", port), drive_itself(how) if how.startswith("counts") else Handler)
    if how.startswith("slow-stop:"):
        delay_s = float(how.partition(":")[2])
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(delay_s), os._exit(0)))
    if how.startswith("listen-and-exit:"):
        while not server.socket.accept()[0].recv(1):
            pass
        say("configuration error: no such pool")
        sys.exit(int(how.partition(":")[2]))
    if how == "log-ready":
        threading.Timer(0.2, lambda: say("Started in 0.2 seconds")).start()
    server.serve_forever()


main()
