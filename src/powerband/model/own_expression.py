"""Parses a server's own metrics, which are expressions over the series of its Prometheus page. In: text. Out: a small
tree.

  metric   = function "(" sum ")"
  function = "mean" | "max" | "min" | "last" | "rate" | "increase" | "final"
  leaf     = name [ "{" label "=" "\"" value "\"" { "," ... } "}" ]

`arithmetic.py` defines `sum`. A leaf is a series: the sum of all series of that name whose labels include the named
ones. `mean`, `max`, `min` and `last` use the expression's values at each scrape of the measured window. `increase` uses
the growth of each counter over the window, and `rate` divides that by the window's seconds. `final` uses the log line
that `subject.last_words` matches: then a leaf is a name in that line, without labels. `analyze/trial/own_metrics.py`
reads the scrapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from powerband.base.arithmetic import Parser, leaves
from powerband.base.arithmetic import Term as AnyTerm
from powerband.base.errors import did_you_mean

GAUGES = ("mean", "max", "min", "last")
COUNTERS = ("rate", "increase")
FINAL = "final"
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_:][\w:]*)|(?P<op>[-+*/()])"
    r'|(?P<labels>\{(?:[^}"]|"(?:[^"\\]|\\.)*")*\}))'
)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')


@dataclass(frozen=True)
class Series:
    """The sum of all series of this `name` whose labels include `labels`, which are pairs of name and value."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()

    def covers(self, field: str) -> bool:
        """True if a series of the page, `field` (`name{a="x"}`), is part of this sum."""
        name, _, labels = field.partition("{")
        return name == self.name and set(self.labels) <= labels_of(labels)

    def __str__(self) -> str:
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels)
        return f"{self.name}{{{labels}}}" if labels else self.name


Term = AnyTerm[Series]


@dataclass(frozen=True)
class OwnExpression:
    """Says how the values of `term` over the measured window become one. `function`: one of `GAUGES` or `COUNTERS`, or
    `FINAL` for the figure of a log line."""

    function: str
    term: Term

    @property
    def series(self) -> frozenset[Series]:
        """Every series that the expression uses; of a log line, its names."""
        return frozenset(leaves(self.term))

    @property
    def is_final(self) -> bool:
        """True if the expression uses the log line that `subject.last_words` matches, not the metrics page."""
        return self.function == FINAL


def parse_own(text: str) -> OwnExpression:
    """Parses an expression. Raises ValueError, with the column within the text, for text outside the grammar."""
    parser = _SeriesParser(text)
    function = parser.next()
    known = (*GAUGES, *COUNTERS, FINAL)
    if function not in known:
        if re.match(r"[A-Za-z_]", function) and parser.peek() == "(":
            hint = did_you_mean(function, known)
            raise ValueError(f"there is no function {function}; {hint}")
        raise ValueError(
            f"`{text}` does not say what is made of its values over the window: write for example mean({text}) for a "
            "gauge, rate(...) for a counter"
        )
    if not parser.take("("):
        raise parser.error("an opening parenthesis is wanted here")
    term = parser.sum()
    parser.close()
    parser.end()
    expression = OwnExpression(function, term)
    if not expression.series:
        raise ValueError(f"`{text}` names no series of the metrics page")
    if expression.is_final and any(series.labels for series in expression.series):
        raise ValueError(f"`{text}`: a figure of the last log lines has a name only, no labels")
    return expression


def parse_series(text: str) -> Series:
    """Parses `messages_total` or `messages_total{actor="a"}`. Raises ValueError."""
    parser = _SeriesParser(text)
    name = parser.next()
    if not re.match(f"[{_SeriesParser.name_start}]", name):
        raise ValueError(f"`{text}` is no series: write its name, as messages_total, or with labels")
    series = parser.leaf(name)
    parser.end()
    return series


def labels_of(text: str) -> frozenset[tuple[str, str]]:
    """The labels in the text after the opening brace of a series on a page; empty if the text is damaged."""
    try:
        return frozenset(parse_labels(text.removesuffix("}")))
    except ValueError:
        return frozenset()


def parse_labels(text: str) -> tuple[tuple[str, str], ...]:
    """The labels of `a="x",b="y"`, sorted by name. Raises ValueError."""
    labels: dict[str, str] = {}
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None or match[1] in labels:
            raise ValueError(f'`{{{text}}}` must name each label once, as {{uri="/test",method="GET"}}')
        labels[match[1]] = re.sub(r"\\(.)", lambda escaped: {"n": "\n"}.get(escaped[1], escaped[1]), match[2])
        at = match.end()
    return tuple(sorted(labels.items()))


class _SeriesParser(Parser[Series]):
    token = _TOKEN
    name_start = "A-Za-z_:"
    kind = "expression"
    place = "here"
    operand_words = "a number or a series of the metrics page"

    def leaf(self, name: str) -> Series:
        labels = parse_labels(self.next()[1:-1]) if self.peek().startswith("{") else ()
        return Series(name, labels)
