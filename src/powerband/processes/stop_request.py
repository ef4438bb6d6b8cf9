"""A user's request to stop: the first Ctrl-C (or SIGTERM) finishes gracefully, the second quits at once.

`StopRequest` is passed down to everything that waits; `fileno` becomes readable on the first request, so that a
selector wakes without polling. Without `on_signals` it is an ordinary flag that a test or another caller may set.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from powerband.base.errors import UserInterruptError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    def __init__(self) -> None:
        self.requested = False
        self._read, self._write = os.pipe()

    @classmethod
    @contextmanager
    def on_signals(cls, advice: str = "") -> Iterator[StopRequest]:
        """Handles SIGINT and SIGTERM until the block is left; outside the main thread, where Python does not allow
        that, it is an ordinary flag. A second signal raises UserInterruptError at whatever point the program is, with
        `advice` in its message; context managers clean up on the way out."""
        stop = cls()

        def handler(_number: int, _frame: FrameType | None) -> None:
            if stop.requested:
                raise UserInterruptError(f"stopped at once{advice and ': '}{advice}")
            stop.request()

        is_main = threading.current_thread() is threading.main_thread()
        previous = {number: signal.signal(number, handler) for number in SIGNALS if is_main}
        try:
            yield stop
        finally:
            for number, old in previous.items():
                signal.signal(number, old)
            stop.close()

    def request(self) -> None:
        """Asks everything that waits to finish gracefully. May be called from a signal handler."""
        self.requested = True
        os.write(self._write, b"s")

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)
