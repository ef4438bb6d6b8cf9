"""Every experiment and subject that comes with powerband loads, in each of its profiles."""

from collections import Counter
from contextlib import nullcontext

import pytest

from powerband.base.errors import ExperimentError, UsageError
from powerband.base.machine import known_noise
from powerband.files.experiment_file import load_experiment, load_subject, parse_experiment, profile_names
from powerband.files.library import experiment_names, find_experiment, subject_names
from powerband.files.resolved import resolved_yaml
from powerband.files.shipped import shipped_experiments, shipped_subjects
from powerband.model.plan import Setting
from powerband.model.subjects import ADDRESS, BUILT_IN, render_command, render_env, render_text
from powerband.search.forecast import forecast
from powerband.search.planners import dry_run

JVM_START_S = 1.0
NIGHT_S = 8 * 3600
GIVEN = dict.fromkeys(BUILT_IN, "given")
CASES = [(each.name, profile) for each in shipped_experiments() for profile in (None, *each.profiles)]


def test_there_are_experiments_and_subjects() -> None:
    assert {"quickstart", "pool-vs-event-loop", "queue-and-rejection", "a-a"} <= set(experiment_names())
    assert "reference" in subject_names()


@pytest.mark.parametrize(("name", "profile"), CASES)
def test_experiment_loads_renders_and_resolves(name: str, profile: str | None) -> None:
    experiment = load_experiment(name, profile)
    assert experiment.name == name
    assert experiment.question.endswith("?")
    for setting in experiment.settings():
        assert "{" not in "".join(render_command(experiment.subject, setting, GIVEN))
        experiment.load_for(setting)
    assert parse_experiment(resolved_yaml(experiment), "experiment.yaml") == experiment


@pytest.mark.parametrize("name", experiment_names())
def test_experiment_has_a_smoke_profile(name: str) -> None:
    assert "smoke" in profile_names(name)


@pytest.mark.parametrize("name", experiment_names())
@pytest.mark.parametrize(("profile", "longest_s"), [(None, 900), ("smoke", 60)])
def test_experiment_ends_in_time(name: str, profile: str | None, longest_s: float) -> None:
    """The forecast and the starts of a JVM must fit into the time. A load with a set number of requests is exempt,
    since its duration is the result."""
    experiment = load_experiment(name, profile)
    found = forecast(experiment, known_noise())
    assert experiment.load.requests_per_user or found.expected_ns / 1e9 + found.trials * JVM_START_S <= longest_s


@pytest.mark.parametrize("name", [name for name, profile in CASES if profile == "published"])
def test_a_published_profile_is_planned_and_ends_within_a_night(name: str) -> None:
    """The test does not ask whether this machine can bear the load: `plan` says that."""
    experiment = load_experiment(name, "published", to_run=True)
    blocks = Counter(spec.setting for spec in dry_run(experiment, seed=7))
    if not experiment.explores:
        assert blocks == dict.fromkeys(experiment.settings(), experiment.measure.repeats)
    found = forecast(experiment, known_noise())
    assert blocks and (experiment.load.requests_per_user or found.expected_ns / 1e9 <= NIGHT_S)


@pytest.mark.parametrize("name", subject_names())
def test_subject_loads_and_renders_with_its_defaults(name: str) -> None:
    subject = load_subject(name)
    command = render_command(subject, Setting(()), GIVEN)
    assert command
    assert render_env(subject, Setting(()), GIVEN).keys() == subject.env.keys()


def test_each_subject_that_is_loaded_listens_on_the_address_that_it_is_given() -> None:
    given = {**GIVEN, ADDRESS: "10.0.0.9"}
    for subject in map(load_subject, subject_names()):
        if subject.counts is None:
            assert "10.0.0.9" in " ".join(render_command(subject, Setting(()), given)), subject.name
            assert "://10.0.0.9:given/" in render_text(subject, Setting(()), given, subject.url), subject.name


@pytest.mark.parametrize("name", experiment_names())
def test_other_nodes_can_load_each_experiment_but_those_that_drive_themselves(name: str) -> None:
    self_driven = load_experiment(name).subject.counts is not None
    with pytest.raises(ExperimentError, match="this server drives itself") if self_driven else nullcontext():
        assert load_experiment(name, None, {"cluster.generators": "1"}).generators == 1


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("quickstrat", "did you mean quickstart?"),
        ("missing.yaml", "there is no file missing.yaml"),
        (".", "is a folder"),
    ],
)
def test_what_does_not_exist_is_named(wanted: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        find_experiment(wanted)


def test_what_is_listed_unchecked_is_what_a_check_reads() -> None:
    assert [each.name for each in shipped_experiments()] == experiment_names()
    for shown in shipped_experiments():
        assert (shown.question, list(shown.profiles)) == (
            load_experiment(shown.name).question,
            profile_names(shown.name),
        )
    assert [each.name for each in shipped_subjects()] == subject_names()
    for told in shipped_subjects():
        subject = load_subject(told.name)
        assert (told.about, list(told.parameters)) == (subject.about, sorted(subject.parameters))
