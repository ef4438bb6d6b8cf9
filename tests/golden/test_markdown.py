"""The answer for a pull request, word for word. `make golden` writes the files anew; read the diff before a commit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes import synthetic, synthetic_verdicts
from powerband.report.documents.markdown import render_markdown

HERE = Path(__file__).parent
ANSWERS = {
    "answer": synthetic.analysis,
    "answer-race": synthetic_verdicts.race_analysis,
    "answer-capacity": synthetic_verdicts.capacity_analysis,
}


@pytest.mark.parametrize("name", list(ANSWERS))
def test_the_answer_as_markdown(name: str) -> None:
    golden = HERE / f"{name}.md"
    text = render_markdown(ANSWERS[name](), None)
    if os.environ.get("POWERBAND_UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert text == golden.read_text()
