from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.cpus_kept import counts_cpus, cpus_kept, holds_for, runtime_limits
from powerband.analyze.settings.standing import Standing
from powerband.loads import kind_of
from powerband.model.cpu_use import CpuUse
from powerband.model.load import Exponential, Load
from powerband.model.plan import Setting
from powerband.model.results import Estimate, SettingResult, TrialResult, Verdict
from powerband.model.runtime import RuntimeView


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
        (Load(rate_per_s=500), "with 500/s offered"),
    ],
)
def test_the_load_is_named(load: Load, words: str) -> None:
    made = experiment(load=load)
    assert kind_of(made).load_words(load) == words


OTHERS, SHARED = ", the load generator on others", ", by a quota that the load generator may share"
ONE = Setting((("threads", 1),))
FAR: dict[str, Any] = {"cluster": {"generators": 1}}
COUNTED: dict[str, Any] = {
    "subject": {"name": "s", "command": ("s", "{statsd_port}"), "counts": {"series": "n_total", "noun": "message"}}
}


def on_two_of_sixteen(quota: float | None, *, shared: bool, **changes: Any) -> Standing:
    """A setting whose server had two CPUs of sixteen, and this CPU quota."""
    estimates = {} if quota is None else {"cpu_quota_cores": Estimate(quota, None, None, 0.95, 3)}
    row = SettingResult(ONE, 3, 0, estimates, None, Verdict.EQUIVALENT, True)
    made, cpus = experiment(**changes), CpuUse(2, 16, shared=shared)
    return Standing(experiment=made, rows=[row], leader=ONE, contenders=frozenset(), blocks=3, cpus=cpus)


@pytest.mark.parametrize(
    ("quota", "own", "shared", "said"),
    [
        (None, None, False, OTHERS),
        (2.0, None, False, SHARED),
        (2.0000000000000004, None, False, SHARED),
        (2.0, None, True, ""),
        (2.0, 2.0, False, OTHERS),
        (4.0, None, False, OTHERS),  # the server has fewer CPUs than that
    ],
)
def test_under_a_quota_of_all_the_load_generator_has_no_other_cpus(
    quota: float | None, own: float | None, shared: bool, said: str
) -> None:
    """`docker run --cpus=2` with powerband and server in the container: on whatever CPUs they run, both use up two."""
    standing = on_two_of_sixteen(quota, shared=shared, host={"cpu_quota": own})
    assert holds_for(standing, ONE).endswith(f"never pause, on 2 of this machine's 16 CPUs{said}")


@pytest.mark.parametrize(("quota", "said"), [(None, ""), (2.0, ", by a quota"), (4.0, "")])
@pytest.mark.parametrize("changes", [FAR, COUNTED])
def test_a_load_generator_that_is_not_on_this_machine_is_on_none_of_its_cpus(
    changes: dict[str, Any], quota: float | None, said: str
) -> None:
    standing = on_two_of_sixteen(quota, shared=False, **changes)
    assert holds_for(standing, ONE).endswith(f", on 2 of this machine's 16 CPUs{said}")


def trial(workers: int, *views: RuntimeView, cpus: CpuUse | None = None) -> TrialResult:
    at = Setting((("workers", workers),))
    use = cpus or CpuUse(2, 2, shared=True)
    return TrialResult(1, 0, 1, at, "measured", (), {}, cpus=use, runtimes=views)


def go(cpus: int | None, usable: float = 2, processes: int = 1) -> RuntimeView:
    return RuntimeView("Go", processes, "GOMAXPROCS", cpus, "read", usable)


WORKERS = {"factors": {"workers": (1, 2)}, "subject": {"name": "fake", "command": ("fake", "{workers}")}}


@pytest.mark.parametrize(
    ("workers", "view", "said"),
    [
        (2, go(1), "Go has GOMAXPROCS 1, of the 2 CPUs that the server has"),
        (2, go(2, usable=1), "Go may use 1 by its CPU affinity or quota, of the 2 CPUs that the server has"),
        (2, go(None, usable=1), "Go may use 1 by its CPU affinity or quota, of the 2 CPUs that the server has"),
        (1, go(1), None),  # no more workers than it runs at once
        (2, go(2), None),
        (2, go(1, processes=2), None),  # a CPU for each
    ],
)
def test_a_setting_that_counts_more_than_the_runtime_uses(workers: int, view: RuntimeView, said: str | None) -> None:
    made = experiment(**WORKERS)
    warned = list(runtime_limits(made, [trial(workers, view), trial(workers, view)]))
    assert warned == ([] if said is None else [f"workers={workers} counts more than can run at once: {said}"])


def test_cpus_that_were_kept_are_told_with_what_the_runtime_made_of_them() -> None:
    view = RuntimeView("JVM", 1, "availableProcessors", 1, "asked", 1, {"collector": "Serial"})
    kept = CpuUse(1, 2, shared=False)
    (warning,) = cpus_kept(experiment(**WORKERS), kept, [trial(1, view, cpus=kept)])
    assert "2 CPUs (JVM has availableProcessors 1 and the Serial collector); --cpus all" in warning


def test_what_a_parameter_sets_in_the_runtime_is_not_said_of_the_cpus() -> None:
    kept = CpuUse(1, 2, shared=False)
    results = [trial(workers, go(workers), RuntimeView("Python", 1, "cpu_count", 1, "set", 1), cpus=kept)
               for workers in (1, 2, 4, 3)]  # fmt: skip
    (warning,) = cpus_kept(experiment(**WORKERS), kept, results)
    assert "2 CPUs (Python has cpu_count 1); --cpus all" in warning
    (warning,) = cpus_kept(experiment(**WORKERS), kept, [replace(each, runtimes=each.runtimes[:1]) for each in results])
    assert "2 CPUs; --cpus all" in warning


@pytest.mark.parametrize(
    ("cpus", "host", "by_itself"),
    [
        (CpuUse(8, 128, shared=False), {}, True),
        (CpuUse(94, 128, shared=False), {}, False),
        (CpuUse(48, 128, shared=False), {}, False),
        (CpuUse(1, 2, shared=True), {}, True),
        (CpuUse(1, 2, shared=True), {"cpus": "all"}, True),
        (CpuUse(4, 16, shared=False), {"cpus": 8}, True),
        (CpuUse(4, 16, shared=False), {"cpus": 4}, False),
        (CpuUse(4, 16, shared=False), {"cpus": "0-3"}, False),
        (CpuUse(1, 4, shared=True), {"pinning": {"subject": "0", "engine": "0"}}, False),
    ],
)
def test_an_affinity_of_the_servers_own_is_not_widened_by_more_cpus(
    cpus: CpuUse, host: dict[str, Any], by_itself: bool
) -> None:
    (warning,) = cpus_kept(experiment(**WORKERS, host=host), cpus)
    assert warning.endswith("; its own CPU affinity allows no more") is by_itself
    assert ("; --cpus all" in warning) is not by_itself


@pytest.mark.parametrize(
    "quotas",
    [
        pytest.param([0.5], id="its own"),
        pytest.param([0.5, 1.0], id="another setting has more"),
        pytest.param([None], id="one that is known of powerband alone"),
    ],
)
def test_a_quota_is_not_widened_by_more_cpus(quotas: list[float | None]) -> None:
    had = CpuUse(0.5, 2, shared=True)
    results = [
        replace(trial(1, cpus=had), metrics={} if quota is None else {"cpu_quota_cores": quota}) for quota in quotas
    ]
    (warning,) = cpus_kept(experiment(**WORKERS), had, results)
    assert warning.endswith("the server had 0.5 of this machine's 2 CPUs; its CPU quota allows no more")
