"""The grammar of a subject's own metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.base.arithmetic import Arithmetic, value
from powerband.model.own_expression import Series, parse_labels, parse_own


def test_a_share_of_two_series() -> None:
    found = parse_own("mean(executor_active_threads / executor_pool_max_threads)")
    active, most = Series("executor_active_threads"), Series("executor_pool_max_threads")
    assert (found.function, found.term) == ("mean", Arithmetic("/", active, most))
    assert found.series == {active, most}
    assert value(found.term, {active: 5.0, most: 20.0}.__getitem__) == 0.25


def test_labels_numbers_and_precedence() -> None:
    found = parse_own('rate((a{uri="/test",method="GET"} + 2) * 3 - b:c{x="say \\"}\\""})')
    a = Series("a", (("method", "GET"), ("uri", "/test")))
    b = Series("b:c", (("x", 'say "}"'),))
    assert found.series == {a, b}
    assert value(found.term, {a: 1.0, b: 4.0}.__getitem__) == (1 + 2) * 3 - 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a / b", r"write for example mean\(a / b\)"),
        ("maen(a)", r"there is no function maen; did you mean mean\?"),
        ("mean a", "does not say|an opening parenthesis is wanted"),
        ("mean(a", "closing parenthesis is missing"),
        ("mean(a) + 1", "at character 9 .* is not expected here"),
        ("mean(a +)", "a number or a series"),
        ("mean(a # b)", "'#' has no meaning"),
        ("mean(2)", "names no series"),
        ("mean(a{x=1})", "must name each label once"),
        ('mean(a{x="1",x="2"})', "must name each label once"),
        ("mean(" + "(" * 60, "more than 50 parentheses"),
    ],
)
def test_what_is_not_in_the_grammar_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_own(text)


@given(st.text(alphabet='mean(){}="a,+-*/ 1.rate', max_size=30))
def test_any_text_is_parsed_or_refused_with_a_sentence(text: str) -> None:
    try:
        parse_own(text)
    except ValueError as error:
        assert str(error)


def test_labels_come_in_any_order_with_escapes() -> None:
    assert parse_labels('b="x\\ny", a="\\\\"') == (("a", "\\"), ("b", "x\ny"))
    assert parse_labels("") == ()
