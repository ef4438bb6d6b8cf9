from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from powerband.run.host import host_facts
from powerband.search.doctor import Diagnosis, findings, pilot_of, smallest_difference
from powerband.search.noise import Noise, cpu_times, spin_times_ns, timer_lateness_ns, wake_ups_ns

QUIET = Noise(
    wake_ns_p50=20_000,
    wake_ns_p99=60_000,
    timer_late_ns_p50=60_000,
    timer_late_ns_p99=200_000,
    speed_sd=0.005,
    speed_worst=0.01,
    steal_share=0.0,
    foreign_share=0.01,
)
GOOD = {
    "psi": True,
    "perf_event_paranoid": 1,
    "clock_source": "tsc",
    "cpu": {"governor": "performance", "cores": [[0], [1]], "cgroup_cpus_max": None},
    "limits": {"descriptors_hard": 1_048_576},
    "network": {"somaxconn": 4096, "local_ports": [32768, 60999]},
}


def test_a_quiet_well_set_machine_gives_no_remedy() -> None:
    found = findings(GOOD, QUIET)
    assert {finding.level for finding in found} == {"ok"}
    assert not any(finding.remedy for finding in found)
    assert Diagnosis(found, None).fit


@pytest.mark.parametrize(
    ("facts", "code", "level"),
    [
        ({"psi": False}, "psi", "note"),
        ({"perf_event_paranoid": 3}, "perf", "note"),
        ({"perf_event_paranoid": None}, "perf", "note"),
        ({"clock_source": "hpet"}, "clock", "note"),
        ({"cpu": {"governor": "powersave", "cores": [[0], [1]]}}, "governor", "note"),
        ({"cpu": {"cgroup_cpus_max": 1.5}}, "cgroup", "note"),
        ({"cpu": {"cores": [[0, 1]]}}, "one_core", "bad"),
        ({"limits": {"descriptors_hard": 256}}, "descriptors", "note"),
        ({"network": {"somaxconn": 128}}, "somaxconn", "note"),
        ({"network": {"local_ports": [50_000, 51_000]}}, "ports", "note"),
    ],
)
def test_each_fault_is_found_with_its_remedy(facts: dict[str, object], code: str, level: str) -> None:
    wrong = [finding for finding in findings({**GOOD, **facts}, QUIET) if finding.level != "ok"]
    assert [(finding.code, finding.level) for finding in wrong] == [(code, level)]
    assert wrong[0].remedy


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"wake_ns_p50": 1e6}, "wake_up"),
        ({"timer_late_ns_p99": 1e7}, "timers"),
        ({"speed_sd": 0.2}, "cpu_speed"),
        ({"steal_share": 0.1}, "steal"),
        ({"foreign_share": 0.5}, "foreign_cpu"),
    ],
)
def test_a_noisy_machine_is_not_fit(change: dict[str, float], code: str) -> None:
    found = findings(GOOD, Noise(**{**vars(QUIET), **change}))
    assert [finding.code for finding in found if finding.level == "bad"] == [code]
    assert not Diagnosis(found, None).fit


def test_facts_that_could_not_be_read_are_passed_over() -> None:
    assert {finding.code for finding in findings({}, QUIET) if finding.level == "bad"} == set()
    assert findings(host_facts(), QUIET)


def test_the_pilot_recovers_the_noise_and_ignores_drift() -> None:
    dice = np.random.default_rng(1)
    logs = 0.02 * dice.standard_normal(2000) + np.linspace(0, 1, 2000)
    pilot = pilot_of(list(np.exp(logs)))
    assert pilot.sd == pytest.approx(0.02, rel=0.1)
    assert pilot.smallest_difference == pytest.approx(smallest_difference(0.02), rel=0.1)
    assert smallest_difference(0.02) > smallest_difference(0.02, blocks=20)
    assert pilot_of([1.0, 2.0]).smallest_difference is None


def test_the_smallest_difference_is_what_real_sweeps_show() -> None:
    """The half-widths that the comparison itself gives, for the same noise."""
    from powerband.analyze.intervals import compare_with_leader

    y = 0.02 * np.random.default_rng(2).standard_normal((400, 5, 6))
    half = compare_with_leader(y, 0.95).half
    assert float(np.expm1(np.median(half[half > 0]))) == pytest.approx(smallest_difference(0.02), rel=0.15)


def test_probing_gives_plausible_figures(tmp_path: Path) -> None:
    assert min(wake_ups_ns()) > 0
    assert min(timer_lateness_ns()) >= 0
    assert min(spin_times_ns()) > 0
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 1 5 100 4 2 3 7 0 0\ncpu0 1 1 1 1\n")
    assert cpu_times(stat) == {"busy": 21.0, "idle": 104.0, "steal": 7.0}
