"""Measures the analysis of a run of 500 trials: time and memory of the analysis alone and of `powerband report`, the
size of that report, and the time until Chromium shows the first of it.

One trial of the reference subject is really run (10 s, 16 threads, ten samples a second), and its files stand in for
all others; only the number of answers differs slightly, so that there is something to compare."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.pairs import HEAD, figure, run
from powerband.files.experiment_file import load_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.search.planners import dry_run
from powerband.store import RunDir, TrialDir
from powerband.trials.instruments.visitor import find_browser

SETTINGS, BLOCKS = 20, 25
SEED = 1
SECONDS_MOST, MB_MOST, REPORT_MB_MOST, PAINT_S_MOST = 5.0, 500, 5, 1.5
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
        made = large_run(engine, Path(folder), SETTINGS, BLOCKS)
        size = sum(path.stat().st_size for path in made.trials.rglob("*") if path.is_file())
        yield f"{SETTINGS * BLOCKS} trials ({SETTINGS} settings x {BLOCKS} blocks), {size / 2**20:.0f} MiB\n"
        yield HEAD
        for name, argv, seconds_most, mb_most in (
            ("analysis", ["-c", ANALYSE, str(made.path)], SECONDS_MOST, MB_MOST),
            ("`powerband report`, HTML included", ["-m", "powerband", "report", str(made.path)], math.inf, math.inf),
        ):
            used = [run([sys.executable, *argv], os.sched_getaffinity(0), ends=(0, 1)) for _ in range(pairs)]
            yield figure(name, [one.wall_s for one in used], "s", ".2f", at_most=seconds_most)
            yield figure(f"{name}: CPU", [one.cpu_s for one in used], "s", ".2f")
            yield figure(
                f"{name}: largest resident set", [one.peak_bytes / 1e6 for one in used], "MB", ".0f", at_most=mb_most
            )
        size = made.report.stat().st_size
        yield figure("size of the report", [size / 1e6], "MB", ".2f", at_most=REPORT_MB_MOST)
        paints = [paint for paint, _ in openings_s(made.report.as_uri(), pairs)]
        if paints:
            yield figure("its first paint in Chromium", paints, "s", ".2f", at_most=PAINT_S_MOST)
        else:
            yield "\nskipped: no Chromium on PATH"


def openings_s(address: str, openings: int) -> list[tuple[float, float]]:
    """Opens a page `openings` times. Returns, for each, the seconds to the first paint and until everything is there;
    empty without a browser."""
    binary = find_browser()
    if binary is None:
        return []
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(openings):
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
    """Runs one trial for copying: the last one of the run, whether or not the machine was quiet enough for it to be
    valid."""
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
    """The experiment of the large run: all blocks of a full grid, and every copy counts as valid (copies of a disturbed
    trial would all be disturbed)."""
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
