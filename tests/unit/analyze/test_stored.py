"""An analysis that is read back from its JSON is unchanged; a damaged, foreign or newer one is refused with a
sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import synthetic, synthetic_verdicts
from powerband.analyze.stored import stored_analysis
from powerband.base.errors import UsageError
from powerband.model.results import Analysis

ANALYSES = {
    "blocks": synthetic.analysis(),
    "two factors": synthetic.two_factor_analysis(),
    "race": synthetic_verdicts.explored_analysis(),
    "capacity": synthetic_verdicts.capacity_analysis(),
}


def text_of(analysis: Analysis) -> str:
    return json.dumps(analysis.to_json())


@pytest.mark.parametrize("name", list(ANALYSES))
def test_it_comes_back_as_it_was(name: str) -> None:
    assert stored_analysis(text_of(ANALYSES[name])) == ANALYSES[name]


def test_what_a_later_version_adds_is_left_out() -> None:
    data = ANALYSES["race"].to_json()
    data["mood"] = "good"
    data["settings"][0]["mood"] = {"of": ["many", 1]}
    assert stored_analysis(json.dumps(data)) == ANALYSES["race"]


def test_what_an_earlier_version_did_not_write_has_its_default() -> None:
    data = ANALYSES["blocks"].to_json()
    del data["changes"], data["noun"]
    assert stored_analysis(json.dumps(data)) == replace(ANALYSES["blocks"], changes=(), noun="request")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is damaged"),
        ("[1, 2]", "it is no analysis of a run"),
        ('{"format": 2}', "its format is 2, and this version of powerband reads 1"),
        ('{"answer": 42}', "its format is None"),
        ('{"format": 1}', "name: Field required"),
    ],
)
def test_what_is_no_analysis_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        stored_analysis(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [("settings", 3), ("settings", [3]), ("objective", "beauty_per_s"), ("margin", "wide"), ("trials", [{}]),
     ("answer", None), ("confidence", True)],
)  # fmt: skip
def test_a_field_of_another_kind_is_refused(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match="damaged, or another version wrote it"):
        stored_analysis(json.dumps({**ANALYSES["blocks"].to_json(), key: value}))


@given(st.integers(0, len(text_of(ANALYSES["blocks"])) - 1))
def test_cut_anywhere_it_is_refused_and_never_crashes(length: int) -> None:
    with pytest.raises(UsageError):
        stored_analysis(text_of(ANALYSES["blocks"])[:length])


def test_a_metric_of_the_servers_own_may_be_the_objective() -> None:
    own = replace(ANALYSES["blocks"], objective="app_messages_per_s")
    assert stored_analysis(text_of(own)) == own
