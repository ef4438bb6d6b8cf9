"""Results of the analysis, as values: trial results, estimates with intervals, verdicts, the answer. `to_json` is the
documented form of `analysis.json` and of `--format json`. No computing and no I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from powerband.model.bottlenecks import BottleneckName
from powerband.model.clocks import GeneratorNode
from powerband.model.cpu_use import CpuUse
from powerband.model.plan import Level, Setting, Stage, format_level
from powerband.model.runtime import RuntimeView

FORMAT = 1
DAMAGED = "damaged"  # the problem of a trial whose files were damaged after it was measured
NODE_LOST = "node_lost"  # the problem of a trial whose node was not heard of any more


class Verdict(StrEnum):
    """Comparison of two settings, seen from the first: better, worse, equivalent within the margin, or inconclusive."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class AnswerKind(StrEnum):
    BEST = "best"  # one setting beats all others
    EQUIVALENT_SET = "equivalent_set"  # several are equivalent within the margin; the cheapest is named
    BOUNDED = "bounded"  # not told apart; the cheapest is named, and how much better any other can be at most
    NOT_ENOUGH_DATA = "not_enough_data"  # not even a bound; the candidates are named
    NONE_FEASIBLE = "none_feasible"  # no setting meets the constraints
    NONE_VALID = "none_valid"  # no trial could be measured


class ClaimVerdict(StrEnum):
    HELD = "held"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; low and high are None if fewer than two trials back it. `at_least`: a lower bound of a
    percentile that is infinite in some trial, since too many requests got no answer."""

    value: float
    low: float | None
    high: float | None
    confidence: float
    n: int
    at_least: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; without one, the value twice."""
        return self.value if self.low is None else self.low, self.value if self.high is None else self.high


@dataclass(frozen=True)
class Candidate:
    """`evidence`: the two to four figures that prove it, each a clause with its number; `advice`: the remedy."""

    name: BottleneckName
    evidence: tuple[str, ...]
    advice: str


@dataclass(frozen=True)
class Bottleneck(Candidate):
    """`second`: what the figures would prove just as well, with its own; None where they speak for one alone."""

    second: Candidate | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return (self,) if self.second is None else (self, self.second)


@dataclass(frozen=True)
class PoolUse:
    """One pool's threads over the measured window, in threads (thread-seconds per second): `on_cpu`, `run_wait`
    (runnable, waiting for a CPU) and `blocked` add up to `threads`. `blocked_on`: shares of the blocked threads by the
    cause of the wait (`lock`, also of an idle thread; `sleep`, `socket`, `poll`, `disk`, `memory`, `other`), as far as
    the kernel shows it. `held_ns`: the time that a request holds a thread, by Little's law for the pool, of threads
    that certainly work (not blocked like an idle one); None if no request ended."""

    pool: str
    threads: float
    on_cpu: float
    run_wait: float
    blocked: float
    blocked_on: Mapping[str, float]
    held_ns: float | None = None


@dataclass(frozen=True)
class Problem:
    """The reason why a trial is invalid (`fatal`), or a remark about it."""

    code: str
    message: str
    fatal: bool = True


@dataclass(frozen=True)
class ErrorKind:
    """Requests of a trial that did not end ok, over its whole run: an outcome of the engine, or `status 503`; also
    users who could not join (`join connect_timeout`) or were lost (`lost closed`). `cause`: the reason, if a log or
    counter shows it, else empty."""

    kind: str
    count: int
    cause: str


@dataclass(frozen=True)
class TypeGrowth:
    """A type on a JVM's heap with more live bytes after the measured window than before it."""

    type: str
    instances_before: int
    instances_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class HeapGrowth:
    """Live objects on the heaps of the server's JVMs before and after the measured window, all types together, and the
    `types` that grew most, the first by most bytes; `types_grown`: how many did. `jvms`: those with both snapshots."""

    jvms: int
    bytes_before: int
    bytes_after: int
    types_grown: int
    types: tuple[TypeGrowth, ...]


@dataclass(frozen=True)
class TrialResult:
    """One trial measured. `metrics` holds names of `powerband.model.metrics`; it is empty if the trial failed."""

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
    took_s: float | None = None  # from the first process to the last, as far as the record shows
    steady: bool | None = None  # True if the window was steady; None: too short to decide. False: it never stabilised
    pools: tuple[PoolUse, ...] = ()  # the server's, the busiest first
    bottleneck: Bottleneck | None = None  # None: the trial is excluded, or the probe's data do not suffice
    errors: tuple[ErrorKind, ...] = ()  # the most frequent first
    heap_growth: HeapGrowth | None = None  # None: no snapshots were taken, or no JVM has both
    cpus: CpuUse | None = None  # None: an older record
    runtimes: tuple[RuntimeView, ...] = ()  # of the server's processes; none known here, or an older record
    window_s: float | None = None  # its measured time, where that was not `load.duration`
    rising: bool = False  # it still got faster while it was measured
    neighbours: Mapping[str, float] = field(default_factory=dict)  # CPUs that other programs used, by name
    held_up: float = 0.0  # share of its window that others may have cost it; 0: they cannot have mattered
    node: str = ""  # of several, the one that ran it; empty: this machine
    generators: tuple[GeneratorNode, ...] = ()  # the other nodes that loaded its server; none: the load came from there

    @property
    def valid(self) -> bool:
        return self.status == "measured" and not any(problem.fatal for problem in self.problems)

    @property
    def by_quiet_time(self) -> bool:
        """True if its rates are of the part of its window in which other programs hardly ran."""
        return "quiet_s" in self.metrics

    @property
    def lost(self) -> bool:
        """True if the node that ran the trial, and with it the rest of its block, is gone."""
        return any(problem.code == NODE_LOST for problem in self.problems)

    @property
    def damaged(self) -> bool:
        """True if the trial was measured, but its files were damaged since."""
        return any(problem.code == DAMAGED for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only, as in an analysis."""
        data: dict[str, Any] = plain(asdict(self))
        return data


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
    """The highest Poisson rate at which the SLO holds. `estimate` is None if it holds at no rate that was tried, or at
    all of them (`note` says which, and what to change). `curve`: by rate, ascending."""

    estimate: Estimate | None
    curve: tuple[CapacityPoint, ...]
    note: str = ""


@dataclass(frozen=True)
class Departure:
    """A setting eliminated from a race: after which block (from 0), and the reason in words. `worse`: it was shown
    worse than the leader; otherwise it failed or violated a constraint. `effect`: its ratio to the leader then; None if
    there is none, as with a leader at 0."""

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
    left: tuple[Setting, ...]  # those eliminated now


@dataclass(frozen=True)
class Confirmation:
    """Fresh starts of the winner after the race. `race` and `confirmed`: its objective in the race and afterwards;
    `shrinkage`: 1 - confirmed / race (above 0: the race overestimated it). `rival`: the nearest other setting, run in
    the same blocks, None if there is none; `advantage`: winner / rival in these blocks."""

    setting: Setting
    rival: Setting | None
    trials: int
    race: Estimate
    confirmed: Estimate
    shrinkage: Estimate
    advantage: Estimate | None
    upheld: bool  # the fresh starts do not contradict the race
    agrees: bool  # their point estimates support it; without this, `upheld` may only mean that they were too noisy
    sentence: str


@dataclass(frozen=True)
class Race:
    """The course of a race. `blocks`: finished blocks; `trials`: all trials, including the confirmation and repeats;
    `grid_trials`: the trials of the full grid, with every setting in as many blocks as the race could have had.
    `ended_by`: `decided`, `regret` (the bound asked for was met), `blocks`, `budget`, `stopped`,
    or `running`. `unconfirmed`: why no fresh start of the winner is valid, None if one is or none was made. `half`:
    blocks that do not count: in flight, or cut short when others had decided."""

    looks: tuple[Look, ...]
    departures: tuple[Departure, ...]
    trials: int
    grid_trials: int
    ended_by: str
    blocks: int
    confirmation: Confirmation | None = None
    unconfirmed: str | None = None
    half: tuple[int, ...] = ()

    @property
    def under_way(self) -> bool:
        """True if it has not ended; half a block is no look, and does not count yet."""
        return self.ended_by in ("running", "stopped")


@dataclass(frozen=True)
class Exploration:
    """A space too large to race whole: `settings` in all, `tried` of them once each, `raced` of them in the race."""

    settings: int
    tried: int
    raced: int


@dataclass(frozen=True)
class SoakFigure:
    """A metric of a soak's end, in its own unit: `soaked`; its mean over the compared trials `before` (None: they have
    none) and the interval in which one more trial like them would lie (None: fewer than two). `worse`: beyond it, and
    by more than the margin; not said of memory, unless it is the objective."""

    metric: str
    soaked: float
    before: float | None
    low: float | None
    high: float | None
    worse: bool


@dataclass(frozen=True)
class Soak:
    """The answer's setting run once more for `soak_ns`, of which the last `window_ns` were measured, in the trial of
    this number. `lasts`: nothing was worse, no constraint missed, and nothing grew to the end; None: it could not be
    measured."""

    setting: Setting
    trial: int
    soak_ns: int
    window_ns: int
    figures: tuple[SoakFigure, ...]
    lasts: bool | None
    sentence: str


@dataclass(frozen=True)
class RuleVerdict:
    """A rule of thumb beside the measured answer. `proposal`: the number of threads that it proposes, None if the rule
    is `refused` (the reason, in words). `setting`: the tried setting nearest to it; `cost`: that setting's objective as
    a ratio to the answer's (0.8: following the rule costs 20 %), None if there is none."""

    name: str
    formula: str  # with the figures filled in: `2 cores x (1 + 18.2 ms / 1.1 ms)`
    source: str
    proposal: float | None
    setting: Setting | None
    cost: Estimate | None
    refused: str | None = None
    factor: str | None = None  # the factor whose levels count the threads


@dataclass(frozen=True)
class Starts:
    """Fresh starts of a setting, those spoilt by the load generator or the machine left out: `failed` of `made` failed
    by the server's own fault, in `wrong` of them an invariant was broken. `failed_most`: no larger share of starts
    fails, at the confidence asked for (Clopper & Pearson 1934, one-sided)."""

    made: int
    failed: int
    wrong: int
    failed_most: float


@dataclass(frozen=True)
class SettingResult:
    """One setting over its valid trials. `effect` is the ratio objective(this) / objective(leader) with its
    simultaneous interval, None if the leader's is 0; `verdict` compares this setting with the leader (the leader
    itself: equivalent). `feasible`: it has data, violates no constraint for certain, and no more of its starts than is
    allowed failed or violated one. `invalid`: trials that failed or are excluded, without interrupted ones."""

    setting: Setting
    trials: int
    invalid: int
    estimates: Mapping[str, Estimate]
    effect: Estimate | None
    verdict: Verdict
    feasible: bool
    infeasible_because: tuple[str, ...] = ()
    uncertain_because: tuple[str, ...] = ()  # constraints that the setting may meet or violate
    bottleneck: Bottleneck | None = None  # the most frequent one of its valid trials, with the median one's evidence
    capacity: Capacity | None = None  # if the objective is capacity
    starts: Starts | None = None  # None: an older analysis
    lapsed: bool = False  # not feasible because of some of its starts; settings just as bad may show none by luck


@dataclass(frozen=True)
class Figure:
    """The objective of a setting as the answer states it. `fresh`: from the starts that confirm, which had no part in
    choosing it; otherwise from those that were compared, with an interval that holds for all settings together."""

    estimate: Estimate
    fresh: bool


@dataclass(frozen=True)
class Answer:
    kind: AnswerKind
    setting: Setting | None  # the recommended one: the best, or the cheapest of those equivalent or not told apart
    leader: Setting | None  # highest point estimate
    equivalent: tuple[Setting, ...]  # all that are equivalent within the margin, including the answer
    undecided: tuple[Setting, ...]  # settings that could still be better: more trials would decide
    sentences: tuple[str, ...]  # the answer in words: the setting; its confidence; the reason and the cost
    figure: Figure | None = None  # of the setting, or else of the leader; None: neither, or a capacity
    close: tuple[Setting, ...] = ()  # certainly worse than the leader, but perhaps by no more than the margin
    regret: float | None = None  # no other setting is better than `setting` by a larger share; None: no bound below 1
    regret_asked: float | None = None  # the bound asked for (`design.regret`)

    @property
    def bound_met(self) -> bool | None:
        """Whether the bound asked for is met; None if none was."""
        if self.regret_asked is None:
            return None
        return self.regret is not None and self.regret <= self.regret_asked


@dataclass(frozen=True)
class ClaimPart:
    """One comparison of a claim, at one combination of the factors that the claim leaves out.

    `left` and `right` are means over blocks in `unit` (see `model/metrics.py`; empty for a number); None if
    unavailable. `interval` is the basis of the verdict: left / right if `scale` is `ratio`, left - right if it is
    `difference`; None if zeros were counted (`scale` is `count`) or no verdict was possible."""

    comparison: str
    where: str  # `queue=100`; empty if the claim names a level of every factor
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
    """One claim of the experiment: confirmed if all its parts are, refuted if any is."""

    id: str
    says: str
    holds: str  # the expression
    published: str | None
    verdict: ClaimVerdict
    sentence: str
    parts: tuple[ClaimPart, ...]


@dataclass(frozen=True)
class PublishedRow:
    """One published figure beside the measured one. `setting` None: not in this run; `ours` None: not measured. Ratios
    are to the base of the table; the measured one is paired within blocks, with an interval of its own."""

    name: str
    setting: Setting | None
    published: float
    ours: Estimate | None
    published_ratio: float | None
    our_ratio: Estimate | None


@dataclass(frozen=True)
class PublishedTable:
    """Published figures of one metric, in its `unit`; `base`: the row of the denominator of ratios, None if it was not
    measured."""

    metric: str
    unit: str
    base: str | None
    note: str
    rows: tuple[PublishedRow, ...]


@dataclass(frozen=True)
class ChangeCost:
    """The effect of one change of the baseline: the first level of one factor changed to another. `ratio`: objective
    (changed) / objective(baseline), paired within blocks, with an interval that holds for all changes together; None if
    unavailable. The verdict compares the change with the baseline; `because`: why there is no ratio."""

    setting: Setting
    factor: str
    level: Level
    baseline: Level
    ratio: Estimate | None
    verdict: Verdict
    because: str = ""

    @property
    def name(self) -> str:
        """`threads=4`: the setting, by the one level that it changes."""
        return f"{self.factor}={format_level(self.level)}"


@dataclass(frozen=True)
class NodeRow:
    """What one node gave. `ratio`: its figure to that of all nodes on average, with the same settings; None without
    another node to compare with. `best`: the setting that came out best there; `shown`: it beats the one that is best
    of all there by more than chance, `lead` its ratio to that one. `cpu`, `cpus`: the model of its CPU, and how many it
    may use. `ray_cores`: used by Ray's daemon and powerband's actor during its trials; `between_s`: the longest time
    from the end of a trial to the next. Empty or None: not known."""

    node: str
    trials: int  # valid ones
    blocks: int
    ratio: Estimate | None
    best: Setting | None
    lead: Estimate | None = None
    shown: bool = False
    cpu: str = ""
    cpus: int | None = None
    ray_cores: float | None = None
    between_s: float | None = None


@dataclass(frozen=True)
class Nodes:
    """The nodes of a run as a factor. `setting`: the one that is named, or leads. `differ`: the probability of settings
    that differ so much from node to node by chance alone, None where each node had one block. `confirmed_on`: nodes
    with a valid fresh start of the winner."""

    setting: Setting | None
    rows: tuple[NodeRow, ...]
    differ: float | None
    confirmed_on: tuple[str, ...]
    sentences: tuple[str, ...]


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
    warnings: tuple[str, ...] = ()
    claims: tuple[ClaimResult, ...] = ()  # in the experiment's order
    race: Race | None = None
    exploration: Exploration | None = None
    rules: tuple[RuleVerdict, ...] = ()  # empty if no factor counts threads
    published: tuple[PublishedTable, ...] = ()
    found: tuple[str, ...] = ()  # findings, in sentences; empty if nothing is claimed and no figures are cited
    noun: str = "request"  # the noun for one unit of the rate: for a no-load server the unit that it counts
    soak: Soak | None = None  # None: none was asked for, or it has not run
    deployed: bool = False  # the server ran already, and was not restarted between settings
    changes: tuple[ChangeCost, ...] = ()  # the most expensive first; empty unless factors vary one at a time
    nodes: Nodes | None = None  # None: all ran on one machine

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only; settings appear as {factor: level} with their id."""
        return {"format": FORMAT, **plain(asdict(self))}


def plain(value: Any) -> Any:
    """The fields of a result as plain JSON types; a setting appears as {factor: level} with its id."""
    if isinstance(value, Mapping):
        if set(value) == {"levels"}:
            setting = Setting(tuple((name, level) for name, level in value["levels"]))
            return {"id": setting.id, "levels": setting.as_dict()}
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
