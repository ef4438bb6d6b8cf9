"""Reads the names and descriptions of the experiments and subjects that come with powerband, for `powerband list`.

In: files. Out: their text, unchanged. Nothing is checked, since a test checks all that is shipped. Only the wanted
entries of a file are parsed, since parsing all of thirty files takes half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from powerband.base.yaml_document import Node, parse_yaml, read_file
from powerband.files.library import experiment_names, find_experiment, find_subject, library_root, subject_names


@dataclass(frozen=True)
class ShippedExperiment:
    """An experiment that comes with powerband. `name`: to run it by; `question`: as in its file, empty without one;
    `profiles`: their names in the order of the file."""

    name: str
    question: str
    profiles: tuple[str, ...]


@dataclass(frozen=True)
class ShippedSubject:
    """A subject that comes with powerband. `name`: to use it by; `about`: its description, empty without one;
    `parameters`: their names in alphabetical order."""

    name: str
    about: str
    parameters: tuple[str, ...]


def shipped_experiments() -> list[ShippedExperiment]:
    """Returns all experiments by name, in alphabetical order."""
    return [_experiment(name) for name in experiment_names()]


def shipped_subjects() -> list[ShippedSubject]:
    """Returns all subjects by name, in alphabetical order."""
    return [_subject(name) for name in subject_names()]


def _experiment(name: str) -> ShippedExperiment:
    root = _entries(find_experiment(name), "question", "profiles")
    return ShippedExperiment(name, _text(root.at("question")), tuple(root.at("profiles").children))


def _subject(name: str) -> ShippedSubject:
    root = _entries(find_subject(name, library_root()), "about", "parameters")
    return ShippedSubject(name, _text(root.at("about")), tuple(sorted(root.at("parameters").children)))


def _entries(path: Path, *keys: str) -> Node:
    """Returns the tree of a file with these entries alone. In a file that comes with powerband each entry begins a
    line, and no other line begins with a letter."""
    kept, is_asked = [], False
    for line in read_file(path).splitlines(keepends=True):
        if line[:1].isalpha():
            is_asked = line.partition(":")[0] in keys
        if is_asked:
            kept.append(line)
    return parse_yaml("".join(kept), str(path), [])


def _text(node: Node) -> str:
    return "" if node.value is None else str(node.value)
