"""The searches of real pools, without starting anything: which come next, and the sentence about them."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.capacity_pools import LANGUAGES, Outcome, lacks_windows, left, pools, summary, table
from benchmarks.footer import ROOT
from benchmarks.kept_rows import read_rows

FOUND = Outcome("go, 4 threads, fixed", 1000.0, 1200.0, 1400.0, 1250.0, 1550.0, 10.0, 26, 0, 160.0, "Use it.")
MEASURED = replace(FOUND, p99_low_ms=6.0, p99_high_ms=20.0)


def test_the_first_three_hold_every_language_size_and_kind_of_service() -> None:
    every = pools(LANGUAGES)
    assert len(set(every)) == 27
    first = every[:3]
    assert len({pool.language for pool in first}) == len({pool.threads for pool in first}) == 3
    assert len({pool.service for pool in first}) == 3


def test_searches_go_on_where_they_were_stopped() -> None:
    every = pools(("go",))
    done = [replace(FOUND, pool=every[1].name)]
    assert left(every, done, 3) == [every[0], every[2]]
    assert left(every, done, 1) == []
    assert len(left(every, done, 20)) == 19


def test_a_search_agrees_with_windows_that_hold_at_its_low_end_alone() -> None:
    assert FOUND.by_theory and not FOUND.by_windows and lacks_windows(FOUND)
    assert MEASURED.by_windows and not lacks_windows(MEASURED)
    assert not replace(MEASURED, p99_low_ms=12.0).by_windows
    assert not replace(MEASURED, p99_high_ms=9.0).by_windows
    nothing = replace(FOUND, low=None, value=None, high=None)
    assert not nothing.by_theory and not lacks_windows(nothing)
    said = table([MEASURED, nothing])
    assert "Of 2 searches the interval holds M/G/k in 1 and the edge of windows of 60 s in 1, both in 1" in said


def test_the_page_says_what_the_kept_searches_say() -> None:
    folder = ROOT / "docs" / "methods"
    (kept,) = (folder / "data").glob("capacity-pools-*.jsonl")
    done = read_rows(kept, Outcome)
    assert len(done) >= 20
    page = (folder / "capacity.md").read_text()
    assert "\n".join(summary(done)) in page
    assert f"data/{kept.name}" in page
