"""The most that other programs can have cost a trial: the smaller of the CPU that they used and the wait that they can
have caused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import SECOND, START_NS, Figures, experiment, record_of, spec, summary, write_trial
from powerband.analyze.trial.disturbance import TELLS_NOTHING, _pool_waited, _tells_more, judged_by_bound
from powerband.analyze.trial.faults import is_failed_start
from powerband.analyze.trial.measure import measure
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Measure
from powerband.model.results import PoolUse, TrialResult
from powerband.readings.fleet import merge_fleet
from powerband.readings.pools import WatchedPool
from powerband.readings.quiet_time import QuietTime
from powerband.store import TrialDir


def measured(tmp_path: Path, figures: Figures, **changes: Any) -> TrialResult:
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), figures), figures)
    return measure(directory, record, experiment(**changes))


def rewritten(
    tmp_path: Path, figures: Figures, change: Callable[[dict[str, Any]], object], **recorded: Any
) -> TrialResult:
    """A trial each of whose probe's lines is changed. `recorded`: fields of its record."""
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, replace(record_of(spec(), figures), **recorded), figures)
    lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    for line in lines:
        change(line)
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return measure(directory, record, experiment())


def test_what_cannot_have_mattered_counts_whole(tmp_path: Path) -> None:
    quiet = measured(tmp_path, Figures())
    assert quiet.held_up == 0.0 and quiet.valid and quiet.metrics["held_up_share_max"] < 0.05


def test_beside_a_busy_program_a_trial_counts_and_is_bounded_by_what_its_threads_waited(tmp_path: Path) -> None:
    """Other programs used a third of the CPUs, but the threads of server and load generator waited for a tenth of a
    thread only."""
    beside = measured(tmp_path, Figures(busy_cores=1.5))
    assert beside.valid and {problem.code for problem in beside.problems} == {"host_foreign_some"}
    assert beside.metrics["host_foreign_cores"] > 0.6
    assert beside.held_up == pytest.approx(0.11, abs=0.01) == beside.metrics["held_up_share_max"]


def test_each_thread_of_the_load_engine_that_waits_holds_up_its_own_users_only(tmp_path: Path) -> None:
    figures = Figures(busy_cores=1.5, engine_wait=0.4, summary={"thread_cpu_ns": [750_000_000] * 4})
    for users, lost in ((10, 0.12), (2, 0.2)):  # dealt to four threads: 3, 3, 2 and 2 users, or one each
        of_users = measured(tmp_path / str(users), figures, load={"users": users, "duration": "10s"})
        assert of_users.held_up == pytest.approx(0.1 + lost, abs=0.001)


def test_little_cpu_of_others_on_many_cpus_spoils_no_trial(tmp_path: Path) -> None:
    beside = measured(tmp_path, Figures(cpus=32, busy_cores=1.41, engine_wait=0.55))
    assert beside.metrics["held_up_share_max"] > TELLS_NOTHING == beside.held_up
    assert beside.valid and {problem.code for problem in beside.problems} == {"host_foreign_some"}


@pytest.mark.parametrize(
    ("figures", "broken", "unbroken"),
    [
        (Figures(), {"invariant"}, {"invariant"}),
        (Figures(busy_cores=1.5, engine_wait=0.2), {"invariant"}, {"invariant_unknown"}),
        (Figures(busy_cores=1.9, engine_wait=0.6), {"invariant", "host_foreign"}, {"host_foreign"}),
    ],
)
def test_an_invariant_on_what_no_lack_of_cpu_changes_is_broken_by_the_server(
    tmp_path: Path, figures: Figures, broken: set[str], unbroken: set[str]
) -> None:
    for wanted, said in (("threads_max < 2", broken), ("goodput > 2000", unbroken), ("errors < 0", unbroken)):
        kept = Measure.model_validate({"invariants": [wanted]})
        result = measured(tmp_path / wanted[:7], figures, measure=kept)
        assert {problem.code for problem in result.problems if problem.fatal} == said
        assert is_failed_start(result) is ("invariant" in said)


def test_little_cpu_of_others_bounds_long_waits_for_each_other(tmp_path: Path) -> None:
    beside = measured(tmp_path, Figures(busy_cores=0.89, engine_wait=0.15))
    assert beside.held_up == pytest.approx(beside.metrics["host_foreign_cores"]) and beside.held_up < 0.1


def test_waits_of_threads_that_end_before_they_are_read_are_not_taken_for_none(tmp_path: Path) -> None:
    """A server that starts a thread for each request: those that were read did a tenth of its work."""

    def ended(line: dict[str, Any]) -> None:
        for pool in line.get("pools", []):
            pool["on_cpu_ns"] //= 10

    beside = rewritten(tmp_path, Figures(busy_cores=1.5), ended)
    assert beside.held_up == pytest.approx(0.5) and beside.metrics["host_foreign_cores"] > 0.6


def test_interrupts_that_the_kernel_counts_apart_are_no_other_program(tmp_path: Path) -> None:
    def apart(line: dict[str, Any]) -> None:
        if line["type"] == "sample":
            line["host"]["cpu_interrupts_ns"] = round(0.65 * (line["at_ns"] - START_NS))

    beside = rewritten(tmp_path, Figures(busy_cores=1.5), apart)
    assert beside.metrics["host_foreign_cores"] < 0.1 and beside.metrics["host_busy_share"] == pytest.approx(0.75)
    assert not beside.problems


@pytest.mark.parametrize(
    ("figures", "lost"),
    [
        (Figures(), 0.1),  # less than a second of CPU time was asked for in each
        (Figures(busy_cores=1.5, subject_cores=1.15), 0.05 / 0.8),  # threads that wait for each other lose no more
        (Figures(cpus=32, busy_cores=24, subject_cores=23.65, threads=64), 0.05 / 0.8),
    ],
)
def test_steal_costs_no_more_than_one_thread_after_the_other_can_lose(
    tmp_path: Path, figures: Figures, lost: float
) -> None:
    stolen = measured(tmp_path / "a", replace(figures, steal_share=0.05))
    assert stolen.valid and stolen.held_up == pytest.approx(
        lost + measured(tmp_path / "b", figures).metrics["held_up_share_max"]
    )


def test_beside_loops_that_keep_many_cpus_awake_steal_costs_what_one_of_them_can_lose(tmp_path: Path) -> None:
    """The loops ask for all time of each CPU, of which the hypervisor takes 2 %."""
    figures = Figures(cpus=32, steal_share=0.02)

    def kept_awake(line: dict[str, Any]) -> None:
        if line["type"] == "sample":
            passed, host = line["at_ns"] - START_NS + SECOND, line["host"]
            loops = {"name": "awake-0", "cpu_user_ns": host["cpu_idle_ns"], "cpu_system_ns": 0}
            host["cpu_busy_ns"], host["cpu_idle_ns"] = host["cpu_busy_ns"] + host["cpu_idle_ns"], 0
            host["cpu_busy_ns_each"] = [round(0.98 * passed)] * figures.cpus
            line["trees"].append(loops)

    kept = rewritten(tmp_path / "a", figures, kept_awake)
    without = measured(tmp_path / "b", replace(figures, steal_share=0.0)).metrics["held_up_share_max"]
    assert kept.valid and kept.metrics["held_up_share_max"] == pytest.approx(0.02 + without, abs=0.001)
    assert kept.metrics["host_awake_cores"] > 30 and kept.metrics["host_foreign_cores"] < 0.1


def test_of_a_probe_that_tells_no_cpus_apart_steal_is_added_whole(tmp_path: Path) -> None:
    quiet = Figures(busy_cores=1.5, subject_cores=1.15)

    def not_told(line: dict[str, Any]) -> None:
        for name in ("cpu_busy_ns_each", "cpu_steal_ns_each"):
            line.get("host", {}).pop(name, None)

    stolen = rewritten(tmp_path / "a", replace(quiet, steal_share=0.05), not_told)
    without = measured(tmp_path / "b", quiet).metrics["held_up_share_max"]
    assert stolen.held_up == pytest.approx(0.1 + without)


def test_steal_that_moves_from_one_cpu_to_the_other_is_added_second_by_second(tmp_path: Path) -> None:
    figures = Figures(busy_cores=1.0, subject_cores=0.65)

    def moving(line: dict[str, Any]) -> None:
        if line["type"] == "sample":
            passed = line["at_ns"] - START_NS
            early = min(passed, 5 * SECOND)
            line["host"]["cpu_steal_ns"] = round(0.2 * passed) + SECOND
            line["host"]["cpu_steal_ns_each"] = [round(0.2 * each) + SECOND for each in (early, passed - early)]
            line["host"]["cpu_busy_ns_each"] = [round(0.5 * passed) + SECOND] * 2

    without = measured(tmp_path / "b", figures).metrics["held_up_share_max"]
    assert rewritten(tmp_path / "a", figures, moving).held_up == pytest.approx(0.2 + without, abs=0.001)


@pytest.mark.parametrize(("quota", "lost"), [(None, 0.2), (2.0, 0.0)])
def test_a_server_that_its_quota_stops_does_not_wait_for_others_while_cpus_idle(
    tmp_path: Path, quota: float | None, lost: float
) -> None:
    """The load engine waits for others, unless it is under the same quota."""
    figures = Figures(cpus=64, busy_cores=22, subject_cores=1.6, engine_wait=0.2)

    def stopped_in_each_period(line: dict[str, Any]) -> None:
        if line["type"] == "sample":
            periods = (line["at_ns"] - START_NS) // 100_000_000 + 100
            limited = {"cpu_quota_now": 2.0, "quota_periods": periods, "throttled_periods": periods}
            line["trees"][0] |= limited

    stopped = rewritten(tmp_path, figures, stopped_in_each_period, cpu_quota=quota)
    assert stopped.metrics["host_foreign_cores"] > 19 and stopped.valid
    assert stopped.held_up == pytest.approx(lost)
    assert stopped.bottleneck is not None and stopped.bottleneck.name is BottleneckName.CPU_QUOTA
    pinned = {"subject": [4, 5, *range(70, 100)], "engine": [*range(6, 38)], "probe": [6], "machine": [*range(128)]}
    again = rewritten(tmp_path / "b", figures, stopped_in_each_period, cpu_quota=quota, cpus=pinned)
    assert again.held_up == pytest.approx(lost), "only the CPUs that were given are read"


@pytest.mark.parametrize(
    ("neighbours", "named"), [({"cc1": 1.0, "postgres": 0.4}, True), ({"cc1": 1.0, "postgres": 0.01}, False)]
)
@pytest.mark.parametrize("limited", [{}, {"measure": Measure(repeats=3, foreign_cpu_max=0.1)}])
def test_a_database_among_the_other_programs_may_be_the_servers_own(
    neighbours: dict[str, float], named: bool, limited: dict[str, Any], tmp_path: Path
) -> None:
    figures, directory = Figures(busy_cores=1.9, engine_wait=0.6), TrialDir(tmp_path / "0001")
    record = write_trial(directory, replace(record_of(spec(), figures), neighbours=neighbours), figures)
    found = measure(directory, record, experiment(**limited))
    (told,) = (problem.message for problem in found.problems if problem.code == "host_foreign")
    assert found.bottleneck is not None and found.bottleneck.name is BottleneckName.HOST_CPU
    for text in (told, found.bottleneck.advice):
        assert ("if postgres is the server's own database" in text) is named


def test_what_is_allowed_for_is_not_asked_to_be_allowed_for(tmp_path: Path) -> None:
    figures, directory = Figures(busy_cores=1.9, engine_wait=0.6), TrialDir(tmp_path / "0001")
    record = write_trial(directory, replace(record_of(spec(), figures), neighbours={"postgres": 0.4}), figures)
    found = measure(directory, record, experiment(measure=Measure(repeats=3, foreign_cpu_max=0.9)))
    assert not any("allow for it" in problem.message for problem in found.problems)
    assert any(problem.code == "host_foreign_some" for problem in found.problems)


@pytest.mark.parametrize("figures", [Figures(steal_share=0.5), Figures(busy_cores=1.9, engine_wait=0.6)])
def test_a_trial_that_may_have_lost_half_tells_nothing(tmp_path: Path, figures: Figures) -> None:
    spoilt = measured(tmp_path, figures)
    fatal = [problem for problem in spoilt.problems if problem.fatal and problem.code.startswith("host_")]
    assert [problem.code for problem in fatal] == ["host_steal" if figures.steal_share else "host_foreign"]
    assert "does not count" in fatal[0].message
    assert ("Close them" in fatal[0].message) is (figures.steal_share == 0), "nobody can close a hypervisor"
    assert ("CPU credits" in fatal[0].message) is (figures.steal_share > 0)


def test_what_the_hypervisor_took_may_be_a_limit_of_this_machine_s_own(tmp_path: Path) -> None:
    """A burstable instance without CPU credits shows steal, too, however quiet its host is."""
    limited = experiment(measure=Measure(repeats=3, steal_max=0.1))
    for steal, code in ((0.5, "host_steal"), (0.05, "host_steal_some")):
        figures, directory = Figures(steal_share=steal), TrialDir(tmp_path / code)
        found = measure(directory, write_trial(directory, record_of(spec(), figures), figures), limited)
        (told,) = (problem.message for problem in found.problems if problem.code.startswith("host_steal"))
        assert (code == "host_steal") is (not found.valid) is ("this one is burstable and out of CPU credits" in told)
        assert "un when the host is quieter or a burstable machine has CPU credits again" in told


def test_beside_a_program_that_rests_for_a_while_only_that_while_counts(tmp_path: Path) -> None:
    figures = Figures(loud_s=8.0)
    more = Measure.model_validate({"invariants": [f"goodput > {1.2 * figures.goodput_per_s}"]})
    beside = measured(tmp_path, figures, measure=more)
    assert beside.valid and beside.steady is None
    assert beside.metrics["held_up_share_max"] > 0.5, "of the whole window too little is known"
    assert beside.metrics["quiet_s"] == pytest.approx(1.9), "but for the tenth of a second after it"
    assert beside.metrics["quiet_held_up_share_max"] < 0.05 and beside.held_up == 0.0
    for rate in ("goodput_per_s", "achieved_rate_per_s"):
        assert beside.metrics[rate] == pytest.approx(figures.quiet_goodput_per_s, rel=0.01)
        assert beside.metrics[f"window_{rate}"] == pytest.approx(figures.goodput_per_s)


@pytest.mark.parametrize("figures", [Figures(loud_s=8.0, busy_cores=0.95), Figures(loud_s=8.0, steal_share=0.02)])
def test_what_others_used_and_what_was_stolen_in_quiet_time_is_allowed_for(tmp_path: Path, figures: Figures) -> None:
    beside = measured(tmp_path, figures)
    assert 0.07 < beside.held_up == beside.metrics["quiet_held_up_share_max"] < 0.15


def test_who_is_missed_by_more_than_the_time_that_they_took_does_not_disturb_but_works_for_the_server() -> None:
    fleet = merge_fleet([summary(Figures())])  # type: ignore[list-item]
    assert fleet is not None and fleet.goodput_per_s == 1000
    quiet = QuietTime(2.0, 0.0, 0.0, goodput_per_s=1500, achieved_per_s=1500, error=0.01, rise=0.0)
    assert _tells_more(quiet, 0.4, fleet) and not _tells_more(quiet, 0.2, fleet)
    assert not _tells_more(replace(quiet, error=0.3), 0.4, fleet), "so little is known of its rate"


@pytest.mark.parametrize(
    ("figures", "changes"),
    [
        (Figures(loud_s=10.0), {}),  # the other program never rests
        (Figures(loud_s=9.8), {}),  # it rests too briefly
        (
            Figures(loud_s=5.0, loud_rate=1.5),
            {},
        ),  # less is served without it, so it may work for the server
        (
            Figures(loud_s=5.0, think_ns=9e6),
            {"load": {"users": 10, "think": "9ms", "duration": "10s"}},
        ),
        (Figures(loud_s=5.0), {"load": {"rate": 1000, "duration": "10s"}}),
        (Figures(loud_s=5.0), {"load": {"users": 10, "requests_per_user": 1000}}),
        (Figures(loud_s=5.0), {"measure": Measure(repeats=3, foreign_cpu_max=0.9)}),
        (Figures(loud_s=0.05), {}),  # it ran too briefly to matter
        (Figures(loud_s=8.0, thread_share=0.7, busy_cores=1.25), {}),  # without it the load generator is at its limit
    ],
)
def test_the_whole_window_counts_where_no_quiet_part_tells_more(
    tmp_path: Path, figures: Figures, changes: dict[str, Any]
) -> None:
    result = measured(tmp_path, figures, **changes)
    assert "quiet_s" not in result.metrics and "quiet_held_up_share_max" not in result.metrics
    assert result.metrics["goodput_per_s"] == pytest.approx(figures.goodput_per_s)


QUERIES = Measure.model_validate({"metrics": {"app_query_s": "increase(query_seconds_sum / query_seconds_count)"}})


@pytest.mark.parametrize("of", ["errors < 1%", "memory_lasts_s > 60", "subject_cpu_ns_per_request < 5ms"])
def test_conditions_on_what_others_do_not_lengthen_leave_the_bound(of: str) -> None:
    assert judged_by_bound(experiment(objective={"constraints": [of]}))


@pytest.mark.parametrize(
    "changes",
    [
        {"measure": Measure(repeats=3, foreign_cpu_max=0.1)},
        {"measure": Measure(repeats=3, steal_max=0.5)},
        {"objective": {"metric": "response_time_ns_p99", "direction": "minimise"}},
        {"objective": {"constraints": ["p99 < 50ms"]}},
        {"objective": {"constraints": ["app_query_s <= 0.05"]}, "measure": QUERIES},
        {"objective": {"constraints": ["ready_s <= 5"]}},
        {"claims": [{"id": "a", "says": "it is", "holds": "goodput[threads=1] > 1"}]},
    ],
)
def test_fixed_limits_judge_where_no_bound_is_known_or_one_is_set(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert not judged_by_bound(experiment(**changes))
    result = measured(tmp_path, Figures(busy_cores=1.5), **changes)
    assert result.held_up == 0.0 and "host_foreign" in {problem.code for problem in result.problems if problem.fatal}


@pytest.mark.parametrize(
    ("threads", "run_wait", "lock", "foreign", "lost"),
    [
        (64.0, 0.64, 0.0, 1.0, 0.01),  # each thread loses its own hundredth
        (64.0, 0.64, 3.2, 1.0, 0.06),  # and 5 of a hundred wait for another thread
        (1.0, 0.2, 0.8, 1.0, 0.2),  # an event loop
        (64.0, 0.64, 60.0, 1.0, 0.64),  # all wait for the thread that holds the lock
        (64.0, 32.0, 0.0, 0.64, 0.01),  # most wait for each other: others run too little to delay more
    ],
)
def test_a_thread_of_a_pool_loses_its_own_wait_and_that_of_whom_it_waits_for(
    threads: float, run_wait: float, lock: float, foreign: float, lost: float
) -> None:
    blocked = threads - run_wait
    on = {"lock": lock / blocked, "sleep": 1 - lock / blocked}
    pool = WatchedPool(PoolUse("worker", threads, 0.0, run_wait, blocked, on), 0.0, 0.0, 0.0, 0.0)
    assert _pool_waited(pool, foreign) == pytest.approx(lost)
