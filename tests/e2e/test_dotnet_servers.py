""".NET is measured from inside: a Kestrel server, whose mode decides its limit, runs through one real trial per limit;
disturbed trials are repeated. Needs a .NET SDK of 8 or later: skipped without one, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import disturbance
from fakes.confusion import Tried
from fakes.needs import need_dotnet
from fakes.planted import users
from fakes.planted_real import RealCase
from fakes.real_builds import kestrel_server
from fakes.stand import CALM, MS, experiment, run_one
from fakes.undisturbed import undisturbed
from powerband.analyze.trial.measure import measure
from powerband.model.bottlenecks import BottleneckName as B
from powerband.model.experiment import Measure, Ready, Subject
from powerband.model.results import TrialResult
from powerband.processes.dotnet import find_dotnet
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

LEAST = "DOTNET_ThreadPool_ForceMinWorkerThreads"  # hexadecimal
QUIET = {"DOTNET_EnableDiagnostics": "0"}  # no sockets in the temporary folder
USERS = 32


@pytest.fixture(autouse=True)
def dotnet() -> None:
    need_dotnet()


def kestrel(mode: str, expected: B, slots: int = 0, **env: str) -> RealCase:
    command = (str(find_dotnet(8).program), "{kestrel}", "{port}", mode)
    return RealCase(f"Kestrel: {mode}", "", users(USERS), expected, (), slots, command, {**QUIET, **env})


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"lock": (B.LOCK, 0), "garbage": (B.GARBAGE_COLLECTION, 0)}, id="by its own figures"),
        pytest.param(
            {"cpu": (B.SUBJECT_CPU, 0), "semaphore": (B.HIDDEN_LIMIT, 4)}, id="as of any", marks=pytest.mark.table
        ),
    ],
)
def test_limits_are_told_apart(limits: dict[str, tuple[B, int]]) -> None:
    """The tests below are about the threads of the pool itself."""
    fair: list[Tried] = undisturbed([kestrel(mode, *expected) for mode, expected in limits.items()], 1)
    assert not [str(each) for each in fair if not each.right]


def once_running(case: RealCase, folder: Path) -> TrialResult:
    """The first trial in which the machine did not stand still."""
    return disturbance.undisturbed(lambda attempt: case.run(folder / str(attempt)), disturbance.stood_still)


@pytest.mark.crowded
def test_the_least_threads_of_the_pool_matter_to_a_handler_that_blocks(tmp_path: Path) -> None:
    """The assertions hold on a busy machine too, since sleeping threads need no CPU."""
    case = kestrel("sleep", B.POOL_TOO_SMALL)
    starved = once_running(case, tmp_path / "starved").metrics
    assert starved["dotnet_pool_queue_mean"] > 1 and starved["dotnet_pool_blocked_mean"] > 0
    assert starved["dotnet_heap_bytes_max"] > 0 and starved["dotnet_allocated_bytes_per_s"] > 0
    wide = once_running(replace(case, env={**case.env, LEAST: "40"}), tmp_path / "wide")
    assert wide.metrics["dotnet_pool_threads_max"] >= USERS
    assert wide.metrics["dotnet_pool_queue_mean"] < starved["dotnet_pool_queue_mean"]
    assert wide.metrics["goodput_per_s"] > 2 * starved["goodput_per_s"], "32 threads sleep beside each other"
    assert "pool_growing" not in [problem.code for problem in wide.problems]


def test_a_pool_that_is_too_small_and_still_grows_is_named_and_noted() -> None:
    """.NET adds up to two threads a second, and sometimes removes one: within 8 s the pool grows."""
    case = kestrel("sleep", B.POOL_TOO_SMALL)
    (tried,) = undisturbed([replace(case, load={**case.load, "duration_ns": 8_000 * MS})], 1)
    assert tried.right, str(tried)
    assert tried.result.metrics["dotnet_pool_growth_per_s"] > 0
    assert "pool_growing" in [problem.code for problem in tried.result.problems]


@pytest.mark.crowded
def test_connections_beyond_kestrels_limit_are_told_as_closed(tmp_path: Path) -> None:
    found = kestrel("connections", B.SUBJECT_CPU).run(tmp_path)
    assert "starved_users" in [problem.code for problem in found.problems]
    assert "closed_early" in {error.kind for error in found.errors}


@pytest.mark.crowded
def test_a_program_whose_hooks_are_switched_off_is_measured_from_outside(tmp_path: Path) -> None:
    server = kestrel_server()
    config = json.loads(Path(server).with_name("Kestrel.runtimeconfig.json").read_text())
    config["runtimeOptions"]["configProperties"]["System.StartupHookProvider.IsSupported"] = False
    file = tmp_path / "off.runtimeconfig.json"
    file.write_text(json.dumps(config))
    subject = Subject(
        name="kestrel",
        command=(str(find_dotnet(8).program), "exec", "--runtimeconfig", str(file), server, "{port}", "none"),
        env=dict(QUIET),
        ready=Ready(timeout_ns=60_000 * MS),
    )
    case = experiment(subject, measure=Measure.model_validate({**CALM, "warmup_ns": 100 * MS}))
    record = run_one(case, tmp_path)
    found = measure(TrialDir(tmp_path / "0001"), record, case)
    assert "off.runtimeconfig.json switches startup hooks off" in record.no_dotnet_figures
    assert "no_dotnet_figures" in [problem.code for problem in found.problems if not problem.fatal]
    assert not [name for name in found.metrics if name.startswith("dotnet_")]
