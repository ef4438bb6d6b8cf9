"""`${...}` is read as by JMeter 5.6; a value that cannot be known beforehand is refused with a reason."""

from __future__ import annotations

import pytest

from powerband.jmx.values import Unresolved, Values

VALUES = Values({"host": "shop", "a b": "spaced", "dollar": "$"}, {"users": "7", "x.y": "given", "none": ""})


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("", ""),
        ("plain", "plain"),
        ("${host}", "shop"),
        ("http://${host}/${host}", "http://shop/shop"),
        ("${a b}", "spaced"),
        ("${__P(users)}", "7"),
        ("${__P(users,3)}", "7"),
        ("${__P(other,3)}", "3"),
        ("${__P(other)}", "1"),  # JMeter's default of the default
        ("${__P(other,)}", ""),
        ("${__P(none,3)}", "3"),
        ("${__property(none)}", "none"),
        ("${__P(other,a(b)c)}", "a(b)c"),
        ("${__P(other,${host})}", "shop"),
        ("${__P(other,${__P(x.y,${host})})}", "given"),
        ("${__P(other,a\\,b)}", "a,b"),
        ("${ __P(users) }", "7"),
        ("${__property(users)}", "7"),
        ("${__property(other)}", "other"),
        ("${__property(other,,3)}", "3"),
        # An escape has a meaning only beside a ${...}.
        ("a\\,b", "a\\,b"),
        ("a\\,b${host}", "a,bshop"),
        ("\\${host}", "\\${host}"),
        ("\\${host}${host}", "${host}shop"),
        ("\\d${host}", "\\dshop"),
        ("$host {host} $$", "$host {host} $$"),
        ("${dollar}{host}", "${host}"),
    ],
)
def test_resolved(text: str, resolved: str) -> None:
    assert VALUES.resolve(text) == resolved


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${nobody}", "stands for nothing"),
        ("${__Random(1,6)}", "gives another value each time"),
        ("${__UUID}", "gives another value each time"),
        ("${__UUID()}", "gives another value each time"),
        ("${__groovy(1+1)}", "is not evaluated"),
        ("${__P}", "is not evaluated"),
        ("${__property(a,b)}", "also sets the variable b"),
        ("${host", "has no end"),
        ("${__P(host", "has no end"),
        ("${__P(host)", "has no end"),
        ("${__P(a,${nobody})}", "stands for nothing"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(Unresolved) as refused:
        VALUES.resolve(text)
    assert why in refused.value.why
    assert refused.value.instead


def test_defaults_that_were_taken_are_kept() -> None:
    values = Values({}, {"given": "1"})
    row = values.over({"a": "${__P(no,1)}"})
    assert row.resolve("${__P(given,2)} ${__P(port,8080)} ${a}") == "1 8080 ${__P(no,1)}"
    assert values.defaults == {"port": "8080"}


@pytest.mark.parametrize("deep", [11, 60_000])
def test_calls_that_are_nested_too_deeply_are_refused(deep: int) -> None:
    with pytest.raises(Unresolved, match=r"nested more than 10 deep|over 524,288 characters"):
        VALUES.resolve("${__P(a," * deep + "x" + ")}" * deep)
    assert VALUES.resolve("${__P(a," * 10 + "x" + ")}" * 10) == "x"


def test_a_text_that_grows_without_end_is_refused() -> None:
    values = Values({"long": "x" * 100_000}, {})
    assert len(values.resolve("${long}" * 5)) == 500_000
    with pytest.raises(Unresolved, match="over 524,288 characters"):
        values.resolve("${long}" * 6)
