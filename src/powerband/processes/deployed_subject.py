"""A subject that already runs: its setting is changed where it is, it is watched if possible, and it is never ended.

In: a subject with `deployed`. Out: a `DeployedSubject` for the length of a trial. A setting is changed by requests, or
by the user's own command; processes that the command leaves behind are the user's. Not here: the setting in which the
server is left in the end (`trials/leaving.py`).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from powerband.base.errors import SubjectError
from powerband.base.logs import printable
from powerband.base.procfs import ProcessStat, process_stat
from powerband.model.experiment import Experiment, Ready, Subject
from powerband.model.plan import Setting
from powerband.model.secrets import without_secrets
from powerband.model.subjects import render_deployed_command
from powerband.processes.containers import server_at
from powerband.processes.engine_process import Pump, describe_status
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.places import CONNECT_WITHIN_S, Place, place_of
from powerband.processes.ports import meets_itself
from powerband.processes.probe_process import RunningProbe, probe_up
from powerband.processes.subject_process import (
    POLL_FIRST_S,
    SERIES_EVERY_NS,
    Rendered,
    RunningSubject,
    SubjectFiles,
    apply_knobs,
    ready_check,
    render,
)
from powerband.processes.workers_up import await_workers, processes_below
from powerband.store import SubjectAddress, open_private, temporary, writing
from powerband.wire.specs import ProbeSpec, ScrapePage, Watch

POLL_LONGEST_S = 0.5  # powerband does not start this server, so it rarely answers within ms
HELD_S = 0.1  # a container's proxy notices within 1 ms that nobody listens behind it
COMMAND_EVERY_S = 0.02  # how often it is checked whether a command has returned
COMMAND_GRACE_S = 2.0  # arbitrary: time that a command has to end after each signal
SAID_BYTES = 1 << 18  # arbitrary: the end of a command's errors, which may be many
INIT_PID = 1  # all processes descend from it
SAID_CHARACTERS = 300  # of the last line that a command wrote


@dataclass(frozen=True)
class DeployedSubject(RunningSubject):
    """A subject that powerband did not start. `pid`: the process that is watched; None if none is.
    `generations_above`: none."""

    pid: int | None = None
    generations_above: ClassVar[int] = 0

    @property
    def root_pid(self) -> int | None:
        """The process that is watched, with its descendants; None if none is."""
        return self.pid

    def check_alive(self, answered: Callable[[], bool] = lambda: True) -> None:
        """Raises TrialFailed(died) if the watched process has ended. Without one, only the end of the trial shows
        whether the server still listens."""
        if self.pid is not None and _living(self.pid) is None:
            raise TrialFailed(
                Code.DIED, f"the server's process {self.pid} ended under load, and it is not powerband's to start again"
            )


@contextmanager
def deployed_up(
    subject: Subject,
    setting: Setting,
    *,
    engine: Path,
    files: SubjectFiles,
    pump: Pump,
    on_applied: Callable[[], None],
    on_watched: Callable[[RunningProbe, Place], None],
    scraped: Sequence[str] = (),
    given: Mapping[str, str] | None = None,
    may_be_down: bool = False,
) -> Iterator[DeployedSubject]:
    """Yields the subject once it has its setting and answers again. `on_applied` is called before anything is changed,
    `on_watched` with the probe once it runs, and with the subject's place. `may_be_down`: a setting of an earlier trial
    may have ended it, so that the command, if there is one, may start it again.

    Raises TrialFailed: not_reachable if it does not answer at first, unless it may be down, or if its process is not
    there, then or after the change; apply_failed; not_ready if it does not answer after the change; died if it no
    longer accepts a connection when the block is left."""
    assert subject.deployed is not None
    rendered = render(subject, setting, engine, given)
    pid, limit_s = subject.deployed.pid, rendered.ready.timeout_ns / 1e9
    files.tell_address(SubjectAddress(rendered.url, rendered.metrics_url))
    argv = render_deployed_command(subject, setting, given or {})
    check_process(pid, subject.deployed.pid_started)
    reason = _unanswered(rendered, files.log, pump, limit_s)
    if reason and not (argv and may_be_down):
        raise TrialFailed(
            Code.NOT_REACHABLE,
            f"{without_secrets(rendered.url)} was not reached within {limit_s:g} s ({reason}): the server runs "
            "already, so powerband cannot start it; see that it runs, and can be reached from here",
        )
    place = None if reason else place_of(rendered.host, rendered.port)
    if pid is not None and place is not None and not place.here:
        raise TrialFailed(
            Code.NOT_REACHABLE,
            f"{rendered.host} is another machine, and a process of this one was to be watched (subject.deployed.pid, "
            f"--pid {pid}): leave it out",
        )
    on_applied()
    change(rendered, argv, files.apply_log, pump)
    check_process(pid, subject.deployed.pid_started)
    if reason := _unanswered(rendered, files.log, pump, limit_s, restarted=bool(argv)):
        raise TrialFailed(
            Code.NOT_READY,
            f"the server did not answer within {limit_s:g} s after its setting was changed to {setting.id} ({reason})",
        )
    place = place or place_of(rendered.host, rendered.port)
    if argv and (pid is not None or place.in_our_network):
        _await_workers(rendered, pid, pump, limit_s)
    spec = _probe_spec(rendered, pid, scraped, listens_here=place.in_our_network)
    with probe_up(engine, spec, files.probe_lines, files.engine_log, pump) as probe:
        on_watched(probe, place)
        yield DeployedSubject(rendered, probe, files.log, pid=pid)
        # With a backlog it may answer late, but it still listens.
        listening = replace(rendered, ready=Ready())
        if reason := _unanswered(listening, files.log, pump, limit_s):
            raise TrialFailed(Code.DIED, f"the server takes no connection any more since it was loaded ({reason})")


def _await_workers(rendered: Rendered, pid: int | None, pump: Pump, limit_s: float) -> None:
    """Waits until a server of this machine that the command may have restarted has started its worker processes. What
    listens for others (socket activation) is no such server."""
    found = server_at(rendered.port) if pid is None else ("", pid)
    if found is not None and found[1] != INIT_PID:
        await_workers(partial(processes_below, found[1], 0), partial(pump.wait, lambda: False), limit_s)


def change(rendered: Rendered, argv: Sequence[str], log_file: Path, pump: Pump) -> None:
    """Gives the server its setting: by the command, if there is one, then by the requests. Raises
    TrialFailed(apply_failed)."""
    limit_s = rendered.ready.timeout_ns / 1e9
    if argv:
        run_command(argv, rendered.cwd, log_file, limit_s, pump)
        if rendered.apply:
            _unanswered(rendered, log_file, pump, limit_s, restarted=True)
    apply_knobs(rendered, pump)


def run_command(argv: Sequence[str], folder: str | None, log_file: Path, limit_s: float, pump: Pump) -> None:
    """Runs the user's command until it returns. If it takes too long or is interrupted, it is ended with its process
    group; otherwise the processes that it leaves behind go on. Raises TrialFailed(apply_failed), TrialInterrupted."""
    shown = printable(argv[0])
    with writing(log_file):
        log = open_private(log_file, "ab")
    with log, temporary(tempfile.TemporaryFile) as errors:
        try:
            process = subprocess.Popen(
                argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=errors, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise TrialFailed(
                Code.APPLY_FAILED,
                f"the command that changes the setting cannot be run: {shown}: {getattr(error, 'strerror', error)}",
            ) from error
        try:
            deadline_s = time.monotonic() + limit_s
            while not pump.wait(lambda: process.poll() is not None, COMMAND_EVERY_S):
                if time.monotonic() > deadline_s:
                    raise TrialFailed(
                        Code.APPLY_FAILED,
                        f"the command that changes the setting ({shown}) did not come back within {limit_s:g} s and "
                        "was ended: let it leave in the background what is to go on, or raise subject.ready.timeout",
                    )
        finally:
            _end(process)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - SAID_BYTES))
            said = errors.read(SAID_BYTES)
            with suppress(OSError):  # the command has done its work; a full disk is noticed by what is written next
                os.write(log.fileno(), said)
    if process.returncode:
        raise TrialFailed(
            Code.APPLY_FAILED,
            f"the command that changes the setting ({shown}) failed with "
            f"{describe_status(process.returncode)}{_last(said)}",
        )


def check_process(pid: int | None, started: int | None = None) -> None:
    """Raises TrialFailed(not_reachable) if there is no such process, or if its number belongs to another one by now."""
    if pid is None:
        return
    stat = _living(pid)
    if stat is None or (started is not None and stat.started != started):
        raise TrialFailed(
            Code.NOT_REACHABLE,
            f"the process {pid} that was to be watched (subject.deployed.pid, --pid) is gone: if the server was "
            "started anew, begin a new run with the number of its new process, or without any if each change starts it",
        )


def with_process_start(experiment: Experiment) -> Experiment:
    """Returns the experiment with the start time of the process to be watched, so that a later process of the same
    number is not mistaken for it. Raises SubjectError if there is no such process."""
    subject = experiment.subject
    if subject.deployed is None or subject.deployed.pid is None:
        return experiment
    if (stat := _living(subject.deployed.pid)) is None:
        raise SubjectError(f"there is no process {subject.deployed.pid} to watch (subject.deployed.pid, --pid)")
    deployed = subject.deployed.model_copy(update={"pid_started": stat.started})
    return experiment.model_copy(update={"subject": subject.model_copy(update={"deployed": deployed})})


def _living(pid: int) -> ProcessStat | None:
    """Returns the process; None if there is none, or if it has ended and its parent has not noticed yet."""
    try:
        stat = process_stat(pid)
    except (OSError, ValueError, IndexError):
        return None
    return None if stat.state == "Z" else stat


def _unanswered(rendered: Rendered, log_file: Path, pump: Pump, limit_s: float, *, restarted: bool = False) -> str:
    """Returns why the server did not answer within the time; empty if it did. `restarted`: it may have been, so that a
    connection must also be held."""
    deadline_s, pause_s = time.monotonic() + limit_s, POLL_FIRST_S
    with ready_check(rendered, log_file, pump) as answers:
        while True:
            left_s = deadline_s - time.monotonic()
            if rendered.ready.http is None:
                reason = _refusal(rendered, min(CONNECT_WITHIN_S, max(left_s, POLL_FIRST_S)), held=restarted)
            else:
                asked = without_secrets(rendered.ready.http)
                reason = "" if answers(left_s) else f"no answer below status 500 to GET {asked}"
            if not reason or time.monotonic() > deadline_s:
                return reason
            pump.wait(lambda: False, pause_s)
            pause_s = min(2 * pause_s, POLL_LONGEST_S)


def _refusal(rendered: Rendered, timeout_s: float, *, held: bool) -> str:
    """Returns why the server takes no connection; empty if it does. `held`: one that is closed at once does not count:
    the proxy of a container's published port takes it before the server listens."""
    try:
        with socket.create_connection((rendered.host, rendered.port), timeout_s) as connection:
            if meets_itself(connection):
                return "nobody listens there"
            connection.settimeout(HELD_S)
            with suppress(TimeoutError):
                if held and not connection.recv(1):
                    return "it closes each connection at once"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _probe_spec(rendered: Rendered, pid: int | None, scraped: Sequence[str], *, listens_here: bool) -> ProbeSpec:
    """Watches the server's process if it is known, and this machine in any case: it may hold up the engines."""
    page = rendered.metrics_url if scraped else None
    return ProbeSpec(
        watch=() if pid is None else (Watch(name="subject", pid=pid),),
        ports=(rendered.port,) if listens_here else (),
        scrape=None if page is None else ScrapePage(url=page, names=tuple(scraped), interval_ns=SERIES_EVERY_NS),
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command that has not returned, with its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(COMMAND_GRACE_S)


def _last(said: bytes) -> str:
    lines = [line.strip() for line in printable(said.decode(errors="replace")).splitlines() if line.strip()]
    return f": {lines[-1][:SAID_CHARACTERS]}" if lines else ", and said nothing on stderr"
