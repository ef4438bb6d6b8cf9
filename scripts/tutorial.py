"""The blocks of output in the tutorial, from its own commands: `make tutorial`, on a quiet machine, five minutes.

In: docs/tutorial.md, whose commands about the example server run in a folder of their own. Out: the blocks in it and in
its Korean twin. If a command ends with another exit code than the page says, nothing is written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "tutorial.md", ROOT / "docs" / "tutorial.ko.md")
WIDTH = "100"  # columns, about as many as a page shows
_OUTPUT = re.compile(r"^```text\n(.*?)^```$", re.S | re.M)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        blocks = _blocks(Path(folder))
    for path in PAGES:
        path.write_text(_filled(path.read_text(), blocks))
    return 0


def _filled(page: str, blocks: Sequence[str]) -> str:
    texts = iter(blocks)
    return _OUTPUT.sub(lambda _: f"```text\n{next(texts)}```", page)


def _blocks(folder: Path) -> list[str]:
    """The text of each block of output, in the order of the page."""
    prepare(folder)
    run = _runner(folder)
    found = [
        run(4, "tune", "--listen").partition("\n\n")[0],
        _to_the_verdicts(run(0, "tune", "--users 32")),
        _to_the_verdicts(run(1, "compare", "slower_server.py")),
    ]
    return [_tidy(text) for text in found]


def prepare(folder: Path) -> None:
    """Puts the examples and the slower server of the tutorial into a folder."""
    ignored = shutil.ignore_patterns("target", "node_modules")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=ignored)
    (edit,) = re.findall(r"^sed .*$", PAGES[0].read_text(), re.M)
    subprocess.run(edit, shell=True, cwd=folder, check=True)


def shown(*words: str) -> list[str]:
    """The arguments of the one `powerband` command of the tutorial that holds all of these words."""
    lines = re.findall(r"^powerband (.*)$", PAGES[0].read_text(), re.M)
    (line,) = [line for line in lines if all(word in line for word in words)]
    return shlex.split(line)


def _to_the_verdicts(output: str) -> str:
    """The output up to the table of verdicts; the page describes the rest."""
    parts = output.split("\n\n")
    table = next(index for index, part in enumerate(parts) if "verdict" in part.strip().partition("\n")[0])
    return "\n\n".join(parts[: table + 1])


def _runner(folder: Path) -> Callable[..., str]:
    """A function that runs the one command of the page that holds all of some words, and returns its stdout."""

    def run(code: int, *words: str) -> str:
        arguments = shown(*words)
        environment = {**os.environ, "COLUMNS": WIDTH, "PYTHONPATH": os.pathsep.join(sys.path)}
        sys.stderr.write(f"{shlex.join(arguments)}\n")
        done = subprocess.run(
            [sys.executable, "-m", "powerband", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != code:
            raise SystemExit(f"ended with {done.returncode}, and the page says {code}:\n{done.stdout}{done.stderr}")
        return done.stdout

    return run


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


if __name__ == "__main__":
    sys.exit(main())
