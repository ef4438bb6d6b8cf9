"""The state of a running or finished run, as values: the content of the live page and of `/metrics`.

`follow.py` makes it from a run directory; the page draws it, and `openmetrics.py` writes it as OpenMetrics. Nothing is
computed and nothing is read here. Times of day are seconds since 1970, all other times and units as their names say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from powerband.model.plan import Level
from powerband.model.results import Estimate


class RunStatus(StrEnum):
    """Status of a run directory, as far as its files and its lock show."""

    RUNNING = "running"  # a process holds it
    FINISHED = "finished"  # nothing is left to do
    INTERRUPTED = "interrupted"  # it was asked to stop; `powerband resume` continues it
    STALE = "stale"  # its process has disappeared without ending the run; `powerband resume` continues it
    UNREADABLE = "unreadable"  # no run directory, or one that this version cannot read: `because` has the reason
    UNKNOWN = "unknown"  # no file can be opened at the moment: `because` has the reason


class TrialPhase(StrEnum):
    """Progress of a trial, as its files show."""

    STARTING = "starting"  # its directory exists
    LAUNCHED = "launched"  # the server runs, and is not under load yet
    WARMUP = "warmup"
    MEASURE = "measure"
    DRAIN = "drain"
    ENDING = "ending"  # the load has ended; the server is being stopped


class Outcome(StrEnum):
    """How far a trial has got, or how it ended, as its files and the last analysis show."""

    RUNNING = "running"
    RECORDED = "recorded"  # on disk, and not judged yet
    VALID = "valid"
    INVALID = "invalid"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"  # begun, but never recorded: killed


@dataclass(frozen=True)
class Figures:
    """One second of a trial. `t_s`: its end, in seconds since the first request might be sent.

    None: no value in this second. `rate_per_s`: requests that ended ok; `errors_per_s`: that ended otherwise. Response
    times (`response_time_ns_mean`, `response_time_ns_p50`, `response_time_ns_p99`) are of those that ended ok; the
    quantiles come once a second, over the whole second. `in_flight`, `users`: at its end. `cpu_cores` and `rss_bytes`
    by process tree (`subject`, `engine`, `engine-1`, `link`, ...). `threads`: of the server, in threads (thread-seconds
    per second): `running`, `runnable` (waiting for a CPU) and `blocked`; if the kernel gives the cause, `blocked:
    lock`, `blocked: socket`, ... replace the latter. `context_switches_per_s`: of the server. `gauges`: values reported
    by the server, by name, as read last: its own metrics (`measure.metrics`), the series of its metrics page (counters
    as `NAME per second`), and of its first JVM `jvm heap used bytes` and `jvm heap committed bytes`."""

    t_s: float
    rate_per_s: float | None = None
    errors_per_s: float | None = None
    response_time_ns_mean: float | None = None
    response_time_ns_p50: float | None = None
    response_time_ns_p99: float | None = None
    in_flight: int | None = None
    users: int | None = None
    cpu_cores: Mapping[str, float] = field(default_factory=dict)
    rss_bytes: Mapping[str, float] = field(default_factory=dict)
    threads: Mapping[str, float] = field(default_factory=dict)
    context_switches_per_s: float | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialState:
    """The trial in flight. `number`, `block` and `stage`: as in the plan; `setting`: its id. `phase`: its progress.
    `phase_began_s`, `began_s`: time of day; None: not known yet. `figures`: the newest of each; None before the first.
    `points`: the seconds of this trial, in order, the oldest dropped past `POINTS_MAX`; `points_before`: how many were
    dropped."""

    number: int
    setting: str
    block: int
    stage: str
    rate_per_s: float | None  # the offered rate, if the plan sets one for this trial
    phase: TrialPhase
    phase_began_s: float | None
    began_s: float | None
    figures: Figures | None = None
    points: tuple[Figures, ...] = ()
    points_before: int = 0
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds since go at which phases began


POINTS_MAX = 3600
"""An hour of one trial."""


@dataclass(frozen=True)
class NodeState:
    """A node of a cluster, with its `name` there. `trial`: the one that it runs; its seconds arrive once it has ended.
    `lost`: why no trial runs there any more. Neither: it is idle. `load_from`: the other nodes that load its server."""

    name: str
    trial: TrialState | None = None
    lost: str = ""
    load_from: tuple[str, ...] = ()

    @property
    def does(self) -> str:
        """`runs`, `idle` or `lost`."""
        return "lost" if self.lost else "idle" if self.trial is None else "runs"


@dataclass(frozen=True)
class LookState:
    """A setting after a `block` of a race, counted from 0. `value`: its ratio to the leader at that time; `low`,
    `high`: the anytime-valid interval of the ratio, None if it has no such end. `leads`: it was the leader."""

    block: int
    value: float
    low: float | None
    high: float | None
    leads: bool


@dataclass(frozen=True)
class SettingState:
    """One setting in the last analysis. `id`: its name, as `threads=8`; `levels`: its values by parameter. `trials`:
    how many of its trials are valid; `invalid`: how many failed or are excluded. `estimate`, `low`, `high`: of the
    objective, in its own unit; None if there is none. `effect`, `effect_low`, `effect_high`: its ratio to the leader.
    `feasible`: as in `SettingResult`. `leads`: it is the best so far; `answer`: it is the answer. `looks`: its standing
    after each block of a race. `verdict`: `better`, `worse`, `equivalent`, `inconclusive`, or empty if it was not
    judged yet; `because`: why it was eliminated, or the constraint it violates. `left_after_block`: the block of its
    elimination, from 0; None: still in. `told`: the text of the verdict column in the run's own reports."""

    id: str
    levels: Mapping[str, Level]
    trials: int
    invalid: int = 0
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    verdict: str = ""
    feasible: bool = True
    leads: bool = False
    answer: bool = False
    left_after_block: int | None = None
    because: str = ""
    told: str = ""
    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # of every metric that was measured, by name
    looks: tuple[LookState, ...] = ()


@dataclass(frozen=True)
class TrialLine:
    """One trial of the run. `number`, `block`, `attempt` and `stage`: as in the plan; `setting`: its id. `outcome`:
    how it ended. `value`: of the objective, if the trial is valid and judged; `at_least`: it is a lower bound;
    `because`: why it is excluded. `took_s`: from the start of the first process, or of the wait for a server that runs
    already. `rate_per_s`: offered, if the plan sets a rate for this trial."""

    number: int
    setting: str
    block: int
    attempt: int
    stage: str
    outcome: Outcome
    value: float | None = None
    at_least: bool = False
    because: str = ""
    took_s: float | None = None
    rate_per_s: float | None = None
    node: str = ""  # on a cluster the node that ran it, once that is known


@dataclass(frozen=True)
class RunState:
    """Everything about one run. `path`: its directory. `name`, `question`: those of its experiment. `status`, and
    `because`: the reason if it cannot be read, else empty. `objective` is a metric of `powerband.model.metrics`, whose
    `unit` `SettingState.estimate` has; `direction`: `maximise` or `minimise`. `started_s`, `ended_s`: time of day;
    None: not known, or not ended. `has_report`: there is a report.html.

    `planned_total`: trials of the whole run, the most as far as known (`at_most`: it may end earlier); None: not known.
    `done`: trials on disk; of these `valid`, `invalid` (spoilt by the load generator or the machine), `failed` (by the
    server); the others were interrupted or are not judged yet. `eta_s`: seconds left, None: not known. `settings`: the
    best first. `trials`: all, in the order of the plan. `warnings`: sentences of the last analysis, and about damaged
    files. `answer`: sentences, so far or final. `judged`: trials in the last analysis. `nodes`: those of a run in
    progress on a cluster, which has a trial on each of them in place of `current`."""

    path: str
    name: str
    status: RunStatus
    because: str = ""
    question: str = ""
    objective: str = ""
    unit: str = ""
    direction: str = "maximise"
    planned_total: int | None = None
    at_most: bool = False
    done: int = 0
    valid: int = 0
    invalid: int = 0
    failed: int = 0
    started_s: float | None = None
    ended_s: float | None = None
    eta_s: float | None = None
    current: TrialState | None = None
    settings: tuple[SettingState, ...] = ()
    trials: tuple[TrialLine, ...] = ()
    answer: tuple[str, ...] = ()
    race: str = ""  # one sentence on the standing of the race
    warnings: tuple[str, ...] = ()
    blocks: int | None = None  # the maximum number of blocks
    judged: int = 0
    has_report: bool = False
    nodes: tuple[NodeState, ...] = ()
    version: int = 0
    """Grows by one with each change of anything but the trial in flight."""
