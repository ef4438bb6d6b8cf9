"""Pairs of threads that throw balls to each other for ever: a program without requests, in plain Python.

It reports its work as StatsD metrics (--statsd HOST:PORT or a path: UDP or a Unix datagram socket), or on a Prometheus
page (--page PORT). Each thread counts for itself, and one more sends the counts, several metrics in one packet, every
50 ms, so that reporting costs next to nothing. Asked to stop (SIGTERM), it prints how many balls were thrown in, and
how many it still holds.
"""

import argparse
import queue
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

TELL_EVERY_S = 0.05


class Thread(threading.Thread):
    """One of a pair: takes a ball, and after `sleep_s` throws it to the other."""

    def __init__(self, pair, side, sleep_s, stop):
        super().__init__(name=f"pair-{pair}{side}", daemon=True)
        self.balls = queue.SimpleQueue()
        self.other = None
        self.messages = 0
        self.sleep_s = sleep_s
        self.stop = stop

    def run(self):
        while not self.stop.is_set():
            try:
                ball = self.balls.get(timeout=0.1)
            except queue.Empty:
                continue
            self.messages += 1
            if self.sleep_s:
                time.sleep(self.sleep_s)
            self.other.balls.put(ball)


def make_pairs(pairs, balls, sleep_s, stop):
    threads = []
    for pair in range(pairs):
        left, right = (Thread(pair, side, sleep_s, stop) for side in "ab")
        left.other, right.other = right, left
        for ball in range(balls):
            left.balls.put(ball)
        threads += [left, right]
    return threads


class Sender:
    """Hands on by how much the counter grew since the last packet, and how many balls there are."""

    def __init__(self, target, threads):
        host, colon, port = target.rpartition(":")
        unix = not colon or "/" in target
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(target if unix else (host, int(port)))
        self.threads = threads
        self.sent = 0

    def send(self, balls):
        messages = sum(thread.messages for thread in self.threads)
        packet = f"bounce.messages:{messages - self.sent}|c\nbounce.balls:{balls}|g"
        try:
            self.socket.send(packet.encode())
        except OSError:
            return  # nobody listens (any more): what was not sent goes with the next packet
        self.sent = messages


def page_of(threads):
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            messages = sum(thread.messages for thread in threads)
            body = f"# TYPE bounce_messages_total counter\nbounce_messages_total {messages}\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Page


def main():
    parser = argparse.ArgumentParser(description="Threads in pairs that throw balls to each other.")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--balls", type=int, default=6, help="in play, for each pair")
    parser.add_argument("--sleep", default="0s", help="of a thread that holds a ball: 0s, 1ms")
    parser.add_argument("--statsd", help="HOST:PORT, or the path of a Unix datagram socket")
    parser.add_argument("--page", type=int, help="port of a Prometheus page on 127.0.0.1")
    options = parser.parse_args()
    if options.pairs < 1 or options.balls < 1:
        parser.error("there is nothing to play with: at least one pair, and one ball for each")

    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    sleep_s = float(options.sleep.removesuffix("s").removesuffix("m")) / (1000 if options.sleep.endswith("ms") else 1)
    threads = make_pairs(options.pairs, options.balls, sleep_s, stop)
    sender = Sender(options.statsd, threads) if options.statsd else None
    if options.page:
        server = HTTPServer(("127.0.0.1", options.page), page_of(threads))
        threading.Thread(target=server.serve_forever, name="page", daemon=True).start()
    for thread in threads:
        thread.start()

    balls = options.pairs * options.balls
    while not stop.wait(TELL_EVERY_S):
        if sender:
            sender.send(balls)
    for thread in threads:
        thread.join()
    if sender:
        sender.send(balls)
    messages = sum(thread.messages for thread in threads)
    seen = sum(thread.balls.qsize() for thread in threads)
    sys.stdout.write(f"final: messages={messages} balls={balls} balls_seen={seen}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
