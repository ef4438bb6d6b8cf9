"""Brings one subject up: a free port, the command for one setting, launch through the probe, and the wait until ready.

An early death is noticed at once, and every failure message ends with the last lines of the subject's log.
`powerband.model.subjects` fills in templates; the probe stops the subject.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol
from urllib.parse import urlsplit

from powerband.base.hosts import has_scheme, http_url, request_target
from powerband.base.logs import LogSearch, cause_in, end_of, size_of
from powerband.base.logs import out_of_memory as found_out_of_memory
from powerband.base.procfs import process_stat
from powerband.base.units import format_bytes
from powerband.model.experiment import Ready, Subject
from powerband.model.load import Step
from powerband.model.plan import Setting
from powerband.model.secrets import without_secrets
from powerband.model.subjects import (
    PORTS,
    STATSD,
    has_statsd_sink,
    render_command,
    render_env,
    render_step,
    render_text,
    templates_of,
)
from powerband.model.templates import placeholders
from powerband.processes.cgroups import NO_LIMITS, Limits
from powerband.processes.containers import Container, container_at
from powerband.processes.cpus import CpuSplit
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.jvm_attach import thread_names
from powerband.processes.line_file import LineFile
from powerband.processes.places import place_of
from powerband.processes.ports import listening, listens_below, pick_ports, pick_udp_port, someone_listens, stranger_on
from powerband.processes.probe_process import RunningProbe, probe_up
from powerband.processes.requests import Client, RequestFailedError
from powerband.processes.toolchain import given_values
from powerband.processes.workers_up import await_workers, processes_below
from powerband.store import SubjectAddress, temporary
from powerband.wire.probe_events import Exited
from powerband.wire.specs import SAMPLE_EVERY_NS, THREADS_EVERY_NS, Launch, ProbeSpec, ScrapePage, StatsdSink

COUNTER_EVERY_NS = 500_000_000
"""The time between two readings of the counter. What the subject spends on a reading is missing from its rate; yet a
window of four seconds needs enough readings to see whether it was steady. A second, the unit of the report's bars, is a
whole number of them."""
LOOKS = 4  # in a window: the first and last one also cover time outside it
THREADS_EVERY_LEAST_NS = 250_000_000  # each look covers some samples, so that its busiest thread is not chance
PORT_ATTEMPTS = 4  # arbitrary: whoever loses four ports in a row to others has another problem
APPLY_TIMEOUT_S = 10.0  # arbitrary: a knob that takes longer is no live knob
ANSWER_WITHIN_S = 1.0  # for the first answer to whether the subject is ready; the question is repeated
POLL_FIRST_S = 0.005  # a lean server is ready within some ms; each later pause is 30 % longer
POLL_LONGEST_S = 0.05  # the precision of ready_s; each check costs a starting server some CPU
CONTAINER_WITHIN_S = 5.0  # arbitrary: a container's process begins some 300 ms after its port takes connections
LAST_LINES = 8  # arbitrary: an error with the lines that lead to it; the log has all
SERIES_EVERY_NS = 1_000_000_000  # between two readings of the subject's own series
TAIL_BYTES = 8192  # contains the last lines, even those with lines of a thousand characters
CAUSE_BYTES = 1 << 16  # a Java framework's chain of exceptions may fill tens of KB
CAUSE_CHARACTERS = 500  # arbitrary: what fits a message; the log has all
SOCKET_PARENT_BYTES = 70  # the path of a Unix socket has at most 107 bytes (unix(7)), and ours adds 31
FEW_LINES = 3  # as long as the sentence that would replace them

_BUFFERED = (
    ", or its output waits in a buffer, as that of many programs does where they write to no terminal: set "
    "PYTHONUNBUFFERED=1 (--env PYTHONUNBUFFERED=1), or write stdbuf -oL in front of the command"
)
_WORDS_APART = "write its words apart, without quotes around all of them"
# The words of operating systems and JVMs; of Spring Boot, of Docker, and of gunicorn.
_PORT_TAKEN = re.compile(
    r"EADDRINUSE|address (is )?already in use|BindException|\bport( \S+)? ((is|was) )?(already )?(in use|allocated)"
    r"|connection in use: ",
    re.I,
)
# A port in such a line: `127.0.0.1:80`, `:::80`, `[::]:80`, `*:80`, ` :80`; `port 80`; `('127.0.0.1', 80)`;
# `in use: 80`. No time, nor another number of a line in JSON (`"level":50`).
_PORT_NAMED = re.compile(
    r"(?:(?:\d\.\d+|::|[]*\s(]|(?<!\w)['\"]|^|localhost):|\bport['\"]?[ :=]+|', |\bin use: )(\d{1,5})\b(?!\.\d)", re.I
)


@dataclass(frozen=True)
class Rendered:
    """The subject of one trial, with every template filled in. `argv`, `env` (in addition to powerband's own variables)
    and `cwd` (None: powerband's own folder): how it is launched. `url`: where the load goes; `host` and `port`: those
    of the url. `ready`: what shows that it is ready. `metrics_url`: its metrics page; `visitor_url`: the page that a
    real browser opens; None if it has none. `apply`: the requests that set its knobs once it is ready. `statsd_socket`:
    the path of the StatsD sink's Unix socket; None if no template asks for it."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str | None
    url: str
    host: str
    port: int
    ready: Ready
    metrics_url: str | None
    visitor_url: str | None
    own_port: bool  # the url's port was picked by us, so another may be picked
    client: tuple[str, ...] = ()  # the words of argv that call a container engine's client
    apply: tuple[Step, ...] = ()
    statsd_port: int | None = None  # UDP, of the sink
    statsd_socket: str | None = None


@dataclass(frozen=True)
class RunningSubject:
    """A subject that is ready. `rendered`: its launch and addresses. `probe`: the probe that watches it. `log_file`:
    its output. `counter`: that of a self-driven subject, None for others. `limits`: its cgroups. `served_by`: as the
    function. `ready_ns`: when it was found ready, in ns of the monotonic clock. `generations_above`: how many
    generations below `root_pid`, itself included, are no part of it."""

    rendered: Rendered
    probe: RunningProbe
    log_file: Path
    counter: SubjectCounter | None = None
    limits: Limits = NO_LIMITS
    served_by: str = ""
    ready_ns: int = field(default_factory=time.monotonic_ns)
    generations_above: ClassVar[int] = 2  # the keeper and the probe

    @property
    def root_pid(self) -> int | None:
        """The process from which all of the subject descends; None if its processes are not visible."""
        return self.probe.pid

    def pids(self) -> frozenset[int]:
        """The subject's processes, as they are now; none if they are not visible."""
        root = self.root_pid
        return frozenset() if root is None else processes_below(root, self.generations_above).pids

    def await_workers(self, pump: Pump, timeout_s: float) -> None:
        """Waits until the subject has started its worker processes, for `timeout_s` at most. Raises TrialInterrupted on
        a stop request."""
        if self.counter is None and self.root_pid is not None:
            look = partial(processes_below, self.root_pid, self.generations_above)
            await_workers(look, partial(pump.wait, lambda: self.probe.exited is not None), timeout_s)

    def thread_names(self) -> dict[int, str]:
        """Returns the full names of JVM threads, by thread id. It stops the JVMs for a moment, so it must not be called
        while anything is measured."""
        return thread_names(jvm["pid"] for jvm in self.probe.jvms())

    def check_alive(self, answered: Callable[[], bool] = lambda: True) -> None:
        """Raises TrialFailed(died) if the subject has ended without being asked to, and TrialFailed(work_ended) if it
        drives itself and says that all went well. `answered`: returns whether it answered a request of the load."""
        exited = self.probe.exited
        if exited is None or exited.asked:
            return
        if self.counter is not None and exited.exit_code == 0:
            raise TrialFailed(
                Code.WORK_ENDED,
                "the program ended (exit code 0) before the measured window did: give it more work, or shorten "
                f"load.duration and measure.warmup_max{last_lines(self.log_file)}",
            )
        served = self.counter is not None or answered()
        raise TrialFailed(
            Code.DIED,
            f"the server ended by itself {'under load' if served else 'before it answered a request of the load'} "
            f"({describe_exit(exited)}){out_of_memory(self)}{self.limits.kill_words()}"
            f"{(last_lines if served else why_it_ended)(self.log_file)}",
        )


@dataclass(frozen=True)
class ContainerSubject(RunningSubject):
    """A subject that runs in a container. `container`: None if it was not found. `generations_above`: none."""

    container: Container | None = None
    generations_above: ClassVar[int] = 0

    @property
    def root_pid(self) -> int | None:
        """The container's first process; None if the container was not found."""
        return None if self.container is None else self.container.pid


@dataclass(frozen=True)
class SubjectFiles:
    """The files of a trial that its subject and its probe write to. `log`: all that the subject prints. `engine_log`:
    the probe's stderr. `probe_lines`: the probe's events. `apply_log`: output of the command that changes a deployed
    subject. `tell_address`: called with the subject's addresses before each start."""

    log: Path
    engine_log: Path
    probe_lines: LineFile
    apply_log: Path
    tell_address: Callable[[SubjectAddress], None]


def render(
    subject: Subject,
    setting: Setting,
    engine: Path,
    given: Mapping[str, str] | None = None,
) -> Rendered:
    """Fills in the templates, and picks ports if a template asks for them. `given`: the values of the other built-in
    placeholders; None: they are found here. Raises ExperimentError if a template cannot be filled in."""
    given = given_values(subject, engine) if given is None else dict(given)
    wanted = placeholders(templates_of(subject))
    given |= {name: str(number) for name, number in zip(PORTS, pick_ports(len(PORTS)), strict=True) if name in wanted}
    udp, unix = STATSD
    if udp in wanted:
        given[udp] = str(pick_udp_port())

    def text(template: str) -> str:
        return render_text(subject, setting, given, template)

    argv = tuple(render_command(subject, setting, given))
    url = text(subject.url)
    parts = urlsplit(http_url(url))
    ready = subject.ready
    return Rendered(
        argv=argv,
        env=tuple(render_env(subject, setting, given).items()),
        cwd=None if subject.cwd is None else _folder(subject.cwd, text),
        url=url,
        host=parts.hostname or "127.0.0.1",
        port=parts.port or (443 if parts.scheme == "https" else 80),
        ready=ready.model_copy(
            update={
                "http": None if ready.http is None else text(ready.http),
                "log": None if ready.log is None else text(ready.log),
            }
        ),
        metrics_url=None if subject.metrics_url is None else text(subject.metrics_url),
        visitor_url=None if subject.visitor_url is None else text(subject.visitor_url),
        own_port="port" in placeholders([subject.url]),
        client=argv[: len(subject.container_client)],
        statsd_port=int(given[udp]) if udp in wanted else None,
        statsd_socket=given[unix] if unix in wanted else None,
        apply=tuple(render_step(subject, setting, given, step) for step in subject.apply),
    )


def _folder(template: str, fill: Callable[[str], str]) -> str:
    """The filled-in folder. What stands before a value that is an absolute path is left out."""
    before, slash, after = template.partition("/{")
    return str(Path(fill(before) or "/", fill("{" + after))) if slash else fill(template)


class SubjectCounter(Protocol):
    """The counter of a self-driven subject, whose first reading shows that the subject is ready. `page`: the metrics
    page that may hold it, new at each start; None if there is none."""

    page: str | None

    def forget(self) -> None:
        """Discards all readings, since the subject is started again."""

    def on_series(self, line: bytes) -> None:
        """Takes a reading of the subject's own series, as the probe reports it."""

    @property
    def is_read(self) -> bool:
        """True once a reading has contained the counter."""

    def missing(self) -> TrialFailed:
        """Returns the failure of a subject whose counter was not read in time."""


@contextmanager
def subject_up(
    subject: Subject,
    setting: Setting,
    *,
    engine: Path,
    cpus: CpuSplit,
    files: SubjectFiles,
    pump: Pump,
    on_launched: Callable[[RunningProbe], None],
    scraped: Sequence[str] = (),
    given: Mapping[str, str] | None = None,
    counter: SubjectCounter | None = None,
    added: Callable[[Rendered], Mapping[str, str]] = lambda _: {},
    window_ns: int | None = None,
    limits: Limits = NO_LIMITS,
) -> Iterator[RunningSubject]:
    """Yields the subject once it is ready and its knobs are set; on leaving, it and everything it forked have ended.

    `scraped`: metrics that the probe reads from the subject's metrics page. `given`: as for `render`. `counter`: that
    of a self-driven subject, which need not listen anywhere. `added`: returns more variables for its environment.
    `window_ns`: the length of the measured window; None if it is not known. `limits`: of the subject and everything it
    starts. If the subject ends because another program took its port meanwhile, it is started again on another port.
    Raises TrialFailed with any of the codes of a subject that does not start."""
    with _statsd_folder(subject) as socket:
        found = {**(given_values(subject, engine) if given is None else given), **socket}
        for attempt in range(1, PORT_ATTEMPTS + 1):
            rendered = render(subject, setting, engine, given=found)
            own_port = rendered.own_port or counter is not None
            check_command(rendered)
            rendered = replace(rendered, env=(*rendered.env, *added(rendered).items()))
            if not own_port and someone_listens(rendered.host, rendered.port):
                raise TrialFailed(
                    Code.PORT_IN_USE,
                    f"another program already listens on {rendered.host}:{rendered.port}: stop it, or let powerband "
                    "pick a free port by writing {port} in the command and in subject.url",
                )
            files.tell_address(SubjectAddress(rendered.url, rendered.metrics_url))
            counted = counter is not None
            spec = probe_spec(
                subject, rendered, cpus, files.log, scraped, counted=counted, window_ns=window_ns, limits=limits
            )
            log_from = size_of(files.log)  # an earlier attempt wrote what is before
            with (
                ExitStack() as afterwards,
                probe_up(engine, spec, files.probe_lines, files.engine_log, pump) as probe,
            ):
                on_launched(probe)
                # While it lives for certain: a failed read later would hide why the server was not ready.
                launched = process_stat(probe.pid).started if rendered.client else 0
                if counter is not None:
                    counter.forget()
                    counter.page, probe.on_series = rendered.metrics_url, counter.on_series
                try:
                    _wait_ready(rendered, probe, files.log, pump, counter, limits=limits, log_from=log_from)
                    ready_ns = time.monotonic_ns()  # what follows is no part of its start
                    container = _container(rendered, probe, pump) if rendered.client else None
                except PortTaken:
                    if attempt < PORT_ATTEMPTS and own_port:
                        continue
                    raise
                except BaseException:
                    if rendered.client:
                        afterwards.callback(_end_container, rendered, launched)
                    raise
                if container is not None:
                    probe.watch("subject", container.pid)
                    afterwards.callback(container.end)
                other = served_by(rendered, probe) if container is None and counter is None else ""
                apply_knobs(rendered, pump)
                running = RunningSubject(rendered, probe, files.log, counter, limits, other, ready_ns)
                yield ContainerSubject(**vars(running), container=container) if rendered.client else running
                return


def _container(rendered: Rendered, probe: RunningProbe, pump: Pump) -> Container | None:
    """Returns the subject's container; None if it is not found in time. Its engine takes connections to a published
    port before the container's process begins."""
    deadline = time.monotonic() + CONTAINER_WITHIN_S
    while (found := container_at(rendered.client, rendered.port)) is None and time.monotonic() < deadline:
        if pump.wait(lambda: probe.exited is not None, POLL_LONGEST_S):
            break
    return found


def _end_container(rendered: Rendered, since: int) -> None:
    """Kills a container that was not found before and outlived its client. One that began before `since` is
    another's."""
    found = container_at(rendered.client, rendered.port)
    with suppress(OSError):  # it has ended
        if found is not None and process_stat(found.pid).started >= since:
            found.end()


@contextmanager
def _statsd_folder(subject: Subject) -> Iterator[dict[str, str]]:
    """Yields a short path for the sink's socket, removed after the trial: the kernel accepts no long ones."""
    if not has_statsd_sink(subject):
        yield {}
        return
    with temporary(_short_folder) as folder:
        yield {STATSD[1]: f"{folder}/statsd.sock"}


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    is_short = len(os.fsencode(tempfile.gettempdir())) <= SOCKET_PARENT_BYTES
    return tempfile.TemporaryDirectory(prefix="powerband-", dir=None if is_short else "/tmp")


class PortTaken(TrialFailed):
    """The subject found its port in use, though it had been free. Another port may do."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.PORT_IN_USE, message)


def check_command(rendered: Rendered) -> None:
    """Raises TrialFailed(command_not_found, not_executable) if the command cannot be started."""
    program = rendered.argv[0]
    folder = Path(rendered.cwd or ".")
    # For a folder that is closed to us, os.path returns False and Path raises.
    if rendered.cwd is not None and not os.path.isdir(folder):  # noqa: PTH112
        raise TrialFailed(Code.LAUNCH_FAILED, f"subject.cwd is no folder: {rendered.cwd}")
    if "/" not in program:
        path = dict(rendered.env).get("PATH", os.environ.get("PATH", os.defpath))
        if shutil.which(program, path=path) is None:
            cure = "check its spelling, or write the path to it"
            if "=" in program:
                cure = "no shell starts it, so write variables in subject.env (--env NAME=VALUE)"
            elif " " in program:
                cure = _WORDS_APART
            elif {"&&", "||", "|", ";"} & set(rendered.argv):
                cure = "no shell starts it, so write sh -c '...'"
            raise TrialFailed(Code.COMMAND_NOT_FOUND, f"the command {program} was not found on PATH: {cure}")
        return
    file = folder / program
    if not os.path.isfile(file):  # noqa: PTH113
        raise TrialFailed(
            Code.COMMAND_NOT_FOUND,
            f"the command {program} does not exist in {folder.resolve()}: correct it, or name its folder (--cwd)"
            f"{f': {_WORDS_APART}' if ' ' in program else ''}",
        )
    if not os.access(file, os.X_OK):
        raise TrialFailed(
            Code.NOT_EXECUTABLE,
            f"{program} is not executable: `chmod +x` it, or put its interpreter in front (java -jar ..., python3 ...)",
        )


def served_by(rendered: Rendered, probe: RunningProbe) -> str:
    """Returns the program that serves in the subject's place, which its command had another start: a daemon of a build
    tool, the proxy of a container, one on another machine. Empty if the subject serves by itself, or it is not known
    who does. Raises TrialFailed(port_in_use) if that program ran before the subject was started, unless the subject is
    a container: its engine may hold the ports of all of them."""
    host, port = rendered.host, rendered.port
    here = place_of(host, port).in_our_network
    if not here and someone_listens(host, port) and not listens_below(port, probe.pid):
        return f"one on {host}"
    stranger = stranger_on(port, probe.pid) if here else None
    if stranger is None:
        return ""
    if stranger.older and not rendered.client:
        raise TrialFailed(
            Code.PORT_IN_USE,
            f"not the server but another program, {stranger.name}, listens on {host}:{port}: stop it, or let the "
            "server listen on a port of its own ({port} in the command and in subject.url)",
        )
    return stranger.name


def apply_knobs(rendered: Rendered, pump: Pump) -> None:
    """Makes the requests of `subject.apply`, in order. Raises TrialFailed(apply_failed) if one is refused."""
    with Client(rendered.url, APPLY_TIMEOUT_S, pump) as client:
        for step in rendered.apply:
            try:
                client.send(step)
            except RequestFailedError as error:
                raise TrialFailed(
                    Code.APPLY_FAILED,
                    f"the server does not take the setting that subject.apply sends it ({error}): check the request, "
                    "and that its answer has the status that is expected",
                ) from error


def ports_held(text: str) -> set[int] | None:
    """Returns the ports that a log names where it says that one is in use; None if it does not say so."""
    lines = [line for line in text.splitlines() if _PORT_TAKEN.search(line)]
    return {int(port) for line in lines for port in _PORT_NAMED.findall(line)} if lines else None


def last_lines(log_file: Path) -> str:
    """Returns the last lines of a subject's log, as the end of a sentence."""
    text = end_of(log_file, TAIL_BYTES).strip()
    if not text:
        return "; it printed nothing"
    return "; its last log lines:\n" + "\n".join(f"  {line[:300]}" for line in text.splitlines()[-LAST_LINES:])


def why_it_ended(log_file: Path) -> str:
    """Returns the cause that a subject's log names, as the end of a sentence; its last lines if it names none, or if
    the log is so short that they show it themselves."""
    text = end_of(log_file, CAUSE_BYTES).strip()
    if len(text.splitlines()) <= FEW_LINES or not (cause := cause_in(text)):
        return last_lines(log_file)
    return f": {cause[:CAUSE_CHARACTERS]} (all that it said: {log_file})"


def out_of_memory(subject: RunningSubject) -> str:
    """Returns part of a sentence that a JVM ran out of memory, with its last known heap; empty if its log does not say
    so."""
    if not (said := found_out_of_memory(end_of(subject.log_file, TAIL_BYTES))):
        return ""
    text = f": it ran out of memory ({said})"
    if jvms := subject.probe.jvms():
        jvm = jvms[-1]
        used, taken = jvm.get("heap_used_bytes_now"), jvm.get("heap_committed_bytes_now")
        if used and taken:
            text += f"; of {format_bytes(taken)} of heap {format_bytes(used)} were in use when it last reported"
    return text


def describe_exit(exited: Exited) -> str:
    """Returns how the subject ended, in words: `killed by SIGKILL`, `exit code 1`."""
    if exited.signal is not None:
        try:
            return f"killed by {signal.Signals(exited.signal).name}"
        except ValueError:
            return f"killed by signal {exited.signal}"
    if exited.exit_code == 0:
        return "exit code 0; it left the foreground, where a server must stay, or it ended because its stdin is empty"
    return f"exit code {exited.exit_code}"


def probe_spec(
    subject: Subject,
    rendered: Rendered,
    cpus: CpuSplit,
    log: Path,
    scraped: Sequence[str],
    *,
    counted: bool = False,
    window_ns: int | None = None,
    limits: Limits = NO_LIMITS,
) -> ProbeSpec:
    """Returns the probe's instructions for a trial: which command to launch, and what to read of it. `log` gets the
    output; `counted`: the subject drives itself. Threads are reported `LOOKS` times in a window of `window_ns`, but at
    least once a second and at most once in `THREADS_EVERY_LEAST_NS`."""
    page = rendered.metrics_url if scraped else None
    every_ns = COUNTER_EVERY_NS if counted else SERIES_EVERY_NS
    return ProbeSpec(
        launch=Launch(
            name="container-client" if subject.container_client else "subject",
            argv=rendered.argv,
            env=rendered.env,
            cwd=rendered.cwd,
            log_file=str(log.absolute()),
            cpus=cpus.subject,
            cgroups=tuple(map(str, limits.folders)) or None,
            stop_signal=getattr(signal, f"SIG{subject.stop.signal}"),
            grace_ns=subject.stop.grace_ns,
        ),
        # A self-driven subject never waits, so all that watching it takes is missing from its rate. It is sampled only
        # as often as its counter is read, and without the events that make each context switch dearer; its threads are
        # still read.
        interval_ns=COUNTER_EVERY_NS if counted else SAMPLE_EVERY_NS,
        threads_interval_ns=_threads_every_ns(window_ns),
        exact_counts=not counted,
        ports=() if counted else (rendered.port,),
        scrape=None if page is None else ScrapePage(url=page, names=tuple(scraped), interval_ns=every_ns),
        statsd=_sink(rendered, every_ns),
        cpus=cpus.probe,
        host_cpus=cpus.all,
    )


def _threads_every_ns(window_ns: int | None) -> int:
    asked = THREADS_EVERY_NS if window_ns is None else window_ns // LOOKS
    return min(THREADS_EVERY_NS, max(THREADS_EVERY_LEAST_NS, asked))


def _sink(rendered: Rendered, interval_ns: int) -> StatsdSink | None:
    port, socket = rendered.statsd_port, rendered.statsd_socket
    if port is None and socket is None:
        return None
    return StatsdSink(udp=None if port is None else f"127.0.0.1:{port}", unix=socket, interval_ns=interval_ns)


def _wait_ready(
    rendered: Rendered,
    probe: RunningProbe,
    log_file: Path,
    pump: Pump,
    counted: SubjectCounter | None = None,
    *,
    limits: Limits = NO_LIMITS,
    log_from: int = 0,
) -> None:
    counter = counted if rendered.ready.http is None and rendered.ready.log is None else None
    timeout_s = rendered.ready.timeout_ns / 1e9
    deadline = time.monotonic() + timeout_s
    pause_s = POLL_FIRST_S
    with ready_check(rendered, log_file, pump, counter, log_from) as is_ready:
        while not is_ready(deadline - time.monotonic()):
            if pump.wait(lambda: probe.exited is not None, pause_s):
                break
            if time.monotonic() > deadline:
                if counter is not None:
                    raise counter.missing()
                cure = "correct that, or raise subject.ready.timeout (--ready-timeout)"
                buffered = "" if rendered.ready.log is None or size_of(log_file) else _BUFFERED
                raise TrialFailed(
                    Code.NOT_READY,
                    f"the server was not ready within {timeout_s:g} s ({_how_ready(rendered)}): "
                    f"{listens_elsewhere(rendered, probe.pid) or cure}{last_lines(log_file)}{buffered}",
                )
            pause_s = min(pause_s * 1.3, POLL_LONGEST_S)
    pump.wait(lambda: probe.exited is not None, 0.001)
    if probe.exited is not None:
        words = last_lines(log_file)
        held = ports_held(end_of(log_file, TAIL_BYTES, log_from))
        told = (rendered.port, urlsplit(rendered.metrics_url or "").port, rendered.statsd_port)
        if held and counted is None and held.isdisjoint(told):
            raise TrialFailed(
                Code.PORT_IN_USE,
                f"the server ended before it was ready: port {', '.join(map(str, sorted(held)))}, which it wants, is "
                f"in use, and it is to serve on port {rendered.port}: let it take {{port}} for that, and a free one "
                f"for anything else{words}",
            )
        if held == set() and rendered.own_port and counted is None:  # shown only if the last try, too, ends so
            raise PortTaken(
                "the server ended before it was ready: a port that it wants is in use, and its log does not say which; "
                f"{{port}} was free on {PORT_ATTEMPTS} tries: let it obey {{port}}, and open no other fixed port "
                f"(debugging, JMX, management){words}"
            )
        if held is not None:
            found = next((port for port in told if port in held), rendered.port)
            which = "on its port" if counted is not None else f"on port {found}"
            raise PortTaken(f"the server could not listen {which}, which is in use{words}")
        raise TrialFailed(
            Code.DIED_BEFORE_READY,
            f"the server ended before it was ready ({describe_exit(probe.exited)}){limits.kill_words()}"
            f"{why_it_ended(log_file)}",
        )


def listens_elsewhere(rendered: Rendered, root: int) -> str:
    """Returns where the server listens in place of its url, and what to do, as part of a sentence; empty if it does not
    or that is not known. `root`: the process from which it descends."""
    path = rendered.ready.http
    if rendered.ready.log is not None or (path is not None and has_scheme(path)) or not (heard := listening(root)):
        return ""
    there = {f"{each.host}:{each.port}" for each in heard if each.port == rendered.port}
    if there and path is not None:  # it answers, or may be slow
        return ""
    where = ", ".join(sorted(there)) or f"port {', '.join(dict.fromkeys(str(each.port) for each in heard))}"
    return f"it listens on {where}; let it listen on {rendered.host}:{rendered.port}, or correct subject.url (--url)"


def _how_ready(rendered: Rendered) -> str:
    if rendered.ready.http is not None:
        return f"no answer below status 500 from {without_secrets(_http_url(rendered))}"
    if rendered.ready.log is not None:
        return f"its log does not match {rendered.ready.log!r}"
    if rendered.client:
        return f"no answer from {without_secrets(rendered.url)}"
    return f"{rendered.host}:{rendered.port} accepts no connection"


@contextmanager
def ready_check(
    rendered: Rendered, log_file: Path, pump: Pump, counter: SubjectCounter | None = None, log_from: int = 0
) -> Iterator[Callable[[float], bool]]:
    """Yields a function that returns whether the subject is ready now. It takes at most the seconds that it is given,
    and at most one; twice as long each time that no answer came so soon. `log_from`: where this start's part of the log
    begins. It raises what the pump raises."""
    if counter is not None:
        yield lambda left_s: counter.is_read
    elif rendered.ready.http is not None:
        yield _asking(_http_url(rendered), pump)
    elif rendered.ready.log is not None:
        with LogSearch(log_file, rendered.ready.log, log_from) as search:
            yield lambda left_s: search.found()
    elif rendered.client:  # its engine takes connections before the server does
        yield _asking(rendered.url, pump, status_below=math.inf)
    else:
        yield lambda left_s: someone_listens(rendered.host, rendered.port)


def _http_url(rendered: Rendered) -> str:
    target = rendered.ready.http or "/"
    if has_scheme(target):
        return target
    parts = urlsplit(http_url(rendered.url))
    return f"{parts.scheme}://{parts.netloc}/{target.lstrip('/')}"


def _asking(url: str, pump: Pump, status_below: float = 500) -> Callable[[float], bool]:
    """Returns a function that asks a url once, and returns whether its status is below that. An answer that does not
    come in time is given twice the time when it is asked for again."""
    patience_s = ANSWER_WITHIN_S

    def answers(left_s: float) -> bool:
        nonlocal patience_s
        deadline_s = time.monotonic() + patience_s
        with Client(url, min(patience_s, left_s), pump) as client:
            try:
                return client.status_of(Step(name="ready", path=request_target(url))) < status_below
            except RequestFailedError:
                if time.monotonic() >= deadline_s:  # it was not refused
                    patience_s *= 2
                return False

    return answers
