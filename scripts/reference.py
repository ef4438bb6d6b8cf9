"""The parts of the reference that are lists, made from the code: `make reference` writes them, a test holds them to it.

In: the commands, the metrics, the subjects, the experiments, the bottlenecks, kept runs and benchmarks. Out: whole
pages (options.md, subjects.md, the manual), tables between two marks of pages that are written by hand, and the names
of bottlenecks in the schema of an analysis. Explanations are written by hand."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from benchmarks import kept_lines

from powerband.cli import powerband
from powerband.files.experiment_file import load_subject
from powerband.files.key_options import KEY_OPTIONS
from powerband.files.library import experiment_names, library_root, subject_names
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Parameter
from powerband.model.metrics import ALIASES, METRICS
from powerband.model.plan import format_level
from powerband.model.results import Analysis
from scripts import keep
from scripts.answer import analysis_of, answer_of, numbered_answer
from scripts.man_page import man_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BENCHMARKS = {"link": DOCS / "methods" / "link.md"}  # sections of benchmarks that have a page of their own
PUBLISHED = "published"  # the profile of the authors' sizes
MADE = "This page is made from the code by `make reference`."
# Commands that describe the shared options, in this order.
FIRST = ("tune", "run", "load")
# Options whose default differs from that of the key for which they stand.
OWN_DEFAULT = ("--users", "--duration", "--repeats", "--order", "--confirm")


def main() -> None:
    for path, text in reference().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stderr.write(f"written: {path.relative_to(ROOT)}\n")


def reference() -> dict[Path, str]:
    """The text of every page of which at least a part is made from the code, by its path."""
    made = {
        DOCS / "reference" / "options.md": options_page(),
        DOCS / "reference" / "subjects.md": subjects_page(),
        DOCS / "powerband.1": man_page(),
    }
    for path, mark, table in (
        (DOCS / "reference" / "metrics.md", "metrics", metrics_table()),
        (DOCS / "experiments" / "README.md", "experiments", experiments_table()),
        (DOCS / "experiments" / "README.md", "published", published_table()),
        (DOCS / "methods" / "bottlenecks.md", "bottlenecks", bottlenecks_table()),
    ):
        made[path] = _between(made.get(path) or path.read_text(), mark, table, path)
    for kept in keep.all_kept():
        if kept.profile == PUBLISHED:
            continue
        page = _page_of(kept.analysis["name"])
        if page is None:
            raise SystemExit(f"{kept.folder}: no page tells of this experiment")
        made[page] = _between(made.get(page) or page.read_text(), keep.mark(kept), keep.block(kept), page)
    for section in kept_lines.all_kept():
        page = BENCHMARKS.get(section.section, DOCS / "benchmarks.md")
        data = os.path.relpath(kept_lines.FOLDER, page.parent)
        made[page] = kept_lines.put(made.get(page) or page.read_text(), section, data)
    quickstart = quickstart_analysis()
    for name, text in (
        ("README", quickstart_answer(quickstart)),
        ("docs/reading-the-answer", numbered_answer(quickstart)),
    ):
        for path in (ROOT / f"{name}.md", ROOT / f"{name}.ko.md"):
            made[path] = _between(path.read_text(), "answer", text, path)
    schema = DOCS / "reference" / "analysis.schema.json"
    made[schema] = bottlenecks_schema(schema.read_text())
    return made


def quickstart_analysis() -> Analysis:
    """The analysis of the newest quickstart that is kept."""
    kept = (each for each in keep.all_kept() if each.analysis["name"] == "quickstart")
    return analysis_of(max(kept, key=lambda each: each.date))


def quickstart_answer(analysis: Analysis) -> str:
    """The answer without what limits the named setting, and what is said of its equals."""
    named = analysis.answer.setting
    limit = rf"With {re.escape(named.id) if named else None} "
    return answer_of(analysis, without=rf"{limit}|\S+ (is equivalent|costs more)")


def options_page() -> str:
    """The page of every command with its usage and its options. An option that several commands share stands with the
    first."""
    parts = [
        "# Every option of every command",
        f"{MADE} [What the commands are for](cli.md). An option that stands for a key of an experiment file is "
        "explained there, with its default; `powerband COMMAND --help` explains each.",
    ]
    # The context of the whole command line is the parent, as in a real call: otherwise a command would take its help
    # option for another one, for good.
    whole = click.Context(powerband, info_name="powerband", **powerband.context_settings)
    records: dict[str, list[tuple[str, str]]] = {}
    usages: dict[str, str] = {}
    for name, command in sorted(powerband.commands.items()):
        # The width is large, so that no line of the usage is broken.
        context = click.Context(command, whole, name, terminal_width=1000, max_content_width=1000)
        usages[name] = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
        records[name] = _records(command, context)
    first = {record: name for name in reversed(FIRST) for record in records[name]}
    for name, usage in usages.items():
        parts += [f"## powerband {name}", f"    {usage}"]
        if name != "tune" and records[name] == records["tune"]:
            parts.append("It takes all [options of `tune`](#powerband-tune).")
            continue
        own = [record for record in records[name] if first.get(record, name) == name]
        keys: dict[str, list[str]] = {}
        for record in own:
            keys.setdefault(_part_of(record), []).append(_code(_flag(record)))
        if keys.pop("", None):
            apart = [record for record in own if not _part_of(record)]
            parts.append(_table(("option", "meaning"), ((_code(record[0]), _explained(record)) for record in apart)))
        lines = [f"Keys of [`{part}`]({_page_of_key(f'{part}.')}): {', '.join(flags)}." for part, flags in keys.items()]
        for other in FIRST:
            flags = [_code(_flag(record)) for record in records[name] if name != other == first.get(record)]
            lines += [f"As of [`{other}`](#powerband-{other}): {', '.join(flags)}."] if flags else []
        parts += ["\n".join(lines)] if lines else []
    return _page(parts)


def _records(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """The names and the help of each option."""
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return [record for option in options if (record := option.get_help_record(context))]


def _flag(record: tuple[str, str]) -> str:
    """The long name of an option: `--method` for `-X, --method NAME`."""
    return next((word for word in record[0].split() if word.startswith("--")), record[0])


def _explained(record: tuple[str, str]) -> str:
    """The help of an option. If the option stands for a key of a file, this is the key with a link, and the default."""
    key = _key_of(record)
    if not key:
        return record[1]
    _, begin, default = record[1].partition("  [")
    return f"[{_code(key)}]({_page_of_key(key)}){begin}{default}"


def _key_of(record: tuple[str, str]) -> str:
    """The key of an experiment file that an option stands for; empty if there is none."""
    option = KEY_OPTIONS.get(_flag(record))
    return option.key if option is not None and record[1].startswith(option.help) else ""


def _part_of(record: tuple[str, str]) -> str:
    """The part of an experiment file that has a key of the option's name, with the same default; empty if there is
    none."""
    part, _, below = _key_of(record).partition(".")
    flag = _flag(record)
    return part if flag == f"--{re.sub('[._]', '-', below)}" and flag not in OWN_DEFAULT else ""


def _page_of_key(key: str) -> str:
    """The page and heading that explain a key."""
    part, dot, _ = key.partition(".")
    own = ("load", "measure", "subject")
    return f"{part}.md" if part in own else f"experiment-file.md#{part if dot else 'at-the-top'}"


def metrics_table() -> str:
    """The table of metrics. Up to four metrics with the same help share a row, so that no cell gets long."""
    rows = []
    for (_, meaning), group in itertools.groupby(METRICS.values(), key=lambda metric: (metric.unit, metric.help)):
        names = [metric.name for metric in group]
        for first in range(0, len(names), 4):
            some = names[first : first + 4]
            short = [alias for name in some for alias, full in ALIASES.items() if full == name]
            text = "the same" if first else meaning
            rows.append((", ".join(map(_code, some)), ", ".join(map(_code, short)), text))
    return _table(("name", "short", "what"), rows)


def bottlenecks_table() -> str:
    """The table of bottlenecks: the short form of each, and its advice if the figures give no better one."""
    rows = (
        (_code(name), name.short, name.advice.format(noun="request", a_noun="a request", pool="the pool"))
        for name in BottleneckName
    )
    return _table(("name", "in a table", "what to do, in general"), rows)


def bottlenecks_schema(schema: str) -> str:
    """The schema of an analysis, with the current names of bottlenecks."""
    names = ", ".join(f'"{name}"' for name in BottleneckName)
    return re.sub(r'("bottleneck": \{\s*"type".*?"name": \{"enum": \[)[^]]*', rf"\g<1>{names}", schema, flags=re.DOTALL)


def subjects_page() -> str:
    """The page of the subjects that come with powerband: each with its description and its parameters."""
    parts = [
        "# Servers that come with powerband",
        f"{MADE} A file uses one by `subject: {{use: NAME, set: {{...}}}}` ([how to write your own]"
        "(subject.md)). Every parameter may be a factor; its default comes first. A condition in brackets says "
        "when it is read.",
    ]
    for name in subject_names():
        subject = load_subject(name)
        needs = [f"a JDK of {subject.jdk} or later"] if subject.jdk else []
        needs += [f"a .NET SDK of {subject.dotnet} or later"] if subject.dotnet else []
        builder = _builder(subject.build)
        needs += [f"`{builder}` to build it"] if builder and "{" not in builder else []
        about = [f"{subject.about}."]
        about += [f"Needs {' and '.join(needs)}."] if needs else []
        about += ["It takes no requests."] if subject.counts else []
        about += _own_page(name)
        rows = ((_code(parameter), _values(made), _meaning(made)) for parameter, made in subject.parameters.items())
        parts += [f"## {name}\n{' '.join(about)}", _table(("parameter", "values", "meaning"), rows)]
    return _page(parts)


def _builder(build: Sequence[str] | None) -> str:
    """The program of a build command, also where a shell calls it at the end by `exec`; empty if there is none."""
    program, *given = build or ("",)
    return given[1].rpartition("exec ")[2].split()[0] if program == "sh" else program


def experiments_table() -> str:
    """The table of the pages on experiments, each with the experiments that it describes."""
    told: dict[str, list[str]] = {}
    for name in experiment_names():
        page = _page_of(name)
        told.setdefault(f"[{page.stem}]({page.name})" if page else "none yet", []).append(_code(name))
    return _table(("what was found", "experiments"), ((page, ", ".join(names)) for page, names in sorted(told.items())))


def published_table() -> str:
    """The table of the runs of profiles `published`."""
    rows = (keep.short_row(kept) for kept in keep.all_kept() if kept.profile == PUBLISHED)
    return _table(("experiment", "valid trials"), rows)


def _own_page(name: str) -> list[str]:
    page = library_root() / "subjects" / name / "README.md"
    return [f"[More](../../subjects/{name}/README.md)."] if page.is_file() else []


def _values(parameter: Parameter) -> str:
    """The default of a parameter, and its other choices."""
    values = dict.fromkeys((parameter.default, *parameter.choices))
    return ", ".join(_code(format_level(value)) for value in values)


def _meaning(parameter: Parameter) -> str:
    return parameter.help + (f" ({_code(parameter.needed.replace(' or ', '/'))})" if parameter.needed else "")


def _page_of(experiment: str) -> Path | None:
    """The first English page of docs/experiments that names the command to run the experiment."""
    pages = sorted((DOCS / "experiments").glob("*.md"))
    english = (path for path in pages if path.suffixes == [".md"] and path.stem != "README")
    return next((path for path in english if _tells_of(path.read_text(), experiment)), None)


def _tells_of(page: str, experiment: str) -> bool:
    """True if the page names the experiment or the command to run it."""
    return _code(experiment) in page or f"`powerband run {experiment}`" in page


def _code(text: str) -> str:
    return f"`{text}`"


def _line(text: str) -> str:
    return " ".join(text.split())


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rows_of_text = ([_line(cell).replace("|", r"\|") for cell in row] for row in rows)
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows_of_text)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"


def _between(page: str, mark: str, text: str, path: Path) -> str:
    """The page with the text between its two marks replaced."""
    begin, end = f"<!-- made by `make reference`: {mark} -->\n", f"<!-- end of {mark} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{path}: needs the two marks {begin.strip()} and {end}, once each")
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}{text}\n{end}", page, flags=re.DOTALL)


if __name__ == "__main__":
    main()
