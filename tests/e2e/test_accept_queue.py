"""A full accept queue loses requests: the same burst on the same slow acceptor loses some with a short queue, and none
with a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.stand import MS, experiment, reference, run_one, short_load
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Measure
from powerband.model.results import TrialResult
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

USERS = 100


def burst(folder: Path, backlog: int, patience_ns: int) -> TrialResult:
    """Measures a trial in which all users send one request each at once. The server takes a second to accept them
    all."""
    load = short_load(users=USERS, requests_per_user=1, timeout_ns=patience_ns, connect_timeout_ns=patience_ns)
    server = reference("--backlog", str(backlog), "--accept-delay", "10ms")
    case = experiment(server, load, measure=Measure(warmup_ns=0, burst_ns=5_000 * MS))
    record = run_one(case, folder)
    assert record.status == "measured", record.failure
    return measure(TrialDir(folder / "0001"), record, case)


def test_what_finds_the_queue_full_is_lost_where_the_client_does_not_wait_for_another_try(tmp_path: Path) -> None:
    short = burst(tmp_path / "short", 2, 2_500 * MS)  # it ends before the third try of a connection
    long = burst(tmp_path / "long", 1000, 30_000 * MS)  # it ends once all are answered, late on a busy machine
    lost = sum(kind.count for kind in short.errors)
    assert lost > 0 and {kind.kind for kind in short.errors} <= {"connect_timeout", "timeout"}
    assert all("connections found the accept queue full" in kind.cause for kind in short.errors)
    assert short.metrics["burst_accept_overflows"] >= lost
    assert short.metrics["run_error_rate"] == pytest.approx(lost / USERS)
    assert (long.errors, long.metrics["run_error_rate"]) == ((), 0.0)
