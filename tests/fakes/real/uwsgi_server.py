"""uWSGI with so many processes and threads, in front of `wsgi_app`: uwsgi_server.py PORT PROCESSES THREADS. It closes
each connection after an answer."""

import os
import sys
from pathlib import Path

import pyuwsgi

port, processes, threads = sys.argv[1:]
os.chdir(Path(__file__).parent)
listen = ["--http-socket", f"127.0.0.1:{port}", "--listen", "511", "--master", "--die-on-term", "--disable-logging"]
pyuwsgi.run([*listen, "--processes", processes, "--threads", threads, "--module", "wsgi_app:app"])
