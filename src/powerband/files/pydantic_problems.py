"""Turns pydantic's errors into problems with a place, in words for people, with the nearest correct spelling."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.yaml_document import Node, join
from powerband.files.step_forms import MESSAGE_KEYS, METHODS
from powerband.model.experiment import Objective, Subject
from powerband.model.load import Step

# Keys that a file may contain besides the fields of the model: short forms, which are gone before the model sees them.
_SHORT_FORMS: dict[type[BaseModel], tuple[str, ...]] = {
    Step: (*METHODS, *MESSAGE_KEYS),
    Objective: ("maximise", "minimise"),
    Subject: ("use",),
}


_SHOWN_MAX = 200  # characters of a wrong value: arbitrary, what fits a message
Location = tuple[int | str, ...]


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    root: Node,
    reported: Sequence[FileProblem] = (),
    ignore: Collection[Location] = (),
) -> Iterator[FileProblem]:
    """Yields one problem for each place, except for the places of `reported` and of `ignore`."""
    seen = {(problem.key, problem.position) for problem in reported}
    details = error.errors(include_url=False)
    for detail in details:
        location = detail["loc"]
        # If an entry of a list is wrong, pydantic goes on as if the list did not have it, and may then call the list
        # too short.
        follows = detail["type"] == "too_short" and bool(_node_at(root, location).items)
        problem = _problem(detail, model, root)
        place = (problem.key, problem.position)
        if location not in ignore and place not in seen and not follows:
            yield problem
        seen.add(place)


def _problem(detail: ErrorDetails, model: type[BaseModel], root: Node) -> FileProblem:
    node = _node_at(root, detail["loc"])
    match detail["type"]:
        case "missing":
            return FileProblem("required, but missing", join(node.key, str(detail["loc"][-1])), node.position)
        case "extra_forbidden":
            known = _known_keys(model, detail["loc"][:-1])
            return node.key_problem(f"unknown key; {did_you_mean(str(detail['loc'][-1]), known)}")
    return node.problem(_words(detail))


def _node_at(root: Node, location: Location) -> Node:
    """Returns the deepest node on the path. A union's tag is no node, nor is an index where one value stands for a
    list."""
    node = root
    for part in location:
        if isinstance(part, str):
            node = node.children.get(part, node)
        elif part < len(node.items):
            node = node.items[part]
    return node


def _known_keys(model: type[BaseModel], location: Location) -> list[str]:
    current: Any = model
    for part in location:
        current = _inside(current, part)
    models = [option for option in _union(current) if isinstance(option, type) and issubclass(option, BaseModel)]
    current = models[0] if models else current
    if not (isinstance(current, type) and issubclass(current, BaseModel)):
        return []
    fields = [field.alias or name for name, field in current.model_fields.items()]
    return [*_SHORT_FORMS.get(current, ()), *fields]


def _inside(annotation: Any, part: int | str) -> Any:
    """Returns the type of an entry of a type; None if it is unknown."""
    options = [option for option in _union(annotation) if option is not type(None)]
    for option in options:
        arguments = typing.get_args(option)
        if isinstance(option, type) and issubclass(option, BaseModel):
            for name, field in option.model_fields.items():
                if part == (field.alias or name):
                    return field.annotation
            tag = option.model_fields.get("kind")
            if part in (option.__name__, tag and tag.default):
                return option
        elif isinstance(part, int) and typing.get_origin(option) is tuple:
            return arguments[0]
        elif typing.get_origin(option) is dict:
            return arguments[1]
    return None


def _union(annotation: Any) -> list[Any]:
    """Returns the alternatives of a type, without their annotations."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _union(typing.get_args(annotation)[0])
    if type(annotation).__name__ in ("UnionType", "_UnionGenericAlias", "Union"):
        return [option for part in typing.get_args(annotation) for option in _union(part)]
    return [annotation]


def _words(detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    if len(shown) > _SHOWN_MAX:
        shown = f"{shown[:_SHOWN_MAX]}..."
    if kind == "value_error":
        return str(context["error"])
    if value is None:
        return "it has no value: write one, or leave the key out"
    if kind == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        return f"{shown} is not allowed; {did_you_mean(str(value), allowed)}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(detail["loc"][-1], f"{shown} has the wrong form")
    if kind in _WORDS:
        return _WORDS[kind].format(shown=shown, **context)
    return detail["msg"][:1].lower() + detail["msg"][1:]


_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "{shown} is no whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "{shown} is no number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "{shown} must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "{shown} must be a list"),
    **dict.fromkeys(
        ("dict_type", "model_type", "model_attributes_type"), "{shown} must be a mapping of keys to values"
    ),
    "string_type": "{shown} must be text; put it in quotes",
    "too_short": "must not be empty",
    "greater_than": "{shown} must be above {gt}",
    "greater_than_equal": "{shown} must be at least {ge}",
    "less_than": "{shown} must be below {lt}",
    "less_than_equal": "{shown} must be at most {le}",
}
_PATTERNS: dict[int | str, str] = {
    "path": "a path starts with / and holds no space, for example /test?id=1",
    "method": "a method is written in capital letters, for example GET",
}
