"""How long a run of 500 trials takes to analyse, and in how much memory: the analysis alone, and `powerband report`;
and how large that report is, and when Chromium shows the first of it.

One trial of the reference subject is taken for real (10 s, 16 threads, ten samples a second), and its files stand in
for all others; only the number of answers differs a little, so that there is something to compare."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.pairs import met
from powerband.files.experiment_file import load_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.search.planners import dry_run
from powerband.store import RunDir, TrialDir
from powerband.trials.instruments.visitor import find_browser

SETTINGS, BLOCKS = 20, 25
SEED = 1
PAINTS = 9
ANALYSE = """
import sys
from pathlib import Path
from powerband.files.experiment_file import load_experiment
from powerband.search.session import analyse_run
from powerband.store import RunDir
run = RunDir.open(Path(sys.argv[1]))
assert sum(trial.valid for trial in analyse_run(load_experiment(run.experiment), run).trials) > 0
"""


def speed(engine: str, pairs: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        run = large_run(engine, Path(folder), SETTINGS, BLOCKS)
        size = sum(path.stat().st_size for path in run.trials.rglob("*") if path.is_file())
        yield f"{SETTINGS * BLOCKS} trials ({SETTINGS} settings x {BLOCKS} blocks), {size / 2**20:.0f} MiB"
        yield "| what | seconds (best, worst) | CPU seconds | largest resident set | target | |"
        yield "|---|---|---|---|---|---|"
        for name, argv in (
            ("analysis", ["-c", ANALYSE, str(run.path)]),
            ("`powerband report`, HTML included", ["-m", "powerband", "report", str(run.path)]),
        ):
            took = sorted(_timed([sys.executable, *argv]) for _ in range(min(3, pairs)))
            seconds, cpu, peak = took[0][0], took[0][1], max(rss for *_, rss in took)
            target = "5 s, 500 MB" if name == "analysis" else "-"
            verdict = met(seconds < 5 and peak < 500e6) if name == "analysis" else ""
            figures = f"{seconds:.2f}, {took[-1][0]:.2f} | {cpu:.2f} | {peak / 1e6:.0f} MB"
            yield f"| {name} | {figures} | {target} | {verdict} |"
        yield "| the report | measured | target | |"
        yield "|---|---|---|---|"
        size = run.report.stat().st_size
        yield f"| size | {size / 1e6:.2f} MB | 5 MB | {met(size < 5e6)} |"
        figures, verdict = "skipped: no Chromium on PATH", ""
        if paints := sorted(paint for paint, _ in openings_s(run.report.as_uri())):
            middle = statistics.median(paints)
            figures, verdict = f"{middle:.2f} ({paints[0]:.2f} to {paints[-1]:.2f}) s", met(middle < 1.5)
        yield f"| first paint in Chromium, median of {PAINTS} | {figures} | 1.5 s | {verdict} |"


def openings_s(address: str) -> list[tuple[float, float]]:
    """Of so many openings of a page: seconds to the first paint, and until all is there; empty without a browser."""
    binary = find_browser()
    if binary is None:
        return []
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(PAINTS):
            page = browser.new_page()
            page.goto(address)
            page.wait_for_selector("html[data-ready=yes]")
            painted = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            ready_ms, painted_ms = page.evaluate(f"[performance.now(), {painted}]")
            found.append((painted_ms / 1e3, ready_ms / 1e3))
            page.close()
        browser.close()
    return found


def large_run(engine: str, folder: Path, settings: int, blocks: int) -> RunDir:
    """A run directory of `settings` x `blocks` trials, all copies of one that was really run."""
    template = _one_trial(engine, folder / "one")
    experiment = _of_size(load_experiment(template.experiment), settings, blocks)
    run = RunDir.create(folder / "runs", "large", resolved_yaml(experiment), json.loads(template.host.read_text()))
    number = max(record.spec.number for record in template.records())
    rng = random.Random(SEED)
    for spec in dry_run(experiment, SEED):
        run.append_plan(spec)
        trial = run.trial(spec.number)
        shutil.copytree(template.trial(number).path, trial.path)
        trial.spec.write_text(json.dumps(spec.to_json()))
        _vary(trial, spec.to_json(), rng)
    return run


def _one_trial(engine: str, folder: Path) -> RunDir:
    """The last trial of the run is the one to copy, whether or not the machine was quiet enough for it to be valid."""
    subprocess.run(
        [
            *(sys.executable, "-m", "powerband", "tune", "-P", "threads=16", "--duration", "10s", "--warmup", "1s"),
            *("--repeats", "1", "--seed", str(SEED), "--no-progress", "--runs", str(folder), "--"),
            *(engine, "serve", "--model", "fixed", "--threads", "{threads}", "--wait", "5ms", "--port", "{port}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "POWERBAND_ENGINE": engine},
        check=False,
    )
    return RunDir.open(next(folder.iterdir()))


def _of_size(experiment: Experiment, settings: int, blocks: int) -> Experiment:
    """All blocks of a full grid, and every copy valid: the copies of a disturbed trial would all be disturbed."""
    return experiment.model_copy(
        update={
            "factors": {"threads": tuple(range(1, settings + 1))},
            "measure": experiment.measure.model_copy(update={"repeats": blocks, "foreign_cpu_max": 1.0}),
            "design": experiment.design.model_copy(update={"order": "blocks"}),
        }
    )


def _vary(trial: TrialDir, spec: dict[str, object], rng: random.Random) -> None:
    record = json.loads(trial.record.read_text())
    record["spec"] = spec
    for engine in record["engines"]:
        outcomes = engine["window"]["outcomes"]
        outcomes["ok"] = round(outcomes["ok"] * rng.uniform(0.995, 1.005))
    trial.record.write_text(json.dumps(record))


def _timed(argv: Sequence[str]) -> tuple[float, float, int]:
    """(seconds, of CPU, bytes of the largest resident set) of one command; it must end with 0, or 1 for its verdict."""
    start = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{argv} ended with {process.returncode}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
