"""Compares powerband's engine and JMeter as the load on one server, in alternating pairs: the same rate and response
times, and the CPU that each took.

Both are closed loops: a number of users, each with a random pause. (Users with a constant pause who were once held up
together, for example by a garbage collection of JMeter's, stay in step, and JMeter's p99 then is their queue for its
CPU.) The warm-up is long: until JMeter's JVM has compiled itself, its p99 is some ms above what the server does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import kept_lines
from benchmarks.pairs import Spread, spread, worst
from powerband.analyze.trial.measure import measure
from powerband.base.errors import PowerbandError
from powerband.files.experiment_file import parse_experiment
from powerband.loads.jmeter.install import installed_jmeter
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.store import TrialDir
from powerband.trials.trial import run_trial

USERS, RAMP_S = 100, 10
LEAST_MS, MOST_MS = 25, 75
MARGIN = 0.03
CLOCK_MS = 1.0  # JMeter reports whole ms
EXPERIMENT = """
name: jmeter-pairs
subject: {{use: reference, set: {{model: event-loop, wait: 20ms}}}}
load: {load}
measure: {{warmup: 40s}}
"""
LOADS = {
    "engine": f"{{users: {USERS}, ramp: {RAMP_S}s, think: {{uniform: [{LEAST_MS}ms, {MOST_MS}ms]}}, duration: 10s}}",
    "JMeter": f"{{jmeter: examples/jmeter/plan.jmx, duration: 10s, properties: "
    f'{{host: "{{host}}", port: "{{port}}", users: {USERS}, ramp: {RAMP_S}, think_ms: {LEAST_MS}, '
    f"think_range_ms: {MOST_MS - LEAST_MS}}}}}",
}
CPU = ("engine_cpu_cores", "engine_cpu_ns_per_request")
TIMES = ("response_time_ns_mean", "response_time_ns_p50", "response_time_ns_p99")


def against_engine(engine: str, pairs: int) -> Iterator[str]:
    """Yields the differences in rates and times of pairs, in both directions, against the allowed ones."""
    os.environ["POWERBAND_ENGINE"] = engine
    try:
        with StopRequest.on_signals() as stop:
            installed_jmeter(stop)
    except PowerbandError as error:
        yield f"skipped: {error}"
        return
    found: dict[str, list[TrialResult]] = {name: [] for name in LOADS}
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder, StopRequest.on_signals() as stop:
        for number in range(pairs):
            for name in sorted(LOADS, reverse=number % 2 == 1):
                result = _trial(name, Path(folder) / name, number + 1, stop)
                if stop.requested:
                    return
                found[name].append(result)
                yield from (f"{name}, pair {number + 1}: {problem.message}" for problem in result.problems)
    whole = [at for at in range(pairs) if all(_counts(trials[at]) for trials in found.values())]
    yield f"{len(whole)} of {pairs} pairs count: both trials were measured, and nothing disturbed them"
    if whole:
        yield from _table({name: [trials[at] for at in whole] for name, trials in found.items()})


def _trial(name: str, folder: Path, number: int, stop: StopRequest) -> TrialResult:
    root = Path(__file__).resolve().parent.parent
    experiment: Experiment = parse_experiment(EXPERIMENT.format(load=LOADS[name]), str(root / "x.yaml"))
    spec = TrialSpec(number=number, block=number, attempt=1, setting=experiment.settings()[0], seed=number)
    directory = TrialDir(folder / f"{number:04d}")
    record = run_trial(experiment, spec, directory, steady=lambda _: True, observer=_Silent(), stop=stop)
    return measure(directory, record, experiment)


def _counts(trial: TrialResult) -> bool:
    return trial.valid and {"goodput_per_s", *CPU, *TIMES} <= set(trial.metrics)


def _table(found: Mapping[str, Sequence[TrialResult]]) -> Iterator[str]:
    def values(metric: str, unit: float = 1) -> tuple[list[float], list[float]]:
        ours, theirs = ([trial.metrics[metric] / unit for trial in found[name]] for name in LOADS)
        return ours, theirs

    yield "| | engine | JMeter | JMeter against engine | allowed | |"
    yield "|---|---|---|---|---|---|"
    yield rate_row("goodput per s", *values("goodput_per_s"))
    for metric in TIMES:
        yield time_row(f"{metric.removeprefix('response_time_ns_')} ms", *values(metric, 1e6))
    yield cpu_row("CPU, cores", *values("engine_cpu_cores"), ".4f")
    yield cpu_row("CPU, us a request", *values("engine_cpu_ns_per_request", 1e3), ".1f")


@kept_lines.row
def rate_row(name: str, ours: Sequence[float], theirs: Sequence[float]) -> str:
    """A line whose two sides may differ by `MARGIN`."""
    apart = spread([b / a - 1 for a, b in zip(ours, theirs, strict=True)])
    return (
        f"| {name} | {spread(ours).middle:.1f} | {spread(theirs).middle:.1f} | {apart.text('+.2%')} | {MARGIN:.0%} "
        f"| {_within(apart, MARGIN)} |"
    )


@kept_lines.row
def time_row(name: str, ours_ms: Sequence[float], theirs_ms: Sequence[float]) -> str:
    """A line whose two sides may differ by the clock of JMeter and by `MARGIN`."""
    allowed_ms = CLOCK_MS + MARGIN * spread(ours_ms).middle
    apart = spread([b - a for a, b in zip(ours_ms, theirs_ms, strict=True)])
    return (
        f"| {name} | {spread(ours_ms).middle:.2f} | {spread(theirs_ms).middle:.2f} | {apart.text('+.2f')} "
        f"| {allowed_ms:.2f} | {_within(apart, allowed_ms)} |"
    )


@kept_lines.row
def cpu_row(name: str, ours: Sequence[float], theirs: Sequence[float], form: str) -> str:
    """A line without a target: the CPU of both, and how many times as much JMeter takes."""
    times = spread([b / a for a, b in zip(ours, theirs, strict=True)])
    return f"| {name} | {spread(ours).middle:{form}} | {spread(theirs).middle:{form}} | {times.text('.1f')} times | | |"


def _within(found: Spread, allowed: float) -> str:
    """The verdict on a difference, which must not exceed the allowed one above or below."""
    return worst((found.verdict(at_most=allowed), found.verdict(at_least=-allowed)))


class _Silent:
    """An observer that says nothing."""

    def phase(self, name: str) -> None:
        pass

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None:
        pass
