from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from powerband.base.errors import UserInterruptError
from powerband.processes.engine_process import EngineProcess, Pump, describe_status
from powerband.processes.failures import TrialInterrupted
from powerband.processes.stop_request import StopRequest
from powerband.wire.specs import Stop


def python(code: str, folder: Path, end_timeout_s: float = 2.0) -> EngineProcess:
    return EngineProcess([sys.executable, "-c", code], folder / "stderr", end_timeout_s)


class Heard:
    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = False

    def end(self) -> None:
        self.ended = True


def test_lines_arrive_whole_however_they_were_written(tmp_path: Path, stop: StopRequest) -> None:
    code = """
import os, time
for part in (b'{"a":1}\\n{"b"', b':2}', b'\\n', b'{"cut off'):
    os.write(1, part)
    time.sleep(0.02)
"""
    heard = Heard()
    with python(code, tmp_path) as process, Pump(stop) as pump:
        pump.add(process, heard.lines.append, heard.end)
        assert pump.wait(lambda: heard.ended, 10)
    assert heard.lines == [b'{"a":1}\n', b'{"b":2}\n']


def test_commands_go_in_and_the_end_of_stdin_ends_the_process(tmp_path: Path, stop: StopRequest) -> None:
    code = "import sys\nfor line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()"
    heard = Heard()
    with python(code, tmp_path) as process, Pump(stop) as pump:
        pump.add(process, heard.lines.append, heard.end)
        process.send(Stop())
        assert pump.wait(lambda: bool(heard.lines), 10)
        pump.remove(process)
    assert heard.lines == [b'{"type":"stop"}\n']
    assert process.wait(0) == 0


def test_what_came_while_powerband_was_stopped_is_read_before_it_gives_up(tmp_path: Path, stop: StopRequest) -> None:
    """After Ctrl-Z and `fg` any wait may be over, with the lines that it was for unread."""
    heard = Heard()
    with python("print(1)", tmp_path) as process, Pump(stop) as pump:
        process.wait(10)
        pump.add(process, heard.lines.append, heard.end)
        assert pump.wait(lambda: bool(heard.lines), -1.0)


def test_a_wait_may_be_longer_than_the_kernel_allows(stop: StopRequest) -> None:
    ends = iter((False, True))
    stop.request()
    with Pump(stop) as pump:
        assert pump.wait(lambda: next(ends), 30 * 24 * 3600, stoppable=False)


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    with python("import time\nwhile True: time.sleep(1)", tmp_path, end_timeout_s=0.1) as process:
        pass
    assert process.wait(0) == -signal.SIGKILL


def test_writing_to_a_process_that_has_ended_is_no_error(tmp_path: Path) -> None:
    with python("pass", tmp_path) as process:
        process.wait(10)
        process.send(Stop())


def test_waiting_gives_up_in_time(stop: StopRequest) -> None:
    with Pump(stop) as pump:
        assert not pump.wait(lambda: False, 0.02)


def test_a_stop_request_wakes_the_wait_and_can_be_ignored(stop: StopRequest) -> None:
    with Pump(stop) as pump:
        threading.Timer(0.05, stop.request).start()
        with pytest.raises(TrialInterrupted):
            pump.wait(lambda: False, 60)
        assert not pump.wait(lambda: False, 0.02, stoppable=False)


def test_the_first_signal_asks_and_the_second_insists() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequest.on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 5
        while not stop.requested and time.monotonic() < deadline:
            time.sleep(0.001)
        assert stop.requested
        with pytest.raises(UserInterruptError):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def hang_up() -> Iterator[None]:
    """Lets a closed terminal end this process, as it does without nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up")
def test_a_closed_terminal_asks_and_never_insists() -> None:
    with StopRequest.on_signals() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert stop.requested
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(UserInterruptError):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


@pytest.mark.usefixtures("hang_up")
def test_under_nohup_a_closed_terminal_is_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest.on_signals() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert not stop.requested
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize(("status", "words"), [(None, "still running"), (-9, "signal 9"), (3, "exit code 3")])
def test_a_status_in_words(status: int | None, words: str) -> None:
    assert describe_status(status) == words
