from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.measured import codes, measured, tell_more
from fakes.trials import SECOND, START_NS, Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.measure import evidence_of, measure
from powerband.model.bottlenecks import BottleneckName
from powerband.model.constraint import Constraint
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Measure, Objective
from powerband.model.results import TrialResult
from powerband.readings.fleet import merge_fleet
from powerband.store import TrialDir


def test_without_pinning_the_subjects_share_is_of_all_cpus_and_a_note_says_so(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    for pinning, cpus in (("auto", {}), ("off", {}), ("auto", {"subject": [0, 1], "engine": [1], "probe": [1]})):
        record = replace(record_of(spec(), figures), cpus=cpus)
        shared = experiment(host={"pinning": pinning})
        result = measure(directory, write_trial(directory, record, figures), shared)
        assert result.metrics["subject_cpu_share"] == pytest.approx(0.25)
        assert codes(result) == {"not_pinned"} and result.valid
        (advice,) = (problem.message.rpartition("; ")[2] for problem in result.problems)
        assert ("leave host.pinning on" in advice) is (pinning == "off")
        assert advice.endswith("keep some from the server (--cpus, host.cpus)")


@pytest.mark.parametrize(("outcome", "by_the_server"), [("closed_early", True), ("timeout", False)])
def test_a_generator_that_is_kept_busy_by_failed_requests_hides_no_errors(
    outcome: str, by_the_server: bool, tmp_path: Path
) -> None:
    """A server that closes connections at once is asked again at once: its errors are its own. A generator without a
    CPU may let requests time out."""
    counts = {"scheduled": 10_000, "sent": 10_000, "dropped": 0, "outcomes": {"ok": 9_000, outcome: 1_000}}
    figures = Figures(thread_share=0.95, busy_cores=1.5, summary={"cohort": counts})
    limit = Constraint(metric="error_rate", op="<", threshold=0.01, text="error_rate < 1%")
    result = measured(tmp_path, figures, objective=Objective(constraints=(limit,)))
    (found,) = (problem for problem in result.problems if problem.code == "generator_cpu")
    assert found.fatal is not by_the_server


@pytest.mark.parametrize(
    ("cpus", "engine", "threads", "host", "helps"),
    [
        (0, [3], 1, {}, True),  # a container's are not known
        (2, [1], 1, {}, False),
        (3, [2], 1, {}, False),
        (4, [3], 1, {}, True),
        (4, [2, 3], 2, {}, False),
        (4, [3], 1, {"cpus": 3}, False),
        (4, [2, 3], 1, {"cpus": 2}, True),
        (8, [6], 1, {"pinning": {"subject": "0-5", "engine": "6"}}, False),
        (2, [], 1, {"cpus": "all"}, True),
        (2, [], 2, {"cpus": "all"}, False),
    ],
)
def test_a_full_generator_is_advised_another_thread_only_if_it_has_a_cpu_for_it(
    cpus: int, engine: list[int], threads: int, host: dict[str, Any], tmp_path: Path, *, helps: bool
) -> None:
    directory = TrialDir(tmp_path / "0001")
    figures = Figures(thread_share=0.95, busy_cores=1.5, summary={"thread_cpu_ns": [9_500_000_000] * threads})
    machine = list(range(cpus))
    split = {"subject": machine[: engine[0]] if engine else [], "engine": engine, "machine": machine}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=split), figures)
    result = measure(directory, record, experiment(host=host))
    (found,) = (problem for problem in result.problems if problem.code == "generator_cpu")
    assert ("raise load.engine_threads" in found.message) is helps
    assert ("no CPU for another thread: leave it more (--cpus" in found.message) is not helps
    assert result.bottleneck is not None and found.message.endswith(f"; {result.bottleneck.advice}")


def on_each_cpu(directory: TrialDir, busy: tuple[float, float], interrupts: float | None) -> None:
    """Rewrites what the probe read of two CPUs, in CPUs. `interrupts`: None if the kernel does not count them apart."""
    lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    for line in (line for line in lines if line["type"] == "sample"):
        host, passed = line["host"], line["at_ns"] - START_NS + SECOND
        host["cpu_busy_ns_each"] = [round(each * passed) for each in busy]
        host["cpu_busy_ns"], host["cpu_idle_ns"] = round(sum(busy) * passed), round((2 - sum(busy)) * passed)
        host |= {} if interrupts is None else {"cpu_interrupts_ns": round(interrupts * passed)}
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("used", "busy", "interrupts", "limit"),
    [
        (0.7, (0.6, 1.0), 0.4, "64 %, as"),
        (0.6, (0.6, 0.9), 0.4, ""),  # its CPU idles for a part of the time
        (0.7, (0.95, 0.75), 0.4, ""),  # they interrupt the server
        (0.7, (0.6, 0.75), None, ""),
        (0.95, (0.5, 0.97), None, "90 %)"),
    ],
)
def test_a_generator_is_full_with_what_interrupts_leave_of_its_cpu(
    tmp_path: Path, used: float, busy: tuple[float, float], interrupts: float | None, limit: str
) -> None:
    """They are not in the account of its thread."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures(thread_share=used)
    record = write_trial(directory, record_of(spec(), figures), figures)
    on_each_cpu(directory, busy, interrupts)
    told = [each.message for each in measure(directory, record, experiment()).problems if each.code == "generator_cpu"]
    assert len(told) == bool(limit)
    assert all(f"(limit {limit}" in message for message in told)


@pytest.mark.parametrize(
    ("role", "cores", "foreign", "interrupts", "changes", "share"),
    [
        ("subject", 0.5, 0.0, 0.4, {}, 0.15),  # 0.09 of 0.6
        ("engine", 0.7, 0.0, 0.4, {}, 0.29),
        ("engine", 0.7, 0.1, 0.4, {}, 0.19),  # others may have run there
        ("engine", 0.7, 0.0, 0.2, {}, 0.2),  # there are no more
        ("engine", 0.7, 0.0, None, {}, 0.0),
        ("engine", 0.7, 0.0, 0.4, {"cpus": {}}, 0.25),  # of all CPUs
        ("engine", 0.7, None, 0.4, {}, 0.25),
        ("engine", 0.7, 0.0, 0.4, {"subject": {"here": False}}, 0.0),  # packets interrupt whom they like
    ],
)
def test_interrupts_of_a_roles_cpus_are_what_nobody_used_there(
    tmp_path: Path,
    *,
    role: str,
    cores: float,
    foreign: float | None,
    interrupts: float | None,
    changes: dict[str, Any],
    share: float,
) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(thread_share=0.7)
    record = write_trial(directory, replace(record_of(spec(), figures), **changes), figures)
    on_each_cpu(directory, (0.6, 1.0), interrupts)
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    evidence = evidence_of(directory, record, experiment(), fleet)
    assert evidence.interrupted_share(role, cores, foreign) == pytest.approx(share, abs=0.002)


@pytest.mark.parametrize(("stopped_ns", "engine_wait"), [(90_000_000, 0.0), (500_000_000, 0.04)])
def test_a_short_stop_and_a_wait_for_a_cpu_are_no_stopped_engine(
    stopped_ns: int, engine_wait: float, tmp_path: Path
) -> None:
    assert measured(tmp_path, Figures(stopped_ns=stopped_ns, engine_wait=engine_wait)).valid


def test_some_foreign_cpu_is_noted_but_not_fatal(tmp_path: Path) -> None:
    result = measured(tmp_path, Figures(busy_cores=0.92))
    assert codes(result) == {"host_foreign_some"} and result.valid


@pytest.mark.parametrize(("quota", "share"), [(None, 0.5), (0.8, 0.625), (4.0, 0.5)])
def test_a_quota_below_the_cpus_is_what_the_subject_may_use(tmp_path: Path, quota: float | None, share: float) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(subject_cores=0.5)
    record = write_trial(directory, replace(record_of(spec(), figures), cpu_quota=quota), figures)
    assert measure(directory, record, experiment()).metrics["subject_cpu_share"] == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize(("pinned", "affinity", "share"), [((), 1, 0.5), ((), None, 0.25), ((0,), 2, 0.25)])
def test_the_cpus_on_which_the_kernel_lets_the_subject_run_are_what_it_may_use(
    tmp_path: Path, pinned: tuple[int, ...], affinity: int | None, share: float
) -> None:
    """A container with one CPU, or a server that runs already elsewhere than powerband may. Older engines tell
    nothing."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures(subject_cores=0.5)
    cpus = {"subject": list(pinned), "engine": [], "probe": []}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=cpus), figures)
    if affinity is not None:
        tell_more(directory, lambda at_ns: {"cpus_now": affinity if at_ns > 5 * SECOND else 1})
    assert measure(directory, record, experiment()).metrics["subject_cpu_share"] == pytest.approx(share, rel=0.01)


def most_of_it(at_ns: int) -> int:
    return 2 if at_ns > 4 * SECOND else 1


def a_while(at_ns: int) -> int:
    return 2 if at_ns > 6 * SECOND else 1


@pytest.mark.parametrize(
    ("affinity", "begun_on", "pool", "noted"),
    [
        (most_of_it, [], "worker", 2),
        (a_while, [], "worker", 0),
        (lambda at_ns: 1, [], "worker", 0),
        (lambda at_ns: None, [], "worker", 0),
        (most_of_it, [], "iou-wrk", 0),
        (lambda at_ns: 1, [1], "worker", 1),
        (lambda at_ns: 1, [0, 1], "worker", 0),
        (lambda at_ns: 1, [1], "iou-wrk", 0),
    ],
)
def test_a_server_on_cpus_that_it_was_not_given_shares_those_of_the_load_generator(
    tmp_path: Path, affinity: Callable[[int], int | None], begun_on: list[int], pool: str, noted: int
) -> None:
    """A child of another affinity that lives for a while, or a thread that the kernel adds, is no such server."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    cpus = {"subject": [0], "engine": [1], "probe": [1], "machine": [0, 1]}
    made = record_of(spec(), figures)
    record = write_trial(directory, replace(made, cpus=cpus, subject=made.subject | {"own_cpus": begun_on}), figures)
    tell_more(directory, lambda at_ns: {"cpus_now": affinity(at_ns)})
    directory.probe.write_text(directory.probe.read_text().replace('"pool": "worker"', f'"pool": "{pool}"'))
    result = measure(directory, record, experiment())
    assert codes(result) == ({"own_affinity"} if noted else set()) and result.valid
    if pool == "iou-wrk":
        assert result.metrics["subject_cpu_share"] == pytest.approx(result.metrics["subject_cpu_cores"])
    assert result.cpus == (CpuUse(noted, 2, shared=True) if noted else CpuUse(1, 2, shared=False))


@pytest.mark.parametrize(
    ("given", "affinity", "command", "had"),
    [
        ([0, 1, 2], 2, "serve", CpuUse(2, 4, shared=False)),
        ([0, 1, 2], 3, "serve", CpuUse(3, 4, shared=False)),
        ([0, 1, 2], None, "serve", CpuUse(3, 4, shared=False)),
        ([], 2, "serve", CpuUse(2, 4, shared=True)),
        ([], 2, "docker", CpuUse(4, 4, shared=True)),
    ],
)
def test_a_server_that_keeps_to_some_of_its_cpus_has_no_more(
    given: list[int], affinity: int | None, command: str, had: CpuUse, tmp_path: Path
) -> None:
    """`numactl` and `taskset` choose the CPUs of a command; the engine of a container chooses its CPUs."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures(cpus=4)
    cpus = {"subject": given, "engine": [3] if given else [], "probe": [], "machine": [0, 1, 2, 3]}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=cpus), figures)
    tell_more(directory, lambda at_ns: {"cpus_now": affinity})
    subject = {"name": "fake", "command": (command, "run", "--threads", "{threads}")}
    assert measure(directory, record, experiment(subject=subject)).cpus == had


@pytest.mark.parametrize(("command", "had"), [("serve", 1.5), ("docker", 4.0)])
def test_the_quota_of_powerband_takes_no_cpus_from_a_container(command: str, had: float, tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(cpus=4)
    cpus: dict[str, list[int]] = {"subject": [], "engine": [], "probe": [], "machine": [0, 1, 2, 3]}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=cpus, cpu_quota=1.5), figures)
    subject = {"name": "fake", "command": (command, "run", "--threads", "{threads}")}
    assert measure(directory, record, experiment(subject=subject)).cpus == CpuUse(had, 4, shared=True)


@pytest.mark.parametrize(("own_quota", "named"), [(None, True), (2.0, False)])
def test_a_quota_of_the_whole_trial_is_used_up_by_load_engine_and_server(
    tmp_path: Path, own_quota: float | None, named: bool
) -> None:
    figures = Figures(subject_cores=1.2, thread_share=0.7, busy_cores=2.0, cpus=8)
    found = under_a_quota(tmp_path, figures, own_quota).bottleneck
    assert (found is not None and found.name is BottleneckName.CPU_QUOTA) is named


@pytest.mark.parametrize(("own_quota", "of_both"), [(None, True), (2.0, False)])
def test_a_generator_that_waits_for_a_quota_of_its_own_is_told_of_that(
    tmp_path: Path, own_quota: float | None, of_both: bool
) -> None:
    figures = Figures(subject_cores=1.2, thread_share=0.7, engine_wait=0.7, busy_cores=2.0, cpus=8)
    problems = under_a_quota(tmp_path, figures, own_quota).problems
    (told,) = [problem.message for problem in problems if problem.code == "generator_starved"]
    assert ("quota of 2 CPUs" in told) is ("--cpuset-cpus" in told) is of_both
    assert ("stop other programs" in told) is not of_both


def under_a_quota(tmp_path: Path, figures: Figures, own_quota: float | None) -> TrialResult:
    """A trial all of which is under a quota of two CPUs that stops it in most periods. `own_quota`: the server's, from
    the experiment."""
    directory = TrialDir(tmp_path / "0001")
    record = replace(record_of(spec(), figures), cpus={}, cpu_quota=2.0)
    write_trial(directory, record, figures)
    tell_more(
        directory,
        lambda at_ns: {
            "cpu_quota_now": 2.0,
            "quota_periods": (at_ns + SECOND) // 100_000_000,
            "throttled_periods": (at_ns + SECOND) * 95 // 10_000_000_000,
        },
    )
    return measure(directory, record, experiment(host={"cpu_quota": own_quota}))


def test_foreign_cpu_may_be_allowed_and_is_then_still_noted(tmp_path: Path) -> None:
    refused = measured(tmp_path / "a", Figures(busy_cores=1.5), measure=Measure(repeats=3, foreign_cpu_max=0.1))
    (problem,) = refused.problems
    assert "does not count" in problem.message and "measure.foreign_cpu_max" in problem.message
    allowed = measured(tmp_path / "b", Figures(busy_cores=1.5), measure=Measure(repeats=3, foreign_cpu_max=0.5))
    assert codes(allowed) == {"host_foreign_some"} and allowed.valid
    strict = measured(tmp_path / "c", Figures(busy_cores=0.86), measure=Measure(repeats=3, foreign_cpu_max=0.01))
    assert codes(strict) == {"host_foreign"} and not strict.valid


def test_steal_may_be_allowed_and_is_then_still_noted(tmp_path: Path) -> None:
    limited = Measure(repeats=3, steal_max=0.02)
    (problem,) = measured(tmp_path / "a", Figures(steal_share=0.05), measure=limited).problems
    assert "(2 % allowed)" in problem.message and "measure.steal_max" in problem.message
    allowed = measured(tmp_path / "b", Figures(steal_share=0.05), measure=Measure(repeats=3, steal_max=0.1))
    assert codes(allowed) == {"host_steal_some"} and allowed.valid
    strict = measured(tmp_path / "c", Figures(steal_share=0.015), measure=Measure(repeats=3, steal_max=0.01))
    assert codes(strict) == {"host_steal"} and not strict.valid


@pytest.mark.parametrize(
    "figures",
    [
        Figures(engine_wait=0.15, users=1, response_ns=1_000_000),  # 75 us a turn, the cost of a wake-up
        Figures(engine_wait=0.5),  # 0.25 ms a turn with responses of 10 ms, and idle CPU
    ],
)
def test_wake_ups_and_waits_that_no_response_shows_are_no_lack_of_cpu(tmp_path: Path, figures: Figures) -> None:
    result = measured(tmp_path, figures)
    assert result.metrics["engine_run_wait_cores"] == pytest.approx(figures.engine_wait, rel=1e-3)
    assert result.valid and result.problems == ()
