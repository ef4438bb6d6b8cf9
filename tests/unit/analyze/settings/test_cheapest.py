from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from fakes.contests import judged, noisy, results, setting
from fakes.trials import experiment
from powerband.analyze.settings.contest import ResponseTable, cheapest_of, cost_of
from powerband.analyze.settings.in_place import NO_DIFFERENCE
from powerband.model.experiment import Objective
from powerband.model.plan import Setting
from powerband.model.results import AnswerKind, TrialResult


def test_of_equivalent_settings_the_cheapest_is_the_answer() -> None:
    quiet = {1: noisy(100, 1, sd=0.001), 2: noisy(399.5, 2, sd=0.001), 4: noisy(400, 3, sd=0.001)}
    answer = judged(results(quiet)).answer
    assert answer.kind is AnswerKind.EQUIVALENT_SET
    assert set(answer.equivalent) == {setting(2), setting(4)}
    assert answer.setting == setting(2)


def test_a_race_and_the_answer_agree_on_which_of_equals_is_the_cheapest() -> None:
    """10 MB once and 100 MB twice are less than 60 MB by the geometric mean (46), and more by the arithmetic mean
    (70)."""
    trials = results({2: [400.0, 401.0, 400.5], 4: [400.1, 401.1, 400.6]}, {n: {"threads_max": 4.0} for n in (2, 4)})
    memory = {(2, 0): 60e6, (2, 1): 60e6, (2, 2): 60e6, (4, 0): 10e6, (4, 1): 100e6, (4, 2): 100e6}
    trials = [
        replace(
            trial, metrics={**trial.metrics, "rss_bytes_max": memory[trial.setting.as_dict()["threads"], trial.block]}
        )
        for trial in trials
    ]
    race = experiment({"threads": (2, 4)}, objective=Objective())
    table = ResponseTable(race, race.settings(), trials)
    assert (
        judged(trials, (2, 4)).answer.setting
        == setting(4)
        == cheapest_of({each: table.cost(each) for each in table.settings})[0]
    )


def of_costs(costs: Mapping[int, tuple[float, float]], seed: int = 0, spread: float = 0.0) -> list[TrialResult]:
    """Trials of equivalent settings with so many threads and bytes each; memory varies by `spread`."""
    dice = random.Random(seed)
    return [
        replace(
            trial,
            metrics={
                **trial.metrics,
                "threads_max": costs[level][0],
                "rss_bytes_max": costs[level][1] * dice.uniform(1 - spread, 1 + spread),
                "subject_cpu_cores": 0.9,
            },
        )
        for trial in results({level: [400.0, 401.0, 400.5] for level in costs})
        if isinstance(level := trial.setting.as_dict()["threads"], int)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_noise_in_memory_makes_no_setting_the_cheapest(seed: int) -> None:
    levels = (2, 4, 8)
    answer = judged(of_costs(dict.fromkeys(levels, (66.0, 1e8)), seed, 0.003), levels).answer
    assert answer.kind is AnswerKind.EQUIVALENT_SET and answer.setting == setting(2)
    assert "all cost alike, and the first is named" in answer.sentences[1]
    assert "cheape" not in " ".join(answer.sentences)
    assert NO_DIFFERENCE in answer.sentences


@pytest.mark.parametrize(
    ("costs", "named", "words"),
    [
        ({2: (9, 3e8), 4: (9, 2e8), 8: (9, 1e8)}, 8, ", but threads=8 is the cheapest."),
        ({2: (90, 1e8), 4: (9, 1.1e8)}, 4, ", but threads=4 is cheaper."),
        ({2: (90, 1e8), 4: (9, 3e8)}, 4, ", but threads=4 has fewer threads."),
        ({2: (90, 1e8), 4: (9, 3e8), 8: (20, 3e8)}, 4, ", but threads=4 has the fewest threads."),
        (
            {2: (10, 2e8), 4: (11, 1e8), 8: (30, 1e7)},
            4,
            ", but threads=4 is the cheapest by threads, then memory, then CPU.",
        ),
        (
            {2: (30, 1e8), 4: (10, 1.1e8), 8: (11, 1e8)},
            4,
            "; threads=4 and threads=8 cost least, and alike: the first is",
        ),
        (
            {2: (30, 1e7), 4: (10, 1.1e8), 8: (11, 1e8)},
            4,
            "; threads=4 and threads=8 cost least by threads, then memory, then CPU",
        ),
        ({2: (10, 1.1e8), 4: (11, 1e8)}, 2, "; both cost alike, and the first is named."),
    ],
)
def test_the_cheapest_costs_less_by_more_than_noise(
    costs: dict[int, tuple[float, float]], named: int, words: str
) -> None:
    trials = of_costs(costs)
    for order in (trials, trials[::-1]):
        answer = judged(order, tuple(costs)).answer
        assert answer.setting == setting(named) and words in answer.sentences[1]
        assert (NO_DIFFERENCE in answer.sentences) is ("both" in words)


@pytest.mark.parametrize("metric", ["subject_cpu_ns_per_request", "subject_cpu_cores"])
@pytest.mark.parametrize(
    ("cpu", "named", "words"),
    [
        ({2: 2.4, 4: 1.1, 8: 0.7}, 8, ", but threads=8 is the cheapest."),
        ({2: 2.4, 4: 0.8, 8: 0.7}, 4, "; threads=4 and threads=8 cost least, and alike: the first is named."),
        ({2: 0.8, 4: 0.75, 8: 0.7}, 2, "; all cost alike, and the first is named."),
    ],
)
def test_of_settings_alike_in_threads_and_memory_the_one_that_uses_the_least_cpu_is_the_cheapest(
    cpu: dict[int, float], named: int, words: str, metric: str
) -> None:
    """gzip at levels 9, 6 and 1, under a load that all serve."""
    trials = [
        replace(trial, metrics={**trial.metrics, metric: cpu[level]})
        for trial in of_costs(dict.fromkeys(cpu, (9, 1e8)))
        if isinstance(level := trial.setting.as_dict()["threads"], int)
    ]
    answer = judged(trials, tuple(cpu)).answer
    assert answer.setting == setting(named) and words in answer.sentences[1]


def test_a_part_of_a_thread_makes_nothing_cheaper_where_memory_differs() -> None:
    lean, fat = ({"threads_max": threads, "rss_bytes_max": rss} for threads, rss in ((8.04, 1e6), (8.01, 2e6)))
    assert cost_of(lean) < cost_of(fat) < cost_of({**lean, "threads_max": 9.0})


@pytest.mark.parametrize("each", [{}, {"subject_cpu_ns_per_request": 1.0}])
@pytest.mark.parametrize(("cores", "named"), [((0.02, 0.01), [1, 2]), ((0.2, 0.1), [2]), ((0.055, 0.01), [1, 2])])
def test_cpu_of_a_server_that_does_next_to_nothing_is_no_cost(
    each: dict[str, float], cores: tuple[float, float], named: list[int]
) -> None:
    costs = {
        setting(threads): cost_of({"subject_cpu_cores": used} | {name: one * used for name, one in each.items()})
        for threads, used in zip((1, 2), cores, strict=True)
    }
    assert cheapest_of(costs) == [setting(threads) for threads in named]


def test_of_settings_that_cost_alike_the_one_with_the_lowest_limits_is_the_cheapest() -> None:
    levels = ((4, "1GiB"), (1, "512MiB"), (1.0, "256MiB"), (2, "128MiB"))
    limited = [Setting((("host.cpu_quota", quota), ("host.memory_limit", size))) for quota, size in levels]
    alike = cost_of({"threads_max": 9.0, "rss_bytes_max": 1e8})
    assert cheapest_of(dict.fromkeys(limited, alike)) == [limited[2]]
    assert cheapest_of({**dict.fromkeys(limited, alike), limited[0]: cost_of({"threads_max": 5.0})}) == [limited[0]]
    assert cheapest_of({}) == []


def test_where_the_cheapest_of_equivalent_ones_is_named_no_other_is_better_than_the_leader() -> None:
    """threads=4 may be up to 3.8 % better than threads=1, which is cheaper than the leader, threads=2."""
    rates = {1: noisy(978, 3, 10, 0.002), 2: noisy(1000, 53, 10, 0.002), 4: noisy(999, 103, 10, 0.03)}
    answer = judged(results(rates)).answer
    assert answer.kind is AnswerKind.EQUIVALENT_SET and answer.setting == setting(1) and answer.leader == setting(2)
    assert answer.regret is not None and 0.03 < answer.regret < 0.04
    assert "No setting is better than threads=2 by more than 3 %; threads=4 may be equivalent." in answer.sentences[1]
