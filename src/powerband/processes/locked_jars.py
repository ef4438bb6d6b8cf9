"""Compares the jars that Maven fetched with hashes kept beside the sources, so that nothing else is run.

A list (`jars.sha256`) has the form of sha256sum: SHA-256 in hex, two spaces, file name. A jar that the build itself
makes has `-` for its hash; if it contains jars (`BOOT-INF/lib/`), those are compared too.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePath

LIST = "jars.sha256"
_MADE = "-"


def wrong_jars(folder: Path, hashes: Path) -> list[str]:
    """Returns a phrase for each jar anywhere below the folder that differs from the list or is not in it, and for each
    one that is missing. Raises OSError, and BadZipFile if a jar that the build made is none."""
    lines = (line.split("  ", 1) for line in hashes.read_text(encoding="utf-8").splitlines())
    expected = {name: digest for digest, name in lines}
    found = set(_jars(folder, {name for name, digest in expected.items() if digest == _MADE}))
    wrong = {f"{name} is another file" for name, digest in found if expected.get(name, digest) != digest}
    wrong |= {f"{name} is not expected" for name, _ in found if name not in expected}
    return sorted(wrong | {f"{name} is missing" for name in expected.keys() - dict(found).keys()})


def _jars(folder: Path, made: set[str]) -> Iterator[tuple[str, str]]:
    for jar in sorted(folder.rglob("*.jar")):
        if jar.name not in made:
            yield jar.name, hashlib.sha256(jar.read_bytes()).hexdigest()
            continue
        yield jar.name, _MADE
        with zipfile.ZipFile(jar) as holder:
            for name in holder.namelist():
                if name.endswith(".jar"):
                    yield PurePath(name).name, hashlib.sha256(holder.read(name)).hexdigest()
