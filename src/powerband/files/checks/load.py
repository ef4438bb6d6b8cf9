"""Checks of `load` that hold for every kind of it; what a kind has of its own is `loads/<kind>/checks.py`."""

from __future__ import annotations

from pydantic import ValidationError

from powerband.base.errors import ExperimentError, FileProblem
from powerband.base.yaml_document import Node
from powerband.model.experiment import Experiment


def check_users_and_rate(root: Node, problems: list[FileProblem]) -> bool:
    """Whether users and rate are both set, which is a problem."""
    load = root.at("load")
    users, rate = (load.at(key) for key in ("users", "rate"))
    both = users.value is not None and rate.value is not None
    if both:
        where = f" (on line {users.key_position.line})" if users.key_position else ""
        problems.append(
            rate.key_problem(
                f"users is set too{where}; users is the closed model, rate the open one: keep one, "
                "or set the other to null where a profile changes the model"
            )
        )
    return both


def check_every_load(experiment: Experiment, root: Node, problems: list[FileProblem]) -> None:
    """The load of every setting is valid: keys that vary go together, a dialect is one. Names the first that is not."""
    if not experiment.load_varies:
        return
    for setting in experiment.settings():
        try:
            experiment.load_for(setting)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]
            said = reason.get("ctx", {}).get("error", reason["msg"])
            problems.append(root.children.get("factors", root).key_problem(f"at {setting.id}: {said}"))
            return
        except (ValueError, ExperimentError) as error:
            problems.append(root.at("load", "websocket", "dialect").problem(str(error)))
            return
