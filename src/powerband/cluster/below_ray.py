"""The common part of the programs that an actor starts: they run as if a person had started them, not Ray, and answer
in lines of JSON on stdout."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from powerband.base.errors import MeasurementError


def answers() -> Callable[..., None]:
    """Reserves stdout for answers, so that prints of libraries go to stderr. Returns the function that writes an
    answer."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(what: str, **more: Any) -> None:
        with suppress(BrokenPipeError):  # the actor is gone, so this program is about to end
            out.write(json.dumps({"said": what, **more}) + "\n")
            out.flush()

    return say


def as_if_started_here() -> None:
    """Undoes Ray's changes to its workers, as far as this user may: a lower priority, a high score for the kernel's
    out-of-memory killer, other handling of SIGINT and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0")


def check_priority() -> None:
    """Raises MeasurementError if the priority is so low that trials would wait for every other program."""
    if (nice := os.getpriority(os.PRIO_PROCESS, 0)) > 0:
        raise MeasurementError(
            f"trials would run with a low priority here (nice {nice}), which Ray gives its workers: start Ray on this "
            "node with RAY_worker_niceness=0 in its environment"
        )
