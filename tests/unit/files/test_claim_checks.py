"""Claims and published figures on parameters that the server does not always read."""

from __future__ import annotations

import pytest

from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import parse_experiment
from powerband.model.experiment import Experiment

SERVER = """\
subject:
  command: [./server, "{port}", "{model}", "{threads}"]
  parameters:
    model: {type: string, default: fixed, help: x}
    threads: {type: int, default: 8, help: x, used_when: {model: [fixed]}}
factors: {model: [fixed, cached], threads: [8, 64]}
load: {users: 5}
"""


def claiming(holds: str) -> Experiment:
    claim = f'claims: [{{id: one, says: so it is, holds: "{holds}"}}]\n'
    return parse_experiment(SERVER + claim, "x.yaml", to_run=True)


@pytest.mark.parametrize("before", ["", "goodput[model=fixed,threads=8] < goodput[model=fixed,threads=64] and "])
def test_a_claim_that_compares_a_setting_with_itself_is_refused(before: str) -> None:
    with pytest.raises(ExperimentError, match="compares a setting with itself"):
        claiming(f"{before}goodput[model=cached,threads=8] < goodput[model=cached,threads=64]")


@pytest.mark.parametrize(
    "holds",
    [
        "goodput[threads=8] < goodput[threads=64]",
        "goodput[model=cached,threads=64] > goodput[model=fixed,threads=64]",
        "goodput[model=cached] > goodput[model=fixed]",
        "goodput[model=cached,threads=64] > 10/s",
    ],
)
def test_a_claim_may_name_values_that_the_server_does_not_read(holds: str) -> None:
    assert claiming(holds).claims[0].holds == holds


@pytest.mark.parametrize("overrides", [{"factors.threads": "[8, 16]"}, {"factors": "{threads: [8, 16]}"}])
def test_a_claim_on_a_value_that_was_set_otherwise_may_be_left_out(overrides: dict[str, str]) -> None:
    text = SERVER + 'claims: [{id: one, says: so it is, holds: "goodput[threads=64] > 1/s"}]\n'
    with pytest.raises(ExperimentError, match=r"no value 64; .*--set 'claims=\[\]'"):
        parse_experiment(text, "x.yaml", None, overrides)
    assert parse_experiment(text, "x.yaml", None, {**overrides, "claims": "[]"}).claims == ()
    with pytest.raises(ExperimentError) as error:
        parse_experiment(text.replace("=64", "=65"), "x.yaml", None, {"load.users": "6"})
    assert "--set" not in str(error.value), "the file's own mistake"


def test_a_setting_stands_for_those_that_differ_in_what_is_not_read() -> None:
    made = claiming("goodput > 1/s")
    assert {of.id: stands.id for of, stands in made.kept().items()} == {
        "model=fixed,threads=8": "model=fixed,threads=8",
        "model=fixed,threads=64": "model=fixed,threads=64",
        "model=cached,threads=8": "model=cached,threads=8",
        "model=cached,threads=64": "model=cached,threads=8",
    }
    assert made.settings() == list(dict.fromkeys(made.kept().values()))
