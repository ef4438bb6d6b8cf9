"""Claims as expressions over metrics by setting: text in, a small tree out, and the value of a side for given metrics.

    claim      = comparison { "and" comparison }
    comparison = sum ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum
    sum        = product { ( "+" | "-" ) product }
    product    = operand { ( "*" | "/" ) operand }
    operand    = number [ unit ] | metric [ "[" factor "=" level { "," factor "=" level } "]" ] | "(" sum ")"

All metrics of one claim name the same factors; the factors that they leave out run over all their levels, and the
claim must hold for each combination. Whether a claim holds is not here (`analyze/claims.py`): measured values are
uncertain, so that takes more than a comparison.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from powerband.errors import did_you_mean
from powerband.metrics import metric_named
from powerband.plan import Level, Setting, format_level, grid
from powerband.units import parse_bytes, parse_duration_ns, parse_rate, parse_share

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:%|/s|[a-zA-Zµ]+)?)|(?P<name>[A-Za-z_]\w*)"
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
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Reference:
    """A metric (its full name), at the settings that have these levels; levels are kept as written."""

    metric: str
    levels: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Arithmetic:
    op: str
    left: Term
    right: Term


Term = Number | Reference | Arithmetic


@dataclass(frozen=True)
class Comparison:
    """`text`: as written."""

    op: str
    left: Term
    right: Term
    text: str = field(default="", compare=False)

    @property
    def references(self) -> tuple[Reference, ...]:
        return tuple(reference for side in (self.left, self.right) for reference in _references(side))


@dataclass(frozen=True)
class Claimed:
    """A whole claim: all its comparisons must hold."""

    comparisons: tuple[Comparison, ...]

    @property
    def references(self) -> tuple[Reference, ...]:
        return tuple(reference for comparison in self.comparisons for reference in comparison.references)


def parse_claim(text: str) -> Claimed:
    """Raises ValueError, with the column within the text, for what is not in the grammar, and for unknown metrics."""
    if text.count("(") > 50:
        raise ValueError("more than 50 parentheses: write a simpler claim")
    parser = _Parser(text)
    comparisons = [parser.comparison()]
    while parser.take("and"):
        comparisons.append(parser.comparison())
    parser.end()
    claimed = Claimed(tuple(comparisons))
    if not claimed.references:
        raise ValueError("this compares numbers only; name a metric, for example error_rate[threads=8] == 0")
    named = {tuple(name for name, _ in reference.levels) for reference in claimed.references}
    if len({frozenset(names) for names in named}) > 1:
        raise ValueError("every metric of a claim must name the same factors; the others run over all their levels")
    return claimed


def check_levels(claimed: Claimed, factors: Mapping[str, Sequence[Level]]) -> None:
    """Raises ValueError where a claim names a factor or a level that the experiment does not have."""
    for reference in claimed.references:
        for name, level in reference.levels:
            if name not in factors:
                raise ValueError(f"there is no factor {name}; {did_you_mean(name, factors)}")
            levels = [format_level(known) for known in factors[name]]
            if level not in levels:
                raise ValueError(f"factor {name} has no level {level}; {did_you_mean(level, levels)}")


def settings_of(claimed: Claimed, factors: Mapping[str, tuple[Level, ...]]) -> list[dict[Reference, Setting]]:
    """One mapping from reference to setting for each combination of the factors that the claim leaves out."""
    bound = {name for reference in claimed.references for name, _ in reference.levels}
    free = {name: levels for name, levels in factors.items() if name not in bound}
    by_levels = {frozenset(_as_text(setting)): setting for setting in grid(factors)}
    return [
        {reference: by_levels[frozenset((*_as_text(rest), *reference.levels))] for reference in claimed.references}
        for rest in grid(free)
    ]


def _as_text(setting: Setting) -> list[tuple[str, str]]:
    return [(name, format_level(level)) for name, level in setting.levels]


def value(term: Term, value_of: Callable[[Reference], float]) -> float:
    """One side of a comparison with these metrics. ZeroDivisionError is the caller's to catch."""
    match term:
        case Number(number):
            return number
        case Reference():
            return value_of(term)
        case Arithmetic(op, left, right):
            return _ARITHMETIC[op](value(left, value_of), value(right, value_of))


def _references(term: Term) -> Iterator[Reference]:
    if isinstance(term, Reference):
        yield term
    elif isinstance(term, Arithmetic):
        yield from _references(term.left)
        yield from _references(term.right)


class _Parser:
    """Recursive descent over the tokens; one method a rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0

    def comparison(self) -> Comparison:
        start = self.column()
        left = self.chain("+-", self.product)
        op = self.next()
        if op not in OPERATORS:
            raise self.error("a comparison is wanted here: < <= > >= == !=", back=True)
        right = self.chain("+-", self.product)
        return Comparison(op, left, right, self.text[start - 1 : self.column() - 1].strip())

    def product(self) -> Term:
        return self.chain("*/", self.operand)

    def chain(self, ops: str, part: Callable[[], Term]) -> Term:
        term = part()
        while self.peek() and self.peek() in ops:
            op = self.next()
            term = Arithmetic(op, term, part())
        return term

    def operand(self) -> Term:
        token = self.next()
        if token == "(":
            term = self.chain("+-", self.product)
            if not self.take(")"):
                raise self.error("a closing parenthesis is missing")
            return term
        if token[:1].isdigit():
            return Number(_number(token))
        if not re.match(r"[A-Za-z_]", token):
            raise self.error("a number or a metric is wanted here", back=True)
        levels = _levels(self.next()) if self.peek().startswith("[") else ()
        return Reference(metric_named(token).name, levels)

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def take(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def end(self) -> None:
        if self.peek():
            raise self.error(f"{self.peek()} is not expected here")

    def error(self, what: str, *, back: bool = False) -> ValueError:
        return ValueError(f"at character {self.column(self.at - back)} of `{self.text}`: {what}")

    def column(self, at: int | None = None) -> int:
        """Where a token begins, from 1; the end of the text after the last. None: the next one."""
        at = self.at if at is None else at
        return self.tokens[at][1] if at < len(self.tokens) else len(self.text) + 1


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Each token with its column from 1."""
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
            raise ValueError(f"at character {column} of `{text}`: {text[column - 1]!r} has no meaning in a claim")
        yield match[match.lastgroup or 0], match.start(match.lastgroup or 0) + 1
        at = match.end()


def _number(text: str) -> float:
    """A number in the unit that metrics have: times in ns, sizes in bytes, shares as ratios, rates per second."""
    if text.endswith("%"):
        return float(parse_share(text))
    if text.endswith("/s"):
        return float(parse_rate(text))
    if text.endswith("B"):
        return float(parse_bytes(text))
    return float(text) if re.fullmatch(r"[\d.]+", text) else float(parse_duration_ns(text))


def _levels(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in text[1:-1].split(","):
        name, equals, level = part.partition("=")
        if not equals or not name.strip() or not level.strip():
            raise ValueError(f"`{text}` must name factors and levels, for example [threads=8,queue=100]")
        pairs.append((name.strip(), level.strip()))
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError(f"`{text}` names a factor twice")
    return tuple(pairs)
