"""Growth in memory: the trial that stands for the answer, and its text, page and JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
from rich.console import Console

from fakes import synthetic
from fakes.synthetic import setting
from powerband.model.results import Analysis, HeapGrowth, TypeGrowth
from powerband.report.documents.json import render_json
from powerband.report.html.memory import growth_cells, growth_sentence, memory_section, snapshot_trial
from powerband.report.html.report import render_page
from powerband.report.terminal.text import render_answer

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/reference/analysis.schema.json").read_text())
TYPES = (
    TypeGrowth("com.example.Ticket<b>", 10, 2_010, 240, 48_240),
    TypeGrowth("byte[]", 5_000, 4_999, 400_000, 420_000),
)
GROWTH = HeapGrowth(1, 5_242_880, 5_310_880, 23, TYPES)


def with_growth(growth: HeapGrowth = GROWTH) -> Analysis:
    analysis = synthetic.analysis()
    return replace(analysis, trials=tuple(replace(trial, heap_growth=growth) for trial in analysis.trials))


def as_text(analysis: Analysis) -> str:
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(render_answer(analysis))
    return " ".join(capture.get().split())


def test_the_middle_trial_of_the_answer_s_setting_stands_for_it() -> None:
    analysis = with_growth()
    found = snapshot_trial(analysis)
    assert found is not None
    trial, _ = found
    assert trial.setting == analysis.answer.setting == setting(threads=32) and trial.valid
    rates = sorted(
        other.metrics["goodput_per_s"] for other in analysis.trials if other.setting == trial.setting and other.valid
    )
    assert trial.metrics["goodput_per_s"] == rates[len(rates) // 2]
    leads = snapshot_trial(replace(analysis, answer=replace(analysis.answer, setting=None)))
    assert leads is not None and leads[0].setting == analysis.answer.leader
    assert snapshot_trial(synthetic.analysis()) is None


def test_in_words_and_cells() -> None:
    analysis = with_growth()
    found = snapshot_trial(analysis)
    assert found is not None
    trial, growth = found
    assert growth_sentence(trial, growth) == (
        f"Trial {trial.number} of threads=32: 5.00 MiB of live objects before the measured window, 5.06 MiB after it; "
        "23 types grew."
    )
    still = HeapGrowth(2, 100, 100, 0, ())
    said = growth_sentence(trial, still)
    assert said.endswith(" of live objects in 2 JVMs before the measured window, 100 B after it; no type grew.")
    assert growth_cells(TYPES[0]) == ("com.example.Ticket<b>", "2,010", "+2,000", "48,240", "+48,000")
    assert growth_cells(TYPES[1]) == ("byte[]", "4,999", "−1", "420,000", "+20,000")


def test_on_the_page_and_in_the_terminal() -> None:
    section = memory_section(with_growth())
    assert 'aria-label="Types that grew"' in section and "com.example.Ticket&lt;b&gt;" in section
    assert "<p>and 21 types that grew less</p>" in section
    page = render_page(synthetic.page(with_growth()))
    assert 'id="memory"' in page and "What grew in memory" in page
    said = as_text(with_growth())
    assert "23 types grew." in said and "+48,000" in said and "com.example.Ticket<b>" in said
    still = with_growth(HeapGrowth(1, 100, 90, 0, ()))
    assert "<table" not in memory_section(still) and "no type grew." in as_text(still)
    assert memory_section(synthetic.analysis()) == ""
    assert 'id="memory"' not in render_page(synthetic.page(synthetic.analysis()))


def test_as_json_of_every_trial() -> None:
    document = json.loads(render_json(with_growth(), None))
    jsonschema.validate(document, SCHEMA)
    assert {trial["heap_growth"]["types"][0]["type"] for trial in document["trials"]} == {"com.example.Ticket<b>"}
    plain = json.loads(render_json(synthetic.analysis(), None))
    assert plain["trials"][0]["heap_growth"] is None
