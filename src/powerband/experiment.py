"""What an experiment is, once resolved: frozen models, every default filled in, times in integer ns, rates per second.

In a file durations carry a unit (`3s`, `100ms`) under a key without one (`duration: 60s`); here the field says the unit
(`duration_ns`). Reading files and pointing at errors in them is `experiment_file.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from powerband.plan import Level, Setting, grid
from powerband.units import parse_duration_ns, parse_share

Ns = Annotated[int, BeforeValidator(parse_duration_ns), Field(ge=0)]
Share = Annotated[float, BeforeValidator(parse_share), Field(ge=0, le=1)]


class Frozen(BaseModel):
    """Base of all: unknown keys are errors, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Ready(Frozen):
    """How a subject says that it can serve; exactly one of http, log, or tcp (the default)."""

    http: str | None = None  # path or URL that must answer with a status below 500
    log: str | None = None  # regular expression searched in the subject's log
    tcp: bool = True  # the port accepts a connection
    timeout_ns: Ns = Field(default=30_000_000_000, alias="timeout")


class Stop(Frozen):
    signal: Literal["TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "KILL"] = "TERM"
    grace_ns: Ns = Field(default=5_000_000_000, alias="grace")


class Parameter(Frozen):
    """One knob of a subject."""

    type: Literal["int", "float", "duration", "string", "choice", "bool"]
    default: Level
    help: str
    choices: tuple[Level, ...] = ()


class Subject(Frozen):
    """A server and how to start it. `{port}`, `{engine}`, and parameter or factor names are filled into templates.

    `parameters` is empty for a server written inline: then every factor must occur in a template.
    `set` are values fixed by the experiment."""

    name: str
    about: str = ""
    command: tuple[str, ...] = Field(min_length=1)
    url: str = "http://127.0.0.1:{port}/"
    ready: Ready = Ready()
    stop: Stop = Stop()
    env: dict[str, str] = {}
    cwd: str | None = None
    parameters: dict[str, Parameter] = {}
    set: dict[str, Level] = {}
    metrics_url: str | None = None
    build: tuple[str, ...] | None = None


class Constant(Frozen):
    kind: Literal["constant"] = "constant"
    ns: Ns = 0


class Uniform(Frozen):
    kind: Literal["uniform"] = "uniform"
    min_ns: Ns = Field(alias="min")
    max_ns: Ns = Field(alias="max")


class Exponential(Frozen):
    kind: Literal["exponential"] = "exponential"
    mean_ns: Ns = Field(alias="mean")


Distribution = Constant | Uniform | Exponential


class Checks(Frozen):
    status: tuple[int, ...] = ()
    body_contains: tuple[str, ...] = ()


class Step(Frozen):
    """One request. In a file also as `{get: /test}`, `{post: /random, body: ...}`."""

    name: str
    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    checks: Checks = Checks()
    think: Distribution | None = None


class Load(Frozen):
    """Closed (`users`) or open (`rate_per_s`): exactly one of the two is set.

    `ramp_ns`: users start over this time (closed), or the rate grows over it from `ramp_from_per_s` (open)."""

    users: int | None = Field(default=None, ge=1)
    think: Distribution = Constant()
    requests_per_user: int | None = Field(default=None, ge=1)
    rate_per_s: float | None = Field(default=None, gt=0, alias="rate")
    arrivals: Literal["constant", "poisson"] = "poisson"
    ramp_ns: Ns = Field(default=0, alias="ramp")
    ramp_from_per_s: float = Field(default=0.0, ge=0, alias="ramp_from")
    max_in_flight: int = Field(default=10_000, ge=1)
    duration_ns: Ns = Field(default=10_000_000_000, alias="duration")
    drain_ns: Ns = Field(default=10_000_000_000, alias="drain")
    scenario: tuple[Step, ...] = (Step(name="GET /"),)
    keep_alive: bool = True
    pipeline: int = Field(default=1, ge=1)
    timeout_ns: Ns = Field(default=30_000_000_000, alias="timeout")
    connect_timeout_ns: Ns = Field(default=5_000_000_000, alias="connect_timeout")
    engine_threads: int = Field(default=1, ge=1)
    precision_ns: Ns = Field(default=100_000, alias="precision")
    tls_insecure: bool = False
    tls_ca_file: str | None = None


class Measure(Frozen):
    """`warmup_ns` None: warm up until steady, at least `warmup_min_ns`, at most `warmup_max_ns`."""

    warmup_ns: Ns | None = None
    warmup_min_ns: Ns = Field(default=1_000_000_000, alias="warmup_min")
    warmup_max_ns: Ns = Field(default=30_000_000_000, alias="warmup_max")
    repeats: int = Field(default=5, ge=1)  # blocks
    retries: int = Field(default=2, ge=0)  # further attempts at one invalid trial
    retry_budget: Share = 0.5  # all retries together, as a share of the planned trials


class Design(Frozen):
    order: Literal["blocks"] = "blocks"
    seed: int | None = None  # None: drawn at the start of a run and recorded


class Constraint(Frozen):
    """`error_rate < 1%`: metric, comparison, threshold in the metric's own unit."""

    metric: str
    op: Literal["<", "<=", ">", ">=", "=="]
    threshold: float
    text: str


class Objective(Frozen):
    metric: str = "goodput_per_s"
    direction: Literal["maximise", "minimise"] = "maximise"
    constraints: tuple[Constraint, ...] = ()
    margin: Share = 0.03
    confidence: Share = 0.95


class Pinning(Frozen):
    """CPU lists as the kernel writes them (`0-3,6`); `probe` None: the engine's."""

    subject: str
    engine: str
    probe: str | None = None


class HostUse(Frozen):
    """How this machine's CPUs are dealt out. `auto`: disjoint sets where there are cores enough; `off`: no pinning."""

    pinning: Literal["auto", "off"] | Pinning = "auto"


class Claim(Frozen):
    """A published statement; `holds` is checked after a run (expression over metrics by setting)."""

    id: str
    says: str
    holds: str
    published: str | None = None


class Experiment(Frozen):
    name: str
    question: str = ""
    source: str | None = None
    subject: Subject
    factors: dict[str, tuple[Level, ...]] = {}
    load: Load
    measure: Measure = Measure()
    design: Design = Design()
    objective: Objective = Objective()
    claims: tuple[Claim, ...] = ()
    host: HostUse = HostUse()
    profile: str | None = None  # the profile that was applied
    allow_hosts: tuple[str, ...] = ()

    def settings(self) -> list[Setting]:
        """Every setting, in grid order."""
        return grid(self.factors)

    def load_for(self, setting: Setting) -> Load:
        """The load of one setting: a factor named `load.users` (any field or alias of Load) replaces that field."""
        changes = {name.removeprefix("load."): level for name, level in setting.levels if name.startswith("load.")}
        return Load.model_validate({**self.load.model_dump(by_alias=False), **changes}) if changes else self.load
