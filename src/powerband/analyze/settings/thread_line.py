"""Finds the settings that differ in their number of threads alone, and what operational laws show of them.

In: an experiment and its trials. Out: `ThreadLine`, with the CPUs that the subject may use and what a request
takes. Not here: any rule (`rules_of_thumb.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from powerband.analyze.trial.laws import ERRORS_MAX
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, number_of
from powerband.model.results import TrialResult

TRACKS = (0.7, 1.5)  # threads that a level higher by one adds, if the factor counts threads


@dataclass(frozen=True)
class Work:
    """How long a request holds a thread, in seconds: `cpu_s` on the CPU, `wait_s` waiting for anything but a CPU or a
    thread."""

    cpu_s: float
    wait_s: float

    @property
    def service_s(self) -> float:
        """The time in all, without queues for a CPU or a thread."""
        return self.cpu_s + self.wait_s


@dataclass(frozen=True)
class ThreadLine:
    """The settings that differ in the number of threads alone, through the answer. `factor`: the name of the parameter
    that counts threads; `settings`: by its level, ascending; `trials`: the valid ones of each setting."""

    factor: str
    settings: Mapping[float, Setting]
    trials: Mapping[Setting, tuple[TrialResult, ...]]

    def mean(self, setting: Setting, metric: str) -> float | None:
        """The mean of a metric over the setting's trials; rates, too, are those of whole windows, as all other figures
        of a trial are."""
        found = [trial.metrics for trial in self.trials[setting] if metric in trial.metrics]
        values = [metrics.get(f"window_{metric}", metrics[metric]) for metrics in found]
        return fmean(values) if values else None

    def cores(self) -> float | None:
        """CPUs that the subject may use."""
        found = [
            trial.metrics["subject_cpu_cores"] / share
            for trials in self.trials.values()
            for trial in trials
            if (share := trial.metrics.get("subject_cpu_share")) and "subject_cpu_cores" in trial.metrics
        ]
        return round(median(found), 2) if found else None

    def work(self) -> Work | None:
        """The time that a request waits (W) and its CPU time (C). Two laws bound the time S that it holds a thread, at
        any number of threads n (Denning & Buzen 1978): S <= n / X, as no thread is more than busy, and S <= the
        client's service time. The smallest bound of all settings is taken, where queues were shortest. The time that
        threads waited for a CPU there is neither W nor C."""
        found: list[tuple[float, float, float]] = []
        for level, setting in self.settings.items():
            if (self.mean(setting, "error_rate") or 0.0) > ERRORS_MAX:
                continue
            rate, served_ns = self.mean(setting, "achieved_rate_per_s"), self.mean(setting, "service_time_ns_mean")
            cpu_ns = self.mean(setting, "subject_cpu_ns_per_request")
            if rate and served_ns and cpu_ns is not None:
                queued_s = (self.mean(setting, "run_wait_cores") or 0.0) / rate
                found.append((min(level / rate, served_ns / 1e9), cpu_ns / 1e9, queued_s))
        if not found:
            return None
        held_s, cpu_s, queued_s = min(found)
        return Work(cpu_s, max(0.0, held_s - cpu_s - queued_s))


def thread_line(experiment: Experiment, trials: Sequence[TrialResult], through: Setting) -> ThreadLine | None:
    """The line of the factor whose levels the subject's threads follow one for one while all others are held; None if
    there is no such factor.

    The median over neighbouring levels decides: a pool that grows on demand stops following where demand does."""
    stages = [Stage.SATURATE] if experiment.objective.is_capacity else [Stage.COMPARE, Stage.SCREEN]
    counted: dict[Setting, tuple[TrialResult, ...]] = {}
    for stage in stages:  # a setting that left before its first full trial has short ones
        met = set(counted)
        for trial in trials:
            if trial.valid and trial.stage is stage and trial.setting not in met:
                counted[trial.setting] = (*counted.get(trial.setting, ()), trial)
    lines: list[tuple[float, ThreadLine]] = []
    for factor in experiment.factors:
        settings = along(factor, counted, through)
        growth = threads_added({level: _threads(counted[setting]) for level, setting in settings.items()})
        if not factor.startswith(("load.", "host.")) and TRACKS[0] <= growth <= TRACKS[1]:
            line = ThreadLine(factor, settings, {setting: counted[setting] for setting in settings.values()})
            lines.append((abs(growth - 1), line))
    return min(lines, key=lambda found: found[0])[1] if lines else None


def along(factor: str, settings: Iterable[Setting], through: Setting) -> dict[float, Setting]:
    """The settings that differ from `through` in this factor alone, and `through`, by its level, ascending. Levels that
    are no numbers above 0 are left out."""
    held = {name: level for name, level in through.levels if name != factor}
    found: dict[float, Setting] = {}
    for setting in settings:
        levels = setting.as_dict()
        level = levels.pop(factor, None)
        number = None if level is None else number_of(level)
        if levels == held and number is not None and number > 0:
            found[number] = setting
    return dict(sorted(found.items()))


def _threads(trials: Sequence[TrialResult]) -> float | None:
    found = [trial.metrics["threads_max"] for trial in trials if "threads_max" in trial.metrics]
    return fmean(found) if found else None


def threads_added(threads: Mapping[float, float | None]) -> float:
    """The threads that a level higher by one adds, median over neighbours; NaN if fewer than two are known. `threads`:
    by level, ascending; None where they were not counted."""
    points = [(level, count) for level, count in threads.items() if count is not None]
    steps = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in itertools.pairwise(points)]
    return median(steps) if steps else math.nan
