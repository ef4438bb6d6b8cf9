"""Run directories for tests that follow them: from a made-up analysis, or grown step by step as a run would write them;
and files that a stranger might have put into them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from fakes import synthetic
from fakes.trials import experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import ClusterUse, Experiment, Subject
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis
from powerband.store import RunDir

SUBJECT = Subject(name="fake", command=("fake", "--port", "{port}", "--threads", "{threads}"))
SMALL = Path(__file__).parents[1] / "golden" / "run-small"


def experiment_of(analysis: Analysis, *, order: str = "blocks", repeats: int | None = None) -> Experiment:
    """An experiment that might have given this analysis."""
    levels = tuple(row.setting.as_dict()["threads"] for row in analysis.settings)
    blocks = repeats or max(trial.block for trial in analysis.trials) + 1
    return experiment(
        {"threads": levels},
        name=analysis.name,
        question=analysis.question,
        subject=SUBJECT,
        measure={"repeats": blocks},
        design={"seed": 7, "order": order},
    )


def written(root: Path, name: str, analysis: Analysis | None = None, *, order: str = "blocks") -> RunDir:
    """Writes a run directory with the trials of the analysis. Of each trial there is only the record."""
    analysis = analysis or synthetic.analysis()
    run = RunDir(root / name)
    run.trials.mkdir(parents=True)
    run.experiment.write_text(resolved_yaml(experiment_of(analysis, order=order)))
    run.host.write_text(json.dumps({"format": 1, "hostname": "here"}))
    for trial in analysis.trials:
        spec = TrialSpec(trial.number, trial.block, trial.attempt, trial.setting, 7, trial.stage, trial.rate_per_s)
        run.append_plan(spec, len(analysis.trials))
        directory = run.trial(trial.number)
        directory.path.mkdir()
        directory.spec.write_text(json.dumps(spec.to_json()))
        directory.record.write_text("{}")
    run.analysis.write_text(json.dumps(analysis.to_json()))
    return run


def recorded(root: Path, name: str) -> RunDir:
    """A copy of the recorded run of the tests. Its machine was busy, which counts as no problem here."""
    run = RunDir(root / name)
    shutil.copytree(SMALL, run.path)
    text = run.experiment.read_text()
    assert "foreign_cpu_max: 0.1\n" in text
    run.experiment.write_text(text.replace("foreign_cpu_max: 0.1\n", "foreign_cpu_max: 1.0\n"))
    return run


def exchanged(path: Path, how: str) -> None:
    """Replaces a file or folder of a run by a link to it, or by a pipe."""
    aside = path.rename(path.with_name(f".{path.name}"))
    if how == "link":
        path.symlink_to(aside)
    else:
        os.mkfifo(path)


def on_nodes(path: Path, *, trials: int, cluster: bool = True, nodes: tuple[str, ...] = ()) -> RunDir:
    """A run that has begun so many trials, none of which has ended; on a cluster or not."""
    made = experiment({"threads": (1, 2, 4)}, subject=SUBJECT, design={"seed": 7, "order": "blocks"})
    run = RunDir(path)
    run.trials.mkdir(parents=True)
    run.experiment.write_text(
        resolved_yaml(made.model_copy(update={"cluster": ClusterUse(nodes=nodes)} if cluster else {}))
    )
    for number in range(1, trials + 1):
        block, at = divmod(number - 1, 3)
        run.append_plan(TrialSpec(number, block, 1, made.settings()[at], 7), 9)
    return run
