"""Check of `design.budget`."""

from __future__ import annotations

from powerband.base.errors import FileProblem
from powerband.base.units import format_duration
from powerband.base.yaml_document import Node
from powerband.model.experiment import Experiment


def check_budget(experiment: Experiment, root: Node, problems: list[FileProblem]) -> None:
    """The time for the run holds one trial of every setting that is compared, even if servers start at once."""
    budget_ns, measure = experiment.design.budget_ns, experiment.measure
    budget = root.at("design").children.get("budget")
    if budget_ns is None or budget is None:
        return
    settings = experiment.settings()
    compared = min(len(settings), experiment.design.finalists) if experiment.explores else len(settings)
    warmup_ns = measure.warmup_min_ns if measure.warmup_ns is None else measure.warmup_ns
    loads = [experiment.load_for(setting) for setting in settings]
    trial_ns = min(load.joining_ns + warmup_ns + load.duration_ns for load in loads)
    least_ns = compared * trial_ns
    if budget_ns < least_ns:
        each = f"{compared} setting{'s' if compared > 1 else ''} of at least {format_duration(trial_ns)} each"
        problems.append(
            budget.problem(
                f"{format_duration(budget_ns)} is too little for one block: {each} take {format_duration(least_ns)}, "
                "and it takes two blocks to compare anything: allow more time, name fewer levels, or shorten "
                "load.duration"
            )
        )
