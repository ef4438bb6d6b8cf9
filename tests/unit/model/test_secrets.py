"""Secrets are used and kept, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.trials import Figures, record_of, spec, write_trial
from powerband.base.errors import ExperimentError
from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.secrets import HIDDEN, command_without_secrets, text_without_secrets, without_secrets
from powerband.report.documents.markdown import render_markdown
from powerband.report.html.report import write_report
from powerband.search.session import analyse_run
from powerband.store import RunDir

SECRETS = ("tiger-1", "tiger-2", "tiger-3", "tiger-4", "tiger-5")
OPTIONS = [
    ("--spring.datasource.password=tiger-9", "--spring.datasource.password=(hidden)"),
    ("-Ddb.password=tiger-9", "-Ddb.password=(hidden)"),
    ("SHOP_PASSWORD=tiger-9", "SHOP_PASSWORD=(hidden)"),
    ("Authorization: Basic tiger-9", "Authorization: (hidden)"),
    ("java -Ddb.password=tiger-9 -jar shop.jar", "java -Ddb.password=(hidden)"),
    ("psql --password tiger-9", "psql --password (hidden)"),
    ("cd shop && DB_PASSWORD=tiger-9 exec ./shop", "cd shop && DB_PASSWORD=(hidden)"),
    ("sh -c 'API_TOKEN=tiger-9 ./shop'", "sh -c 'API_TOKEN=(hidden)"),
    ("exec ./shop MAX_TOKENS=5 if token == 3", "exec ./shop MAX_TOKENS=5 if token == 3"),
    ("server --password --port 80", "server --password --port 80"),
    ("the token is in a file", "the token is in a file"),
    ("--password==tiger-9", "--password=(hidden)"),
    ("psql --password -tiger-9", "psql --password (hidden)"),
    ("psql --password=1234", "psql --password=(hidden)"),
    ("--max-tokens={threads}", "--max-tokens={threads}"),
    ("srv --max-tokens {threads} --token tiger-9", "srv --max-tokens {threads} --token (hidden)"),
    ("/login?token=tiger-9&next=/", "/login?token=(hidden)"),
    ("RAILS_MASTER_KEY=tiger-9", "RAILS_MASTER_KEY=(hidden)"),
    ("Ocp-Apim-Subscription-Key: tiger-9", "Ocp-Apim-Subscription-Key: (hidden)"),
    ("sh -c 'REDIS_AUTH=tiger-9 ./shop'", "sh -c 'REDIS_AUTH=(hidden)"),
    ("AccountName=shop;AccountKey=tiger-9==;Suffix=net", "AccountName=shop;AccountKey=(hidden)"),
    ("srv --keys 4 --license-key tiger-9", "srv --keys 4 --license-key (hidden)"),
    ("KEYSPACE=a key_count=a sort.key.size=a monkey=a", "KEYSPACE=a key_count=a sort.key.size=a monkey=a"),
    ("srv --sort-key {threads} --key 10 key=1..64", "srv --sort-key {threads} --key 10 key=1..64"),
]
FILE = """
name: with-secrets
subject:
  command: [server, "--api-token=tiger-1", "{threads}", "{port}"]
  url: http://127.0.0.1:{port}/
  env: {DB_PASSWORD: tiger-2, DATABASE_URL: "postgres://ann:tiger-3@db/shop", MODE: fast}
factors: {threads: [1, 2]}
load:
  users: 2
  duration: 1s
  scenario: [{headers: {Authorization: Bearer tiger-4, Accept: text/html, Cookie: id=tiger-5}}]
"""


def test_what_is_shown_holds_no_secret_and_everything_else() -> None:
    experiment = parse_experiment(FILE, "with-secrets")
    shown = resolved_yaml(without_secrets(experiment))
    assert not any(secret in shown for secret in SECRETS)
    assert shown.count(HIDDEN) == 5 and "text/html" in shown and "postgres://ann:" in shown and "fast" in shown
    assert without_secrets(without_secrets(experiment)) == without_secrets(experiment)


def test_a_file_that_no_longer_reads_shows_no_secret_either() -> None:
    shown = text_without_secrets(resolved_yaml(parse_experiment(FILE, "x")))
    assert not any(secret in shown for secret in SECRETS) and "threads" in shown


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("--env=DB_PASSWORD=tiger-2", "--env=DB_PASSWORD=(hidden)"),
        ("Authorization: Bearer tiger-4", "Authorization: (hidden)"),
        ("--set=subject.env.DB_PASSWORD=tiger-2", "--set=subject.env.DB_PASSWORD=(hidden)"),
        ("DATABASE_URL=postgres://ann:tiger-3@db/shop", "DATABASE_URL=postgres://ann:(hidden)@db/shop"),
        ("--api-token=tiger-1", "--api-token=(hidden)"),
        ("MODE=fast", "MODE=fast"),
        ('{"user": "ann", "password": "tiger 9\\" 9", "x": 1}', '{"user": "ann", "password": "(hidden)", "x": 1}'),
        ('{"password":"{n}","max_tokens":"9","api-key" :"tiger-9"}',
         '{"password":"{n}","max_tokens":"9","api-key" :"(hidden)"}'),
        ('{"key": "tiger-9", "keys": "shop"}', '{"key": "(hidden)", "keys": "shop"}'),
        *OPTIONS,
    ],
)  # fmt: skip
def test_a_command_line_is_shown_without_secrets(typed: str, shown: str) -> None:
    assert command_without_secrets([typed], parse_experiment(FILE, "with-secrets")) == [shown]


@pytest.mark.parametrize(("written", "shown"), OPTIONS)
def test_a_servers_command_is_shown_without_secrets(written: str, shown: str) -> None:
    experiment = parse_experiment(FILE.replace("--api-token=tiger-1", written), "with-secrets")
    assert (without_secrets(experiment).subject.command or ())[1] == shown


def test_the_word_after_an_option_that_asks_for_a_secret_is_hidden() -> None:
    typed = ["tune", "--", "server", "--password", "tiger-9", "--port", "80", "-Dapi.token", "tiger-9", "--token", "-v"]
    shown = ["tune", "--", "server", "--password", HIDDEN, "--port", "80", "-Dapi.token", HIDDEN, "--token", "-v"]
    experiment = parse_experiment(FILE, "with-secrets")
    assert command_without_secrets(typed, experiment) == shown
    subject = experiment.subject.model_copy(update={"command": tuple(typed)})
    told = without_secrets(experiment.model_copy(update={"subject": subject}))
    assert told.subject.command == tuple(shown)


def test_parameters_and_their_levels_are_shown() -> None:
    typed = ["-P", "max_tokens=256..4096", "-P", "passes=1,2", "-P", "bypass=on,off", "--max-tokens", "{max_tokens}"]
    experiment = parse_experiment(FILE.replace("MODE: fast", "MODE: fast, MAX_TOKENS: '4096'"), "with-secrets")
    assert command_without_secrets(typed, experiment) == typed
    assert without_secrets(experiment).subject.env["MAX_TOKENS"] == "4096"
    keyed = parse_experiment(FILE.replace("MODE: fast", "MODE: fast, SORT_KEY: id"), "with-secrets")
    assert command_without_secrets(["--env", "SORT_KEY=id"], keyed)[1] == f"SORT_KEY={HIDDEN}"
    assert "drain" not in resolved_yaml(without_secrets(keyed)), "it follows the timeout"
    hidden = command_without_secrets(["--password", "-tiger-9", "--password", "1234"], experiment)
    assert hidden == ["--password", HIDDEN, "--password", HIDDEN]


@pytest.mark.parametrize(
    ("subject", "load", "typed"),
    [
        ("'{password}', '{pool}'], set: {password: tiger-9, pool: 4}", "users: 1",
         "subject.set={password: tiger-9, pool: 4}"),
        ("'{app_key}', '{pool}'], parameters: {app_key: {type: string, default: tiger-9, help: x}, "
         "pool: {type: int, default: 4, help: x}}", "users: 1",
         "subject.parameters={app_key: {default: tiger-9}, pool: {default: 4}}"),
        ("s]", "jmeter: x.jmx, properties: {pwd: tiger-9, pool: '4'}", "load.properties={pwd: tiger-9, pool: '4'}"),
        ("s]", """users: 4, scenario: [{post: /pool, body: '{"secret":"tiger-9"}'}]""", '{"pool":4,"pwd":"tiger-9"}'),
    ],
)  # fmt: skip
def test_parameters_properties_and_bodies_are_shown_without_secrets(subject: str, load: str, typed: str) -> None:
    experiment = parse_experiment(f"{{subject: {{command: [x, '{{port}}', {subject}}}, load: {{{load}}}}}", "x")
    (command,) = command_without_secrets([typed], experiment)
    for shown in (resolved_yaml(without_secrets(experiment)), command):
        assert "tiger" not in shown and HIDDEN in shown and "pool" in shown and "4" in shown


def test_report_and_markdown_hide_what_the_run_directory_keeps(tmp_path: Path) -> None:
    experiment = parse_experiment(FILE, "with-secrets")
    command = command_without_secrets(["powerband", "tune", "--env", "DB_PASSWORD=tiger-2"], experiment)
    run = RunDir.create(tmp_path, experiment.name, resolved_yaml(experiment), {"command": command})
    write_trial(run.trial(1), record_of(spec({"threads": 1}), Figures()), Figures())
    analysis = analyse_run(experiment, run)
    report = write_report(run, analysis).read_text()
    texts = (report, render_markdown(analysis, run), run.host.read_text())
    assert not [secret for secret in SECRETS for text in texts if secret in text]
    assert all(secret in run.experiment.read_text() for secret in SECRETS)
    assert "cannot be run as it is" in report and "<code>subject.env.DB_PASSWORD</code>" in report
    assert "Save this experiment without its secrets" in report


def test_what_a_report_hides_has_to_be_written_in_before_it_runs() -> None:
    experiment = parse_experiment(FILE, "with-secrets", to_run=True)
    assert parse_experiment(resolved_yaml(experiment), "with-secrets", to_run=True) == experiment
    shown = resolved_yaml(without_secrets(experiment))
    with pytest.raises(ExperimentError, match=r"shows \(hidden\) here in place of a secret") as caught:
        parse_experiment(shown, "with-secrets", to_run=True)
    assert {problem.key for problem in caught.value.problems} == {
        "subject.command[1]",
        "subject.env.DB_PASSWORD",
        "subject.env.DATABASE_URL",
        "load.scenario[0].headers[0][1]",
        "load.scenario[0].headers[2][1]",
    }
    assert parse_experiment(shown, "with-secrets") == without_secrets(experiment)  # an earlier run can be read


def test_a_page_may_have_the_word_for_what_is_hidden() -> None:
    asked = FILE.replace("scenario: [{", 'scenario: [{name: "token=(hidden)", expect: (hidden), ')
    (step,) = parse_experiment(asked, "with-secrets", to_run=True).load.scenario
    assert step.checks.body_contains == (HIDDEN,)


@pytest.mark.parametrize("value", ["Bearer {env:API_TOKEN}", "{env:API_TOKEN}", "token={env:API_TOKEN}"])
def test_a_variable_of_the_environment_is_no_secret(value: str) -> None:
    experiment = parse_experiment(FILE.replace("Bearer tiger-4", f'"{value}"'), "with-secrets")
    (step,) = without_secrets(experiment).load.scenario
    assert dict(step.headers)["Authorization"] == value
    typed = ["-H", f"Authorization: {value}"]
    assert command_without_secrets(typed, experiment) == typed
    assert without_secrets(f"Authorization: {value}tiger-9") == f"Authorization: {HIDDEN}"


def test_the_names_of_steps_hold_no_secret() -> None:
    experiment = parse_experiment(
        """
name: x
subject:
  command: [./s, "{port}"]
  url: "http://127.0.0.1:{port}/a?token=tiger-7"
  apply: [{post: "/n?b=1&api_key=tiger-8"}]
load: {users: 1}
""",
        "x",
    )
    steps = (*experiment.load.scenario, *experiment.subject.apply)
    assert [step.name for step in steps] == ["GET /a?token=(hidden)", "POST /n?b=1&api_key=(hidden)"]
    assert [step.path for step in steps] == ["/a?token=tiger-7", "/n?b=1&api_key=tiger-8"]
    assert parse_experiment(resolved_yaml(experiment), "x", to_run=True) == experiment
