"""Parses claims, which are expressions over metrics by setting. In: text. Out: a small tree.

  claim      = comparison { "and" comparison }
  comparison = sum ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum
  number     = digits [ unit ]
  leaf       = metric [ "[" factor "=" level { "," factor "=" level } "]" ]

`arithmetic.py` defines `sum`. A number that is compared with a metric, or added to one, has its unit, as in a
condition; one that multiplies or divides has none, or is a percentage. All metrics of one claim name the same factors;
the factors that they leave out run over all their levels, and the claim must hold for each combination.
`analyze/settings/claims.py` decides if a claim holds, which takes more than a comparison, since measured values are
uncertain.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from powerband.base.arithmetic import Arithmetic, Number, Parser, leaves
from powerband.base.arithmetic import Term as AnyTerm
from powerband.base.errors import did_you_mean
from powerband.base.units import parse_bytes, parse_duration_ns, parse_quantity, parse_rate, parse_share
from powerband.model.metrics import METRICS, metric_named
from powerband.model.plan import Level, Setting, format_level

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:%|/(?:s|min|m|h)(?!\w)|[a-zA-Zµ]+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op><=|>=|==|!=|<|>|[-+*/()])|(?P<filter>\[[^\]]*\]))"
)
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}  # the same comparison with its sides exchanged


@dataclass(frozen=True)
class Reference:
    """A leaf of a claim: the `metric` of this full name, at the settings that have these `levels` (factor and level, as
    written)."""

    metric: str
    levels: tuple[tuple[str, str], ...]


Term = AnyTerm[Reference]


@dataclass(frozen=True)
class ClaimComparison:
    """One comparison of a claim: `left` `op` `right`. `op`: a key of `OPERATORS`; numbers in the sides are already in
    the unit that they are compared with; `text`: as written."""

    op: str
    left: Term
    right: Term
    text: str = field(default="", compare=False)

    @property
    def references(self) -> tuple[Reference, ...]:
        """Every metric that the comparison names, from left to right."""
        return tuple(reference for side in (self.left, self.right) for reference in leaves(side))


@dataclass(frozen=True)
class Claimed:
    """A whole claim: all its `comparisons` must hold."""

    comparisons: tuple[ClaimComparison, ...]

    @property
    def references(self) -> tuple[Reference, ...]:
        """Every metric that the claim names, from left to right."""
        return tuple(reference for comparison in self.comparisons for reference in comparison.references)


def unit_of(term: Term) -> str | None:
    """The unit of a term; None for a number, which is in whatever unit it is compared with; empty if it has no
    metric's unit."""
    match term:
        case Reference(metric, _):
            return METRICS[metric].unit
        case Arithmetic("*" | "/" as op, left, Number(1e3 | 1e6 | 1e9 as scale)) if unit_of(left) in ("s", "ns"):
            # All else is in milliseconds or microseconds.
            return {("ns", "/", 1e9): "s", ("s", "*", 1e9): "ns"}.get((unit_of(left) or "", op, scale), "")
        case Arithmetic(op, left, right):
            first, second = unit_of(left), unit_of(right)
            if op in "+-" or second is None or (first is None and op == "*"):
                return first or second
            return first if first and second == "count" else ""
    return None


def parse_claim(text: str, *, strict: bool = False) -> Claimed:
    """Parses a claim. Raises ValueError for text outside the grammar, with the column within it, and for unknown
    metrics; if `strict`, also for wrong, missing and two different units, which claims of older runs have, and for a
    share that is compared with a number beyond all of it, which is meant in percent."""
    parser = _ClaimParser(text)
    parser.number_of = _number if strict else _number_of_any_unit
    comparisons = [parser.comparison()]
    while parser.take("and"):
        comparisons.append(parser.comparison())
    parser.end()
    claimed = Claimed(tuple(comparisons))
    for each in comparisons if strict else ():
        _refuse_certain(each)
        _refuse_two_units(each)
    if not claimed.references:
        raise ValueError("this compares numbers only; name a metric, for example error_rate[threads=8] == 0")
    named = {tuple(name for name, _ in reference.levels) for reference in claimed.references}
    if len({frozenset(names) for names in named}) > 1:
        raise ValueError("every metric of a claim must name the same parameters; the others run over all their values")
    return claimed


def certain(metric: str, op: str, limit: float) -> str | None:
    """`always` or `never` if that is how often a share is `op` this `limit`, whatever was measured, since 1 is all of
    it; else None. `metric`: its full name."""
    if not METRICS[metric].of_whole or limit < 1:
        return None
    if op in ("<", "<="):
        return "always"
    return None if op == "!=" or OPERATORS[op](1.0, limit) else "never"


def _refuse_certain(comparison: ClaimComparison) -> None:
    match comparison.left, comparison.right:
        case Reference() as share, Number(limit):
            op = comparison.op
        case Number(limit), Reference() as share:
            op = _TURNED.get(comparison.op, comparison.op)
        case _:
            return
    holds = certain(share.metric, op, limit)
    if holds and "%" not in comparison.text:
        raise ValueError(f"`{comparison.text}` holds {holds}, since 1 is all: write {limit:g}%")


def _refuse_two_units(comparison: ClaimComparison) -> None:
    """Raises ValueError where seconds meet nanoseconds: the value of a metric is taken as it is."""
    if _are_s_and_ns(comparison.left, comparison.right) or _mixes(comparison.left) or _mixes(comparison.right):
        raise ValueError(
            f"`{comparison.text}` compares s with ns: write what is in ns / 1000000000, for example "
            "finish_s < mean / 1000000000"
        )


def _mixes(term: Term) -> bool:
    return isinstance(term, Arithmetic) and (
        (term.op != "*" and _are_s_and_ns(term.left, term.right)) or _mixes(term.left) or _mixes(term.right)
    )


def _are_s_and_ns(left: Term, right: Term) -> bool:
    return {unit_of(left), unit_of(right)} == {"s", "ns"}


def check_levels(claimed: Claimed, factors: Mapping[str, Sequence[Level]]) -> None:
    """Raises ValueError if a claim names a factor or a level that the experiment does not have."""
    for reference in claimed.references:
        for name, level in reference.levels:
            if name not in factors:
                raise ValueError(f"there is no parameter {name}; {did_you_mean(name, factors)}")
            levels = [format_level(known) for known in factors[name]]
            if level not in levels:
                raise ValueError(f"parameter {name} has no value {level}; {did_you_mean(level, levels)}")


Case = Mapping[Reference, Setting]
"""The setting of each metric that a claim names."""


def settings_of(claimed: Claimed, kept: Mapping[Setting, Setting]) -> dict[tuple[tuple[str, str], ...], Case]:
    """One case for each combination of the factors that the claim leaves out, by their levels as text, if all that the
    claim compares is then among the settings. `kept`: each of them, with the one that stands for it
    (`Experiment.kept`)."""
    bound = {name for reference in claimed.references for name, _ in reference.levels}
    by_levels = {frozenset(_as_text(setting)): stands for setting, stands in kept.items()}
    rests = dict.fromkeys(tuple(each for each in _as_text(of) if each[0] not in bound) for of in kept)
    wanted = {rest: {of: frozenset((*rest, *of.levels)) for of in claimed.references} for rest in rests}
    return {
        rest: {of: by_levels[levels] for of, levels in case.items()}
        for rest, case in wanted.items()
        if by_levels.keys() >= set(case.values())
    }


def parts_of(claimed: Claimed, kept: Mapping[Setting, Setting]) -> list[tuple[ClaimComparison, str, Case]]:
    """Every comparison of a claim in each of its cases, with the levels that the claim leaves out there, as
    `threads=8,queue=100`. Left out is what compares a setting with itself, since the server does not read the values
    that tell the two apart, and what would be judged twice. Empty if that leaves nothing of some comparison: then the
    claim cannot be judged as a whole. `kept`: as for `settings_of`."""
    found: dict[tuple[ClaimComparison, tuple[Setting, ...]], tuple[str, Case]] = {}
    for rest, case in settings_of(claimed, kept).items():
        where = ",".join(f"{name}={level}" for name, level in rest)
        for comparison in claimed.comparisons:
            settings = tuple(case[reference] for reference in comparison.references)
            several = len({frozenset(reference.levels) for reference in comparison.references}) > 1
            if not several or len(set(settings)) > 1:
                found.setdefault((comparison, settings), (where, case))
    if {comparison for comparison, _ in found} != set(claimed.comparisons):
        return []
    return [(comparison, where, case) for (comparison, _), (where, case) in found.items()]


def _as_text(setting: Setting) -> list[tuple[str, str]]:
    return [(name, format_level(level)) for name, level in setting.levels]


class _ClaimParser(Parser[Reference]):
    token = _TOKEN
    kind = "claim"
    place = "in a claim"
    operand_words = "a number or a metric"
    number_of: Callable[[str, str | None], float]

    def comparison(self) -> ClaimComparison:
        start = self.column()
        left = self.sum()
        op = self.next()
        if op not in OPERATORS:
            raise self.error("a comparison is wanted here: < <= > >= == !=", back=True)
        right = self.sum()
        text = self.text[start - 1 : self.column() - 1].strip()
        try:
            sides = self._converted(left, unit_of(right)), self._converted(right, unit_of(left))
        except ValueError as error:
            raise ValueError(f"in `{text}`: {error}") from None
        return ClaimComparison(op, *sides, text)

    def number(self, token: str) -> Number:
        return _Written(float(token) if token[-1].isdigit() else 0.0, token)

    def leaf(self, name: str) -> Reference:
        levels = _levels(self.next()) if self.peek().startswith("[") else ()
        return Reference(metric_named(name).name, levels)

    def _converted(self, term: Term, beside: str | None) -> Term:
        """The term with its numbers in the units of metrics. `beside`: the unit of what a number is compared with."""
        own = unit_of(term)
        unit = beside if own is None else own
        match term:
            case _Written(_, text):
                return Number(self.number_of(text, unit))
            case Arithmetic(op, left, right):
                unit = unit if op in "+-" else None
                return replace(term, left=self._converted(left, unit), right=self._converted(right, unit))
        return term


@dataclass(frozen=True)
class _Written(Number):
    """A number whose unit is not converted yet."""

    text: str


def _number(text: str, unit: str | None) -> float:
    if unit and text.strip("0."):
        return parse_quantity(text, unit)
    try:
        return float(parse_share(text))
    except ValueError:
        raise ValueError(f"{text} has a unit, but no metric that it is compared with or added to") from None


def _number_of_any_unit(text: str, unit: str | None) -> float:
    """A number as older versions read it if its unit is wrong or missing: a time in ns, a plain number as it is."""
    try:
        return _number(text, unit)
    except ValueError:
        if text.endswith("%"):
            return float(parse_share(text))
        if "/" in text:
            return float(parse_rate(text))
        if text.endswith("B"):
            return float(parse_bytes(text))
        return float(text) if text[-1].isdigit() else float(parse_duration_ns(text))


def _levels(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in text[1:-1].split(","):
        name, equals, level = part.partition("=")
        if not equals or not name.strip() or not level.strip():
            raise ValueError(f"`{text}` must name parameters and values, for example [threads=8,queue=100]")
        pairs.append((name.strip(), level.strip()))
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError(f"`{text}` names a parameter twice")
    return tuple(pairs)
