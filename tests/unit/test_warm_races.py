"""The races of a JVM's first compiler against its last, without starting anything."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from benchmarks.footer import ROOT
from benchmarks.kept_rows import read_rows
from benchmarks.warm_races import (
    AS_TUNE,
    CASES,
    WITHIN,
    Outcome,
    Truth,
    experiment,
    first_and_last,
    groups_of,
    outcome,
    summary,
    table,
    to_come,
    truth_of,
)

from powerband.files.experiment_file import parse_experiment
from powerband.files.key_options import PROFILES

TRUTH = Truth("jvm", (6000.0, 12000.0))
RACE = Outcome("jvm", "normal", "best", "tier=4", (6100.0, 11900.0), (False, False), 12, 0, 300.0, "Use tier=4.")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("profile", PROFILES)
def test_an_experiment_is_as_tune_would_have_it(case: str, profile: str, tmp_path: Path) -> None:
    written = experiment(case, tmp_path, PROFILES[profile], AS_TUNE)
    read_back = parse_experiment(json.dumps(written), "warm.yaml")
    assert [setting.id for setting in read_back.settings()] == ["tier=1", "tier=4"]
    assert read_back.design.confirm_early and read_back.screened_ns is None, "two settings have no short trials"
    assert read_back.measure.repeats == int(PROFILES[profile]["measure.repeats"])
    assert read_back.host.cpus == {"jvm": "auto", "spring": "all"}[case]


def test_an_outcome_is_what_the_analysis_says() -> None:
    def trial(tier: int, *, rising: bool, fatal: bool = False) -> dict[str, object]:
        return {"setting": {"levels": {"tier": tier}}, "rising": rising, "problems": [{"fatal": fatal}]}

    analysis = {
        "answer": {"kind": "best", "setting": {"id": "tier=4"}, "sentences": ["Use tier=4.", "It is faster."]},
        "trials": [trial(1, rising=False), trial(1, rising=True, fatal=True), trial(4, rising=True)],
        "settings": [
            {"setting": {"levels": {"tier": 4}}, "estimates": {"goodput_per_s": {"value": 9000.0}}},
            {"setting": {"levels": {"tier": 1}}, "estimates": {}},
        ],
    }
    made = outcome("jvm", "quick", analysis, 61.5)
    assert (made.named, made.rates, made.rising) == ("tier=4", (None, 9000.0), (False, True))
    assert (made.trials, made.invalid, made.sentence) == (3, 1, "Use tier=4. It is faster.")


@pytest.mark.parametrize(
    ("rates", "rising", "holds"),
    [
        ((6290.0, 11500.0), (False, False), True),
        ((6000.0, 9000.0), (False, False), False),
        ((6000.0, 9000.0), (False, True), True),  # at least 9,000/s and rising
        ((6000.0, 13000.0), (False, True), False),  # no bound, since it is above
        ((6000.0, None), (False, True), False),
    ],
)
def test_figures_are_near_or_a_bound(rates: tuple[float, float], rising: tuple[bool, bool], holds: bool) -> None:
    assert replace(RACE, rates=rates, rising=rising).figures_hold(TRUTH) is holds


def test_the_first_ten_and_the_last_thirty_seconds_of_a_window_are_compared() -> None:
    second = 10**9
    events = [
        {"type": "phase", "phase": "measure"},
        {"type": "interval", "phase": "warmup", "start_ns": 0, "end_ns": second, "outcomes": {"ok": 7}},
        *(
            {"type": "interval", "phase": "measure", "start_ns": at * second, "end_ns": (at + 1) * second,
             "outcomes": {"ok": 90 if at <= 10 else 100 if at <= 55 else 110, "timeout": 5}}
            for at in range(1, 86)
        ),
    ]  # fmt: skip
    assert first_and_last(events) == (90.0, 110.0)


def test_a_truth_is_the_median_of_all_its_kept_lines_or_of_those_of_a_day() -> None:
    other = Truth("spring", (1.0, 2.0))
    days = {3.0: "2026-11-26", 9.0: "2026-11-30", 4.0: "2026-11-26"}
    lines = [Truth("jvm", (rate, 2 * rate), ((rate,), (1.0,)), day) for rate, day in days.items()]
    kept = [lines[0], other, *lines[1:]]
    assert truth_of("jvm", kept) == Truth("jvm", (4.0, 8.0), ((3.0, 9.0, 4.0), (1.0, 1.0, 1.0)))
    assert truth_of("jvm", kept, "2026-11-26").rates == (3.5, 7.0)
    assert truth_of("spring", kept, "") == truth_of("spring", kept) == other


def test_a_race_is_compared_with_the_truth_of_its_day() -> None:
    rows = [replace(RACE, day="slow", rates=(6000.0, 12000.0)), replace(RACE, day="fast", rates=(9000.0, 18000.0))]
    truths = [replace(TRUTH, day="slow"), replace(TRUTH, day="fast", rates=(9000.0, 18000.0))]
    assert "| jvm | normal | 7,500/s and 15,000/s | – | 2 | 2 (undecided) | 0 | 2 (undecided) |" in table(rows, truths)


def test_three_successive_starts_are_a_group_and_the_rest_is_left_out() -> None:
    assert groups_of([0.9, 1.0, 1.1, 1.2, 1.2, 1.2, 7.0]) == pytest.approx([1.0, 1.2])


def test_cases_take_turns_until_each_has_its_races_of_the_profile() -> None:
    done = [RACE, replace(RACE, profile="quick"), replace(RACE, kind="none_valid")]
    assert to_come(["jvm", "spring"], "normal", done, 2) == ["spring", "jvm", "spring"]


def test_the_table_counts_names_and_figures() -> None:
    rows = [*[RACE] * 18, replace(RACE, named="tier=1"), replace(RACE, named=None, rates=(6000.0, 9000.0))]
    text = table([*rows, replace(RACE, kind="none_valid", named=None)], [TRUTH])
    assert "20 races (1 more without a valid trial)" in text
    assert "| jvm | normal | 6,000/s and 12,000/s | – | 20 | 18 (undecided) | 1 | 19 (undecided) | 300 |" in text
    known = table([RACE], [replace(TRUTH, early=((0.9, 1.0), (1.0, 1.1)))])
    assert "| 0.95 (0.90 to 1.00) and 1.05 (1.00 to 1.10) | 1 |" in known


def test_the_page_says_what_the_kept_races_say() -> None:
    folder = ROOT / "docs" / "methods"
    (kept,) = (folder / "data").glob("warm-races-*.jsonl")
    truths = read_rows(kept.with_name(kept.name.replace("races", "truths")), Truth)
    page = (folder / "steady-state.md").read_text()
    assert "\n".join(summary(read_rows(kept, Outcome), truths)) in page
    assert f"data/{kept.name}" in page


def test_the_page_says_how_far_the_figures_of_the_kept_races_are_off() -> None:
    folder = ROOT / "docs" / "methods"
    (kept,) = (folder / "data").glob("warm-races-*.jsonl")
    races = read_rows(kept, Outcome)
    lines = read_rows(kept.with_name(kept.name.replace("races", "truths")), Truth)
    true = truth_of("jvm", lines).rates
    first, last = (
        [100 * (race.rates[tier] / true[tier] - 1) for race in races if race.case == "jvm"] for tier in (0, 1)
    )
    missed, too = ([off for off in offs if abs(off) > 100 * WITHIN] for offs in (first, last))
    assert (len(missed), len(too)) == (4, 1)
    said = f"server missed four times ({min(missed):.0f} to {max(missed):+.0f} %), level 4 once ({too[0]:.0f} %)"
    page = (folder / "steady-state.md").read_text()
    assert said in page
    slowest = min(line.rates[0] for line in lines if line.case == "jvm") / true[0] - 1
    assert f"between the worst two a start for the truth was {-100 * slowest:.0f} % slower" in page
    spring = [race for race in races if race.case == "spring"]
    assert spring and [race for race in spring if "and it still got faster" not in race.sentence] == []
    offs = [100 * (race.rates[0] / truth_of("spring", lines, race.day).rates[0] - 1) for race in spring]
    missed = [off for off in offs if abs(off) > 100 * WITHIN]
    apart = {line.rates[0] for line in lines if line.case == "spring" and line.day == "2026-11-30"}
    said = f"its level 1 missed seven times ({min(missed):.0f} to {max(missed):.0f} %)"
    assert len(missed) == 7
    assert f"{said}, where starts for the truth lay {100 * (max(apart) / min(apart) - 1):.0f} % apart" in page


def test_the_page_says_how_the_rates_of_the_kept_starts_changed() -> None:
    folder = ROOT / "docs" / "methods"
    (kept,) = (folder / "data").glob("warm-starts-*.jsonl")
    runs = read_rows(kept, Truth)
    by_setting = [[ratio for of in every for ratio in of] for every in zip(*(run.early for run in runs), strict=True)]
    ratios = [ratio for of in by_setting for ratio in of]
    means = " and ".join(f"{statistics.mean(of):.2f}" for of in by_setting)
    errors = " and ".join(f"{statistics.stdev(of) / len(of) ** 0.5:.2f}" for of in by_setting)
    near = sum(abs(ratio - 1) <= WITHIN for ratio in ratios)
    page = (folder / "steady-state.md").read_text()
    assert f"Of {len(ratios)} undisturbed starts the rate at once was {min(ratios):.2f} to {max(ratios):.2f} of" in page
    assert f"in {near} of them within 5 %, and {means} on average (standard errors {errors})" in page
    assert (
        f"three successive starts, as a race has: {near_groups(runs)} within 5 %, of any three {near_threes(runs)} ("
        in page
    )
    assert f"data/{kept.name}" in page


def near_groups(runs: Sequence[Truth]) -> str:
    """How many of how many groups of starts have a rate at once that is near that after a minute."""
    groups = [group for run in runs for of in run.early for group in groups_of(of)]
    return f"{sum(abs(group - 1) <= WITHIN for group in groups)} of {len(groups)}"


def near_threes(runs: Sequence[Truth]) -> str:
    """The share of all sets of three starts of a setting whose mean is that near, the mean of both settings' shares."""
    every = [[ratio for of in row for ratio in of] for row in zip(*(run.early for run in runs), strict=True)]
    shares = [statistics.mean(abs(sum(three) / 3 - 1) <= WITHIN for three in combinations(of, 3)) for of in every]
    return f"{100 * statistics.mean(shares):.0f} %"
