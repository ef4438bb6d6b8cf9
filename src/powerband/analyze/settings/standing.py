"""Holds all judged settings, from which the answer is worded. Values and small helpers; nothing is decided."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from powerband.analyze.settings.contest import Cost, cheapest_of, cost_of
from powerband.base.units import capital, format_value, joined
from powerband.loads import kind_of
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS, margin_words, metric_words
from powerband.model.plan import Setting
from powerband.model.results import AnswerKind, Exploration, Figure, Race, SettingResult, TrialResult, Verdict

GOODPUT = "goodput_per_s"
LIST_MAX = 6  # arbitrary: what a sentence bears; the table has all


@dataclass(frozen=True)
class Standing:
    """All settings after analysis, with everything that the words of the answer need. `experiment`: as it was run;
    `rows`: one for each setting that was judged; `leader`: the best by its estimate of those that may be the answer,
    None if there is none; `race`: None for a fixed plan."""

    experiment: Experiment
    rows: Sequence[SettingResult]
    leader: Setting | None
    contenders: frozenset[Setting]
    """Settings that may still be better than the leader by more than the margin."""
    blocks: int
    """Number of valid trials of the leader."""
    failed: Mapping[Setting, str] = field(default_factory=dict)
    """Settings without a valid trial by their own fault, with the reason."""
    unmeasured: Mapping[Setting, str] = field(default_factory=dict)
    """Settings without a valid trial for any other reason: nothing is known of them."""
    race: Race | None = None
    broken_afresh: Sequence[str] = ()
    """Constraints that fresh starts of the setting that the race named broke, with what was seen."""
    exploration: Exploration | None = None
    """The exploration before the race."""
    led_with: Mapping[Setting, float] = field(default_factory=dict)
    """By setting that left a race as worse: the objective of the leader then, to which its `effect` is a ratio."""
    explored: Sequence[TrialResult] = ()
    """Valid trials of the exploration."""
    measured: frozenset[str] = frozenset()
    """Names of the metrics that valid trials have."""
    block_s: float | None = None
    """Time that one block of all settings takes, in s."""
    explore_s: float = 0.0
    """Time that the whole exploration took, in s."""
    out_of_time: bool = False
    """True if the budget ended before two blocks did."""
    cpus: CpuUse | None = None
    """CPUs of the last valid trial, of the leader if it has one."""
    cpus_of: Mapping[Setting, CpuUse] = field(default_factory=dict)
    """CPUs of the last valid trial of each setting: with a quota, or affinity of its own, each may have others."""
    processes: Mapping[Setting, int] = field(default_factory=dict)
    """Processes of the server whose runtime is known, in the last valid trial of each setting that has any."""
    growing: Mapping[Setting, Mapping[str, tuple[float, float | None]]] = field(default_factory=dict)
    """By setting and quantity: growth per second all through its trials, and the seconds to its limit (None: not
    known)."""
    figures: Mapping[Setting, Figure] = field(default_factory=dict)
    """The objective of each setting as a sentence states it; empty for capacities."""
    hidden: Mapping[Setting, Sequence[str]] = field(default_factory=dict)
    """Constraints that a setting meets, but too few requests show for certain."""
    rising: frozenset[Setting] = frozenset()
    """Settings that still got faster while they were measured."""
    warmup_s: int | None = None
    """The warm-up in s that may settle which setting is best; None unless one that still got faster may end up
    ahead."""
    short: bool = False
    """True if the settings are compared by short trials alone."""
    spared: frozenset[Setting] = frozenset()
    """Settings whose estimates are of short trials, though others have full ones."""
    near: frozenset[Setting] = frozenset()
    """Settings that are worse than the leader, but perhaps by no more than the margin, as their differences say; empty
    for capacities."""
    few_requests: Mapping[Setting, str] = field(default_factory=dict)
    """By setting: how long a trial would do, if its valid ones had too few requests for what was asked."""

    def row(self, setting: Setting) -> SettingResult:
        """The row of a setting, which must be among `rows`."""
        return next(row for row in self.rows if row.setting == setting)

    def value(self, setting: Setting, metric: str) -> float | None:
        """The estimate of a metric in the metric's unit; None if no valid trial of the setting has it."""
        found = self.row(setting).estimates.get(metric)
        return None if found is None else found.value

    def is_like(self, setting: Setting, other: Setting) -> bool:
        """True if the estimates of both settings are of full trials, or of short ones."""
        return (setting in self.spared) == (other in self.spared)

    def cpus_for(self, setting: Setting) -> CpuUse | None:
        """CPUs that the setting had; those of `cpus` if they are not known."""
        return self.cpus_of.get(setting, self.cpus)

    def costs(self, among: Collection[Setting]) -> dict[Setting, Cost]:
        """The cost of each setting of `among`, as `cost_of` has it."""
        rows = (row for row in self.rows if row.setting in among)
        return {r.setting: cost_of({name: mean.value for name, mean in r.estimates.items()}) for r in rows}

    def cheapest(self, among: Collection[Setting]) -> list[Setting]:
        """The settings of `among` that cost least, as `cheapest_of` has them."""
        return cheapest_of(self.costs(among))

    @property
    def shares(self) -> bool:
        """True if the objective is a share: differences and margin are then percentage points."""
        return METRICS[self.experiment.objective.metric].unit == "ratio"

    def base(self, setting: Setting) -> float:
        """The factor that turns how far a setting's `effect` lies from 1 into a share of the leader's objective or, of
        an objective that is a share, into points."""
        if not self.shares or self.leader is None:
            return 1.0
        mean = self.led_with.get(setting, self.value(self.leader, self.experiment.objective.metric))
        return abs(mean or 0.0)

    @property
    def margin(self) -> str:
        """The equivalence margin in words: `3 %`, or percentage points if the objective is a share."""
        return margin_words(self.experiment.objective.margin, self.experiment.objective.metric)

    def objective_text(self, setting: Setting) -> str:
        """The objective's estimate with its unit; `at least` before a lower bound."""
        metric = self.experiment.objective.metric
        found = self.row(setting).estimates.get(metric)
        if found is None:
            return "more than the load generator could offer" if self.is_beyond_engine(setting) else "nothing"
        return f"{'at least ' if found.at_least else ''}{format_value(found.value, METRICS[metric].unit)}"

    def words_of(self, metric: str) -> str:
        """The words for a metric: `response time p99`; `goodput`, for a no-load server `messages`."""
        return kind_of(self.experiment).goodput_words(self.experiment) if metric == GOODPUT else metric_words(metric)

    def is_beyond_engine(self, setting: Setting) -> bool:
        """True if the setting's capacity is more than the load engine could offer, so that it has no figure."""
        row = self.row(setting)
        return row.feasible and row.capacity is not None and row.capacity.estimate is None


@dataclass(frozen=True)
class Decision:
    """An answer before its words. `kind`, `chosen`, `equivalent`, `undecided`: as `kind`, `setting`, `equivalent` and
    `undecided` of `Answer`."""

    kind: AnswerKind
    chosen: Setting | None
    equivalent: tuple[Setting, ...]
    undecided: tuple[Setting, ...]
    regret: float | None = None
    """The bound: no other setting is better than the chosen one by a larger share; None: there is no bound."""
    above: Mapping[Setting, float] = field(default_factory=dict)
    """The share by which each other setting may be better."""
    alike: tuple[Setting, ...] = ()
    """Settings from which the cheapest was chosen, where none was shown to be best."""


def close_behind(standing: Standing) -> tuple[Setting, ...]:
    """Settings that are certainly worse than the leader, but perhaps by no more than the margin: by their ratios to it
    or, where there are none, as with a leader at 0, by their differences."""
    if standing.leader is None:
        return ()
    margin = standing.experiment.objective.margin

    def is_close(row: SettingResult) -> bool:
        if row.effect is None:
            return row.setting in standing.near
        known = [abs(1 - end) for end in (row.effect.low, row.effect.high) if end is not None]
        return min(known, default=math.inf) * standing.base(row.setting) < margin

    worse = (row for row in standing.rows if row.trials and row.feasible and row.verdict is Verdict.WORSE)
    return tuple(row.setting for row in worse if is_close(row))


def names(settings: Sequence[Setting]) -> str:
    """The ids of settings as a list, `a, b and c`; a long one is cut."""
    shown = [setting.id for setting in settings[:LIST_MAX]]
    if len(settings) > LIST_MAX:
        shown.append(f"{len(settings) - LIST_MAX} more")
    return joined(shown)


def verb(settings: Sequence[object], one: str, many: str) -> str:
    """Returns the form of a word that agrees with the number of settings: `one` for one, else `many`."""
    return one if len(settings) == 1 else many


def sentence(text: str) -> str:
    """The clause with a capital and a full stop, unless it ends a sentence already; names such as `threads=4` stay as
    they are."""
    return capital(text) if not text or text.endswith((".", "!", "?")) else f"{capital(text)}."


def sentences(clauses: Iterable[str]) -> str:
    """Each clause as a sentence of its own; empty ones are left out."""
    return " ".join(map(sentence, filter(None, clauses)))
