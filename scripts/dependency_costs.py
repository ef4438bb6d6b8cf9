"""Measures what each dependency of an installed powerband costs: its bytes on the disk, with those of the packages that
no other dependency needs, and the CPU time of its import. Run it with the Python of a venv that has the wheel:
`VENV/bin/python scripts/dependency_costs.py`."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from statistics import median

MODULES = {"ruamel-yaml": "ruamel.yaml"}
TIMES = 7


def main() -> None:
    roots = sorted(_needed("powerband", extras=True))
    start_ms = median(_cpu_ms("pass") for _ in range(TIMES))
    rows = []
    for name in roots:
        others = set().union(*(_all_of(other) for other in roots if other != name))
        alone = {name, *(_all_of(name) - others)}
        module = MODULES.get(name, name.replace("-", "_"))
        ms = median(_cpu_ms(f"import {module}") for _ in range(TIMES)) - start_ms
        rows.append(
            (
                sum(map(_bytes, alone)),
                f"| {name} | {len(alone)} | {sum(map(_bytes, alone)) / 1e6:.1f} MB | {ms:.0f} ms |",
            )
        )
    own = _bytes("powerband")
    print(*(row for _, row in sorted(rows, reverse=True)), sep="\n")  # noqa: T201
    print(f"powerband itself: {own / 1e6:.1f} MB; all: {(own + sum(size for size, _ in rows)) / 1e6:.0f} MB")  # noqa: T201


def _found(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _needed(name: str, *, extras: bool = False) -> set[str]:
    """The installed requirements of a distribution, by normalised name; `extras`: including optional ones."""
    found = _found(name)
    asked = (found.requires or []) if found else []
    texts = [text for text in asked if extras or "extra ==" not in text]
    names = {re.sub(r"[-_]+", "-", re.match(r"[\w.-]+", text)[0]).lower() for text in texts}  # type: ignore[index]
    return {each for each in names if _found(each)}


def _all_of(name: str) -> set[str]:
    found, waiting = set(), [name]
    while waiting:
        for each in _needed(waiting.pop()) - found:
            found.add(each)
            waiting.append(each)
    return found


def _bytes(name: str) -> int:
    found = _found(name)
    paths = [found.locate_file(file) for file in found.files or []] if found else []
    return sum(path.stat().st_size for path in paths if path.is_file())  # type: ignore[attr-defined]


def _cpu_ms(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    main()
