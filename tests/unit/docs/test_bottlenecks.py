"""The page of bottlenecks: each name has a row among the rules, and figures of the rules are the code's."""

import re

import pytest
from scripts.reference import DOCS

from powerband.analyze.trial.bottleneck import rules
from powerband.model.bottlenecks import BottleneckName

PAGE = (DOCS / "methods" / "bottlenecks.md").read_text()
RULES = PAGE.partition("## The rules, in their order")[2].partition("\n## ")[0]


def row(name: BottleneckName) -> str:
    (text,) = re.findall(rf"^\| `{name}` \|.*$", RULES, re.M)
    return str(text)


def test_every_name_has_a_row_and_every_row_a_name() -> None:
    rows = re.findall(r"^\| (`.*?) \|", RULES, re.M)
    assert {name for cell in rows for name in re.findall(r"`(\w+)`", cell)} == set(BottleneckName)


@pytest.mark.parametrize(
    ("name", "cost_ns"),
    [(BottleneckName.TOO_MANY_RUNNABLE_THREADS, rules.SWITCH_NS), (BottleneckName.WAKE_UPS, rules.TURN_NS)],
)
def test_the_cost_of_a_switch_and_of_a_wake_up_is_what_the_rule_takes(name: BottleneckName, cost_ns: float) -> None:
    assert re.findall(r"at (\d+) us each", row(name)) == [f"{cost_ns / 1000:g}"]


@pytest.mark.parametrize("name", BottleneckName)
def test_each_bottleneck_has_words_a_colour_and_advice(name: BottleneckName) -> None:
    assert name.words and name.short and name.advice
    assert (name.colour is None) is (name is BottleneckName.NONE)
    assert BottleneckName(str(name)) is name
