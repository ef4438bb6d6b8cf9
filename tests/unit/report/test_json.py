"""The machine output: valid against its published schema, and the same numbers as the Analysis."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from fakes import synthetic, synthetic_verdicts
from powerband.model.results import Answer, AnswerKind, Estimate
from powerband.report.documents.json import render_json

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/reference/analysis.schema.json").read_text())
REFERENCE = (Path(__file__).parents[3] / "docs/reference/json-output.md").read_text()


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "analysis",
    [
        synthetic.analysis(),
        synthetic.analysis(blocks=1),
        synthetic.two_factor_analysis(),
        synthetic_verdicts.race_analysis(),
    ],
)
def test_output_is_valid_and_exact(analysis: object) -> None:
    document = json.loads(render_json(analysis, Path("runs/one")))  # type: ignore[arg-type]
    jsonschema.validate(document, SCHEMA)
    assert document["run"] == str(Path("runs/one").resolve())


def test_numbers_are_not_rounded() -> None:
    analysis = synthetic.analysis()
    document = json.loads(render_json(analysis, None))
    assert document["run"] is None
    for row, result in zip(document["settings"], analysis.settings, strict=True):
        assert row["setting"] == {"id": result.setting.id, "levels": result.setting.as_dict()}
        for name, estimate in result.estimates.items():
            assert row["estimates"][name]["value"] == estimate.value
            assert row["estimates"][name]["low"] == estimate.low


def test_an_answer_without_a_setting_is_valid() -> None:
    answer = Answer(AnswerKind.NONE_VALID, None, None, (), (), ("No trial could be measured.",))
    document = json.loads(render_json(synthetic.analysis(answer=answer, settings=(), trials=()), None))
    jsonschema.validate(document, SCHEMA)


def test_what_json_cannot_hold_is_refused() -> None:
    analysis = synthetic.analysis()
    broken = replace(analysis.settings[0], estimates={"goodput_per_s": Estimate(math.nan, None, None, 0.95, 1)})
    with pytest.raises(ValueError, match="JSON"):
        render_json(replace(analysis, settings=(broken,)), None)


def test_every_field_is_documented() -> None:
    def names(schema: dict[str, object]) -> set[str]:
        found: set[str] = set()
        for key, value in schema.items():
            if key == "properties" and isinstance(value, dict):
                found |= set(value)
            if isinstance(value, dict):
                found |= names(value)
        return found

    assert {name for name in names(SCHEMA) if f"`{name}`" not in REFERENCE} == set()
