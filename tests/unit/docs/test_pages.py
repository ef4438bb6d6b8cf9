"""The reference pages name every key and every option, and every example in them is valid."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from powerband.base.errors import ExperimentError
from powerband.cli import powerband
from powerband.files.experiment_file import parse_experiment
from powerband.model import experiment, load
from powerband.model.metrics import ALIASES, METRICS
from powerband.model.plan import Setting, TrialSpec
from powerband.store import TrialRecord

DOCS = Path(__file__).parents[3] / "docs" / "reference"
FILE_PAGES = ("experiment-file", "subject", "load", "websocket", "measure", "metrics")
FILE_PAGE = "\n".join((DOCS / f"{name}.md").read_text() for name in FILE_PAGES)
CLI_PAGE = (DOCS / "cli.md").read_text()

# Long forms of keys that are documented by their short form.
LONG_FORMS = {load.Constant, load.Uniform, load.Exponential}
KEYS = [
    (model.__name__, field.alias or name)
    for model in {**vars(load), **vars(experiment)}.values()
    if isinstance(model, type) and issubclass(model, BaseModel) and model not in LONG_FORMS
    for name, field in model.model_fields.items()
]


@pytest.mark.parametrize(("model", "key"), KEYS)
def test_every_key_of_a_file_is_documented(model: str, key: str) -> None:
    assert re.search(rf"`{key}`|`[^`]*\b{key}:|\b{key}: ", FILE_PAGE), f"{model}.{key} is on none of its pages"


def test_every_metric_is_documented() -> None:
    assert {name for name in (*METRICS, *ALIASES) if f"`{name}`" not in FILE_PAGE} == set()


@pytest.mark.parametrize("command", sorted(powerband.commands))
def test_every_command_has_a_section_and_no_option_that_there_is_not(command: str) -> None:
    _, _, rest = CLI_PAGE.partition(f"## powerband {command}\n")
    assert rest, f"{command} is not in cli.md"
    given = re.findall(r"`(--[a-z-]+)", rest.split("\n## ")[0])
    options = [option for made in powerband.commands.values() for each in made.params for option in each.opts]
    assert [option for option in given if option not in {*options, "--help"}] == []


def test_the_page_documents_no_command_that_there_is_not() -> None:
    assert set(re.findall(r"^## powerband (\w+)$", CLI_PAGE, re.M)) == set(powerband.commands)


def test_the_example_of_the_page_is_valid() -> None:
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", FILE_PAGE, re.S) if text.startswith("name:")]
    experiment = parse_experiment(example, "example.yaml")
    assert experiment.factors == {"threads": (4, 8, 16, 32, 64, 128)}
    assert parse_experiment(example, "example.yaml", "smoke").measure.repeats == 1


def test_the_subjects_of_the_page_are_valid() -> None:
    (examples,) = [text for text in re.findall(r"```yaml\n(.*?)```", FILE_PAGE, re.S) if text.startswith("subject:")]
    for text in re.split(r"\n(?=subject:)", examples):
        if "./my-subject" not in text:
            factors = "factors: {threads: [1]}\n" if "{threads}" in text else ""
            assert parse_experiment(f"{text}\nload: {{users: 1}}\n{factors}", "example.yaml").subject.command


def test_the_private_postgresql_of_the_page_is_valid() -> None:
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", FILE_PAGE, re.S) if "# The private" in text]
    refused = example.replace("--port {port}", "--port {port} --password {postgresql_password}")
    assert parse_experiment(f"{example}\nload: {{users: 1}}\nfactors: {{aa: [1]}}\n", "example.yaml").subject.env
    with pytest.raises(ExperimentError, match=r"subject\.env only"):
        parse_experiment(f"{refused}\nload: {{users: 1}}\nfactors: {{aa: [1]}}\n", "example.yaml")


def test_the_websocket_load_of_the_page_is_valid() -> None:
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", FILE_PAGE, re.S) if text.startswith("load:")]
    made = parse_experiment(example, "example.yaml").load
    assert made.websocket is not None and made.joining_ns == 10 * 10**9


@pytest.mark.parametrize("step", re.findall(r"^\| `(\{\w+: .*?\})` \| (plain|socketcluster)", FILE_PAGE, re.M))
def test_the_messages_of_the_page_are_valid(step: tuple[str, str]) -> None:
    dialect = "plain" if step[1] == "plain" else "socketcluster20"
    subject = 'subject: {command: "./s {port}", url: "ws://127.0.0.1:{port}/"}'
    text = f"{subject}\nload: {{users: 1, websocket: {{dialect: {dialect}}}, scenario: [{step[0]}]}}\n"
    assert parse_experiment(text, "example.yaml").load.scenario[0].message is not None


def test_every_field_of_a_trial_s_files_is_documented() -> None:
    page = (DOCS / "run-directory.md").read_text()
    spec = TrialSpec(1, 0, 1, Setting(()), 7)
    record = TrialRecord(spec, "measured", None, 0, 0, {}, None)
    assert [key for key in (*spec.to_json(), *record.to_json()) if f"`{key}`" not in page] == []
