"""Two runs side by side on a terminal: a row for each common setting, and the names of the others."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from powerband.analyze.runs.changes import Change, RunComparison
from powerband.analyze.runs.unpaired import compare_runs
from powerband.model.plan import Setting
from powerband.model.results import Analysis, Answer, AnswerKind, Estimate, TrialResult, Verdict
from powerband.report.wording.comparison import render_comparison


def shown(comparison: RunComparison) -> list[str]:
    console = Console(file=io.StringIO(), width=300)
    console.print(render_comparison(comparison))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def threads(count: int) -> Setting:
    return Setting((("threads", count),))


def estimate(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(value, low, high, 0.95, 1 if low is None else 5)


def comparison(verdict: Verdict = Verdict.WORSE, direction: str = "maximise") -> RunComparison:
    change = Change(threads(4), estimate(1000, 950, 1050), estimate(800), estimate(0.8, 0.75, 0.85), verdict)
    only = (threads(1), threads(2))
    return RunComparison("goodput_per_s", direction, 0.95, 0.03, (change,), only, (threads(8),))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_row_holds_both_values_their_change_and_the_verdict(verdict: Verdict) -> None:
    lines = shown(comparison(verdict))
    assert lines[2] == "setting first second change interval smallest verdict"
    assert lines[3] == f"threads=4 1,000/s 800/s −20 % −25.0 to −15.0 % – {verdict.value}"


def test_a_single_trial_has_no_interval() -> None:
    change = Change(threads(4), estimate(1000), estimate(800), estimate(0.8), Verdict.INCONCLUSIVE)
    alone = RunComparison("goodput_per_s", "maximise", 0.95, 0.03, (change,), (), ())
    assert shown(alone)[3] == "threads=4 1,000/s 800/s −20 % – – inconclusive"


def test_settings_of_one_run_only_are_named() -> None:
    text = "\n".join(shown(comparison()))
    assert "Measured in the first run only: threads=1; threads=2" in text
    assert "Measured in the second run only: threads=8" in text


@pytest.mark.parametrize(("direction", "word"), [("maximise", "more"), ("minimise", "less")])
def test_the_note_says_what_is_better_and_how_sure(direction: str, word: str) -> None:
    text = " ".join(shown(comparison(direction=direction)))
    assert f"judged by goodput: {word} is better" in text
    assert "at 95 % confidence" in text and "within 3 % count as none" in text


def test_runs_that_were_compared_are_shown_whole() -> None:
    def run(values: dict[int, list[float]]) -> Analysis:
        trials = tuple(
            TrialResult(0, block, 1, threads(count), "measured", (), {"goodput_per_s": value})
            for count, row in values.items()
            for block, value in enumerate(row)
        )
        answer = Answer(AnswerKind.BEST, None, None, (), (), ())
        return Analysis("x", "", "goodput_per_s", "maximise", (), 0.95, 0.03, answer, (), trials)

    lines = shown(compare_runs(run({1: [100, 101, 99], 2: [200, 201]}), run({1: [150, 151, 149]})))
    assert lines[3].startswith("threads=1") and lines[3].endswith("better")
    assert "Measured in the first run only: threads=2" in lines


def test_shares_change_by_percentage_points_and_from_zero_there_is_no_ratio() -> None:
    first, second = Estimate(0.10, 0.09, 0.11, 0.95, 5), Estimate(0.15, 0.14, 0.16, 0.95, 5)
    ratio = Estimate(1.5, 1.4, 1.6, 0.95, 5)
    base = comparison()
    shares = replace(base, objective="error_rate", changes=(Change(threads(4), first, second, ratio, Verdict.WORSE),))
    assert "+5 pts" in " ".join(shown(shares)) and "+4.0 to +6.0 pts" in " ".join(shown(shares))
    assert "within 3 percentage points count as none" in " ".join(shown(shares))
    small = Change(threads(4), replace(first, value=0.001), replace(second, value=0.0012), ratio, Verdict.WORSE, 0.0004)
    (row,) = [line for line in shown(replace(shares, changes=(small,))) if line.startswith("threads=4")]
    assert "+0.04 to +0.06 pts 0.04 pts" in row
    none = Estimate(0.0, 0.0, 0.0, 0.95, 5)
    from_zero = replace(shares, changes=(Change(threads(4), none, second, None, Verdict.WORSE),))
    assert "+15 pts" in " ".join(shown(from_zero)) and "nan" not in " ".join(shown(from_zero))


def test_names_are_no_markup_fold_on_a_narrow_terminal_and_no_figure_is_cut() -> None:
    base = comparison()
    (change,) = base.changes
    odd = Setting((("path", "[/a]"), ("a_rather_long_name", "and_a_rather_long_level_of_it")))
    console = Console(file=io.StringIO(), width=80)
    console.print(render_comparison(replace(base, changes=(replace(change, setting=odd),))))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "[/a]" in text and "…" not in text and "−25.0 to −15.0 %" in text and "worse" in text


def test_an_endless_interval_is_not_printed_in_full() -> None:
    base = comparison()
    (change,) = base.changes
    endless = replace(change, ratio=estimate(2.0, 0.0, 1e200), smallest_difference=1e100)
    found = replace(base, changes=(endless,))
    assert "−100.0 to over +900 %" in " ".join(shown(found)) and "over 900 %" in " ".join(shown(found))
    assert "over +900 %" in found.sentence and max(map(len, shown(found)[:4])) < 200
