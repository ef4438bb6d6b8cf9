"""Reads experiment and subject files; every error names file, line, column, key and the nearest correct spelling.

Text becomes a tree of nodes that know their place, over which profile and overrides are laid. `build_experiment` then
goes through its stages. The first one brings short forms into the models' own form: the subject that is used, ranges,
steps, the objective, paths relative to their file. All errors are reported together. The models define what values mean
(`experiment.py`); `resolved.py` writes a resolved experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from powerband.base.errors import ExperimentError, FileProblem, UsageError, did_you_mean
from powerband.base.yaml_document import Node, from_plain, join, merge, parse_yaml, read_file, under, unusable_values
from powerband.files.checks.capacity_checks import check_capacity, with_users
from powerband.files.checks.claim_checks import check_claim_settings, check_claim_units, check_claims, check_published
from powerband.files.checks.cluster_checks import check_generators, check_one_clock
from powerband.files.checks.deployed_checks import check_tally
from powerband.files.checks.factor_checks import check_factors
from powerband.files.checks.load_checks import (
    check_budget,
    check_every_load,
    check_regret,
    check_soak,
    check_users_and_rate,
)
from powerband.files.checks.metric_checks import (
    check_burst,
    check_conditions,
    check_direction,
    check_measure,
    check_metric_names,
    check_page,
    check_shares,
)
from powerband.files.checks.secret_checks import check_hidden
from powerband.files.checks.subject_checks import check_subject, check_url, check_used
from powerband.files.levels import as_written, parse_range, unfolded
from powerband.files.library import find_experiment, find_subject
from powerband.files.pydantic_problems import Location, problems_of
from powerband.files.step_forms import full_step, with_steps
from powerband.loads import kind_in_file
from powerband.model.experiment import Experiment, Subject
from powerband.model.fields import AS_WRITTEN
from powerband.model.metrics import ALIASES, METRICS

Model = TypeVar("Model", Experiment, Subject)
_Check = Callable[[Experiment, Node], Iterable[FileProblem]]
_OWN = ("load.", "host.")  # such factors change keys of the file, not what the server gets
_SHORT = {"subject": "use", "objective": "metric", "cluster": "address"}  # the key that a mere text stands for
_DIRECTIONS = ("maximise", "minimise")
_TIMES = ("think", "pace")  # keys of the load, of which `{uniform: [1s, 2s]}` is one value


def load_experiment(
    path_or_name: str | Path,
    profile: str | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    to_run: bool = False,
) -> Experiment:
    """Returns the experiment of a file, or of a name that comes with powerband, with every default filled in.

    `overrides` maps dotted keys to YAML text (`{"load.users": "8"}`). `to_run`: also checks what a run needs besides
    the file, such as a JMeter plan, and takes levels as a person writes them; without it an old run can be read. Raises
    ExperimentError with everything that is wrong; UsageError for a file or profile that does not exist."""
    path = find_experiment(path_or_name)
    file = str(path_or_name if path == Path(path_or_name) else path)
    return parse_experiment(read_file(path), file, profile, overrides, to_run=to_run)


def parse_experiment(
    text: str,
    file: str,
    profile: str | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    to_run: bool = False,
) -> Experiment:
    """Like `load_experiment`, for a text; relative paths within it are relative to the folder of `file`."""
    problems: list[FileProblem] = []
    root = parse_yaml(text, file, problems)
    return _complete(root, problems, Path(file), profile, overrides or {}, to_run=to_run)


def experiment_of(
    values: Mapping[str, object],
    profile: str | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    to_run: bool = True,
) -> Experiment:
    """Like `load_experiment`, for the content of a file as plain values: errors name the key alone, and relative paths
    are relative to the current folder."""
    return _complete(from_plain(values, "", None), [], Path("experiment"), profile, overrides or {}, to_run=to_run)


def profile_names(path_or_name: str | Path) -> list[str]:
    """Returns the profiles that an experiment file defines, in its order."""
    path = find_experiment(path_or_name)
    return list(parse_yaml(read_file(path), str(path), []).children.get("profiles", Node({})).children)


def load_subject(name: str) -> Subject:
    """Returns a subject that comes with powerband, or the subject of a folder. Raises ExperimentError."""
    problems: list[FileProblem] = []
    node = _subject(Node({"use": Node(name, "subject")}, "subject"), problems, Path())
    subject = _checked(Subject, node, problems)
    if node is not None and subject is not None:
        tree = Node({"subject": node})
        problems += check_subject(subject, tree, kind_in_file(tree, subject))
    if problems or subject is None:
        raise ExperimentError.of(problems)
    return subject


def build_experiment(root: Node, problems: list[FileProblem], folder: Path, *, to_run: bool = False) -> Experiment:
    """Turns a tree into an Experiment. `folder`: what relative paths are relative to; `to_run`: as for
    `load_experiment`.

    Raises ExperimentError with `problems` and all that are found here."""
    # Expand short forms.
    tree = _in_full(root, problems, folder)
    if to_run:
        tree = _as_written(tree, problems)
        problems += [*check_hidden(tree), *check_shares(tree)]
    if unusable := list(unusable_values(tree)):
        raise ExperimentError.of([*problems, *unusable])
    subject = _provisional_subject(tree.children.get("subject"))
    kind = kind_in_file(tree, subject)

    # Checks on the tree, where one bad value hides no other, and defaults that nobody needs to write.
    if subject is not None:
        problems += check_subject(subject, tree, kind)
    of_load = list(kind.check_tree(tree, subject))
    problems += of_load
    problems += check_factors(tree, subject, kind)
    problems += check_claims(tree)
    problems += check_capacity(tree, kind)
    tree = kind.filled(with_users(tree, kind), subject)
    both = list(check_users_and_rate(tree))
    problems += both

    # Validation by the models, without repeating what the tree showed. Wrong keys that were taken out of the load hide
    # nothing.
    reported: list[Location] = [("load",)] if both or (of_load and kind.load_keys is None) else []
    if "subject" in root.children and "subject" not in tree.children:
        reported.append(("subject",))
    experiment = _checked(Experiment, tree, problems, reported)

    # Checks on the models: a group runs only if all before it found nothing.
    of_claims = check_claim_units, check_claim_settings
    of_metrics = check_page, check_direction, check_conditions, check_burst
    groups: tuple[tuple[_Check, ...], ...] = (
        (check_url, check_generators, check_used, kind.check_experiment, check_every_load),
        (kind.check_to_run, check_one_clock, check_tally, *of_claims, *of_metrics) if to_run else (),
        (check_soak, check_regret),
        (check_budget, check_measure, check_metric_names, check_published),
    )
    for group in groups:
        if experiment is not None and not problems:
            problems += [problem for check in group for problem in check(experiment, tree)]
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
        root = _laid_over(root, _override(key, value))
    if "name" not in root.children:
        root = root.with_children({"name": root.child("name", file.stem)})
    return build_experiment(root, problems, file.parent, to_run=to_run)


def _provisional_subject(node: Node | None) -> Subject | None:
    """Returns the subject as far as templates need it, so that an error elsewhere in it hides none of theirs."""
    if node is None:
        return None
    without: tuple[str, ...] = ()
    for more in ((), ("ready", "stop", "build"), ("metrics_url", "visitor_url")):
        without += more
        needed = Node({key: child for key, child in node.children.items() if key not in without})
        if (subject := _checked(Subject, needed, [])) is not None:
            return subject
    return None


def _checked(
    model: type[Model], node: Node | None, problems: list[FileProblem], ignore: Collection[Location] = ()
) -> Model | None:
    """Returns the validated model; None, with problems added, if it is not valid. `ignore`: places that were reported
    before."""
    try:
        return model.model_validate(None if node is None else node.plain(), context=AS_WRITTEN)
    except ValidationError as error:
        if node is not None:
            problems.extend(problems_of(error, model, node, tuple(problems), ignore))
        return None


def _apply_profile(root: Node, profile: str | None, file: str) -> Node:
    if profile is None:
        return root
    profiles = root.children.get("profiles", Node({})).children
    if profile not in profiles:
        raise UsageError(f"{file} has no profile {profile}; {did_you_mean(profile, profiles)}")
    chosen = profiles[profile]
    if chosen.value is None:  # all its lines are commented out
        chosen = Node({})
    if not isinstance(chosen.value, dict):
        raise ExperimentError.of([chosen.problem("a profile is a mapping of keys")])
    return _laid_over(root, chosen).with_children({"profile": root.child("profile", profile)})


def _laid_over(base: Node, over: Node) -> Node:
    """Returns `over` merged into `base`. What is given below a short form leaves what that says, and a short form of an
    objective or cluster the other keys; an objective or a time that `over` names takes the place of the other."""
    short = isinstance(over.at("objective").value, str)
    laid = [key for key in ("objective", "cluster") if key in over.children]
    over = over.with_children({key: _expanded(over.children[key], _SHORT[key]) for key in laid})
    below = {key: over.children[key].children for key in _SHORT if key in base.children and key in over.children}
    full: dict[str, Node | None] = {key: _expanded(base.children[key], _SHORT[key]) for key in below if below[key]}
    named = below.get("objective", {}).keys() & {"metric", *_DIRECTIONS}
    if named and (objective := full["objective"]) is not None:
        gone = ("metric", *_DIRECTIONS, *(("direction",) if short or named != {"metric"} else ()))
        full["objective"] = objective.with_children(dict.fromkeys(gone))
    base = base.with_children(full)
    for key in _TIMES:
        if over.at("load", key).children:
            base = _changed(base, ("load", key), lambda node: replace(node, value=None))
    return merge(base, over)


def _expanded(node: Node, key: str) -> Node:
    """Returns a text as a mapping that has it at `key`; anything else as it is."""
    return Node({key: node}, node.key, node.position) if isinstance(node.value, str) else node


def _override(key: str, text: str) -> Node:
    """Returns one `--set key=value` as a tree that can be laid over the file."""
    label = f"--set {key}={text}"
    problems: list[FileProblem] = []
    try:
        value = under(label, parse_yaml(text, label, problems)) if text.strip() else None
    except ExperimentError as error:
        raise UsageError(f"{label}: the value is no YAML: {error}") from None
    if problems:
        raise UsageError(f"{label}: {problems[0].key}: {problems[0].message}")
    # The name of a factor or parameter may itself contain dots (factors.load.users).
    parts = key.split(".", 1) if key.startswith("factors.") else key.split(".")
    return at_path(parts, label, value)


def at_path(parts: Sequence[str], label: str, value: object) -> Node:
    """Returns a tree with one value at a path of keys; an error about it names `label`."""
    node = from_plain(value, label, None)
    for part in reversed(parts):
        node = Node({part: node}, label)
    return node


def _in_full(root: Node, problems: list[FileProblem], folder: Path) -> Node:
    """Returns the tree without profiles, with every part in its full form; without its subject if that does not exist.
    `folder`: what relative paths are relative to."""
    parts: dict[str, Callable[[Node], Node | None]] = {
        "subject": lambda node: _subject(node, problems, folder),
        "factors": lambda node: _factors(node, problems),
        "load": lambda node: _load(node, problems, folder),
        "measure": lambda node: _measure(node, problems),
        "objective": lambda node: _objective(node, problems),
        "cluster": lambda node: _cluster(node, folder),
    }
    full = {key: in_its_form(root.children[key]) for key, in_its_form in parts.items() if key in root.children}
    return root.with_children({"profiles": None, **full})


def _subject(node: Node, problems: list[FileProblem], folder: Path) -> Node | None:
    """Returns the subject laid over the one that it uses; None, with a problem, if that does not exist."""
    used = _over_used(node, problems, folder)
    return None if used is None else with_steps(used, "apply", problems)


def _over_used(node: Node, problems: list[FileProblem], folder: Path) -> Node | None:
    """Returns the subject laid over the one that `use` names, with folders made absolute; None, with a problem, if that
    does not exist."""
    node = _expanded(node, "use")
    use = node.children.get("use")
    if use is None:
        return _named(_rooted(node, folder))
    try:
        file = find_subject(str(use.plain()), folder)
    except ValueError as error:
        problems.append(use.problem(str(error)))
        return None
    base = parse_yaml(read_file(file), str(file), problems)
    if "name" not in base.children:
        base = base.with_children({"name": base.child("name", file.parent.name)})
    base = _rooted(base, file.parent).with_children({"folder": base.child("folder", str(file.parent.resolve()))})
    return merge(base, _rooted(node.with_children({"use": None}), folder))


def _rooted(node: Node, folder: Path) -> Node:
    """Makes a relative `cwd` relative to the file that contains it."""
    cwd = node.children.get("cwd")
    if cwd is None or not isinstance(cwd.value, str) or "\0" in cwd.value:
        return node
    return node.with_children({"cwd": Node(str((folder / cwd.value).resolve()), cwd.key, cwd.position)})


def _named(node: Node) -> Node:
    """Names a server that is written inline after its program, unless it has a name."""
    if "name" in node.children or not isinstance(node.value, dict):
        return node
    command = node.children.get("command", Node("server"))
    words = command.value.split() if isinstance(command.value, str) else [str(word.value) for word in command.items]
    return node.with_children({"name": node.child("name", Path(words[0]).name if words else "server")})


def _factors(node: Node, problems: list[FileProblem]) -> Node:
    if node.value is None:
        return replace(node, value={})
    return node.with_children({name: _levels(of, problems) for name, of in node.children.items()})


def _levels(node: Node, problems: list[FileProblem]) -> Node:
    """Returns a factor as a list: a range is unfolded, and one value becomes a list of one."""
    if isinstance(node.value, tuple | dict):
        return node
    if "," in (node.text or ""):
        problems.append(node.problem(f"several values stand in brackets, [{node.text}], and one text in quotes"))
    try:
        levels = parse_range(node.value) if isinstance(node.value, str) else None
    except ValueError as error:
        problems.append(node.problem(str(error)))
        levels = [str(node.value)]
    if levels is None:
        return Node((replace(node, key=f"{node.key}[0]"),), node.key, node.position)
    return from_plain(levels, node.key, node.position)


def _as_written(tree: Node, problems: list[FileProblem]) -> Node:
    """Returns the tree as a person means it: ranges within lists are unfolded, and what the server gets as text is the
    text of the file. Levels of the load, of the host and of a parameter with a type keep their type."""
    parameters = tree.at("subject", "parameters").children
    typed = {name for name, each in parameters.items() if each.at("type").value not in ("string", "choice")}

    def levels(node: Node) -> Node:
        free = (each for each in node.children.items() if each[0] not in typed and not each[0].startswith(_OWN))
        return node.with_children({name: _each(of, as_written) for name, of in free})

    def unfold(node: Node) -> Node:
        items: list[Node] = []
        for item in node.items:
            try:
                items += unfolded(item)
            except ValueError as error:
                problems.append(item.problem(str(error)))
        return replace(node, value=tuple(items) or node.value)

    lists = {name: unfold(of) for name, of in tree.at("factors").children.items() if isinstance(of.value, tuple)}
    tree = _changed(tree, ("factors",), lambda node: node.with_children(lists))
    conditions = [("parameters", name, "used_when") for name in parameters]
    conditions += [("services", name, "when") for name in tree.at("subject", "services").children]
    for path in (("factors",), *(("subject", *each) for each in (("set",), ("deployed", "restore"), *conditions))):
        tree = _changed(tree, path, levels)
    for name, key in product(parameters.keys() - typed, ("default", "choices")):
        tree = _changed(tree, ("subject", "parameters", name, key), lambda node: _each(node, as_written))
    of_subject = (("command",), ("env",), ("build",), ("deployed", "command"))
    for path in (*(("subject", *each) for each in of_subject), ("load", "websocket", "headers")):
        tree = _changed(tree, path, lambda node: _each(node, _as_text))
    tree = _changed(tree, ("load", "properties"), lambda node: _each(node, _number_as_text))
    for path in (("load", "scenario"), ("subject", "apply")):
        tree = _changed(tree, path, lambda node: replace(node, value=tuple(map(_sent, node.items)) or node.value))
    for key in ("reset", "write", "read"):
        tree = _changed(tree, ("measure", "acknowledged", key), _sent)
    return tree


def _as_text(node: Node) -> Node:
    return node if node.value is None or node.text is None else replace(node, value=node.text)


def _number_as_text(node: Node) -> Node:
    return node if isinstance(node.value, bool) else _as_text(node)


def _sent(step: Node) -> Node:
    """Returns a step whose headers, body, message and wanted texts are those of the file, though they look like
    numbers."""
    for path in (("headers",), ("check", "contains")):
        step = _changed(step, path, lambda node: _each(node, _as_text))
    for key in ("body", "message"):
        step = _changed(step, (key,), _as_text)
    return step


def _each(node: Node, change: Callable[[Node], Node]) -> Node:
    """Returns the tree with each of its scalars changed."""
    if isinstance(node.value, dict):
        return node.with_children({name: _each(child, change) for name, child in node.children.items()})
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(_each(item, change) for item in node.items))
    return change(node)


def _changed(node: Node, path: Sequence[str], change: Callable[[Node], Node]) -> Node:
    """Returns the tree with the entry at a path changed, if there is one."""
    if not path:
        return change(node)
    child = node.children.get(path[0])
    return node if child is None else node.with_children({path[0]: _changed(child, path[1:], change)})


def _load(node: Node, problems: list[FileProblem], folder: Path) -> Node:
    changes: dict[str, Node | None] = {}
    node = with_steps(node, "scenario", problems)
    for key in ("tls_ca_file", "jmeter"):
        file = node.children.get(key)
        if file is not None and file.value and isinstance(file.value, str):
            changes[key] = Node(str((folder / file.value).resolve()), file.key, file.position, file.key_position)
    return node.with_children(changes) if changes else node


def _cluster(node: Node, folder: Path) -> Node:
    """Returns the cluster in full, with its relative folders made relative to the file."""
    node = _expanded(node, "address")
    files = node.children.get("files")
    if files is None or not all(isinstance(each.value, str) for each in files.items):
        return node
    roots = [str((folder / str(each.value)).resolve()) for each in files.items]
    return node.with_children({"files": from_plain(roots, files.key, files.position)})


def _measure(node: Node, problems: list[FileProblem]) -> Node:
    """Turns the requests of `acknowledged` into steps."""
    check = node.children.get("acknowledged")
    if check is None or not isinstance(check.value, dict):
        return node
    steps = {
        key: full_step(check.children[key], problems) for key in ("reset", "write", "read") if key in check.children
    }
    return node.with_children({"acknowledged": check.with_children(dict(steps))})


def _objective(node: Node, problems: list[FileProblem]) -> Node:
    """Turns `{maximise: goodput}` into metric and direction; a metric alone has that in which it gets better,
    if one is known."""
    node = _expanded(node, "metric")
    directions = [key for key in _DIRECTIONS if key in node.children]
    if len(directions) == 2:
        problems.append(node.children["minimise"].key_problem("an objective either maximises or minimises"))
    for key in ("metric", "direction"):
        if directions and key in node.children:
            problems.append(node.children[key].key_problem(f"{directions[0]} says this already: keep one of the two"))
    if not directions and ("metric" not in node.children or "direction" in node.children):
        return node
    if not directions:
        named = str(node.children["metric"].plain())
        known = METRICS.get(ALIASES.get(named, named))
        better = known and known.better
        return node.with_children({"direction": node.child("direction", better)}) if better else node
    metric = node.children[directions[0]]
    return node.with_children(
        {
            "maximise": None,
            "minimise": None,
            "metric": metric,
            "direction": Node(directions[0], join(node.key, "direction"), metric.key_position),
        }
    )
