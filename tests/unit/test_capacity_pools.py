"""The searches of real pools, without starting anything: which come next, the sentence about them, and whether they
took as long as is said before."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.capacity_pools import LANGUAGES, Outcome, lacks_windows, left, pools, summary, table
from benchmarks.footer import ROOT
from benchmarks.kept_rows import read_rows

from fakes.edges import capacity_experiment
from powerband.base.machine import Noise
from powerband.model.experiment import Objective
from powerband.model.load import Load
from powerband.search.forecast import CAPACITY_WINDOWS, forecast

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
    said = table([replace(MEASURED, commit="abc1234"), nothing])
    assert said.splitlines()[0].endswith(", commit abc1234, not kept")
    assert "Of 2 searches the interval holds M/G/k in 1 and the edge of windows of 60 s in 1, both in 1" in said
    assert "Windows beyond" not in said


def test_the_time_of_longer_windows_is_said_as_a_share_of_a_search() -> None:
    done = [replace(MEASURED, beyond_s=beyond_s) for beyond_s in (40.0, 80.0, 120.0)]
    said = "Windows beyond 3 s took 25% to 75% of the time of a search (median 50%)."
    assert summary([MEASURED, *done])[-1].endswith(said)


METHODS = ROOT / "docs" / "methods"
(KEPT,) = (METHODS / "data").glob("capacity-pools-*.jsonl")


def test_the_page_says_what_the_kept_searches_say() -> None:
    done = read_rows(KEPT, Outcome)
    assert len(done) >= 20
    page = (METHODS / "capacity.md").read_text()
    assert "\n".join(summary(done)) in page
    assert f"data/{KEPT.name}" in page


def test_the_windows_of_the_kept_searches_are_as_long_as_the_forecast_takes_them_for() -> None:
    done = read_rows(KEPT, Outcome)
    longest_s, short_s = 30.0, 3.0  # of the quick profile
    shares = [row.beyond_s / row.trials / (longest_s - short_s) for row in done if row.beyond_s is not None]
    least, _, most = CAPACITY_WINDOWS
    held = sum(least <= share <= most for share in shares)
    page = (METHODS / "forecast.md").read_text()
    assert f"to {most} of the way to the longest, as {held} of {len(done)} [pools](capacity.md) needed" in page


def test_the_kept_searches_took_as_long_as_is_said_before() -> None:
    done, inside = read_rows(KEPT, Outcome), 0
    for row in done:
        wanted = Objective(metric="capacity", subject_to=[f"p99 < {1e3 * row.limit_ms:.0f}us", "errors < 0.1%"])
        quick = capacity_experiment(load=Load(users=64, duration_ns=3_000_000_000), objective=wanted)
        said = forecast(quick, Noise(0.02))
        assert said.between_ns is not None
        low_s, high_s = (each / 1e9 for each in said.between_ns)
        assert low_s < said.expected_ns / 1e9 < high_s < 5 * low_s, "a range that says something"
        inside += low_s <= row.seconds <= high_s
    assert inside >= 0.9 * len(done)
