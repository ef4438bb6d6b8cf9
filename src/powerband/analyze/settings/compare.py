"""Turns trial results into an `Analysis`: estimates per setting, verdicts against the leader, the answer.

In: an experiment and the results of its trials, in any order. Out: values for reports. The statistics themselves are in
`intervals.py`, the words in `answer.py`; nothing is read or written here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from powerband.analyze.runs.paired import costs_of_changes
from powerband.analyze.runs.revisions import revisions_of
from powerband.analyze.settings.answer import word_answer, word_revisions
from powerband.analyze.settings.capacities import CapacityContest, hold_capacity_contest
from powerband.analyze.settings.capacity import TRIALS_PER_REPEAT, Search, capacity_of, holds, misses, short_windows
from powerband.analyze.settings.capacity_limit import limit_of
from powerband.analyze.settings.claims import judge_claims
from powerband.analyze.settings.confirm import confirm, fresh_room, fresh_values, kept_afresh, unconfirmed
from powerband.analyze.settings.constraints import Compliance, judge
from powerband.analyze.settings.contest import (
    Contest,
    ResponseTable,
    compliance_of,
    hold_contest,
    last_valid,
    scale_of,
)
from powerband.analyze.settings.counting import counted
from powerband.analyze.settings.cpus_kept import cpus_kept, runtime_limits
from powerband.analyze.settings.deliveries import delivers_less, with_deliveries
from powerband.analyze.settings.disturbers import disturbers
from powerband.analyze.settings.found import found_sentences
from powerband.analyze.settings.headline import Fresh, figures_of
from powerband.analyze.settings.in_place import in_words_of_trials, with_unseen
from powerband.analyze.settings.lasting import growing, lasting_warnings
from powerband.analyze.settings.no_answer import BEYOND_GENERATOR, NOT_OVER, NOT_TRIED, RISING, first_round
from powerband.analyze.settings.nodes import nodes_of
from powerband.analyze.settings.published import published_tables
from powerband.analyze.settings.regret import regrets_of, unbounded, with_regret
from powerband.analyze.settings.rules_of_thumb import judge_rules
from powerband.analyze.settings.short_words import with_short_names
from powerband.analyze.settings.soak import soak_of
from powerband.analyze.settings.standing import Decision, Standing, close_behind, names, sentence, verb
from powerband.analyze.settings.starts import only_fails
from powerband.analyze.settings.unseen_steps import unseen_steps
from powerband.analyze.settings.unsettled import (
    cold_capacity,
    longer_warmup_s,
    may_catch_up,
    never_stabilised,
    still_rising,
    warnings_of,
    with_caveat,
)
from powerband.analyze.settings.why import commonest, with_tried
from powerband.analyze.stats.intervals import estimate_of
from powerband.analyze.trial.faults import (
    FIRST_START,
    beyond_generator,
    has_figure,
    in_one_line,
    is_excused,
    ran_out,
    subjects_own,
    tried,
)
from powerband.analyze.trial.processes import PARTIAL_SWITCHES
from powerband.base.units import format_duration, plural, time_text
from powerband.loads import kind_of
from powerband.loads.measured import is_lower_bound
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS, OWN, metric_words
from powerband.model.plan import Setting, Stage
from powerband.model.results import (
    Analysis,
    Answer,
    AnswerKind,
    Confirmation,
    Estimate,
    Exploration,
    Race,
    SettingResult,
    TrialResult,
    Verdict,
)

TAKES_TIME = frozenset({"error_rate", "users_unserved", "users_unserved_share"})
"""Metrics that count users whose answer may come after the end of a short trial."""
RESUME = "resume the run to finish it"
"""The end of each warning of a plan that is not over; it is removed for a reader of a run that goes on."""
COARSE_CLOCK = "jmeter_clock"
NOTED = (
    *(FIRST_START, "served_by_another", "own_affinity", "redirects", "out_of_memory", "much_logged"),
    *("killed_at_stop", "jmeter_transactions", COARSE_CLOCK, "not_all_joined", "stood_still", "short_window"),
)
"""Problems that leave a trial valid, but may make its figures those of something else than was meant; and the first
start that does not count."""


@dataclass(frozen=True)
class Progress:
    """The state of a plan. `to_come`: the number of its trials that have not run. `left`: settings no longer tried
    because they only fail, with the reason. `race`: the race so far, its confirmation not yet judged. `exploration`:
    the exploration before it. `raced`: the settings that race; None: all. `soak_to_come`: True if a soak is planned and
    has not run. `led_with`: the leader's mean of the objective when a setting left as worse."""

    to_come: int = 0
    left: Mapping[Setting, str] = field(default_factory=dict)
    race: Race | None = None
    exploration: Exploration | None = None
    raced: tuple[Setting, ...] | None = None
    soak_to_come: bool = False
    led_with: Mapping[Setting, float] = field(default_factory=dict)


def analyse(experiment: Experiment, results: Sequence[TrialResult], progress: Progress | None = None) -> Analysis:
    """Judges all settings by the objective, from their valid trials; never raises for what results hold.

    The last valid one of several attempts at one setting in one block counts. Settings that certainly miss a constraint
    can neither lead nor be the answer; those for which it is not certain are undecided. No setting is called best while
    another one could not be measured for no fault of its own. If a space was explored first, only the settings that
    raced are judged. A soak is compared with its setting's other trials, and counts for nothing else."""
    soak, whole = soak_of(experiment, results), results
    missed = _soak_missed(experiment, results, progress) if progress is not None and soak is None else ""
    progress = progress or Progress()
    results = [result for result in results if result.stage is not Stage.SOAK]
    settings = _judged(experiment, results, progress)
    if experiment.objective.is_capacity:
        standing = _by_capacity(experiment, settings, results)
        decision = _decide(standing)
    else:
        standing, decision = _by_blocks(experiment, settings, results, progress)
    standing = replace(_timed(standing, results, progress), growing=growing(whole))
    rows = standing.rows
    restless = never_stabilised(results)
    sentences = word_answer(standing, decision)
    if experiment.compares_revisions and len(rows) == 2:
        found = revisions_of(experiment, results, standing.race, rows)
        sentences = word_revisions(standing, decision, found) if found.decides else sentences
    told = decision.chosen or standing.leader
    rows = rows if told is None else with_tried(standing, told)
    answer = Answer(
        kind=decision.kind,
        setting=decision.chosen,
        leader=standing.leader,
        equivalent=decision.equivalent,
        undecided=decision.undecided,
        sentences=sentences,
        figure=None if told is None else standing.figures.get(told),
        close=close_behind(standing),
        regret=decision.regret,
        regret_asked=experiment.design.regret,
    )
    less = delivers_less(experiment, rows)
    answer = with_deliveries(with_caveat(answer, restless), less)
    if soak is not None and soak.lasts is False:  # this was asked for, so it comes first
        first, *rest = answer.sentences
        if soak.setting == answer.setting:  # not so of two revisions, of which the new one is soaked
            first = re.sub("^Use ", "But for that, use ", first)
        first = f"{sentence(in_one_line(soak.sentence))} {first}"
        answer = replace(answer, sentences=(first, *rest))
    elif soak is not None:
        answer = replace(answer, sentences=(*answer.sentences, soak.sentence))
    answer = with_unseen(experiment, answer, rows, results)
    nodes = nodes_of(
        experiment,
        results,
        told,
        _half(progress),
        standing.race,
        chosen=decision.chosen is not None,
        barred=[row.setting for row in rows if not row.feasible],
    )
    if nodes is not None:
        answer = replace(answer, sentences=(*answer.sentences, *nodes.sentences))
    analysis = Analysis(
        name=experiment.name,
        question=experiment.question_shown,
        objective=experiment.objective.metric,
        direction=experiment.objective.direction,
        constraints=tuple(constraint.text for constraint in experiment.objective.constraints),
        confidence=experiment.objective.confidence,
        margin=experiment.objective.margin,
        answer=answer,
        settings=tuple(rows),
        trials=tuple(sorted(whole, key=lambda result: result.number)),
        warnings=(
            *_warnings(experiment, rows, results, progress),
            *filter(None, [missed]),
            *unseen_steps(experiment, [row.setting for row in rows]),
            *less.values(),
            *disturbers(experiment, results),
            *cpus_kept(experiment, standing.cpus, results),
            *runtime_limits(experiment, results),
            *lasting_warnings(standing.growing, soak.setting if soak and soak.lasts is not None else None),
            *warnings_of(results, restless),
            *cold_capacity(experiment, results, told),
        ),
        claims=judge_claims(experiment, _whole(results, progress), started=results),
        race=standing.race,
        exploration=progress.exploration,
        rules=judge_rules(experiment, rows, results, answer),
        published=published_tables(experiment, results),
        noun=experiment.noun,
        soak=soak,
        deployed=experiment.subject.deployed is not None,
        changes=costs_of_changes(experiment, results, standing.race),
        nodes=nodes,
    )
    return with_short_names(in_words_of_trials(replace(analysis, found=found_sentences(analysis))))


def decision_of(
    experiment: Experiment,
    settings: Sequence[Setting],
    results: Sequence[TrialResult],
    progress: Progress,
    *,
    of_full: bool = True,
) -> Decision:
    """The decision of `analyse` alone: a race confirms the setting that it names, and needs its bound. `of_full`: False
    to take short trials as they came out, as in `hold_contest`."""
    _, decision = _by_blocks(experiment, settings, results, progress, of_full=of_full)
    return decision


def confirmation_of(
    experiment: Experiment, settings: Sequence[Setting], results: Sequence[TrialResult], progress: Progress
) -> Confirmation | None:
    """The verdict of `analyse` on the fresh starts so far; None if none is valid, or no setting is named."""
    standing, _ = _by_blocks(experiment, settings, results, progress)
    return None if standing.race is None else standing.race.confirmation


def _by_blocks(
    experiment: Experiment,
    settings: Sequence[Setting],
    results: Sequence[TrialResult],
    progress: Progress,
    *,
    of_full: bool = True,
) -> tuple[Standing, Decision]:
    """Judges all settings under one load, paired within blocks, and a race's winner by its fresh starts. In a race
    under way only whole blocks count: its error is spent at looks, and half a block is none. That a start failed is a
    fact in any block."""
    table = ResponseTable(experiment, settings, _whole(results, progress), started=results)
    scale = scale_of(table)
    estimates = {setting: _estimates(table.experiment_of(setting), table.valid(setting)) for setting in settings}
    for setting in filter(table.is_bounded, settings):
        least = estimate_of(list(map(table.value, table.valid(setting))), table.metric, experiment.objective.confidence)
        estimates[setting][table.metric] = replace(least, at_least=True)
    race = progress.race
    departures = {departure.setting: departure for departure in race.departures} if race else {}
    compliance = compliance_of(table)
    # A short trial cannot tell whether a setting that left as far behind answers all users.
    behind = [s for s, left in departures.items() if left.worse and table.has_only_short(s)]
    compliance |= dict.fromkeys(behind, Compliance())
    for setting in behind:
        estimates[setting] = {name: mean for name, mean in estimates[setting].items() if name not in TAKES_TIME}
    if race is not None:  # one that left as worse than a setting that can be no answer any more is judged anew
        may = [s for s in settings if table.valid(s) and s not in departures and not compliance[s].barred]
        loose = unbounded(race, may)
        departures = {setting: left for setting, left in departures.items() if setting not in loose}
    contest = hold_contest(experiment, table, scale, compliance, departures, of_full=of_full)
    rows = tuple(
        SettingResult(
            setting=setting,
            trials=len(table.valid(setting)),
            invalid=sum(1 for result in results if result.setting == setting and _spoilt(result)),
            estimates=estimates[setting],
            effect=contest.effect(setting),
            verdict=contest.verdict(setting),
            feasible=bool(estimates[setting]) and not compliance[setting].barred,
            infeasible_because=compliance[setting].barred
            if estimates[setting]
            else _absent_because(setting, results, table.metric),
            uncertain_because=compliance[setting].open if estimates[setting] and not compliance[setting].missed else (),
            bottleneck=commonest(_looked_at(table, setting, results)),
            starts=table.starts[setting],
            lapsed=bool(estimates[setting] and compliance[setting].lapsed) and not compliance[setting].missed,
        )
        for setting in settings
    )
    blocks = 0 if contest.leader is None else len(table.valid(contest.leader))
    standing = _standing(experiment, results, rows, contest, blocks)
    standing = replace(
        standing,
        contenders=standing.contenders | _not_compared(contest, rows),
        near=frozenset(filter(contest.near, settings)),
        race=race,
        led_with={s: mean for s, mean in progress.led_with.items() if s in departures and departures[s].worse},
        exploration=progress.exploration,
        figures=figures_of(experiment, table, scale),
        hidden={setting: compliance[setting].hidden for setting in settings},
        short=table.screened,
        spared=frozenset() if table.screened else frozenset(filter(table.has_only_short, settings)),
    )
    decision = unbound = _decide(standing)
    if _bounds_hold(standing, decision, progress):
        wanted = [row.setting for row in rows if row.verdict is not Verdict.WORSE]
        if experiment.compares_revisions:  # the question is how much better the old one may be, whichever leads
            wanted = [setting for setting in wanted if setting == settings[-1]]
        regrets = regrets_of(experiment, table, scale, compliance, of=wanted, race=race, of_full=of_full)
        decision = with_regret(decision, regrets, table, scale, experiment)
    if race is not None and decision.chosen is not None:
        barred = [setting for setting in settings if compliance[setting].barred]
        bound = decision.regret if decision.kind is AnswerKind.BOUNDED else None
        confirmation = confirm(experiment, table, scale, results, decision.chosen, barred=barred, bound=bound)
        absent = unconfirmed(results, decision.chosen, table.metric)
        race = replace(race, confirmation=confirmation, unconfirmed=None if absent is None else absent[0])
        upheld = confirmation is None or confirmation.upheld
        if confirmation is not None:
            room = fresh_room(table, scale, results, decision.chosen)
            fresh = Fresh(confirmation, fresh_values(table, results, decision.chosen), room)
            standing = replace(standing, figures=figures_of(experiment, table, scale, fresh))
        broken = () if upheld else kept_afresh(experiment, table, results, decision.chosen).barred
        standing = replace(standing, race=race, broken_afresh=broken)
        if not upheld or (absent is not None and absent[1]):
            # Fresh starts that contradict a race leave it without an answer.
            return standing, replace(unbound, kind=AnswerKind.NOT_ENOUGH_DATA, chosen=None)
    return standing, decision


def _whole(results: Sequence[TrialResult], progress: Progress) -> list[TrialResult]:
    """The results without those of blocks that are not whole."""
    half = _half(progress)
    return [result for result in results if result.stage is Stage.EXPLORE or result.block not in half]


def _half(progress: Progress) -> Collection[int]:
    """The blocks of a race that are not whole, and do not count."""
    return () if progress.race is None else progress.race.half


def _not_compared(contest: Contest, rows: Sequence[SettingResult]) -> frozenset[Setting]:
    """The settings that may be the answer, and that nothing compares with the leader: they came back to a race, and
    have no full trial beside its own yet."""
    if contest.leader is None:
        return frozenset()
    compared = {*contest.difference, *contest.left}
    return frozenset(row.setting for row in rows if _may_answer(row) and row.setting not in compared)


def _looked_at(table: ResponseTable, setting: Setting, results: Sequence[TrialResult]) -> Sequence[TrialResult]:
    """The trials that say what limits a setting: full ones if there are any, even if only those that confirm it."""
    fresh = [result for (of, _), result in last_valid(results, Stage.CONFIRM).items() if of == setting]
    return fresh if table.screened and fresh else table.valid(setting)


def _bounds_hold(standing: Standing, decision: Decision, progress: Progress) -> bool:
    """True if there can be bounds: a fixed plan is judged only once, at its end, and nothing bounds a setting that was
    not measured."""
    if decision.kind in (AnswerKind.NONE_FEASIBLE, AnswerKind.NONE_VALID) or standing.unmeasured:
        return False
    return standing.experiment.is_race or progress.to_come == 0


def _timed(standing: Standing, results: Sequence[TrialResult], progress: Progress) -> Standing:
    """The standing with the time that a block takes, and whether the budget ended before there were two."""
    experiment = standing.experiment
    ran = [result for result in results if result.status != "interrupted"]
    trials = [result for result in ran if result.stage is not Stage.EXPLORE]
    took = [result.took_s for result in trials if result.took_s is not None]
    if experiment.design.budget_ns is None or not took:
        return standing
    looked = [result.took_s for result in ran if result.stage is Stage.EXPLORE and result.took_s is not None]
    nodes = {result.node for result in ran if result.stage is Stage.EXPLORE}  # they share its trials
    looks = min(experiment.design.explore_trials, len(experiment.settings())) / max(1, len(nodes))
    if experiment.objective.is_capacity:  # its first rounds only look
        compared = any(result.stage is Stage.CAPACITY for result in trials)
    else:
        compared = any(result.block >= 1 for result in trials) or experiment.measure.repeats == 1
    block_s = sum(took) / len(took) * len(standing.rows)
    live = any(row.setting not in progress.left for row in standing.rows)  # else nothing was left to spend time on
    return replace(
        standing,
        block_s=block_s,
        explore_s=sum(looked) / len(looked) * looks if looked else 0.0,
        out_of_time=progress.to_come == 0 and live and not compared,
    )


def _by_capacity(experiment: Experiment, settings: Sequence[Setting], results: Sequence[TrialResult]) -> Standing:
    """Judges each setting by the highest rate at which it holds the constraints."""
    contest = hold_capacity_contest(experiment, settings, results)
    rows = tuple(_capacity_row(experiment, contest, setting, results) for setting in settings)
    blocks = 0 if contest.leader is None else len(contest.searches[contest.leader].answers)
    return _standing(experiment, results, rows, contest, blocks)


def _capacity_row(
    experiment: Experiment, contest: CapacityContest, setting: Setting, results: Sequence[TrialResult]
) -> SettingResult:
    """The row of a setting, with its capacity. Its other metrics are those of its trials near the capacity."""
    search = contest.searches[setting]
    capacity = capacity_of(search)
    estimates = {} if capacity is None else _estimates(experiment.loaded_for(setting), search.near_edge())
    if capacity is not None and capacity.estimate is not None:
        estimates[experiment.objective.metric] = capacity.estimate
    answered = len(search.answers)
    barred = contest.barred.get(setting, ())
    because = barred
    if answered and search.nowhere:
        because = (*misses(search), *barred)
    elif not answered:
        because = _unanswered(search) or _absent_because(setting, results, experiment.objective.metric)
    return SettingResult(
        setting=setting,
        trials=answered,
        invalid=sum(1 for result in search.trials if _spoilt(result) and holds(experiment, result) is None),
        estimates=estimates,
        effect=contest.effect(setting),
        verdict=contest.verdict(setting),
        feasible=bool(answered) and not search.nowhere and not barred,
        infeasible_because=because,
        uncertain_because=misses(search) if search.unseen else (),
        bottleneck=limit_of(search),
        capacity=capacity,
        starts=search.starts if search.starts.failed else None,
        lapsed=bool(answered and barred) and not search.nowhere,
    )


def _cut_short(experiment: Experiment, rows: Sequence[SettingResult], progress: Progress) -> str | None:
    """A warning if the budget ended a search whose most tried setting has trials left and is not known to the
    margin."""
    budget_ns, most = experiment.design.budget_ns, max(rows, key=lambda row: row.trials, default=None)
    found = most.capacity.estimate if most and most.capacity else None
    if budget_ns is None or progress.to_come > 0 or found is None or found.low is None or found.high is None:
        return None
    known = math.log(found.high / found.low) / 2 <= math.log1p(experiment.objective.margin)
    if known or most is None or most.trials >= TRIALS_PER_REPEAT * experiment.measure.repeats:
        return None
    margin = experiment.objective.margin
    return (
        f"the budget of {format_duration(budget_ns)} ended the search before a capacity was known to "
        f"{100 * margin:.1f} %: allow more (design.budget)"
    )


def _unanswered(search: Search) -> tuple[str, ...]:
    """The reasons why valid trials do not tell whether a setting holds the conditions; empty if none is valid."""
    valid = [trial for trial in search.trials if trial.valid]
    tried = [trial for trial in valid if trial.stage is Stage.CAPACITY]
    if valid and len(valid) == sum(trial.status != "interrupted" for trial in search.trials) and not tried:
        return ("only its first look has run, at no rate of its own",)
    wanted = dict.fromkeys(constraint.metric for constraint in search.objective.constraints)
    absent = [metric for metric in wanted if any(metric not in trial.metrics for trial in tried)]
    return tuple(f"the SLO has a condition on {metric_words(metric)}, which was not measured" for metric in absent)


def _judged(experiment: Experiment, results: Sequence[TrialResult], progress: Progress) -> list[Setting]:
    if progress.raced is not None:
        return list(progress.raced)
    met = (result.setting for result in results if result.stage is not Stage.EXPLORE)
    return list(dict.fromkeys([*(() if experiment.explores else experiment.settings()), *met]))


def _estimates(experiment: Experiment, trials: Sequence[TrialResult]) -> dict[str, Estimate]:
    """The estimate of every metric, from all valid trials of the setting that have it."""
    known = set().union(*(trial.metrics for trial in trials))
    names = [*(name for name in METRICS if name in known), *sorted(name for name in known if name.startswith(OWN))]
    confidence = experiment.objective.confidence
    values = {name: [trial.metrics[name] for trial in trials if name in trial.metrics] for name in names}
    metrics = [trial.metrics for trial in trials]
    found = {name: counted(experiment, name, estimate_of(values[name], name, confidence), metrics) for name in names}
    bounds = [name for name in names if any(is_lower_bound(name, each) for each in metrics)]
    return {**found, **{name: replace(found[name], at_least=True) for name in bounds}}


def _spoilt(result: TrialResult) -> bool:
    """True if the trial counts for nothing. An interrupted trial is not spoilt: it is run again, or was never
    finished."""
    return not result.valid and result.status != "interrupted"


def _absent_because(setting: Setting, results: Sequence[TrialResult], metric: str) -> tuple[str, ...]:
    """The reasons why a setting has no valid trial: the fatal problems of its trials, each once."""
    mine = tried(results, setting)
    messages = [problem.message for result in mine for problem in result.problems if problem.fatal]
    valid = [] if messages else [result for result in mine if result.valid]
    if valid and all(metric in result.metrics for result in valid):  # none of them counts
        raced = any(result.stage is not Stage.EXPLORE for result in valid)
        return (NOT_OVER if raced else NOT_TRIED,)
    if valid:
        return (f"{metric_words(metric)} was not measured{_why_lacking(metric, mine)}",)
    return tuple(dict.fromkeys(messages)) or (NOT_TRIED,)


def _standing(
    experiment: Experiment,
    results: Sequence[TrialResult],
    rows: Sequence[SettingResult],
    contest: Contest | CapacityContest,
    blocks: int,
) -> Standing:
    failed: dict[Setting, str] = {}
    unmeasured: dict[Setting, str] = {}
    metric = experiment.objective.metric
    rising = still_rising(metric, results)
    for row in rows:
        mine = tried(results, row.setting)
        if row.trials and _fails_too_often(experiment, row, len(rows)):
            continue
        if row.trials:
            lacking = [r for r in mine if r.stage is Stage.COMPARE and r.valid and metric not in r.metrics]
            if beyond_generator(mine) and not experiment.objective.is_capacity:
                unmeasured[row.setting] = BEYOND_GENERATOR
            elif over := ran_out(mine):
                unmeasured[row.setting] = over
            elif lacking and row.verdict is not Verdict.WORSE:
                unmeasured[row.setting] = _lacks(metric, lacking)
            elif row.setting in rising and row.setting != contest.leader and may_catch_up(row.effect):
                unmeasured[row.setting] = RISING
            continue
        if only_fails(mine):
            failed[row.setting] = _absent_because(row.setting, list(filter(subjects_own, mine)), metric)[0]
        else:
            unmeasured[row.setting] = row.infeasible_because[0]
    in_play = {row.setting for row in rows if _may_answer(row)}
    with_cpus = [each for each in results if each.valid and each.cpus]
    with_cpus.sort(key=lambda each: each.setting == contest.leader)
    seen_inside = [each for each in results if each.valid and each.runtimes]
    return Standing(
        experiment=experiment,
        rows=rows,
        leader=contest.leader,
        contenders=frozenset(setting for setting in contest.contenders() if setting in in_play),
        blocks=blocks,
        failed=failed,
        unmeasured=unmeasured,
        explored=tuple(result for result in results if result.stage is Stage.EXPLORE and has_figure(result, metric)),
        measured=frozenset(name for result in results if result.valid for name in result.metrics),
        cpus=with_cpus[-1].cpus if with_cpus else None,
        cpus_of={each.setting: each.cpus for each in with_cpus if each.cpus is not None},
        processes={each.setting: sum(view.processes for view in each.runtimes) for each in seen_inside},
        rising=rising,
        warmup_s=longer_warmup_s(results, rising) if RISING in unmeasured.values() else None,
        few_requests=_few_requests(experiment, results),
    )


def _fails_too_often(experiment: Experiment, row: SettingResult, settings: int) -> bool:
    """True if more starts of the setting failed than may: it is no answer, whatever else its trials leave open.
    `settings`: how many are judged."""
    if row.feasible or row.starts is None:
        return False
    return bool(judge(experiment, [], settings=settings, starts=row.starts).barred)


def _few_requests(experiment: Experiment, results: Sequence[TrialResult]) -> dict[Setting, str]:
    """The note on the last full trial of each setting that had too few requests for a metric asked for."""
    full = [result for result in results if result.valid and result.stage in (Stage.EXPLORE, Stage.COMPARE)]
    lacking = [result for result in full if not experiment.objective.needed_metrics <= result.metrics.keys()]
    return {r.setting: note.message for r in lacking for note in r.problems if note.code == "few_requests"}


def _lacks(metric: str, lacking: Sequence[TrialResult]) -> str:
    """Says that valid trials lack the objective. These may be the worst: a slow start has the fewest requests."""
    return f"{plural(len(lacking), 'trial')} of it measured no {metric_words(metric)}{_why_lacking(metric, lacking)}"


def _why_lacking(metric: str, lacking: Sequence[TrialResult]) -> str:
    """The note on a trial that lacks the objective, after a colon; empty if there is none."""
    code = "users_unfinished" if metric == "finish_s" else "few_requests"
    return next((f": {p.message}" for result in lacking for p in result.problems if p.code == code), "")


def _decide(standing: Standing) -> Decision:
    """Decides the kind of answer from the verdicts; see `AnswerKind`. Only a setting that certainly meets the
    constraints is an answer; one that may be better, may not be allowed, or could not be measured, is undecided."""
    rows = standing.rows
    leader = standing.leader
    undecided = tuple(row.setting for row in rows if row.setting in standing.unmeasured or _is_open(row))
    if leader is None:
        if not any(row.trials for row in rows):
            waits = standing.explored and not rows  # the race of what was explored has not begun
            kind = AnswerKind.NOT_ENOUGH_DATA if waits or first_round(standing) else AnswerKind.NONE_VALID
            return Decision(kind, None, (), ())
        kind = AnswerKind.NOT_ENOUGH_DATA if undecided else AnswerKind.NONE_FEASIBLE
        return Decision(kind, None, (), undecided)
    equivalent = tuple(
        row.setting
        for row in rows
        if _may_answer(row) and row.verdict is Verdict.EQUIVALENT and not row.uncertain_because
    )
    too_few = len(rows) > 1 and standing.blocks < 2
    if standing.contenders or standing.unmeasured or too_few or standing.row(leader).uncertain_because:
        return Decision(AnswerKind.NOT_ENOUGH_DATA, None, equivalent, undecided)
    # That a start failed is a fact; that one broke a constraint may be luck at its limit.
    by_luck = any(row.lapsed and not (row.starts and row.starts.failed) for row in rows)
    if len(equivalent) > 1 or undecided or by_luck:
        about_new = standing.experiment.compares_revisions and rows[-1].setting in equivalent
        named = rows[-1].setting if about_new else standing.cheapest(equivalent)[0]
        return Decision(AnswerKind.EQUIVALENT_SET, named, equivalent, undecided)
    return Decision(AnswerKind.BEST, leader, equivalent, undecided)


def _may_answer(row: SettingResult) -> bool:
    return row.trials > 0 and row.feasible


def _is_open(row: SettingResult) -> bool:
    open_verdict = row.verdict in (Verdict.INCONCLUSIVE, Verdict.BETTER)
    return _may_answer(row) and (open_verdict or (bool(row.uncertain_because) and row.verdict is not Verdict.WORSE))


def _warnings(
    experiment: Experiment, rows: Sequence[SettingResult], results: Sequence[TrialResult], progress: Progress
) -> Iterator[str]:
    done = [result for result in results if result.status != "interrupted"]
    if progress.to_come > 0 and progress.race is not None:
        yield (
            f"the race is not over after {len(done)} trials, at most {progress.to_come} are to come: "
            f"its intervals hold at any time; {RESUME}"
        )
    elif progress.to_come > 0 and experiment.objective.is_capacity:
        yield (
            f"{len(done)} trials were run and the search was not over: it may take {progress.to_come} more; {RESUME}"
        )
    elif progress.to_come > 0 and progress.exploration is not None:
        yield f"the exploration is not over after {len(done)} trials, and the best are to be raced; {RESUME}"
    elif progress.to_come > 0:
        repeats = experiment.measure.repeats
        wanted = {setting for setting in experiment.settings() if setting not in progress.left}
        blocks = [
            {result.setting for result in done if result.block == block and result.stage is Stage.COMPARE}
            for block in range(repeats)
        ]
        whole = sum(1 for block in blocks if block and wanted <= block)
        planned = len(done) + progress.to_come
        yield (
            f"{len(done)} of {planned} planned trials were run, {whole} of {repeats} rounds whole: "
            f"intervals and verdicts hold only once the plan is complete; {RESUME}"
        )
    elif progress.soak_to_come and done:
        yield f"the soak of {time_text(experiment.design.soak_ns or 0)} has not run; {RESUME}"
    if experiment.objective.is_capacity:
        yield from filter(None, (_cut_short(experiment, rows, progress), short_windows(experiment)))
    for setting, reason in progress.left.items():
        yield f"{setting.id} is no longer tried: it {in_one_line(reason)}"
    # Those of settings that do not race count, too; in a capacity search an invalid trial may answer all the same.
    invalid = sum(row.invalid for row in rows) if experiment.objective.is_capacity else sum(map(_spoilt, results))
    if 0 < invalid < len(done):  # the answer says that nothing could be measured, and why
        yield f"{invalid} of {len(done)} trials failed or are invalid: they are excluded, each with its reason"
    partial = (problem.message for result in done for problem in result.problems if problem.code == PARTIAL_SWITCHES)
    yield from itertools.islice(partial, 1)
    yield from _noted(experiment, done)
    yield from _never_raced(rows, done)
    unsure: dict[str, list[Setting]] = {}
    for row in rows:
        for what in row.uncertain_because:
            unsure.setdefault(what, []).append(row.setting)
    for what, those in unsure.items():
        yield f"it is not certain whether {names(those)} {verb(those, 'meets', 'meet')} the SLO ({what})"


def _soak_missed(experiment: Experiment, results: Sequence[TrialResult], progress: Progress) -> str:
    """A warning if the soak asked for did not run though the plan is over; else empty."""
    soak_ns = experiment.design.soak_ns
    if soak_ns is None or not results or progress.to_come or progress.soak_to_come:
        return ""
    return f"the soak of {time_text(soak_ns)} did not run: no setting is fit for it"


def _never_raced(rows: Sequence[SettingResult], done: Sequence[TrialResult]) -> Iterator[str]:
    """Yields a warning if the work of settings was over too early before the race, so that they did not come into
    it."""
    raced = {row.setting for row in rows}
    over = [trial for trial in done if trial.setting not in raced and ran_out([trial])]
    if over:
        those = list(dict.fromkeys(trial.setting for trial in over))
        yield f"{names(those)} could not be measured, and may be better: {ran_out(over)}"


def _noted(experiment: Experiment, done: Sequence[TrialResult]) -> Iterator[str]:
    """Yields each note of `NOTED` as its first trial has it, and in how many more; that of a coarse clock only where
    the objective asks for a time by it."""
    noted = [trial for trial in done if trial.valid or is_excused(trial, done)]
    by_clock = any(map(kind_of(experiment).clock_error, experiment.objective.needed_metrics))
    for code in (each for each in NOTED if by_clock or each != COARSE_CLOCK):
        those = [(trial, note.message) for trial in noted for note in trial.problems if note.code == code]
        if those:
            first, message = those[0]
            others = f" (and {plural(len(those) - 1, 'other trial')})" if len(those) > 1 else ""
            yield f"trial {first.number} ({first.setting.id}){others}: {message}"
