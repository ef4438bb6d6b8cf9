"""Reads experiment and subject files; every error names file, line, column, key and the nearest right spelling.

Text becomes a tree of nodes that know their place; profile and overrides are laid over it; short forms become the
models' own form, each value keeping its place; then the models check it. All errors are reported together.
What values mean is the models' business (experiment.py); writing a resolved experiment is `resolved.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from powerband.base.errors import ExperimentError, FileProblem, UsageError, did_you_mean
from powerband.base.hosts import is_websocket, request_target
from powerband.base.yaml_document import Node, from_plain, join, merge, parse_yaml
from powerband.files.capacity_checks import check_capacity
from powerband.files.experiment_checks import (
    SOME_GIVEN,
    check_budget,
    check_claims,
    check_every_load,
    check_factors,
    check_load,
    check_own_metrics,
    check_published,
    check_subject,
    check_url,
)
from powerband.files.levels import parse_range
from powerband.files.library import find_experiment, find_subject
from powerband.files.pydantic_problems import Location, problems_of
from powerband.files.step_forms import full_step, with_steps
from powerband.loads.counted.checks import check_counter, check_self_driven, is_self_driven
from powerband.loads.jmeter.checks import check_jmeter, check_plan, is_jmeter
from powerband.loads.websocket.checks import check_websocket
from powerband.model.experiment import Experiment, Subject
from powerband.model.fields import AS_WRITTEN

Model = TypeVar("Model", Experiment, Subject)


def load_experiment(
    path_or_name: str | Path,
    profile: str | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    to_run: bool = False,
) -> Experiment:
    """The experiment of a file, or of a name that comes with powerband, with every default filled in.

    `overrides` maps dotted keys to YAML text (`{"load.users": "8"}`). `to_run`: what it needs besides the file, a
    JMeter plan, is looked at too; an old run is read without. Raises ExperimentError with everything that is wrong;
    UsageError for a file or profile that does not exist."""
    path = find_experiment(path_or_name)
    file = str(path_or_name if path == Path(path_or_name) else path)
    return parse_experiment(_read(path), file, profile, overrides, to_run=to_run)


def parse_experiment(
    text: str,
    file: str,
    profile: str | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    to_run: bool = False,
) -> Experiment:
    """As `load_experiment`; relative paths within the text are relative to the folder of `file`."""
    problems: list[FileProblem] = []
    root = parse_yaml(text, file, problems)
    return _complete(root, problems, Path(file), profile, overrides or {}, to_run=to_run)


def experiment_of(
    values: Mapping[str, object], profile: str | None = None, overrides: Mapping[str, str] | None = None
) -> Experiment:
    """As `load_experiment`, of what a file would hold, as plain values: errors name the key alone, and relative paths
    are relative to the current folder."""
    return _complete(from_plain(values, "", None), [], Path("experiment"), profile, overrides or {}, to_run=True)


def profile_names(path_or_name: str | Path) -> list[str]:
    """The profiles that an experiment file defines, in its order."""
    path = find_experiment(path_or_name)
    return list(parse_yaml(_read(path), str(path), []).children.get("profiles", Node({})).children)


def load_subject(name: str, beside: Path = Path()) -> Subject:
    """A subject that comes with powerband, or of a folder. Raises ExperimentError."""
    problems: list[FileProblem] = []
    node = _subject(Node({"use": Node(name, "subject")}, "subject"), problems, beside)
    subject = _checked(Subject, node, problems)
    if node is not None and subject is not None:
        check_subject(subject, node, (), problems)
    if problems or subject is None:
        raise ExperimentError.of(problems)
    return subject


def build_experiment(root: Node, problems: list[FileProblem], folder: Path, *, to_run: bool = False) -> Experiment:
    """From a tree to an Experiment; `folder` is what relative paths are relative to; `to_run`: as in `load_experiment`.

    Raises ExperimentError with `problems` and all that are found here."""
    subject_node = _subject(root.children["subject"], problems, folder) if "subject" in root.children else None
    subject_node = None if subject_node is None else with_steps(subject_node, "apply", problems)
    changes: dict[str, Node | None] = {"profiles": None}
    changes["subject"] = subject_node
    changes["factors"] = _factors(root.children["factors"], problems) if "factors" in root.children else None
    changes["load"] = _load(root.children["load"], problems, folder) if "load" in root.children else None
    changes["measure"] = _measure(root.children["measure"], problems) if "measure" in root.children else None
    changes["objective"] = _objective(root.children["objective"], problems) if "objective" in root.children else None
    node = root.with_children(changes)
    if is_self_driven(subject_node):
        node = check_self_driven(node, problems)

    amiss = False
    subject = _provisional_subject(subject_node)
    if subject is None and is_jmeter(node):
        node = check_jmeter(node, None, problems)
    if subject is not None and subject_node is not None:
        check_subject(subject, subject_node, tuple(node.children.get("factors", Node({})).children), problems)
        if is_jmeter(node):
            node = check_jmeter(node, subject, problems)
        elif subject.counts is None:
            before = len(problems)
            node = check_websocket(_default_scenario(node, subject), subject.url, problems)
            amiss = len(problems) > before
    check_factors(node, subject, problems)
    check_claims(node, problems)
    node = check_capacity(node, problems)
    reported: list[Location] = [("subject",)] if "subject" in root.children and subject_node is None else []
    if check_load(node, problems) or amiss:
        reported.append(("load",))
    experiment = _checked(Experiment, node, problems, reported)
    if experiment is not None and subject_node is not None and not problems:
        check_url(experiment, subject_node, problems)
        check_counter(experiment, SOME_GIVEN, subject_node, problems)
        check_every_load(experiment, node, problems)
    if experiment is not None and to_run and not problems:
        check_plan(experiment, node, problems)
    if experiment is not None and not problems:
        check_budget(experiment, node, problems)
        check_own_metrics(experiment, node, problems)
        check_published(experiment, node, problems)
    if problems or experiment is None:
        raise ExperimentError.of(problems)
    return experiment


def _complete(
    root: Node,
    problems: list[FileProblem],
    file: Path,
    profile: str | None,
    overrides: Mapping[str, str],
    *,
    to_run: bool,
) -> Experiment:
    if not isinstance(root.value, dict):
        raise ExperimentError("an experiment is a mapping: keys such as name, subject, load", position=root.position)
    root = _apply_profile(root, profile, str(file))
    for key, value in overrides.items():
        root = merge(root, _override(key, value))
    if "name" not in root.children:
        root = root.with_children({"name": root.child("name", file.stem)})
    return build_experiment(root, problems, file.parent, to_run=to_run)


def _provisional_subject(node: Node | None) -> Subject | None:
    """The subject as far as templates need it, so that an error elsewhere in it hides none of theirs."""
    if node is None:
        return None
    without: tuple[str, ...] = ()
    for more in ((), ("ready", "stop", "build"), ("metrics_url", "visitor_url")):
        without += more
        needed = Node({key: child for key, child in node.children.items() if key not in without})
        if (subject := _checked(Subject, needed, [])) is not None:
            return subject
    return None


def _default_scenario(root: Node, subject: Subject) -> Node:
    """Without a scenario the load is one GET of the url's own path; over a WebSocket nobody knows what to send."""
    load = root.children.get("load")
    if load is None or not isinstance(load.value, dict) or "scenario" in load.children or is_websocket(subject.url):
        return root
    path = request_target(subject.url)
    return root.with_children(
        {"load": load.with_children({"scenario": load.child("scenario", [{"name": f"GET {path}", "path": path}])})}
    )


def _checked(
    model: type[Model], node: Node | None, problems: list[FileProblem], ignore: Collection[Location] = ()
) -> Model | None:
    """The validated model; None, with problems added, where it is not valid. `ignore`: places reported already."""
    try:
        return model.model_validate(None if node is None else node.plain(), context=AS_WRITTEN)
    except ValidationError as error:
        if node is not None:
            problems.extend(problems_of(error, model, node, tuple(problems), ignore))
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ExperimentError(f"{path} is not UTF-8 text (byte {error.start}): {error.reason}") from None


def _apply_profile(root: Node, profile: str | None, file: str) -> Node:
    if profile is None:
        return root
    profiles = root.children.get("profiles", Node({})).children
    if profile not in profiles:
        raise UsageError(f"{file} has no profile {profile}; {did_you_mean(profile, profiles)}")
    return merge(root, profiles[profile]).with_children({"profile": root.child("profile", profile)})


def _override(key: str, text: str) -> Node:
    """One `--set key=value` as a tree that can be laid over the file."""
    label = f"--set {key}={text}"
    try:
        value = parse_yaml(text, label, []).plain() if text.strip() else None
    except ExperimentError as error:
        raise UsageError(f"{label}: the value is no YAML: {error}") from None
    # A factor's or parameter's own name may hold dots (factors.load.users).
    parts = key.split(".", 1) if key.startswith("factors.") else key.split(".")
    node = from_plain(value, label, None)
    for part in reversed(parts):
        node = Node({part: _labelled(node, label)}, label)
    return node


def _labelled(node: Node, label: str) -> Node:
    return Node(node.value, label, node.position)


def _subject(node: Node, problems: list[FileProblem], folder: Path) -> Node | None:
    """The subject with what it uses laid under it; None where that does not exist (a problem says so)."""
    if isinstance(node.value, str):
        node = Node({"use": node}, node.key, node.position)
    use = node.children.get("use")
    if use is None:
        return _named(_rooted(node, folder))
    try:
        file = find_subject(str(use.plain()), folder)
    except ValueError as error:
        problems.append(use.problem(str(error)))
        return None
    base = parse_yaml(_read(file), str(file), problems)
    if "name" not in base.children:
        base = base.with_children({"name": base.child("name", file.parent.name)})
    base = _rooted(base, file.parent).with_children({"folder": base.child("folder", str(file.parent.resolve()))})
    return merge(base, _rooted(node.with_children({"use": None}), folder))


def _rooted(node: Node, folder: Path) -> Node:
    """A relative `cwd` is relative to the file in which it stands."""
    cwd = node.children.get("cwd")
    if cwd is None or not isinstance(cwd.value, str):
        return node
    return node.with_children({"cwd": Node(str((folder / cwd.value).resolve()), cwd.key, cwd.position)})


def _named(node: Node) -> Node:
    """A server written inline is called after its program, unless it has a name."""
    if "name" in node.children or not isinstance(node.value, dict):
        return node
    command = node.children.get("command", Node("server"))
    words = command.value.split() if isinstance(command.value, str) else [str(word.value) for word in command.items]
    return node.with_children({"name": node.child("name", Path(words[0]).name if words else "server")})


def _factors(node: Node, problems: list[FileProblem]) -> Node:
    """Each factor as a list: a range is unfolded, one value stands for itself."""
    return node.with_children({name: _levels(levels, problems) for name, levels in node.children.items()})


def _levels(node: Node, problems: list[FileProblem]) -> Node:
    if isinstance(node.value, tuple | dict):
        return node
    try:
        levels = parse_range(node.value) if isinstance(node.value, str) else None
    except ValueError as error:
        problems.append(node.problem(str(error)))
        levels = None
    return from_plain([node.value] if levels is None else levels, node.key, node.position)


def _load(node: Node, problems: list[FileProblem], folder: Path) -> Node:
    changes: dict[str, Node | None] = {}
    node = with_steps(node, "scenario", problems)
    for key in ("tls_ca_file", "jmeter"):
        file = node.children.get(key)
        if file is not None and file.value and isinstance(file.value, str):
            changes[key] = Node(str((folder / file.value).resolve()), file.key, file.position, file.key_position)
    return node.with_children(changes) if changes else node


def _measure(node: Node, problems: list[FileProblem]) -> Node:
    """The requests of `acknowledged`, as steps."""
    check = node.children.get("acknowledged")
    if check is None or not isinstance(check.value, dict):
        return node
    steps = {
        key: full_step(check.children[key], problems) for key in ("reset", "write", "read") if key in check.children
    }
    return node.with_children({"acknowledged": check.with_children(dict(steps))})


def _objective(node: Node, problems: list[FileProblem]) -> Node:
    """`{maximise: goodput}` as metric and direction; a metric alone is to be maximised."""
    if isinstance(node.value, str):
        return Node({"metric": node}, node.key, node.position)
    directions = [key for key in ("maximise", "minimise") if key in node.children]
    if len(directions) == 2:
        problems.append(node.children["minimise"].key_problem("an objective either maximises or minimises"))
    if not directions:
        return node
    metric = node.children[directions[0]]
    return node.with_children(
        {
            "maximise": None,
            "minimise": None,
            "metric": metric,
            "direction": Node(directions[0], join(node.key, "direction"), metric.key_position),
        }
    )
