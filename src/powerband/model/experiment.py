"""The models of a resolved experiment: frozen, every default filled in, times in integer ns, rates per second.

Each value also accepts its short form (`3s`, `100/s`, `{exponential: 3s}`, `error_rate < 1%`). In a file, durations
have a unit in the value (`duration: 60s`); here the field's name has it (`duration_ns`). `experiment_file.py` reads
files and locates errors in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from powerband.base.hosts import LOADABLE, has_scheme, split_url
from powerband.base.units import parse_quantity
from powerband.model.claim_expression import parse_claim
from powerband.model.constraint import Constraints
from powerband.model.deployed import WrittenDeployed
from powerband.model.fields import Argv, Frozen, Ns, Section, Share, Timeout, field_named, program_of
from powerband.model.host_use import HostUse
from powerband.model.load import Constant, Load, Step
from powerband.model.metrics import OWN, metric_named
from powerband.model.own_expression import OwnExpression, Series, parse_own, parse_series
from powerband.model.plan import (
    REVISION,
    Conditions,
    Kept,
    Level,
    Setting,
    Stage,
    TrialSpec,
    format_level,
    grid,
    is_met,
    kept_settings,
    one_at_a_time,
)
from powerband.model.templates import placeholders
from powerband.model.websocket import WebSocket

NO_PATTERN = (re.error, OverflowError, RecursionError)  # what `re.compile` raises


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except NO_PATTERN as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from None
    return value


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """A validator that refuses a text for which `check` raises ValueError."""

    def kept(value: str) -> str:
        check(value)
        return value

    return AfterValidator(kept)


Pattern = Annotated[str, AfterValidator(_pattern)]
Page = Annotated[str, _checked(split_url)]
Target = Annotated[
    str, _checked(lambda value: split_url(value if has_scheme(value) else f"http://localhost/{value.lstrip('/')}"))
]
MetricName = Annotated[str, AfterValidator(lambda value: metric_named(value).name)]


class Ready(Frozen):
    """The readiness check of a server; exactly one of http, log, or tcp (the default). A server that is not ready
    `timeout_ns` after its launch makes the trial fail."""

    http: Target | None = None  # path or URL that must return a status below 500
    log: Pattern | None = None  # regular expression searched in the server's log
    tcp: bool = True  # the port accepts; a container: its url answers; a no-load server: its counter is seen
    timeout_ns: Ns = Field(default=30_000_000_000, alias="timeout")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.http is not None and self.log is not None:
            raise ValueError("http and log are both set; keep the one that shows best when the server can serve")
        if not (self.http or self.log or self.tcp):
            raise ValueError("nothing says when the server can serve; set http or log, or leave tcp on")
        return self


class SubjectStop(Frozen):
    """How the server is stopped: it gets `signal`, and is killed if it still runs `grace_ns` later."""

    signal: Literal["TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "KILL"] = "TERM"
    grace_ns: Ns = Field(default=5_000_000_000, alias="grace")


class Parameter(Frozen):
    """A parameter of a server. `type`: which values it takes; `default`: the value if neither a factor nor `set` gives
    one; `help`: one line for people; `choices`: the values of type `choice`, else empty. `used_when`: the server reads
    it only if each of these other parameters has one of these values; a text may be a pattern (`fixed:*`)."""

    type: Literal["int", "float", "duration", "string", "choice", "bool"]
    default: Level
    help: str
    choices: tuple[Level, ...] = ()
    used_when: dict[str, tuple[Level, ...]] = {}

    def is_used(self, levels: Mapping[str, Level]) -> bool:
        """True if the server reads this parameter. `levels`: the value of every parameter."""
        return is_met(self.used_when.items(), levels)

    @property
    def needed(self) -> str:
        """`used_when` in words: `model=bounded or cached and accept=dealt`; empty if the server always reads it."""
        return " and ".join(f"{name}={' or '.join(map(format_level, each))}" for name, each in self.used_when.items())


class Service(Frozen):
    """A service that a server depends on; `when`: needed only if these parameters or factors have these values."""

    when: dict[str, Level] = {}


class WorkCounter(Frozen):
    """The counter that reports the work of a no-load server. `series`: its name, and labels if any, on the server's
    metrics page or in what it sends to the StatsD sink. It is written `counts: messages_total`, or with a `noun` for
    one unit of work, which reports use."""

    series: Annotated[str, _checked(parse_series)]
    noun: str = Field(default="operation", pattern=r"^[A-Za-z][A-Za-z -]*$")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"series": value} if isinstance(value, str) else value

    @property
    def wanted(self) -> Series:
        """The counter's `series`, parsed."""
        return parse_series(self.series)


class Subject(Frozen):
    """A server and how to start it. `{port}`, `{engine}`, and parameter or factor names are filled into templates.

    `name`: for reports; `about`: one sentence on it. `parameters`: empty for a server written inline; then every factor
    must occur in a template. `set`: values fixed by the experiment. `stop`: how it is ended. `cwd`: the folder in which
    it starts; None: the one that powerband was started in. `metrics_url`: its Prometheus page; None: it has none. With
    `counts` the server generates its own work: it gets no requests, `url` is not used, and unless `ready` says
    otherwise, it is ready once its counter is seen. A `deployed` server runs already and has no command."""

    name: str
    about: str = ""
    command: Argv | None = None  # None: deployed
    deployed: WrittenDeployed = None
    url: Annotated[str, _checked(lambda value: split_url(value, LOADABLE))] = "http://127.0.0.1:{port}/"
    ready: Ready = Ready()
    stop: SubjectStop = SubjectStop()
    env: dict[str, str | None] = {}  # None: the value comes from powerband's own environment
    cwd: str | None = Field(default=None, pattern=r"^[^\x00]*$")
    parameters: dict[str, Parameter] = {}
    set: dict[str, Level] = {}
    metrics_url: Page | None = None
    visitor_url: Page | None = None  # a page for a real browser, which prints its visits to its console
    build: Argv | None = None  # run once, before the first trial
    folder: str | None = None  # the folder of its subject.yaml
    jdk: int | None = Field(default=None, ge=8, le=99)  # minimum version of the JDK that fills in {java}
    dotnet: int | None = Field(default=None, ge=5, le=99)  # minimum version of the .NET SDK that fills in {dotnet}
    services: dict[Literal["postgresql", "link"], Service] = {}  # started by powerband, for a run or for each trial
    apply: tuple[Step, ...] = ()  # requests that set live knobs, sent once the server is ready
    counts: WorkCounter | None = None  # no-load server: it gets no requests, this counter measures its work
    last_words: Pattern | None = None  # regular expression of the log line whose name=number pairs are kept

    @property
    def is_jvm(self) -> bool:
        """True if its command names a JVM; a JVM that a script starts is not noticed."""
        return self.jdk is not None or PurePath((self.command or ("",))[0]).name in ("java", "{java}")

    @property
    def container_client(self) -> Argv:
        """The words of the command that call a container engine's client (`sudo docker`), if it is `docker run ...`;
        else empty. The server of such a command is no process of it."""
        command = self.command or ()
        words = command[: command.index("run")] if "run" in command else ()
        return words if program_of(words) == "docker" else ()

    @property
    def is_own_process(self) -> bool:
        """True if the command's process is the server, so that powerband chooses its CPUs and watches all of it: not if
        the server runs already, or in a container."""
        return self.deployed is None and not self.container_client

    def levels_at(self, setting: Setting) -> dict[str, Level]:
        """The values of parameters and factors: the setting's level, else the experiment's `set` value, else the
        default."""
        defaults = {name: parameter.default for name, parameter in self.parameters.items()}
        return {**defaults, **self.set, **setting.as_dict()}


class Acknowledged(Section):
    """A check after the load: it sends `write`, and from its acknowledgement on repeats `read` until the whole write is
    visible, or for `timeout_ns` at most; all this `rounds` times."""

    write: Step
    read: Step
    reset: Step | None = None  # sent before each write
    expect: int = Field(ge=1)  # number of items that a complete write adds
    count: str = "json"  # json: elements of an array, or a number; lines; else a regular expression, for its matches
    rounds: int = Field(default=10, ge=1, le=10_000)
    timeout_ns: Timeout = Field(default=30_000_000_000, alias="timeout")

    @field_validator("count")
    @classmethod
    def _is_count(cls, value: str) -> str:
        try:
            re.compile(value)
        except NO_PATTERN as error:
            raise ValueError(f"{value!r} is neither json nor lines, and no regular expression: {error}") from None
        return value


def _warmup(value: Any) -> Any:
    return None if value == "auto" else value


FOREIGN_CPU_MAX = 0.10  # arbitrary: a tenth of the CPUs; it is noted from 3 % on
STEAL_MAX = 0.02  # below the margin of verdicts, 3 %
# For capacity trials.
CAPACITY_USERS = 64  # in the first round, if no users are given; the default of `tune`
CAPACITY_WARMUP_NS = 2_000_000_000  # arbitrary: a server that was just saturated needs less; a search has many trials
CAPACITY_PATIENCE_NS = 2_000_000_000  # arbitrary: later responses miss any usual condition
CAPACITY_IN_FLIGHT_MIN = 256  # arbitrary: at low rates, a burst of arrivals must not be dropped
SCREEN_BLOCKS = 3  # the most blocks of short trials: one shows no noise, two may be one too few
SCREEN_DRAIN_NS = 500_000_000  # arbitrary: a short trial does not wait for the end of a long queue
SCREENED_MIN = 3  # settings; with two, two short trials each show too little of the noise
SOAK_WINDOW_NS = 60_000_000_000  # a minute: long beside the collections of a JVM, short beside a soak
CAPACITY_IN_FLIGHT_MAX = 900  # above it the usual bound of an open load, or as many as the conditions allow


class Measure(Section):
    """How each trial is measured. `warmup_ns`: None to warm up until steady, for at least `warmup_min_ns` and at most
    `warmup_max_ns`."""

    warmup_ns: Annotated[Ns | None, BeforeValidator(_warmup)] = Field(default=None, alias="warmup")
    warmup_min_ns: Ns = Field(default=500_000_000, alias="warmup_min")
    warmup_max_ns: Ns = Field(default=30_000_000_000, alias="warmup_max")
    repeats: int = Field(default=5, ge=1, le=10_000)  # blocks
    retries: int = Field(default=2, ge=0)  # further attempts at one invalid trial
    retry_budget: Share = 0.5  # all retries together, as a share of the planned trials
    # CPU time of other programs, as a share of the trial's CPUs; a trial above it is invalid. None: judged by its cost.
    foreign_cpu_max: Share | None = None
    steal_max: Share | None = None  # the same for CPU time that the hypervisor gives to other machines
    metrics: dict[str, str] = {}  # the server's own metrics, by name: expressions over its metrics page
    series: tuple[str, ...] = ()  # series of its metrics page that are kept and shown by label
    burst_ns: Ns = Field(default=0, alias="burst")  # first moments of the load, measured separately; 0: off
    rate_counter: bool = False  # also measure what a counter with windows of 3 s would print
    acknowledged: Acknowledged | None = None  # check of write visibility, after the load
    visitor: bool = False  # a real browser keeps the server's page for it open during the load
    snapshots: bool = False  # count live objects on the heaps of its JVMs, before and after the measured window
    bars_ns: Ns = Field(default=0, alias="bars")  # width of the bars in which the report shows the rate; 0: none
    slots: bool = True  # try one user and twice the users, after the first trial of each setting
    invariants: Constraints = ()  # conditions on each trial; a violation makes it invalid

    @field_validator("metrics")
    @classmethod
    def _parse(cls, metrics: dict[str, str]) -> dict[str, str]:
        for name, text in metrics.items():
            if not re.fullmatch(OWN + r"\w+", name):
                raise ValueError(f"{name}: a metric of the server's own has a name that begins with {OWN}")
            try:
                parse_own(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return metrics

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.warmup_min_ns > self.warmup_max_ns:
            raise ValueError("warmup_min is longer than warmup_max")
        return self

    def own_metrics(self) -> dict[str, OwnExpression]:
        """The server's own metrics, parsed, by name."""
        return {name: parse_own(text) for name, text in self.metrics.items()}

    @property
    def scraped(self) -> tuple[str, ...]:
        """Names of the series of the server's metrics page that are kept: those used by its own metrics, and those in
        `series`."""
        named = {series.name for own in self.own_metrics().values() if not own.is_final for series in own.series}
        return tuple(sorted(named | set(self.series)))


class Design(Section):
    """The plan of a run. `order`: in `blocks` every setting runs `measure.repeats` times; in a `race` settings shown
    worse than the leader by more than the margin are eliminated after each block, and `measure.repeats` is the maximum
    number of blocks. `vary`: `all` for every combination of levels; `one-at-a-time` for the first level of every
    factor, and from there each other level of each factor alone."""

    order: Literal["blocks", "race"] = "blocks"
    vary: Literal["all", "one-at-a-time"] = "all"
    seed: int | None = Field(default=None, ge=0)  # None: drawn at the start of a run and recorded
    budget_ns: Ns | None = Field(default=None, alias="budget")  # no block begins that would not end within it
    confirm: int = Field(default=3, ge=0)  # race: fresh starts of the winner, and of its nearest rival, afterwards
    confirm_early: bool = False  # these end once they agree; False (older files lack the key): all of them run
    screen_ns: Ns | None = Field(default=None, alias="screen", gt=0)  # race: measured time of short trials; None: none
    explore_above: int = Field(default=50, ge=2)  # race: a space of more settings is explored first, by TPE
    explore_trials: int = Field(default=60, ge=10)  # the trials of that exploration
    finalists: int = Field(default=12, ge=2)  # settings that the exploration passes on to the race
    soak_ns: Ns | None = Field(default=None, alias="soak")  # how long the answer's setting runs once more; None: not
    regret: Share | None = Field(default=None, gt=0, lt=1)  # race: it ends once no other can be better by more

    @property
    def soak_window_ns(self) -> int:
        """The length of the measured end of a soak: a minute, but at most half of the soak; 0 without a soak."""
        return min(SOAK_WINDOW_NS, (self.soak_ns or 0) // 2)

    @property
    def budget_s(self) -> float:
        """The run's budget, in s; infinite without one."""
        return math.inf if self.budget_ns is None else self.budget_ns / 1e9

    def left_s(self, trials: int, pace_s: float, running_s: float, gone_s: float, *, soaks: bool) -> float:
        """The time in s that this many trials of `pace_s` each still take, with the soak, but no longer than the budget
        after `gone_s`. `running_s`: how long the first has run; `soaks`: it is the soak."""
        if trials <= 0:
            return 0.0
        beyond_s = max(0.0, (self.soak_ns or 0) / 1e9 - max(pace_s, running_s if soaks else 0.0))
        return min(trials * pace_s - min(running_s, pace_s) + beyond_s, max(0.0, self.budget_s - gone_s))


class Objective(Section):
    """Says what is best. `metric`: the figure to maximise or minimise (`direction`); `constraints`: the conditions of
    the SLO, which the answer must meet; `margin`: smaller differences count as none; `confidence`: of all intervals and
    verdicts."""

    metric: MetricName = "goodput_per_s"
    direction: Literal["maximise", "minimise"] = "maximise"
    constraints: Constraints = Field(default=(), alias="subject_to")
    margin: Share = 0.03
    confidence: Share = Field(default=0.95, gt=0, lt=1)
    # Share of the users who may get nothing; a setting that leaves out more is no answer.
    allow_unserved: Share = 0.01
    # Share of starts that may fail or violate a constraint; 0: none seen to do so.
    allow_failed_starts: Share = 0.0

    @property
    def is_capacity(self) -> bool:
        """True if the run searches for each setting's highest rate, instead of measuring all under one load."""
        return self.metric == "capacity_per_s"

    @property
    def needed_metrics(self) -> frozenset[str]:
        """The metrics without which a trial decides nothing."""
        return frozenset({self.metric, *(constraint.metric for constraint in self.constraints)})


class ClusterUse(Frozen):
    """The nodes of a Ray cluster on which whole blocks run, each block on one node. It is written `cluster: auto`, or
    as a mapping.

    `address`: `auto` for the cluster that this machine is part of, or the head's `host:6379`. `nodes`: the nodes to
    use, by name or address; empty: all. `files`: folders that are copied to each node, beside that of the subject.
    `generators`: how many nodes load the server of one other node; 0: the load comes from the server's own node."""

    address: str = Field(default="auto", min_length=1, pattern=r"^\S+$")
    nodes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    generators: int = Field(default=0, ge=0, le=64)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"address": value} if isinstance(value, str) else value


class Claim(Frozen):
    """A statement to test. `id`: its name, unique in the experiment; `says`: the statement in words; `holds`: an
    expression over metrics by setting, which is checked after a run; `published`: the figures of the publication, in
    words, None without any."""

    id: str
    says: str
    holds: Annotated[str, _checked(parse_claim)]
    published: str | None = None


class Published(Frozen):
    """Figures of a publication. `by`: values of `metric`, in its own unit, by setting (`instances=1`,
    `core=20,max=100,queue=500`); `note`: a remark that stands below them in reports."""

    metric: MetricName
    by: dict[str, float] = Field(min_length=1)
    note: str = ""

    @field_validator("by", mode="before")
    @classmethod
    def _in_its_unit(cls, by: Any, info: ValidationInfo) -> Any:
        """Converts values such as `13.9s`, `15%`, `250MB` to the metric's unit, as in a condition."""
        if not isinstance(by, Mapping) or "metric" not in info.data:
            return by
        unit = metric_named(info.data["metric"]).unit
        return {name: parse_quantity(value, unit) if isinstance(value, str) else value for name, value in by.items()}


def count_settings(factors: Mapping[str, Sequence[object]], vary: str) -> int:
    """The number of settings, without making them."""
    sizes = [len(levels) for levels in factors.values()]
    return 1 + sum(size - 1 for size in sizes) if vary == "one-at-a-time" else math.prod(sizes)


class Experiment(Frozen):
    """An experiment with all that its file says and every default filled in. `name`: for the run directory and reports;
    `subject`: the server; `load`: of every trial, unless factors change it; `measure`, `design`: how each trial is
    measured, and which are run; `objective`: what is best; `claims`, `published`: statements to test and figures to
    compare with; `host`: the CPUs and memory to use."""

    name: str
    question: str = ""  # what the run is to answer, in words
    source: str | None = None  # the publication that claims and figures come from
    subject: Subject
    factors: dict[str, tuple[Level, ...]] = {}  # the parameters to vary, each with its values; empty: one setting
    load: Load
    measure: Measure = Measure()
    design: Design = Design()
    objective: Objective = Objective()
    claims: tuple[Claim, ...] = ()
    published: tuple[Published, ...] = ()
    host: HostUse = HostUse()
    cluster: ClusterUse | None = None  # None: every trial runs on this machine
    profile: str | None = None  # the profile that was applied
    allow_hosts: tuple[str, ...] = ()  # hosts that may be loaded besides this machine

    @property
    def is_race(self) -> bool:
        """True if settings are eliminated during the run, judged after each block. A capacity search has its own
        procedure, and a single setting has no rival: it is only measured."""
        return self.design.order == "race" and not self.objective.is_capacity and self._has_more_than(1)

    @property
    def may_end_early(self) -> bool:
        """True if a run may be complete with fewer trials than planned, which are then the most that it can take."""
        return self.is_race or self.objective.is_capacity or self.design.budget_ns is not None

    @property
    def compares_revisions(self) -> bool:
        """True if the question is how two revisions of a server differ, and not which one to use."""
        return tuple(self.factors) == (REVISION,) and len(self.factors[REVISION]) == 2

    @property
    def question_shown(self) -> str:
        """The question; of a comparison without one: whether the new revision is worse."""
        if self.question or not self.compares_revisions:
            return self.question
        old, new = map(format_level, self.factors[REVISION])
        return f"Is {new} worse than {old}?"

    @property
    def screened_ns(self) -> int | None:
        """The measured time of the short trials that the race begins with; None if it begins with full trials. Short
        trials are used only if the objective is a rate under a steady load of users, since they can show that, and if
        there are at least three settings, since they spare nothing with fewer."""
        screen_ns, load = self.design.screen_ns, self.load
        plain = load.users is not None and load.requests_per_user is None and load.websocket is None
        steady = load.joining_ns == 0 and load.longest_pause_ns == 0 and not self.load_varies
        worth = count_settings(self.factors, self.design.vary) >= SCREENED_MIN
        if screen_ns is None or not (self.is_race and plain and steady and worth) or self.explores:
            return None
        rate = self.objective.metric in ("goodput_per_s", "achieved_rate_per_s") and self.subject.counts is None
        return screen_ns if rate and 2 * screen_ns <= load.duration_ns else None

    @property
    def screen_blocks(self) -> int:
        """The most blocks of short trials, which come first; also the number of the first block of full trials."""
        return SCREEN_BLOCKS if self.screened_ns is not None else 0

    def settings(self) -> list[Setting]:
        """Every setting, in grid order; if factors vary one at a time, the baseline first. Of those that differ only in
        values that the server does not read, the first."""
        if self.design.vary == "one-at-a-time":
            return one_at_a_time(self.factors)
        conditions = self._conditions
        return list(self._partly_read(conditions).settings) if conditions else grid(self.factors)

    def kept(self) -> Mapping[Setting, Setting]:
        """Every setting of the grid, with the one of `settings()` that stands for it: the two differ at most in values
        that the server does not read. If factors vary one at a time, each setting stands for itself."""
        conditions = () if self.design.vary == "one-at-a-time" else self._conditions
        if conditions:
            return self._partly_read(conditions).stands_for
        return {setting: setting for setting in self.settings()}

    def _partly_read(self, conditions: Conditions) -> Kept:
        """The grid of a server that does not read each factor at each setting. `conditions`: as `_conditions` has
        them."""
        wanted = {name for _, needed in conditions for name, _ in needed} - self.factors.keys()
        others = {name: level for name, level in self.subject.levels_at(Setting(())).items() if name in wanted}
        factors = tuple((name, tuple(levels)) for name, levels in self.factors.items())
        return kept_settings(factors, conditions, tuple(others.items()), repr((factors, conditions, others)))

    @property
    def _conditions(self) -> Conditions:
        """On what it depends whether the server reads a factor, for each factor where other factors are part of it."""
        parameters = self.subject.parameters
        varied = [name for name in self.factors if name in parameters]
        return tuple(
            (name, tuple(parameters[name].used_when.items()))
            for name in varied
            if parameters[name].used_when.keys() & self.factors.keys()
        )

    @property
    def noun(self) -> str:
        """The noun for one counted unit: a request, or a unit of work of a no-load server."""
        return "request" if self.subject.counts is None else self.subject.counts.noun

    @property
    def scraped(self) -> tuple[str, ...]:
        """Names of the series of the server's metrics page that are kept."""
        counted = set() if self.subject.counts is None else {self.subject.counts.wanted.name}
        return tuple(sorted({*self.measure.scraped, *counted}))

    @property
    def explores(self) -> bool:
        """True if the space is too large to race whole, so that only finalists of an exploration race."""
        whole = self.design.vary == "all"  # with one factor changed at a time, each change is wanted
        return self.is_race and whole and self._has_more_than(self.design.explore_above)

    def _has_more_than(self, most: int) -> bool:
        """True if there are more settings; they are only made where the server may not read some of their values."""
        if count_settings(self.factors, self.design.vary) <= most:
            return False
        return not self._conditions or len(self.settings()) > most

    def started_in(self, folder: str) -> Experiment:
        """The experiment with `folder` as the place where the server is started and that `{folder}` stands for, unless
        it names others. A run resumed from another folder then starts the server in the same place."""
        changes = {"cwd": folder.replace("{", "{{").replace("}", "}}")} if self.subject.cwd is None else {}
        # On a cluster a subject's own folder would be copied to each node.
        if self.subject.folder is None and self.cluster is None:
            changes |= {"folder": folder} if "folder" in placeholders([self.subject.model_dump_json()]) else {}
        return self.model_copy(update={"subject": self.subject.model_copy(update=changes)})

    @property
    def load_varies(self) -> bool:
        """True if settings have different loads: a factor is a field of `load`, or fills in the WebSocket dialect."""
        dialect = [] if self.load.websocket is None else [self.load.websocket.dialect]
        return bool(placeholders(dialect)) or any(name.startswith("load.") for name in self.factors)

    def as_in(self, spec: TrialSpec) -> Experiment:
        """The experiment as this trial runs it: with the measured time of the trial, and for a soak with a warm-up that
        takes all of it but its measured end."""
        measure, window_ns = self.measure, spec.window_ns
        if spec.stage is Stage.SOAK and self.design.soak_ns is not None:
            window_ns = self.design.soak_window_ns
            measure = measure.model_copy(update={"warmup_ns": self.design.soak_ns - window_ns})
        if window_ns is None:
            return self
        timing = {"duration_ns": window_ns}
        if spec.stage is Stage.SCREEN:
            timing["drain_ns"] = min(self.load.drain_ns, SCREEN_DRAIN_NS)
        return self.model_copy(update={"load": self.load.model_copy(update=timing), "measure": measure})

    def loaded_for(self, setting: Setting) -> Experiment:
        """The experiment with the load of one setting, as `load_for` has it."""
        return self.model_copy(update={"load": self.load_for(setting)}) if self.load_varies else self

    def measured_for(self, window_ns: int | None) -> Experiment:
        """The experiment with this measured time; None: its own."""
        if window_ns is None:
            return self
        return self.model_copy(update={"load": self.load.model_copy(update={"duration_ns": window_ns})})

    def without_soak(self) -> Experiment:
        """The experiment without its soak, whose time is subtracted from the budget."""
        design = self.design
        left_ns = None if design.budget_ns is None else max(1, design.budget_ns - (design.soak_ns or 0))
        return self.model_copy(update={"design": design.model_copy(update={"budget_ns": left_ns, "soak_ns": None})})

    def load_for(self, setting: Setting, rate_per_s: float | None = None) -> Load:
        """The load of one setting: a factor named `load.users` (any field or alias of Load) replaces that field, and
        parameters are filled into the dialect of a WebSocket.

        `rate_per_s`: the rate of a capacity trial; Poisson arrivals at this rate replace users and rate, with a short
        drain and room for some seconds of arrivals in flight. If it is None and the objective is capacity, the load is
        closed and without think time, which measures the server's maximum."""
        changes: dict[str, Level | Constant | WebSocket | tuple[Step, ...] | None] = {
            field_named(Load, name.removeprefix("load.")): level
            for name, level in setting.levels
            if name.startswith("load.")
        }
        if rate_per_s is not None:
            changes |= {"users": None, "requests_per_user": None, "rate_per_s": rate_per_s, "arrivals": "poisson"}
            changes |= {"ramp_ns": 0, "join_per_s": None, "ramp_from_per_s": 0.0}
        elif self.objective.is_capacity:
            steps = tuple(step.model_copy(update={"think": None}) for step in self.load.scenario)
            changes |= {"requests_per_user": None, "think": Constant(), "scenario": steps}
        if self.load.websocket is not None:
            values = {name: format_level(level) for name, level in self.subject.levels_at(setting).items()}
            changes["websocket"] = self.load.websocket.with_values(values)
        usual: set[str] = set() if "drain_ns" in self.load.model_fields_set else {"drain_ns"}
        load = Load.model_validate({**self.load.model_dump(exclude=usual), **changes}) if changes else self.load
        return load if rate_per_s is None else load.model_copy(update=self._overload_bounds(load, rate_per_s))

    def host_for(self, setting: Setting) -> HostUse:
        """The host use of one setting: factors named `host.cpu_quota` and `host.memory_limit` replace these fields."""
        return self.host.with_levels(setting.as_dict())

    @property
    def generators(self) -> int:
        """The number of nodes that load each server; 0: the load comes from the server's own machine."""
        return 0 if self.cluster is None else self.cluster.generators

    @property
    def host_dealt(self) -> HostUse:
        """The host use by which CPUs are dealt: with the largest quota of all settings, so that all get the same
        CPUs."""
        quotas = [host.cpu_quota for host in self.limited_hosts() if host.cpu_quota is not None]
        return self.host.model_copy(update={"cpu_quota": max(quotas, default=None)})

    def limited_hosts(self) -> list[HostUse]:
        """The host use with each combination of limits of CPU and memory that the settings have."""
        limits = {name: levels for name, levels in self.factors.items() if name.startswith("host.")}
        return [self.host_for(setting) for setting in grid(limits)]

    def warmup_ns_of(self, stage: Stage, load: Load | None = None) -> int | None:
        """The warm-up of a stage in ns; None: until steady. Capacity trials have a fixed warm-up: an overloaded server
        never becomes steady, and the backlog at the start of the window must not depend on the trial. It lasts at least
        as long as the largest allowed time, so that all answers that are due come in the window, and is longer by the
        pauses of `load` (None: the experiment's), so that all steps of the scenario are sent in the window."""
        if stage is Stage.CAPACITY and self.measure.warmup_ns is None:
            least_ns = max(CAPACITY_WARMUP_NS, self.measure.warmup_min_ns, round(self.longest_allowed_ns))
            return least_ns + (load or self.load).pauses_ns
        return self.measure.warmup_ns

    def _overload_bounds(self, load: Load, rate_per_s: float) -> dict[str, int | None]:
        """Drain and in-flight bound of a capacity trial. Requests later than several times the largest allowed time
        violate the conditions anyway, so the trial does not wait for them. An arrival is in flight for all its steps
        and pauses, for which there is room at twice their mean."""
        longest_ns = self.longest_allowed_ns
        patience_ns = max(CAPACITY_PATIENCE_NS, 4 * longest_ns)
        bounds: dict[str, int | None] = {"drain_ns": round(max(min(load.drain_ns, patience_ns), longest_ns))}
        stay_ns = len(load.scenario) * patience_ns + 2 * load.pauses_ns
        held = max(CAPACITY_IN_FLIGHT_MIN, load.engine_threads, math.ceil(rate_per_s * stay_ns / 1e9))
        if load.max_in_flight is None and held < CAPACITY_IN_FLIGHT_MAX:
            bounds["max_in_flight"] = held
        return bounds

    def in_flight_allowed(self, load: Load) -> float:
        """The mean number of arrivals of an open load under way if each request takes the longest time allowed."""
        stay_ns = load.pauses_ns + len(load.scenario) * self.longest_allowed_ns
        return (load.rate_per_s or 0.0) * stay_ns / 1e9

    @property
    def longest_allowed_ns(self) -> float:
        """The largest limit of a response time among the constraints, in ns; 0 if there is none."""
        return max(self.allowed_times_ns(), default=0.0)

    def allowed_times_ns(self) -> list[float]:
        """The limits of response times among the constraints, in ns."""
        constraints = self.objective.constraints
        return [constraint.threshold for constraint in constraints if constraint.metric.startswith("response_time")]
