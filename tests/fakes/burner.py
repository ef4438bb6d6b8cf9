"""A neighbour of a trial that burns CPU in bursts, on whichever CPU is free, until its stdin ends.

Usage: `python burner.py CORES`, or `burning` in a test. A process for each CPU burns and
sleeps in turn; both times are exponential, one turn takes a second on average.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

TURN_S = 1.0  # bursts of some tenths of a second, like those of a compiler or of a browser's page


def burn(share: float) -> None:
    """Burns a share of one CPU, for ever."""
    dice = random.Random(os.getpid())
    while True:
        end = time.monotonic() + dice.expovariate(1 / (TURN_S * share))
        while time.monotonic() < end:
            pass
        time.sleep(dice.expovariate(1 / (TURN_S * (1 - share))))


@contextmanager
def burning(cores: float) -> Iterator[None]:
    """Runs the burner beside this process, not as its child, like a program that somebody else started."""
    reads, writes = os.pipe()
    line = 'exec 3<&0; "$0" "$1" "$2" <&3 3<&- &'  # a shell gives its background processes no stdin of their own
    try:
        subprocess.run(["sh", "-c", line, sys.executable, __file__, str(cores)], stdin=reads, check=True)
        yield
    finally:
        os.close(reads)
        os.close(writes)


def main(cores: float) -> None:
    share = cores / (os.cpu_count() or 1)
    for _ in range((os.cpu_count() or 1) - 1):
        if os.fork() == 0:
            break
    threading.Thread(target=burn, args=(share,), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(float(sys.argv[1]))
