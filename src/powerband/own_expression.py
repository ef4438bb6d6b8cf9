"""A subject's own metrics as expressions over the series of its Prometheus page: text in, a small tree out.

    metric   = function "(" sum ")"
    function = "mean" | "max" | "min" | "last" | "rate" | "increase"
    sum      = product { ( "+" | "-" ) product }
    product  = operand { ( "*" | "/" ) operand }
    operand  = number | series | "(" sum ")"
    series   = name [ "{" label "=" "\"" value "\"" { "," ... } "}" ]

`mean`, `max`, `min` and `last` are of the values that the expression has at each scrape of the measured window.
`increase` puts into it by how much each counter grew over the window, and `rate` divides that by the window's seconds.
A series stands for the sum of all whose labels include the ones named. Reading the scrapes is not here
(`analyze/own_metrics.py`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from powerband.errors import did_you_mean

GAUGES = ("mean", "max", "min", "last")
COUNTERS = ("rate", "increase")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_:][\w:]*)|(?P<op>[-+*/()])"
    r'|(?P<labels>\{(?:[^}"]|"(?:[^"\\]|\\.)*")*\}))'
)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True)
class Series:
    """All series of this name whose labels include these."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Arithmetic:
    op: str
    left: Term
    right: Term


Term = float | Series | Arithmetic


@dataclass(frozen=True)
class OwnExpression:
    function: str
    term: Term

    @property
    def series(self) -> frozenset[Series]:
        return frozenset(_series(self.term))


def parse_own(text: str) -> OwnExpression:
    """Raises ValueError, with the column within the text, for what is not in the grammar."""
    parser = _Parser(text)
    function = parser.next()
    if function not in GAUGES + COUNTERS:
        if re.match(r"[A-Za-z_]", function) and parser.peek() == "(":
            hint = did_you_mean(function, GAUGES + COUNTERS)
            raise ValueError(f"there is no function {function}; {hint}")
        raise ValueError(
            f"`{text}` does not say what is made of its values over the window: write for example mean({text}) for a "
            "gauge, rate(...) for a counter"
        )
    if not parser.take("("):
        raise parser.error("an opening parenthesis is wanted here")
    term = parser.chain("+-", parser.product)
    if not parser.take(")"):
        raise parser.error("a closing parenthesis is missing")
    parser.end()
    expression = OwnExpression(function, term)
    if not expression.series:
        raise ValueError(f"`{text}` names no series of the metrics page")
    return expression


def value(term: Term, value_of: Callable[[Series], float]) -> float:
    """With a value for each series. ZeroDivisionError is the caller's to catch."""
    match term:
        case Series():
            return value_of(term)
        case Arithmetic(op, left, right):
            return _ARITHMETIC[op](value(left, value_of), value(right, value_of))
    return term


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """`a="x",b="y"` by name. Raises ValueError."""
    labels: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        match = _LABEL.match(text, at)
        if match is None or match[1] in labels:
            raise ValueError(f'`{{{text}}}` must name each label once, as {{uri="/test",method="GET"}}')
        labels[match[1]] = re.sub(r"\\(.)", lambda escaped: {"n": "\n"}.get(escaped[1], escaped[1]), match[2])
        at = match.end()
    return tuple(sorted(labels.items()))


def _series(term: Term) -> Iterator[Series]:
    if isinstance(term, Series):
        yield term
    elif isinstance(term, Arithmetic):
        yield from _series(term.left)
        yield from _series(term.right)


class _Parser:
    """Recursive descent; one method a rule of the grammar."""

    def __init__(self, text: str) -> None:
        if text.count("(") > 50:
            raise ValueError("more than 50 parentheses: write a simpler expression")
        self.text = text
        self.tokens = list(_tokens(text))
        self.at = 0

    def chain(self, ops: str, part: Callable[[], Term]) -> Term:
        term = part()
        while self.peek() and self.peek() in ops:
            op = self.next()
            term = Arithmetic(op, term, part())
        return term

    def product(self) -> Term:
        return self.chain("*/", self.operand)

    def operand(self) -> Term:
        token = self.next()
        if token == "(":
            term = self.chain("+-", self.product)
            if not self.take(")"):
                raise self.error("a closing parenthesis is missing")
            return term
        if token[:1].isdigit():
            return float(token)
        if not re.match(r"[A-Za-z_:]", token):
            self.at -= 1
            raise self.error("a number or a series of the metrics page is wanted here")
        labels = parse_labels(self.next()[1:-1]) if self.peek().startswith("{") else ()
        return Series(token, labels)

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

    def error(self, what: str) -> ValueError:
        column = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text) + 1
        return ValueError(f"at character {column} of `{self.text}`: {what}")


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
            raise ValueError(f"at character {column} of `{text}`: {text[column - 1]!r} has no meaning here")
        yield match[match.lastgroup or 0], match.start(match.lastgroup or 0) + 1
        at = match.end()
