"""Explores a space that is too large to race whole, and selects the few settings worth racing.

In: an experiment, a seed, results one by one. Out: trials of stage `explore`, each of a different setting, then the
finalists. Optuna's TPE proposes them (Bergstra et al., NIPS 2011; Watanabe 2023 for its treatment of constraints and
several parameters at once). Results of the exploration select the finalists and take no part in the race, since the
best of many single trials owe their rank partly to luck. No I/O here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from powerband.analyze.settings.constraints import shortfall
from powerband.analyze.trial.faults import fatal_codes, subjects_own
from powerband.analyze.trial.honesty import SUBJECT_CODES
from powerband.base.errors import UsageError
from powerband.loads.measured import as_judged
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Setting, Stage, TrialSpec, number_of
from powerband.model.results import TrialResult

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

BUDGET_SHARE = 0.5  # of the run's time; the race, which decides, needs the rest
_RANDOM_FIRST = 0.25  # of the trials; TPE needs some to separate good settings from bad ones
_FAILED = 1e6  # the violation of a setting that served nothing: larger than that of any constraint


class Explorer:
    """Plans the exploration. Usage: `ask` for a trial, run it, pass its result to `tell`, and so on; at the end, call
    `finalists`.

    A trial that is invalid through no fault of the server under test is repeated at once, `measure.retries` times at
    most and within `measure.retry_budget`. A trial that the server spoilt is not repeated, since the exploration spends
    one measurement on a setting. No trial begins that would not end within half of `design.budget`. `nodes`: how many
    nodes run the race that follows."""

    def __init__(self, experiment: Experiment, seed: int, *, nodes: int = 1) -> None:
        self._experiment = experiment
        self._nodes = nodes
        self._space = _Space(experiment, seed)
        self._wanted = min(experiment.design.explore_trials, len(self._space.settings))
        self._retries_left = math.ceil(experiment.measure.retry_budget * self._wanted)
        self._load_seed = random.Random(f"{seed}/load/explore").getrandbits(48)
        self.told: list[TrialResult] = []
        self.tried = 0  # settings, with or without success
        self._next: tuple[Setting, int] | None = None  # to be repeated
        self._pending: TrialSpec | None = None

    def blind_trials(self) -> list[TrialSpec]:
        """The first trials, which do not depend on any result. Call this on a new explorer only; it cannot be used for
        anything else afterwards."""
        specs: list[TrialSpec] = []
        while len(specs) < self._space.blind and (spec := self.ask()) is not None:
            specs.append(spec)
            self.tell(TrialResult(spec.number, spec.block, spec.attempt, spec.setting, "measured", (), {}))
        return specs

    @property
    def spent_s(self) -> float:
        """Total time of the finished trials, as far as their records contain it."""
        return sum(result.took_s or 0.0 for result in self.told)

    @property
    def to_come(self) -> int:
        """Number of results still to come, without further repeats."""
        begun = self._pending is not None or self._next is not None
        return begun + (0 if self._out_of_time() else self._wanted - self.tried - begun)

    @property
    def in_flight(self) -> bool:
        return self._pending is not None

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """The next trial; None when enough of the space has been explored, or while a trial is in flight: with one
        trial each, settings on two nodes would differ by their nodes too."""
        if block not in (None, self.tried):
            return None
        if self._pending is not None:
            assert block is None, "the trial asked for last was not told"
            return None
        if self._next is None:
            if block is not None or self.tried >= self._wanted or self._out_of_time():
                return None
            self._next = (self._space.propose(), 1)
        (setting, attempt), self._next = self._next, None
        number = len(self.told) + 1
        self._pending = TrialSpec(number, self.tried, attempt, setting, self._load_seed, Stage.EXPLORE)
        return self._pending

    def tell(self, result: TrialResult) -> None:
        spec, self._pending = self._pending, None
        assert spec is not None and spec.number == result.number, "a result was told that was not asked for"
        self.told.append(result)
        if result.status == "interrupted":
            self._next = (spec.setting, spec.attempt)
            return
        own = subjects_own(result) or bool(fatal_codes(result) & SUBJECT_CODES)
        may_repeat = spec.attempt <= self._experiment.measure.retries and self._retries_left > 0
        if not result.valid and not own and may_repeat and not self._out_of_time():
            self._retries_left -= 1
            self._next = (spec.setting, spec.attempt + 1)
            return
        self.tried += 1
        self._space.learn(result, own=own)

    def finalists(self) -> list[Setting]:
        """The best settings seen, in the order of the plan. Settings that met all constraints rank first, by the
        objective; then those with the smallest violations. Settings without a measurement are excluded. At most
        `design.finalists`, and no more than can run two blocks and the confirmation within the budget, but at least
        two."""
        return finalists(self._experiment, self.told, self._room())

    def _room(self) -> int:
        design = self._experiment.design
        if design.budget_ns is None or not self.spent_s:
            return design.finalists
        trials = (design.budget_ns / 1e9 - self.spent_s) / (self.spent_s / len(self.told))
        blocks, confirms = (math.ceil(each / self._nodes) for each in (2, design.confirm))  # one after the other
        return max(2, min(design.finalists, int((trials - 2 * confirms) // blocks)))

    def _out_of_time(self) -> bool:
        budget_ns = self._experiment.design.budget_ns
        if budget_ns is None or not self.told:
            return False
        return self.spent_s * (1 + 1 / len(self.told)) > BUDGET_SHARE * budget_ns / 1e9


def finalists(experiment: Experiment, results: Sequence[TrialResult], most: int | None = None) -> list[Setting]:
    """Like `Explorer.finalists`, with at most `most` settings (default: `design.finalists`)."""
    metric = experiment.objective.metric
    seen = {result.setting: result for result in results if result.valid and metric in result.metrics}
    ranked = sorted(seen.values(), key=lambda result: (violation(experiment, result), -merit(experiment, result)))
    chosen = {result.setting for result in ranked[: most or experiment.design.finalists]}
    return [setting for setting in experiment.settings() if setting in chosen]


def merit(experiment: Experiment, result: TrialResult) -> float:
    """The objective, with its sign chosen so that more is better."""
    value = result.metrics[experiment.objective.metric]
    return value if experiment.objective.direction == "maximise" else -value


def violation(experiment: Experiment, result: TrialResult) -> float:
    """The sum of the trial's violations of the constraints, each relative to its threshold; 0 if it meets them all."""
    metrics = result.metrics
    constraints = experiment.objective.constraints
    misses = [shortfall(constraint, as_judged(constraint.metric, metrics)) for constraint in constraints]
    return min(_FAILED, sum(miss for miss in misses if miss is not None))


class _Space:
    """The settings as TPE sees them: each parameter is the position of its value. Numbers keep their order, so that TPE
    expects good values between good values; other values are categories. Raises UsageError if Optuna is missing."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        # Importing Optuna takes 0.4 s; no other command should wait for it, nor need it.
        try:
            import optuna  # noqa: PLC0415
            from optuna.distributions import CategoricalDistribution, IntDistribution  # noqa: PLC0415
        except ModuleNotFoundError:
            raise UsageError(
                f"more than {experiment.design.explore_above} settings are explored by Optuna, which is not installed: "
                "pip install 'powerband[explore]', or name fewer settings"
            ) from None

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._experiment = experiment
        self.settings = experiment.settings()
        self._dice = random.Random(f"{seed}/explore")
        self._levels = {name: _in_order(levels) for name, levels in experiment.factors.items()}
        self._ordered = {name: _are_numbers(levels) for name, levels in experiment.factors.items()}
        self._distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(levels) - 1)
            if self._ordered[name]
            else CategoricalDistribution(tuple(range(len(levels))))
            for name, levels in self._levels.items()
        }
        places = {name: {level: at for at, level in enumerate(levels)} for name, levels in self._levels.items()}
        self._untried = {
            tuple(places[name][level] for name, level in setting.levels): setting for setting in self.settings
        }
        self.blind = max(10, round(_RANDOM_FIRST * experiment.design.explore_trials))
        sampler = optuna.samplers.TPESampler(seed=self._dice.getrandbits(32), n_startup_trials=self.blind)
        self._study: Study = optuna.create_study(sampler=sampler, direction="maximize")
        self._trial: Trial | None = None
        self._failed_state = optuna.trial.TrialState.FAIL

    def propose(self) -> Setting:
        """A setting not proposed before: TPE's proposal, or the nearest untried setting if that one is known."""
        trial = self._study.ask(self._distributions)
        place = self._place(trial)
        if place not in self._untried:
            self._study.tell(trial, state=self._failed_state)  # already tried: nothing to learn from it
            self._study.enqueue_trial(dict(zip(self._levels, self._nearest_untried(place), strict=True)))
            trial = self._study.ask(self._distributions)
            place = self._place(trial)
        self._trial = trial
        return self._untried.pop(place)

    def learn(self, result: TrialResult, *, own: bool) -> None:
        """Passes the final result of the setting proposed last to TPE; `own`: the server itself spoilt the trial."""
        trial, self._trial = self._trial, None
        assert trial is not None
        measured = result.valid and self._experiment.objective.metric in result.metrics
        if not measured and not own:
            self._study.tell(trial, state=self._failed_state)  # a fault of the machine says nothing about the setting
            return
        trial.set_constraint("constraints", violation(self._experiment, result) if measured else _FAILED)
        self._study.tell(trial, merit(self._experiment, result) if measured else 0.0)

    def _place(self, trial: Trial) -> tuple[int, ...]:
        return tuple(int(trial.params[name]) for name in self._levels)

    def _nearest_untried(self, place: Sequence[int]) -> tuple[int, ...]:
        """The untried setting the fewest steps away; ties are broken at random. A step is a neighbouring number or any
        other category."""
        ordered = list(self._ordered.values())

        def steps(other: Sequence[int]) -> int:
            pairs = zip(place, other, ordered, strict=True)
            return sum(abs(here - there) if numbers else here != there for here, there, numbers in pairs)

        near = min(map(steps, self._untried))
        return self._dice.choice([other for other in self._untried if steps(other) == near])


def _are_numbers(levels: Sequence[Level]) -> bool:
    return all(number_of(level) is not None for level in levels)


def _in_order(levels: Sequence[Level]) -> list[Level]:
    return sorted(levels, key=float) if _are_numbers(levels) else list(levels)
