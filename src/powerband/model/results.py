"""What analysis says, as values: trial results, estimates with intervals, verdicts, the answer.

`to_json` is the documented
shape of `analysis.json` and of `--format json`. No computing and no I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from powerband.model.bottlenecks import BottleneckName
from powerband.model.plan import Level, Setting, Stage

FORMAT = 1


class Verdict(StrEnum):
    """On a pair of settings, seen from the first: is it better, worse, the same within the margin, or not yet known?"""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class AnswerKind(StrEnum):
    BEST = "best"  # one setting beats all others
    EQUIVALENT_SET = "equivalent_set"  # several serve equally well within the margin; the cheapest is named
    NOT_ENOUGH_DATA = "not_enough_data"  # intervals too wide to say; the candidates are named
    NONE_FEASIBLE = "none_feasible"  # no setting meets the constraints
    NONE_VALID = "none_valid"  # no trial could be measured


class ClaimVerdict(StrEnum):
    HELD = "held"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; low and high are None where fewer than two trials back it."""

    value: float
    low: float | None
    high: float | None
    confidence: float
    n: int


@dataclass(frozen=True)
class Bottleneck:
    """`evidence`: the two or three figures that prove it, each a clause with its number; `advice`: what to do."""

    name: BottleneckName
    evidence: tuple[str, ...]
    advice: str


@dataclass(frozen=True)
class PoolUse:
    """One pool's threads over the measured window, in threads (thread-seconds per second): `on_cpu`, `run_wait`
    (runnable, waiting for a CPU) and `blocked` add up to `threads`. `blocked_on`: shares of the blocked threads by what
    they wait on (`lock`, `sleep`, `socket`, `poll`, `disk`, `memory`, `other`), as far as the kernel tells; an idle
    thread of a pool waits on a condition, which is `lock` too. `held_ns`: Little's law for the pool: how long a request
    holds one of its threads, by those that certainly work (not blocked as an idle one is); None where no request
    ended."""

    pool: str
    threads: float
    on_cpu: float
    run_wait: float
    blocked: float
    blocked_on: Mapping[str, float]
    held_ns: float | None = None


@dataclass(frozen=True)
class Problem:
    """Why a trial is invalid (`fatal`), or what a reader should know about it."""

    code: str
    message: str
    fatal: bool = True


@dataclass(frozen=True)
class ErrorKind:
    """Requests of a trial that did not end ok, over its whole run: an outcome of the engine, or `status 503`; and users
    who could not join (`join connect_timeout`) or were lost (`lost closed`). `cause`: what tells why, empty where
    nothing does."""

    kind: str
    count: int
    cause: str


@dataclass(frozen=True)
class TypeGrowth:
    """A type of a JVM's heap, of which more bytes lived after the measured window than before it."""

    type: str
    instances_before: int
    instances_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class HeapGrowth:
    """What lived on the heaps of the subject's JVMs before and after the measured window, all types together, and the
    `types` that grew most, the first by most bytes; `types_grown`: how many did. `jvms`: that told both times."""

    jvms: int
    bytes_before: int
    bytes_after: int
    types_grown: int
    types: tuple[TypeGrowth, ...]


@dataclass(frozen=True)
class TrialResult:
    """One trial measured. `metrics` holds names of `powerband.model.metrics`; it is empty where the trial failed."""

    number: int
    block: int
    attempt: int
    setting: Setting
    status: str  # measured | failed | interrupted
    problems: tuple[Problem, ...]
    metrics: Mapping[str, float]
    warmup_s: float | None = None
    warmup_ended_by: str | None = None
    stage: Stage = Stage.COMPARE
    rate_per_s: float | None = None  # the offered rate of a capacity trial
    took_s: float | None = None  # from the first process to the last, as far as the record tells
    steady: bool | None = None  # whether the window was steady; None: too short to say. False: it never stabilised
    pools: tuple[PoolUse, ...] = ()  # the subject's, the busiest first
    bottleneck: Bottleneck | None = None  # None: the trial does not count, or the probe saw too little
    errors: tuple[ErrorKind, ...] = ()  # the most frequent first
    heap_growth: HeapGrowth | None = None  # None: no snapshots were taken, or no JVM told both times

    @property
    def valid(self) -> bool:
        return self.status == "measured" and not any(problem.fatal for problem in self.problems)


@dataclass(frozen=True)
class CapacityPoint:
    """All trials of a setting at one offered rate; `p99_ns` is the median of their p99 response times."""

    rate_per_s: float
    trials: int
    held: int  # in how many of them the SLO held
    p50_ns: float | None
    p99_ns: float | None
    error_rate: float | None
    goodput_per_s: float | None


@dataclass(frozen=True)
class Capacity:
    """The highest Poisson rate at which the SLO holds. `estimate` is None where it holds at no rate that was
    tried, or at all of them (`note` says which, and what to change). `curve`: by rate, ascending."""

    estimate: Estimate | None
    curve: tuple[CapacityPoint, ...]
    note: str = ""


@dataclass(frozen=True)
class Departure:
    """A setting that left a race: after which block (from 0), and why in words. `worse`: it was shown worse than the
    leader, else it failed or broke a constraint. `effect`: its ratio to the leader then; None where there is none, as
    with a leader at 0."""

    setting: Setting
    block: int
    reason: str
    effect: Estimate | None = None
    worse: bool = False


@dataclass(frozen=True)
class Look:
    """The standing of a race after a block: each live setting's ratio to the leader, with an anytime-valid interval."""

    block: int
    leader: Setting
    effects: Mapping[str, Estimate]  # by setting id
    left: tuple[Setting, ...]  # those that left now


@dataclass(frozen=True)
class Confirmation:
    """Fresh starts of the winner after the race. `race` and `confirmed`: its objective in the race and afterwards;
    `shrinkage`: 1 - confirmed / race (above 0: the race flattered it). `rival`: the nearest other setting, run
    beside it in the same blocks, None where there is none; `advantage`: winner / rival in these blocks."""

    setting: Setting
    rival: Setting | None
    trials: int
    race: Estimate
    confirmed: Estimate
    shrinkage: Estimate
    advantage: Estimate | None
    upheld: bool  # the fresh starts do not contradict the race
    agrees: bool  # as they came out they speak for it: not to contradict it may only mean that they were too noisy
    sentence: str


@dataclass(frozen=True)
class Race:
    """How a race went. `blocks`: those that are over; `trials`: all that it took, with the confirmation and what was
    repeated; `grid_trials`: what the full grid would have taken, every setting in as many blocks as the race might
    have had. `ended_by`: `decided`, `blocks`, `budget`, `stopped`, or `running`. `unconfirmed`: why no fresh start of
    the winner counts, None where one does or none was made."""

    looks: tuple[Look, ...]
    departures: tuple[Departure, ...]
    trials: int
    grid_trials: int
    ended_by: str
    blocks: int
    confirmation: Confirmation | None = None
    unconfirmed: str | None = None

    @property
    def under_way(self) -> bool:
        """It has not ended; what half a block says is no look, and does not count yet."""
        return self.ended_by in ("running", "stopped")


@dataclass(frozen=True)
class Exploration:
    """A space too large to race whole: `settings` in all, `tried` of them once each, `raced` of them in the race."""

    settings: int
    tried: int
    raced: int


@dataclass(frozen=True)
class RuleVerdict:
    """A rule of thumb beside the measured answer. `proposal`: the number of threads that it proposes, None where it
    is `refused` (why, in words). `setting`: the tried setting nearest to it; `cost`: that setting's objective as a
    ratio to the answer's (0.8: following the rule costs 20 %), None where there is none."""

    name: str
    formula: str  # with the figures filled in: `2 cores x (1 + 18.2 ms / 1.1 ms)`
    source: str
    proposal: float | None
    setting: Setting | None
    cost: Estimate | None
    refused: str | None = None
    factor: str | None = None  # whose levels count the threads


@dataclass(frozen=True)
class SettingResult:
    """One setting over its valid trials. `effect` is the ratio objective(this) / objective(leader) with its
    simultaneous interval, None where the leader's is 0; verdict is seen from this setting towards the leader (the
    leader itself: equivalent). `feasible`: it has data and breaks no constraint for certain. `invalid`: trials that
    failed or do not count; interrupted ones are none of them."""

    setting: Setting
    trials: int
    invalid: int
    estimates: Mapping[str, Estimate]
    effect: Estimate | None
    verdict: Verdict
    feasible: bool
    infeasible_because: tuple[str, ...] = ()
    uncertain_because: tuple[str, ...] = ()  # constraints that the setting may meet or break
    bottleneck: Bottleneck | None = (
        None  # the one that most of its valid trials name, with the evidence of the middle one
    )
    capacity: Capacity | None = None  # where the objective is capacity


@dataclass(frozen=True)
class Answer:
    kind: AnswerKind
    setting: Setting | None  # what to use: the best, or the cheapest of the equivalent best
    leader: Setting | None  # highest point estimate
    equivalent: tuple[Setting, ...]  # all that serve as well within the margin, the answer included
    undecided: tuple[Setting, ...]  # settings that could still be better: more trials would tell
    sentences: tuple[str, ...]  # the answer in words: the setting; how sure; why and at what cost


@dataclass(frozen=True)
class ClaimPart:
    """One comparison of a claim, at one combination of the factors that the claim leaves out.

    `left` and `right` are means over blocks in `unit` (see `model/metrics.py`; empty for a number); None where
    they cannot be had. `interval` is what the verdict rests on: left / right where `scale` is `ratio`, left - right
    where it is `difference`; None where zeros were counted (`scale` is `count`) or nothing could be said."""

    comparison: str
    where: str  # `queue=100`; empty where the claim names a level of every factor
    verdict: ClaimVerdict
    left: float | None
    right: float | None
    unit: str
    scale: str  # ratio | difference | count
    interval: Estimate | None
    blocks: int
    sentence: str


@dataclass(frozen=True)
class ClaimResult:
    """One claim of the experiment: held where all its parts are, refuted where any is."""

    id: str
    says: str
    holds: str  # the expression
    published: str | None
    verdict: ClaimVerdict
    sentence: str
    parts: tuple[ClaimPart, ...]


@dataclass(frozen=True)
class PublishedRow:
    """One published figure beside ours. `setting` None: not among this run's; `ours` None: not measured. Ratios are to
    the base of the table; ours is paired within blocks, with an interval of its own."""

    name: str
    setting: Setting | None
    published: float
    ours: Estimate | None
    published_ratio: float | None
    our_ratio: Estimate | None


@dataclass(frozen=True)
class PublishedTable:
    """Published figures of one metric, in its `unit`; `base`: the row that ratios are to, None where we have none."""

    metric: str
    unit: str
    base: str | None
    note: str
    rows: tuple[PublishedRow, ...]


@dataclass(frozen=True)
class ChangeCost:
    """What one change of the baseline does, the first level of one factor changed to another. `ratio`: objective
    (changed) / objective(baseline), paired within blocks, with an interval that holds for all changes together; None
    where it cannot be had. The verdict is the change's towards the baseline; `because`: why there is no ratio."""

    setting: Setting
    factor: str
    level: Level
    baseline: Level
    ratio: Estimate | None
    verdict: Verdict
    because: str = ""


@dataclass(frozen=True)
class Analysis:
    name: str
    question: str
    objective: str  # metric name
    direction: str  # maximise | minimise
    constraints: tuple[str, ...]
    confidence: float
    margin: float
    answer: Answer
    settings: tuple[SettingResult, ...]  # in plan order
    trials: tuple[TrialResult, ...]
    warnings: tuple[str, ...] = field(default=())
    claims: tuple[ClaimResult, ...] = field(default=())  # in the experiment's order
    race: Race | None = None
    exploration: Exploration | None = None
    rules: tuple[RuleVerdict, ...] = ()  # empty where no factor counts threads
    published: tuple[PublishedTable, ...] = ()
    found: tuple[str, ...] = ()  # what we found, in sentences; empty where nothing is claimed and no figures are cited
    noun: str = "request"  # what the rate is of, one of them: of a self-driven subject what it counts
    changes: tuple[ChangeCost, ...] = ()  # the dearest first; empty unless factors vary one at a time

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only; settings appear as {factor: level} with their id beside."""
        data: dict[str, Any] = _plain(asdict(self))
        return {"format": FORMAT, **data}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"levels"}:
            setting = Setting(tuple((name, level) for name, level in value["levels"]))
            return {"id": setting.id, "levels": setting.as_dict()}
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
