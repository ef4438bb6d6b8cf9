"""Adds a soak to a plan: when the plan is over, the setting that its analysis names runs once more, for long.

In: an experiment, a seed, the plan, results one by one. Out: the plan's trials, then one of stage `soak`. An invalid
soak is repeated within the budget, unless the server itself spoilt it: that is an answer. The trials depend only
on the seed and the results. No I/O here; `analyze/settings/soak.py` interprets the result.
"""

from __future__ import annotations

import random
from dataclasses import replace

from powerband.analyze.runs.revisions import holds_revisions
from powerband.analyze.settings.compare import Progress, analyse
from powerband.analyze.trial.faults import fatal_codes, subjects_own
from powerband.analyze.trial.honesty import REPEATED_CODES
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import REVISION, Setting, Stage, TrialSpec
from powerband.model.results import TrialResult
from powerband.search.planner import Confirming, Planner


class SoakingPlan:
    """A planner that adds a soak to a plan. Usage: `ask` for a trial, run it, pass its result to `tell`."""

    def __init__(self, experiment: Experiment, seed: int, plan: Planner) -> None:
        self._experiment = experiment
        self._seed = seed
        self._plan = plan
        self._results: list[TrialResult] = []  # of the plan
        self._told = 0  # soaks
        self._begun = False
        self._next: TrialSpec | None = None
        self._wall_s = 0.0  # since the first trial was asked for, as in `BlockTrials`
        self._asked_s: dict[int, float] = {}  # when each trial in flight was asked for

    @property
    def planned_total(self) -> int:
        return self._plan.planned_total + self._told + self._to_come

    def left_s(self, noise: Noise, nodes: int = 1) -> float | None:
        plan_s = 0.0 if self._begun else self._plan.left_s(noise, nodes)
        return None if plan_s is None else plan_s + self._to_come * (self._experiment.design.soak_ns or 0) / 1e9

    @property
    def block_ended(self) -> bool:
        return not self._begun and self._plan.block_ended

    @property
    def confirming(self) -> Confirming | None:
        return None if self._begun else self._plan.confirming

    @property
    def progress(self) -> Progress:
        return replace(self._plan.progress, soak_to_come=self._to_come)

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """The next trial; None when plan and soak are over, if no setting is fit for a soak, or while the plan's last
        trials or the soak are in flight."""
        if not self._begun:
            if (spec := self._plan.ask(block)) is not None:
                self._asked_s[spec.number] = self._wall_s
                return spec
            if block is not None or self._asked_s:
                return None
            self._begun, self._next = True, self._soak()
        if self._next is None or self._asked_s or block not in (None, self._next.block):
            return None
        self._asked_s[self._next.number] = self._wall_s
        return self._next

    def tell(self, result: TrialResult) -> None:
        self._wall_s = max(self._wall_s, self._asked_s.pop(result.number) + result.spent_s)
        if not self._begun:
            self._plan.tell(result)
            self._results = sorted([*self._results, result], key=lambda each: each.number)
            return
        spec = self._next
        assert spec is not None and spec.number == result.number, "a result was told that was not asked for"
        self._told += 1
        again = result.status == "interrupted"
        comes_again = subjects_own(result) or fatal_codes(result) & REPEATED_CODES
        spoilt = not result.valid and not comes_again and spec.attempt <= self._experiment.measure.retries
        attempt = spec.attempt if again else spec.attempt + 1
        repeated = again or (spoilt and self._fits())
        self._next = replace(spec, number=spec.number + 1, attempt=attempt) if repeated else None

    def _fits(self) -> bool:
        """True if another soak would end within the budget."""
        design = self._experiment.design
        return design.budget_ns is None or self._wall_s + (design.soak_ns or 0) / 1e9 <= design.budget_ns / 1e9

    @property
    def _to_come(self) -> bool:
        return not self._begun or self._next is not None

    def _soak(self) -> TrialSpec | None:
        """The soak of the setting that the analysis names, or else of the leader, with the new revision if two are
        compared: the question is whether that one lasts. None if there is neither, or no trial of it is valid. If the
        objective is capacity, the rate is the lower end of the interval of its capacity."""
        analysis = analyse(self._experiment, self._results, self._plan.progress)
        setting = analysis.answer.setting or analysis.answer.leader
        if setting is None:
            return None
        if holds_revisions(self._experiment):
            new = self._experiment.factors[REVISION][-1]
            setting = Setting(tuple((setting.as_dict() | {REVISION: new}).items()))
        if not any(result.valid and result.setting == setting for result in self._results):
            return None
        rate_per_s = None
        if self._experiment.objective.is_capacity:
            capacity = next(row.capacity for row in analysis.settings if row.setting == setting)
            if capacity is None or capacity.estimate is None:
                return None
            rate_per_s = capacity.estimate.ends[0]
        block = 1 + max(result.block for result in self._results)
        seed = random.Random(f"{self._seed}/soak").getrandbits(48)
        return TrialSpec(len(self._results) + 1, block, 1, setting, seed, Stage.SOAK, rate_per_s)
