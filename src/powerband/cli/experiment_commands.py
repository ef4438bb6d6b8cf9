"""The commands check, plan and list, which describe experiments without starting anything."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from powerband.base.errors import EXIT_OK, ExperimentError, FileProblem
from powerband.cli.options import (
    experiment_argument,
    experiment_options,
    format_option,
    key_options,
    load,
    parse_overrides,
    print_json,
    profile_option,
    set_option,
)

if TYPE_CHECKING:
    from powerband.model.experiment import Experiment
    from powerband.model.plan import TrialSpec
    from powerband.search.forecast import Forecast


@click.command()
@experiment_argument
@profile_option
@set_option
@format_option
def check(file_or_name: str, profile: str | None, overrides: tuple[str, ...], output: str) -> int:
    """Validate an experiment file; start nothing.

    Every profile is checked too, unless one is named.

    FILE_OR_NAME is a YAML file, or an experiment that `powerband list` names.
    """
    try:
        checked = _checked(file_or_name, profile, parse_overrides(overrides))
    except ExperimentError as error:
        if output != "json":
            raise
        print_json({"format": 1, "valid": False, "problems": [_problem(problem) for problem in error.problems]})
        return error.exit_code
    if output == "json":
        unnamed = "" if "default" in checked else "default"  # where a profile has that name
        sizes = {unnamed if name is None else name: _size(item) for name, item in checked.items()}
        print_json({"format": 1, "valid": True, "profiles": sizes})
        return EXIT_OK
    from powerband.base.units import plural
    from powerband.loads import kind_of

    for name, experiment in checked.items():
        size = _size(experiment)
        label = f"{experiment.name} (profile {name})" if name else experiment.name
        raced = experiment.design.finalists if experiment.explores else size["settings"]
        explored = f"{size['settings']:,} settings to explore, " if experiment.explores else ""
        joining = f"; {joined}" if (joined := kind_of(experiment).joining_text(experiment)) else ""
        click.echo(f"{label}: valid; {explored}{plural(raced, 'setting')} x {plural(size['blocks'], 'round')}{joining}")
    return EXIT_OK


def _checked(file_or_name: str, profile: str | None, overrides: dict[str, str]) -> dict[str | None, Experiment]:
    """The experiment under each profile, and without one under None; only under `profile` if that is named. Raises
    ExperimentError with the problems of all of them, each once."""
    from powerband.files.experiment_file import load_experiment, profile_names

    checked: dict[str | None, Experiment] = {}
    problems: dict[FileProblem, None] = {}
    for name in [profile] if profile else [None, *profile_names(file_or_name)]:
        try:
            checked[name] = load_experiment(file_or_name, name, overrides, to_run=True)
        except ExperimentError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ExperimentError.of(list(problems))
    return checked


def _problem(problem: FileProblem) -> dict[str, Any]:
    place = problem.position
    return {
        "file": place and place.file,
        "line": place and place.line,
        "column": place and place.column,
        "key": problem.key or None,
        "message": problem.message,
    }


def _size(experiment: Experiment) -> dict[str, int]:
    return {"settings": len(experiment.settings()), "blocks": experiment.measure.repeats}


@click.command()
@experiment_options
@key_options("--budget", "--regret", "--soak")
@format_option
def plan(*, output: str, **asked: Any) -> None:
    """Show the trials in their order, how long they take, and how small a difference they find.

    Starts nothing. Each round runs every setting once, in random order from the seed; in a race, settings that are
    shown worse are eliminated after a round, so there will be fewer trials.
    """
    from powerband.base.machine import known_noise
    from powerband.search.forecast import forecast
    from powerband.search.planners import dry_run
    from powerband.search.session import with_seed

    experiment = with_seed(load(**asked))
    trials = dry_run(experiment, experiment.design.seed or 0)
    expected = forecast(experiment, known_noise())
    if output == "json":
        print_json(_plan_document(experiment, trials, expected))
    else:
        click.echo(_plan_text(experiment, trials, expected))


def _plan_text(experiment: Experiment, trials: list[TrialSpec], expected: Forecast) -> str:
    from powerband.search.forecast import duration_text, run_notes, size_text

    lines = [
        f"{experiment.name}: {size_text(experiment, expected)}, seed {experiment.design.seed}",
        duration_text(experiment, expected),
        *run_notes(experiment, expected),
        "",
        "trial  round  setting",
        *(f"{trial.number:5d}  {trial.block + 1:5d}  {trial.setting.id}" for trial in trials),
    ]
    if expected.explored or experiment.objective.is_capacity:
        lines.append("What follows depends on what these show.")
    return "\n".join(lines)


def _plan_document(experiment: Experiment, trials: list[TrialSpec], expected: Forecast) -> dict[str, Any]:
    forecast = None
    if expected.reach is not None:
        forecast = asdict(expected.reach)
        margin_ns = forecast.pop("margin_ns")
        forecast["margin_s"] = None if margin_ns is None else margin_ns / 1e9
    return {
        "format": 1,
        "name": experiment.name,
        "seed": experiment.design.seed,
        "trials_max": expected.trials,
        "expected_s": expected.expected_ns / 1e9,
        "between_s": expected.between_ns and [each / 1e9 for each in expected.between_ns],
        "longest_s": expected.longest_ns / 1e9,
        "joining_s": max(load.joining_ns for load in map(experiment.load_for, experiment.settings())) / 1e9,
        "forecast": forecast,
        "trials": [trial.to_json() for trial in trials],
    }


@click.command("list")
@format_option
def list_command(output: str) -> None:
    """List the experiments and servers that come with powerband."""
    from powerband.files.shipped import shipped_experiments, shipped_subjects

    experiments, subjects = shipped_experiments(), shipped_subjects()
    if output == "json":
        print_json(
            {
                "format": 1,
                "experiments": [
                    {"name": each.name, "question": each.question, "profiles": each.profiles} for each in experiments
                ],
                "subjects": [
                    {"name": each.name, "about": each.about, "parameters": each.parameters} for each in subjects
                ],
            }
        )
        return
    names = [*(each.name for each in experiments), *(each.name for each in subjects)]
    width = max(map(len, names), default=0)
    click.echo("Experiments (powerband run NAME)")
    for experiment in experiments:
        click.echo(f"  {experiment.name:{width}}  {experiment.question}")
    click.echo("\nServers (subject: {use: NAME} in an experiment file)")
    for subject in subjects:
        click.echo(f"  {subject.name:{width}}  {subject.about}")
