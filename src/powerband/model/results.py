"""The results of the analysis, as values: trial results, estimates with intervals, verdicts, the answer. `to_json`
returns the documented form of `analysis.json` and of `--format json`. No computing and no I/O here."""

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
NODE_LOST = "node_lost"  # the problem of a trial whose node was lost


class Verdict(StrEnum):
    """The outcome of comparing a setting with another: it is better, worse, equivalent within the margin, or this is
    inconclusive."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class AnswerKind(StrEnum):
    """How far the trials decide which setting to use."""

    BEST = "best"  # one setting beats all others
    EQUIVALENT_SET = "equivalent_set"  # several are equivalent within the margin; the cheapest is named
    BOUNDED = "bounded"  # several cannot be told apart; the cheapest is named, and how much better any other can be
    NOT_ENOUGH_DATA = "not_enough_data"  # there is not even a bound; the candidates are named
    NONE_FEASIBLE = "none_feasible"  # no setting meets the constraints
    NONE_VALID = "none_valid"  # no trial could be measured


class ClaimVerdict(StrEnum):
    """The outcome of judging a claim or one of its comparisons by its interval. The values are those of the JSON."""

    HELD = "held"  # the whole interval agrees
    REFUTED = "refuted"  # none of it does
    UNDECIDED = "undecided"  # the interval has values of both kinds, or nothing could be measured

    @property
    def words(self) -> str:
        """The verdict as people read it."""
        return {"held": "confirmed", "undecided": "inconclusive"}.get(self.value, self.value)


@dataclass(frozen=True)
class Estimate:
    """A `value` with its interval from `n` trials, at this `confidence` (0 to 1). `low`, `high`: None with fewer than
    two trials. `at_least`: the value is only a lower bound, of a time that is longer in some trial because too many
    requests got no answer, of a percentile of which each trial had too few, so that a lower one stands for it, or of a
    capacity that no trial exceeded."""

    value: float
    low: float | None
    high: float | None
    confidence: float
    n: int
    at_least: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; without an interval, the value twice."""
        return self.value if self.low is None else self.low, self.value if self.high is None else self.high


def value_and_ends(found: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """The value and the ends of its interval; three times None without an estimate."""
    return (None, None, None) if found is None else (found.value, found.low, found.high)


@dataclass(frozen=True)
class Candidate:
    """A possible bottleneck. `name`: its row in `model/bottlenecks.py`. `evidence`: the two to four figures that prove
    it, each a clause with its number; `advice`: the remedy."""

    name: BottleneckName
    evidence: tuple[str, ...]
    advice: str


@dataclass(frozen=True)
class Bottleneck(Candidate):
    """The bottleneck of a trial or a setting. `second`: another one that the figures prove just as well; None if there
    is none."""

    second: Candidate | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The bottleneck, and `second` if there is one."""
        return (self,) if self.second is None else (self, self.second)


@dataclass(frozen=True)
class PoolUse:
    """The threads of the pool named `pool` over the measured window, in threads (thread-seconds per second): `on_cpu`,
    `run_wait` (runnable, waiting for a CPU) and `blocked` add up to `threads`. `blocked_on`: shares of the blocked
    threads by the cause of the wait (`lock`, which idle threads may show too, `sleep`, `socket`, `poll`, `disk`,
    `memory`, `other`), as far as the kernel shows it. `held_ns`: the time that a request holds a thread, by Little's
    law for the pool, counting only threads that certainly work (not blocked like an idle one); None if no request
    ended, or if its threads serve none."""

    pool: str
    threads: float
    on_cpu: float
    run_wait: float
    blocked: float
    blocked_on: Mapping[str, float]
    held_ns: float | None = None


@dataclass(frozen=True)
class Problem:
    """The reason why a trial is invalid if `fatal`, else a remark about the trial. `code`: its stable name; `message`:
    a sentence for people."""

    code: str
    message: str
    fatal: bool = True


@dataclass(frozen=True)
class ErrorKind:
    """Requests of a trial that did not end ok, over its whole run: `count` of them. `kind`: an outcome of the engine,
    or `status 503`; for users who could not join `join connect_timeout`, for users who were lost `lost closed`.
    `cause`: the reason, if a log or counter shows it, else empty."""

    kind: str
    count: int
    cause: str


@dataclass(frozen=True)
class TypeGrowth:
    """A type on a JVM's heap with more live bytes after the measured window than before it. `type`: its name as in a
    program (`byte[]`); `instances_before`, `instances_after`, `bytes_before`, `bytes_after`: its live objects at these
    times."""

    type: str
    instances_before: int
    instances_after: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class HeapGrowth:
    """The growth of live objects on the heaps of the server's JVMs over the measured window, all types together.
    `jvms`: number of JVMs with both snapshots; `bytes_before`, `bytes_after`: their live bytes; `types_grown`: number
    of types that grew; `types`: those that grew most, by bytes, the largest growth first."""

    jvms: int
    bytes_before: int
    bytes_after: int
    types_grown: int
    types: tuple[TypeGrowth, ...]


@dataclass(frozen=True)
class TrialResult:
    """The result of one trial. `number`, `block`, `attempt`, `setting`, `stage`: as in its `TrialSpec`. `problems`: why
    it is invalid, and remarks about it. `metrics`: values by names of `powerband.model.metrics`; empty if the trial
    failed. `warmup_s`: the length of its warm-up, None if it has no measured window; `warmup_ended_by`: `steady`,
    `limit` (of `warmup_max`) or `fixed`, None if the warm-up never ended."""

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
    took_s: float | None = None  # from the start of the first process, or of the wait for a server that runs already
    steady: bool | None = None  # True if the window was steady; None: too short to decide; False: it never stabilised
    pools: tuple[PoolUse, ...] = ()  # the server's, the busiest first
    bottleneck: Bottleneck | None = None  # None: the trial is excluded, or the probe's data do not suffice
    errors: tuple[ErrorKind, ...] = ()  # the most frequent first
    heap_growth: HeapGrowth | None = None  # None: no snapshots were taken, or no JVM has both
    cpus: CpuUse | None = None  # None: an older record
    runtimes: tuple[RuntimeView, ...] = ()  # of the server's processes; empty: none is known, or an older record
    window_s: float | None = None  # its measured time, if that was not `load.duration`
    rising: bool = False  # the server still got faster while it was measured
    neighbours: Mapping[str, float] = field(default_factory=dict)  # CPUs that other programs used, by name
    held_up: float = 0.0  # share of the window that other programs may have cost it; 0: they cannot have mattered
    node: str = ""  # the node of a cluster that ran it; empty: this machine
    generators: tuple[GeneratorNode, ...] = ()  # other nodes that loaded its server; empty: its own machine did
    repeated_s: float = 0.0  # time that earlier measurements of it took, which do not count: its CPUs were dealt anew

    @property
    def spent_s(self) -> float:
        """The time in s that the trial took of the run, measurements that do not count included."""
        return (self.took_s or 0.0) + self.repeated_s

    @property
    def valid(self) -> bool:
        """True if the trial was measured and none of its problems is fatal, so that it counts."""
        return self.status == "measured" and not any(problem.fatal for problem in self.problems)

    @property
    def by_quiet_time(self) -> bool:
        """True if its rates are those of the part of its window in which other programs hardly ran."""
        return "quiet_s" in self.metrics

    @property
    def disturbed(self) -> bool:
        """True if others can have held it up, or if its rates are not those of its whole window for that reason."""
        return self.held_up > 0 or self.by_quiet_time

    @property
    def lost(self) -> bool:
        """True if the node that ran the trial was lost, and with it the rest of the block."""
        return any(problem.code == NODE_LOST for problem in self.problems)

    @property
    def damaged(self) -> bool:
        """True if the trial was measured, but its files were damaged afterwards."""
        return any(problem.code == DAMAGED for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON types, as in an analysis."""
        data: dict[str, Any] = plain(asdict(self))
        return data


@dataclass(frozen=True)
class CapacityPoint:
    """All trials of a setting at the offered rate `rate_per_s`. `trials`: how many of them show whether the SLO held.
    `p50_ns`, `p99_ns`, `error_rate`, `goodput_per_s`: the medians over the valid trials; None if none is valid."""

    rate_per_s: float
    trials: int
    held: int  # number of these trials in which the SLO held
    p50_ns: float | None
    p99_ns: float | None
    error_rate: float | None
    goodput_per_s: float | None


@dataclass(frozen=True)
class Capacity:
    """The highest Poisson rate at which the SLO holds. `estimate`: None if it holds at no rate that was tried, or at
    all that the load engine could offer; `note` says which, and what to change. If no trial missed the SLO, it is
    `at_least` the highest rate tried. `curve`: the points by ascending rate."""

    estimate: Estimate | None
    curve: tuple[CapacityPoint, ...]
    note: str = ""

    @property
    def shown(self) -> Estimate | None:
        """The estimate; None if the SLO held in no trial, which makes it a guess."""
        return self.estimate if any(point.held for point in self.curve) else None


@dataclass(frozen=True)
class Departure:
    """A `setting` eliminated from a race. `block`: the block after which it left, as in a `Look`; `reason`: in words.
    `effect`: its ratio to the leader then; None if there is none, as with a leader at 0. `worse`: it was shown worse
    than the leader; otherwise it failed or violated a constraint."""

    setting: Setting
    block: int
    reason: str
    effect: Estimate | None = None
    worse: bool = False


@dataclass(frozen=True)
class Look:
    """The standing of a race after a block. `block`: how many blocks of the race were over before it; `leader`: the
    setting that all others are compared with; `effects`: each live setting's ratio to the leader, with an anytime-valid
    interval."""

    block: int
    leader: Setting
    effects: Mapping[str, Estimate]  # by setting id
    left: tuple[Setting, ...]  # those eliminated now


@dataclass(frozen=True)
class Confirmation:
    """The fresh starts of `setting`, a race's winner. `race`, `confirmed`: its objective in the race, and in the
    `trials` fresh starts; `shrinkage`: 1 - confirmed / race (above 0: the race overestimated it). `rival`: the nearest
    other setting, run in the same blocks, None if there is none; `advantage`: winner / rival in these blocks."""

    setting: Setting
    rival: Setting | None
    trials: int
    race: Estimate
    confirmed: Estimate
    shrinkage: Estimate
    advantage: Estimate | None
    upheld: bool  # the fresh starts do not contradict the race
    agrees: bool  # their point estimates support the race; without it, `upheld` may only mean that they were too noisy
    sentence: str  # the outcome in words


@dataclass(frozen=True)
class Race:
    """The course of a race. `looks`: the standing after each block that was judged; `departures`: the settings
    eliminated; `confirmation`: the winner's fresh starts, None if none is valid. `blocks`: finished blocks; `trials`:
    all trials, including the confirmation and repeats; `grid_trials`: the trials of the full grid, with every setting
    in as many blocks as the race could have had. `ended_by`: `decided`, `regret` (the bound asked for was met),
    `blocks` (the most were run, or more would not decide), `budget`, `stopped`, or `running`. `unconfirmed`: why no
    fresh start of the winner is valid, None if one is or none was made. `half`: numbers of blocks that do not count,
    because they are in flight or were cut short when others had decided."""

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
        """True if the race has not ended."""
        return self.ended_by in ("running", "stopped")


@dataclass(frozen=True)
class Exploration:
    """The exploration of a space too large to race whole. `settings`: their number; `tried`: how many were tried, once
    each; `raced`: how many of these raced."""

    settings: int
    tried: int
    raced: int


@dataclass(frozen=True)
class SoakFigure:
    """The metric named `metric` at the end of a soak, in its own unit. `soaked`: its value there; `before`: its mean
    over the compared trials, None if they have none; `low`, `high`: the interval in which one more trial like them
    would lie, None with fewer than two. `worse`: `soaked` is worse than the interval, and by more than the margin;
    never so for memory, unless that is the objective."""

    metric: str
    soaked: float
    before: float | None
    low: float | None
    high: float | None
    worse: bool


@dataclass(frozen=True)
class Soak:
    """The soak: the answer's `setting`, run once more for `soak_ns`, of which the last `window_ns` were measured.
    `trial`: the number of its trial. `figures`: the metrics compared with the trials before; `lasts`: no figure was
    worse, no constraint was missed, and nothing grew until the end; None: it could not be measured or judged, or
    compared with one trial alone; `sentence`: the outcome in words."""

    setting: Setting
    trial: int
    soak_ns: int
    window_ns: int
    figures: tuple[SoakFigure, ...]
    lasts: bool | None
    sentence: str


@dataclass(frozen=True)
class RuleVerdict:
    """A rule of thumb beside the measured answer. `name`, `source`: what it is called, and where it is published.
    `proposal`: the number of threads that it proposes; None if it proposes none, for the reason in `refused`.
    `setting`: the tried setting nearest to the proposal; `cost`: that setting's objective as a ratio to the answer's
    (0.8: following the rule costs 20 %), None if there is none."""

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
    """The starts of a setting, without those spoilt by the load generator or the machine. `made`: their number;
    `failed`: how many failed by the server's own fault; `wrong`: in how many of these an invariant was broken.
    `failed_most`: the upper bound of the share of starts that fail, at the confidence asked for (Clopper & Pearson
    1934, one-sided)."""

    made: int
    failed: int
    wrong: int
    failed_most: float


@dataclass(frozen=True)
class SettingResult:
    """One `setting` over its valid trials, `trials` in number. `invalid`: number of trials that failed or are excluded,
    without interrupted ones. `estimates`: of each metric, by its name. `effect`: the ratio objective(this) /
    objective(leader) with its simultaneous interval, None if the leader's is 0; `verdict`: compares this setting with
    the leader (the leader itself: equivalent). `feasible`: it has data, violates no constraint for certain, and no more
    of its starts than allowed failed or violated one; `infeasible_because`: the reasons why it is not, in words."""

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
    starts: Starts | None = None  # None: an older analysis, or a capacity search in which none failed
    lapsed: bool = False  # infeasible since some starts failed or broke a constraint; others may be as bad and lucky

    @property
    def is_guess(self) -> bool:
        """True if no trial shows its capacity, which `estimates` may have all the same."""
        return self.capacity is not None and self.capacity.shown is None

    @property
    def shown(self) -> Mapping[str, Estimate]:
        """The estimates to show: all but the guess of a capacity."""
        if not self.is_guess:
            return self.estimates
        return {name: found for name, found in self.estimates.items() if name != "capacity_per_s"}


@dataclass(frozen=True)
class Figure:
    """The objective of a setting as the answer states it: `estimate`. `fresh`: it comes from the confirming starts,
    which had no part in choosing the setting; otherwise from the compared ones, with an interval that holds for all
    settings together."""

    estimate: Estimate
    fresh: bool


@dataclass(frozen=True)
class Answer:
    """The answer to the experiment's question: which setting to use, and how sure that is."""

    kind: AnswerKind  # how far the trials decide it
    setting: Setting | None  # the recommended one: the best, or the cheapest of those equivalent or not told apart
    leader: Setting | None  # highest point estimate
    equivalent: tuple[Setting, ...]  # all settings equivalent within the margin, including the answer's
    undecided: tuple[Setting, ...]  # settings that could still be better: more trials would decide
    sentences: tuple[str, ...]  # the answer in words: the setting; its confidence; the reason and the cost
    figure: Figure | None = None  # that of `setting`, or else of `leader`; None: there is neither, or a capacity
    close: tuple[Setting, ...] = ()  # certainly worse than the leader, but perhaps by no more than the margin
    regret: float | None = None  # no other setting is better than `setting` by a larger share; None: no bound below 1
    regret_asked: float | None = None  # the bound asked for (`design.regret`)

    @property
    def bound_met(self) -> bool | None:
        """True if the bound `regret_asked` is met; None if there is none."""
        if self.regret_asked is None:
            return None
        return self.regret is not None and self.regret <= self.regret_asked


@dataclass(frozen=True)
class ClaimPart:
    """One comparison of a claim (`comparison`: as written), at one combination of the factors that the claim leaves
    out. `blocks`: how many blocks could be used; `sentence`: `verdict` and figures in words.

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
    """One claim of the experiment: it held if all its `parts` did, and is refuted if any part is. `id`, `says`,
    `published`: as in `Claim`; `sentence`: the `verdict` in words."""

    id: str
    says: str
    holds: str  # the expression
    published: str | None
    verdict: ClaimVerdict
    sentence: str
    parts: tuple[ClaimPart, ...]


@dataclass(frozen=True)
class PublishedRow:
    """One figure, `published` for the setting `name`, beside the measured one. `setting`: None if it is not in this
    run; `ours`: None if it was not measured. `published_ratio`, `our_ratio`: ratios to the base of the table; the
    measured one is paired within blocks, with an interval of its own."""

    name: str
    setting: Setting | None
    published: float
    ours: Estimate | None
    published_ratio: float | None
    our_ratio: Estimate | None


@dataclass(frozen=True)
class PublishedTable:
    """The published figures of one `metric`, in its `unit`. `base`: the name of the row that ratios are relative to;
    None if it was not measured. `note`: as in `Published`. `rows`: in the order of the experiment file."""

    metric: str
    unit: str
    base: str | None
    note: str
    rows: tuple[PublishedRow, ...]


@dataclass(frozen=True)
class ChangeCost:
    """The effect of one change of the baseline: the first level of `factor` (`baseline`) changed to `level`, which
    makes `setting`. `ratio`: objective (changed) / objective(baseline), paired within blocks, with an interval that
    holds for all changes together; None if unavailable. `verdict` compares the change with the baseline; `because`: why
    there is no ratio."""

    setting: Setting
    factor: str
    level: Level
    baseline: Level
    ratio: Estimate | None
    verdict: Verdict
    because: str = ""

    @property
    def name(self) -> str:
        """The name of the setting by the one level that it changes: `threads=4`."""
        return f"{self.factor}={format_level(self.level)}"


@dataclass(frozen=True)
class NodeRow:
    """The results of one `node`. `blocks`: how many of its blocks are compared with those of other nodes. `ratio`: its
    figures to the average of all nodes, with the same settings; None without another node to compare with. `best`: the
    setting that came out best on this node; `lead`: its ratio to the setting that is named overall; `shown`: that lead
    is more than chance and than the margin. `cpu`: the model of the node's CPU; `cpus`: how many CPUs it may use.
    `ray_cores`: cores that Ray's daemon and powerband's actor used during its trials; `between_s`: the longest time
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
    """The nodes of a run as a factor. `rows`: one for each node; `sentences`: what they show, in words. `setting`: the
    named setting, or else the leader. `differ`: the probability that settings differ so much from node to node by
    chance alone; None if each node had one block. `confirmed_on`: nodes with a valid fresh start of the winner."""

    setting: Setting | None
    rows: tuple[NodeRow, ...]
    differ: float | None
    confirmed_on: tuple[str, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Analysis:
    """All that the trials of a run show. It is computed from the run directory alone."""

    name: str  # of the experiment
    question: str  # the one that the experiment asks; empty if its file has none
    objective: str  # metric name
    direction: str  # maximise | minimise
    constraints: tuple[str, ...]  # the conditions of the SLO, as text
    confidence: float  # of all intervals and verdicts
    margin: float  # smaller differences of the objective count as none
    answer: Answer  # which setting to use
    settings: tuple[SettingResult, ...]  # in plan order
    trials: tuple[TrialResult, ...]  # in the order of execution, including excluded ones
    warnings: tuple[str, ...] = ()  # what lessens the worth of the results, one sentence each
    claims: tuple[ClaimResult, ...] = ()  # in the experiment's order
    race: Race | None = None  # None: the run is no race
    exploration: Exploration | None = None  # None: all settings were compared
    rules: tuple[RuleVerdict, ...] = ()  # empty if no factor counts threads
    published: tuple[PublishedTable, ...] = ()  # the figures that the experiment cites, one table for each metric
    found: tuple[str, ...] = ()  # findings, in sentences; empty if nothing is claimed and no figures are cited
    noun: str = "request"  # the noun for one unit of the rate: for a no-load server the unit that it counts
    soak: Soak | None = None  # None: none was asked for, or it has not run
    deployed: bool = False  # the server ran already, and was not restarted between settings
    changes: tuple[ChangeCost, ...] = ()  # the most expensive first; empty unless factors vary one at a time
    nodes: Nodes | None = None  # None: all ran on one machine

    def to_json(self) -> dict[str, Any]:
        """The document `analysis.json`: plain JSON types; settings appear as {factor: level} with their id."""
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
