"""The arithmetic that expressions of claims and of own metrics share. In: text. Out: a small tree, and its value.

  sum     = product { ( "+" | "-" ) product }
  product = operand { ( "*" | "/" ) operand }
  operand = number | leaf | "(" sum ")"

Each language defines its numbers and leaves in a subclass of `Parser`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, Union

ROUNDING = 4e-15  # of two numbers: nearer ones differ by the rounding of a few operations on floats
PARENTHESES_MAX = 50  # arbitrary: each is a few calls deep, and Python allows a thousand


def _less(left: float, right: float) -> float:
    """The left number less the right one; 0 if they differ by no more than the rounding of floats."""
    equal = math.isfinite(left) and math.isclose(left, right, rel_tol=ROUNDING)
    return 0.0 if equal else left - right


_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": _less,
    "*": operator.mul,
    "/": operator.truediv,
}
Leaf = TypeVar("Leaf")


@dataclass(frozen=True)
class Number:
    """A number of an expression. `value`: in the unit that the subclass of `Parser` gives it."""

    value: float


@dataclass(frozen=True)
class Arithmetic(Generic[Leaf]):
    """A sum, difference, product or quotient: `left` `op` `right`, where `op` is one of `+`, `-`, `*` and `/`."""

    op: str
    left: Term[Leaf]
    right: Term[Leaf]


Term = Union[Number, Arithmetic[Leaf], Leaf]  # noqa: UP007  # `|` takes no type variable at run time


def value(term: Term[Leaf], value_of: Callable[[Leaf], float]) -> float:
    """The value of a term; `value_of` returns the value of each leaf. The caller must handle ZeroDivisionError."""
    if isinstance(term, Number):
        return term.value
    if isinstance(term, Arithmetic):
        return _OPERATIONS[term.op](value(term.left, value_of), value(term.right, value_of))
    return value_of(term)


def leaves(term: Term[Leaf]) -> Iterator[Leaf]:
    """The leaves from left to right, with repetitions."""
    if isinstance(term, Arithmetic):
        yield from leaves(term.left)
        yield from leaves(term.right)
    elif not isinstance(term, Number):
        yield term


class Parser(Generic[Leaf]):
    """A recursive-descent parser over the tokens, with one method for each rule of the grammar. Every error is a
    ValueError with the column within the text."""

    token: ClassVar[re.Pattern[str]]
    """Matches one token, in one named group, and the space before it."""
    name_start: ClassVar[str] = "A-Za-z_"
    """The characters that a leaf may begin with, as a character class."""
    kind: ClassVar[str]
    """The word for the text in messages, after `a simpler`."""
    place: ClassVar[str]
    """The words for the place in which an unknown character has no meaning, in messages."""
    operand_words: ClassVar[str]
    """The words for a valid operand, in messages."""

    def __init__(self, text: str) -> None:
        if text.count("(") > PARENTHESES_MAX:
            raise ValueError(f"more than {PARENTHESES_MAX} parentheses: write a simpler {self.kind}")
        self.text = text
        self.tokens = list(self._split())
        self.at = 0

    def number(self, token: str) -> Number:
        """The number that a token, which begins with a digit, stands for."""
        return Number(float(token))

    def leaf(self, name: str) -> Leaf:
        """Parses the leaf that begins with this name; the name itself has been taken."""
        raise NotImplementedError

    def sum(self) -> Term[Leaf]:
        """Parses the longest sum that begins with the next token."""
        return self._chain("+-", self._product)

    def peek(self) -> str:
        """The next token, without taking it; empty at the end of the text."""
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        """Takes the next token and returns it; empty at the end of the text."""
        token = self.peek()
        self.at += 1
        return token

    def take(self, token: str) -> bool:
        """Takes the next token if it is this one; returns whether it was."""
        found = self.peek() == token
        self.at += found
        return found

    def close(self) -> None:
        """Takes a closing parenthesis. Raises ValueError if the next token is another."""
        if not self.take(")"):
            raise self.error("a closing parenthesis is missing")

    def end(self) -> None:
        """Raises ValueError if a token is left."""
        if self.peek():
            raise self.error(f"{self.peek()} is not expected here")

    def error(self, what: str, *, back: bool = False) -> ValueError:
        """The error for the next token, or with `back` for the token that was taken last."""
        return ValueError(f"at character {self.column(self.at - back)} of `{self.text}`: {what}")

    def column(self, at: int | None = None) -> int:
        """The column of token number `at`, from 1; None: the next token. Past the last token, the end of the text."""
        at = self.at if at is None else at
        return self.tokens[at][1] if at < len(self.tokens) else len(self.text) + 1

    def _product(self) -> Term[Leaf]:
        return self._chain("*/", self._operand)

    def _chain(self, ops: str, part: Callable[[], Term[Leaf]]) -> Term[Leaf]:
        term = part()
        while self.peek() and self.peek() in ops:
            op = self.next()
            term = Arithmetic(op, term, part())
        return term

    def _operand(self) -> Term[Leaf]:
        token = self.next()
        if token == "(":
            term = self.sum()
            self.close()
            return term
        if token[:1].isdigit():
            return self.number(token)
        if not re.match(f"[{self.name_start}]", token):
            raise self.error(f"{self.operand_words} is wanted here", back=True)
        return self.leaf(token)

    def _split(self) -> Iterator[tuple[str, int]]:
        """Each token with its column from 1."""
        at = 0
        text = self.text.rstrip()
        while at < len(text):
            match = self.token.match(text, at)
            if match is None:
                column = at + len(text[at:]) - len(text[at:].lstrip()) + 1
                unknown = text[column - 1]
                raise ValueError(f"at character {column} of `{text}`: {unknown!r} has no meaning {self.place}")
            yield match[match.lastgroup or 0], match.start(match.lastgroup or 0) + 1
            at = match.end()
