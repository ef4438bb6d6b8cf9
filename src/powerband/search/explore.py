"""Explores a space that is too large to race whole, and selects the few settings worth racing.

In: an experiment, a seed, results one by one. Out: trials of stage `explore`, each of a different setting, then the
finalists. Optuna's TPE proposes them (Bergstra et al., NIPS 2011; Watanabe 2023 for its treatment of constraints and
several parameters at once). On several nodes a trial runs on each; what their speeds differ by is taken out. Results of
the exploration select the finalists and take no part in the race, since the best of many single trials owe their rank
partly to luck. No I/O here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from powerband.analyze.settings.constraints import shortfalls
from powerband.analyze.trial.faults import has_figure, is_first_start, shown_codes, subjects_own
from powerband.analyze.trial.honesty import SUBJECT_CODES
from powerband.base.errors import UsageError
from powerband.model.experiment import Design, Experiment
from powerband.model.plan import Level, Setting, Stage, TrialSpec, numbers_of
from powerband.model.results import TrialResult
from powerband.search.in_flight import Attempt, Block, InFlight

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

BUDGET_SHARE = 0.5  # of the run's time; the race, which decides, needs the rest
_RANDOM_FIRST = 0.25  # of the trials; TPE needs some to separate good settings from bad ones
_FAILED = 1e6  # the violation of a setting that served nothing: larger than that of any constraint


@dataclass
class _Tried(Block):
    """A setting that is tried, as a block of its own. `result`: its last; None: it is in flight, or will be repeated.
    After it, the node may measure the common setting."""

    result: TrialResult | None = None


class Explorer(InFlight[_Tried]):
    """Plans the exploration. Usage: `ask` for a trial, run it, pass its result to `tell`, and so on; at the end, call
    `finalists`.

    A trial that is invalid through no fault of the server under test is repeated at once, `measure.retries` times at
    most and within `measure.retry_budget`. A trial that the server spoilt is not repeated, since the exploration spends
    one measurement on a setting. No trial begins that would not end within half of `design.budget`.

    `nodes`: how many nodes run trials, one each. A node whose first setting was measured measures the common setting,
    too, in the same block: it is the first that any node measured, and shows how fast the node is. If a node is lost,
    its setting is tried on another."""

    def __init__(self, experiment: Experiment, seed: int, *, nodes: int = 1) -> None:
        super().__init__(experiment, seed)
        self._nodes = nodes
        self._space = _Space(experiment, seed)
        self._wanted = min(experiment.design.explore_trials, len(self._space.settings))
        self._retries_left = math.ceil(experiment.measure.retry_budget * self._wanted)
        self._results: list[TrialResult] = []
        self._begun = 0  # settings
        self.tried = 0  # settings, with or without success

    def blind_trials(self) -> list[TrialSpec]:
        """The first trials, which do not depend on any result. Call this on a new explorer only; it cannot be used for
        anything else afterwards."""
        specs: list[TrialSpec] = []
        while len(specs) < self._space.blind and (spec := self.ask()) is not None:
            specs.append(spec)
            self.tell(TrialResult(spec.number, spec.block, spec.attempt, spec.setting, "measured", (), {}))
        return specs

    @property
    def to_come(self) -> int:
        """Number of results still to come, without further repeats."""
        to_come = self.waiting + (0 if self._out_of_time() else self._wanted - self._begun)
        nodes = {result.node for result in self._results}
        return to_come + (max(0, self._nodes - max(1, len(nodes))) if to_come else 0)

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """The next trial; None when enough of the space has been explored, or nothing but trials in flight is left."""
        asked = self._free(block)
        if asked is None and block is None and self._begun < self._wanted and not self._out_of_time():
            queue = [Attempt(self._space.propose())]
            asked = self._open[self._begun] = _Tried(self._begun, Stage.EXPLORE, queue, self.wall_s)
            self._begun += 1
        return None if asked is None else self._begin_trial(asked, self._take(asked))

    def tell(self, result: TrialResult) -> None:
        block, spec = self._end_trial(result)
        self._results.append(result)
        common, speeds = node_speeds(self._experiment, self._results)
        if result.status == "interrupted":
            if block.result is None or not result.lost:  # another node need not measure what is common
                block.queue.append(Attempt(spec.setting, spec.attempt))
        elif self._is_repeated(result):
            self._retries_left -= 1
            block.queue.append(Attempt(spec.setting, spec.attempt + 1))
        elif block.result is None:
            self.tried += 1
            block.result = result
            if common is not None and self._shows_speed(result, common):
                block.queue.append(Attempt(common))
        for over in self._close():
            assert over.result is not None
            self._space.learn(over.result, speeds, own=_is_own(over.result))

    def _is_repeated(self, result: TrialResult) -> bool:
        may = result.attempt <= self._experiment.measure.retries and self._retries_left > 0
        own = _is_own(result) and not is_first_start(result)
        counts = result.valid or has_figure(result, self._experiment.objective.metric)
        return may and not counts and not own and not self._out_of_time()

    def _shows_speed(self, result: TrialResult, common: Setting) -> bool:
        """True if the node of this result is to run the common setting, which it has not run yet."""
        ran = {each.node for each in self._results if each.setting == common and each.status != "interrupted"}
        measured = result.valid and self._experiment.objective.metric in result.metrics
        return measured and result.node not in ran and not self._out_of_time()

    def finalists(self) -> list[Setting]:
        """The best settings seen, in the order of the plan. Settings that met all constraints rank first, by the
        objective; then those with the smallest violations. Settings without a figure are excluded. At most
        `design.finalists`, and no more than can run two blocks and the confirmation within the budget, but at least
        two."""
        return finalists(self._experiment, self._results, self._room())

    def _room(self) -> int:
        design = self._experiment.design
        if design.budget_ns is None:
            return design.finalists
        return finalists_within(design, self.budget_left_s / self.lasts_s(None), nodes=self._nodes)

    def _out_of_time(self) -> bool:
        return bool(self._results) and self.wall_s + self.lasts_s(None) > BUDGET_SHARE * self.budget_s


def finalists_within(design: Design, trials: float, *, nodes: int = 1) -> int:
    """The most settings of which two blocks, and the confirmation, are no more than so many trials on each node; at
    least two, at most `design.finalists`."""
    blocks, confirms = (math.ceil(each / nodes) for each in (2, design.confirm))  # one after the other
    return max(2, min(design.finalists, int((trials - 2 * confirms) // blocks)))


def _is_own(result: TrialResult) -> bool:
    """True if the server itself spoilt the trial."""
    return subjects_own(result) or bool(shown_codes(result) & SUBJECT_CODES)


def node_speeds(experiment: Experiment, results: Sequence[TrialResult]) -> tuple[Setting | None, dict[str, float]]:
    """The common setting: of those that most nodes measured, the one whose result is first; and its objective on each
    of these nodes, relative to the first of them. Nodes of a run on one machine have no name, and so no speed."""
    metric = experiment.objective.metric
    found: dict[Setting, dict[str, float]] = {}
    for result in results:
        if result.valid and result.node and result.metrics.get(metric, 0.0) > 0:
            found.setdefault(result.setting, {}).setdefault(result.node, result.metrics[metric])
    common = max(found, key=lambda setting: len(found[setting]), default=None)
    figures = {} if common is None else found[common]
    return common, {node: figure / next(iter(figures.values())) for node, figure in figures.items()}


def finalists(experiment: Experiment, results: Sequence[TrialResult], most: int | None = None) -> list[Setting]:
    """Like `Explorer.finalists`, with at most `most` settings (default: `design.finalists`)."""
    metric, speeds = experiment.objective.metric, node_speeds(experiment, results)[1]
    seen = {result.setting: result for result in results if has_figure(result, metric)}
    ranked = sorted(seen.values(), key=lambda each: (violation(experiment, each), -merit(experiment, each, speeds)))
    chosen = {result.setting for result in ranked[: most or experiment.design.finalists]}
    return [setting for setting in experiment.settings() if setting in chosen]


def merit(experiment: Experiment, result: TrialResult, speeds: Mapping[str, float]) -> float:
    """The objective as on a node of speed 1, with its sign chosen so that more is better."""
    value = result.metrics[experiment.objective.metric] / speeds.get(result.node, 1.0)
    return value if experiment.objective.direction == "maximise" else -value


def violation(experiment: Experiment, result: TrialResult) -> float:
    """The sum of the trial's violations of the constraints, each relative to its threshold; 0 if it meets them all."""
    return min(_FAILED, shortfalls(experiment.objective, result.metrics))


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
        self._ordered = {name: numbers_of(levels) is not None for name, levels in experiment.factors.items()}
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
        self._trials: dict[Setting, Trial] = {}  # in flight
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
        setting = self._untried.pop(place)
        self._trials[setting] = trial
        return setting

    def learn(self, result: TrialResult, speeds: Mapping[str, float], *, own: bool) -> None:
        """Passes the final result of a setting to TPE. `speeds`: those of the nodes; `own`: the server itself spoilt
        the trial."""
        trial = self._trials.pop(result.setting)
        measured = has_figure(result, self._experiment.objective.metric)
        if not measured and not own:
            self._study.tell(trial, state=self._failed_state)  # a fault of the machine says nothing about the setting
            return
        trial.set_constraint("constraints", violation(self._experiment, result) if measured else _FAILED)
        self._study.tell(trial, merit(self._experiment, result, speeds) if measured else 0.0)

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


def _in_order(levels: Sequence[Level]) -> list[Level]:
    return list(levels) if numbers_of(levels) is None else sorted(levels, key=float)
