"""JUnit XML as CI readers take it: parsed, counted, with every outcome in its place."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from fakes.synthetic import analysis
from powerband.analyze.runs.changes import Change, RunComparison
from powerband.model.plan import Setting
from powerband.model.results import AnswerKind, Estimate, Soak, Verdict
from powerband.report.documents.junit import render_analysis, render_changes


def parsed(text: str) -> Xml.Element:
    """The single suite of the document, after a check of the structure that every reader relies on."""
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    root = Xml.fromstring(text)
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite" and suite.get("name")
    cases = suite.findall("testcase")
    for element in (root, suite):
        assert int(element.get("tests", "")) == len(cases)
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.get(count, "")) == sum(case.find(tag) is not None for case in cases)
        assert float(element.get("time", "")) >= 0
    for case in cases:
        assert case.get("name") and case.get("classname")
        assert float(case.get("time", "")) >= 0
        outcomes = [case.find(tag) for tag in ("failure", "error", "skipped")]
        found = [outcome for outcome in outcomes if outcome is not None]
        assert len(found) <= 1 and all(outcome.get("message") for outcome in found)
        assert case.findtext("system-out") is not None
    assert suite[0].tag == "properties"
    return suite


def outcomes(suite: Xml.Element) -> dict[str, str]:
    found = {}
    for case in suite.findall("testcase"):
        tags = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}:{case.get('name')}"] = tags[0] if tags else "passed"
    return found


def properties(element: Xml.Element) -> dict[str, str]:
    return {item.get("name", ""): item.get("value", "") for item in element.iterfind("properties/property")}


def comparison(*verdicts: Verdict) -> RunComparison:
    value, ratio = Estimate(1000, 990, 1010, 0.95, 5), Estimate(0.9, 0.88, 0.92, 0.95, 5)
    changes = tuple(
        Change(Setting((("threads", number),)), value, value, ratio, verdict, 0.02)
        for number, verdict in enumerate(verdicts)
    )
    return RunComparison("goodput_per_s", "maximise", 0.95, 0.03, changes, (), (), ("a", "b <&>"), True, ("mind",))


def test_a_comparison_fails_where_a_setting_became_worse() -> None:
    suite = parsed(render_changes(comparison(Verdict.WORSE, Verdict.INCONCLUSIVE, Verdict.BETTER, Verdict.EQUIVALENT)))
    assert list(outcomes(suite).values()) == ["failure", "skipped", "passed", "passed"]
    case = suite.findall("testcase")[0]
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "b <&> is worse: goodput −10.0 % (−12.0 to −8.0 %)" == failure.text
    figures = {"ratio": "0.9", "ratio_low": "0.88", "ratio_high": "0.92", "smallest_difference": "0.02"}
    assert figures.items() <= properties(case).items()
    assert properties(suite)["verdict"] == "worse"
    assert "mind" in (suite.findtext("system-out") or "")


def test_what_one_run_alone_measured_is_skipped() -> None:
    found = replace(comparison(Verdict.BETTER), only_first=(Setting((("threads", 8),)),))
    suite = parsed(render_changes(found))
    assert list(outcomes(suite).values()) == ["passed", "skipped"]
    assert list(outcomes(parsed(render_changes(replace(found, changes=())))).values()) == ["error", "skipped"]


def test_what_nobody_measured_is_an_error() -> None:
    none = Change(Setting(()), None, None, None, Verdict.INCONCLUSIVE, None, "old could not be measured: it died")
    suite = parsed(render_changes(replace(comparison(), changes=(none,))))
    assert outcomes(suite) == {"powerband.compare:default": "error"}


def test_a_run_has_a_case_for_the_answer_each_setting_and_each_claim() -> None:
    of = analysis()
    suite = parsed(render_analysis(of, Path("runs/x")))
    found = outcomes(suite)
    assert found["powerband.answer:answer"] == "passed"
    assert {name: found[f"powerband.claim:{name}"] for name in ("grows", "goes-on", "no-limit")} == {
        "grows": "passed", "goes-on": "failure", "no-limit": "skipped",
    }  # fmt: skip
    assert found["powerband.setting:threads=32"] == "passed"
    assert found["powerband.setting:threads=1"] == "skipped", "it breaks a constraint, which fails no run"
    case = next(case for case in suite.findall("testcase") if case.get("name") == "threads=32")
    assert properties(case)["goodput_per_s"].endswith("/s")
    assert properties(suite)["run"].endswith("runs/x")
    assert "trial 12" in (suite.findtext("system-out") or "")


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (AnswerKind.BEST, "passed"),
        (AnswerKind.NOT_ENOUGH_DATA, "skipped"),
        (AnswerKind.NONE_FEASIBLE, "failure"),
        (AnswerKind.NONE_VALID, "error"),
    ],
)
def test_the_answer_s_kind(kind: AnswerKind, outcome: str) -> None:
    of = analysis()
    suite = parsed(render_analysis(replace(of, answer=replace(of.answer, kind=kind)), None))
    assert outcomes(suite)["powerband.answer:answer"] == outcome


@pytest.mark.parametrize("kind", [AnswerKind.BOUNDED, AnswerKind.NOT_ENOUGH_DATA])
def test_a_bound_that_is_not_met_is_a_failure_as_in_the_exit_code(kind: AnswerKind) -> None:
    of = analysis()
    for regret in (None, 0.2):
        answer = replace(of.answer, kind=kind, regret=regret, regret_asked=0.05)
        suite = parsed(render_analysis(replace(of, answer=answer), None))
        assert outcomes(suite)["powerband.answer:answer"] == "failure"


@pytest.mark.parametrize(("lasts", "outcome"), [(True, "passed"), (None, "passed"), (False, "failure")])
def test_an_answer_that_did_not_last_is_a_failure_as_in_the_exit_code(lasts: bool | None, outcome: str) -> None:
    of = analysis()
    soak = Soak(of.settings[0].setting, 9, 600 * 10**9, 60 * 10**9, (), lasts=lasts, sentence="")
    assert outcomes(parsed(render_analysis(replace(of, soak=soak), None)))["powerband.answer:answer"] == outcome


def test_two_revisions_have_a_case_for_each_claim_and_a_failed_one_for_what_falls_short() -> None:
    of = analysis()
    soak = Soak(of.settings[0].setting, 9, 600 * 10**9, 60 * 10**9, (), lasts=False, sentence="It does not last.")
    for each, short in ((of, {}), (replace(of, soak=soak), {"powerband.answer:answer": "failure"})):
        assert outcomes(parsed(render_changes(comparison(Verdict.EQUIVALENT), each))) == {
            "powerband.compare:threads=0": "passed", "powerband.claim:grows": "passed",
            "powerband.claim:goes-on": "failure", "powerband.claim:no-limit": "skipped", **short,
        }  # fmt: skip


def test_a_setting_that_was_not_measured_is_an_error() -> None:
    of = analysis()
    rows = tuple(replace(row, trials=0) if row.setting.id == "threads=2" else row for row in of.settings)
    found = outcomes(parsed(render_analysis(replace(of, settings=rows), None)))
    assert [name for name, outcome in found.items() if outcome == "error"] == ["powerband.setting:threads=2"]


def test_what_xml_cannot_hold_is_replaced() -> None:
    of = analysis()
    suite = parsed(render_analysis(replace(of, warnings=("said \x1b[31mred\x00 ]]> &",)), None))
    assert "said \ufffd[31mred\ufffd ]]> &" in (suite.findtext("system-out") or "")


def test_a_comparison_of_nothing_is_an_error_and_no_empty_suite() -> None:
    suite = parsed(render_changes(RunComparison("goodput_per_s", "maximise", 0.95, 0.03, (), (), ())))
    assert outcomes(suite) == {"powerband.compare:comparison": "error"}


@pytest.mark.parametrize(
    ("verdict", "first", "by_ranges", "outcome"),
    [
        (Verdict.BETTER, None, True, "passed"),  # two capacities without figures, whose ranges do not overlap
        (Verdict.WORSE, None, True, "failure"),
        (Verdict.INCONCLUSIVE, None, True, "skipped"),
        (Verdict.INCONCLUSIVE, Estimate(1.0, 0.9, 1.1, 0.95, 5), True, "skipped"),
        (Verdict.INCONCLUSIVE, None, False, "error"),
        (Verdict.INCONCLUSIVE, Estimate(1.0, 0.9, 1.1, 0.95, 5), False, "error"),  # nothing is comparable: exit code 5
    ],
)
def test_outcomes_without_figures_are_those_of_the_exit_code(
    verdict: Verdict, first: Estimate | None, by_ranges: bool, outcome: str
) -> None:
    change = Change(Setting((("threads", 4),)), first, None, None, verdict, None, "a reason", by_ranges)
    suite = parsed(render_changes(RunComparison("capacity_per_s", "maximise", 0.95, 0.03, (change,), (), ())))
    assert list(outcomes(suite).values()) == [outcome]
