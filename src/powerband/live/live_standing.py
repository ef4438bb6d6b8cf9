"""The standing of a run, from its last analysis and the trials since. In: values. Out: settings and trials of a
`RunState`.

The statistics are those of the analysis, the words those of the report; nothing is computed and no file is read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from powerband.analyze.settings.compare import RESUME
from powerband.live.state import LookState, Outcome, RunStatus, SettingState, TrialLine
from powerband.loads.measured import is_lower_bound
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import Analysis, Race, SettingResult, TrialResult, value_and_ends
from powerband.report.wording.findings import departure_of, state_words
from powerband.report.wording.standings import ranked
from powerband.report.wording.words import effect_of

_JUDGED = {"failed": Outcome.FAILED, "interrupted": Outcome.INTERRUPTED}


def status_at_rest(*, stopped: bool, lacking: bool, warnings: Sequence[str] | None) -> RunStatus:
    """The status of a run that no process holds, all of whose trials have records: finished or interrupted. `stopped`:
    its last trial, or its race, was interrupted; `lacking`: it has fewer trials than planned, which are the most that
    it can take; `warnings`: those of its last analysis, which say whether more were to come; None: it has none."""
    to_come = lacking and (warnings is None or any(text.endswith(RESUME) for text in warnings))
    return RunStatus.INTERRUPTED if stopped or to_come else RunStatus.FINISHED


def outcome_of(result: TrialResult) -> Outcome:
    """How a measured trial ended: valid, failed, interrupted, or else invalid."""
    if result.valid:
        return Outcome.VALID
    return _JUDGED.get(result.status, Outcome.INVALID)


def trial_line(
    spec: TrialSpec, result: TrialResult | None, objective: str, outcome: Outcome, because: str
) -> TrialLine:
    """The line of a trial. `result` None: not measured, for the reason given; otherwise the outcome follows from the
    result."""
    value = None
    if result is not None:
        outcome = outcome_of(result)
        value = result.metrics.get(objective) if result.valid else None
        fatal = [problem.message for problem in result.problems if problem.fatal]
        because = "" if result.valid else "; ".join(fatal) or "no reason was recorded"
    return TrialLine(
        number=spec.number,
        setting=spec.setting.id,
        block=spec.block,
        attempt=spec.attempt,
        stage=spec.stage.value,
        outcome=outcome,
        value=value,
        at_least=result is not None and value is not None and is_lower_bound(objective, result.metrics),
        because=because,
        took_s=None if result is None else result.took_s,
        rate_per_s=spec.rate_per_s,
        node="" if result is None else result.node,
    )


def settings_of(analysis: Analysis) -> tuple[SettingState, ...]:
    """The settings of an analysis, the best first."""
    return tuple(_judged(result, analysis) for result in ranked(analysis))


def settings_unjudged(experiment: Experiment, results: Iterable[TrialResult]) -> tuple[SettingState, ...]:
    """The settings before the first analysis: in the order of the plan, or in order of first trial if a large space is
    explored."""
    results = list(results)
    met = [result.setting for result in results]
    planned: Sequence[Setting] = () if experiment.explores else experiment.settings()
    valid = Counter(result.setting for result in results if result.valid)
    spoilt = Counter(result.setting for result in results if not result.valid and result.status != "interrupted")
    return tuple(
        SettingState(setting.id, setting.as_dict(), valid[setting], spoilt[setting], told="not judged yet")
        for setting in dict.fromkeys([*planned, *met])
    )


def _judged(result: SettingResult, analysis: Analysis) -> SettingState:
    race = analysis.race
    look = race.looks[-1] if race and race.looks else None
    left = departure_of(result.setting, race)
    leads = result.setting == (look.leader if look is not None else analysis.answer.leader)
    effect = effect_of(result, analysis)
    if look is not None:
        effect = look.effects.get(result.setting.id) if left is None else left.effect
    found = result.shown.get(analysis.objective)
    estimate, low, high = value_and_ends(found)
    if found is not None and found.at_least:
        low = high = None
    ratio, ratio_low, ratio_high = value_and_ends(None if leads else effect)
    return SettingState(
        id=result.setting.id,
        levels=result.setting.as_dict(),
        trials=result.trials,
        invalid=result.invalid,
        estimate=estimate,
        low=low,
        high=high,
        effect=ratio,
        effect_low=ratio_low,
        effect_high=ratio_high,
        verdict=result.verdict.value,
        feasible=result.feasible,
        leads=leads,
        answer=result.setting == analysis.answer.setting,
        left_after_block=None if left is None else left.block,
        because=_because(result, race),
        told=state_words(result, analysis),
        estimates=result.shown,
        looks=_looks(result.setting, race),
    )


def _because(result: SettingResult, race: Race | None) -> str:
    left = departure_of(result.setting, race)
    if left is not None:
        return left.reason
    return "; ".join(result.infeasible_because or result.uncertain_because)


def _looks(setting: Setting, race: Race | None) -> tuple[LookState, ...]:
    return tuple(
        LookState(look.block, effect.value, effect.low, effect.high, setting == look.leader)
        for look in (() if race is None else race.looks)
        if (effect := look.effects.get(setting.id)) is not None
    )
