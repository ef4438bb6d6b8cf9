"""Measures what watching takes from a subject that never waits: messages per second of actors with the probe on,
divided by those with it off.

A JVM runs on all CPUs, and so does the probe of a trial; in every other window the probe is stopped (SIGSTOP), in pairs
of windows whose order alternates. The result is the median over the pairs of each JVM, one per start, since the way its
threads meet differs from start to start. The counter is read at both ends of every window, so that reading it favours
neither. A second counts for as much of the busy CPUs' time as the hypervisor left them: what it takes comes in bursts
longer than a window, which is also why windows are short."""

from __future__ import annotations

import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from benchmarks import kept_lines
from benchmarks.pairs import spread
from powerband.base.errors import UserInterruptError
from powerband.files.experiment_file import load_experiment
from powerband.files.library import find_experiment
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.processes.cpus import CpuSplit
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import probe_spec, render
from powerband.search.noise import cpu_times
from powerband.store import RunDir
from powerband.trials.opening import build_subject
from powerband.wire.message import encode
from powerband.wire.specs import ProbeSpec, Watch

WARMUP_S, SETTLED_S, WINDOW_S = 20.0, 0.05, 1.0
WINDOWS = 60
COUNTER = "reflection_messages_total"
AT_LEAST = 0.99
SETTINGS = (
    ("1 pair, 6 balls, fork-join of 8", 1, 6, 8),
    ("4 pairs, 100 balls, fork-join of 2", 4, 100, 2),
    ("2 pairs, 1,000 balls, fork-join of 1", 2, 1000, 1),
)


def cost(engine: str, pairs: int) -> Iterator[str]:
    """Runs `pairs` JVMs of each setting, with `WINDOWS` pairs of windows each."""
    yield "| actors | JVMs | messages/s, probe off | probe on / off | at least | |"
    yield "|---|---|---|---|---|---|"
    for name, actors, balls, threads in SETTINGS:
        levels = {"dispatcher": "[fork-join]", "throughput": "[100]", "pairs": f"[{actors}]", "balls": f"[{balls}]"}
        overrides = {f"factors.{factor}": level for factor, level in levels.items()}
        overrides["subject.set.parallelism"] = str(threads)
        experiment = load_experiment(find_experiment("infinite-reflection"), "smoke", overrides)
        rates, ratios = zip(*(_of_a_jvm(engine, experiment) for _ in range(pairs)), strict=True)
        yield jvm_row(name, rates, ratios, AT_LEAST)


@kept_lines.row
def jvm_row(name: str, rates_off: Sequence[float], ratios: Sequence[float], at_least: float) -> str:
    """A line of the table: what each JVM gave."""
    found = spread(ratios)
    return (
        f"| {name} | {found.n} | {spread(rates_off).text(',.0f')} | {found.text('.4f')} | {at_least:.2f} "
        f"| {found.verdict(at_least=at_least)} |"
    )


def _of_a_jvm(engine: str, experiment: Experiment) -> tuple[float, float]:
    """Medians over the pairs of windows of one start: the rate with the probe off, and the ratio on / off."""
    off, ratios = [], []
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder, StopRequest.on_signals("") as stop:
        given = build_subject(experiment.subject, RunDir.create(Path(folder), "watching", "", {}), stop)
        setting = Setting(tuple((name, levels[0]) for name, levels in experiment.factors.items()))
        rendered = render(experiment.subject, setting, Path(engine), given=given)
        log, errors = Path(folder) / "subject.log", Path(folder) / "engine.log"
        spec = probe_spec(experiment.subject, rendered, CpuSplit(), log, experiment.scraped)
        with _subject(rendered.argv, log) as pid:
            page = str(rendered.metrics_url)
            time.sleep(WARMUP_S)
            with _probe(engine, spec, pid, errors) as probe:
                for nth in range(WINDOWS):
                    if stop.requested:
                        raise UserInterruptError("stopped")
                    rates = {}
                    for is_on in (nth % 2 == 0, nth % 2 == 1):
                        probe.send_signal(signal.SIGCONT if is_on else signal.SIGSTOP)
                        time.sleep(SETTLED_S)
                        rates[is_on] = _rate_per_s(page)
                    off.append(rates[False])
                    ratios.append(rates[True] / rates[False])
    return statistics.median(off), statistics.median(ratios)


@contextmanager
def _subject(argv: tuple[str, ...], log: Path) -> Iterator[int]:
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while "ready: " not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the actors do not start: {log.read_text()[-400:]}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextmanager
def _probe(engine: str, spec: ProbeSpec, pid: int, errors: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a probe as in a trial, except that the subject was started by this program."""
    attached = spec.model_copy(update={"launch": None, "watch": (Watch(name="subject", pid=pid),)})
    with tempfile.TemporaryFile() as lines, errors.open("ab") as stderr:
        process = subprocess.Popen([engine, "probe"], stdin=subprocess.PIPE, stdout=lines, stderr=stderr)
        assert process.stdin is not None
        process.stdin.write(encode(attached))
        process.stdin.flush()
        try:
            yield process
            if process.poll() is not None:
                raise RuntimeError(f"the probe ended: {errors.read_text()[-400:]}")
        finally:
            process.send_signal(signal.SIGCONT)
            process.stdin.close()
            process.wait(timeout=10)
        lines.seek(0)
        readings = lines.read().count(b'"type":"scrape"')
        if readings < WINDOWS:
            raise RuntimeError(f"the probe read the counter {readings} times only: it does not watch as in a trial")


def _rate_per_s(page: str) -> float:
    cpus, count, at_s = cpu_times(), *_count(page)
    time.sleep(WINDOW_S)
    later_cpus, later, later_s = cpu_times(), *_count(page)
    busy, stolen = (later_cpus[name] - cpus[name] for name in ("busy", "steal"))
    return (later - count) / (later_s - at_s) * (busy + stolen) / busy


def _count(page: str) -> tuple[float, float]:
    with urlopen(page, timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{COUNTER} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{page} has no {COUNTER}")
    return float(found[1]), time.monotonic()
