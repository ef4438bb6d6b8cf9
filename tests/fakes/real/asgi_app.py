"""An ASGI application with one planted limit, named by PLANT; LIMIT is its size. It runs on any ASGI server."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor

PLANT, LIMIT = os.environ.get("PLANT", "sleep"), int(os.environ.get("LIMIT", "1"))
SLOTS = asyncio.Semaphore(LIMIT)
LOCK = asyncio.Lock()
POOL = ThreadPoolExecutor(LIMIT, thread_name_prefix="blocking")


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def work():
    if PLANT == "sleep":
        await asyncio.sleep(0.02)
    elif PLANT == "cpu":
        spin(0.002)
    elif PLANT == "blocked":
        time.sleep(0.005)
    elif PLANT == "moved":  # the work of "blocked", off the loop
        await asyncio.get_running_loop().run_in_executor(POOL, time.sleep, 0.005)
    elif PLANT == "semaphore":
        async with SLOTS:
            await asyncio.sleep(0.02)
    elif PLANT == "lock":
        async with LOCK:
            await asyncio.sleep(0.02)
    elif PLANT == "pool":
        await asyncio.get_running_loop().run_in_executor(POOL, time.sleep, 0.02)


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await work()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"3")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok\n"})
