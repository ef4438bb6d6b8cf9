from __future__ import annotations

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.cpus_kept import counts_cpus, cpus_kept
from powerband.loads import kind_of
from powerband.model.cpu_use import CpuUse
from powerband.model.load import Exponential, Load


@pytest.mark.parametrize(
    "name",
    ["threads", "workers", "http.workers", "poolSize", "GOMAXPROCS", "event_loops", "processes", "n-proc", "cluster"],
)
def test_factors_that_count_threads_or_processes_are_known_by_name(name: str) -> None:
    assert counts_cpus(name)


@pytest.mark.parametrize("name", ["load.engine_threads", "queue", "heap", "score", "mode"])
def test_others_are_not(name: str) -> None:
    assert not counts_cpus(name)


@pytest.mark.parametrize(
    ("factor", "cpus", "warned"),
    [
        ("threads", CpuUse(1, 2, shared=False), True),
        ("threads", CpuUse(0.5, 2, shared=True), True),
        ("threads", CpuUse(2, 2, shared=True), False),
        ("queue", CpuUse(1, 2, shared=False), False),
        ("threads", None, False),
    ],
)
def test_a_warning_where_such_a_factor_did_not_get_all_cpus(factor: str, cpus: CpuUse | None, warned: bool) -> None:
    made = experiment({factor: (1, 2)}, subject={"name": "fake", "command": ("fake", f"{{{factor}}}")})
    assert bool(list(cpus_kept(made, cpus))) is warned


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(users=64), "with 64 users that never pause"),
        (Load(users=1), "with 1 user that never pauses"),
        (Load(users=2, think=Exponential(mean_ns=3_000_000_000)), "with 2 users that pause 3s"),
        (Load(rate_per_s=500), "at 500/s"),
    ],
)
def test_the_load_is_named(load: Load, words: str) -> None:
    made = experiment(load=load)
    assert kind_of(made).load_words(load) == words
