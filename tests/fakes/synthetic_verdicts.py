"""Analyses with everything behind an answer: a race, a capacity search, bottlenecks, pools, rules of thumb.

As `synthetic`: the numbers follow a simple law, so that the shapes are those of a real run, and nothing is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fakes import synthetic
from fakes.synthetic import LADDER, setting
from powerband.model.bottlenecks import BottleneckName
from powerband.model.plan import Level, Setting, Stage
from powerband.model.results import (
    Analysis,
    Answer,
    AnswerKind,
    Bottleneck,
    Capacity,
    CapacityPoint,
    Confirmation,
    Departure,
    Estimate,
    Exploration,
    Look,
    PoolUse,
    Race,
    RuleVerdict,
    SettingResult,
    TrialResult,
    Verdict,
)

SLO_NS = 250e6
_OUT_AFTER = {1: 0, 2: 0, 4: 1, 8: 1, 16: 1, 256: 2, 128: 3}  # threads: the block after which they leave


def race_analysis(levels: Sequence[Level] = LADDER, **changes: object) -> Analysis:
    """A confirmed race over pool sizes, decided after five blocks, in which 32 and 64 stay; with bottlenecks and
    rules."""
    base = synthetic.analysis(levels)
    trials = [
        replace(trial, pools=pools(_threads(trial.setting)), bottleneck=bottleneck(_threads(trial.setting)))
        for trial in base.trials
        if trial.block <= _OUT_AFTER.get(_threads(trial.setting), 4)
    ]
    winner, rival = setting(threads=32), setting(threads=64)
    for block in range(3):
        for of in (winner, rival):
            values = synthetic.metrics_of(_threads(of), 0.99 + 0.004 * block)
            trials.append(
                TrialResult(len(base.trials) + len(trials), block, 1, of, "measured", (), values, 3.0, "steady",
                            Stage.CONFIRM, None, 14.1, True, pools(_threads(of)), bottleneck(_threads(of)))
            )  # fmt: skip
    trials = [replace(trial, number=number, steady=number != 3) for number, trial in enumerate(trials, 1)]
    race = race_of(base.settings)
    rows = tuple(
        replace(row, bottleneck=bottleneck(_threads(row.setting)), trials=sum(t.setting == row.setting for t in trials))
        for row in base.settings
    )
    values: dict[str, object] = {
        "settings": rows,
        "trials": tuple(trials),
        "race": replace(race, trials=len(trials) - 6, grid_trials=len(levels) * 5, confirmation=confirmation()),
        "rules": rules(),
        "exploration": Exploration(240, 60, len(levels)),
        "claims": (),
    }
    return replace(base, **{**values, **changes})  # type: ignore[arg-type]


def explored_analysis() -> Analysis:
    """The race with the exploration before it, in which sixty pool sizes are tried once each."""
    analysis = race_analysis()
    first = len(analysis.trials) + 1
    sizes = [*(int(level) for level in LADDER if not isinstance(level, str)), *range(5, 250, 5)]
    looks = [
        TrialResult(first + i, 0, 1, setting(threads=n), "measured", (), synthetic.metrics_of(n, 1 + math.sin(n) / 50),
                    3.0, "steady", Stage.EXPLORE)
        for i, n in enumerate(sizes)
    ]  # fmt: skip
    return replace(analysis, trials=(*analysis.trials, *looks), exploration=Exploration(256, len(looks), len(LADDER)))


def race_of(rows: Sequence[SettingResult]) -> Race:
    """A race of five looks, whose intervals narrow with the root of the number of blocks."""
    looks, departures = [], []
    leader = setting(threads=64)
    for block in range(5):
        effects = {}
        left = []
        for row in rows:
            out = _OUT_AFTER.get(_threads(row.setting), 9)
            if out < block or row.effect is None:
                continue
            ratio = row.effect.value * (1 + 0.012 * math.sin(3 * _threads(row.setting) + block))
            half = 0.09 / math.sqrt(block + 1) + 0.16 * (block == 0)
            effect = Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half), 0.95, block + 1)
            effects[row.setting.id] = effect
            if out == block:
                left.append(row.setting)
                reason = "worse than threads=64 by more than 3 %"
                departures.append(Departure(row.setting, block, reason, effect, worse=True))
        looks.append(Look(block, leader, effects, tuple(left)))
    return Race(tuple(looks), tuple(departures), 33, 45, "decided", looks[-1].block + 1)


def confirmation() -> Confirmation:
    return Confirmation(
        setting=setting(threads=32),
        rival=setting(threads=64),
        trials=3,
        race=Estimate(1481.0, 1466.0, 1496.0, 0.95, 4),
        confirmed=Estimate(1472.0, 1455.0, 1489.0, 0.95, 3),
        shrinkage=Estimate(0.0061, -0.0088, 0.021, 0.95, 3),
        advantage=Estimate(1.004, 0.991, 1.018, 0.95, 3),
        upheld=True,
        agrees=True,
        sentence="Three fresh starts uphold it: 1,472/s against 1,481/s in the race (0.6 % less).",
    )


def bottleneck(threads: int) -> Bottleneck:
    """The bottleneck of a pool size: small pools are too small, the load is the limit of middle ones, and large ones
    want more CPU than there is."""
    if threads <= 16:
        evidence = (f"all {threads} threads busy 98 % of the time", "CPU in use 12 %", "40 requests wait for a thread")
        return Bottleneck(BottleneckName.POOL_TOO_SMALL, evidence, "Use more threads.")
    if threads <= 64:
        return Bottleneck(BottleneckName.NONE, ("CPU in use 44 %", "no request waits"), "Offer more load to find more.")
    evidence = (f"{threads / 40:.1f} threads runnable per CPU", "11 % of their time waiting for a CPU")
    return Bottleneck(BottleneckName.TOO_MANY_RUNNABLE_THREADS, evidence, "Use fewer threads.")


def pools(threads: int) -> tuple[PoolUse, ...]:
    cpu = min(0.44, threads * 0.0148)
    wait = 0.0005 * threads
    blocked = threads - cpu - wait
    sleep, lock = (0.9, 0.02) if threads <= 64 else (0.6, 0.32)
    worker = PoolUse("worker", float(threads), cpu, wait, blocked, {"sleep": sleep, "lock": lock, "other": 0.08})
    return (worker, PoolUse("acceptor", 1.0, 0.02, 0.001, 0.979, {"poll": 1.0}))


def rules() -> tuple[RuleVerdict, ...]:
    return (
        RuleVerdict("Goetz", "1 CPU x (1 + 20.0 ms / 0.30 ms)", "Goetz et al., Java Concurrency in Practice, 8.2", 67.7,
                    setting(threads=64), Estimate(0.999, 0.985, 1.013, 0.95, 5), None, "threads"),
        RuleVerdict("N+1", "1 CPU + 1", "Goetz et al., 8.2", 2.0, setting(threads=2),
                    Estimate(0.066, 0.065, 0.067, 0.95, 5)),
        RuleVerdict("2N", "2 x 1 CPU", "folklore", 2.0, setting(threads=2), Estimate(0.066, 0.065, 0.067, 0.95, 5)),
        RuleVerdict("M/M/c", "1,480/s x 20.3 ms = 30.0 busy; 95 % find a thread", "Erlang 1917", 41.0,
                    setting(threads=32), Estimate(1.0, 1.0, 1.0, 0.95, 4)),
        RuleVerdict("USL", "N* = sqrt((1 - 0.01) / b)", "Gunther 1993", None, None, None,
                    "throughput had not peaked by 256 threads: try more"),
    )  # fmt: skip


def capacity_analysis(levels: Sequence[Level] = (4, 8, 16, 32, 64)) -> Analysis:
    """An analysis of capacity under `p99 < 250ms`: most settings have a capacity, one meets the limit at no rate."""
    rows, trials = [], []
    for threads in (int(level) for level in levels if not isinstance(level, str)):
        of = setting(threads=threads)
        found = capacity(threads)
        for point in found.curve:
            for attempt in range(point.trials):
                values = {**synthetic.metrics_of(threads), "goodput_per_s": point.goodput_per_s or 0.0}
                values |= {"response_time_ns_p99": point.p99_ns or 0.0, "response_time_ns_p50": point.p50_ns or 0.0}
                trials.append(
                    TrialResult(len(trials) + 1, attempt, 1, of, "measured", (), values, 3.0, "steady", Stage.CAPACITY,
                                point.rate_per_s, 12.0, True, pools(threads), bottleneck(threads))
                )  # fmt: skip
        estimates = {"capacity_per_s": found.estimate} if found.estimate else {}
        effect = Estimate(min(1.0, threads / 32), min(1.0, threads / 33), min(1.0, threads / 31), 0.95, 6)
        verdict = Verdict.EQUIVALENT if threads >= 32 else Verdict.WORSE
        because = () if found.estimate else (found.note,)
        rows.append(
            SettingResult(of, sum(p.trials for p in found.curve), 0, estimates, effect if found.estimate else None,
                          verdict, found.estimate is not None, because, (), bottleneck(threads), found)
        )  # fmt: skip
    best = setting(threads=32)
    sentences = (
        "Use threads=32: it holds p99 < 250ms up to 1,420/s (1,390 to 1,450).",
        "threads=64 holds it as far, within 3 %.",
    )
    answer = Answer(AnswerKind.EQUIVALENT_SET, best, best, (best, setting(threads=64)), (), sentences)
    return synthetic.analysis(
        name="capacity", question="How much can each pool take?", objective="capacity_per_s", answer=answer,
        settings=tuple(rows), trials=tuple(trials), constraints=("p99 < 250ms", "errors < 0.1%"), warnings=(),
        claims=(), rules=rules(),
    )  # fmt: skip


def guessed_analysis(*guessed: int) -> Analysis:
    """Returns that analysis with guesses for these numbers of threads: none of their trials met the limit."""

    def never_held(row: SettingResult) -> SettingResult:
        assert row.capacity is not None
        curve = tuple(replace(point, held=0) for point in row.capacity.curve)
        return replace(row, capacity=replace(row.capacity, curve=curve))

    base = capacity_analysis()
    rows = (never_held(row) if _threads(row.setting) in guessed else row for row in base.settings)
    return replace(base, settings=tuple(rows))


def capacity(threads: int) -> Capacity:
    most = min(threads, 32) / 0.0203 * 0.94
    if threads == 4:
        curve = (_point(20.0, 3, 0, 310e6), _point(60.0, 1, 0, 600e6))
        return Capacity(None, curve, "p99 < 250ms holds at no rate that was tried, down to 20/s")
    shares = ((0.3, 1, 1), (0.6, 1, 1), (0.9, 2, 2), (0.97, 4, 4), (1.0, 5, 3), (1.04, 4, 0), (1.2, 1, 0))
    curve = tuple(
        _point(share * most, n, held, 24e6 * (1 + 2.6 * share**8 + 9 * max(0.0, share - 0.99))) for share, n, held in
        shares
    )  # fmt: skip
    return Capacity(Estimate(most, most * 0.98, most * 1.02, 0.95, 13), curve)


def _point(rate: float, trials: int, held: int, p50_ns: float) -> CapacityPoint:
    failing = held < trials
    p99 = p50_ns * 1.4 if held == trials else max(p50_ns * 2, SLO_NS * (1.05 if held else 1.6))
    return CapacityPoint(rate, trials, held, p50_ns, p99, 0.002 if failing else 0.0, rate * (0.97 if failing else 1.0))


def _threads(of: Setting) -> int:
    level = of.levels[0][1]
    assert isinstance(level, int)
    return level
