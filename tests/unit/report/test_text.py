"""The answer as text: complete, unbroken at common widths, plain in a pipe."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fakes import synthetic, synthetic_verdicts
from powerband.model.bottlenecks import BottleneckName
from powerband.model.plan import Setting, Stage
from powerband.model.results import (
    Analysis,
    Answer,
    AnswerKind,
    Bottleneck,
    Candidate,
    ErrorKind,
    Estimate,
    Figure,
    Verdict,
)
from powerband.report.terminal.text import print_answer
from powerband.report.wording.findings import table_legend
from powerband.report.wording.numbers import format_estimate


def printed(of: Analysis, width: int, *, colour: bool = False, report: Path | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None)
    print_answer(console, of, report)
    return out.getvalue()


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_everything_is_there_and_fits(width: int) -> None:
    analysis = synthetic.analysis()
    text = printed(analysis, width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for sentence in analysis.answer.sentences:
        assert sentence in plain(text)
    for level in synthetic.LADDER:
        assert f" {level} " in text
    for heading in ("goodput", "interval", "p50", "p99", "errors", "CPUs", "memory", "sw/req", "verdict"):
        assert heading in text
    assert "violates the SLO: error_rate < 1%" in plain(text)
    assert "trial 12 (threads=32) invalid: another process used 0.61 cores" in plain(text)
    assert "trial 30 (threads=256) failed: the server exited with code 137" in plain(text)
    assert "Warning: this machine has 2 CPUs" in text
    for claim in analysis.claims:
        assert f"{claim.verdict.words}: {claim.says}" in plain(text)
        assert claim.sentence in plain(text)
    assert "(published: about four times)" in plain(text)


def test_the_note_says_what_the_tables_figures_are_of_where_the_first_sentence_has_others() -> None:
    base = synthetic.analysis()
    own = next(row for row in base.settings if row.setting == base.answer.setting).estimates["goodput_per_s"]
    assert own.low is not None and own.high is not None

    def note(figure: Figure) -> str:
        return plain(printed(replace(base, answer=replace(base.answer, figure=figure)), 120))

    assert "first sentence" not in note(Figure(own, fresh=False))
    wider = replace(own, low=0.9 * own.low, high=1.1 * own.high)
    assert "The first sentence's interval is wider, since it allows for the choice of the best." in note(
        Figure(wider, fresh=False)
    )
    assert "The table is of the race, the first sentence of the fresh starts." in note(Figure(own, fresh=True))


def test_the_legend_says_of_how_many_trials_the_rows_are_where_more_ran() -> None:
    base = synthetic.analysis()
    shown = sum(row.trials for row in base.settings)
    valid = [trial for trial in base.trials if trial.valid]
    fresh = [replace(valid[0], number=1000 + n, block=100 + n, stage=Stage.CONFIRM) for n in range(2)]
    more = replace(base, trials=(*base.trials, *fresh))
    assert "trials: the valid trials behind" not in printed(base, 120)
    assert f"trials: the valid trials behind the row's figures, {shown} of {shown + 2}; the others" in printed(
        more, 120
    )


def test_the_note_and_the_legend_call_the_slo_alike_and_the_correction_is_said_once() -> None:
    base = synthetic.analysis()
    text = plain(printed(base, 120))
    assert "that meets the SLO (error_rate < 1%)" in text and "leader: the best estimate that meets the SLO" in text
    assert text.count("multiple comparisons") == 1
    two = [row for row in base.settings if row.setting.id in ("threads=32", "threads=1")]
    assert "multiple comparisons" not in printed(replace(base, settings=tuple(two)), 120), "there is one"


def test_the_legend_has_a_line_for_each_bottleneck_of_the_table_and_for_no_other() -> None:
    base, lock = synthetic.analysis(), Candidate(BottleneckName.LOCK, (), "")
    named = [
        replace(row, bottleneck=Bottleneck(BottleneckName.WAKE_UPS, (), "", lock if n else None))
        for n, row in enumerate(base.settings)
    ]
    text = [line.strip() for line in printed(replace(base, settings=tuple(named)), 120).splitlines()]
    assert text.count(f"wake-ups: {BottleneckName.WAKE_UPS.meaning}") == 1
    assert text.count(f"lock: {BottleneckName.LOCK.meaning}") == 1
    assert BottleneckName.ONE_THREAD.meaning not in plain(" ".join(text))


def test_every_bottleneck_says_more_than_its_name_in_the_legend() -> None:
    said = [name.meaning for name in BottleneckName]
    assert len(set(said)) == len(said)
    assert [name for name in BottleneckName if name.meaning in (name.short, name.words)] == [BottleneckName.NONE]


def test_the_legend_explains_a_dash_and_a_bound_only_by_the_columns_that_are_shown() -> None:
    base, found = synthetic.analysis(), Bottleneck(BottleneckName.LOCK, (), "")

    def legend(**without: tuple[str, ...]) -> dict[str, str]:
        rows = []
        for n, row in enumerate(base.settings):
            gone = (*without["all"], *(without["first"] if n == 0 else ()))
            kept = {name: each for name, each in row.estimates.items() if name not in gone}
            rows.append(replace(row, estimates=kept, bottleneck=found if n else None))
        return dict(table_legend(replace(base, settings=tuple(rows))))

    p50, p99 = "response_time_ns_p50", "response_time_ns_p99"
    assert "1,000" in legend(all=(), first=(p99,))["–"]
    assert "too few requests" in legend(all=(p99,), first=(p50,))["–"]
    assert "1,000" not in legend(all=(p99,), first=(p50,))["–"]
    assert legend(all=(p99, p50), first=())["–"] == "not known", "only a bottleneck is missing"
    assert "≥" not in legend(all=(), first=())
    first, *rest = base.settings
    bound = replace(first, estimates={**first.estimates, p50: replace(first.estimates["goodput_per_s"], at_least=True)})
    assert "not answered rightly, or too few" in dict(table_legend(replace(base, settings=(bound, *rest))))["≥"]
    for open_ in ((), ("p99 < 50ms",)):
        unsure = replace(first, feasible=True, verdict=Verdict.INCONCLUSIVE, uncertain_because=open_)
        meant = dict(table_legend(replace(base, settings=(unsure, *rest))))["inconclusive"]
        assert ("or to meet the SLO" in meant) is bool(open_)


def test_a_cause_of_failed_requests_is_told_once() -> None:
    base = synthetic.analysis()
    shown = {row.setting for row in base.settings if row.trials}
    cause = ErrorKind("unfinished", 3, "no answer by the end of the drain")
    trials = tuple(replace(each, errors=(cause,)) if each.valid else each for each in base.trials)
    text = plain(printed(replace(base, trials=trials), 200))
    assert text.count("unfinished") >= min(3, len(shown)) and text.count(cause.cause) == 1


def test_threads_are_whole_and_switches_have_the_digits_of_the_sentence() -> None:
    wide = {"low": 1.1, "high": 2.9, "confidence": 0.95, "n": 3}
    assert format_estimate(Estimate(1.77, **wide), "context_switches_per_request") == "1.77"
    assert format_estimate(Estimate(7.33, **{**wide, "low": 6.0, "high": 8.0}), "threads_max") == "7"


def test_what_was_found_is_not_told_twice() -> None:
    text = plain(printed(synthetic.analysis(found=("Claims: 1 confirmed.", "threads=4 had the best goodput")), 120))
    assert "What we found" not in text and "had the best goodput" not in text


def test_trials_that_failed_alike_are_one_line() -> None:
    """For example, all trials fail alike if another program has the port, or that machine is busy."""
    analysis = synthetic.analysis()
    failed = next(trial for trial in analysis.trials if trial.status == "failed")
    again = replace(failed, number=max(trial.number for trial in analysis.trials) + 1)
    (disturbed,) = [trial for trial in analysis.trials if trial.status == "measured" and not trial.valid]
    (problem,) = disturbed.problems
    more = replace(problem, message=problem.message.replace("0.61", "0.72"))
    busy = replace(disturbed, number=again.number + 1, problems=(more,))
    text = plain(printed(replace(analysis, trials=(*analysis.trials, again, busy)), 100))
    assert f"trial {failed.number} (threads=256) and 1 more like it failed: the server exited with code 137" in text
    assert f"trial {disturbed.number} (threads=32) and 1 more like it invalid: another process used 0.61" in text
    assert text.count("the server exited with code 137") == plain(printed(analysis, 100)).count("exited with code 137")


def test_the_answer_and_only_the_answer_is_marked() -> None:
    rows = [line.split() for line in printed(synthetic.analysis(), 80).splitlines() if line.lstrip().startswith("* ")]
    assert rows
    assert {row[1] for row in rows if row[1] != "the"} == {"32"}


def test_a_narrow_terminal_gets_two_tables_and_a_wide_one_gets_one() -> None:
    def headings(width: int) -> int:
        return sum("threads" in line.split()[:1] for line in printed(synthetic.analysis(), width).splitlines())

    assert headings(80) == 2
    assert headings(120) == 1


def test_names_of_several_factors_stay_whole_and_each_figure_is_shown_once() -> None:
    """Figures that do not fit beside the names go to further tables."""
    found = synthetic.analysis()
    levels = (("dispatcher", "fork-join-executor"), ("connection_pool", "bounded-elastic"))
    rows = [replace(row, setting=Setting((*levels, *row.setting.levels))) for row in found.settings]
    lines = printed(replace(found, settings=tuple(rows), trials=()), 80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    heads = [line.split() for line in lines if "dispatcher" in line.split()]
    assert len(heads) > 2
    assert sum(line.split()[:2] == ["fork-join-executor", "bounded-elastic"] for line in lines) == len(heads) * len(
        rows
    )
    shown = [name for head in heads for name in head[3:]]
    assert len(shown) == len(set(shown)) and {"interval", "p99", "verdict", "trials"} <= set(shown)


def test_no_escape_codes_when_piped_and_some_on_a_terminal() -> None:
    assert "\x1b" not in printed(synthetic.analysis(), 80)
    assert "\x1b[" in printed(synthetic.analysis(), 80, colour=True)


def test_a_setting_that_left_a_race_undecided_is_not_green() -> None:
    base = synthetic_verdicts.race_analysis()
    rows = tuple(
        replace(row, verdict=Verdict.INCONCLUSIVE) if row.setting.id == "threads=128" else row for row in base.settings
    )
    text = printed(replace(base, settings=rows), 200, colour=True)
    assert "\x1b[33meliminated in round 4" in text and "\x1b[31meliminated in round 3" in text


def test_the_path_of_the_report_stays_whole() -> None:
    path = Path("/a/rather/long/path/that/does/not/fit/into/forty/columns/at/all/report.html")
    assert f"Report: {path}\n" in printed(synthetic.analysis(), 40, report=path)


def test_names_are_no_markup() -> None:
    answer = Answer(AnswerKind.BEST, None, None, (), (), ("Use [red]this[/red].",))
    text = printed(synthetic.analysis(answer=answer, warnings=("[bold]w[/bold]",)), 80)
    assert "Use [red]this[/red]." in text
    assert "[bold]w[/bold]" in text


def test_nothing_measured_is_said_in_words() -> None:
    answer = Answer(AnswerKind.NONE_VALID, None, None, (), (), ("No trial could be measured.",))
    text = printed(synthetic.analysis(answer=answer, settings=(), trials=(), warnings=(), claims=()), 80)
    assert text.split() == ["No", "trial", "could", "be", "measured."]


def test_without_claims_nothing_is_said_of_them() -> None:
    assert "laim" not in printed(synthetic.analysis(claims=()), 80)


def test_many_factors_are_shown_by_their_whole_name() -> None:
    two = synthetic.two_factor_analysis()
    text = printed(two, 100)
    assert "max" in text.splitlines()[5].split() or any("max" in line.split() for line in text.splitlines())
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_race_and_what_limits_are_told_whole(width: int) -> None:
    analysis = synthetic_verdicts.race_analysis()
    text = printed(analysis, width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for words in (
        "The race was decided after 5 rounds: 25 trials, 56 % of the full grid's 45.",
        "Three fresh starts uphold it",
        "eliminated in round 4",
        "pool too small",
        "too many threads",
        "With threads=32 no resource is saturated at this load. CPU in use 44 %. No request waits.",
        "Goetz",
        "−93 % (−94 to −93)",
    ):
        assert words in plain(text), words
    assert "not applicable" in plain(text)


def test_a_bottleneck_that_the_answer_tells_is_not_told_twice() -> None:
    base = synthetic_verdicts.race_analysis()
    told = "It waits for users: CPU in use 44 %, and no request waits."
    analysis = replace(base, answer=replace(base.answer, sentences=("Use threads=32.", told)))
    text = plain(printed(analysis, 200))
    assert text.count("no request waits") == 1
    assert "What to do: Offer more load to find more." in text


def test_what_limits_the_leader_is_told_where_there_is_no_answer() -> None:
    base = synthetic_verdicts.race_analysis()
    text = plain(printed(replace(base, answer=replace(base.answer, setting=None)), 200))
    assert "With threads=64 no resource is saturated at this load" in text


def test_what_the_answer_says_of_a_race_is_not_said_again() -> None:
    base = synthetic_verdicts.race_analysis()
    assert base.race is not None and base.race.confirmation is not None
    took = f"The race took 5 rounds and 25 trials (the full grid: {base.race.grid_trials})."
    said = ("Use threads=32.", took, base.race.confirmation.sentence)
    text = plain(printed(replace(base, answer=replace(base.answer, sentences=said)), 200))
    assert text.count("Three fresh starts") == 1
    assert text.count("full grid") == 1


@pytest.mark.parametrize("width", [80, 120])
def test_capacities_have_their_interval_their_trials_and_their_note(width: int) -> None:
    text = printed(synthetic_verdicts.capacity_analysis(), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "1,482/s (1,452–1,511)" in text
    assert "445/s to 1,780/s" in text
    assert "holds at no rate" in plain(text)


def test_what_people_wrote_is_no_markup() -> None:
    analysis = synthetic.analysis()
    odd = Setting((("[b]", "[/a]"),))
    first, *rest = analysis.settings
    text = printed(replace(analysis, settings=(replace(first, setting=odd), *rest)), 120)
    assert "[/a]" in text and "[b]" in text


def test_rules_of_thumb_are_compared_with_the_answer_which_need_not_lead() -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert analysis.answer.setting != analysis.answer.leader
    undecided = replace(analysis, answer=replace(analysis.answer, setting=None))
    for of, against in ((analysis, "that one vs answer"), (undecided, "that one vs leader")):
        (heads,) = [line for line in printed(of, 120).splitlines() if line.startswith("rule of thumb")]
        assert heads.split("nearest tried")[1].split("formula")[0].strip() == against
