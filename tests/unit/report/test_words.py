"""Words shared by all renderers: they follow the scale of the verdict and say no more than the answer does."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from fakes import synthetic, synthetic_verdicts
from powerband.live.live_standing import settings_of
from powerband.model.metrics import METRICS, margin_words, metric_words
from powerband.model.plan import Setting
from powerband.model.results import (
    Analysis,
    Answer,
    AnswerKind,
    ChangeCost,
    Estimate,
    Problem,
    SettingResult,
    TrialResult,
    Verdict,
)
from powerband.report.documents.junit import render_analysis
from powerband.report.documents.markdown import render_markdown
from powerband.report.html.charts import layout, main_charts
from powerband.report.html.report import render_page
from powerband.report.tables.rows import estimates_table, settings_table
from powerband.report.terminal.text import print_answer
from powerband.report.wording.findings import change_rows
from powerband.report.wording.names import short_names
from powerband.report.wording.standings import ranked, ranking
from powerband.report.wording.words import (
    change_words,
    counted,
    margin_as_ratio,
    present_columns,
    standing_words,
    tone,
    trial_counts,
    unusable_trials,
    verdict_words,
)

ONE, TWO, FOUR = (synthetic.setting(threads=threads) for threads in (1, 2, 4))


def row(of: Setting, metric: str, value: float, effect: float | None) -> SettingResult:
    estimate = Estimate(value, value, value, 0.95, 5)
    ratio = None if effect is None else Estimate(effect, effect, effect, 0.95, 5)
    return SettingResult(of, 5, 0, {metric: estimate}, ratio, Verdict.WORSE, True)


@pytest.mark.parametrize(
    ("metric", "leader", "other", "effect", "words"),
    [
        ("goodput_per_s", 100.0, 80.0, 0.8, "−20 %"),
        ("error_rate", 0.10, 0.62, 6.2, "+52 pts"),
        ("error_rate", 0.10, 0.08, 0.8, "−2 pts"),
        ("error_rate", 0.0, 0.005, None, "+0.5 pts"),
        ("accept_overflows", 0.0, 12.0, None, "+12"),
        ("accept_overflows", 0.0, 0.0, None, "0"),
    ],
)
def test_a_change_is_said_on_the_scale_of_the_verdict(
    metric: str, leader: float, other: float, effect: float | None, words: str
) -> None:
    rows = (row(ONE, metric, leader, None if effect is None else 1.0), row(TWO, metric, other, effect))
    answer = Answer(AnswerKind.BEST, ONE, ONE, (ONE,), (), ())
    analysis = synthetic.analysis(objective=metric, settings=rows, answer=answer)
    assert change_words(rows[1], analysis) == words
    assert change_words(rows[0], analysis) == ""


def test_a_change_to_a_lower_bound_is_one_at_least() -> None:
    p99 = "response_time_ns_p99"
    rows = [row(ONE, p99, 1e7, 1.0), row(TWO, p99, 4e7, 4.0)]
    answer = Answer(AnswerKind.BEST, ONE, ONE, (ONE,), (), ())
    bounds = [replace(each, estimates={p99: replace(each.estimates[p99], at_least=True)}) for each in rows]
    for settings, words in (((rows[0], bounds[1]), "≥ +300 %"), (bounds, "+300 %")):
        analysis = synthetic.analysis(objective=p99, settings=tuple(settings), answer=answer)
        assert change_words(settings[1], analysis) == words


def on_terminal(analysis: Analysis) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_answer(console, analysis)
    console.print(ranking(analysis, 200))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    "shown",
    [
        on_terminal,
        lambda analysis: render_markdown(analysis, None).replace("\u2060", ""),
        lambda analysis: render_analysis(analysis, None),
        lambda analysis: render_page(synthetic.page(analysis)),
    ],
    ids=["terminal", "markdown", "junit", "html"],
)
def test_the_guess_of_a_capacity_is_shown_as_no_figure(shown: Callable[[Analysis], str]) -> None:
    seen, guessed = synthetic_verdicts.capacity_analysis(), synthetic_verdicts.guessed_analysis(8)
    assert "363–378" in shown(seen) and "363–378" not in shown(guessed)


def test_nothing_compares_with_the_guess_of_a_capacity() -> None:
    guessed = synthetic_verdicts.guessed_analysis(8)
    place, guess = next((i, row) for i, row in enumerate(guessed.settings) if row.setting.id == "threads=8")
    assert change_words(guess, synthetic_verdicts.capacity_analysis()) == change_words(guess, guessed) == ""
    assert {"threads=8", "threads=4"} == {row.setting.id for row in ranked(guessed)[-2:]}, "both have no figure"
    (objective,) = [chart for chart in main_charts(guessed) if chart.id == "objective"]
    assert [point.setting for point in objective.lines[0].points] == ["threads=16", "threads=32", "threads=64"]
    table = settings_table(guessed, "run")
    cells = dict(zip((column.name for column in table.columns), list(table.rows)[place], strict=True))
    ends = ("objective_value", "objective_low", "objective_high", "effect", "effect_low", "capacity_per_s")
    assert {cells[name] for name in ends} == {None}
    assert not any("threads=8" in cells for cells in estimates_table(guessed, "run").rows)
    (state,) = [state for state in settings_of(guessed) if state.id == "threads=8"]
    assert (state.estimate, state.low, state.effect, dict(state.estimates)) == (None, None, None, {})

    led = synthetic_verdicts.guessed_analysis(32)
    assert {change_words(row, led) for row in led.settings} == {""}
    (objective,) = [chart for chart in main_charts(led) if chart.id == "objective"]
    assert objective.band is None


def test_an_empty_value_of_a_parameter_is_no_blank() -> None:
    base = synthetic.analysis(levels=(16, 32))
    none, other = synthetic.setting(gc=""), synthetic.setting(gc="-XX:+UseZGC")
    of = {synthetic.setting(threads=32): none, synthetic.setting(threads=16): other}
    made = replace(
        base,
        answer=replace(base.answer, setting=none, leader=none, equivalent=(none,)),
        settings=tuple(replace(row, setting=of[row.setting]) for row in base.settings),
        trials=tuple(replace(trial, setting=of[trial.setting]) for trial in base.trials),
    )
    assert '* ""' in on_terminal(made)
    assert '| **`""`** |' in render_markdown(made, None)
    assert '<th scope="row">&quot;&quot;</th>' in render_page(synthetic.page(made))
    assert layout(made).axis.labels == ("-XX:+UseZGC", '""') == tuple(map(short_names(made).of, (other, none)))
    assert all(len(line.points) == 2 for chart in main_charts(made) for line in chart.lines)
    cost = ChangeCost(other, "gc", "-XX:+UseZGC", "", None, Verdict.WORSE)
    assert change_rows(replace(made, changes=(cost,)))[0][0] == 'gc: "" → -XX:+UseZGC'


def test_the_margin_of_a_share_is_in_points_and_so_is_its_band() -> None:
    assert margin_words(0.03, "error_rate") == "3 percentage points"
    assert margin_words(0.03, "goodput_per_s") == "3 %"
    rows = (row(ONE, "error_rate", 0.10, 1.0), row(TWO, "error_rate", 0.50, 5.0))
    answer = Answer(AnswerKind.BEST, ONE, ONE, (ONE,), (), ())
    analysis = synthetic.analysis(objective="error_rate", direction="minimise", settings=rows, answer=answer)
    band = next(chart for chart in main_charts(analysis) if chart.id == "objective").band
    assert band == pytest.approx((10.0, 13.0))
    assert margin_as_ratio(analysis, ONE) == pytest.approx(0.3)
    assert margin_as_ratio(analysis, TWO) == pytest.approx(0.06)
    assert margin_as_ratio(replace(analysis, settings=()), ONE) == 0.03
    assert margin_as_ratio(synthetic.analysis(), ONE) == 0.03


@pytest.mark.parametrize(
    ("kind", "chosen", "equivalent", "undecided", "words"),
    [
        (AnswerKind.BEST, ONE, (ONE,), (), "no other setting is equivalent"),
        (AnswerKind.EQUIVALENT_SET, ONE, (ONE, TWO), (), "also equivalent: threads=2"),
        (AnswerKind.EQUIVALENT_SET, ONE, (ONE,), (TWO,), "may be equivalent: threads=2"),
        (
            AnswerKind.EQUIVALENT_SET,
            ONE,
            (ONE, TWO),
            (FOUR,),
            "also equivalent: threads=2; may be equivalent: threads=4",
        ),
        (AnswerKind.NOT_ENOUGH_DATA, None, (ONE,), (TWO,), "still possible: threads=1, threads=2"),
        (AnswerKind.NONE_VALID, None, (), (), ""),
    ],
)
def test_the_standing_agrees_with_the_answer(
    kind: AnswerKind,
    chosen: Setting | None,
    equivalent: tuple[Setting, ...],
    undecided: tuple[Setting, ...],
    words: str,
) -> None:
    answer = Answer(kind, chosen, ONE, equivalent, undecided, ())
    assert standing_words(synthetic.analysis(answer=answer)) == words


@pytest.mark.parametrize(
    ("objective", "without"),
    [
        ("rss_bytes_max", "rss_bytes_max"),
        ("response_time_ns_p99", "response_time_ns_p99"),
        ("goodput_per_s", "goodput_per_s"),
        ("capacity_per_s", "goodput_per_s"),
    ],
)
def test_all_figures_stand_beside_the_objective_and_goodput_is_one_of_them(objective: str, without: str) -> None:
    """The setting that uses the least memory may also serve the fewest requests, so readers see goodput beside it."""
    every = {"goodput_per_s", "response_time_ns_p99", "rss_bytes_max"}
    shown = {column.metric for column in present_columns(synthetic.analysis(objective=objective))}
    assert shown & every == every - {without}


def test_a_setting_that_may_break_a_constraint_is_undecided() -> None:
    unsure = replace(row(TWO, "goodput_per_s", 1.0, 1.0), uncertain_because=("p99 < 50ms",))
    analysis = synthetic.analysis()
    assert verdict_words(replace(unsure, verdict=Verdict.EQUIVALENT), analysis) == "inconclusive"
    assert verdict_words(unsure, analysis) == "worse"


def test_an_interrupted_trial_that_was_run_again_is_not_a_lost_one() -> None:
    stopped = (Problem("interrupted", "stopped"),)
    cut = TrialResult(1, 0, 1, ONE, "interrupted", stopped, {})
    again = TrialResult(2, 0, 1, ONE, "measured", (), {})
    open_end = TrialResult(3, 0, 1, TWO, "interrupted", stopped, {})
    assert counted([cut, again, open_end]) == [again, open_end]
    assert [trial.number for trial in unusable_trials([cut, again, open_end])] == [3]
    assert trial_counts(synthetic.analysis(trials=(cut, again))) == "1 trial, all valid"


@pytest.mark.parametrize(
    ("verdict", "trials", "feasible", "wanted"),
    [
        (Verdict.WORSE, 5, True, "bad"),
        (Verdict.EQUIVALENT, 5, True, "good"),
        (Verdict.BETTER, 5, True, "good"),
        (Verdict.INCONCLUSIVE, 5, True, "unsure"),
        (Verdict.EQUIVALENT, 5, False, "bad"),
        (Verdict.EQUIVALENT, 0, True, "bad"),
    ],
)
def test_a_verdict_has_one_tone(verdict: Verdict, trials: int, feasible: bool, wanted: str) -> None:
    of = replace(row(TWO, "goodput_per_s", 1.0, 1.0), verdict=verdict, trials=trials, feasible=feasible)
    assert tone(of, synthetic.analysis()) == wanted


def test_a_metric_whose_unit_says_no_time_says_per_second() -> None:
    assert metric_words("dotnet_allocated_bytes_per_s") == "bytes allocated by .NET per second"
    assert metric_words("memory_growth_bytes_per_s") == "memory growth per second"
    assert metric_words("goodput_per_s") == "goodput"


def test_the_metrics_of_powerband_have_words_and_those_of_the_server_their_own_names() -> None:
    assert metric_words("subject_cpu_cores") == "CPUs used by the server"
    assert metric_words("response_time_ns_mean") == "mean response time"
    assert metric_words("response_time_ns_p999") == "response time p99.9"
    assert metric_words("slots_low") == "lower end of requests served at once"
    assert metric_words("app_sent_bytes_per_s") == "app_sent_bytes_per_s"
    raw = re.compile(r"_|\b(subject|cpu|rss|jvm|dotnet|gc|engine|probe|bench|per s)\b")
    assert not [metric for metric in METRICS if raw.search(metric_words(metric))]
