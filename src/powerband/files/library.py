"""Finds the experiments, subjects and dashboards that come with powerband, by their names. No file's content is read.

In a checkout they lie beside the sources; an installed package contains them as data.
"""

from __future__ import annotations

import os
from pathlib import Path

from powerband.base.errors import UsageError, did_you_mean

_PACKAGE = Path(__file__).resolve().parents[1]


def library_root() -> Path:
    """Returns the folder that contains `experiments/`, `subjects/` and `dashboards/`."""
    data = _PACKAGE / "data"
    return data if data.is_dir() else _PACKAGE.parent.parent


def dashboards() -> Path:
    """Returns the folder of the Grafana dashboards."""
    return library_root() / "dashboards"


def experiment_names() -> list[str]:
    """Returns the names of all experiments that come with powerband, in alphabetical order."""
    return sorted(path.stem for path in (library_root() / "experiments").glob("*.yaml"))


def subject_names() -> list[str]:
    """Returns the names of all subjects that come with powerband, in alphabetical order."""
    return sorted(path.parent.name for path in (library_root() / "subjects").glob("*/subject.yaml"))


def find_experiment(path_or_name: str | Path) -> Path:
    """Returns a file that exists, or the file of a named experiment. Raises UsageError with the nearest name."""
    if not str(path_or_name):
        raise UsageError("the name of the experiment is empty; `powerband list` shows those that come with powerband")
    path = Path(path_or_name)
    try:
        is_file, is_folder, is_other = path.is_file(), path.is_dir(), path.exists()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if is_file:
        return path
    if is_folder:
        raise UsageError(f"{path} is a folder; name an experiment file in it")
    if is_other:
        raise UsageError(f"{path} is a pipe or a device; write the experiment into a file")
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise UsageError(f"there is no file {path}; `powerband list` shows the experiments that come with powerband")
    named = library_root() / "experiments" / f"{path_or_name}.yaml"
    if not named.is_file():
        raise UsageError(
            f"there is no experiment {path_or_name}; {did_you_mean(str(path_or_name), experiment_names())}"
        )
    return named


def find_subject(name: str, beside: Path) -> Path:
    """Returns the `subject.yaml` of a named subject, or of a folder (a name with a slash) relative to `beside`.

    Raises ValueError with the nearest name."""
    folder = beside / name if "/" in name else library_root() / "subjects" / name
    file = folder / "subject.yaml"
    if not os.path.isfile(file):  # noqa: PTH113 - False for a folder that is closed to us, where Path raises
        hint = "a folder must hold a subject.yaml" if "/" in name else did_you_mean(name, subject_names())
        raise ValueError(f"there is no server {name}; {hint}")
    return file
