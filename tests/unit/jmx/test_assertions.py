"""Assertions that a step's check can express exactly, and assertions that it cannot."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.plans import assertion, converted, element, group, plan, sampler
from powerband.jmx.elements.assertions import CONTAINS, EQUALS, MATCH, NOT, OR, SUBSTRING, AssertionCheck, plain_text
from powerband.jmx.plan_findings import ImportRefused

CODE, BODY = "response_code", "response_data"


def check(*children: str) -> AssertionCheck:
    (step,) = converted(plan(group(sampler(*children)))).steps
    return step.check


def refused(*children: str) -> str:
    with pytest.raises(ImportRefused) as error:
        converted(plan(group(sampler(*children))))
    return str(error.value)


@pytest.mark.parametrize(
    ("kind", "texts", "statuses"),
    [
        (EQUALS, ("200",), (200,)),
        (SUBSTRING, ("201",), (201,)),
        (MATCH, ("20[01]",), (200, 201)),
        (MATCH, ("200|302",), (200, 302)),
        (CONTAINS, (r"^20\d$",), (200, 201, 202, 203, 204, 205, 206, 207, 208, 209)),
        (EQUALS | OR, ("200", "204"), (200, 204)),
        (MATCH | NOT, ("[^2]..", ".[^0]."), (200, 201, 202, 203, 204, 205, 206, 207, 208, 209)),
        (MATCH, ("[23]..",), ()),
        (EQUALS, (), ()),
    ],
)
def test_codes(kind: int, texts: tuple[str, ...], statuses: tuple[int, ...]) -> None:
    assert check(assertion(CODE, kind, *texts)).statuses == statuses


def test_many_codes_are_those_with_a_name() -> None:
    statuses = check(assertion(CODE, MATCH, "2..")).statuses
    assert statuses == (200, 201, 202, 203, 204, 205, 206, 207, 208, 226)


def test_many_codes_of_which_none_has_a_name_do_not_become_all() -> None:
    assert check(assertion(CODE, MATCH, "3[1-9].")).statuses == tuple(range(310, 400))


def test_an_error_that_is_right() -> None:
    ignores = {"Assertion.assume_success": True}
    assert check(assertion(CODE, EQUALS, "404", **ignores)).statuses == (404,)
    assert "no status can make the answer right" in refused(assertion(CODE, EQUALS, "404"))
    late = refused(assertion(CODE, EQUALS, "200"), assertion(CODE, EQUALS, "404", name="Late", **ignores))
    assert "whose verdict it would undo" in late


@pytest.mark.parametrize(
    ("kind", "text", "plain"),
    [
        (SUBSTRING, "a.b", "a.b"),
        (CONTAINS, "welcome", "welcome"),
        (CONTAINS, r"\"id\":1\.5", '"id":1.5'),
        (CONTAINS, ".*welcome.*", "welcome"),
        (CONTAINS, '{"a"}', '{"a"}'),
        (MATCH, "(?s).*welcome.*", "welcome"),
        (CONTAINS, "a.b", None),
        (CONTAINS, r"\d+", None),
        (CONTAINS, "a|b", None),
        (CONTAINS, r"a\.*", None),
        (CONTAINS, "a{2}", None),
        (MATCH, ".*welcome.*", None),
        (MATCH, "welcome", None),
        (MATCH, r"(?s).*a\.*", None),
        (EQUALS, "welcome", None),
    ],
)
def test_plain_text_of_a_pattern(kind: int, text: str, plain: str | None) -> None:
    assert plain_text(kind, text) == plain


@given(st.text(min_size=1), st.text())
def test_an_escaped_text_is_found_wherever_its_pattern_is(text: str, around: str) -> None:
    pattern = re.sub(r"([^\w\s])", r"\\\1", text)
    plain = plain_text(CONTAINS, pattern)
    if plain is not None:
        body = around + text + around
        assert (re.search(pattern, body) is not None) == (plain in body)


def test_texts_of_all_assertions_in_scope() -> None:
    outer = assertion(BODY, SUBSTRING, "shop")
    (step,) = converted(plan(group(outer, sampler(assertion(BODY, SUBSTRING, "tea", "shop"))))).steps
    assert step.check.contains == ("shop", "tea")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (assertion(BODY, SUBSTRING | NOT, "error"), "a text be absent"),
        (assertion(BODY, SUBSTRING | OR, "a", "b"), "one text of several"),
        (assertion(BODY, MATCH, ".*x"), "more than a text that occurs"),
        (assertion(BODY, SUBSTRING, ""), "more than a text that occurs"),
        (assertion(CODE, MATCH, "(2..)*"), "no pattern of a status code"),
        (assertion(CODE, MATCH, "[2"), "no pattern of a status code"),
        (assertion("response_message", EQUALS, "OK"), "it checks response message"),
        (assertion("response_headers", CONTAINS, "x"), "it checks response headers"),
        (assertion("", CONTAINS, "x"), "it checks the URL"),
        (assertion(CODE, EQUALS, "200", **{"Assertion.scope": "children"}), "parts of an answer"),
        (assertion(CODE, 64, "200"), "its test type 64 is not known"),
        (assertion(CODE, EQUALS, "${code}"), "stands for nothing"),
        (element("SizeAssertion", "Size"), "a check of the answer's size is not known"),
        (element("JSONPathAssertion", "JSON"), "a check of this kind is not known"),
    ],
)
def test_what_is_refused(made: str, why: str) -> None:
    assert why in refused(made)


def test_a_duration_is_the_timeout_of_all() -> None:
    limit = element("DurationAssertion", "Quick", **{"DurationAssertion.duration": "800"})
    assert converted(plan(group(limit, sampler(), sampler(name="b")))).load.timeout_ns == 800_000_000
    with pytest.raises(ImportRefused, match="the longest duration asserted of 'b' differs"):
        converted(plan(group(sampler(limit), sampler(name="b"))))


def test_a_pattern_of_very_many_dots_is_read_at_once() -> None:
    assert plain_text(CONTAINS, ".*" * 500_000 + "a" + ".*" * 500_000) == "a"
