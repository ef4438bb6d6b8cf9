"""Markdown for a pull request: short, complete, and unaffected by any content of a run directory."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fakes import synthetic, synthetic_verdicts
from powerband.analyze.runs.changes import Change, RunComparison
from powerband.model.plan import Setting
from powerband.model.results import Analysis, Estimate, Verdict
from powerband.report.documents.markdown import render_changes, render_markdown
from powerband.report.documents.markdown_text import block, code, one_line, prose
from powerband.store import RunDir

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
WIDTHLESS = "\u200b"
HOSTILE = [
    "<script>alert(1)</script>",
    "[a](https://evil.example)",
    "![a](https://evil.example/a.png)",
    "<https://evil.example>",
    "[a]: https://evil.example",
    "https://evil.example www.evil.example a@evil.example",
    "@octocat #12 gh-12 owner/repo#7 3f2a9c1d :tada:",
    "**bold** __bold__ ~~gone~~ `code` $x$",
    "a|b\\|c\\",
    "`a` | ``b`` \\",
    "- item",
    "1. item",
    "# heading",
    "> quote",
    "===",
    "a\n\n<img src=x onerror=alert(1)>\n\n</details>",
    "&lt;script&gt; &amp;",
    "```\n```",
    "<!-- -->",
    "a \u202e b \x1b[31m",
    "'=cmd",
]


def inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from inline(token.children or [])


def text_of(token: Token) -> str:
    """The text of a token as a reader and GitHub see it, without zero-width spaces."""
    assert {child.type for child in token.children or []} <= {"text"}, token.children
    return "".join(child.content for child in token.children or []).replace(WIDTHLESS, "")


@pytest.mark.parametrize("text", HOSTILE)
def test_prose_is_only_text(text: str) -> None:
    first, paragraph, last = MARKDOWN.parse(prose(text))
    assert (first.type, last.type) == ("paragraph_open", "paragraph_close")
    assert text_of(paragraph) == one_line(text)


@given(st.text())
def test_any_prose_is_only_text(text: str) -> None:
    tokens = MARKDOWN.parse(prose(text))
    wanted = one_line(text).replace(WIDTHLESS, "").strip()
    assert "".join(text_of(token) for token in tokens if token.type == "inline").strip() == wanted
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}


@given(st.text("`|\\ab<@", max_size=8), st.text("|\\`*a", max_size=8))
def test_any_name_stays_in_its_cell(name: str, said: str) -> None:
    tokens = MARKDOWN.parse(f"| a | b |\n| --- | --- |\n| {code(name)} | {prose(said)} |\n")
    cells = [tokens[index + 1] for index, token in enumerate(tokens) if token.type == "td_open"]
    assert len(cells) == 2
    assert text_of(cells[1]) == one_line(said)
    parts = [child for child in cells[0].children or [] if child.type != "html_inline"]
    assert {child.type for child in parts} <= {"code_inline", "text"}
    assert "".join(child.content for child in parts).replace(WIDTHLESS, "") == one_line(name)


@pytest.mark.parametrize("text", ["@octocat", "a@b.example", "see #12", "GH-7", "https://a.example", "WWW.a.example",
                                  "3f2a9c1", ":tada:", "owner/repo@3f2a9c1"])  # fmt: skip
def test_what_github_looks_for_after_markdown_is_not_there(text: str) -> None:
    """GitHub looks for these patterns in the text after Markdown is rendered."""
    shown = "".join(child.content for token in MARKDOWN.parse(prose(text)) for child in token.children or [])
    looks_for = r"@\w|#\d|gh-\d|://|www\.|\b[0-9a-f]{7,40}\b|:\w+:"
    assert re.search(looks_for, text, re.IGNORECASE)
    assert not re.search(looks_for, shown, re.IGNORECASE)


def test_words_of_our_own_stay_as_they_are() -> None:
    said = "Use threads=32. It serves 1,480/s (1,466–1,496): 3.2 % more, at 95 % confidence; p99 12.5 ms."
    assert prose(said) == said
    assert code("threads=32,queue=100") == "`threads=32,queue=100`"


@given(st.text("`~ab\n<\x00"))
def test_lines_of_code_cannot_end_their_fence(text: str) -> None:
    (token,) = MARKDOWN.parse(f"{block(text)}\n")
    assert token.type == "fence"


def hostile(text: str) -> Analysis:
    """An analysis with this text in every name and message that a run directory decides."""
    of = synthetic.analysis(levels=(1, 32))
    renamed = {row.setting: Setting(((f"f {text}", f"{text}{index}"),)) for index, row in enumerate(of.settings)}
    settings = tuple(
        replace(row, setting=renamed[row.setting], infeasible_because=(text,) * (not row.feasible))
        for row in of.settings
    )
    problem = replace(synthetic.trials()[11].problems[0], message=text)
    trials = tuple(replace(trial, setting=renamed[trial.setting], problems=(problem,)) for trial in of.trials)
    answer = replace(
        of.answer, setting=settings[1].setting, leader=settings[1].setting, equivalent=(), undecided=(),
        sentences=(f"Use {text}.", text),
    )  # fmt: skip
    claims = tuple(replace(claim, says=text, published=text, sentence=text) for claim in of.claims)
    return replace(
        of, name=text, question=text, constraints=(text,), settings=settings, trials=trials, answer=answer,
        claims=claims, warnings=(text,), found=(text,),
    )  # fmt: skip


def run_at(folder: Path, text: str = "x") -> RunDir:
    folder.mkdir()
    named = dict.fromkeys(("kernel", "distribution", "virtualisation", "container"), text)
    cpu, versions = {"model": text, "allowed": [0, 1]}, {"powerband": text}
    facts = {"command": ["powerband", "run", text], "cpu": cpu, "versions": versions, **named}
    (folder / "host.json").write_text(json.dumps(facts))
    return RunDir(folder)


OURS = {"<details>", "<summary>", "</summary>", "</details>", "<sub>", "</sub>", "<code>", "</code>"}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_document_has_no_markup_but_our_own(text: str, tmp_path: Path) -> None:
    run = run_at(tmp_path / "run", text)
    value = Estimate(1.0, 0.9, 1.1, 0.95, 3)
    of = Setting(((text, text),))
    change = Change(of, value, value, value, Verdict.WORSE, 0.1, text)
    comparison = RunComparison(
        "goodput_per_s", "maximise", 0.95, 0.03, (change,), (of,), (), (text, text), True, (text,)
    )
    analysis = hostile(text)
    plain = (
        render_markdown(hostile("x"), run_at(tmp_path / "x")),
        render_changes(replace(comparison, names=("x", "y")), None),
    )
    for document, clean in ((render_markdown(analysis, run), plain[0]), (render_changes(comparison, run), None)):
        tokens = list(inline(MARKDOWN.parse(document)))
        assert not {"link_open", "image", "blockquote_open", "hr"} & {token.type for token in tokens}
        tags = {
            tag for token in tokens if token.type.startswith("html") for tag in re.findall(r"<[^>]*>", token.content)
        }
        assert tags <= OURS
        if clean is not None:
            shape = [token.type for token in MARKDOWN.parse(document)]
            assert shape == [token.type for token in MARKDOWN.parse(clean)]


def test_a_run_is_told_whole(tmp_path: Path) -> None:
    of = synthetic.analysis()
    text = render_markdown(of, run_at(tmp_path / "run"))
    lines = text.splitlines()
    assert lines[0] == "### powerband: Which pool size serves an I/O-bound request best here?"
    assert lines[2] == "**Use threads=32.**"
    (row,) = [line for line in lines if line.startswith("| **`32`** |")]
    assert row.count("|") == lines[lines.index(row) - 6].count("|")
    assert "| equivalent |" in row and "131\u00a0ms" in row
    assert [verdict for verdict in ("confirmed", "refuted", "inconclusive") if f"| **{verdict}** |" in text] == [
        "confirmed", "refuted", "inconclusive",
    ]  # fmt: skip
    assert "<details><summary>2 trials excluded</summary>" in text
    assert f"powerband run {tmp_path}/run/experiment.yaml" in text
    assert "To mind:" in text and "this machine has 2 CPUs" in text
    assert "How to repeat" not in render_markdown(of, None)


def test_of_many_settings_the_best_are_shown() -> None:
    of = synthetic.analysis(levels=tuple(range(1, 31)))
    text = render_markdown(of, None)
    assert len(re.findall(r"^\| (?:\*\*)?`\d", text, re.M)) == 20
    assert "And 10 settings more." in text
    assert f"| **`{of.answer.setting.levels[0][1]}`** |" in text if of.answer.setting else False
    least = replace(of, answer=replace(of.answer, setting=synthetic.setting(threads=1)))
    rows = re.findall(r"^\| (?:\*\*)?`\d.*", render_markdown(least, None), re.M)
    assert len(rows) == 20 and rows[-1].startswith("| **`1`** |"), "the answer stands there, though others are better"


@pytest.mark.parametrize("made", [synthetic_verdicts.race_analysis, synthetic_verdicts.capacity_analysis])
def test_every_row_of_a_table_has_every_cell(made: object) -> None:
    assert callable(made)
    for table in re.findall(r"(?:^\|.*\n)+", render_markdown(made(), None), re.M):
        assert len({line.count("|") for line in io.StringIO(table)}) == 1


def test_the_command_is_repeated_as_it_was_typed(tmp_path: Path) -> None:
    document = render_markdown(synthetic.analysis(), run_at(tmp_path / "run", "printf 'a  b'\ndate"))
    assert shlex.quote("printf 'a  b'\ndate") in document
