"""The CPU time of loops of idle priority counts as idle time of the host."""

from __future__ import annotations

from powerband.readings.probe_samples import read_probe

SECOND = 1_000_000_000


def test_what_kept_cpus_awake_is_idle_and_no_tree() -> None:
    def sample(at_s: int) -> dict[str, object]:
        loop = {"name": "awake-7", "cpu_user_ns": (at_s - 1) * 9 * SECOND // 10, "cpu_system_ns": 0}
        subject = {"name": "subject", "cpu_user_ns": at_s * SECOND // 20, "cpu_system_ns": 0}
        host = {"cpu_busy_ns": at_s * SECOND, "cpu_idle_ns": at_s * SECOND, "psi_cpu_some_ns": at_s * SECOND}
        trees = [subject, loop] if at_s else [subject]
        return {"type": "sample", "at_ns": at_s * SECOND, "trees": trees, "host": host}

    probe = read_probe([sample(at_s) for at_s in range(6)])
    assert probe is not None
    assert list(probe.trees) == ["subject"] and len(probe.awake) == 1
    stretch = 2 * SECOND, 4 * SECOND
    assert probe.host.growth("cpu_busy_ns", *stretch) == 2 * SECOND - 1.8 * SECOND
    assert probe.host.growth("cpu_idle_ns", *stretch) == 2 * SECOND + 1.8 * SECOND
    assert probe.host.growth("psi_cpu_some_ns", *stretch) is None
    assert probe.awake[0].cores(*stretch) == 0.9
