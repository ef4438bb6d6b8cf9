from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree

import pytest

from fakes.pages import ROOT, tables
from powerband import doctor
from powerband.doctor import CheckStatus, _cpu, _noise, _observability, examine
from powerband.processes import cgroups
from powerband.processes.cgroups import limited
from powerband.search.noise import MachineNoise

QUIET = MachineNoise(
    wake_ns_p50=20_000,
    wake_ns_p99=60_000,
    timer_late_ns_p50=60_000,
    timer_late_ns_p99=200_000,
    speed_sd=0.005,
    speed_worst=0.01,
    steal_share=0.0,
    foreign_share=0.01,
)


def test_a_quiet_machine_gives_no_advice() -> None:
    assert all(finding.status is CheckStatus.OK and not finding.advice for finding in _noise(QUIET))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"wake_ns_p50": 1e6}, "wake-up"),
        ({"timer_late_ns_p99": 1e7}, "timers"),
        ({"speed_sd": 0.2}, "CPU speed"),
        ({"steal_share": 0.1}, "steal"),
        ({"foreign_share": 0.5}, "foreign CPU"),
    ],
)
def test_each_kind_of_noise_is_found_with_advice(change: dict[str, float], name: str) -> None:
    wrong = [finding for finding in _noise(replace(QUIET, **change)) if finding.status is not CheckStatus.OK]
    assert [finding.name for finding in wrong] == [name]
    assert wrong[0].advice


@pytest.mark.parametrize(
    ("cores", "quota", "wrong"),
    [
        (8, None, []),
        (8, 8.0, []),
        (8, 4.0, ["CPU quota"]),
        (8, 1.0, ["cores", "CPU quota"]),
        (1, None, ["cores"]),
    ],
)
def test_a_quota_counts_as_much_as_the_cores(cores: int, quota: float | None, wrong: list[str]) -> None:
    cpus = list(range(cores))
    cpu = {"cores": [[n] for n in cpus], "allowed": cpus, "model": "x", "governor": None, "cgroup_cpus_max": quota}
    found = list(_cpu({"cpu": cpu, "load_average": [0.0]}))
    assert [finding.name for finding in found if finding.status is not CheckStatus.OK] == wrong
    assert found[0].found == f"{cores} (x)" + (f", of which a quota allows {quota:g}" if quota else "")


@pytest.mark.parametrize(
    ("paranoid", "permitted", "good"),
    [(1, False, True), (2, False, False), (2, True, True), (None, False, False), (None, True, False)],
)
def test_context_switches_are_exact_only_where_the_kernel_may_be_watched(
    paranoid: int | None, permitted: bool, good: bool
) -> None:
    exact, _ = _observability({"perf_event_paranoid": paranoid, "perf_permitted": permitted, "psi": True})
    assert (exact.status is CheckStatus.OK) is good and bool(exact.advice) is not good
    assert ("sysctl" in exact.advice) is (paranoid == 2 and not permitted) and "None" not in exact.found


@pytest.mark.parametrize(
    ("controllers", "says"),
    [
        (("cpu", "memory"), "cgroups for CPU quotas and memory limits can be made"),
        (("cpu",), "only CPU quotas"),
        (("memory",), "only memory limits"),
        ((), "none"),
    ],
)
def test_limits_are_found_only_where_their_cgroups_can_be_made(
    controllers: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/install.md says that they are among what `doctor` shows."""
    shown = tables((ROOT / "docs" / "install.md").read_text())[1][0]
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("".join(f"4:{name}:/\n" for name in controllers))
    for name in controllers:
        (tmp_path / "sys" / "fs" / "cgroup" / name).mkdir(parents=True)
        (tmp_path / "sys" / "fs" / "cgroup" / name / "cgroup.procs").touch()
    monkeypatch.setattr(doctor, "limited", partial(limited, root=tmp_path))
    monkeypatch.setattr(cgroups, "_remove", rmtree)  # a folder that is no cgroup has files
    found = doctor._cgroups()
    assert found.name in shown and (found.status is CheckStatus.OK) is (len(controllers) == 2)
    assert found.found == says
    for controller, key in (("cpu", "cpu_quota"), ("memory", "memory_limit")):
        assert (f"host.{key} cannot be set here" in found.advice) is (controller not in controllers)
    assert not list(tmp_path.rglob("powerband-*"))


def test_this_machine_is_examined_whatever_it_is_like() -> None:
    found = examine()
    assert len({finding.name for finding in found}) == len(found) >= 10
    assert all(finding.found for finding in found)
