"""Judges a long run of the answer's setting: does the end of it serve as well as the compared trials did?

In: an experiment and all results. Out: a `Soak`. A figure is worse if it lies beyond the interval in which one more
trial like the compared ones would lie (Student's prediction interval on logarithms, on differences for shares and what
may be 0; Hahn & Meeker, "Statistical Intervals", 1991, 4.7), corrected for the number of figures, and by more than the
margin. Of few trials that interval is wide: a loss of more than `FAR` within it gives no verdict. Method:
docs/methods/lasting.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from powerband.analyze.settings.constraints import Compliance, judge
from powerband.analyze.settings.contest import FAR
from powerband.analyze.settings.lasting import MEMORY, growth_of, phrases
from powerband.analyze.stats.intervals import Scale
from powerband.analyze.stats.special import student_t
from powerband.analyze.trial.disturbance import RATES
from powerband.analyze.trial.faults import subjects_own
from powerband.analyze.trial.growing import COLLECTIONS_LEAST
from powerband.base.units import format_value, joined, time_text
from powerband.loads.measured import is_lower_bound
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS, metric_words
from powerband.model.plan import Stage
from powerband.model.results import Soak, SoakFigure, TrialResult

COMPARED = ("goodput_per_s", "response_time_ns_p99", "rss_bytes_max")
MORE = ("goodput_per_s",)  # more of these is better
UNJUDGED = ("rss_bytes_max",)  # shown only: a heap fills within minutes, and growth that lasts is judged by itself


def soak_of(experiment: Experiment, results: Sequence[TrialResult]) -> Soak | None:
    """Judges the last soak that was not interrupted by the valid compared trials of its setting; None if there was
    none."""
    soaks = [result for result in results if result.stage is Stage.SOAK and result.status != "interrupted"]
    length_ns = experiment.design.soak_ns
    if not soaks or length_ns is None:
        return None
    trial, window_ns = soaks[-1], experiment.design.soak_window_ns
    head = f"Run for {time_text(length_ns)} more"
    if not trial.valid:
        why = next((problem.message for problem in trial.problems if problem.fatal), "it failed")
        own = subjects_own(trial)
        sentence = f"{head}, {trial.setting.id} {'did not last' if own else 'could not be measured'}: {why.rstrip('.')}"
        lasts = False if own else None
        return Soak(trial.setting, trial.number, length_ns, window_ns, (), lasts=lasts, sentence=f"{sentence}.")
    before = [each for each in results if each.setting == trial.setting and each.valid and _is_compared(each)]
    objective = experiment.objective
    names = [name for name in dict.fromkeys((objective.metric, *COMPARED)) if name in trial.metrics]
    found = list(_figures(experiment, names, before, trial))
    figures = tuple(figure for figure, _ in found)
    judged = experiment.loaded_for(trial.setting).measured_for(window_ns)
    kept, at_best = (judge(judged, [metrics], settings=1) for metrics in (trial.metrics, _at_best(trial)))
    growing = growth_of(trial.metrics)
    lasts = not any(figure.worse for figure in figures) and not at_best.missed and not growing
    verdict = "lasts" if lasts else "does not last"
    if lasts and len(before) < 2 and not objective.is_capacity:
        what = "its only trial before" if before else "any full trial before"
        lasts, verdict = None, f"cannot be compared with {what}"
    elif lasts and (kept.missed or any(seems_worse for _, seems_worse in found)):
        lasts, verdict = None, "could not be judged, since it was disturbed"
    elif lasts and (unknown := _unknown(experiment, trial, kept)):
        lasts, verdict = None, f"could not be judged ({unknown})"
    elif lasts and any(is_far(figure, objective.metric, objective.direction, objective.margin) for figure in figures):
        lasts, verdict = None, f"is too far from its {len(before)} trials before to say that it lasts"
    told = joined([_said(figure, least=is_lower_bound(figure.metric, trial.metrics)) for figure in figures])
    first = f"{head}, {trial.setting.id} {verdict}: in its last {time_text(window_ns)} {told}"
    rest = [*(f"it misses {why}" for why in at_best.missed), *([f"to the end {phrases(growing)}"] if growing else [])]
    sentence = "; ".join([first, *rest, *(_unseen(trial, window_ns) if lasts else [])])
    return Soak(trial.setting, trial.number, length_ns, window_ns, figures, lasts=lasts, sentence=f"{sentence}.")


def _unknown(experiment: Experiment, trial: TrialResult, kept: Compliance) -> str:
    """The condition that the end of a soak leaves open, or the objective that it did not measure, in words; empty if
    there is neither. A percentile, for one, may have too few requests there."""
    objective = experiment.objective
    if kept.open:
        return kept.open[0]
    lacks = objective.metric not in trial.metrics and not objective.is_capacity
    return f"{metric_words(objective.metric)} was not measured" if lacks else ""


def _unseen(trial: TrialResult, window_ns: int) -> list[str]:
    """Says that nothing is known of the growth of memory, and the likely reason; empty if it is known."""
    if MEMORY in trial.metrics:
        return []
    seldom = trial.metrics.get("jvm_gc_per_s", math.inf) * window_ns / 1e9 < COLLECTIONS_LEAST
    why = "its heap was collected too seldom" if seldom else "it could not be read"
    return [f"whether memory grows was not seen, since {why}"]


def more_is_better(metric: str, objective: str, direction: str) -> bool:
    """True if a soak is better with more of the metric. `objective`, `direction`: those of the run."""
    return direction == "maximise" if metric == objective else metric in MORE


def is_far(figure: SoakFigure, objective: str, direction: str, margin: float) -> bool:
    """True if a figure that is judged is worse than before by more than `FAR`, or than the margin if that is larger,
    even if it lies within the interval. `objective`, `direction`: those of the run."""
    if figure.before is None or (figure.metric in UNJUDGED and figure.metric != objective):
        return False
    plain = Scale(log=False, relative=METRICS[figure.metric].unit != "ratio")
    allowed = plain.allowed(max(FAR, margin), figure.before)
    loss = figure.before - figure.soaked
    return (loss if more_is_better(figure.metric, objective, direction) else -loss) > allowed


def _is_compared(trial: TrialResult) -> bool:
    return trial.stage in (Stage.COMPARE, Stage.CONFIRM)


def _at_best(trial: TrialResult) -> dict[str, float]:
    """The metrics of the soak as they may have been without others, who can have lowered its rates by the share of time
    that they held it up, and made any time longer."""
    if not trial.disturbed:
        return dict(trial.metrics)
    times = dict.fromkeys((name for name in trial.metrics if "time_ns" in name), 0.0)
    rates = {name: trial.metrics[name] / (1 - trial.held_up) for name in RATES if name in trial.metrics}
    return {**trial.metrics, **times, **rates}


def _figures(
    experiment: Experiment, names: Sequence[str], before: Sequence[TrialResult], trial: TrialResult
) -> Iterator[tuple[SoakFigure, bool]]:
    """Yields the soak's figures beside those of the trials `before`, which are worse only if others cannot have made
    them so, each with True if it seems worse all the same. In a capacity search nothing ran at the soak's rate: its
    figures stand alone."""
    objective, at_best = experiment.objective, _at_best(trial)
    judged = [name for name in names if name == objective.metric or name not in UNJUDGED]
    confidence = 1 - (1 - objective.confidence) / max(1, len(judged))
    quiet = [each for each in before if not each.disturbed]
    for name in names:
        those = quiet if METRICS[name].unit == "ns" and len(quiet) > 1 else before
        values = [each.metrics[name] for each in those if name in each.metrics]
        more = more_is_better(name, objective.metric, objective.direction)
        figure, best = (
            _figure(name, values, metrics[name], confidence, objective.margin, more=more)
            for metrics in (trial.metrics, at_best)
        )
        yield replace(figure, worse=name in judged and best.worse), name in judged and figure.worse


def _figure(
    name: str, values: Sequence[float], soaked: float, confidence: float, margin: float, *, more: bool
) -> SoakFigure:
    n = len(values)
    if n < 2:
        return SoakFigure(name, soaked, values[0] if values else None, None, None, worse=False)
    scale = Scale.of(values, METRICS[name].unit)
    scaled, back = scale.scaled(values), math.exp if scale.log else float
    half, mean = student_t(confidence, n - 1) * math.sqrt(scale.variance(scaled) * (1 + 1 / n)), float(scaled.mean())
    before, low, high = map(back, (mean, mean - half, mean + half))
    allowed = before * margin if scale.log else scale.allowed(margin, before)
    worse = soaked < min(low, before - allowed) if more else soaked > max(high, before + allowed)
    return SoakFigure(name, soaked, before, low, high, worse=worse)


def _said(figure: SoakFigure, *, least: bool) -> str:
    """`goodput 800/s (1,200/s before: worse)`. `least`: the soak's figure is a lower bound."""
    unit = METRICS[figure.metric].unit
    text = f"{metric_words(figure.metric)} {'at least ' if least else ''}{format_value(figure.soaked, unit)}"
    if figure.before is None:
        return text
    return f"{text} ({format_value(figure.before, unit)} before{': worse' if figure.worse else ''})"
