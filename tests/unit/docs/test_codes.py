"""Pages with a row for each name of the code: failures of trials, problems that the gate finds, bottlenecks. They
contain every name, and no unknown one."""

from __future__ import annotations

import re

import pytest
from scripts.reference import DOCS, ROOT

from fakes.pages import tables
from powerband.analyze.trial.bottleneck import rules
from powerband.analyze.trial.faults import FIRST_START
from powerband.analyze.trial.honesty import UNCHECKED
from powerband.analyze.trial.processes import PARTIAL_SWITCHES
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import DAMAGED, Verdict
from powerband.processes.failures import Code
from powerband.report.wording.findings import OUT
from powerband.report.wording.words import COLUMNS, INCONCLUSIVE, VIOLATES

BOTTLENECKS = (DOCS / "methods" / "bottlenecks.md").read_text()
RULES = BOTTLENECKS.partition("## The rules, in their order")[2].partition("\n## ")[0]


def named(page: str) -> list[str]:
    """The names in the first cell of each row, in order."""
    rows = re.findall(r"^\| (`.*?) \|", page, re.M)
    return [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]


def test_every_failure_is_documented() -> None:
    page = (DOCS / "reference" / "failures.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert sorted(documented) == sorted(code.value for code in Code)


def test_every_outcome_of_a_request_is_documented() -> None:
    """A row of the page may explain several."""
    page = (DOCS / "reference" / "failures.md").read_text()
    section = page.partition("## A request\n")[2].partition("\n## ")[0]
    source = (ROOT / "engine" / "src" / "contract" / "outcome.rs").read_text()
    (listed,) = re.findall(r"pub enum Outcome \{(.*?)^\}", source, re.S | re.M)
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in re.findall(r"^ +(\w+),$", listed, re.M)]
    assert len(names) > 10
    assert sorted(set(re.findall(r"`(\w+)`", section)) - {"check"}) == sorted(names)


def test_every_problem_of_the_gate_is_documented() -> None:
    source = "".join(
        path.read_text()
        for room in ("analyze/trial", "loads")
        for path in sorted((ROOT / "src/powerband" / room).rglob("*.py"))
    )
    given = set(re.findall(r'Problem\(\s*"(\w+)"', source)) | {"host_foreign", "host_foreign_some"}
    given |= {f"generator_{outcome}" for outcome in ("no_descriptors", "no_ports")}
    given |= {DAMAGED, FIRST_START, PARTIAL_SWITCHES, UNCHECKED}
    assert set(named((DOCS / "reference" / "validity.md").read_text())) == given


def test_every_bottleneck_has_a_row_among_the_rules() -> None:
    assert set(named(RULES)) == set(BottleneckName)


@pytest.mark.parametrize(
    ("name", "cost_ns"),
    [(BottleneckName.TOO_MANY_RUNNABLE_THREADS, rules.SWITCH_NS), (BottleneckName.WAKE_UPS, rules.TURN_NS)],
)
def test_the_cost_of_a_switch_and_of_a_wake_up_is_what_the_rule_takes(name: BottleneckName, cost_ns: float) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|.*$", RULES, re.M)
    assert re.findall(r"at (\d+) us each", row) == [f"{cost_ns / 1000:g}"]


@pytest.mark.parametrize("name", BottleneckName)
def test_each_bottleneck_has_words_a_colour_and_advice(name: BottleneckName) -> None:
    assert name.words and name.short and name.advice
    assert (name.colour is None) is (name is BottleneckName.NONE)
    assert BottleneckName(str(name)) is name


def test_the_words_of_an_answer_are_those_that_are_explained() -> None:
    page = (DOCS / "reading-the-answer.md").read_text()
    sentences, columns, verdicts = (
        [name for row in table[1:] for name in re.findall("`([^`]+)`", row[0])] for table in tables(page)
    )
    heads = {column.short.format(short="req") for column in COLUMNS}
    assert set(columns) == {*heads, "goodput", "interval", "vs leader", "failed starts", "bottleneck", "trials"}
    words = {Verdict.EQUIVALENT, Verdict.WORSE, INCONCLUSIVE, VIOLATES, f"{OUT} 2", "no data"}
    assert set(verdicts) == {"leader", *words}
    answers = " ".join(path.read_text() for path in (ROOT / "tests" / "golden").glob("answer*.txt"))
    said = without_figures(" ".join(answers.split()))
    begun = [re.sub(r" \.\.\.\)?$", "", sentence) for sentence in sentences]
    assert [sentence for sentence in begun if without_figures(sentence) not in said] == []


def without_figures(text: str) -> str:
    return re.sub(r"[\d.,]+", "N", text)
