"""The duration of a race, an exploration or a search for capacities on so many nodes, in simulated time: trials of the
planner's plan run side by side, each as long as a trial takes, on nodes of different speeds. Nothing is started.

`python -m fakes.nodes_simulated` prints how long each takes."""

from __future__ import annotations

import heapq
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fakes.edges import Server, answers_of, capacity_experiment, setting
from fakes.queues import Queue, queue_answers
from fakes.trials import Figures, record_of, write_trial
from fakes.trials import experiment as fake_experiment
from powerband.analyze.settings.compare import analyse
from powerband.cluster.joining import Remote
from powerband.cluster.nodes_bench import ClusterBench
from powerband.cluster.parcels import pack
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Setting, Stage, TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.planners import planner_for
from powerband.search.session import run_session
from powerband.store import RunDir, TrialDir

START_STOP_S = 1.5  # of a trial of the reference subject on two CPUs, besides its warm-up and window
BETWEEN_S = 0.05  # between two trials on a node
TRIAL_S = START_STOP_S + 1.0 + 10.0  # of the default load
NODE_SD, START_SD = 0.10, 0.02  # of the logs: speeds of nodes, noise between starts


@dataclass(frozen=True)
class Simulated:
    """A simulated run. `explored_s`: when its exploration ended; 0.0 if it had none."""

    took_s: float
    explored_s: float
    trials: int
    chosen: Setting | None
    analysis: Analysis


def race(experiment: Experiment, nodes: int, rates: Sequence[float], seed: int) -> Simulated:
    """Simulates a race. `rates`: the rate of each setting, in the order of the plan, on a node of average speed."""
    dice = random.Random(f"{seed}/{nodes}")
    speeds = [math.exp(dice.gauss(0, NODE_SD)) for _ in range(nodes)]
    rate_of = dict(zip(experiment.settings(), rates, strict=True))

    def answer(spec: TrialSpec, speed: float) -> dict[str, float]:
        rate = rate_of[spec.setting] * speed * math.exp(dice.gauss(0, START_SD))
        return {"goodput_per_s": rate, "error_rate": 0.0}

    return simulate(experiment, speeds, answer, seed)


def search(servers: Sequence[Server | Queue], nodes: int, seed: int, node_sd: float = NODE_SD) -> Simulated:
    """Simulates a search for the capacities of these servers; a queue's `limit_s` is 50 ms."""
    made = capacity_experiment(tuple(range(1, len(servers) + 1)))
    by_setting = dict(zip(made.settings(), servers, strict=True))
    dice = np.random.default_rng((seed, nodes))
    speeds = np.exp(node_sd * dice.standard_normal(nodes)).tolist()

    def answer(spec: TrialSpec, speed: float) -> dict[str, float]:
        server = by_setting[spec.setting]
        if isinstance(server, Queue):
            queue = replace(server, mean_s=server.mean_s / speed)
            return dict(queue_answers(queue, dice, made.load.duration_ns / 1e9)(spec).metrics)
        here = replace(server, most_per_s=server.most_per_s * speed)
        return dict(answers_of({spec.setting.as_dict()["threads"]: here}, dice)(spec).metrics)

    return simulate(made, speeds, answer, seed)


def simulate(
    experiment: Experiment,
    speeds: Sequence[float],
    answer: Callable[[TrialSpec, float], dict[str, float]],
    seed: int,
    slow: float = 1.0,
) -> Simulated:
    """Simulates a run on nodes of these speeds. `answer`: the metrics of a trial on a node of such a speed. `slow`: how
    many times as long as on the others a trial takes on the first node."""
    made = experiment.model_copy(update={"design": experiment.design.model_copy(update={"seed": seed})})
    nodes = len(speeds)
    planner = planner_for(made, seed, nodes=nodes)
    now_s, explored_s, results = 0.0, 0.0, list[TrialResult]()
    running: list[tuple[float, int, int, TrialSpec, float]] = []
    idle = list(range(nodes))

    def begin(node: int, spec: TrialSpec) -> None:
        window_ns = spec.window_ns or made.load.duration_ns
        warmup_ns = made.warmup_ns_of(spec.stage) or (500_000_000 if spec.stage is Stage.SCREEN else 1_000_000_000)
        took_s = (START_STOP_S + (warmup_ns + window_ns) / 1e9) * (slow if node == 0 else 1.0)
        heapq.heappush(running, (now_s + BETWEEN_S + took_s, spec.number, node, spec, took_s))

    while True:
        while idle and (spec := planner.ask()) is not None:
            begin(idle.pop(0), spec)
        if not running:
            break
        now_s, _, node, spec, took_s = heapq.heappop(running)
        result = _result(spec, answer(spec, speeds[node]), node, took_s)
        results.append(result)
        planner.tell(result)
        explored_s = now_s if spec.stage is Stage.EXPLORE else explored_s
        if (following := planner.ask(spec.block)) is not None:
            begin(node, following)
        else:
            idle.append(node)
    analysis = analyse(made, sorted(results, key=lambda each: each.number), planner.progress)
    return Simulated(now_s, explored_s, len(results), analysis.answer.setting, analysis)


def _result(spec: TrialSpec, metrics: dict[str, float], node: int, took_s: float) -> TrialResult:
    return TrialResult(
        spec.number, spec.block, spec.attempt, spec.setting, "measured", (), metrics,
        stage=spec.stage, rate_per_s=spec.rate_per_s, took_s=took_s, node=f"n{node}",
        window_s=None if spec.window_ns is None else spec.window_ns / 1e9,
    )  # fmt: skip


def questions() -> dict[str, tuple[Experiment, list[float]]]:
    """Experiments with the rates of their settings: a grid of blocks, and a race in which the best is 4 % ahead."""
    levels = (1, 2, 4, 8, 16, 32)
    rates = [200.0, 400.0, 800.0, 1000.0, 1040.0, 990.0]
    grid = fake_experiment({"threads": levels}, measure={"repeats": 16}, design={"order": "blocks", "seed": 1})
    raced = fake_experiment({"threads": levels}, measure={"repeats": 25}, design={"order": "race", "seed": 1})
    screened = raced.model_copy(update={"design": raced.design.model_copy(update={"screen_ns": 500_000_000})})
    return {
        "16 blocks of 6 settings": (grid, rates),
        "a race of 6 settings, the best 4 % ahead": (raced, rates),
        "the same, with short trials first (as `tune`)": (screened, rates),
    }


def large() -> tuple[Experiment, list[float]]:
    """A space of 256 settings that is explored, with the rates of its settings: they fall off smoothly from the best,
    and the next are 9 % behind."""
    factors: dict[str, tuple[Level, ...]] = {
        "threads": tuple(2**power for power in range(8)),
        "queue": tuple(10 * 3**power for power in range(8)),
        "policy": ("abort", "caller", "discard", "block"),
    }
    made = fake_experiment(factors, measure={"repeats": 4}, design={"order": "race", "seed": 1})
    places = [[factors[name].index(level) for name, level in setting.levels] for setting in made.settings()]
    off = (0.1, 0.2, 0.0, 0.3)
    return made, [1000 * math.exp(-0.1 * abs(t - 5) ** 1.5 - 0.09 * abs(q - 3) - off[p]) for t, q, p in places]


SERVERS = (Server(1000.0), Server(1500.0))
SEARCHED: dict[str, Server | Queue] = {
    "sharp cliff": Server(sd=0.01, p99_sd=0.01),
    "cliff, 30 % of trials fall short": Server(sd=0.01, p99_sd=0.01, lapses=0.3),
    "starts differ by 2 %": Server(),
    "M/M/1": Queue(1, "exponential", 0.002, 0.05),
}


def cases() -> dict[str, tuple[Callable[[int, int], Simulated], Setting]]:
    """By question: what simulates it with a number of nodes and a seed, and the right setting."""
    found: dict[str, tuple[Callable[[int, int], Simulated], Setting]] = {}
    for name, (made, rates) in questions().items():
        best = made.settings()[rates.index(max(rates))]
        found[name] = (lambda nodes, seed, made=made, rates=rates: race(made, nodes, rates, seed)), best
    made, rates = large()
    best = made.settings()[rates.index(max(rates))]
    found["a space of 256 settings, explored and raced"] = (lambda nodes, seed: race(made, nodes, rates, seed)), best
    found["two capacities, one 1.5 times the other"] = (lambda nodes, seed: search(SERVERS, nodes, seed)), setting(2)
    return found


def table(seeds: Sequence[int]) -> str:
    heads = ["question", "nodes", "simulated time", "as fast as one", "trials", "the right setting"]
    rows = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|---|"]
    for name, (simulated, best) in cases().items():
        alone = 0.0
        for nodes in (1, 2, 4, 8):
            runs = [simulated(nodes, seed) for seed in seeds]
            took_s = median(run.took_s for run in runs)
            alone = alone or took_s
            right = sum(run.chosen == best for run in runs)
            trials = median(run.trials for run in runs)
            cells = [
                name,
                nodes,
                f"{took_s:.0f} s",
                f"{alone / took_s:.1f}",
                f"{trials:.0f}",
                f"{right} of {len(runs)}",
            ]
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def searches_table(seeds: Sequence[int]) -> Iterator[str]:
    """The rows of searches for the capacity of one server, on nodes of one speed: their duration and intervals."""
    yield "| server | nodes | simulated time | as fast as one | hold the truth | half-width |"
    yield "|---|---|---|---|---|---|"
    for name, server in SEARCHED.items():
        alone = 0.0
        for nodes in (1, 2, 4, 8):
            runs = [search([server], nodes, seed, node_sd=0.0) for seed in seeds]
            took_s = median(run.took_s for run in runs)
            alone = alone or took_s
            found = [interval(run) for run in runs]
            held = sum(low <= server.capacity_per_s <= high for low, high in found)
            half = median(math.log(high / low) / 2 for low, high in found)
            cells = [name, nodes, f"{took_s:.0f} s", f"{alone / took_s:.1f}", f"{held} of {len(runs)}", f"{half:.1%}"]
            yield f"| {' | '.join(map(str, cells))} |"


def interval(run: Simulated) -> tuple[float, float]:
    """The interval of the only setting's capacity."""
    (row,) = run.analysis.settings
    assert row.capacity is not None and row.capacity.estimate is not None
    found = row.capacity.estimate
    assert found.low is not None and found.high is not None
    return found.low, found.high


class AtOnce:
    """The nodes of a cluster, whose trials end at once. `cpu_s`: CPU seconds that this took."""

    def __init__(self, folder: Path, rates: Mapping[Setting, float]) -> None:
        self._folder, self._rates = folder, rates
        self._written: dict[Setting, TrialDir] = {}
        self.cpu_s = 0.0

    def trial(self, order: Mapping[str, Any]) -> Future[Any]:
        began_s = time.process_time()
        spec = TrialSpec.from_json(order["spec"])
        rate = self._rates[spec.setting]
        figures = Figures(goodput_per_s=rate, response_ns=10e9 / rate)
        record = replace(record_of(spec, figures), node=order["node"])
        directory = self._written.setdefault(spec.setting, TrialDir(self._folder / spec.setting.id))
        if not directory.events.is_file():
            write_trial(directory, record, figures)
        directory.spec.write_text(json.dumps(spec.to_json()))
        directory.write_record(record)
        answer: Future[Any] = Future()
        answer.set_result({"parcel": pack(directory.path), "ray_cpu_s": {}, "ray_took_s": TRIAL_S, "between_s": None})
        self.cpu_s += time.process_time() - began_s
        return answer


def driven(nodes: int, folder: Path) -> tuple[float, Analysis]:
    """Runs a round of two settings on each of so many nodes, as a driver does, of trials of usual size that end at
    once. Returns the CPU seconds of the driver for each trial, and the analysis."""
    made = fake_experiment({"threads": (1, 2)}, measure={"repeats": nodes}, design={"order": "blocks", "seed": 1})
    there = AtOnce(folder, dict(zip(made.settings(), (500.0, 1000.0), strict=True)))
    remotes = [Remote(f"n{number}", "127.0.0.1", lambda _, order: there.trial(order)) for number in range(nodes)]
    run = RunDir.create(folder / "runs", made.name, resolved_yaml(made), {})
    began_s = time.process_time()
    with closing(StopRequest()) as stop:
        analysis = run_session(made, run, Observer(), stop, bench=lambda job: nullcontext(ClusterBench(job, remotes)))
    return (time.process_time() - began_s - there.cpu_s) / len(analysis.trials), analysis


def main() -> None:
    for nodes in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            cpu_s, _ = driven(nodes, Path(folder))
        sys.stdout.write(f"{nodes} nodes: {1000 * cpu_s:.1f} ms of CPU of the driver for each trial\n")
    sys.stdout.write("\n" + table(range(20)) + "\n\n")
    for row in searches_table(range(25)):
        sys.stdout.write(row + "\n")


if __name__ == "__main__":
    main()
