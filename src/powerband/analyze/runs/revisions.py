"""Compares two revisions of a server that one run has measured in the same blocks: NEW against OLD, setting by setting.

The factor `revision` has the two as its levels. Each pair is a contest of two (`paired.py`), paired within blocks so
that drift of the machine cancels, at a confidence that holds for all pairs together (Bonferroni). In: the experiment
and the trials of its `Analysis`. Nothing is run or read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from powerband.analyze.runs.changes import Change, RunComparison
from powerband.analyze.runs.paired import at_confidence_for_all, by_short, compared_trials, pair_change
from powerband.analyze.settings.bound_words import missed_bound
from powerband.analyze.settings.contest import CHEAPER_BY
from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.metrics import margin_words
from powerband.model.plan import REVISION, Setting, Stage, format_level, grid
from powerband.model.results import Analysis, ClaimVerdict, Estimate, Race, SettingResult, TrialResult, Verdict

P99 = "response_time_ns_p99"
CLEARLY = 1.5
"""The least factor between two costs that deserves a sentence. Arbitrary: less is not what a reader of CI misses."""
_COSTS = {
    "subject_cpu_ns_per_request": ("uses {times} the CPU per {noun}", CLEARLY),
    "rss_bytes_max": ("uses {times} the memory", CLEARLY),
    P99: ("has {times} the p99 response time", CHEAPER_BY),  # all that changes where users leave the server idle
}


def holds_revisions(experiment: Experiment) -> bool:
    """True if the experiment has a factor `revision` of two levels."""
    return len(experiment.factors.get(REVISION, ())) == 2


def compare_revisions(experiment: Experiment, analysis: Analysis) -> RunComparison:
    """Compares the two revisions at each setting of the other factors; needs `holds_revisions`. Never raises for what
    trials hold."""
    trials = [trial for trial in analysis.trials if trial.stage is not Stage.SOAK]
    found = revisions_of(experiment, trials, analysis.race, analysis.settings)
    soaked = [analysis.soak.sentence] if analysis.soak is not None and analysis.soak.lasts is not False else []
    warnings = (*refuted_in(analysis, found), *analysis.warnings)
    return replace(found, further=(*found.further, *soaked), warnings=warnings)


def refuted_in(analysis: Analysis, found: RunComparison | None = None) -> list[str]:
    """A sentence for each refuted claim, and those of `short_of`."""
    refuted = [claim for claim in analysis.claims if claim.verdict is ClaimVerdict.REFUTED]
    return [*(f"refuted: {claim.says}: {claim.sentence}" for claim in refuted), *short_of(analysis, found)]


def short_of(analysis: Analysis, found: RunComparison | None = None) -> list[str]:
    """A sentence for an answer that did not last through the soak asked for, and one for a bound asked for that is not
    met; nothing on that of a new revision which is worse by the comparison `found`: its bound is not known."""
    short = [soak.sentence for soak in (analysis.soak,) if soak is not None and soak.lasts is False]
    if found is not None and found.verdict is Verdict.WORSE and len(found.changes) == 1:
        return short
    answer = analysis.answer
    missed = missed_bound(answer.regret_asked, answer.regret, analysis.objective, analysis.race)
    return [*short, *([missed] if missed else [])]


def revisions_of(
    experiment: Experiment, results: Sequence[TrialResult], race: Race | None, rows: Sequence[SettingResult]
) -> RunComparison:
    """Compares the two revisions by their trials alone, so that an analysis can be worded from it; it has no warnings.
    `rows`: the figures of every setting."""
    objective = experiment.objective
    old, new = map(format_level, experiment.factors[REVISION])
    others = grid({name: levels for name, levels in experiment.factors.items() if name != REVISION})
    judged = at_confidence_for_all(experiment, len(others))
    trials = compared_trials(experiment, results, race)
    pairs = [(of, [_with(experiment, of, index) for index in (0, 1)]) for of in others]
    estimates = {row.setting: row.estimates for row in rows}
    full = {trial.setting for trial in trials if trial.stage is Stage.COMPARE}

    def change(of: Setting, pair: Sequence[Setting]) -> Change:
        found = pair_change(
            judged, of, pair, (old, new), trials=trials, started=results, confidence=objective.confidence
        )
        return by_short(experiment, found, pair, (old, new), trials=trials, race=race)

    def figures(pair: Sequence[Setting]) -> list[Mapping[str, Estimate]]:
        if len({setting in full for setting in pair}) > 1:  # memory and p99 of short trials are not those of full ones
            return [{}, {}]
        return [estimates.get(setting, {}) for setting in pair]

    changes = tuple(change(of, pair) for of, pair in pairs)
    costs = (_costs(experiment, new, change, figures(pair)) for change, (_, pair) in zip(changes, pairs, strict=True))
    found = RunComparison(
        objective.metric, objective.direction, objective.confidence, objective.margin, changes, names=(old, new),
        paired=True,
    )  # fmt: skip
    return replace(found, further=(*_near(found), *(said for told in costs for said in told)))


def _near(found: RunComparison) -> Iterator[str]:
    """Says of a single setting that the difference is certain, but may not matter."""
    if len(found.changes) != 1 or found.verdict not in (Verdict.WORSE, Verdict.BETTER):
        return
    (change,) = found.changes
    if change.ratio is None or change.because:
        return
    base = abs(change.first.value) if found.shares and change.first is not None else 1.0
    if min(abs(end - 1) * base for end in change.ratio.ends) < found.margin:
        yield f"The difference may be smaller than the margin of {margin_words(found.margin, found.objective)}."


def _costs(experiment: Experiment, name: str, change: Change, pair: Sequence[Mapping[str, Estimate]]) -> Iterator[str]:
    """`new uses 4.4 times the CPU per request.`: for what certainly differs by the least factor of its metric, as the
    intervals of both, and what the load's clock may be off, do not come nearer than that. The verdict is on the
    objective itself."""
    who = f"With {change.setting.id} {name}" if change.setting.levels else name
    for metric, (words, least_factor) in _COSTS.items():
        before, after = (estimates.get(metric) for estimates in pair)
        if metric == experiment.objective.metric or before is None or after is None:
            continue
        if metric == P99 and experiment.objective.is_capacity:  # each was measured at another rate
            continue
        if min(before.n, after.n) < 2 or before.at_least or after.at_least:
            continue
        off = kind_of(experiment).clock_error(metric)
        (low, high), (least, most) = ((each.ends[0] - off, each.ends[1] + off) for each in (before, after))
        if least >= least_factor * high > 0 or 0 < most * least_factor <= low:
            yield f"{who} {words.format(times=f'{after.value / before.value:.2g} times', noun=experiment.noun)}."


def _with(experiment: Experiment, of: Setting, revision: int) -> Setting:
    """The setting of the experiment that has this revision; factors in the experiment's order."""
    levels = {**of.as_dict(), REVISION: experiment.factors[REVISION][revision]}
    return Setting(tuple((name, levels[name]) for name in experiment.factors))
