"""Forecasts the duration of a run and the differences it can detect, from the experiment and the machine's noise alone.

The forecast is printed before anything starts; no trial depends on it. The detectable differences follow from the
intervals of the race and of the fixed plan (`search/pilot.py` computes their width), with the noise remembered for this
machine, or an assumed one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from powerband.analyze.settings.capacity import TRIALS_MIN, TRIALS_PER_REPEAT, longest_window_ns
from powerband.analyze.settings.starts import is_allowed
from powerband.analyze.stats.spending import rounds_most
from powerband.base.machine import Noise
from powerband.base.units import percent, plural, rough_time, significant, time_text
from powerband.loads import kind_of
from powerband.loads.driver import SCREEN_WARMUP_NS
from powerband.loads.engine_limits import foreseen
from powerband.loads.measured import requests_for
from powerband.model.experiment import Design, Experiment
from powerband.model.load import Load
from powerband.model.metrics import METRICS
from powerband.model.plan import Stage
from powerband.search.explore import BUDGET_SHARE, finalists_within
from powerband.search.outlook import SEED, simulate_untried
from powerband.search.pilot import blocks_to_find, smallest_difference
from powerband.search.screening import window_for

_START_NS = 500_000_000  # until a lean server is ready
_END_NS = 500_000_000  # drain, stop, and writing the record
_SNAPSHOTS_NS = 2_000_000_000  # for a small heap; mostly waiting for the probe
_SLOTS_LOOK_NS = 1_000_000_000  # of each look: with one user, and with twice the users; at most the measured window
_STEADY_AFTER_NS = 500_000_000  # duration of an automatic warm-up beyond its minimum, if everything settles quickly
PACE_FACTOR = 0.15  # standard deviation of the log of (the time that a trial takes / the time foreseen)
QUICKER = 0.85  # of the forecast: so long the quickest searches of real pools took (docs/methods/capacity.md)
CAPACITY_WINDOWS = (0.0, 0.1, 0.6)
"""How far the windows of a capacity search lie between `load.duration` (0) and the longest (1), on average over its
trials: at least, usually, at most. In 21 searches of real pools, with all repeats, it was 0.00 to 0.27, the median 0.04
(docs/methods/data/capacity-pools-2026-11-29.jsonl)."""


@dataclass(frozen=True)
class Reach:
    """The differences that the run can detect, if equal trials differ by `noise`. `blocks`: the number of blocks that
    the plan and its budget allow. `finds`: the smallest difference detected with these blocks (0.02: 2 %), None with
    fewer than two. `margin`: the smallest difference that matters. `margin_blocks`, `margin_ns`: blocks and time needed
    to detect `margin` nearly always; None if no plan of reasonable length does, and `margin_ns` also if users leave
    once they have sent their requests, since nobody knows when."""

    noise: Noise
    blocks: int
    finds: float | None
    margin: float
    margin_blocks: int | None
    margin_ns: int | None


@dataclass(frozen=True)
class Forecast:
    """Size and time of a run. `trials`: the maximum number, without repeats of invalid trials and without the soak.
    `explored`, `raced`: settings that are explored, and that are raced; `blocks`: the most blocks, of a race those of
    its shortest trials; `confirming`: trials that confirm the winner. `expected_ns`: the time for a server that starts
    within a second and settles soon; of a race, the median of simulated ones (`search/outlook.py`). `between_ns`: about
    nine of ten such races take between these two times; of a capacity search, the least and the most that it usually
    takes; None for a fixed plan. `longest_ns`: the time if no setting is eliminated, every warm-up is the longest and
    the whole retry budget is spent (a server may be even slower to start). `soak_ns`: the length of the soak, which all
    times include; 0: none. `reach`: None if there is nothing to compare, or if the noise of the metric is of another
    kind (shares, percentiles, capacities)."""

    trials: int
    explored: int
    raced: int
    blocks: int
    confirming: int
    expected_ns: int
    longest_ns: int
    reach: Reach | None
    soak_ns: int = 0
    between_ns: tuple[int, int] | None = None


def forecast(experiment: Experiment, noise: Noise) -> Forecast:
    """The forecast of a run, for a machine with this noise."""
    if (soak_ns := experiment.design.soak_ns) is not None:
        before = forecast(experiment.without_soak(), noise)
        kind = kind_of(experiment)
        joining_ns = max(kind.joining_ns(experiment.load_for(setting)) for setting in experiment.settings())
        took_ns = _START_NS + kind.start_ns + joining_ns + soak_ns + _END_NS
        between_ns = before.between_ns and (before.between_ns[0] + took_ns, before.between_ns[1] + took_ns)
        return replace(
            before,
            expected_ns=before.expected_ns + took_ns,
            longest_ns=before.longest_ns + took_ns,
            soak_ns=soak_ns,
            between_ns=between_ns,
        )
    parts = _Parts.of(experiment)
    blocks, likely_ns = parts.blocks, _likely_ns(experiment, noise, parts)
    if experiment.is_race:
        blocks = rounds_most(experiment, window_for(experiment, 0.0, 0.0))  # if trials are as short as may be
    most = round(parts.longest_trial_ns * parts.trials(parts.blocks) + parts.slots_ns) + parts.longest_short_ns
    longest = round(most * (1 + experiment.measure.retry_budget))
    budget_ns = experiment.design.budget_ns
    if budget_ns is not None:
        likely_ns, longest = tuple(min(each, budget_ns) for each in likely_ns), min(longest, budget_ns)
    return Forecast(
        parts.trials(blocks) + parts.short,
        parts.explored,
        parts.raced,
        blocks,
        parts.confirming,
        likely_ns[1],
        longest,
        _reach(experiment, noise, parts),
        between_ns=(likely_ns[0], likely_ns[2]) if _varies(experiment) else None,
    )


def users_leave(experiment: Experiment) -> bool:
    """True if users leave once they have sent their requests, so that `load.duration` is only the most that a trial
    measures."""
    varies, load_for = experiment.load_varies, experiment.load_for
    loads = map(load_for, experiment.settings()) if varies else [experiment.load]
    return any(load.requests_per_user is not None for load in loads)


def _varies(experiment: Experiment) -> bool:
    """True if the results decide how long the run takes."""
    return experiment.objective.is_capacity or experiment.is_race


def _likely_ns(experiment: Experiment, noise: Noise, parts: _Parts) -> tuple[int, ...]:
    """The time that the run takes: quantiles 0.05, 0.5 and 0.95 of simulated races; of a capacity search at least,
    usually and at most; for any other plan the same time thrice."""
    if experiment.objective.is_capacity:
        return _search_ns(experiment, parts)
    if not experiment.is_race:
        return (round(parts.trial_ns * parts.trials(parts.blocks)) + parts.slots_ns,) * 3
    trial_s, short_s = parts.trial_ns / 1e9, parts.short_ns / max(1, parts.short) / 1e9
    around_s = trial_s - experiment.load.duration_ns / 1e9
    played = simulate_untried(experiment, parts.raced, noise, around_s)
    slots_s = parts.slots_ns / 1e9 * played.raced / parts.raced
    times_s = parts.explored * trial_s + slots_s + played.times_s(short_s, trial_s, trial_s)
    times_s = times_s * np.exp(PACE_FACTOR * np.random.default_rng(SEED).standard_normal(times_s.size))
    return tuple(round(1e9 * float(each)) for each in np.quantile(times_s, (0.05, 0.5, 0.95)))


def _search_ns(experiment: Experiment, parts: _Parts) -> tuple[int, ...]:
    """The time of a capacity search at least, usually and at most, by the windows of `CAPACITY_WINDOWS`. One setting is
    tried to the end; of each other at least the first look and `TRIALS_MIN` trials are run, at most all, usually half
    way between."""
    few = min(parts.blocks, 1 + TRIALS_MIN)
    most = parts.trials(parts.blocks)
    least = most - (parts.raced - 1) * (parts.blocks - few)
    room_ns = longest_window_ns(experiment) - experiment.load.duration_ns
    each_ns = (parts.trial_ns + (far - CAPACITY_WINDOWS[1]) * room_ns for far in CAPACITY_WINDOWS)
    return tuple(round(n * ns) for n, ns in zip((QUICKER * least, (least + most) / 2, most), each_ns, strict=True))


@dataclass(frozen=True)
class _Parts:
    """The number of trials of each kind, and the likely and the longest duration of one, averaged over the settings.
    `slots_ns`: the duration of all looks at slots, which follow the first trial of each setting. `short`: the number of
    short trials before a race; `short_ns`, `longest_short_ns`: the duration of all of them."""

    explored: int
    raced: int
    blocks: int
    confirming: int
    trial_ns: float
    longest_trial_ns: float
    slots_ns: int
    short: int = 0
    short_ns: int = 0
    longest_short_ns: int = 0

    @classmethod
    def of(cls, experiment: Experiment) -> _Parts:
        settings, design = experiment.settings(), experiment.design
        loads = [experiment.load_for(setting) for setting in settings]
        explored = min(design.explore_trials, len(settings)) if experiment.explores else 0
        raced = min(design.finalists, explored) if explored else len(settings)
        looked = [load for load in loads if kind_of(experiment).counts_slots(experiment, load)]
        looks_ns = sum(2 * min(_SLOTS_LOOK_NS, load.duration_ns) for load in looked)
        confirming = design.confirm * 2 if experiment.is_race else 0  # the winner and its rival
        short = experiment.screen_blocks * raced
        short_ns = [short * _short_ns(experiment, loads[0], longest=longest) for longest in (False, True)]
        return cls(
            explored,
            raced,
            blocks_most(experiment),
            confirming,
            sum(_trial_ns(experiment, load, longest=False) for load in loads) / len(loads),
            sum(_trial_ns(experiment, load, longest=True) for load in loads) / len(loads),
            0 if experiment.objective.is_capacity else raced * looks_ns // len(loads),
            short,
            *short_ns,
        )

    def trials(self, blocks: int) -> int:
        return self.explored + self.raced * blocks + self.confirming

    def within(self, design: Design) -> _Parts:
        """The parts that the budget has time for. Before an exploration's race the finalists are as few as two blocks
        need; without short trials, a second block comes before the time to confirm (`race.py`)."""
        if design.budget_ns is None:
            return self
        explored_ns = min(self.explored * self.trial_ns, BUDGET_SHARE * design.budget_ns)
        trials = max(0.0, design.budget_ns - explored_ns - self.short_ns) / self.trial_ns
        raced = min(self.raced, finalists_within(design, trials)) if self.explored else self.raced
        whole, confirmed = int(trials // raced), int(max(0.0, trials - self.confirming) // raced)
        blocks = confirmed if self.short else max(confirmed, min(2, whole))
        return replace(self, raced=raced, blocks=min(self.blocks, blocks))


def blocks_most(experiment: Experiment) -> int:
    """The most blocks of a plan; for a capacity search the most rounds, the first of which only explores."""
    repeats = experiment.measure.repeats
    return 1 + TRIALS_PER_REPEAT * repeats if experiment.objective.is_capacity else repeats


def _reach(experiment: Experiment, noise: Noise, parts: _Parts) -> Reach | None:
    objective = experiment.objective
    if parts.raced < 2 or objective.is_capacity or METRICS[objective.metric].unit == "ratio":
        return None
    if requests_for(objective.metric):  # percentiles differ several times as much from start to start
        return None
    race, confidence = experiment.is_race, objective.confidence
    leave, most = users_leave(experiment), parts.blocks if race else None
    held = parts if leave else parts.within(experiment.design)
    blocks = held.blocks
    finds = smallest_difference(noise.sd, held.raced, blocks, confidence, most=most) if blocks >= 2 else None
    enough = blocks_to_find(objective.margin, noise.sd, parts.raced, confidence, race=race)
    margin_ns = None
    if enough is not None and not leave:
        margin_ns = round(parts.trial_ns * parts.trials(enough)) + parts.slots_ns + parts.short_ns
    return Reach(noise, blocks, finds, objective.margin, enough, margin_ns)


def _trial_ns(experiment: Experiment, load: Load, *, longest: bool) -> int:
    kind, window_ns = kind_of(experiment), load.duration_ns
    if experiment.objective.is_capacity:
        longest_ns = longest_window_ns(experiment)
        window_ns = longest_ns if longest else round(window_ns + CAPACITY_WINDOWS[1] * (longest_ns - window_ns))
    warmup = kind.warmup(experiment, load)
    warmup_ns = warmup.shortest_ns
    if warmup.fixed_ns is None:
        most_ns = warmup.compiling_ns if longest and experiment.subject.is_jvm else warmup.most_ns
        warmup_ns = most_ns if longest else min(warmup_ns + _STEADY_AFTER_NS, most_ns)
    if experiment.objective.is_capacity:  # all trials but the first look have a fixed one
        fixed_ns = experiment.warmup_ns_of(Stage.CAPACITY) or 0
        warmup_ns = max(warmup_ns, fixed_ns) if longest else fixed_ns
    snapshots_ns = _SNAPSHOTS_NS if experiment.measure.snapshots else 0
    return _START_NS + kind.start_ns + warmup_ns + window_ns + snapshots_ns + _END_NS


def _short_ns(experiment: Experiment, load: Load, *, longest: bool) -> int:
    """The duration of a short trial before a race. `longest`: with the longest warm-up, after which no other short
    trial follows (`search/screening.py`)."""
    warmup_ns = SCREEN_WARMUP_NS if longest else experiment.measure.warmup_min_ns
    start_ns = _START_NS + kind_of(experiment).start_ns
    return start_ns + warmup_ns + (experiment.screened_ns or 0) + _END_NS


def size_text(experiment: Experiment, expected: Forecast) -> str:
    """The size in words: `5 settings x 3 rounds = 15 trials`, or the most trials that a race may need; with a soak also
    `, and a soak of 10 min`."""
    soak = f", and a soak of {time_text(expected.soak_ns)}" if expected.soak_ns else ""
    return f"{_size_text(experiment, expected)}{soak}"


def _size_text(experiment: Experiment, expected: Forecast) -> str:
    count, blocks = len(experiment.settings()), expected.blocks
    if experiment.objective.is_capacity:
        tried = f"each looked at once and then tried at {plural(blocks - 1, 'rate')} at most"
        return f"{plural(count, 'setting')}, {tried}: at most {plural(expected.trials, 'trial')}"
    if not experiment.is_race:
        return f"{plural(count, 'setting')} x {plural(blocks, 'round')} = {plural(expected.trials, 'trial')}"
    first = f"{plural(count, 'setting')}"
    if expected.explored:
        first += f", {expected.explored} of them tried once, then {expected.raced} of these"
    if experiment.screen_blocks:
        first += f", up to {plural(experiment.screen_blocks, 'short trial')} of each, then those left"
    confirmed = f" and {expected.confirming} to confirm the winner" if expected.confirming else ""
    return (
        f"{first} in a race of at most {plural(blocks, 'round')}{confirmed}: at most {plural(expected.trials, 'trial')}"
    )


def duration_text(experiment: Experiment, expected: Forecast) -> str:
    """The time in words: `takes about 5 min (3 min to 9 min in nine of ten runs)`; of a capacity search, of which it is
    not known in how many runs, `takes about 4 min (3 min to 10 min)`. A fixed plan has in place of that range the most
    that it can take; for the others that is many times what they ever take. Where users leave once they have sent their
    requests, only the most is known. On a cluster, whose nodes are not known yet, it is the time on one of them."""
    likely, most = (rough_time(each / 1e9) for each in (expected.expected_ns, expected.longest_ns))
    where = "" if experiment.cluster is None else " on one node; nodes share its rounds"
    if users_leave(experiment):
        return f"takes at most about {most}{where} (users leave once they have sent their requests)"
    if where:
        return f"takes about {likely}{where}"
    further = ""
    if expected.between_ns is not None:
        low, high = (rough_time(each / 1e9) for each in expected.between_ns)
        of = "" if experiment.objective.is_capacity else " in nine of ten runs"
        further = f" ({low} to {high}{of})" if low != high else ""
    elif most != likely:
        further = f", at most about {most}"
    return f"takes about {likely}{further}"


ONE_SETTING = (
    "There is one setting, so nothing can be compared: name more values to compare (-P threads=1..64, "
    "factors in a file). It is measured all the same."
)


def run_notes(experiment: Experiment, expected: Forecast) -> list[str]:
    """Notes printed before the run starts, besides its size and time: which difference it can detect, or that there is
    nothing to compare; how long users join; how long trials of a capacity search measure; that the planned starts are
    too few to allow a failed one; the engine processes and descriptors that many users need."""
    joining = kind_of(experiment).joining_text(experiment)
    first = [f"In each trial {joining} first."] if joining else []
    if len(experiment.settings()) == 1 and not experiment.objective.is_capacity:
        found = [ONE_SETTING]
    else:
        found = [] if expected.reach is None else [reach_text(expected.reach, experiment.screen_blocks)]
    longest_ns = longest_window_ns(experiment)
    if experiment.objective.is_capacity and experiment.load.duration_ns < longest_ns:
        first.append(
            f"A trial close to the most that the server gives measures for up to {time_text(longest_ns)}: a queue "
            "takes so long to show there; one at a low rate until enough requests are due for its percentiles."
        )
    objective, repeats = experiment.objective, experiment.measure.repeats
    allowed = 0.0 if objective.is_capacity else objective.allow_failed_starts
    if allowed and not is_allowed(1, repeats, allowed, (1 - objective.confidence) / len(experiment.settings())):
        first.append(
            f"{plural(repeats, 'start')} of a setting cannot show that at most {percent(allowed)} fail, once one does: "
            "it will then be no answer."
        )
    return [*found, *first, *foreseen(experiment)]


def reach_text(reach: Reach, short: int = 0) -> str:
    """A sentence that says which difference the plan detects, and how many blocks the margin needs if no setting is
    eliminated early. `short`: the most blocks of short trials before a race."""
    noise = f"If {reach.noise}"
    matters = f"{100 * reach.margin:.6g} %"
    if reach.margin_blocks is None:
        wanted = f"more rounds cannot find {matters} nearly always: measure longer, or on a quieter machine"
    else:
        takes = "" if reach.margin_ns is None else f", about {time_text(reach.margin_ns)}"
        wanted = f"to find {matters} nearly always would take {plural(reach.margin_blocks, 'round')}{takes}"
    if reach.finds is None:
        there = f"there is time for {plural(reach.blocks, 'round')}, and two are needed"
        if short:
            return f"{noise}, only short trials detect differences, large ones: {there} of full ones; {wanted}."
        return f"{noise}, no difference can be detected: {there}; {wanted}."
    blocks = plural(reach.blocks, "round")
    found = f"{noise}, {found_by(blocks, reach.finds)}"
    if reach.margin_blocks is not None and reach.margin_blocks <= reach.blocks:
        return f"{found}; {plural(reach.margin_blocks, 'round')} would find {matters} nearly always."
    return f"{found}; {wanted}."


def found_by(blocks: str, half: float) -> str:
    """The differences that so many blocks find; `half`: the one that they find half of the time (0.048: 4.8 %)."""
    return (
        f"{blocks} find a difference of {_difference(2 * half)} nearly always, and one of {_difference(half)} half of "
        "the time"
    )


def _difference(found: float) -> str:
    """Two digits, `3.1 %`; differences of 100 % and more as a factor, `a factor of 12`."""
    return f"{100 * found:.2g} %" if found < 1 else f"a factor of {significant(1 + found)}"
