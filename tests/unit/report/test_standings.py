"""The standing of a run in progress: settings in the race, eliminated ones, and the present width of the intervals."""

import io
from dataclasses import replace

from rich.console import Console

from fakes import synthetic, synthetic_verdicts
from powerband.live.live_standing import settings_of
from powerband.live.payload import run_row
from powerband.live.state import RunState, RunStatus
from powerband.model.experiment import Experiment
from powerband.model.results import Analysis, Estimate
from powerband.report.wording.standings import best_ranked, interval_bar, left_line, race_line, ranked, ranking

EXPERIMENT = Experiment.model_validate(
    {
        "name": "pool-size",
        "subject": {"name": "s", "command": ["x"]},
        "load": {"users": 8},
        "factors": {"threads": [1, 2]},
        "design": {"order": "race"},
        "measure": {"repeats": 10},
    }
)


def drawn(analysis: Analysis, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(ranking(analysis, width))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


def after(blocks: int) -> Analysis:
    """The race after so many blocks."""
    analysis = synthetic_verdicts.race_analysis()
    assert analysis.race is not None
    departures = tuple(left for left in analysis.race.departures if left.block < blocks)
    race = replace(analysis.race, looks=analysis.race.looks[:blocks], departures=departures, ended_by="running")
    return replace(analysis, race=race)


def test_a_race_shows_who_is_out_and_where_the_intervals_lie() -> None:
    lines = drawn(after(2), 80)
    assert lines[0].split() == ["so", "far", "goodput", "vs", "leader", "verdict"]
    assert [line.split()[0] for line in lines[1:5]] == ["threads=32", "threads=64", "threads=128", "threads=256"]
    assert "leader" in lines[2]
    assert "eliminated in round 2" in lines[5]
    assert "◀" in lines[5] and "●" in lines[1]
    assert lines[-1].rstrip().endswith("violates SLO")


def test_an_interval_narrows_from_look_to_look() -> None:
    def width_of(line: str) -> int:
        return line.index("┤") - line.index("├")

    first, last = (next(line for line in drawn(after(n), 80) if "threads=32" in line) for n in (2, 5))
    assert width_of(last) < width_of(first)


def test_names_too_long_for_the_bar_leave_it_out() -> None:
    analysis = after(3)
    assert any("●" in line for line in drawn(analysis, 81))
    assert not any("●" in line for line in drawn(analysis, 75))


def test_the_line_of_a_race() -> None:
    analysis = after(2)
    assert race_line(analysis, EXPERIMENT) == (
        "round 2 of at most 5 done; 4 settings in the race, 5 eliminated; threads=64 leads"
    )
    assert analysis.race is not None
    looks = tuple(replace(look, effects={}) for look in analysis.race.looks)  # as to a leader without errors
    assert "4 settings in the race" in race_line(
        replace(analysis, race=replace(analysis.race, looks=looks)), EXPERIMENT
    )
    assert left_line(analysis) == "eliminated: threads=4, threads=8, threads=16"
    assert left_line(after(5)) == ""
    assert race_line(after(0), EXPERIMENT) == "" == left_line(after(0))
    assert race_line(synthetic.analysis(), EXPERIMENT) == ""


def test_the_line_of_a_race_has_the_bound_of_what_is_to_be_used() -> None:
    analysis = after(2)
    found = replace(analysis, answer=replace(analysis.answer, regret=0.0871))
    assert race_line(found, EXPERIMENT).endswith("threads=64 leads; none is better than threads=32 by more than 8.8 %")
    same = replace(found, answer=replace(found.answer, setting=found.answer.leader, regret=0.1201))
    assert race_line(same, EXPERIMENT).endswith("; threads=64 leads; no other is better by more than 13 %")
    none = replace(same, answer=replace(same.answer, regret=0.0))
    assert race_line(none, EXPERIMENT).endswith("; threads=64 leads; no other is better")


def test_what_left_last_ranks_before_what_left_first() -> None:
    names = [result.setting.id for result in ranked(synthetic_verdicts.race_analysis())]
    assert names[:4] == ["threads=32", "threads=64", "threads=128", "threads=256"]
    assert names[-2:] == ["threads=2", "threads=1"]


def test_the_answer_is_the_last_row_where_it_is_not_among_the_best() -> None:
    analysis = synthetic_verdicts.race_analysis()
    far = replace(analysis, answer=replace(analysis.answer, setting=synthetic.setting(threads=1)))
    assert [row.setting.id for row in best_ranked(far, 3)] == ["threads=32", "threads=64", "threads=1"]
    assert [row.setting.id for row in best_ranked(analysis, 2)] == ["threads=32", "threads=64"]
    assert best_ranked(analysis, 50) == ranked(analysis)


def test_the_bar_of_a_share_reaches_as_far_as_its_margin() -> None:
    """At an error rate of 1 %, a margin of 3 percentage points is three times that."""
    base = after(2)
    share = Estimate(0.01, 0.009, 0.011, 0.95, 2)
    rows = tuple(replace(row, estimates={**row.estimates, "error_rate": share}) for row in base.settings)
    lines = drawn(replace(base, objective="error_rate", settings=rows), 90)
    assert not any("◀" in line for line in lines), "no interval is beyond eight margins"
    assert any(" pts " in line for line in lines)


def test_the_points_of_one_that_left_are_to_the_leader_of_now() -> None:
    """Its ratio is to the leader of then, which had 0.1 % of errors: that has 0.3 % now."""
    base, metric = after(2), "error_rate"
    assert base.race is not None
    first, *others = base.race.departures
    rows = []
    for row in base.settings:
        value = 0.053 if row.setting == first.setting else 0.003
        rows.append(replace(row, estimates={metric: Estimate(value, value, value, 0.95, 2)}))
    race = replace(base.race, departures=(replace(first, effect=Estimate(53.0, 52.0, 54.0, 0.95, 2)), *others))
    analysis = replace(base, objective=metric, direction="minimise", settings=tuple(rows), race=race)
    (line,) = [line for line in drawn(analysis, 90) if first.setting.id in line.split()]
    assert " +5 pts " in line
    state = RunState("", "", RunStatus.FINISHED, objective=metric, unit="ratio", settings=settings_of(analysis))
    (told,) = [row for row in run_row(state, "run")["settings"] if row["id"] == first.setting.id]
    assert told["effect_text"] == "+5 pts"


def test_a_capacity_search_shows_the_rates_tried() -> None:
    lines = drawn(synthetic_verdicts.capacity_analysis(), 80)
    assert "rates tried" in lines[0]
    assert any("1,452–1,511" in line and "445/s to 1,780/s" in line and "leader" in line for line in lines)


def test_bars_stay_within_their_cells() -> None:
    for low, value, high in ((0.1, 0.2, 0.3), (0.9, 1.0, 1.1), (0.01, 1.0, 99.0), (1.5, 1.6, 1.7)):
        for direction in ("maximise", "minimise"):
            assert len(interval_bar(Estimate(value, low, high, 0.95, 3), 0.03, direction)) == 17
    assert interval_bar(Estimate(1.0, None, None, 0.95, 1), 0.03, "maximise").count("●") == 1
    assert len(interval_bar(Estimate(1.2, 1.1, 1.3, 0.95, 3), 0.0, "maximise")) == 17, "no margin at all"
    assert "▶" in interval_bar(Estimate(1.5, 1.4, 1.6, 0.95, 3), 0.03, "minimise")
    assert "◀" in interval_bar(Estimate(0.5, 0.4, 0.6, 0.95, 3), 0.03, "maximise")
