"""The reasons why a trial could not be measured: the stable codes of `record.failure.code`, and the exception that
carries one.

docs/reference/failures.md says what each code means and what to do about it; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from powerband.model import results
from powerband.store import NOT_AS_WRITTEN, Failure


class Code(StrEnum):
    """The reason of a failure, as one word for programs, which keeps its meaning from version to version."""

    COMMAND_NOT_FOUND = "command_not_found"
    NOT_EXECUTABLE = "not_executable"
    LAUNCH_FAILED = "launch_failed"
    PORT_IN_USE = "port_in_use"
    DIED_BEFORE_READY = "died_before_ready"
    NOT_READY = "not_ready"
    NOT_REACHABLE = "not_reachable"
    APPLY_FAILED = "apply_failed"
    DIED = "died"
    WORK_ENDED = "work_ended"
    NO_RESPONSE = "no_response"
    NO_VALID_RESPONSE = "no_valid_response"
    UNAVAILABLE = "unavailable"
    ENDED_IN_WARMUP = "ended_in_warmup"
    NOT_JOINED = "not_joined"
    NO_COUNTER = "no_counter"
    NO_PROGRESS = "no_progress"
    COUNTER_WENT_BACK = "counter_went_back"
    DESCRIPTOR_LIMIT = "descriptor_limit"
    PORT_LIMIT = "port_limit"
    ENGINE_FAILED = "engine_failed"
    PROBE_FAILED = "probe_failed"
    LINK_FAILED = "link_failed"
    JMETER_FAILED = "jmeter_failed"
    NO_SAMPLES = "no_samples"
    PLAN_ENDED = "plan_ended"
    CLOCK_SET = "clock_set"
    INTERRUPTED = "interrupted"
    NODE_LOST = results.NODE_LOST


class TrialFailed(Exception):  # noqa: N818 - a trial that failed is data, not an error of the program
    """Ends a trial and becomes the `failure` of its record; never leaves `run_trial`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code.value, message)


@contextmanager
def understood(line: bytes, code: Code, teller: str) -> Iterator[None]:
    """Raises TrialFailed if the block cannot parse a line that one of powerband's processes wrote."""
    try:
        yield
    except (AssertionError, *NOT_AS_WRITTEN) as error:
        shown = line[:100].decode(errors="replace").strip()
        raise TrialFailed(
            code,
            f"{teller} wrote {shown!r}, which is none of its messages ({type(error).__name__}): "
            "install powerband again, if the engine is of another version",
        ) from error


class TrialInterrupted(TrialFailed):
    """The user asked to stop."""

    def __init__(self) -> None:
        super().__init__(Code.INTERRUPTED, "stopped by the user before it was finished; `powerband resume` repeats it")
