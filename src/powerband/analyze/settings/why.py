"""Words the reasons of an answer: what limits the chosen setting, what a smaller one lacks, what a larger one costs.

In: the standing of all settings. Out: a paragraph for each of these settings. It tells the setting's bottleneck, or
plain figures if too little was seen to name one. A cause that nothing was measured for is not guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from powerband.analyze.settings.contest import CHEAPER_BY, clearly_more
from powerband.analyze.settings.standing import GOODPUT, Standing, sentences
from powerband.analyze.settings.thread_line import TRACKS, along, threads_added
from powerband.analyze.stats.intervals import mean_of
from powerband.analyze.trial.bottleneck.clauses import MORE_PROCESSES, of_cpus, with_cpu_use
from powerband.base.units import format_bytes, format_value, plural, share, significant
from powerband.loads import kind_of
from powerband.loads.measured import least_served
from powerband.model.bottlenecks import BottleneckName
from powerband.model.load import Load
from powerband.model.metrics import METRICS
from powerband.model.plan import Setting, format_level, number_of
from powerband.model.results import Bottleneck, Candidate, SettingResult, TrialResult, Verdict

CPU_SHARE = "subject_cpu_share"
P99 = "response_time_ns_p99"
WATCHED = "thread_cpu_share_max"  # trials whose threads were watched have it
MOSTLY_FAIL = 0.5  # of the requests
CPU_BUSY = 0.90  # of the subject's CPUs: the share that names a short CPU in `bottleneck/rules.py`
CPU_NAMES = (BottleneckName.SUBJECT_CPU, BottleneckName.CPU_QUOTA, BottleneckName.TOO_MANY_RUNNABLE_THREADS)
CPU_IDLE = 0.70  # below it 40 % more would fit
FAILS_MANY = 0.1  # of its requests: what else it does is then of less interest
TIED_LEAST = 2  # trials that name another bottleneck: a single one among several is chance
SOONER_BY = 1.5  # a smaller difference in p99 that is not certain is not worth one


def why(standing: Standing, chosen: Setting) -> tuple[str, ...]:
    """A paragraph for each setting that explains the answer, `chosen` first."""
    reasons = tuple(text for rule in (_limit_here, _smaller, _larger, _quicker) if (text := rule(standing, chosen)))
    return reasons or ("No single resource was found to be the limit.",)


def limit_of_setting(standing: Standing, setting: Setting) -> tuple[str, ...]:
    """The paragraph on what limits a setting, if it is known."""
    return tuple(filter(None, [_limit_here(standing, setting)]))


def commonest(trials: Sequence[TrialResult]) -> Bottleneck | None:
    """The bottleneck that most of these trials name, with the evidence of the one that is in the middle by goodput, and
    the server's CPU use as the mean of all, as in the table; None if most name none. A tie goes to the bottleneck that
    an earlier trial names. If slots were measured in some of the trials, or only the connections beside them, only
    these are asked, and those that name a short CPU, at which no slots are measured. The second candidate is another
    bottleneck that as many trials name, or one fewer but two at least; else that of the middle trial itself."""
    every = trials
    for looked in (_has_slots, _was_looked_at):
        if any(map(looked, trials)):
            trials = [trial for trial in trials if looked(trial) or _names_cpu(trial)]
            break
    names = Counter(None if trial.bottleneck is None else trial.bottleneck.name for trial in trials)
    if not names:
        return None
    (name, most), *others = names.most_common(2)
    if (found := _middle(trials, name, every)) is None:
        return None
    for other, votes in others:
        if votes == most or votes >= max(TIED_LEAST, most - 1):
            second = _middle(trials, other, every)
            return found if second is None else replace(found, second=_told_by(second, votes, len(trials)))
    return found


def _has_slots(trial: TrialResult) -> bool:
    return "slots" in trial.metrics


def _was_looked_at(trial: TrialResult) -> bool:
    return any(problem.code == "no_slots" for problem in trial.problems)


def _names_cpu(trial: TrialResult) -> bool:
    return trial.bottleneck is not None and trial.bottleneck.name in CPU_NAMES


def _middle(
    trials: Sequence[TrialResult], name: BottleneckName | None, every: Sequence[TrialResult]
) -> Bottleneck | None:
    named = [trial for trial in trials if trial.bottleneck is not None and trial.bottleneck.name is name]
    named.sort(key=lambda trial: trial.metrics.get("goodput_per_s", 0.0))
    if not named or (found := (middle := named[len(named) // 2]).bottleneck) is None:
        return None

    own = middle.metrics.get(CPU_SHARE, 0.0)
    known = [trial.metrics[CPU_SHARE] for trial in every if CPU_SHARE in trial.metrics]
    mean = mean_of(known or [own], METRICS[CPU_SHARE].unit)

    def averaged(each: Candidate) -> tuple[str, ...]:
        return with_cpu_use(each.evidence, own, mean)

    second = found.second and replace(found.second, evidence=averaged(found.second))
    return replace(found, evidence=averaged(found), second=second)


def _told_by(second: Bottleneck, votes: int, trials: int) -> Candidate:
    evidence = (f"{votes} of {plural(trials, 'trial')} name it", *second.evidence[:2])
    return Candidate(second.name, evidence, second.advice)


def bottleneck_sentences(setting: Setting, bottleneck: Bottleneck, *, advised: bool = False) -> str:
    """`With threads=4 the pool is too small. All 4 `pool` threads are holding a request.` If evidence ties: `... Or a
    dependency is the limit. ...` `advised`: the advice for each follows its evidence."""
    said = (
        f"{each.name.words}. {sentences((*each.evidence, each.advice if advised else ''))}".rstrip()
        for each in bottleneck.candidates
    )
    return f"With {setting.id} {' Or '.join(said)}"


def serves_less(standing: Standing, setting: Setting) -> str:
    """`it serves 195/s, threads=64 3,140/s: ...`: users who wait for a slow server ask less of it, so that it needs
    less. Empty if goodput is the objective or has a condition, or no other setting's is higher for certain and by more
    than the margin."""
    objective = standing.experiment.objective
    asked = {objective.metric, *(constraint.metric for constraint in objective.constraints)}
    here = standing.row(setting).estimates.get(GOODPUT)
    if here is None or objective.is_capacity or asked & {GOODPUT, "achieved_rate_per_s"}:
        return ""
    allowed = [(row.estimates.get(GOODPUT), row.setting) for row in standing.rows if row.feasible]
    rates = [(found, of) for found, of in allowed if found is not None]
    most, best = max(rates, key=lambda each: each[0].value, default=(here, setting))
    overlap = here.high is not None and most.low is not None and most.low <= here.high
    if overlap or most.value <= here.value * (1 + objective.margin):
        return ""
    ours, theirs = (format_value(each.value, METRICS[GOODPUT].unit) for each in (here, most))
    return f"it serves {ours}, {best.id} {theirs}: set what it must serve (--slo 'goodput>...')"


def with_tried(standing: Standing, setting: Setting) -> tuple[SettingResult, ...]:
    """The rows. Where the pool of `setting` is too small, but the next larger value of a parameter had more threads and
    was not better, its advice says so instead; so does the advice to start more processes."""
    rows, found = tuple(standing.rows), standing.row(setting).bottleneck
    if found is None or standing.row(setting).verdict is not Verdict.EQUIVALENT:
        return rows  # verdicts are to the leader: they say nothing of a setting that may be worse than that
    counts = {row.setting: standing.value(row.setting, "threads_max") for row in rows}
    threads = _tried(standing, setting, "threads", counts)
    processes = _tried(standing, setting, "processes", standing.processes)

    def advice(each: Candidate) -> str:
        if each.name is BottleneckName.POOL_TOO_SMALL:
            return threads or each.advice
        own_lock = each.name is BottleneckName.LOCK and each.advice.startswith(MORE_PROCESSES)
        return processes or each.advice if own_lock else each.advice

    second = found.second and replace(found.second, advice=advice(found.second))
    told = replace(found, advice=advice(found), second=second)
    return tuple(replace(row, bottleneck=told) if row.setting == setting else row for row in rows)


def line_through(standing: Standing, name: str, setting: Setting) -> dict[float, Setting]:
    """The settings of the rows that differ from `setting` in the parameter `name` alone, by its level (`along`)."""
    return along(name, (row.setting for row in standing.rows), setting)


def added_along(standing: Standing, line: Mapping[float, Setting]) -> float:
    """The threads that a level of the line higher by one adds (`threads_added`)."""
    return threads_added({level: standing.value(of, "threads_max") for level, of in line.items()})


def _tried(standing: Standing, setting: Setting, what: str, counts: Mapping[Setting, float | None]) -> str:
    """`threads=64, with more threads, was tried: it violates the SLO`; empty if none was, or it may be better. `what`
    are counted by `counts`, as far as their number is known."""
    verdicts = {Verdict.WORSE: "is worse", Verdict.EQUIVALENT: "is no better"}
    for name, level in setting.levels:
        here, line = number_of(level), line_through(standing, name, setting)
        beyond = [each for each in line if here and each >= here][:2]
        added = threads_added({each: counts.get(line[each]) for each in beyond})
        if name.startswith(("load.", "host.")) or not added >= TRACKS[0]:
            continue
        row = standing.row(line[beyond[1]])
        said = verdicts.get(row.verdict, "") if row.feasible else "violates the SLO"
        if said:
            return f"{name}={format_level(row.setting.as_dict()[name])}, with more {what}, was tried: it {said}"
    return ""


def _limit_here(standing: Standing, chosen: Setting) -> str | None:
    """The bottleneck of the chosen setting; else its limit if that is plain: the CPUs that the subject may use, or the
    rate offered; else how many users wait while CPUs idle."""
    if (bottleneck := standing.row(chosen).bottleneck) is not None:
        return bottleneck_sentences(chosen, bottleneck)
    busy, failed = standing.value(chosen, CPU_SHARE), standing.value(chosen, "error_rate") or 0.0
    # Rules that watched the threads had a reason not to name a full CPU, such as Erlang's schedulers, which also use it
    # while they wait for work. And refusals may be all that the CPU does.
    unseen = standing.value(chosen, WATCHED) is None
    if busy is not None and busy >= CPU_BUSY and unseen and failed < MOSTLY_FAIL:
        return f"With {chosen.id} CPU is the limit. The server uses {_of_cpus(standing, chosen, busy)}."
    if standing.experiment.objective.is_capacity or not kind_of(standing.experiment).has_metric("offered_rate_per_s"):
        return None  # its trials are at many rates, and what is served is what was searched; or nothing is offered
    load = standing.experiment.load_for(chosen)
    offered, goodput = standing.value(chosen, "offered_rate_per_s"), standing.value(chosen, "goodput_per_s")
    scheduled = (load.rate_per_s is not None or load.pace is not None) and load.all_answered
    if scheduled and offered and goodput and goodput >= least_served(0.99, len(load.scenario)) * offered:
        return f"With {chosen.id} {BottleneckName.NONE.words}. The whole offered load is served."
    return None if busy is None or busy >= CPU_IDLE else _users_wait(standing, chosen, load, busy)


def _users_wait(standing: Standing, chosen: Setting, load: Load, busy: float) -> str | None:
    """Says that users wait though the server uses only `busy` of its CPUs, and whether it has a thread for each. That
    it has does not show that these serve them: most may be those of a runtime."""
    used, threads = _of_cpus(standing, chosen, busy), standing.value(chosen, "threads_max")
    told = f"With {chosen.id} no limit could be named. The server"
    users = plural(load.users or 0, "user")
    if load.users is not None and threads is not None and threads >= load.users:
        return f"{told} has {threads:,.0f} threads for {users} and uses {used}."
    return f"{told} uses {used} under {users} that never pause." if load.never_pauses else None


def _smaller(standing: Standing, chosen: Setting) -> str | None:
    """The nearest setting with fewer threads that serves worse, and what it lacks: its bottleneck or, if none is named
    while its CPUs idle, that it fails requests, or that they idle. If no number of threads tells the settings
    apart, as behind an event loop, it is the best of the worse ones that has another bottleneck."""
    threads = standing.value(chosen, "threads_max")
    if threads is None:
        return None
    here = standing.row(chosen).bottleneck
    worse = [
        (standing.value(row.setting, "threads_max") or threads, row)
        for row in standing.rows
        if row.verdict is Verdict.WORSE and row.trials and _tells(standing, row)
    ]
    fewer = [(count, row) for count, row in worse if count * CHEAPER_BY <= threads]
    alike = [row for count, row in worse if count < threads * CHEAPER_BY and not _names_the_same(row.bottleneck, here)]
    if fewer:
        nearest = max(fewer, key=itemgetter(0))[1]
    elif alike:
        nearest = min(alike, key=lambda row: _behind(standing, row.setting, chosen))
    else:
        return None
    if nearest.bottleneck is not None:
        return bottleneck_sentences(nearest.setting, nearest.bottleneck)
    served, ended = (standing.value(nearest.setting, name) for name in (GOODPUT, "achieved_rate_per_s"))
    if served is not None and ended and 1 - served / ended >= FAILS_MANY:
        failed = f"{share(1 - served / ended)} of its {standing.experiment.noun}s"
        return f"With {nearest.setting.id} the server fails {failed}."
    idle = _of_cpus(standing, nearest.setting, 1 - (standing.value(nearest.setting, CPU_SHARE) or 0.0))
    return f"With {nearest.setting.id} the server {_yield(standing, nearest)} {idle} idle."


def _of_cpus(standing: Standing, setting: Setting, part: float) -> str:
    cpus = standing.cpus_for(setting)
    return of_cpus(part, None if cpus is None else cpus.server)


def _names_the_same(found: Bottleneck | None, other: Bottleneck | None) -> bool:
    return found is not None and other is not None and found.name is other.name


def _behind(standing: Standing, setting: Setting, chosen: Setting) -> float:
    found, best = (standing.value(each, standing.experiment.objective.metric) for each in (setting, chosen))
    return math.inf if found is None or best is None else abs(found - best)


def _tells(standing: Standing, row: SettingResult) -> bool:
    if row.bottleneck is not None:
        return row.bottleneck.name is not BottleneckName.NONE
    return (standing.value(row.setting, CPU_SHARE) or 1.0) < CPU_IDLE


def _yield(standing: Standing, row: SettingResult) -> str:
    minimised = standing.experiment.objective.direction == "minimise"
    if row.effect is None or row.is_guess or standing.shares or minimised:
        return "does worse and leaves"
    metric = standing.words_of(standing.experiment.objective.metric)
    return f"reaches {100 * row.effect.value:.1f} % of the best {metric} and leaves"


def _larger(standing: Standing, chosen: Setting) -> str | None:
    """The extra cost of the largest setting that is no better, and whether it has less memory; also what makes it worse
    where that can be mended without another setting. Of short trials beside full ones only the threads are compared."""
    threads = standing.value(chosen, "threads_max")
    if threads is None:
        return None
    larger = [
        row
        for row in standing.rows
        if row.trials
        and row.setting != chosen
        and (standing.value(row.setting, "threads_max") or 0) >= CHEAPER_BY * threads
    ]
    if not larger:
        return None
    row = max(larger, key=lambda row: standing.value(row.setting, "threads_max") or 0.0)
    costs = [f"{standing.value(row.setting, 'threads_max') or 0:,.0f} threads instead of {threads:,.0f}"]
    capacity = standing.experiment.objective.is_capacity  # p99s at different rates say nothing of each other
    like = standing.is_like(row.setting, chosen)
    for metric, text, show in (
        ("rss_bytes_max", "memory", format_bytes),
        (P99, "p99 response time", lambda value: format_value(value, "ns")),
        ("context_switches_per_request", f"context switches per {standing.experiment.noun}", significant),
    ):
        here, there = standing.row(chosen).estimates.get(metric), row.estimates.get(metric)
        if not like or here is None or there is None or here.at_least or (capacity and metric == P99):
            continue
        if here.value and there.value >= CHEAPER_BY * here.value:
            least = "at least " if there.at_least else ""
            costs.append(f"{text} {least}{show(there.value)} instead of {show(here.value)}")
    told = ", ".join(costs[:3])
    saved = _memory_saved(standing, row.setting, chosen)
    uses = f"{row.setting.id} {f'has {told}, but {saved}' if saved else f'costs more: {told}'}."
    if row.bottleneck is not None and row.bottleneck.name is BottleneckName.TOO_MANY_RUNNABLE_THREADS:
        return f"{uses} Too many of its threads compete for the CPU."
    found = row.bottleneck
    if row.verdict is Verdict.WORSE and found is not None and found.name is BottleneckName.DELAYED_ACK:
        return f"{uses} {bottleneck_sentences(row.setting, found, advised=True)}"
    return uses


def _memory_saved(standing: Standing, setting: Setting, chosen: Setting) -> str:
    """`less memory: 150 MiB instead of 520 MiB`; empty unless it has clearly less than the chosen setting."""
    has, instead_of = standing.value(setting, "rss_bytes_max"), standing.value(chosen, "rss_bytes_max")
    if has is None or instead_of is None or not clearly_more(instead_of, has) or not standing.is_like(setting, chosen):
        return ""
    return f"less memory: {format_bytes(has)} instead of {format_bytes(instead_of)}"


def _quicker(standing: Standing, chosen: Setting) -> str | None:
    """The setting with the lowest p99 of those that may serve as well and certainly meet the SLO, which the choice by
    cost would hide. It is lower for certain if its whole interval is below that of the one to use; else it must be
    lower by far."""
    here, objective = standing.row(chosen).estimates.get(P99), standing.experiment.objective
    if here is None or objective.metric == P99 or objective.is_capacity:
        return None
    alike = [
        (there, row.setting)
        for row in standing.rows
        if (row.verdict is Verdict.EQUIVALENT or row.setting in standing.contenders or row.setting == standing.leader)
        and row.feasible
        and not row.uncertain_because
        and (there := row.estimates.get(P99)) is not None
        and not there.at_least
    ]
    there, setting = min(alike, key=lambda each: each[0].value, default=(here, chosen))
    least = "at least " if here.at_least else ""
    certain = here.low is not None and there.high is not None and there.high < here.low
    if (CHEAPER_BY if certain else SOONER_BY) * there.value > here.value or setting == chosen:
        return None
    p99s = f"a p99 of {format_value(there.value, 'ns')} instead of {least}{format_value(here.value, 'ns')}"
    if certain:
        dearer = "" if setting in standing.cheapest((setting, chosen)) else " more than cost"
        return f"{setting.id} answers sooner: {p99s}. Use it where response times matter{dearer}."
    limit = "set a limit for them" if not standing.experiment.allowed_times_ns() else "tighten their limit"
    return f"{setting.id} may answer sooner ({p99s}): if response times matter, {limit} (--slo)."
