"""Two candidates for a bottleneck are shown wherever one is: JSON, the terminal, the report, Markdown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema

from fakes import synthetic_verdicts
from powerband.analyze.stored import stored_analysis
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck, Candidate
from powerband.report.documents.json import render_json
from powerband.report.html.verdicts import why_section
from powerband.report.terminal.text_findings import _bottleneck

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/reference/analysis.schema.json").read_text())
SECOND = Candidate(BottleneckName.HIDDEN_LIMIT, ("4 connections are open",), "raise the pool")
TIED = Bottleneck(BottleneckName.DOWNSTREAM, ("4 wait there",), "ask it for more", SECOND)
RACE = synthetic_verdicts.race_analysis()
ANALYSIS = replace(RACE, rules=(), settings=tuple(replace(row, bottleneck=TIED) for row in RACE.settings))


def test_json_has_both_and_is_read_back() -> None:
    text = render_json(ANALYSIS, None)
    document = json.loads(text)
    jsonschema.validate(document, SCHEMA)
    assert document["settings"][0]["bottleneck"]["second"] == {
        "name": "hidden_limit",
        "evidence": ["4 connections are open"],
        "advice": "raise the pool",
    }
    assert stored_analysis(text).settings[0].bottleneck == TIED


def test_an_analysis_of_before_there_was_a_second_is_read() -> None:
    document = json.loads(render_json(ANALYSIS, None))
    for row in (*document["settings"], *document["trials"]):
        if row["bottleneck"] is not None:
            del row["bottleneck"]["second"]
    found = stored_analysis(json.dumps(document)).settings[0].bottleneck
    assert found == replace(TIED, second=None)


def test_the_terminal_says_both_with_their_advice() -> None:
    said = _bottleneck(ANALYSIS, "")
    assert "a dependency is the limit. 4 wait there. Ask it for more. Or a semaphore" in said
    assert said.endswith("4 connections are open. Raise the pool.")
    told = "4 wait there, 4 connections are open"
    assert _bottleneck(ANALYSIS, told).startswith("What to do: If a dependency is the limit: ask it for more. If a ")


def test_the_report_has_both_in_a_row() -> None:
    row = why_section(ANALYSIS, None, None)
    limit = "a semaphore, a connection pool or a rate limit inside the server is the limit"
    assert f"A dependency is the limit, or {limit}" in row
    assert "<li>4 wait there</li><li>4 connections are open</li>" in row
