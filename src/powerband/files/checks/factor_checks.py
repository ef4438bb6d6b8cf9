"""Checks of `factors`: levels, names, and how many settings they make (with `design.vary`)."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.yaml_document import Node
from powerband.files.checks.subject_checks import check_value, is_known, unknown_name
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Subject, count_settings
from powerband.model.fields import AS_WRITTEN, field_named
from powerband.model.host_use import LIMITS, HostUse
from powerband.model.load import Load
from powerband.model.plan import format_level
from powerband.model.subjects import BUILT_IN, service_parameters, templates_of
from powerband.model.templates import placeholders

_SETTINGS_MAX = 10_000  # arbitrary: at a second each, a block would take three hours


def check_factors(root: Node, subject: Subject | None, kind: LoadKind) -> Iterator[FileProblem]:
    """Checks that every factor is known to the subject (or is one of the load's), and has levels, each once and of the
    right type.

    `subject` is None if it is not valid itself: then only what needs no subject is checked."""
    levels: dict[str, tuple[Node, ...]] = {}
    for name, factor in root.at("factors").children.items():
        bad = [level for level in factor.items if not isinstance(level.value, bool | int | float | str)]
        if not isinstance(factor.value, tuple):
            yield factor.problem("values are a list ([1, 2, 4]) or a range (1..64)")
        elif not factor.items:
            yield factor.problem("a parameter needs at least one value")
        yield from (
            level.problem("a value is a number, a text, true or false; several stand in brackets") for level in bad
        )
        if bad or not isinstance(factor.value, tuple):
            continue
        levels[name] = factor.items
        seen: dict[object, str] = {}
        for level in factor.items:
            text = format_level(level.value)
            if text in seen.values():
                yield level.problem(
                    f"value {text} stands there twice; to enter a setting again as if it were different, "
                    "add a parameter named aa or label.NAME, which reaches no command"
                )
            elif (other := seen.setdefault(level.value, text)) != text:
                yield level.problem(f"value {text} is equal to value {other}: put one of them in quotes, as a text")
        if subject is not None and name.startswith("load."):
            yield from _check_load_factor(name.removeprefix("load."), factor, kind, root.at("load"))
        elif name.startswith("host."):
            yield from _check_host_factor(name.removeprefix("host."), factor)
        elif subject is not None and name != "aa" and not name.startswith("label."):
            yield from _check_factor(name, factor, subject, root.at("load"))
    vary = root.at("design").children.get("vary", Node("all")).value
    count = count_settings(levels, str(vary))
    if count > _SETTINGS_MAX:
        yield root.children["factors"].key_problem(f"{count} settings are more than {_SETTINGS_MAX}")


def _check_factor(name: str, factor: Node, subject: Subject, load: Node) -> Iterator[FileProblem]:
    used = placeholders(templates_of(subject)) | service_parameters(subject)
    if name in BUILT_IN:
        yield factor.key_problem(f"{name} is filled in by powerband itself; give the parameter another name")
    elif not is_known(name, subject, used):
        if name not in _in_properties(load):
            yield factor.key_problem(unknown_name(name, subject, used))
    else:
        for level in factor.items:
            yield from check_value(level.value, level, subject, name)


def _in_properties(load: Node) -> set[str]:
    """Returns the names of factors and parameters in `load.properties`."""
    values = load.at("properties").children.values()
    return placeholders([child.value for child in values if isinstance(child.value, str)])


def _check_load_factor(key: str, factor: Node, kind: LoadKind, load: Node) -> Iterator[FileProblem]:
    keys = [field.alias or name for name, field in Load.model_fields.items() if name not in ("scenario", "websocket")]
    if key not in keys:
        yield factor.key_problem(f"load has no key {key} that can vary; {did_you_mean(key, keys)}")
        return
    other = {"users": "rate", "rate": "users"}.get(key)
    if other and load.at(other).value is not None:
        yield factor.key_problem(f"load sets {other}, so {key} cannot vary; users and rate exclude each other")
        return
    beside = {**({} if other else {"users": 1}), **kind.beside_level}
    for level in factor.items:
        try:
            Load.model_validate({**beside, field_named(Load, key): level.value}, context=AS_WRITTEN)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]
            yield level.problem(f"{format_level(level.value)} is no value for load.{key}: {reason['msg']}")


def _check_host_factor(key: str, factor: Node) -> Iterator[FileProblem]:
    if key not in LIMITS:
        yield factor.key_problem(f"host has no key {key} that can vary; {did_you_mean(key, LIMITS)}")
        return
    for level in factor.items:
        try:
            HostUse.model_validate({key: level.value}, context=AS_WRITTEN)
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]
            yield level.problem(f"{format_level(level.value)} is no value for host.{key}: {reason['msg']}")
