"""Checks of `factors`: levels, names, and how many settings they make (with `design.vary`)."""

from __future__ import annotations

from pydantic import ValidationError

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.yaml_document import Node
from powerband.files.checks.subject import check_value, is_known, unknown_name
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Subject, count_settings
from powerband.model.fields import AS_WRITTEN, field_named
from powerband.model.load import Load
from powerband.model.plan import format_level
from powerband.model.subjects import BUILT_IN, asked_by_services, templates_of
from powerband.model.templates import placeholders

_SETTINGS_MAX = 10_000


def check_factors(root: Node, subject: Subject | None, kind: LoadKind, problems: list[FileProblem]) -> None:
    """Every factor is known to the subject (or is one of the load's), has levels, each once and of the right type.

    `subject` is None where it is not valid itself: then only what needs no subject is checked."""
    levels: dict[str, tuple[Node, ...]] = {}
    for name, factor in root.at("factors").children.items():
        if not _is_list_of_levels(factor, problems):
            continue
        levels[name] = factor.items
        seen: set[str] = set()
        for level in factor.items:
            text = format_level(level.value)
            if text in seen:
                problems.append(
                    level.problem(
                        f"level {text} stands there twice; to enter a setting again as if it were different, "
                        "add a factor named aa or label.NAME, which reaches no command"
                    )
                )
            seen.add(text)
        if subject is not None and name.startswith("load."):
            _check_load_factor(name.removeprefix("load."), factor, kind, root.at("load"), problems)
        elif subject is not None and name != "aa" and not name.startswith("label."):
            _check_factor(name, factor, subject, root.at("load"), problems)
    vary = root.at("design").children.get("vary", Node("all")).value
    count = count_settings(levels, str(vary))
    if count > _SETTINGS_MAX:
        problems.append(root.children["factors"].key_problem(f"{count} settings are more than {_SETTINGS_MAX}"))


def _is_list_of_levels(factor: Node, problems: list[FileProblem]) -> bool:
    if not isinstance(factor.value, tuple):
        problems.append(factor.problem("levels are a list ([1, 2, 4]) or a range (1..64)"))
        return False
    if not factor.items:
        problems.append(factor.problem("a factor needs at least one level"))
    bad = [level for level in factor.items if not isinstance(level.value, bool | int | float | str)]
    problems.extend(level.problem("a level is a number, a text, true or false") for level in bad)
    return not bad


def _check_factor(name: str, factor: Node, subject: Subject, load: Node, problems: list[FileProblem]) -> None:
    used = placeholders(templates_of(subject)) | asked_by_services(subject)
    if name in BUILT_IN:
        problems.append(factor.key_problem(f"{name} is filled in by powerband itself; give the factor another name"))
    elif not is_known(name, subject, used):
        if name not in _in_properties(load):
            problems.append(factor.key_problem(unknown_name(name, subject, used)))
    else:
        for level in factor.items:
            check_value(level.value, level, subject, name, problems)


def _in_properties(load: Node) -> set[str]:
    """Names of factors and parameters that stand in `load.properties`."""
    values = load.at("properties").children.values()
    return placeholders([child.value for child in values if isinstance(child.value, str)])


def _check_load_factor(key: str, factor: Node, kind: LoadKind, load: Node, problems: list[FileProblem]) -> None:
    keys = [field.alias or name for name, field in Load.model_fields.items() if name not in ("scenario", "websocket")]
    if key not in keys:
        problems.append(factor.key_problem(f"load has no key {key} that can vary; {did_you_mean(key, keys)}"))
        return
    other = {"users": "rate", "rate": "users"}.get(key)
    if other and load.at(other).value is not None:
        problems.append(
            factor.key_problem(f"load sets {other}, so {key} cannot vary; users and rate exclude each other")
        )
        return
    beside = {**({} if other else {"users": 1}), **kind.beside_level}
    for level in factor.items:
        try:
            Load.model_validate({**beside, field_named(Load, key): level.value}, context=AS_WRITTEN)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]
            problems.append(level.problem(f"{format_level(level.value)} is no value for load.{key}: {reason['msg']}"))
