"""Compares two runs, whatever they searched for: values in, one `RunComparison` out.

`unpaired.py` compares metrics of trials, `capacity_changes.py` capacities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from powerband.analyze.runs.capacity_changes import compare_capacities
from powerband.analyze.runs.changes import RunComparison
from powerband.analyze.runs.sessions import spread_of_sessions
from powerband.analyze.runs.unpaired import compare_runs, experiment_differences, host_differences
from powerband.base.errors import UsageError
from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis


@dataclass(frozen=True)
class ComparedRun:
    """A run to compare. `name`: what the comparison calls it; `experiment`, `analysis`: as it was run, and what was
    found; `host`: its host.json, empty if that cannot be read."""

    name: str
    experiment: Experiment
    analysis: Analysis
    host: Mapping[str, Any]


def _in_order_of(factors: Iterable[str], analysis: Analysis) -> Analysis:
    """The analysis with the factors of each setting in this order, since settings are equal only in the same one."""
    place = {name: at for at, name in enumerate(factors)}

    def ordered(setting: Setting) -> Setting:
        return Setting(tuple(sorted(setting.levels, key=lambda each: place.get(each[0], len(place)))))

    return replace(
        analysis,
        settings=tuple(replace(row, setting=ordered(row.setting)) for row in analysis.settings),
        trials=tuple(replace(trial, setting=ordered(trial.setting)) for trial in analysis.trials),
    )


def _without_soak(analysis: Analysis) -> Analysis:
    """The analysis without the trials of its soak, which is judged beside the run's own trials."""
    return replace(analysis, trials=tuple(trial for trial in analysis.trials if trial.stage is not Stage.SOAK))


def _cpu_differences(first: Analysis, second: Analysis) -> Iterator[str]:
    """Yields a sentence if a setting's server had more CPUs in one run: they may be dealt out by what it needs."""
    had = [
        {trial.setting: trial.cpus.server for trial in run.trials if trial.valid and trial.cpus is not None}
        for run in (first, second)
    ]
    differ = [(a, had[1][setting]) for setting, a in had[0].items() if had[1].get(setting, a) != a]
    for a, b in differ[:1]:
        yield (
            f"the server had {a:.3g} CPUs in the first run and {b:.3g} in the second: the difference may come from "
            "that; host.cpus (--cpus) fixes them"
        )


def compare_two(
    first: ComparedRun, second: ComparedRun, earlier: Sequence[Mapping[Setting, float]] = ()
) -> RunComparison:
    """Returns the changes from the first run to the second. `earlier`: the objective of each setting in other runs of
    the first one's experiment on its machine. Raises UsageError if the two cannot be compared, e.g. as only one
    searched for capacities."""
    analyses = (_without_soak(first.analysis), _in_order_of(first.experiment.factors, _without_soak(second.analysis)))
    differences = [
        *experiment_differences(first.experiment, second.experiment),
        *host_differences(first.host, second.host),
        *_cpu_differences(*analyses),
    ]
    kinds = {run.experiment.objective.is_capacity for run in (first, second)}
    if len(kinds) == 2:
        raise UsageError(
            f"one of {first.name} and {second.name} searched for capacities, the other did not: they cannot be compared"
        )
    sessions = spread_of_sessions(earlier)
    found = (
        compare_capacities((first.experiment, second.experiment), analyses, differences, sessions)
        if first.experiment.objective.is_capacity
        else compare_runs(*analyses, differences, sessions, [kind_of(run.experiment) for run in (first, second)])
    )
    return replace(found, names=(first.name, second.name))
