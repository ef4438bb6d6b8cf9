"""The page of benchmarks and the README's quotes of it: each row has its date, each verdict is the rule's, and each
figure is from the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal

import pytest
from benchmarks import kept_lines
from benchmarks.__main__ import SECTIONS
from benchmarks.pairs import MET, NOT_MET, UNDECIDED, Spread

from fakes.pages import ROOT, tables

PAGE = (ROOT / "docs" / "benchmarks.md").read_text()
README = (ROOT / "README.md").read_text()
LINK = (ROOT / "docs" / "methods" / "link.md").read_text()
TABLES = tables(PAGE)
KEPT = {kept.section: kept for kept in kept_lines.all_kept()}
# Sections whose rows are older than the kept data, and typed by hand with their days. The set may only shrink: a
# section leaves it when it is measured again.
OLDER = {
    "aa",
    "analysis",
    "answer",
    "bench-share",
    "calibration",
    "control-plane",
    "http",
    "jmeter",
    "link",
    "live",
    "memory",
    "open-loop",
    "own-code",
    "probe",
    "race",
    "statsd",
    "switches",
    "watching",
    "websocket",
    "websocket-crowd",
    "websocket-memory",
    "websocket-waiting",
}
VERDICTS = {MET, NOT_MET, UNDECIDED}
DAY = re.compile(r"20\d\d-\d\d-\d\d\b")
WITH_ENDS = re.compile(r"(-?[\d.]+) \((-?[\d.]+) to (-?[\d.]+)\)")
SECONDS = "seconds, median (range)"
# Descriptions of the measurements, not results: the page has these words or figures.
SETTINGS = ("16 pool sizes", "3 %", "64 connections", "1,000 threads")


def block(section: str, page: str = PAGE) -> str:
    """What a page has between the marks of a section."""
    begin, end = kept_lines.marks(section)
    assert page.count(begin) == page.count(end) == 1, section
    return page.partition(begin)[2].partition(end)[0]


def older_page() -> str:
    """The page without the sections that are kept."""
    page = PAGE
    for section in set(KEPT) - {"link"}:
        page = page.replace(block(section), "")
    return page


OLDER_TABLES = tables(older_page())


def older(*heads: str) -> list[dict[str, str]]:
    """The rows of all tables of older sections with these columns, by heading."""
    return [
        dict(zip(head, row, strict=True)) for head, *rows in OLDER_TABLES if set(heads) <= set(head) for row in rows
    ]


def test_each_section_is_kept_or_known_to_be_older() -> None:
    kept_sections = {name for name, section in SECTIONS.items() if section.kept} | {"aa"}
    assert set(KEPT) <= kept_sections
    assert kept_sections - set(KEPT) == OLDER


def test_a_kept_section_is_on_the_page_as_its_data_make_it() -> None:
    for section, kept in KEPT.items():
        text = block(section, LINK if section == "link" else PAGE).strip("\n")
        assert text.startswith(kept_lines.blocks(kept.lines) + "\n\n*" + kept.date), "run `make reference`"
        assert text.endswith(f"data/benchmarks/{section}.jsonl).*")
        assert re.fullmatch(r"[0-9a-f]{7,}", kept.commit), "measured with changed files, or outside of a checkout"
        assert kept.machine.partition(",")[0] in PAGE, "the page does not name the machine"


def test_no_table_is_outside_of_the_sections() -> None:
    page = PAGE
    for name in ({name for name, section in SECTIONS.items() if section.kept} | {"aa"}) - {"link"}:
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


@pytest.mark.parametrize("table", OLDER_TABLES, ids=[" ".join(head)[:40] for head, *_ in OLDER_TABLES])
def test_each_older_row_says_when_it_was_measured(table: list[list[str]]) -> None:
    head, *rows = table
    assert head[-1] in ("measured", "on")
    assert [row for row in rows if not DAY.match(row[-1])] == []


def test_verdicts_have_the_words_of_the_rule() -> None:
    rows = titled("")
    assert {row[""] for row in rows} - {""} <= VERDICTS
    assert len([row for row in rows if row[""]]) > 20
    assert set(re.findall(r"\b(?:on the edge|missed|DIFFERENT)\b", PAGE)) == set()


def judged() -> Iterator[tuple[str, Spread, dict[str, float], str]]:
    """Yields each older row that has the ends of its interval and a column with its target: name, spread, target,
    verdict. Lines of kept sections are made by the rule."""
    for row in older("ratio (range)"):
        found = WITH_ENDS.fullmatch(row["ratio (range)"])
        assert found, row
        # A range stays a range for any number of pairs: it is not taken for the narrower interval.
        spread = Spread(*map(float, found.groups()), int(row["pairs"]), is_interval=False)
        yield f"{row['against']} {row['measured']}", spread, {"at_most": number(row["at most"])}, row[""]
    for row in older("monitor on / off (95 % interval)"):
        found = WITH_ENDS.fullmatch(row["monitor on / off (95 % interval)"])
        assert found, row
        spread = Spread(*map(float, found.groups()), int(row["pairs of windows"]), is_interval=True)
        yield f"{row['actors']} {row['measured']}", spread, {"at_least": 0.99}, row[""]
    for row in older("races", "at most"):
        share, low, high = (
            float(figure) for figure in re.findall(r"[\d.]+", row[next(k for k in row if "share" in k)])
        )
        yield row["what"], Spread(share, low, high, 100, is_interval=True), {"at_most": number(row["at most"])}, row[""]
    for row in older("JMeter against engine (95 % interval over pairs)", "allowed"):
        if row["allowed"]:
            text = row["JMeter against engine (95 % interval over pairs)"].replace("%", "").replace("+", "")
            found = WITH_ENDS.fullmatch(text)
            assert found, row
            spread = Spread(*map(float, found.groups()), 8, is_interval=True)
            allowed = number(row["allowed"])
            yield f"JMeter {text}", spread, {"at_most": allowed, "at_least": -allowed}, row[""]


def test_each_verdict_is_the_one_of_the_rule() -> None:
    rows = list(judged())
    assert len(rows) + sum(len(kept.rows) for kept in KEPT.values()) > 15
    assert [(name, said) for name, found, target, said in rows if found.verdict(**target) != said] == []


def watched(name: str) -> list[str]:
    """The measured values of the row with this name, and of the rows below it that measure the same."""
    found: dict[str, list[str]] = {}
    current = ""
    for row in titled("what", "measured"):
        current = current if row["what"].startswith("the same") else row["what"]
        found.setdefault(current, []).append(row["measured"])
    (rows,) = [rows for key, rows in found.items() if key.startswith(name)]
    return rows


def either(row: dict[str, str], *heads: str) -> str:
    """The cell of the only one of these columns that the row has: older tables have other headings."""
    (cell,) = [row[head] for head in heads if head in row]
    return cell


def days_of(sections: Iterable[str]) -> set[str]:
    """The days on which these sections were measured."""
    return {day for name in sections for day in ([KEPT[name].date] if name in KEPT else DAY.findall(block(name)))}


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
    ratios = {
        name: [number(either(row, "ratio", "ratio (range)")) for row in plain if row["against"].startswith(name)]
        for name in ("wrk", "oha", "k6", "JMeter")
    }
    ours = [number(row["ours us"]) for row in plain]
    probe = [number(text) for text in watched("the monitor on a server with 1,000 threads")]
    answers = [(row["row"], either(row, "seconds", SECONDS)) for row in titled("row", "trials")]
    quickstart, gunicorn = (
        [float(figure) for row, cell in answers if row.startswith(name) for figure in re.findall(r"\d+", cell)]
        for name in ("quickstart", "gunicorn")
    )
    return {
        "Time": [f"take {ends(quickstart, '1')} s", f"gunicorn {ends(gunicorn, '1')} s"],
        "Fast": [],  # it has no figure of its own
        "Lean": [
            f"{ends(ours, '0.1')} us of CPU a request",
            f"{ends(ratios['wrk'], '0.01')} of wrk's",
            f"1/{1 / ratios['k6'][0]:.0f} of k6's",
            f"1/{1 / ratios['JMeter'][0]:.0f} of JMeter's",
        ],
        "Unobtrusive": [
            f"{ends(probe, '0.1')} % of one core",
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
    sections = ("http", "open-loop", "websocket-crowd", "probe", "bench-share", "control-plane", "switches", "answer")
    assert days == spoken(days_of(sections))


def test_what_the_readme_says_of_theory_is_the_tables() -> None:
    rows = titled("theory", "deviation (95 % interval)")
    assert sorted(row["quantity"] for row in rows) == ["mean response time"] * 3 + ["throughput"]
    off = max(abs(float(row["deviation (95 % interval)"].split(" ")[0])) for row in rows)
    assert f"A throughput and three mean response times lay within {off} % of theory" in README
    page = (ROOT / "docs" / "methods" / "capacity.md").read_text()
    (pools,) = [table for table in tables(page) if "figure, of M/G/k" in table[0]]
    at = pools[0].index("figure, of M/G/k")
    found = [float(end) for row in pools[1:] for end in row[at].split(" to ")]
    assert f"[capacities of real pools](docs/methods/capacity.md) at {min(found)} to {max(found)} of it" in README


def test_the_page_names_each_section() -> None:
    assert {name for name in SECTIONS if f"`{name}`" not in PAGE} == set()
