"""Python's own HTTP server with a thread for each connection, in front of the work of `wsgi_app`: own_server.py PORT.
It writes head and body in two calls."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from wsgi_app import work


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        work()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, format, *args):  # noqa: A002
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 511


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
