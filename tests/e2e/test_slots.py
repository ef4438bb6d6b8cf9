"""Real servers that serve a known number of requests at once: the measured number, and the reason given for the
limit."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from fakes.disturbance import FOREIGN_CORES_MAX, stood_still, trial_disturbed_by, undisturbed
from fakes.stand import FAKES, MS, TrialDir, Watcher, always_steady, experiment, reference, run_one
from powerband.analyze.trial.measure import measure
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Measure, Ready, Subject
from powerband.model.load import Load
from powerband.model.plan import TrialSpec
from powerband.model.results import TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.store import TrialRecord
from powerband.trials.trial import run_trial

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

WITHIN = 0.25  # of the slots, on a machine with other programs; the docs have the error on a quiet one
FOREIGN_MAX = FOREIGN_CORES_MAX / (os.cpu_count() or 1)
LOOKED = Measure(warmup_min_ns=100 * MS)
LONGEST_NS = 3_000 * MS
B = BottleneckName
LONG = pytest.mark.long
TABLE = pytest.mark.table


def python(how: str, slots: int, seconds: float) -> Subject:
    """A server of `fakes/limited_server.py`."""
    command = (sys.executable, str(FAKES / "limited_server.py"), "{port}", how, str(slots), str(seconds))
    return Subject(name="limited", command=command, ready=Ready(timeout_ns=20_000 * MS))


def tried(subject: Subject, users: int, folder: Path) -> tuple[TrialRecord, TrialResult]:
    load = Load(users=users, duration_ns=1_300 * MS, drain_ns=2_000 * MS)
    case = experiment(subject, load, measure=Measure(warmup_ns=500 * MS, foreign_cpu_max=FOREIGN_MAX))
    return undisturbed(partial(trial, case, folder), lambda found: trial_disturbed_by(found[1]))


def once_running(case: Experiment, folder: Path) -> tuple[TrialRecord, TrialResult]:
    """The first trial in which the machine did not stand still, whatever else ran on it."""
    return undisturbed(partial(trial, case, folder), lambda found: stood_still(found[1]))


def trial(case: Experiment, folder: Path, attempt: int) -> tuple[TrialRecord, TrialResult]:
    directory = folder / str(attempt)
    record = run_one(case, directory)
    return record, measure(TrialDir(directory / "0001"), record, case)


@pytest.mark.parametrize(
    ("subject", "users", "slots", "names"),
    [
        pytest.param(
            reference("--threads", "4", "--wait", "20ms"), 64, 4, {B.POOL_TOO_SMALL}, id="a pool of 4"
        ),
        pytest.param(python("threads", 4, 0.02), 64, 4, {B.HIDDEN_LIMIT}, id="threads before a semaphore", marks=TABLE),
        # `uvicorn: a semaphore of 4` in test_real_servers.py is one, too, without a look at the number.
        pytest.param(python("loop", 4, 0.02), 64, 4, {B.HIDDEN_LIMIT}, id="a semaphore on an event loop", marks=LONG),
        pytest.param(python("loop", 1, 0.02), 32, 1, {B.HIDDEN_LIMIT}, id="a lock on an event loop", marks=TABLE),
        pytest.param(python("threads", 1, 0.02), 64, 1, {B.LOCK}, id="a lock that threads wait for", marks=LONG),
        pytest.param(
            reference(*["--model", "fixed", "--threads", "48", "--downstream-kind", "tcp"],
                      *["--downstream-limit", "4", "--downstream-wait", "10ms"]),
            48, 4, {B.DOWNSTREAM}, id="a database that serves 4", marks=LONG,
        ),
    ],
)  # fmt: skip
def test_a_known_number_of_slots(
    subject: Subject, users: int, slots: int, names: set[BottleneckName], tmp_path: Path
) -> None:
    record, result = tried(subject, users, tmp_path)
    assert result.metrics["slots"] == pytest.approx(slots, rel=WITHIN)
    assert result.metrics["doubled_users_gain"] < 1.15
    assert result.bottleneck is not None and result.bottleneck.name in names
    assert any(clause.endswith(f": about {slots} at once") for clause in result.bottleneck.evidence)
    assert result.bottleneck.second is None
    assert record.phases["stopped"] - record.phases["end"] < LONGEST_NS + 2_000 * MS
    assert (record.slots["outgoing"] > 0) == (B.DOWNSTREAM in names)


@pytest.mark.long
def test_four_connections_to_a_database_may_be_the_pool_s_size_or_all_that_it_serves(tmp_path: Path) -> None:
    called = ("--downstream-kind", "tcp", "--downstream-limit", "64", "--downstream-wait", "10ms")
    pooled = reference("--model", "fixed", "--threads", "32", *called, "--downstream-connections", "4")
    record, result = tried(pooled, 48, tmp_path)
    assert record.slots["outgoing"] == 4
    assert result.bottleneck is not None
    assert {each.name for each in result.bottleneck.candidates} == {B.DOWNSTREAM, B.HIDDEN_LIMIT}
    assert all(each.evidence and each.advice for each in result.bottleneck.candidates)


def test_the_load_is_the_limit_where_twice_the_users_get_more(tmp_path: Path) -> None:
    _, result = tried(python("loop", 1000, 0.02), 16, tmp_path)
    assert result.metrics["doubled_users_gain"] > 1.5
    assert result.bottleneck is not None and result.bottleneck.name is B.NONE
    assert "twice the users (32) served" in result.bottleneck.evidence[-1]


@pytest.mark.crowded
def test_a_full_cpu_is_not_looked_at(tmp_path: Path) -> None:
    case = experiment(
        reference("--model", "fixed", "--threads", "4", "--cpu", "2ms"),
        Load(users=16, duration_ns=MS * 900),
        measure=LOOKED,
    )
    record, result = once_running(case, tmp_path)
    assert record.slots["cpu_used"] >= 0.8
    assert set(record.slots) == {"cpu_used", "cpu_wanted"}
    assert "slots" not in result.metrics


def test_an_answer_that_takes_long_is_refused_with_the_reason(tmp_path: Path) -> None:
    case = experiment(
        reference("--model", "fixed", "--threads", "4", "--wait", "300ms"),
        Load(users=8, duration_ns=1_000 * MS),
        measure=Measure(warmup_ns=100 * MS, foreign_cpu_max=1.0, steal_max=1.0),
    )
    _, result = once_running(case, tmp_path)
    assert "slots" not in result.metrics
    assert "one user alone got" in next(each.message for each in result.problems if each.code == "no_slots")


def test_a_server_that_does_not_survive_twice_the_users_was_measured_all_the_same(tmp_path: Path) -> None:
    """The server exits at the seventh simultaneous connection; the load has four users."""
    code = (
        "import os,sys,threading;from http.server import *\n"
        "class H(BaseHTTPRequestHandler):\n"
        " protocol_version='HTTP/1.1'\n"
        " def do_GET(self):\n"
        "  if threading.active_count()>7: os._exit(3)\n"
        "  threading.Event().wait(.2); self.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')\n"
        " def log_message(self,*a): pass\n"
        "ThreadingHTTPServer.request_queue_size=64\n"  # else some of them would wait a second to connect
        "ThreadingHTTPServer(('127.0.0.1',int(sys.argv[1])),H).serve_forever()"
    )
    subject = Subject(name="frail", command=(sys.executable, "-c", code, "{port}"), ready=Ready(timeout_ns=20_000 * MS))
    case = experiment(subject, Load(users=4, duration_ns=500 * MS), measure=LOOKED)
    record = run_one(case, tmp_path)
    assert record.status == "measured", record.failure
    assert "ended by itself" in record.slots["failed"]


@pytest.mark.crowded
def test_only_the_first_block_is_looked_at(tmp_path: Path) -> None:
    case = experiment(reference("--wait", "5ms"), measure=LOOKED)
    spec = TrialSpec(number=1, block=1, attempt=1, setting=case.settings()[0], seed=7)
    with StopRequest.on_signals() as stop:
        record = run_trial(case, spec, TrialDir(tmp_path / "0001"), steady=always_steady, observer=Watcher(), stop=stop)
    assert record.slots == {}
