"""The honesty gate on real trials. Problems that other programs on the machine cause are ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.deployed import other_machine
from fakes.disturbance import stood_still, trial_disturbed_by, undisturbed
from fakes.needs import without
from fakes.stand import FAKES, MS, experiment, reference, run_one, short_load
from powerband.analyze.trial.honesty import MACHINE_CODES
from powerband.analyze.trial.measure import measure
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Experiment, Measure, Subject
from powerband.model.host_use import HostUse, Pinning
from powerband.model.results import TrialResult
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

FIXED = Measure(warmup_ns=300 * MS, slots=False)
OUTLASTING = short_load(duration_ns=1_500 * MS)  # a pause of the machine, in which no user is answered


def judged(case: Experiment, folder: Path) -> tuple[TrialResult, set[str]]:
    """The result of a trial, and the codes of its problems, without those that the machine caused."""
    record = run_one(case, folder)
    assert (record.status, record.failure) == ("measured", None)
    result = measure(TrialDir(folder / "0001"), record, case)
    codes = {problem.code for problem in result.problems}
    of_the_moment = {
        "host_foreign_some",
        "host_steal_some",
        "generator_starved",
        "generator_lag",
        "engine_stopped",
        "not_steady",
        "memory_pressure",
        "io_pressure",
    }
    return result, codes - MACHINE_CODES - of_the_moment


def unstopped(case: Experiment, folder: Path) -> tuple[TrialResult, set[str]]:
    """Runs the trial again if the load engine stood still, and returns what `judged` does. A stop costs users their
    answers, and adds to the time between an answer and the next request."""

    def once(attempt: int) -> tuple[TrialResult, set[str]]:
        return judged(case, folder / str(attempt))

    return undisturbed(once, lambda found: stood_still(found[0]))


@pytest.mark.crowded
def test_a_pool_bound_to_its_connections_is_measured_and_its_starved_users_are_told_of(tmp_path: Path) -> None:
    subject = reference("--model", "fixed", "--threads", "8", "--unit", "connection", "--wait", "5ms")
    case = experiment(subject, short_load(users=64, duration_ns=1_500 * MS, drain_ns=200 * MS), measure=FIXED)
    result, codes = unstopped(case, tmp_path)
    assert codes == {"starved_users", "unanswered_percentiles"}
    (told,) = [problem.message for problem in result.problems if problem.code == "starved_users"]
    assert told.startswith("56 of 64 users")
    assert result.metrics["littles_law_deviation"] < 0.001


def test_a_server_that_stands_still_is_told(tmp_path: Path) -> None:
    subject = reference("--model", "event-loop", "--stall-every", "1s", "--stall-for", "600ms", "--wait", "5ms")
    case = experiment(subject, short_load(users=16, duration_ns=3_000 * MS), measure=FIXED)

    def tried(attempt: int) -> tuple[TrialResult, set[str]]:
        return judged(case, tmp_path / str(attempt))

    result, codes = undisturbed(tried, lambda found: trial_disturbed_by(found[0]))
    assert result.valid and "stood_still" in codes


@pytest.mark.crowded
@pytest.mark.parametrize("load", [{"pipeline": 4}, {"think": "1500ms"}, {"users": 64, "engine_threads": 2}])
def test_littles_law_is_exact_whatever_the_edges_cut(tmp_path: Path, load: dict[str, object]) -> None:
    """The loads have several requests in flight, pauses nearly as long as the window, or several event loops."""
    case = experiment(reference("--wait", "20ms"), short_load(duration_ns=2_000 * MS, **load), measure=FIXED)
    result, codes = unstopped(case, tmp_path)
    assert result.metrics["littles_law_deviation"] < 0.005
    # A server that other programs hold up while users pause so long may leave one of them without an answer.
    assert codes <= {"few_requests", *(("starved_users", "unanswered_percentiles") if "think" in load else ())}


@pytest.mark.crowded
@pytest.mark.parametrize("which", ["all", "others", "given"])
def test_a_server_that_runs_on_cpus_that_it_was_not_given_is_noted(tmp_path: Path, which: str) -> None:
    """A shell starts it, as it would start nginx with `worker_cpu_affinity auto`."""
    machine = sorted(os.sched_getaffinity(0))
    if len(machine) < 2:
        without("there is one CPU")
    own = {"all": machine, "others": machine[1:], "given": []}[which]
    code = f"import os, sys; {own} and os.sched_setaffinity(0, {own}); os.execv(sys.argv[1], sys.argv[1:])"
    server = (sys.executable, str(FAKES / "forking_server.py"), "{port}", "2", "4000")
    command = ("sh", "-c", '"$@"; true', "sh", sys.executable, "-c", code, *server)
    subject = Subject(name="forking", command=command)
    case = experiment(subject, short_load(users=8, duration_ns=2_000 * MS), measure=FIXED, host=HostUse(cpus=1))
    result, codes = judged(case, tmp_path)
    assert ("own_affinity" in codes) is bool(own)
    assert result.cpus == CpuUse(len(own) or 1, len(machine), shared=bool(own))


@pytest.mark.crowded
def test_an_engine_on_the_subjects_cpu_is_noted_and_its_waits_are_measured(tmp_path: Path) -> None:
    """The trial then has that one CPU only."""
    subject = reference("--model", "fixed", "--threads", "8", "--cpu", "300us")
    shared = HostUse(pinning=Pinning(subject="0", engine="0"))
    case = experiment(subject, short_load(users=8, duration_ns=2_000 * MS), measure=FIXED, host=shared)
    result, codes = judged(case, tmp_path)
    assert codes == {"not_pinned"}
    metrics = result.metrics
    assert metrics["engine_run_wait_cores"] > 0 and metrics["engine_run_wait_ns_mean"] > 0
    used = metrics["subject_cpu_cores"] + metrics["engine_cpu_cores"] + metrics["host_foreign_cores"]
    assert used < 1.1, "of one CPU"


@pytest.mark.crowded
def test_a_server_that_another_program_started_is_told_of(engine: Path, tmp_path: Path) -> None:
    """The command asks a daemon for the server, as that of a build tool or of containers would."""
    asked = tmp_path / "asked"
    os.mkfifo(asked)
    daemon = f"read port < {asked}; {engine} serve --port $port --wait 5ms & wait"
    subject = Subject(name="asks", command=("sh", "-c", f"sleep 0.05; echo {{port}} > {asked}; sleep 60"))
    with subprocess.Popen(["sh", "-c", daemon], start_new_session=True) as started:
        try:
            result, codes = judged(experiment(subject, OUTLASTING, measure=FIXED), tmp_path)
        finally:
            os.killpg(started.pid, signal.SIGKILL)
    assert codes <= {"served_by_another", "few_requests"}
    (told,) = [problem.message for problem in result.problems if problem.code == "served_by_another"]
    assert f"{engine.name[:15]} (pid " in told
    assert result.metrics["goodput_per_s"] > 0 and "subject_cpu_cores" not in result.metrics
    assert result.cpus is not None and result.cpus.shared


@pytest.mark.crowded
@pytest.mark.long
@pytest.mark.parametrize("far", [True, False])
def test_a_server_on_another_address_is_not_taken_for_the_command_that_asks_for_it(
    engine: Path, tmp_path: Path, far: bool
) -> None:
    """On another machine, by an `ssh` that waits; or on this one. One that the command itself starts is its own."""
    asked = tmp_path / "asked"
    os.mkfifo(asked)
    with other_machine() as machine:
        address = machine.address if far else machine.here
        inside = f"ip netns exec {machine.name} " if far else ""
        serve = f"{inside}{engine} serve --host {address} --wait 5ms --port"
        url = f"http://{address}:{{port}}/"
        asks = Subject(name="asks", command=("sh", "-c", f"sleep 0.05; echo {{port}} > {asked}; sleep 60"), url=url)
        daemon = f"read port < {asked}; {serve} $port & wait"
        with subprocess.Popen(["sh", "-c", daemon], start_new_session=True) as started:
            try:
                case = experiment(asks, OUTLASTING, measure=FIXED, allow_hosts=(address,))
                result, codes = judged(case, tmp_path / "asks")
            finally:
                os.killpg(started.pid, signal.SIGKILL)
        assert codes <= {"served_by_another", "few_requests"}
        (told,) = [problem.message for problem in result.problems if problem.code == "served_by_another"]
        assert (f"but one on {address}, " if far else f"but {engine.name[:15]} (pid ") in told
        assert told.endswith("memory and threads are not known") is far and (result.cpus is None) is far
        assert result.metrics["goodput_per_s"] > 0 and "subject_cpu_cores" not in result.metrics
        own = Subject(name="own", command=(*serve.split(), "{port}"), url=url)
        case = experiment(own, OUTLASTING, measure=FIXED, allow_hosts=(address,))
        result, codes = judged(case, tmp_path / "own")
        assert "served_by_another" not in codes and result.metrics["subject_cpu_cores"] > 0
