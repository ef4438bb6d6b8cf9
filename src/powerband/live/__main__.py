"""Serves the page of a run in progress from its own process: `python -m powerband.live RUN_DIRECTORY`, see `beside.py`.

The address is the only line on stdout. If there is no page, the last line on stderr gives the reason; stderr is read
until then and no longer. The process ends when its stdin ends, that is, when its parent has ended for any reason.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from powerband.base.errors import PowerbandError
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
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


if __name__ == "__main__":
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is meant for the run
    try:
        watch(Path(sys.argv[1]), told=_tell, until=_stdin_ended)
    except PowerbandError as error:
        sys.exit(str(error))
