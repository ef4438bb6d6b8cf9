"""Finds earlier runs of an experiment on the same machine, in the folder of a run. In: a run. Out: the objective of
each setting in each earlier run, from its analysis as it was written; a run that cannot be read is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from powerband.analyze.runs.two_runs import ComparedRun
from powerband.analyze.runs.unpaired import experiment_differences, host_differences
from powerband.analyze.stored import stored_analysis
from powerband.base.errors import PowerbandError
from powerband.files.experiment_file import load_experiment
from powerband.model.plan import Setting
from powerband.store import RunDir, read_host

BYTES_MOST = 1 << 26  # larger files are not read: anybody may have put them there
MOST = 20  # the latest runs: older ones may be of another state of the machine


def earlier_runs(of: ComparedRun, at: Path, but: Path) -> list[dict[Setting, float]]:
    """The objective of each setting, for each run in the folder of `at` that ran the experiment of `of` on the same
    machine. `at` is the directory of `of` itself, whose figures are included; those of the run in `but` are not."""
    names = sorted(at.resolve().parent.iterdir(), reverse=True)
    beside = (RunDir(path) for path in names if path.resolve() != but.resolve())
    found: list[dict[Setting, float]] = []
    for run in beside:
        if len(found) == MOST:
            break
        with suppress(PowerbandError, OSError):
            if figures := dict(_figures(run, of)):
                found.append(figures)
    return found


def _figures(run: RunDir, of: ComparedRun) -> Iterator[tuple[Setting, float]]:
    opened = (run.experiment, run.analysis, *filter(Path.exists, [run.host]))
    if not all(path.is_file() and path.stat().st_size < BYTES_MOST for path in opened):
        return
    experiment = load_experiment(run.experiment)
    same = experiment.subject == of.experiment.subject and experiment.factors == of.experiment.factors
    if not same or any(experiment_differences(of.experiment, experiment)):
        return
    if any(host_differences(of.host, read_host(run.host))):
        return
    for row in stored_analysis(run.analysis.read_text("utf-8", "replace")).settings:
        estimate = row.estimates.get(of.analysis.objective) if row.capacity is None else row.capacity.estimate
        if estimate is not None and estimate.value > 0 and not estimate.at_least:
            yield row.setting, estimate.value
