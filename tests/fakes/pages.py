"""The parts of a page of the docs that tests need: its code blocks, commands, headings, links and tables."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)[^\n`]*\n(.*?)^```$|((?:^ {4}[^\n]*\n?)+)", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """A code block. `language`: of the fence; empty if the block is indented."""

    language: str
    text: str


def blocks(page: str) -> list[Block]:
    return [
        Block(language, fenced) if indented == "" else Block("", re.sub(r"^ {4}", "", indented, flags=re.M))
        for language, fenced, indented in _BLOCK.findall(page)
    ]


def command_lines(page: str) -> list[str]:
    """Each `powerband ...` line that a reader types, in order, without what follows it."""
    typed = [block.text for block in blocks(page) if block.language in ("", "sh", "yaml")]
    lines = [line for text in typed for line in re.sub(r"\\\n\s*", "", text).splitlines()]
    found = [re.fullmatch(r"\s*(?:- )?(powerband \w+.*?)(?:\s+> \S+)?(?:\s+# .*)?", line) for line in lines]
    return [match[1] for match in found if match]


def commands(page: str) -> list[list[str]]:
    """The arguments of each `powerband ...` line, in order."""
    return [shlex.split(line)[1:] for line in command_lines(page)]


def without_blocks(page: str) -> str:
    return _BLOCK.sub("", page)


def headings(page: str) -> list[tuple[int, str]]:
    """The level and the text of each heading, in order."""
    return [(len(marks), text) for marks, text in re.findall(r"^(#+) (.*)$", without_blocks(page), re.M)]


def links(page: str) -> list[str]:
    """The targets of links and pictures, in order."""
    return re.findall(r"\[(?:[^\]\[]|\[[^\]]*\]\([^)]*\))*\]\(([^)\s]+)\)", without_blocks(page))


def tables(page: str) -> list[list[list[str]]]:
    """The cells of each row of each table, without the line below the headings."""
    found: list[list[list[str]]] = []
    below = False
    for line in without_blocks(page).splitlines():
        if not line.startswith("|"):
            below = False
            continue
        if not below:
            found.append([])
            below = True
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found[-1].append(cells)
    return found
