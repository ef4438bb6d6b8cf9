"""Converts the assertions of a request to the statuses and texts of a correct answer, as far as a step's check supports
them.

JMeter accepts 200 to 399 unless an assertion ignores the status; each assertion can only make the check stricter. A
pattern is never run on a body: it is converted if it is plain text. There are only 800 status codes, so each is tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from powerband.jmx.plan_findings import Findings, whole
from powerband.jmx.tree import Element
from powerband.jmx.values import Values

MATCH, CONTAINS, NOT, EQUALS, SUBSTRING, OR = 1, 2, 4, 8, 16, 32
_CODES = frozenset(range(200, 1000))
_RIGHT = frozenset(range(200, 400))
_REGISTERED = frozenset(status.value for status in HTTPStatus if status.value >= 200)
_LISTED_MAX = 20  # arbitrary: a check lists its statuses one by one; of a longer range none is meant
_CODE_PATTERN = re.compile(r"(?:[0-9.|()\[\]^$?*+-]|\\d){1,60}")
_SPECIAL = set(".^$*+?()[|\\")


@dataclass(frozen=True)
class AssertionCheck:
    """The check of a step. `statuses`: those that are accepted; empty: 200 to 399. `contains`: texts that must all
    occur in the body. `longest_ms`: for the whole answer; None: no limit."""

    statuses: tuple[int, ...] = ()
    contains: tuple[str, ...] = ()
    longest_ms: int | None = None


def check_of(assertions: Sequence[Element], values: Values, findings: Findings) -> AssertionCheck:
    """The check made of all assertions in scope of one request, the outermost first."""
    right = _RIGHT
    contains: dict[str, None] = {}
    longest_ms: int | None = None
    before: Element | None = None
    for assertion in assertions:
        if assertion.text_of("Assertion.scope") not in ("", "all", "parent"):
            findings.refuse(
                assertion,
                "it looks at a variable, or at the parts of an answer that a page embeds",
                "choose Main sample only, and the response itself",
            )
            continue
        if assertion.kind == "DurationAssertion":
            ms = findings.number(assertion, values, "DurationAssertion.duration", "the duration", kind=whole, default=0)
            longest_ms = min(filter(None, (longest_ms, ms)), default=None)
            continue
        if findings.flag(assertion, values, "Assertion.assume_success", "Ignore Status"):
            if before is not None:
                findings.refuse(
                    assertion,
                    f"it ignores the status and stands after {before.name!r}, whose verdict it would undo",
                    "put it before all other assertions of its requests",
                )
            right = _CODES
        before = assertion
        match assertion.text_of("Assertion.test_field"):
            case "Assertion.response_code":
                right &= _codes(assertion, values, findings)
            case "Assertion.response_data":
                contains |= dict.fromkeys(_texts(assertion, values, findings))
            case field:
                findings.refuse(
                    assertion,
                    f"it checks {field.removeprefix('Assertion.').replace('_', ' ') or 'the URL'}; a check knows "
                    "the status and texts in the body",
                    "check the Response Code or the Text Response, or leave it out by name",
                )
    if not right:
        findings.refuse(
            assertions[-1],
            "no status can make the answer right: JMeter counts 400 and above as wrong",
            "tick Ignore Status in the first assertion",
        )
    return AssertionCheck(_listed(right, assertions, findings), tuple(contains), longest_ms)


def _listed(right: frozenset[int], assertions: Sequence[Element], findings: Findings) -> tuple[int, ...]:
    if right in (_RIGHT, frozenset()):
        return ()
    if len(right) > _LISTED_MAX and right & _REGISTERED:
        findings.note(
            "Where an assertion allows more than 20 statuses, those are listed that HTTP has a name for.", assertions[0]
        )
        right &= _REGISTERED
    return tuple(sorted(right))


def _tests(assertion: Element, values: Values, findings: Findings) -> tuple[int, list[str]] | None:
    """The kind of test, and the texts to test for; None, with a refusal, if they cannot be known."""
    try:
        kind = whole(assertion.text_of("Assertion.test_type", str(CONTAINS)))
    except ValueError:
        kind = 0
    if kind & (MATCH | CONTAINS | EQUALS | SUBSTRING) == 0 or kind & ~63:
        findings.refuse(
            assertion, f"its test type {kind} is not known", "choose a pattern matching rule again in JMeter"
        )
        return None
    listed = assertion.find("Asserion.test_strings")  # JMeter's own spelling
    texts = []
    for item in () if listed is None else listed.items:
        text = findings.text(assertion, values, item.text, "a pattern to test")
        if text is None:
            return None
        texts.append(text)
    return kind, texts


def _codes(assertion: Element, values: Values, findings: Findings) -> frozenset[int]:
    """The codes that the assertion accepts; all, with a refusal, if they cannot be known."""
    tests = _tests(assertion, values, findings)
    if tests is None or not tests[1]:
        return _CODES
    kind, texts = tests
    matchers = []
    for text in texts:
        matcher = _matcher(kind, text)
        if matcher is None:
            findings.refuse(
                assertion,
                f"{text!r} is no pattern of a status code that is understood",
                "write digits, `.`, `|`, `[...]` or `\\d`",
            )
            return _CODES
        matchers.append(matcher)
    combine = any if kind & OR else all
    wanted = not kind & NOT
    return frozenset(code for code in _CODES if combine(matcher(str(code)) == wanted for matcher in matchers))


def _matcher(kind: int, text: str) -> Callable[[str], bool] | None:
    if kind & CONTAINS or not kind & (EQUALS | SUBSTRING):
        if _CODE_PATTERN.fullmatch(text) is None or re.search(r"[*+?)][*+?]", text):  # nested repeats may never end
            return None
        try:
            pattern = re.compile(text)
        except re.error:
            return None
        return lambda code: (pattern.search if kind & CONTAINS else pattern.fullmatch)(code) is not None
    if kind & EQUALS:
        return lambda code: code == text
    return lambda code: text in code


def _texts(assertion: Element, values: Values, findings: Findings) -> list[str]:
    """Texts that must occur in the body; none, with a refusal, if the assertion asks for something else."""
    tests = _tests(assertion, values, findings)
    if tests is None:
        return []
    kind, written = tests
    if kind & NOT or (kind & OR and len(written) > 1):
        findings.refuse(
            assertion,
            "it asks that a text be absent, or for one text of several; a step's check names texts that all must occur",
            "turn it round: test for a text that only the right answer holds",
        )
        return []
    found = []
    for text in written:
        plain = plain_text(kind, text)
        if not plain:
            findings.refuse(
                assertion,
                f"{text[:60]!r} asks for more than a text that occurs in the body",
                "choose Substring, and write a text that only the right answer holds",
            )
            return []
        found.append(plain)
    return found


def plain_text(kind: int, text: str) -> str | None:
    """The text that must occur in the body; None if the test asks for something else."""
    if kind & CONTAINS:
        begin, end = 0, len(text)
        while text.startswith(".*", begin):
            begin += 2
        while text.endswith(".*", begin, end) and not text.endswith("\\.*", begin, end):
            end -= 2
        return _unescaped(text[begin:end])
    if kind & EQUALS:
        return None
    if kind & SUBSTRING:
        return text
    inner = re.fullmatch(r"\(\?s\)\.\*(.+)\.\*", text, re.DOTALL)
    return _unescaped(inner[1]) if inner else None


def _unescaped(pattern: str) -> str | None:
    """The text of a pattern that is plain text apart from escaped punctuation; None for any other pattern."""
    text: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        after = pattern[at + 1 : at + 2]
        if character == "\\" and after and not after.isalnum() and after.isprintable():
            text.append(after)
            at += 2
            continue
        if character in _SPECIAL or (character == "{" and after.isdigit()):
            return None
        text.append(character)
        at += 1
    return "".join(text)
