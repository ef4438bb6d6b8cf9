"""The Korean pages are kept in step with the English ones: the same sections, commands, links, tables and figures.

The comparison needs no Korean: it finds a section, a command or a figure that changed in one language only."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from fakes.pages import ROOT, blocks, commands, headings, links, tables, without_blocks

PAIRS = [
    ("README.md", "README.ko.md"),
    ("docs/quickstart.md", "docs/quickstart.ko.md"),
    ("docs/tutorial.md", "docs/tutorial.ko.md"),
    ("docs/reading-the-answer.md", "docs/reading-the-answer.ko.md"),
    ("docs/node.md", "docs/node.ko.md"),
    ("docs/install.md", "docs/install.ko.md"),
    ("docs/ci.md", "docs/ci.ko.md"),
    ("docs/jvm-servers.md", "docs/jvm-servers.ko.md"),
]
# Shorter pages, which retell the results of English ones.
RETOLD = [
    ("docs/experiments/README.ko.md", ["README.md"]),
    ("docs/experiments/thread-vs-pool.ko.md", ["thread-vs-pool.md"]),
    ("docs/experiments/vertx-instances.ko.md", ["vertx-instances.md"]),
    ("docs/experiments/spring-executor.ko.md", ["spring-executor.md"]),
    ("docs/experiments/socketcluster.ko.md", ["socketcluster-throughput.md", "socketcluster-concurrency.md"]),
    ("docs/experiments/akka.ko.md", ["akka-net.md", "infinite-reflection.md"]),
]
GLOSSARY = "docs/glossary.ko.md"
# A section that only a Korean page has: what the sentences on the screen mean, which are English.
GLOSSES = re.compile(r"^## 화면의 영어$.*?(?=^## )", re.M | re.S)
# The line with the link to the other language.
OTHER = re.compile(r"^\*\w+: \[.*?\.md\]\(.*?\)\*$", re.M)
FIGURE = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")

translated = pytest.mark.parametrize(("english", "korean"), PAIRS, ids=[english for english, _ in PAIRS])
retold = pytest.mark.parametrize(("korean", "told"), RETOLD, ids=[korean for korean, _ in RETOLD])


def whole(name: str) -> str:
    return (ROOT / name).read_text()


def page(name: str) -> str:
    """The text that both languages have."""
    return GLOSSES.sub("", whole(name))


def sections(name: str) -> list[str]:
    """The text below each heading, without code blocks and the line to the other language."""
    text = OTHER.sub("", without_blocks(page(name)))
    return re.split(r"^#+ .*$", text, flags=re.M)


def prose(section: str) -> str:
    """The text without the targets of links and without code, which may contain figures that are not translated."""
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", " ", section))


def figures(text: str) -> Counter[str]:
    return Counter(found.rstrip(",") for found in FIGURE.findall(text))


def codes(section: str) -> Counter[str]:
    """The texts between backticks: names of commands, options and files, which are the same in any language."""
    return Counter(re.findall(r"`([^`\n]+)`", section))


@translated
def test_each_leads_to_the_other(english: str, korean: str) -> None:
    for name, other in ((english, korean), (korean, english)):
        (line,) = OTHER.findall(page(name))
        assert f"]({other.rpartition('/')[2]})" in line


@translated
def test_the_sections_are_the_same(english: str, korean: str) -> None:
    assert [level for level, _ in headings(page(korean))] == [level for level, _ in headings(page(english))]
    numbers = [[re.match(r"\d+\.", text) for _, text in headings(page(name))] for name in (english, korean)]
    assert [found and found[0] for found in numbers[0]] == [found and found[0] for found in numbers[1]]


@translated
def test_the_code_blocks_are_identical(english: str, korean: str) -> None:
    assert blocks(page(korean)) == blocks(page(english))


@translated
def test_the_links_are_the_same(english: str, korean: str) -> None:
    """The links are compared section by section; within a section word order may differ. A Korean page may link to a
    Korean one."""
    for here, there in zip(sections(english), sections(korean), strict=True):
        assert Counter(link.replace(".ko.md", ".md") for link in links(there)) == Counter(
            link.replace(".ko.md", ".md") for link in links(here)
        )


@translated
def test_the_tables_have_the_same_rows(english: str, korean: str) -> None:
    shapes = [[[len(row) for row in table] for table in tables(page(name))] for name in (english, korean)]
    assert shapes[0] == shapes[1]


@translated
def test_the_figures_are_the_same(english: str, korean: str) -> None:
    for here, there in zip(sections(english), sections(korean), strict=True):
        assert figures(prose(there)) == figures(prose(here)), here.strip()[:80]


@translated
def test_the_names_of_commands_and_options_are_the_same(english: str, korean: str) -> None:
    for here, there in zip(sections(english), sections(korean), strict=True):
        assert codes(there) == codes(here), here.strip()[:80]


@translated
def test_each_paragraph_has_its_translation(english: str, korean: str) -> None:
    """Both languages have the same number of list items, and each Korean item contains Korean."""
    for here, there in zip(sections(english), sections(korean), strict=True):
        items = [re.findall(r"^- .*$", text, re.M) for text in (here, there)]
        assert len(items[0]) == len(items[1])
        assert [item for item in items[1] if not re.search("[가-힣]", item)] == []


@pytest.mark.parametrize("korean", [korean for _, korean in PAIRS] + [korean for korean, _ in RETOLD])
def test_the_words_are_those_of_the_glossary(korean: str) -> None:
    """No spelling that the glossary rules out stands on a Korean page."""
    (rows,) = tables(whole(GLOSSARY))
    text = whole(korean)
    ruled_out = {word.strip() for row in rows[1:] for word in row[2].split(",") if word.strip()}
    assert ruled_out
    assert {word for word in ruled_out if word in text} == set()


@pytest.mark.parametrize("korean", [korean for _, korean in PAIRS] + [korean for korean, _ in RETOLD])
def test_units_are_written_as_koreans_do(korean: str) -> None:
    """Outside of code: no space before %, and µs in place of us."""
    assert re.findall(r"\d %|\d us\b", prose(without_blocks(whole(korean)))) == []


def test_the_sentences_that_are_glossed_are_those_of_the_screen() -> None:
    (section,) = GLOSSES.findall(whole("docs/reading-the-answer.ko.md"))
    sources = [path.read_text() for path in (ROOT / "src" / "powerband").rglob("*.py")]
    said = re.sub(r'"\s+f?"', "", " ".join(sources))
    assert codes(section)
    assert [sentence for sentence in codes(section) if sentence not in said] == []


def english_pages(korean: str, told: list[str]) -> dict[str, str]:
    """The text of each English page that the Korean page retells, by name."""
    return {name: page(f"{korean.rpartition('/')[0]}/{name}") for name in told}


@retold
def test_a_page_and_those_that_it_retells_lead_to_each_other(korean: str, told: list[str]) -> None:
    (line,) = OTHER.findall(page(korean))
    assert [name for name in told if f"]({name})" not in line] == []
    for text in english_pages(korean, told).values():
        (line,) = OTHER.findall(text)
        assert f"]({korean.rpartition('/')[2]})" in line


@retold
def test_each_figure_that_is_retold_stands_in_the_english_pages(korean: str, told: list[str]) -> None:
    there = figures(" ".join(english_pages(korean, told).values()))
    assert set(figures(prose(without_blocks(page(korean))))) - set(there) == set()


@retold
def test_the_experiments_that_are_retold_are_run_as_there(korean: str, told: list[str]) -> None:
    """The English page has the command in a block, or above a table of kept data. Options may differ: a Korean page may
    fix a choice of CPUs that the English page only describes."""
    texts = english_pages(korean, told).values()
    there = [given[:2] for text in texts for given in commands(text)]
    there += [["run", name] for text in texts for name in re.findall("`powerband run ([a-z-]+)[ `]", text)]
    assert [given for given in commands(page(korean)) if given[:2] not in there] == []


def test_each_short_page_is_compared() -> None:
    pages = {f"docs/experiments/{path.name}" for path in (ROOT / "docs" / "experiments").glob("*.ko.md")}
    assert pages == {korean for korean, _ in RETOLD}
