"""Trials that the load engine or other programs spoilt."""

from __future__ import annotations

import pytest

from fakes.scenes import POLLER, SLEEPERS, pool, scene
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.model.bottlenecks import BottleneckName

B = BottleneckName


@pytest.mark.parametrize(
    ("code", "advice"),
    [("generator_no_ports", "what to do"), ("generator_cpu", "what to do"), ("generator_lag", "give it more threads")],
)
def test_a_load_generator_without_ports_is_not_given_threads(code: str, advice: str) -> None:
    found = bottleneck_of(scene(SLEEPERS, POLLER, codes=(code,)))
    assert found is not None and found.name is B.GENERATOR and found.advice.startswith(advice)


@pytest.mark.parametrize(("shares", "advice"), [(True, "of its own (host.pinning)"), (False, "stop the programs")])
def test_a_generator_that_waits_for_the_servers_cpus_gets_others(shares: bool, advice: str) -> None:
    waits = {"engine_run_wait_ns_mean": 2e6}
    seen = scene(pool("pool", 0.5, 0.3, lock=60), POLLER, metrics=waits, engine_wait_share=0.4, shares_cpus=shares)
    found = bottleneck_of(seen)
    assert found is not None and found.name is B.GENERATOR and advice in found.advice


def test_a_trial_that_the_hypervisor_spoilt_has_no_programs_to_stop() -> None:
    spoilt, both = (bottleneck_of(scene(SLEEPERS, codes=("host_steal", *more))) for more in ((), ("host_foreign",)))
    assert spoilt is not None and spoilt.name is B.HOST_CPU and "programs" not in spoilt.advice
    assert both is not None and both.advice.startswith("stop the other programs")
