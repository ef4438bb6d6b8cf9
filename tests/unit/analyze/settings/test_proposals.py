from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fakes.contests import SAVING, judged, noisy, results, setting
from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.model.bottlenecks import BottleneckName
from powerband.model.plan import number_of
from powerband.model.results import AnswerKind, Bottleneck
from powerband.model.runtime import RuntimeView


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({1: 100, 2: 200, 4: 400}, "threads=4 is the largest value tried: try larger ones too."),
        ({2: 400, 4: 200, 8: 100}, "threads=2 is the smallest value tried: try smaller ones too."),
        ({1: 400, 2: 200, 4: 100}, ""),
        ({1: 100, 2: 400, 4: 200}, ""),
        ({1: 100, 2: 400}, ""),
    ],
)
def test_a_best_setting_at_the_edge_of_what_was_tried_says_so(rates: dict[int, float], said: str) -> None:
    """Fewer than one thread are none, and two values may be a switch."""
    trials = results({threads: noisy(rate, threads) for threads, rate in rates.items()})
    found = judged(trials, tuple(rates)).answer.sentences[1]
    assert said in found and (said or " value tried" not in found)
    none = Bottleneck(BottleneckName.NONE, ("no request queues",), "")
    idle = judged([replace(trial, bottleneck=none) for trial in trials], tuple(rates)).answer.sentences[1]
    assert "largest value tried" not in idle, "the load is the limit"


@pytest.mark.parametrize(
    ("levels", "threads_added", "limit", "proposed"),
    [
        ((256, 512, 1024), 0.0, BottleneckName.DISK, True),  # not a number of threads: users do not bound it
        ((25, 51, 60), 0.0, BottleneckName.DISK, True),
        ((16, 32, 60), 1.0, BottleneckName.DISK, True),
        ((16, 32, 64), 1.0, BottleneckName.DISK, False),  # each user has a thread
        ((1, 2, 4), 1.0, BottleneckName.SUBJECT_CPU, False),  # more threads do not help
        ((1, 2, 4), 1.0, BottleneckName.CPU_QUOTA, False),
        ((1, 2, 4), 1.0, BottleneckName.TOO_MANY_RUNNABLE_THREADS, False),
        ((1, 2, 4), 1.0, BottleneckName.LOCK, False),
        ((1, 2, 4), 1.0, BottleneckName.DOWNSTREAM, False),
        ((1, 2, 4), 1.0, None, False),  # its CPUs are busy
        ((1, 2, 4), 1.0, BottleneckName.POOL_TOO_SMALL, True),
        ((1, 2, 4), 0.0, BottleneckName.SUBJECT_CPU, True),  # it may make a request cheaper
    ],
)
def test_larger_values_are_proposed_unless_they_are_threads_that_serve_no_more(
    levels: tuple[int, ...], threads_added: float, limit: BottleneckName | None, proposed: bool
) -> None:
    rates = {level: noisy(100 * (1 + place), level) for place, level in enumerate(levels)}
    counts = {level: {"threads_max": 10 + threads_added * level, "subject_cpu_share": 0.97} for level in levels}
    named = None if limit is None else Bottleneck(limit, (), "")
    trials = [replace(trial, bottleneck=named) for trial in results(rates, counts)]
    found = analyse(experiment({"threads": levels}, load={"users": 64, "duration": 10**10}), trials).answer
    assert found.setting == setting(levels[-1])
    assert ("the largest value tried: try larger ones too" in found.sentences[1]) is proposed


def test_more_threads_are_proposed_for_a_program_that_nobody_loads() -> None:
    """The users of its load stand for nothing."""
    counts = {"series": "n_total", "noun": "message"}
    made = experiment(
        subject={"name": "s", "command": ("s", "{threads}", "{statsd_port}"), "counts": counts},
        load={"users": 1, "duration": 10**10},
    )
    pool = Bottleneck(BottleneckName.POOL_TOO_SMALL, (), "")
    trials = [replace(trial, bottleneck=pool) for trial in results({n: noisy(100 * n, n) for n in (1, 2, 4)})]
    found = analyse(made, trials).answer
    assert "threads=4 is the largest value tried: try larger ones too" in found.sentences[1]


@pytest.mark.parametrize(
    ("advice", "processes_added", "proposed"),
    [
        ("start more processes: more threads only wait longer", 1, True),
        ("start more processes: more threads only wait longer", 0, False),  # it adds threads
        ("hold the lock for less, split it, or do without", 1, False),  # all processes wait for one
    ],
)
def test_more_processes_are_proposed_where_each_has_the_lock_that_is_the_limit(
    advice: str, processes_added: int, *, proposed: bool
) -> None:
    levels = (1, 2, 4)
    named = Bottleneck(BottleneckName.LOCK, (), advice)
    views = {n: RuntimeView("Python", 1 + processes_added * n, "os.cpu_count", 8, "derived", 8.0) for n in levels}
    made = results({n: noisy(100 * n, n) for n in levels}, {n: {"threads_max": 4.0 * n} for n in levels})
    at = [number_of(trial.setting.as_dict()["threads"]) for trial in made]
    trials = [replace(each, bottleneck=named, runtimes=(views[int(n or 0)],)) for each, n in zip(made, at, strict=True)]
    found = analyse(experiment({"threads": levels}), trials).answer
    assert found.setting == setting(4)
    assert ("threads=4 is the largest value tried: try larger ones too" in found.sentences[1]) is proposed


@pytest.mark.parametrize(
    ("advice", "processes_added", "rate_of_more", "told"),
    [
        ("start more processes: the interpreter", 1, 50, "threads=2, with more processes, was tried: it is worse"),
        ("start more processes: the interpreter", 1, 100, "threads=2, with more processes, was tried: it is no better"),
        ("start more processes: the interpreter", 0, 50, "start more processes: the interpreter"),
        ("hold the lock for less, split it, or do without", 1, 50, "hold the lock for less, split it, or do without"),
    ],
)
def test_the_advice_to_start_more_processes_says_what_became_of_them(
    advice: str, processes_added: int, rate_of_more: int, told: str
) -> None:
    named = Bottleneck(BottleneckName.LOCK, (), advice)
    made = results(
        {1: noisy(100, 1), 2: noisy(rate_of_more, 2)},
        {n: {"threads_max": 40.0 * n, "rss_bytes_max": n} for n in (1, 2)},
    )
    trials = [
        replace(
            each,
            bottleneck=named,
            runtimes=(RuntimeView("Python", 1 + processes_added * (each.setting == setting(2)), "", 8, "", 8.0),),
        )
        for each in made
    ]
    analysis = analyse(experiment({"threads": (1, 2)}), trials)
    (found,) = [row.bottleneck for row in analysis.settings if row.setting == analysis.answer.setting == setting(1)]
    assert found is not None and found.advice == told


def pooled(goodput: Mapping[int, float], threads: Sequence[int], sd: float = 0.005, **objective: Any) -> Bottleneck:
    """The bottleneck of the setting to use, where a pool is too small in these, and p99 rises with threads."""
    values = {level: noisy(rate, level, sd=sd) for level, rate in goodput.items()}
    extra = {level: {"response_time_ns_p99": 1e6 * level} for level in goodput}
    small = Bottleneck(BottleneckName.POOL_TOO_SMALL, ("32 requests queue",), "give `pool` more threads")
    trials = [
        replace(trial, bottleneck=small if trial.setting in map(setting, threads) else None)
        for trial in results(values, extra)
    ]
    analysis = judged(trials, tuple(goodput), **objective)
    (found,) = [row.bottleneck for row in analysis.settings if row.setting == analysis.answer.setting]
    assert found is not None
    return found


def test_the_advice_for_a_pool_says_what_became_of_more_threads() -> None:
    more = {16: 500.0, 32: 900.0, 64: 1000.0}
    tried = "threads=64, with more threads, was tried: it "
    assert pooled(more, (16, 32), subject_to=["p99 < 50ms"]).advice == f"{tried}violates the SLO"
    assert pooled({**more, 64: 900.0}, (16, 32)).advice == f"{tried}is no better"
    assert pooled({**more, 64: 700.0}, (16, 32)).advice == f"{tried}is worse"
    assert pooled(more, (16, 32, 64)).advice == "give `pool` more threads", "no larger value was tried"
    # Verdicts are to the leader, threads=64, which may be better than the cheapest.
    assert pooled({16: 380.0, 32: 990.0, 64: 1000.0}, (32,), sd=0.02).advice == "give `pool` more threads"
    assert pooled({16: 195.0, 32: 790.0, 64: 3140.0}, (16,), **SAVING).advice == (
        "threads=32, with more threads, was tried: it is worse"
    )


def test_of_settings_that_are_equivalent_no_smaller_one_is_said_to_be_better() -> None:
    found = judged(results({n: noisy(400, n) for n in (2, 4, 8)}), (2, 4, 8)).answer
    assert found.kind is not AnswerKind.BEST
    assert "threads=2 is the smallest value tried: a smaller one may serve as much." in found.sentences[1]
