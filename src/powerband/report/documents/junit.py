"""JUnit XML for CI: a comparison, or a run's answer, as test cases. In: values. Out: text; nothing is computed.

The structure that most readers accept: testsuites > testsuite > properties, testcase > failure | error | skipped,
system-out. `failure`: a condition is not met; `error`: it could not be measured; `skipped`: inconclusive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as Xml

from powerband.analyze.runs.changes import Change, RunComparison
from powerband.analyze.runs.revisions import short_of
from powerband.model.results import Analysis, AnswerKind, ClaimResult, ClaimVerdict, Estimate, SettingResult, Verdict
from powerband.report.wording.numbers import format_estimate, format_interval
from powerband.report.wording.words import effect_of, failed_starts, trial_counts, unusable_trials, verdict_words

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class _JunitCase:
    """One test case. `outcome`: None passed, else failure, error or skipped, with `message` as its sentence."""

    group: str
    name: str
    outcome: str | None
    message: str
    time_s: float = 0.0
    properties: Mapping[str, str] = field(default_factory=dict)


def render_changes(comparison: RunComparison, analysis: Analysis | None = None) -> str:
    """One case for each setting: failed if it became worse, skipped if that is not certain or not measured in both.
    `analysis`: of the one run that measured both, with a case for each claim, and a failed one if it falls short of
    what was asked for."""
    cases = [_change(change, comparison) for change in comparison.changes]
    if not cases:  # an empty suite would always pass
        cases = [_JunitCase("powerband.compare", "comparison", "error", comparison.sentence)]
    for name, settings in zip(comparison.names, (comparison.only_first, comparison.only_second), strict=True):
        said = f"it was measured in {name} only"
        cases += [_JunitCase("powerband.compare", setting.id, "skipped", said) for setting in settings]
    if analysis is not None:
        cases += map(_claim, analysis.claims)
        if short := short_of(analysis, comparison):
            cases.append(_JunitCase("powerband.answer", "answer", "failure", " ".join(short)))
    properties = {
        "first": comparison.names[0],
        "second": comparison.names[1],
        "verdict": comparison.verdict.value,
        "objective": f"{comparison.direction} {comparison.objective}",
        "confidence": f"{comparison.confidence:g}",
        "margin": f"{comparison.margin:g}",
    }
    return _document(
        "powerband compare", cases, properties, [comparison.sentence, *comparison.further, *comparison.warnings]
    )


def render_analysis(analysis: Analysis, run: Path | None) -> str:
    """A case for the answer, for each setting under the constraints, and for each claim."""
    cases = [_answer(analysis), *_settings(analysis), *(_claim(claim) for claim in analysis.claims)]
    properties = {
        "run": "" if run is None else str(run.resolve()),
        "objective": f"{analysis.direction} {analysis.objective}",
        "confidence": f"{analysis.confidence:g}",
        "margin": f"{analysis.margin:g}",
        "trials": trial_counts(analysis),
    }
    unusable = [
        f"trial {trial.number} ({trial.setting}) {trial.status}: {trial.reasons}"
        for trial in unusable_trials(analysis.trials)
    ]
    return _document(analysis.name, cases, properties, [*analysis.answer.sentences, *analysis.warnings, *unusable])


def _change(change: Change, comparison: RunComparison) -> _JunitCase:
    outcome = {Verdict.WORSE: "failure", Verdict.INCONCLUSIVE: "skipped"}.get(change.verdict)
    if change.verdict is Verdict.INCONCLUSIVE and not change.comparable:
        outcome = "error" if change.first is change.second or not comparison.comparable else outcome
    figures = {
        "first": format_estimate(change.first, comparison.objective),
        "second": format_estimate(change.second, comparison.objective),
        "verdict": change.verdict.value,
        **_interval_properties("ratio", change.ratio),
    }
    if change.smallest_difference is not None:
        figures["smallest_difference"] = f"{change.smallest_difference:.6g}"
    message = f"{comparison.names[1]} is {change.verdict.value}: {comparison.change_words(change)}".removesuffix(": ")
    return _JunitCase("powerband.compare", change.setting.id, outcome, message, 0.0, figures)


def _answer(analysis: Analysis) -> _JunitCase:
    outcome = {
        AnswerKind.NOT_ENOUGH_DATA: "skipped",
        AnswerKind.NONE_FEASIBLE: "failure",
        AnswerKind.NONE_VALID: "error",
    }.get(analysis.answer.kind)
    if outcome in (None, "skipped") and short_of(analysis):
        outcome = "failure"
    chosen = analysis.answer.setting
    figures = {"kind": analysis.answer.kind.value, **({} if chosen is None else {"setting": chosen.id})}
    if analysis.answer.regret is not None:
        figures["regret"] = f"{analysis.answer.regret:.6g}"
    return _JunitCase("powerband.answer", "answer", outcome, " ".join(analysis.answer.sentences), 0.0, figures)


def _settings(analysis: Analysis) -> Iterator[_JunitCase]:
    """One case for each setting. A setting without a valid trial is an error. One that violates a constraint is skipped
    with the reason, not failed, as long as another meets them all."""
    for row in analysis.settings:
        why = "; ".join(row.infeasible_because)
        took_s = sum(trial.took_s or 0.0 for trial in analysis.trials if trial.setting == row.setting)
        message = f"{verdict_words(row, analysis)}{f': {why}' if why else ''}"
        passed = row.feasible and not row.uncertain_because
        outcome = "error" if not row.trials else None if passed else "skipped"
        yield _JunitCase("powerband.setting", row.setting.id, outcome, message, took_s, _figures(row, analysis))


def _figures(row: SettingResult, analysis: Analysis) -> dict[str, str]:
    estimate = row.shown.get(analysis.objective)
    figures = {
        "trials": str(row.trials),
        "invalid": str(row.invalid),
        **({"failed_starts": failed_starts(row)} if failed_starts(row) else {}),
        "verdict": row.verdict.value,
        analysis.objective: format_estimate(estimate, analysis.objective),
        f"{analysis.objective} interval": format_interval(estimate, analysis.objective),
    }
    if row.bottleneck is not None:
        figures["bottleneck"] = row.bottleneck.name.value
    return {**figures, **_interval_properties("effect", effect_of(row, analysis))}


def _interval_properties(name: str, estimate: Estimate | None) -> dict[str, str]:
    if estimate is None:
        return {}
    ends = {} if estimate.low is None else {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {key: f"{value:.6g}" for key, value in {name: estimate.value, **ends}.items() if value is not None}


def _claim(claim: ClaimResult) -> _JunitCase:
    outcome = {ClaimVerdict.REFUTED: "failure", ClaimVerdict.UNDECIDED: "skipped"}.get(claim.verdict)
    published = {} if claim.published is None else {"published": claim.published}
    figures = {"says": claim.says, "holds": claim.holds, **published}
    return _JunitCase("powerband.claim", claim.id, outcome, claim.sentence, 0.0, figures)


def _document(name: str, cases: Sequence[_JunitCase], properties: Mapping[str, str], output: Sequence[str]) -> str:
    counts = {
        "tests": len(cases),
        "failures": sum(case.outcome == "failure" for case in cases),
        "errors": sum(case.outcome == "error" for case in cases),
        "skipped": sum(case.outcome == "skipped" for case in cases),
    }
    shown = {key: str(value) for key, value in counts.items()}
    time_s = f"{sum(case.time_s for case in cases):.3f}"
    root = Xml.Element("testsuites", {"name": "powerband", **shown, "time": time_s})
    suite = Xml.SubElement(root, "testsuite", {"name": _clean(name), **shown, "time": time_s})
    _add_properties(suite, properties)
    for case in cases:
        _add_case(suite, case)
    Xml.SubElement(suite, "system-out").text = _clean("\n".join(output))
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _add_case(suite: Xml.Element, case: _JunitCase) -> None:
    attributes = {"classname": case.group, "name": _clean(case.name), "time": f"{case.time_s:.3f}"}
    element = Xml.SubElement(suite, "testcase", attributes)
    _add_properties(element, case.properties)
    if case.outcome is not None:
        found = Xml.SubElement(element, case.outcome, {"message": _clean(case.message)})
        if case.outcome != "skipped":
            found.set("type", case.group)
            found.text = _clean(case.message)
    Xml.SubElement(element, "system-out").text = _clean(case.message)


def _add_properties(parent: Xml.Element, properties: Mapping[str, str]) -> None:
    if properties:
        element = Xml.SubElement(parent, "properties")
        for name, value in properties.items():
            Xml.SubElement(element, "property", {"name": _clean(name), "value": _clean(value)})


def _clean(text: str) -> str:
    """The text without characters that XML cannot hold, such as the escape codes of a server's log."""
    return _NOT_XML.sub("\ufffd", text)
