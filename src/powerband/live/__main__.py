"""The page of a run that goes on, in a process of its own: `python -m powerband.live RUN_DIRECTORY`, see `beside.py`.

Its address is its only line on stdout. It ends when its stdin does, which is when whoever started it has ended, however
that came about.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from powerband.live.watch import NICE, watch


async def _stdin_ended() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            ended.set()

    os.set_blocking(0, False)
    loop.add_reader(0, read)
    await ended.wait()


def _tell(address: str) -> None:
    sys.stdout.write(address + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: it is for the run
    watch(Path(sys.argv[1]), told=_tell, until=_stdin_ended)
