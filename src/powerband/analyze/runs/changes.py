"""The result of a comparison, as values: two runs, or two revisions of a server, setting by setting.

Both ways of comparing end here: `unpaired.py` (two runs, unpaired), `revisions.py` (one run, paired within blocks). It
has the verdict on the whole and the sentence that states it; no statistics, no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from powerband.analyze.runs.sessions import SAME_SESSION, SessionSpread
from powerband.analyze.trial.faults import in_one_line
from powerband.base.units import format_value, joined, signed_percent
from powerband.model.metrics import METRICS, margin_words, metric_words
from powerband.model.plan import Setting
from powerband.model.results import Analysis, Estimate, Verdict, plain

TWO_RUNS = ("the first run", "the second run")
_NAMED_MOST = 4  # arbitrary: what a sentence bears; the table has all


@dataclass(frozen=True)
class Change:
    """One `setting` in both. `first` and `second` are None if no trial counts, or if a capacity has no figure.
    `ratio`: second / first; None if there is none, as from 0. `verdict`: how the second compares with the first.
    `because`: the reason for the verdict where it is not the interval, or the reason why there is none.

    `smallest_difference`: half the width of the interval; a smaller difference would most likely stay inconclusive. It
    is relative to the first, for shares in the share's own unit; None if there is no interval. `by_ranges`: True if
    two capacities are compared by the ranges in which they lie, since one has no figure, or only a lower bound."""

    setting: Setting
    first: Estimate | None
    second: Estimate | None
    ratio: Estimate | None
    verdict: Verdict
    smallest_difference: float | None = None
    because: str = ""
    by_ranges: bool = False

    @property
    def comparable(self) -> bool:
        """True if the setting was measured in both."""
        return self.by_ranges or (self.first is not None and self.second is not None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only; all fields but `by_ranges`."""
        return {name: value for name, value in plain(asdict(self)).items() if name != "by_ranges"}


@dataclass(frozen=True)
class RunComparison:
    """The comparison of the first and the second. `objective`: the metric that is compared; `direction`: `maximise` or
    `minimise` it; `confidence` of all intervals together; `margin`: smaller differences count as none. `changes`: in
    the first's order. `only_first`, `only_second`: settings that cannot be compared. `names`: what the first and the
    second are called. `paired`: True if both were measured in the same blocks, so that drift cancels. `warnings`:
    reasons to trust the comparison less, one sentence each. `further`: sentences that follow the verdict."""

    objective: str
    direction: str
    confidence: float
    margin: float
    changes: tuple[Change, ...]
    only_first: tuple[Setting, ...] = ()
    only_second: tuple[Setting, ...] = ()
    names: tuple[str, str] = TWO_RUNS
    paired: bool = False
    warnings: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    sessions: SessionSpread = SAME_SESSION
    """The amount by which sessions may differ; each interval allows for it."""

    @classmethod
    def of(cls, first: Analysis, changes: Iterable[Change], **other: Any) -> RunComparison:
        """Makes a comparison with the objective, confidence and margin of `first`; `other`: further fields."""
        return cls(first.objective, first.direction, first.confidence, first.margin, tuple(changes), **other)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the second as a whole: worse if any setting is, else inconclusive if any is, else better if
        any is, else equivalent."""
        verdicts = [change.verdict for change in self.changes]
        for verdict in (Verdict.WORSE, Verdict.INCONCLUSIVE, Verdict.BETTER):
            if verdict in verdicts:
                return verdict
        return Verdict.EQUIVALENT if verdicts else Verdict.INCONCLUSIVE

    @property
    def comparable(self) -> bool:
        """True if any setting was measured in both."""
        return any(change.comparable for change in self.changes)

    @property
    def decides(self) -> bool:
        """True if there is a verdict, if only because one of the two could not be measured by its own fault."""
        return self.comparable or self.verdict is not Verdict.INCONCLUSIVE

    @property
    def sentence(self) -> str:
        """The verdict in words, with the settings that decide it; a long list of them is cut."""
        first, second = self.names
        if not self.decides:
            reasons = {in_one_line(change.because).removesuffix(".") for change in self.changes if change.because}
            alike = reasons.pop() if len(reasons) == 1 else f"no setting was measured in both {first} and {second}"
            return f"Nothing can be compared: {alike}."
        verdict = self.verdict
        mine = [change for change in self.changes if change.verdict is verdict]
        where = "" if len(self.changes) == 1 else f" in {len(mine)} of {len(self.changes)} settings"
        match verdict:
            case Verdict.EQUIVALENT:
                within = margin_words(self.margin, self.objective)
                return (
                    f"{second} is equivalent to {first} (the difference is under {within}){where}{self._listed(mine)}."
                )
            case Verdict.INCONCLUSIVE:
                told = f"It is not certain whether {second} differs from {first}{where}{self._listed(mine)}."
                if all(change.because for change in mine):
                    return told  # the reason is not the width of an interval
                same = self.sessions is SAME_SESSION
                return f"{told} {'More rounds or longer trials' if same else 'Measuring both in one run'} would decide."
        return f"{second} is {verdict.value} than {first}{where}{self._listed(mine)}."

    def change_words(self, change: Change) -> str:
        """The change of one setting in a clause, and the reason for its verdict; empty if nothing is known."""
        return "; ".join(filter(None, (self._figures(change), change.because)))

    def _figures(self, change: Change) -> str:
        """The change of one setting in figures; empty if there are none, if the verdict does not rest on them, or if a
        lower bound leaves them without an interval."""
        ratio = change.ratio
        metric = metric_words(self.objective)
        if ratio is None or (change.because and change.verdict is not Verdict.INCONCLUSIVE):
            return ""
        base = self.base_of(change)
        unit = "percentage points" if self.shares else "%"
        if ratio.low is None or ratio.high is None:
            if any(each is not None and each.at_least for each in (change.first, change.second)):
                return ""
            return f"{metric} {signed_percent(ratio.value, base)} {unit}, from too few trials for an interval"
        ends = (ratio.value, ratio.low, ratio.high)
        value, low, high = (signed_percent(end, base, self.places_of(change)) for end in ends)
        return f"{metric} {value} {unit}" + (f" ({low} to {high} {unit})" if low != high else "")

    def base_of(self, change: Change) -> float:
        """The factor that turns a relative change into the one that is shown: the first figure for shares, else 1."""
        return 1.0 if not self.shares or change.first is None else change.first.value

    def places_of(self, change: Change) -> int:
        """The digits after the point with which a change is shown, in percent or percentage points: two for one whose
        interval is narrow."""
        ratio = change.ratio
        if ratio is None or ratio.low is None or ratio.high is None:
            return 1
        return 1 if (ratio.high - ratio.low) * self.base_of(change) > 0.002 else 2

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only; the shape of `powerband compare --format json`."""
        return {
            "format": 1,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "further": list(self.further),
            "paired": self.paired,
            "objective": self.objective,
            "direction": self.direction,
            "confidence": self.confidence,
            "margin": self.margin,
            "settings": [change.to_json() for change in self.changes],
            "only_first": [plain(asdict(setting)) for setting in self.only_first],
            "only_second": [plain(asdict(setting)) for setting in self.only_second],
            "warnings": list(self.warnings),
            "sessions": {"sd": self.sessions.sd, "runs": self.sessions.runs},
        }

    @property
    def shares(self) -> bool:
        """True if the objective is a share: differences and margin are then percentage points."""
        return METRICS[self.objective].unit == "ratio"

    def _listed(self, changes: Sequence[Change]) -> str:
        """Single settings for the end of the sentence, after a colon; a long list is cut."""
        parts = []
        alone = len(self.changes) == 1
        for change in changes[:_NAMED_MOST]:
            words = self.change_words(change) if alone else self._figures(change)  # reasons of many: see each
            parts.append(", ".join(part for part in ("" if alone else change.setting.id, words) if part))
        if len(changes) > _NAMED_MOST:
            parts.append(f"{len(changes) - _NAMED_MOST} more")
        text = "; ".join(part for part in parts if part)
        return f": {text.removesuffix('.')}" if text else ""


def by_bound(change: Change, bounded: int, verdict: Verdict, metric: str, not_measured: str) -> Change:
    """The change where the side `bounded` (0: the first) has only a lower bound of a metric that is to be least: it
    can be shown worse, and nothing else. `verdict`: by the bound. `not_measured`: says that it was not measured, and
    why."""
    first, second = (
        None if each is None else replace(each, at_least=each.at_least or index == bounded)
        for index, each in enumerate((change.first, change.second))
    )
    found = Change(change.setting, first, second, None, Verdict.INCONCLUSIVE, because=not_measured)
    if first is None or second is None or verdict is not (Verdict.WORSE if bounded else Verdict.BETTER):
        return found
    unit = METRICS[metric].unit
    before, after = ((" at least" * each.at_least, format_value(each.value, unit)) for each in (first, second))
    because = f"{metric_words(metric)}{after[0]} {after[1]} instead of{before[0]} {before[1]}"
    return replace(found, verdict=verdict, because=because)


def with_ends(change: Change, endless: Sequence[bool], names: Sequence[str], metric: str) -> Change:
    """The change without a verdict, or figures, that rest on a lower bound: a percentile of response times has no end
    where too many requests got no right answer. `endless`: of the first and the second."""
    shown = Verdict.WORSE if endless[1] else Verdict.BETTER
    if not any(endless):
        return change
    if not all(endless) and change.verdict is shown:
        ratio = change.ratio and replace(change.ratio, low=None, high=None)
        return replace(by_bound(change, endless.index(True), shown, metric, ""), ratio=ratio)
    where = joined([name for name, end in zip(names, endless, strict=True) if end])
    because = f"{metric_words(metric)} is only a lower bound in {where}: too many requests got no correct response"
    return replace(change, verdict=Verdict.INCONCLUSIVE, because=because)


def smallest_difference(ratio: Estimate | None, first: Estimate | None, objective: str, *, log: bool) -> float | None:
    """Half the width of an interval, on the scale on which it is symmetric; see `Change`."""
    if ratio is None or ratio.low is None or ratio.high is None or first is None:
        return None
    if log:
        return math.sqrt(ratio.high) / math.sqrt(ratio.low) - 1
    base = abs(first.value) if METRICS[objective].unit == "ratio" else 1.0
    return (ratio.high - ratio.low) / 2 * base
