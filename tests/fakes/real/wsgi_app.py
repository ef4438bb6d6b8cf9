"""A WSGI application with one planted limit, named by PLANT; LIMIT is its size. It runs on any WSGI server."""

import itertools
import mmap
import os
import random
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

PLANT, LIMIT = os.environ.get("PLANT", "sleep"), int(os.environ.get("LIMIT", "1"))
SLOTS = threading.Semaphore(LIMIT)
LOCKS = itertools.cycle([threading.Lock() for _ in range(LIMIT)])
POOL = ThreadPoolExecutor(LIMIT)
JOURNAL = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_WRONLY) if PLANT == "fsync" else None
PAGES = None
if PLANT == "pages":
    data = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR)
    for _ in range(192):
        os.write(data, b"x" * (1 << 20))
    os.fsync(data)
    PAGES = mmap.mmap(data, 0, prot=mmap.PROT_READ)
    PAGES.madvise(mmap.MADV_RANDOM)


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def work():
    if PLANT == "sleep":
        time.sleep(0.02)
    elif PLANT == "cpu":
        spin(0.002)
    elif PLANT == "semaphore":
        with SLOTS:
            time.sleep(0.02)
    elif PLANT == "lock":
        with next(LOCKS):
            time.sleep(0.001)
    elif PLANT == "pool":
        POOL.submit(time.sleep, 0.02).result()
    elif PLANT == "proxy":
        urllib.request.urlopen(os.environ["BACKEND"]).read()
    elif PLANT == "pages":
        for _ in range(LIMIT):
            PAGES[random.randrange(len(PAGES))]
    elif PLANT == "fsync":
        with SLOTS:
            os.write(JOURNAL, b"x" * 4096)
            os.fsync(JOURNAL)


def app(environ, start_response):
    work()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    return [b"ok\n"]
