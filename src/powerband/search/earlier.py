"""Finds earlier runs of an experiment on the same machine, in the folder of a run. In: a run. Out: the objective of
each setting in each earlier run, from its analysis as it was written; a run that cannot be read is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from powerband.analyze.runs.two_runs import ComparedRun
from powerband.analyze.runs.unpaired import experiment_differences, host_differences
from powerband.analyze.stored import stored_analysis
from powerband.base.errors import PowerbandError
from powerband.files.experiment_file import load_experiment
from powerband.model.host_facts import host_fact
from powerband.model.plan import Setting
from powerband.store import RunDir, read_host

BYTES_MOST = 1 << 26  # larger files are not read: anybody may have put them there
MOST = 20  # the latest runs: older ones may be of another state of the machine


def earlier_runs(of: ComparedRun, at: Path, but: Path) -> list[dict[Setting, float]]:
    """The objective of each setting, for each run in the folder of `at` that ran the experiment of `of` on the same
    machine, with the same server as far as is known. `at` is the directory of `of` itself, whose figures are included;
    those of the run in `but` are not. A link to a run, or a copy of it, is that run."""
    own = at.resolve()
    beside = sorted(own.parent.iterdir(), reverse=True)
    seen = {_identity(RunDir(but), read_host(RunDir(but).host))}
    found: list[dict[Setting, float]] = []
    for run in map(RunDir, dict.fromkeys([own, *(path.resolve() for path in beside)])):
        if len(found) == MOST:
            break
        with suppress(PowerbandError, OSError):
            figures = dict(_figures(run, of, own))
            if figures and (identity := _identity(run, read_host(run.host))) not in seen:
                seen.add(identity)
                found.append(figures)
    return found


def _identity(run: RunDir, host: Mapping[str, Any]) -> str:
    """Returns a text that a run and its copies share: the time and the machine of its begin, else its path."""
    began_s = host_fact(host, "began")
    return str(run.path.resolve()) if began_s is None else f"{began_s} {host_fact(host, 'host name')}"


def _same_server(first: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if a run is no measurement of a changed server, by the host facts of both: it is of the same commit or
    build. If these do not tell, only a run that began earlier is none of what was changed since the first."""
    commits = [str(host_fact(host, "commit") or "") for host in (first, other)]
    if all(commits) and len({commit.removesuffix("-dirty") for commit in commits}) == 2:
        return False
    if (first.get("builds") and first["builds"] == other.get("builds")) or (
        commits[0] and commits[0] == commits[1] and not commits[0].endswith("-dirty")
    ):
        return True
    began = [host_fact(host, "began") for host in (first, other)]
    return all(isinstance(at_s, int | float) for at_s in began) and bool(began[1] < began[0])


def _figures(run: RunDir, of: ComparedRun, own: Path) -> Iterator[tuple[Setting, float]]:
    opened = (run.experiment, run.analysis, *filter(Path.exists, [run.host]))
    if not all(path.is_file() and path.stat().st_size < BYTES_MOST for path in opened):
        return
    experiment = load_experiment(run.experiment)
    same = experiment.subject == of.experiment.subject and experiment.factors == of.experiment.factors
    if not same or any(experiment_differences(of.experiment, experiment)):
        return
    host = read_host(run.host)
    if any(host_differences(of.host, host)) or not (run.path == own or _same_server(of.host, host)):
        return
    for row in stored_analysis(run.analysis.read_text("utf-8", "replace")).settings:
        estimate = row.estimates.get(of.analysis.objective) if row.capacity is None else row.capacity.shown
        if estimate is not None and estimate.value > 0 and not estimate.at_least:
            yield row.setting, estimate.value
