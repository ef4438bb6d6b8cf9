"""The page of benchmarks and the README's quotes of it: each table is the one that the kept data make, and each
figure is from the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal

import pytest
from benchmarks import kept_lines
from benchmarks.__main__ import SECTIONS
from benchmarks.pairs import MET

from fakes.pages import ROOT, tables

PAGE = (ROOT / "docs" / "benchmarks.md").read_text()
README = (ROOT / "README.md").read_text()
LINK = (ROOT / "docs" / "methods" / "link.md").read_text()
TABLES = tables(PAGE)
KEPT = {kept.section: kept for kept in kept_lines.all_kept()}
SECTIONS_OF_PAGES = {name for name, section in SECTIONS.items() if section.kept} | {"aa"}
# Descriptions of the measurements, not results: the page has these words or figures.
SETTINGS = ("16 pool sizes", "3 %", "64 connections", "1,000 threads")


def block(section: str) -> str:
    """The text between the marks of a section on its page."""
    page = LINK if section == "link" else PAGE
    begin, end = kept_lines.marks(section)
    assert page.count(begin) == page.count(end) == 1, section
    return page.partition(begin)[2].partition(end)[0]


def test_each_section_is_kept() -> None:
    assert set(KEPT) == SECTIONS_OF_PAGES


def test_a_kept_section_is_on_the_page_as_its_data_make_it() -> None:
    for section, kept in KEPT.items():
        text = block(section).strip("\n")
        assert text.startswith(kept_lines.blocks(kept.lines) + "\n\n*" + kept.date), "run `make reference`"
        assert text.endswith(f"data/benchmarks/{section}.jsonl).*")
        assert re.fullmatch(r"[0-9a-f]{7,}", kept.commit), "measured with changed files, or outside of a checkout"
        assert kept.machine.partition(",")[0] in PAGE, "the page does not name the machine"


def test_no_table_is_outside_of_the_sections() -> None:
    page = PAGE
    for name in SECTIONS_OF_PAGES - {"link"}:
        page = page.replace(block(name), "")
    assert tables(page) == []


def titled(*heads: str) -> list[dict[str, str]]:
    """The rows of all tables with these columns, by heading; the column of the verdict has an empty heading."""
    found = []
    for head, *rows in TABLES:
        if set(heads) <= set(head):
            found += [dict(zip(head, row, strict=True)) for row in rows]
    assert found, heads
    return found


def number(cell: str) -> float:
    found = re.match(r"[\d.,]+", cell)
    assert found, cell
    return float(found[0].replace(",", ""))


def rounded(value: float, places: str) -> str:
    """The value rounded half up, as people do."""
    return str(Decimal(str(value)).quantize(Decimal(places), ROUND_HALF_UP))


def ends(values: Sequence[float], places: str) -> str:
    low, high = rounded(min(values), places), rounded(max(values), places)
    return low if low == high else f"{low} to {high}"


def test_each_case_has_one_row() -> None:
    cases = [
        tuple(row.get(key, "") for key in ("row", "against", "connections", "what", "server")) for row in titled("")
    ]
    assert [case for case in set(cases) if any(case) and cases.count(case) > 1] == []


def spoken(days: Iterable[str]) -> str:
    """The days in order; of the same month as the one before only the day."""
    first, *rest = sorted(days)
    words = [first]
    for before, day in zip([first, *rest], rest, strict=False):
        words.append(day[-2:] if day[:7] == before[:7] else day)
    return f"{', '.join(words[:-1])} and {words[-1]}" if rest else first


def quoted() -> dict[str, list[str]]:
    """The figures that the tables give for each paragraph of the README."""
    http = titled("ours us", "connections")
    plain = [row for row in http if row["connections"] == "64" and "pipelined" not in row["against"]]
    wrk = [number(row["ratio"]) for row in plain if row["against"] == "wrk"]
    assert all(row[""] == MET for row in plain if row["against"] in ("k6", "JMeter"))
    ours = [number(row["ours us"]) for row in plain]
    (probe,) = [row["measured"] for row in titled("what", "measured") if row["what"].startswith("the monitor on a")]
    (race,) = [row["measured"] for row in titled("what", "measured") if row["what"].startswith("time of the race")]
    answers = [(row["row"], row["seconds"]) for row in titled("row", "trials")]
    quickstart, gunicorn = (
        [float(figure) for row, cell in answers if row.startswith(name) for figure in re.findall(r"\d+", cell)]
        for name in ("quickstart", "gunicorn")
    )
    return {
        "Time": [f"take {ends(quickstart, '1')} s", f"gunicorn {ends(gunicorn, '1')} s"],
        "Fast": [f"in {number(race):.2f} of the full grid's time"],
        "Lean": [
            f"{ends(ours, '0.1')} us of CPU a request",
            f"{wrk[0]:.2f} of wrk's",
            "less than 1/7 of k6's",
            "less than 1/12 of JMeter's",
        ],
        "Unobtrusive": [
            f"{number(probe):.1f} % of one core",
        ],
    }


@pytest.mark.parametrize("paragraph", ["Time", "Fast", "Lean", "Unobtrusive"])
def test_each_figure_of_the_readme_is_the_tables(paragraph: str) -> None:
    found = re.search(rf"^- \*\*{paragraph}\*\*: (.*?)(?=^- |^$)", README, re.S | re.M)
    assert found
    text = " ".join(found[1].split())
    for phrase in quoted()[paragraph]:
        assert phrase in text, phrase
        text = text.replace(phrase, "")
    for phrase in SETTINGS:
        assert re.search(rf"\b{phrase.split()[0]}\b", PAGE), phrase
        text = text.replace(phrase, "")
    assert re.findall(r"\d[\d.,/]*", text) == [], "figures that no table has"


def test_the_readme_names_the_days_of_the_tables() -> None:
    (days,) = re.findall(r"^Measured on (.*?) on 2-core", README, re.M)
    assert days == spoken({kept.date for kept in KEPT.values()})


def test_what_the_readme_says_of_theory_is_the_tables() -> None:
    rows = titled("theory", "deviation (95 % interval)")
    assert sorted(row["quantity"] for row in rows) == ["mean response time"] * 4 + ["throughput"] * 2
    off = max(abs(float(row["deviation (95 % interval)"].split(" ")[0])) for row in rows)
    assert f"Two throughputs and four mean response times lay within {off} % of theory" in README
    page = (ROOT / "docs" / "methods" / "capacity.md").read_text()
    (pools,) = [table for table in tables(page) if "figure, of M/G/k" in table[0]]
    at = pools[0].index("figure, of M/G/k")
    found = [float(end) for row in pools[1:] for end in row[at].split(" to ")]
    assert f"[capacities of real pools](docs/methods/capacity.md) at {min(found)} to {max(found)} of it" in README


def test_the_page_names_each_section() -> None:
    assert {name for name in SECTIONS if f"`{name}`" not in PAGE} == set()
