"""Words the answer in paragraphs: the setting; how sure it is; why, and at what cost. Every word rests on a figure.

In: the standing of all settings after analysis. Out: paragraphs of short sentences. The reasons are worded in
`why.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from powerband.analyze.runs.changes import RunComparison
from powerband.analyze.settings.bound_words import (
    bound_clause,
    coarse_clock,
    may_be_better,
    missed_bound,
    more_trials,
    not_told_apart,
    why_this_one,
)
from powerband.analyze.settings.capacity import TRIALS_PER_REPEAT, floor_per_s, longest_window_ns
from powerband.analyze.settings.constraints import UNSERVED, by_clock, in_force, shortfall
from powerband.analyze.settings.cpus_kept import holds_for
from powerband.analyze.settings.lasting import soon
from powerband.analyze.settings.no_answer import (
    NOT_TRIED,
    first_round,
    no_round_yet,
    none_raced,
    none_valid,
    too_little_time,
)
from powerband.analyze.settings.standing import (
    LIST_MAX,
    Decision,
    Standing,
    close_behind,
    names,
    sentence,
    sentences,
    verb,
)
from powerband.analyze.settings.starts import allowed_words, failed_words
from powerband.analyze.settings.thread_line import TRACKS, threads_added
from powerband.analyze.settings.why import (
    CPU_BUSY,
    CPU_NAMES,
    CPU_SHARE,
    added_along,
    limit_of_setting,
    line_through,
    serves_less,
    why,
)
from powerband.analyze.stats.edge import HELD_BY
from powerband.analyze.stats.shares import share_least
from powerband.analyze.trial.bottleneck.clauses import MORE_PROCESSES
from powerband.base.units import (
    RATIO_SHOWN_MAX,
    capital,
    format_value,
    joined,
    percent,
    plural,
    range_of_shares,
    significant,
    span,
    time_text,
)
from powerband.loads import kind_of
from powerband.loads.kind import of_requests
from powerband.loads.measured import requests_for
from powerband.model.bottlenecks import BottleneckName
from powerband.model.constraint import Constraint
from powerband.model.metrics import METRICS
from powerband.model.plan import REVISION, Setting, format_level, number_of, numbers_of
from powerband.model.results import AnswerKind, SettingResult, Verdict

EDGES_FROM = 3  # values of a parameter: two may be all there are, as of a switch
ROUNDS_LEAST = 3  # fewer are not enough to tell settings apart: a plan of more only has to end
NO_MORE_THREADS = (*CPU_NAMES, BottleneckName.LOCK, BottleneckName.DOWNSTREAM)  # the advice is that more do not help


def word_answer(standing: Standing, decision: Decision) -> tuple[str, ...]:
    """Returns the answer's paragraphs; the first sentence names the setting, or says that none can be named."""
    if standing.exploration is not None and not standing.rows:
        return none_raced(standing, standing.exploration)
    match decision.kind:
        case AnswerKind.NONE_VALID:
            return none_valid(standing)
        case AnswerKind.NONE_FEASIBLE:
            first, second = _none_feasible(standing)
            return (first, f"{second} {_explored(standing)}".rstrip())
        case AnswerKind.NOT_ENOUGH_DATA:
            first, second = no_round_yet() if first_round(standing) else _not_enough(standing)
            rest = (second, _missed_bound(standing, decision), _explored(standing))
            return tuple(filter(None, (first, " ".join(filter(None, rest)))))
    chosen = decision.chosen
    assert chosen is not None
    told = _in_full(standing, chosen)
    if decision.kind is AnswerKind.BOUNDED:
        told = f"{bound_clause(standing, decision)}. {capital(told)}"
    first = f"Use {chosen.id}: {told}."
    sure = (
        _how_sure(standing, decision),
        _missed_bound(standing, decision),
        _raced(standing),
        _unseen(standing, chosen),
        _at_the_edge(standing, decision, chosen),
        *(f"{chosen.id} has too few requests to be sure of {each}." for each in standing.hidden.get(chosen, ())),
        _explored(standing),
    )
    return (first, " ".join(filter(None, sure)), *why(standing, chosen))


def word_revisions(standing: Standing, decision: Decision, found: RunComparison) -> tuple[str, ...]:
    """Returns the paragraphs of the answer to whether the second of two revisions is worse."""
    new = standing.rows[-1].setting
    sure = f"This verdict has {percent(found.confidence)} confidence."
    sure = "" if found.verdict is Verdict.INCONCLUSIVE else sure
    missed = "" if found.verdict is Verdict.WORSE else _missed_bound(standing, decision)
    told = (*found.further, sure, missed, _raced(standing), _unseen(standing, new))
    limits = {None if row.bottleneck is None else row.bottleneck.name for row in standing.rows}
    alike = found.verdict in (Verdict.WORSE, Verdict.BETTER) and len(limits) == 1 and None not in limits
    both = ("The old revision has the same bottleneck.",) if alike else ()
    return (found.sentence, " ".join(filter(None, told)), *limit_of_setting(standing, new), *both)


def _missed_bound(standing: Standing, decision: Decision) -> str:
    experiment = standing.experiment
    return missed_bound(experiment.design.regret, decision.regret, experiment.objective.metric, standing.race)


def _explored(standing: Standing) -> str:
    """The size of the space that was explored: nothing was shown of the settings that did not race."""
    exploration = standing.exploration
    if exploration is None:
        return ""
    lost = exploration.tried - len({result.setting for result in standing.explored})
    unmeasured = f" ({lost:,} of them could not be measured)" if lost > 0 else ""
    return (
        f"{exploration.tried:,} of {exploration.settings:,} settings were tried once{unmeasured}, and "
        f"{exploration.raced:,} raced. Nothing is known of the others."
    )


def _unseen(standing: Standing, setting: Setting) -> str:
    """Says how frequent a fault may be that so few starts did not show: a failure, a broken constraint, a slow mode
    (Clopper & Pearson 1934)."""
    starts = standing.row(setting).starts
    if starts is None or not starts.made:
        return ""
    most = f"up to {float(f'{100 * starts.failed_most:.2g}'):g} % of starts"
    if starts.failed == starts.made:
        return f"{setting.id} {failed_words(starts)}."
    if starts.failed:
        return f"{setting.id} {failed_words(starts)}: {most} may fail."
    if starts.made == 1:
        return f"The only start of {setting.id} worked; one can miss a fault that occurs in {most}."
    return f"All {starts.made} starts of {setting.id} worked; so few can miss a fault that occurs in {most}."


def _at_the_edge(standing: Standing, decision: Decision, setting: Setting) -> str:
    """Says that nothing beyond the setting was tried, for each parameter of the server of which it has the largest
    value, or the smallest but 0 or 1. Larger ones are not proposed if no resource is saturated at this load; of a
    parameter that counts threads not if each user has one, or the bottleneck is one that more threads do not cure, but
    for a lock that each process has for itself; nor smaller ones than what serves too little already."""
    experiment, found = standing.experiment, standing.row(setting).bottleneck
    loaded = found is not None and found.name is BottleneckName.NONE
    endless = experiment.objective.is_capacity or not kind_of(experiment).sends_requests
    users = inf if endless else experiment.load_for(setting).users or inf
    saturated = found is not None and not loaded
    busy = (standing.value(setting, CPU_SHARE) or 0.0) >= CPU_BUSY
    limited = busy if found is None else found.name in NO_MORE_THREADS
    smaller = ": try smaller ones too" if decision.kind is AnswerKind.BEST else ": a smaller one may serve as much"
    if (saturated and decision.kind is not AnswerKind.BEST) or serves_less(standing, setting):
        smaller = ""
    clauses = []
    for name, level in setting.levels if experiment.design.vary == "all" else ():
        numbers = numbers_of(experiment.factors.get(name, ())) or []
        if name == REVISION or name.startswith(("load.", "host.")) or len(numbers) < EDGES_FROM:
            continue
        value, added = number_of(level), added_along(standing, line_through(standing, name, setting))
        # NaN, where too few settings raced, is neither above nor below.
        in_vain = limited and not (added < TRACKS[0] or _adds_locks(standing, name, setting))
        enough = (max(numbers) >= users and added >= TRACKS[0]) or in_vain
        if value == max(numbers) and not loaded and not enough:
            clauses.append(f"{name}={format_level(level)} is the largest value tried: try larger ones too")
        elif value == min(numbers) and value not in (0, 1):
            clauses.append(f"{name}={format_level(level)} is the smallest value tried{smaller}")
    return sentences(clauses)


def _adds_locks(standing: Standing, name: str, setting: Setting) -> bool:
    """True if a higher value of the parameter starts more processes, and each may have a lock of its own where one is
    the limit now."""
    found, line = standing.row(setting).bottleneck, line_through(standing, name, setting)
    own_lock = found is not None and found.name is BottleneckName.LOCK and MORE_PROCESSES in found.advice
    return own_lock and threads_added({each: standing.processes.get(of) for each, of in line.items()}) >= TRACKS[0]


def _raced(standing: Standing) -> str:
    """Says after how many trials it was decided, beside those of the full grid, and whether fresh starts confirm it."""
    race = standing.race
    if race is None or not race.looks:
        return ""
    short = " (those of short trials included)" if standing.experiment.screened_ns is not None else ""
    rounds = plural(race.blocks, "round")
    text = f"The race took {rounds}{short} and {race.trials} trials (the full grid: {race.grid_trials})"
    fresh = race.confirmation
    if fresh is not None and fresh.upheld:
        one = fresh.trials == 1
        starts = "1 fresh start" if one else f"{fresh.trials} fresh starts"
        if fresh.agrees:
            text += f", and {starts} {'confirms' if one else 'confirm'} it"
        else:
            text += f"; {starts} neither {'confirms nor contradicts' if one else 'confirm nor contradict'} it"
    elif race.unconfirmed is not None:
        text += f". It is not confirmed: no fresh start was valid ({race.unconfirmed})"
    return f"{text}."


def _none_feasible(standing: Standing) -> tuple[str, ...]:
    nearest = _nearest(standing)
    where = holds_for(standing, nearest.setting)
    unsure = any(_may_meet(standing, row) for row in standing.rows)
    violates = "may violate" if _may_meet(standing, nearest) else "violates"
    none = f"No setting {'is shown to meet' if unsure else 'meets'} the SLO ({_wanted(standing)})"
    clauses = [
        f"{nearest.setting.id} comes nearest",
        f"it {violates} the SLO: {'; '.join(map(_broken, nearest.infeasible_because))}",
        "more starts would tell (measure.repeats)" if unsure else "",
        _failed(standing),
    ]
    if standing.experiment.objective.is_capacity and not nearest.lapsed:
        least = significant(floor_per_s(standing.experiment))
        longest = time_text(longest_window_ns(standing.experiment))
        clauses += [
            "loosen the SLO or make the server faster",
            f"trials of this length cannot test rates below {least}/s: that takes a load.duration above {longest}",
        ]
        return (f"{none} at {least}/s or more{where}.", sentences(clauses))
    left_out = _left_out(standing, nearest.setting)
    told = f" At {nearest.setting.id} {left_out}." if left_out else ""
    return (f"{none}{where}.{told}", sentences(clauses))


def _may_meet(standing: Standing, row: SettingResult) -> bool:
    """True if only the number of its starts bars the setting: they are too few to show that no more than the allowed
    share of them is bad."""
    objective, starts = standing.experiment.objective, row.starts
    if not row.trials or not row.lapsed or objective.allow_failed_starts == 0:
        return False
    if starts is None or not starts.failed:
        return True
    least = share_least(starts.failed, starts.made, 1 - objective.confidence)
    return not starts.wrong and least <= objective.allow_failed_starts


def _broken(reason: str) -> str:
    """`p99 < 50ms (it was 60.5 ms)`, from `p99 < 50ms: it was 60.5 ms`."""
    condition, _, seen = reason.partition(": ")
    return f"{condition} ({seen})" if seen else condition


def _wanted(standing: Standing) -> str:
    texts = [constraint.text for constraint in _in_force(standing)]
    if any(row.starts is not None and row.starts.failed for row in standing.rows) or not texts:
        texts.append(allowed_words(standing.experiment.objective.allow_failed_starts))
    return " and ".join(texts)


def _in_force(standing: Standing) -> tuple[Constraint, ...]:
    """The constraints, with the one on unserved users if there are any."""
    means = [{UNSERVED: standing.value(row.setting, UNSERVED) or 0.0} for row in standing.rows]
    return in_force(standing.experiment.objective, means)


def _in_full(standing: Standing, setting: Setting) -> str:
    """The objective's figure, the load and CPUs for which it holds, the users left out of it, a setting that gave more
    but failed, and what will end it soon."""
    figure = f"{_figure(standing, setting)}{holds_for(standing, setting)}"
    window_ns = max(standing.experiment.load.duration_ns, standing.experiment.design.soak_window_ns)
    ends = soon(standing.growing.get(setting, {}), window_ns / 1e9)
    less, failed = serves_less(standing, setting), _ahead_but_failed(standing, setting)
    more = filter(None, (_left_out(standing, setting), less, failed, ends))
    return ". ".join([figure, *map(capital, more)])


def _ahead_but_failed(standing: Standing, setting: Setting) -> str:
    """`level=3 gave 768/s, but failed 5 of 8 starts`: the best of the settings that failed starts and came out ahead of
    `setting`. If `setting` itself failed some, this is said first."""
    failed = {row.setting: row.starts for row in standing.rows if row.starts and row.starts.failed}
    clauses = [f"it {failed_words(failed[setting])}"] if setting in failed else []
    for best in [each for each in _ahead(standing, setting) if each in failed][:1]:
        clauses.append(f"{best.id} gave {standing.objective_text(best)}, but {failed_words(failed[best])}")
    return "; ".join(clauses)


def _ahead(standing: Standing, setting: Setting) -> list[Setting]:
    """The settings whose figure is better than that of `setting`, the best first."""
    sign = 1 if standing.experiment.objective.direction == "maximise" else -1
    values = [(row.setting, standing.value(row.setting, standing.experiment.objective.metric)) for row in standing.rows]
    signed = {each: sign * value for each, value in values if value is not None}
    return sorted((each for each in signed if signed[each] > signed.get(setting, inf)), key=lambda each: -signed[each])


def _left_out(standing: Standing, setting: Setting) -> str:
    """`56 of 64 users were never served`, mean over the trials; empty if all were served."""
    share = standing.value(setting, UNSERVED)
    users = standing.experiment.load_for(setting).users or standing.value(setting, "users_mean")
    if not share or not users:
        return ""
    return f"{max(round(share * users, 1), 0.1):,.9g} of {users:,.0f} users were never served"


def _nearest(standing: Standing) -> SettingResult:
    """The setting that misses the fewest constraints, and of those the one whose worst miss is the smallest."""

    def distance(row: SettingResult) -> tuple[int, float, int]:
        misses = [
            miss
            for constraint in _in_force(standing)
            if (miss := shortfall(constraint, standing.value(row.setting, constraint.metric))) is not None
        ]
        failed = row.starts.failed if row.starts is not None and not row.feasible else 0
        return len(misses) + (failed > 0), max(misses, default=0.0), failed

    return min((row for row in standing.rows if row.trials), key=distance)


def _not_enough(standing: Standing) -> tuple[str, ...]:
    leader = standing.leader
    if leader is None:
        return _none_seen(standing)
    open_ = any(standing.row(setting).uncertain_because for setting in _ahead(standing, leader))
    how = "were seen to" if standing.row(leader).uncertain_because else "certainly"
    among = f"of those that {how} meet the SLO, " if open_ else "of those measured, " if _has_gaps(standing) else ""
    cold = "" if standing.warmup_s is None else f" until all are warm (--warmup {standing.warmup_s}s, measure.warmup)"
    looks = f"{among}{leader.id} looks best so far, {_in_full(standing, leader)}"
    first = f"Not enough data to name a setting{cold}: {looks}."
    confirmation = standing.race.confirmation if standing.race else None
    if confirmation is not None and not confirmation.upheld:
        return (first, _withdrawn(standing, confirmation.setting))
    if standing.race is not None and standing.race.unconfirmed is not None:
        return (
            first,
            sentence(f"The setting that the race named failed on every fresh start: {standing.race.unconfirmed}"),
        )
    parts = []
    rivals = [row.setting for row in standing.rows if row.setting in standing.contenders]
    one_trial_each = standing.blocks < 2 and len(standing.rows) > 1
    if standing.experiment.objective.is_capacity:
        if rivals:
            parts.append(f"{names(rivals)} may still hold a rate that is more than {standing.margin} higher")
        allows = f"each measure.repeats allows {TRIALS_PER_REPEAT} of a setting"
        if standing.experiment.design.budget_ns is not None:
            allows += ", as far as design.budget lets them"
        beyond = "more trials would not decide; a load generator that can offer more would"
        tell = f"more trials ({allows}) or longer ones would decide"
        parts.append(beyond if standing.is_beyond_engine(leader) else tell)
    elif late := too_little_time(standing):
        return (first, sentence(late))
    elif one_trial_each:
        parts.append("one trial of each setting cannot tell a difference from noise")
        if standing.experiment.measure.repeats < ROUNDS_LEAST:
            parts.append(f"run at least {ROUNDS_LEAST} rounds, better 5 to 10 (measure.repeats)")
    elif rivals:
        parts.append(may_be_better(standing, rivals, leader))
    unsure = [row for row in map(standing.row, [leader, *rivals]) if row.uncertain_because]
    if unsure and not one_trial_each:
        who, what = names([row.setting for row in unsure]), "; ".join(unsure[0].uncertain_because)
        of = f"{unsure[0].setting.id}: " if len(unsure) > 1 else ""
        parts.append(f"it is not certain whether {who} {verb(unsure, 'meets', 'meet')} the SLO ({of}{what})")
    by_warmth_alone = standing.warmup_s is not None and not rivals
    if parts and not (one_trial_each or by_warmth_alone or standing.experiment.objective.is_capacity):
        parts.append(_what_decides(standing, [leader, *rivals], unsure))
    return (first, sentences([*parts, _unmeasured(standing)]))


def _what_decides(standing: Standing, open_: Sequence[Setting], unsure: Sequence[SettingResult]) -> str:
    """Says what would decide between the `open_` settings, of which the first leads. `unsure`: those that may break a
    condition."""
    found = {setting: standing.figures[setting].estimate for setting in open_ if setting in standing.figures}
    of_percentile = requests_for(standing.experiment.objective.metric) > 0
    if all(each.at_least for each in found.values()):
        lower = "lower " if of_percentile else ""
        return f"more trials would not decide: judge a {lower}percentile (objective), or lower the load"
    ahead = [s for s, each in found.items() if each.at_least and each.value < found[open_[0]].value]
    if ahead and not of_percentile:
        return (
            f"more trials would not decide: too many requests of {names(ahead)} got no correct response; add a "
            "condition, such as error_rate < 1% (--slo, objective.subject_to)"
        )
    few = next((few for row in unsure if (few := standing.few_requests.get(row.setting))), None)
    if few is None and len(open_) > 1 and (coarse := coarse_clock(standing, open_[0])):
        return f"more trials may not decide: {coarse}"
    if few is None and by_clock(reason for row in unsure for reason in row.uncertain_because):
        return (
            "more trials may not decide: set the limit further from what was measured, or let powerband's own engine "
            "measure (powerband import turns the plan into a scenario)"
        )
    return few or f"{more_trials(standing)} or longer trials would decide"


def _withdrawn(standing: Standing, setting: Setting) -> str:
    """Says why fresh starts took back the setting that the race named."""
    starts = standing.row(setting).starts
    if starts is not None and starts.failed:
        return f"The race named {setting.id}, but it {failed_words(starts)}. Leave it out and race again."
    if standing.broken_afresh:
        broke = " and ".join(map(_broken, standing.broken_afresh))
        return (
            f"The race named {setting.id}, but fresh starts of it broke {broke}. Loosen the condition, or leave it out "
            "and race again."
        )
    cure = "with longer trials"
    if standing.experiment.screened_ns is not None:  # it sets the length of its trials itself
        cure = "measure every setting in full trials (--order blocks, design.order)"
    return f"The race named {setting.id}, but fresh starts contradict it. Race again on a quieter machine, or {cure}."


def _none_seen(standing: Standing) -> tuple[str, ...]:
    """The words if no setting was seen to meet the constraints, but some may."""
    first = f"Not enough data to name a setting: none was seen to meet {_wanted(standing)}."
    unsure = [row for row in standing.rows if row.uncertain_because]
    parts = [late] if (late := too_little_time(standing)) else []
    if unsure:
        nearest = _nearest(standing)
        shown = nearest if nearest in unsure else unsure[0]
        parts.append(f"{names([row.setting for row in unsure])} may meet it")
        parts.append(f"for {shown.setting.id} the open condition is {'; '.join(shown.uncertain_because)}")
        few = standing.few_requests.get(shown.setting, "")
        out_of_time = not late and standing.race is not None and standing.race.ended_by == "budget"
        decide = out_of_time and not by_clock(shown.uncertain_because)
        parts.append(few or (f"{more_trials(standing)} would decide" if decide else ""))
    return (first, sentences([*parts, _unmeasured(standing)]))


def _figure(standing: Standing, setting: Setting) -> str:
    """The objective with its interval, as a person reads it."""
    if standing.experiment.objective.is_capacity:
        return _capacity_figure(standing, standing.row(setting))
    metric = standing.experiment.objective.metric
    unit = METRICS[metric].unit
    figure = standing.figures[setting]
    found = figure.estimate
    if found.at_least:
        least = format_value(found.value, unit)
        return f"{standing.words_of(metric)} is at least {least}, because too many requests were not answered rightly"
    rises = setting in standing.rising
    text = f"{standing.words_of(metric)} {_bound(metric) if rises else ''}{format_value(found.value, unit)}"
    if rises:
        text += ", and it still got faster while it was measured"
    short = "short " if standing.short else ""
    each = f" of {(standing.experiment.screened_ns or 0) / 1e9:g} s" if short else ""
    if found.low is None or found.high is None:
        return f"{text}, from one {short}trial{each}"
    low, high = format_value(found.low, unit), format_value(found.high, unit)
    interval = f"{percent(found.confidence)} interval {low} to {high}, " if low != high else ""
    return f"{text} ({interval}{found.n} {'fresh starts' if figure.fresh else f'{short}trials{each}'})"


def _bound(metric: str) -> str:
    """`at least` for a rate and `at most` for a time that were measured while the server still got faster."""
    return "at most " if metric.startswith("response_time") else "at least "


def _capacity_figure(standing: Standing, row: SettingResult) -> str:
    """The rate that most starts hold. The figure is an estimate, and too high where few starts are slower: the low end
    of its interval is what was shown."""
    assert row.capacity is not None
    found = row.capacity.estimate
    wanted = " and ".join(constraint.text for constraint in standing.experiment.objective.constraints)
    if found is not None and row.uncertain_because:
        return f"it held {wanted} in none of {plural(found.n, 'trial')}; lower rates were not tested"
    if found is not None and found.at_least:
        return f"it held {wanted} {row.capacity.note.removeprefix('held ')}"
    if found is None or found.low is None or found.high is None:
        return f"it holds {wanted} {row.capacity.note.removeprefix('holds ') or 'in the only trial that shows it'}"
    return (
        f"{percent(HELD_BY)} of starts hold {wanted} up to about {format_value(found.value, 'per_s')}"
        f"{of_requests(standing.experiment.load)} "
        f"({percent(found.confidence)} interval {significant(found.low)} to {significant(found.high)}, "
        f"{found.n} trials; plan with {format_value(found.low, 'per_s')})"
    )


def _how_sure(standing: Standing, decision: Decision) -> str:
    if len(standing.rows) == 1 and standing.exploration is not None:
        return (
            "No other setting that was tried could race, so there was nothing to compare: the excluded trials say why."
        )
    if len(standing.rows) == 1:
        return (
            "It is the only setting, so there was nothing to compare: name more values of a parameter "
            "(-P threads=1..64, factors in a file)."
        )
    compared = _compared(standing, decision)
    outside = [clause for clause in (_not_allowed(standing), _failed(standing)) if clause]
    if not compared:
        return f"No other setting can be the answer: {'; '.join(outside)}."
    confidence = percent(standing.experiment.objective.confidence)
    sure = f"these verdicts have {confidence} confidence"
    told_with_the_bound = decision.kind is AnswerKind.BOUNDED and not _beaten(standing, decision.chosen)
    return sentences([*compared, "" if told_with_the_bound else sure, *outside])


def _compared(standing: Standing, decision: Decision) -> list[str]:
    """Clauses that compare the settings that may be an answer."""
    if decision.kind is AnswerKind.BOUNDED:
        return [*not_told_apart(standing, decision), *_beaten(standing, decision.chosen)]
    others = [setting for setting in decision.equivalent if setting != decision.chosen]
    parts = []
    if others:
        differ = verb(others, "difference is", "differences are")
        parts.append(f"{names(others)} {verb(others, 'is', 'are')} equivalent (the {differ} under {standing.margin})")
        if decision.kind is AnswerKind.EQUIVALENT_SET and decision.chosen is not None:
            but = "; " if standing.cheapest(decision.equivalent)[1:] else ", but "
            parts[-1] += but + why_this_one(standing, decision.equivalent, decision.chosen)
    if decision.undecided and standing.leader is not None:
        may_be = names(decision.undecided)
        than = "" if decision.chosen == standing.leader else f" than {standing.leader.id}"
        parts.append(f"no setting is better{than} by more than {standing.margin}; {may_be} may be equivalent")
    return [*parts, *_beaten(standing, decision.chosen)]


def _beaten(standing: Standing, chosen: Setting | None) -> list[str]:
    parts = []
    worse = [row for row in standing.rows if row.trials and row.feasible and row.verdict is Verdict.WORSE]
    if worse:
        parts.append(_worse(standing, worse, chosen, whole=len(worse) == len(standing.rows) - 1))
    if close := close_behind(standing):
        parts.append(f"the difference to {names(close)} may be under {standing.margin}")
    return parts


def _worse(standing: Standing, worse: Sequence[SettingResult], chosen: Setting | None, *, whole: bool) -> str:
    """`threads=4 is worse by 36.3 to 41.4 %`; where the setting to use does not lead, `worse than threads=16`."""
    settings = [row.setting for row in worse]
    whole = whole and len(worse) > 1
    who = "every other setting is" if whole else f"{names(settings)} {verb(settings, 'is', 'are')}"
    assert standing.leader is not None
    metric = standing.experiment.objective.metric
    best = standing.value(standing.leader, metric) or 0.0
    closest = min(worse, key=lambda row: abs((standing.value(row.setting, metric) or 0.0) - best))
    near = "" if len(worse) == 1 else f"; the best of them, {closest.setting.id},"
    than = "" if chosen == standing.leader else f" than {standing.leader.id}"
    return f"{who} worse{than}{near} {_gap(standing, closest)}"


def _gap(standing: Standing, row: SettingResult) -> str:
    """How much worse it is: a percentage, or a factor above ten; for shares percentage points; both figures if there is
    no interval. Only the least of it if the row's figure is a lower bound, or a guess below what was tried."""
    effect = row.effect
    if effect is None or effect.low is None or effect.high is None:
        assert standing.leader is not None
        return f"with {standing.objective_text(row.setting)} instead of {standing.objective_text(standing.leader)}"
    least, ends = "", (effect.low, effect.high)
    if row.is_guess or row.estimates[standing.experiment.objective.metric].at_least:
        nearest = min(ends, key=lambda end: abs(1 - end))
        least, ends = "at least ", (nearest, nearest)
    if not standing.shares and min(ends) > RATIO_SHOWN_MAX:
        return f"by {least}a factor of {span(map(significant, ends))}"
    low, high = sorted(abs(1 - end) * standing.base(row.setting) for end in ends)
    return f"by {least}{range_of_shares(low, high, points=standing.shares)}"


def _not_allowed(standing: Standing) -> str:
    barred = [row for row in standing.rows if row.trials and not row.feasible]
    failed = [row for row in barred if row.starts and row.starts.failed]
    found = [row.setting for row in barred if row not in failed]
    clauses = [f"{row.setting.id} {failed_words(row.starts)}" for row in failed[:LIST_MAX] if row.starts]
    if len(failed) > LIST_MAX:
        clauses.append(f"{len(failed) - LIST_MAX} more failed some of theirs")
    if found:
        clauses.append(f"{names(found)} {verb(found, 'violates', 'violate')} the SLO")
    return joined(clauses) if clauses else ""


def _failed(standing: Standing) -> str:
    return _without_trials(standing.failed, "failed")


def _unmeasured(standing: Standing) -> str:
    """Names the settings of which nothing certain is known, with the reasons; empty if there are none."""
    untried = [setting for setting, reason in standing.unmeasured.items() if reason == NOT_TRIED]
    others = {setting: reason for setting, reason in standing.unmeasured.items() if reason != NOT_TRIED}
    parts = [
        _without_trials({s: why for s, why in others.items() if bool(standing.row(s).trials) is some}, what)
        for some, what in ((False, "could not be measured"), (True, "cannot be judged yet"))
    ]
    if untried:
        parts.append(f"{names(untried)} {verb(untried, 'was', 'were')} not tried yet")
    return "; ".join(filter(None, parts))


def _has_gaps(standing: Standing) -> bool:
    """True if a setting could not be measured at all, for no fault of its own."""
    tried_in_vain = {setting for setting, reason in standing.unmeasured.items() if reason != NOT_TRIED}
    return any(not standing.row(setting).trials for setting in tried_in_vain)


def _without_trials(reasons: Mapping[Setting, str], what: str) -> str:
    if not reasons:
        return ""
    texts = list(dict.fromkeys(reasons.values()))
    return f"{names(list(reasons))} {what}: {texts[0]}{' (and other reasons)' if len(texts) > 1 else ''}"
