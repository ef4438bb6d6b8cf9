"""Compares settings by their capacity: which one leads, and how every other compares, with the same verdicts as between
loads of one rate. The leader has the highest rate that 95 % of starts hold; it is the best only if its typical start is
ahead as well.

In: each setting's search. Out: a contest. The planner asks it after every round which settings may leave, the analysis
asks it for verdicts: so both say the same. Not here: one setting's own search (`capacity.py`), words (`answer.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from powerband.analyze.settings.capacity import Search, search_of
from powerband.analyze.settings.constraints import judge
from powerband.analyze.stats.edge import difference_quantiles
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import Estimate, TrialResult, Verdict


@dataclass(frozen=True)
class Gap:
    """Log capacity less the leader's: `middle`, the median; `low` to `high`, its simultaneous interval; `low_tost` to
    `high_tost`, the interval at twice the error, for two one-sided tests of equivalence."""

    middle: float
    low: float
    high: float
    low_tost: float
    high_tost: float

    def verdict(self, allowed: float) -> Verdict:
        """The verdict. Equivalence comes first: within the margin no difference matters, however certain. `allowed`:
        the margin on the log scale."""
        if max(-self.low_tost, self.high_tost) <= allowed:
            return Verdict.EQUIVALENT
        if self.high < 0:
            return Verdict.WORSE
        return Verdict.BETTER if self.low > 0 else Verdict.INCONCLUSIVE

    def widened(self, half: float) -> Gap:
        """The gap with its intervals wider by `half` to either side, on the log scale."""
        return Gap(self.middle, self.low - half, self.high + half, self.low_tost - half, self.high_tost + half)

    def ratio(self, confidence: float, n: int) -> Estimate:
        """The capacity as a ratio to the leader's. `confidence`: that of the interval; `n`: the number of trials."""
        return Estimate(math.exp(self.middle), math.exp(self.low), math.exp(self.high), confidence, n)


def gap_between(search: Search, leader: Search, error: float) -> Gap:
    """Compares the rates that half of each setting's quick starts hold, since so few trials do not show what the
    slowest twentieth of its starts does. `error`: the chance that the interval may miss."""
    tails = (0.5, error / 2, 1 - error / 2, error, 1 - error)
    return Gap(*difference_quantiles(search.compared, leader.compared, tails))


@dataclass(frozen=True)
class CapacityContest:
    """All settings compared by capacity. `searches`: by setting. `leader`: None if no setting may hold at any rate.
    `margin`: a relative difference that does not matter; `confidence`: that of all intervals together. `gaps`: those of
    all settings that may hold at some rate, but the leader. `barred`: settings of which more starts failed than may,
    in words; they neither lead nor have a gap."""

    searches: Mapping[Setting, Search]
    leader: Setting | None
    margin: float
    confidence: float
    gaps: Mapping[Setting, Gap]
    barred: Mapping[Setting, tuple[str, ...]]

    def verdict(self, setting: Setting) -> Verdict:
        """The verdict on a setting compared with the leader; inconclusive if it has no gap. Where its typical start is
        equivalent, but its capacity looks worse by more than the margin, some of its starts may be slow."""
        found = self.typical(setting)
        return Verdict.INCONCLUSIVE if found is Verdict.EQUIVALENT and self._looks_worse(setting) else found

    def typical(self, setting: Setting) -> Verdict:
        """Like `verdict`, by typical starts alone: more trials hardly show what the slowest twentieth does."""
        if setting == self.leader:
            return Verdict.EQUIVALENT
        gap = self.gaps.get(setting)
        return Verdict.INCONCLUSIVE if gap is None else gap.verdict(self._allowed)

    def _looks_worse(self, setting: Setting) -> bool:
        if self.leader is None:
            return False
        mine, leaders = (self.searches[each].edge.quantile(0.5) for each in (setting, self.leader))
        return mine < leaders - self._allowed

    def effect(self, setting: Setting) -> Estimate | None:
        """The ratio of capacities; None if no trial shows where the leader's or this one's ends."""
        if self.leader is None or self.searches[self.leader].open_above:
            return None
        trials = len(self.searches[setting].answers)
        if setting == self.leader:
            return Estimate(1.0, 1.0, 1.0, self.confidence, trials)
        gap = self.gaps.get(setting)
        if gap is None or self.searches[setting].open_above:
            return None
        return gap.ratio(self.confidence, trials)

    def contenders(self) -> list[Setting]:
        """Settings that may be better than the leader by more than the margin."""
        return [
            setting
            for setting, gap in self.gaps.items()
            if self.verdict(setting) in (Verdict.INCONCLUSIVE, Verdict.BETTER) and gap.high_tost > self._allowed
        ]

    def worse_beyond_margin(self) -> list[Setting]:
        """Settings that are certainly worse than the leader by more than the margin."""
        return [setting for setting, gap in self.gaps.items() if gap.high < -self._allowed]

    @property
    def _allowed(self) -> float:
        return math.log1p(self.margin)


def hold_capacity_contest(
    experiment: Experiment, settings: Sequence[Setting], results: Sequence[TrialResult]
) -> CapacityContest:
    """Compares the capacities of `settings`, from the trials of the whole search; nodes of different speed are evened
    out."""
    searches = {setting: search_of(experiment, setting, results) for setting in settings}
    return contest_of(experiment, on_even_nodes(searches))


def on_even_nodes(searches: Mapping[Setting, Search]) -> Mapping[Setting, Search]:
    """The searches, each with the speeds of the nodes, so that settings are compared as on a node of median speed. A
    node's speed is the mean over the settings, on the log scale, of its first look less the median of all nodes'."""
    looks = {setting: search.looks for setting, search in searches.items() if search.looks}
    nodes = set[str]().union(*looks.values())
    whole = [each for each in looks.values() if each.keys() == nodes]
    if len(nodes) < 2 or not whole:
        return searches
    logs = np.log([[each[node] for node in sorted(nodes)] for each in whole])
    speeds = (logs - np.median(logs, axis=1, keepdims=True)).mean(axis=0)
    by_node = dict(zip(sorted(nodes), map(float, speeds), strict=True))
    return {setting: replace(search, speeds=by_node) for setting, search in searches.items()}


def contest_of(experiment: Experiment, searches: Mapping[Setting, Search]) -> CapacityContest:
    """Compares all settings that may hold at some rate. All intervals hold at once (Bonferroni): the error of one is
    (1 - confidence) / (settings - 1).

    The leader has the highest median among those with at least half as many answers as any other: the median of a
    setting that was tried once depends on where its first trial happened to lie."""
    known = [setting for setting, search in searches.items() if search.answers and search.first_look]
    judged = {s: judge(experiment, [], settings=len(searches), starts=each.starts) for s, each in searches.items()}
    barred = {setting: found.barred for setting, found in judged.items() if found.barred}
    in_play = [setting for setting in known if not searches[setting].nowhere and setting not in barred]
    objective = experiment.objective
    if not in_play:
        return CapacityContest(searches, None, objective.margin, objective.confidence, {}, barred)
    most = max(len(searches[setting].answers) for setting in in_play)
    eligible = [setting for setting in in_play if 2 * len(searches[setting].answers) >= most]
    leader = max(eligible, key=lambda setting: searches[setting].edge.quantile(0.5))
    error = (1 - objective.confidence) / max(1, len(searches) - 1)
    others = [setting for setting in in_play if setting != leader]
    gaps = {setting: gap_between(searches[setting], searches[leader], error) for setting in others}
    return CapacityContest(searches, leader, objective.margin, objective.confidence, gaps, barred)
