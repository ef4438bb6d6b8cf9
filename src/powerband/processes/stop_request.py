"""A user's request to stop: the first Ctrl-C (or SIGTERM) finishes gracefully, the second quits at once. A terminal
that is closed (SIGHUP) asks too, but never insists.

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

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """A flag that a run should stop, for which a selector can wait. `requested`: True from the first request on.
    `cut_short`: True once a run has ended before its time because of it; a request after the last trial changes
    nothing."""

    def __init__(self) -> None:
        self.requested = self.cut_short = False
        self._read, self._write = os.pipe()

    @classmethod
    @contextmanager
    def on_signals(cls, advice: str = "") -> Iterator[StopRequest]:
        """Handles SIGINT, SIGTERM and SIGHUP until the block is left, the last unless it is ignored, as under nohup;
        outside the main thread, where Python does not allow that, it is an ordinary flag. A second SIGINT or SIGTERM
        raises UserInterruptError at whatever point the program is, with `advice` in its message; context managers clean
        up on the way out."""
        stop = cls()

        def handler(number: int, _frame: FrameType | None) -> None:
            if not stop.requested:
                stop.request()
            elif number != signal.SIGHUP:  # of a closed terminal the shell and the kernel send one each
                raise UserInterruptError(f"stopped at once{advice and ': '}{advice}")

        is_main = threading.current_thread() is threading.main_thread()
        ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
        previous = {number: signal.signal(number, handler) for number in SIGNALS if is_main and number not in ignored}
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
        """The descriptor that becomes readable with the first request, and stays so."""
        return self._read

    def close(self) -> None:
        """Frees the descriptors. Nothing may wait for the request any more."""
        os.close(self._read)
        os.close(self._write)
