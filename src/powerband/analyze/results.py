"""What analysis says, as values: trial results, estimates with intervals, verdicts, the answer.

`to_json` is the documented
shape of `analysis.json` and of `--format json`. No computing and no I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from powerband.plan import Setting

FORMAT = 1


class Verdict(StrEnum):
    """On a pair of settings, seen from the first: is it better, worse, the same within the margin, or not yet known?"""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class AnswerKind(StrEnum):
    BEST = "best"  # one setting beats all others
    EQUIVALENT_SET = "equivalent_set"  # several serve equally well within the margin; the cheapest is named
    NOT_ENOUGH_DATA = "not_enough_data"  # intervals too wide to say; the candidates are named
    NONE_FEASIBLE = "none_feasible"  # no setting meets the constraints
    NONE_VALID = "none_valid"  # no trial could be measured


class ClaimVerdict(StrEnum):
    HELD = "held"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; low and high are None where fewer than two trials back it."""

    value: float
    low: float | None
    high: float | None
    confidence: float
    n: int


@dataclass(frozen=True)
class Problem:
    """Why a trial is invalid (`fatal`), or what a reader should know about it."""

    code: str
    message: str
    fatal: bool = True


@dataclass(frozen=True)
class TrialResult:
    """One trial measured. `metrics` holds names of `powerband.metrics`; it is empty where the trial failed."""

    number: int
    block: int
    attempt: int
    setting: Setting
    status: str  # measured | failed | interrupted
    problems: tuple[Problem, ...]
    metrics: Mapping[str, float]
    warmup_s: float | None = None
    warmup_ended_by: str | None = None

    @property
    def valid(self) -> bool:
        return self.status == "measured" and not any(problem.fatal for problem in self.problems)


@dataclass(frozen=True)
class SettingResult:
    """One setting over its valid trials. `effect` is the ratio objective(this) / objective(leader) with its
    simultaneous interval, None where the leader's is 0; verdict is seen from this setting towards the leader (the
    leader itself: equivalent). `feasible`: it has data and breaks no constraint for certain. `invalid`: trials that
    failed or do not count; interrupted ones are none of them."""

    setting: Setting
    trials: int
    invalid: int
    estimates: Mapping[str, Estimate]
    effect: Estimate | None
    verdict: Verdict
    feasible: bool
    infeasible_because: tuple[str, ...] = ()
    uncertain_because: tuple[str, ...] = ()  # constraints that the setting may meet or break


@dataclass(frozen=True)
class Answer:
    kind: AnswerKind
    setting: Setting | None  # what to use: the best, or the cheapest of the equivalent best
    leader: Setting | None  # highest point estimate
    equivalent: tuple[Setting, ...]  # all that serve as well within the margin, the answer included
    undecided: tuple[Setting, ...]  # settings that could still be better: more trials would tell
    sentences: tuple[str, ...]  # the answer in words: the setting; how sure; why and at what cost


@dataclass(frozen=True)
class ClaimPart:
    """One comparison of a claim, at one combination of the factors that the claim leaves out.

    `left` and `right` are means over blocks in `unit` (of `powerband.metrics`, empty for a plain number); None where
    they cannot be had. `interval` is what the verdict rests on: left / right where `scale` is `ratio`, left - right
    where it is `difference`; None where zeros were counted (`scale` is `count`) or nothing could be said."""

    comparison: str
    where: str  # `queue=100`; empty where the claim names a level of every factor
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
    """One claim of the experiment: held where all its parts are, refuted where any is."""

    id: str
    says: str
    holds: str  # the expression
    published: str | None
    verdict: ClaimVerdict
    sentence: str
    parts: tuple[ClaimPart, ...]


@dataclass(frozen=True)
class Analysis:
    name: str
    question: str
    objective: str  # metric name
    direction: str  # maximise | minimise
    constraints: tuple[str, ...]
    confidence: float
    margin: float
    answer: Answer
    settings: tuple[SettingResult, ...]  # in plan order
    trials: tuple[TrialResult, ...]
    warnings: tuple[str, ...] = field(default=())
    claims: tuple[ClaimResult, ...] = field(default=())  # in the experiment's order

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only; settings appear as {factor: level} with their id beside."""
        data: dict[str, Any] = _plain(asdict(self))
        return {"format": FORMAT, **data}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"levels"}:
            setting = Setting(tuple((name, level) for name, level in value["levels"]))
            return {"id": setting.id, "levels": setting.as_dict()}
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
