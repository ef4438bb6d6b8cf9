"""The words of the answer, for each kind of answer and each way to reach it, from the real analysis of made-up trials.
After an intended change of the text run with POWERBAND_UPDATE_GOLDEN=1 and read the difference."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.model.experiment import Objective
from powerband.model.load import Load
from powerband.model.plan import Setting
from powerband.model.results import Analysis, AnswerKind, Problem, TrialResult

GOLDEN = Path(__file__).parent / "answers.txt"
DIED = "the server exited with code 137 after 4.2 s"
LAGGED = "the load generator's busiest thread used 97 % of a CPU (limit 90 %): it was the limit, not the server"
LEVELS = (4, 8, 16, 32)
Lost = Mapping[int, tuple[str, str, str]]  # threads to status, code, message of all its trials


def noisy(mean: float, seed: int, blocks: int = 5, sd: float = 0.005) -> list[float]:
    return [float(value) for value in mean * np.exp(sd * np.random.default_rng(seed).standard_normal(blocks))]


def costs(threads: int) -> dict[str, float]:
    """Memory, threads and CPU of an I/O-bound server on one CPU."""
    return {
        "threads_max": threads + 2.0,
        "rss_bytes_max": 4e6 + 1e5 * threads,
        "subject_cpu_cores": 0.025 * threads,
        "subject_cpu_share": 0.025 * threads,
        "host_busy_share": 0.99,
        "error_rate": 0.0,
    }


def run(
    values: Mapping[int, Sequence[float]], metric: str = "goodput_per_s", lost: Lost | None = None, **more: Any
) -> Analysis:
    """Analyses made-up trials. `values`: the values of `metric` by threads, one for each block; `more`: further metrics
    by threads, the load, the objective."""
    load = more.pop("load", Load(users=64, duration=10**10))
    extra: Mapping[int, Mapping[str, Any]] = more.pop("extra", {})
    trials = []
    for threads in LEVELS:
        setting = Setting((("threads", threads),))
        if lost and threads in lost:
            status, code, message = lost[threads]
            problems = (Problem(code, message),)
            trials += [TrialResult(0, block, 1, setting, status, problems, {}) for block in range(5)]
        for block, value in enumerate(values.get(threads, ())):
            metrics = {**costs(threads), metric: value}
            for name, given in extra.get(threads, {}).items():
                metrics[name] = given[block] if isinstance(given, list) else given
            trials.append(TrialResult(0, block, 1, setting, "measured", (), metrics))
    made = experiment({"threads": LEVELS}, objective=Objective(metric=metric, **more), load=load)
    return analyse(made, [TrialResult(**{**vars(trial), "number": i + 1}) for i, trial in enumerate(trials)])


CLEAR = {4: noisy(100, 1), 8: noisy(200, 2), 16: noisy(400, 3), 32: noisy(380, 4)}
SAME = {4: noisy(100, 1), 8: noisy(399, 2, sd=0.001), 16: noisy(400, 3, sd=0.001), 32: noisy(399.5, 4, sd=0.001)}
LOUD = {threads: noisy(100, threads, sd=0.2) for threads in LEVELS}
DEAFENING = {threads: noisy(100, threads, sd=0.9) for threads in LEVELS}
ALIKE = {4: noisy(60, 1, sd=0.05), **{threads: noisy(100, threads + 7, sd=0.03) for threads in LEVELS[1:]}}
RISING = {4: noisy(100, 1), 8: noisy(200, 2), 16: noisy(400, 3), 32: noisy(800, 4)}
ERRORS = {4: [0.0] * 5, 8: noisy(0.10, 2), 16: noisy(0.20, 3), 32: noisy(0.40, 4)}


def slow(*means: float, sd: float = 0.01) -> dict[int, dict[str, Any]]:
    pairs = zip(LEVELS, means, strict=True)
    return {threads: {"response_time_ns_p99": noisy(mean * 1e6, threads, sd=sd)} for threads, mean in pairs}


def near_the_limit(*threads: int) -> dict[int, dict[str, Any]]:
    """p99 response times by threads. Those of the given threads are within 50 ms in every start, but vary so much that
    their mean may lie beyond."""
    return {of: {"response_time_ns_p99": [12e6, 49e6, 14e6, 48e6, 49e6] if of in threads else 1e7} for of in LEVELS}


def some_failed(*threads: int) -> Analysis:
    """An analysis in which a third of the starts of these settings died."""
    lost: Lost = dict.fromkeys(threads, ("failed", "died", DIED))
    return run({**RISING, **{of: noisy(100 * of, of) for of in threads}}, lost=lost)


CASES: dict[str, tuple[AnswerKind, Callable[[], Analysis]]] = {
    "best": (AnswerKind.BEST, lambda: run(CLEAR)),
    "best at the CPU's limit": (
        AnswerKind.BEST,
        lambda: run(RISING, extra={32: {"subject_cpu_share": 0.97, "subject_cpu_cores": 0.97}}),
    ),
    "best, another fails by its own fault": (
        AnswerKind.BEST,
        lambda: run({**CLEAR, 32: []}, lost={32: ("failed", "died", DIED)}),
    ),
    "best under a constraint that others certainly miss": (
        AnswerKind.BEST,
        lambda: run(RISING, subject_to=["p99 < 50ms"], extra=slow(10, 20, 30, 90)),
    ),
    "the only one that meets the constraint": (
        AnswerKind.BEST,
        lambda: run(RISING, subject_to=["p99 < 50ms"], extra=slow(20, 70, 80, 90)),
    ),
    "best of a share": (AnswerKind.BEST, lambda: run(ERRORS, "error_rate", direction="minimise")),
    "equivalent set": (AnswerKind.EQUIVALENT_SET, lambda: run(SAME)),
    "equivalent set, all users have a thread": (
        AnswerKind.EQUIVALENT_SET,
        lambda: run(SAME, load=Load(users=8, duration=10**10)),
    ),
    "equivalent set of an open load": (
        AnswerKind.EQUIVALENT_SET,
        lambda: run(
            SAME,
            load=Load(rate=400.0, duration=10**10),
            extra={threads: {"offered_rate_per_s": 400.0} for threads in LEVELS},
        ),
    ),
    "equivalent set, one undecided": (
        AnswerKind.EQUIVALENT_SET,
        lambda: run({**SAME, 32: [398.0, 388.0, 404.0, 393.0, 400.0]}),
    ),
    "bounded: noise": (AnswerKind.BOUNDED, lambda: run(LOUD)),
    "bounded: the cheapest of equal settings": (AnswerKind.BOUNDED, lambda: run(ALIKE)),
    "bounded: response times": (
        AnswerKind.BOUNDED,
        lambda: run(
            {threads: [1e9 / value for value in values] for threads, values in ALIKE.items()},
            "response_time_ns_p99",
            direction="minimise",
        ),
    ),
    "not enough data: noise": (AnswerKind.NOT_ENOUGH_DATA, lambda: run(DEAFENING)),
    "not enough data: one block": (
        AnswerKind.NOT_ENOUGH_DATA,
        lambda: run({threads: values[:1] for threads, values in CLEAR.items()}),
    ),
    "not enough data: one could not be measured": (
        AnswerKind.NOT_ENOUGH_DATA,
        lambda: run({**CLEAR, 32: []}, lost={32: ("measured", "generator_cpu", LAGGED)}),
    ),
    "not enough data: one was not tried": (AnswerKind.NOT_ENOUGH_DATA, lambda: run({**CLEAR, 32: []})),
    "not enough data: the best may break the constraint": (
        AnswerKind.NOT_ENOUGH_DATA,
        lambda: run(RISING, subject_to=["p99 < 50ms"], extra=near_the_limit(32)),
    ),
    "not enough data: all may break the constraint": (
        AnswerKind.NOT_ENOUGH_DATA,
        lambda: run(RISING, subject_to=["p99 < 50ms"], extra=near_the_limit(*LEVELS)),
    ),
    "not enough data: none was seen to meet the constraint": (
        AnswerKind.NOT_ENOUGH_DATA,
        lambda: run(
            {threads: values[:1] for threads, values in RISING.items()},
            subject_to=["p99 < 50ms"],
            extra=slow(90, 90, 90, 52),
        ),
    ),
    "the best broke the constraint in some starts": (
        AnswerKind.EQUIVALENT_SET,
        lambda: run(RISING, subject_to=["p99 < 50ms"], extra=slow(10, 20, 30, 49, sd=0.05)),
    ),
    "none feasible: each broke the constraint in some starts": (
        AnswerKind.NONE_FEASIBLE,
        lambda: run(RISING, subject_to=["p99 < 50ms"], extra=slow(90, 90, 90, 48, sd=0.1)),
    ),
    "best, one that gave more failed some starts": (AnswerKind.BEST, lambda: some_failed(32)),
    "none feasible: all failed some starts": (AnswerKind.NONE_FEASIBLE, lambda: some_failed(*LEVELS)),
    "none feasible: the nearest misses by least": (
        AnswerKind.NONE_FEASIBLE,
        lambda: run(RISING, subject_to=["p99 < 50ms", "error_rate < 1%"], extra=slow(90, 80, 60, 70)),
    ),
    "none valid": (
        AnswerKind.NONE_VALID,
        lambda: run({}, lost=dict.fromkeys(LEVELS, ("failed", "died", DIED))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_kind_of_answer(name: str) -> None:
    kind, make = CASES[name]
    answer = make().answer
    assert answer.kind is kind
    assert (answer.setting is not None) == (answer.regret is not None)
    assert (answer.setting is not None) == (kind in (AnswerKind.BEST, AnswerKind.EQUIVALENT_SET, AnswerKind.BOUNDED))


def test_every_kind_of_answer_has_its_words() -> None:
    assert {kind for kind, _ in CASES.values()} == set(AnswerKind)
    text = "".join(
        f"# {name}\n" + "".join(f"{line}\n" for line in make().answer.sentences) + "\n"
        for name, (_, make) in CASES.items()
    )
    if os.environ.get("POWERBAND_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
