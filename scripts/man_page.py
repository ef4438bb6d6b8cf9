"""The manual page, from the help texts of the command line: `make reference` writes docs/powerband.1, wheels contain
it."""

from __future__ import annotations

import re

import click

from powerband.base.version import __version__
from powerband.cli import powerband


def man_page() -> str:
    """The text of the manual page in the macros of man(7), with every command and option."""
    root = click.Context(powerband, info_name="powerband")
    lines = [
        f'.TH POWERBAND 1 "" "powerband {__version__}" "User Commands"',
        *(".SH NAME", r"powerband \- find the setting with which a server serves best"),
        *(".SH SYNOPSIS", r".B powerband", r"COMMAND [OPTION]... [\-\- SERVER]"),
        *(".SH DESCRIPTION", *_paragraphs(powerband.help or "")),
        ".SH COMMANDS",
    ]
    for name, command in powerband.commands.items():
        context = click.Context(command, info_name=name, parent=root)
        lines += [f".SS {_text(' '.join(command.get_usage(context).removeprefix('Usage: ').split()))}"]
        lines += _paragraphs(command.help or "")
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if isinstance(parameter, click.Option) and record is not None:
                lines += [".TP", f".B {_text(record[0])}", _text(record[1])]
    lines += [".SH EXIT STATUS", *_paragraphs((powerband.epilog or "").replace("Exit codes: ", ""))]
    lines += [
        ".SH FILES",
        ".TP",
        ".B runs/",
        "The run directories, each with its report.html; readable to their owner alone.",
    ]
    lines += [
        ".TP",
        ".B $XDG_CACHE_HOME/powerband",
        "Builds of the servers that come with it, and what was fetched; may be deleted.",
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(help_text: str) -> list[str]:
    """The lines of a help text, one paragraph each; a paragraph after click's mark for verbatim text keeps its
    lines."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", help_text.strip()):
        kept = paragraph.strip().startswith("\b")
        parts = [part.strip() for part in paragraph.replace("\b", "").strip().splitlines()]
        lines += [".PP", *([".nf", *map(_text, parts), ".fi"] if kept else [_text(" ".join(parts))])]
    return lines


def _text(text: str) -> str:
    """The text with every character escaped that man(7) would take for an instruction."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
