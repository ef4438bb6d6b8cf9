"""Checks of `load` that hold for every kind of load, and of the time for its trials (`design.budget`).

The checks of one kind of load are in `loads/<kind>/checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from powerband.base.errors import ExperimentError, FileProblem
from powerband.base.units import format_duration, time_text
from powerband.base.yaml_document import Node
from powerband.loads import kind_of
from powerband.model.experiment import Experiment

SOAK_LEAST_NS = 2_000_000_000  # its second half is measured: one second, after the shortest warm-up, which is as long


def check_users_and_rate(root: Node) -> Iterator[FileProblem]:
    """Checks that either users or rate is set, not both."""
    load = root.at("load")
    users, rate = (load.at(key) for key in ("users", "rate"))
    if users.value is not None and rate.value is not None:
        where = f" (on line {users.key_position.line})" if users.key_position else ""
        yield rate.key_problem(
            f"users is set too{where}; users is the closed model, rate the open one: keep one, "
            "or set the other to null where a profile changes the model"
        )


def check_every_load(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the load of every setting is valid: the keys that vary must fit each other, and a dialect must exist.
    Reports the first setting whose load is not."""
    if not experiment.load_varies:
        return
    for setting in experiment.settings():
        try:
            experiment.load_for(setting)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]
            said = reason.get("ctx", {}).get("error", reason["msg"])
            yield root.children.get("factors", root).key_problem(f"at {setting.id}: {said}")
            return
        except (ValueError, ExperimentError) as error:
            yield root.at("load", "websocket", "dialect").problem(str(error))
            return


def check_soak(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that a soak has time for one long trial, and leaves some of the budget for the rest."""
    soak_ns, budget_ns = experiment.design.soak_ns, experiment.design.budget_ns
    soak = root.at("design").children.get("soak")
    if soak_ns is None or soak is None:
        return
    if soak_ns < SOAK_LEAST_NS:
        yield soak.problem(f"{format_duration(soak_ns)} is no long run: at least {format_duration(SOAK_LEAST_NS)}")
    elif budget_ns is not None and soak_ns >= budget_ns:
        yield soak.problem(
            f"the soak takes {time_text(soak_ns)} of a budget of {time_text(budget_ns)}, which leaves "
            "nothing to find an answer in: allow more time (design.budget), or a shorter soak"
        )
    elif experiment.load.requests_per_user is not None:
        yield soak.problem("each user sends a set number of requests (load.requests_per_user), which lasts no set time")


def check_regret(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that a bound on regret has a race to end, after one of its blocks, and that the objective is no capacity,
    which has no such bound."""
    regret = root.at("design").children.get("regret")
    if experiment.design.regret is None or regret is None:
        return
    if experiment.objective.is_capacity:
        yield regret.problem("a capacity has no such bound: leave it out, or compare under one load")
    elif experiment.design.order != "race":
        yield regret.problem("it ends a race, and this plan is fixed beforehand: set design.order to race")


def check_budget(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the time for the run suffices for one trial of every setting that is compared, even if servers start
    at once: a short one, where the race begins with short trials."""
    budget_ns = experiment.without_soak().design.budget_ns
    budget = root.at("design").children.get("budget")
    if budget_ns is None or budget is None:
        return
    settings = experiment.settings()
    compared = min(len(settings), experiment.design.finalists) if experiment.explores else len(settings)
    kind, loads = kind_of(experiment), [experiment.load_for(setting) for setting in settings]
    short_ns = experiment.screened_ns
    trial_ns = min(kind.warmup(experiment, load).shortest_ns + (short_ns or load.least_duration_ns) for load in loads)
    least_ns = compared * trial_ns
    if budget_ns < least_ns:
        rest = " beside the soak" if experiment.design.soak_ns else ""
        each = f"{compared} setting{'s' if compared > 1 else ''} of at least {format_duration(trial_ns)} each"
        cure = "or name fewer values" if short_ns else "name fewer values, or shorten load.duration"
        yield budget.problem(
            f"{format_duration(budget_ns)}{rest} is too little for one round: {each} take {format_duration(least_ns)}, "
            f"and a comparison needs two rounds: allow more time, {cure}"
        )
