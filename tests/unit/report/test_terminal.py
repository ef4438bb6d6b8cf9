"""The live view: lines in a pipe, a redrawn table on a terminal, never more often than promised."""

import io
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, Group
from rich.text import Text

from fakes import synthetic, synthetic_verdicts
from powerband.model.experiment import Design, Experiment
from powerband.model.plan import Stage, TrialSpec
from powerband.report.terminal.console import Terminal
from powerband.report.terminal.progress import REDRAW_S, LiveView
from powerband.store import RunDir, TrialRecord

EXPERIMENT = Experiment.model_validate(
    {
        "name": "pool-size",
        "subject": {"name": "s", "command": ["x"]},
        "load": {"users": 8},
        "factors": {"threads": [1, 2]},
    }
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def record(spec: TrialSpec) -> TrialRecord:
    return TrialRecord(spec, "measured", None, 0, 0, {}, "steady")


def play(view: LiveView, clock: Clock, trials: int = 3) -> None:
    """Plays the first trials of a run, 10 s each, with five intervals within a tenth of a second."""
    analysis = synthetic.analysis()
    view.run_started(EXPERIMENT, RunDir(Path("runs/x")), 10, 0)
    for result in analysis.trials[:trials]:
        spec = TrialSpec(result.number, result.block, 1, result.setting, 1)
        view.trial_started(spec, 10)
        for phase in ("launch", "ready", "warmup", "measure"):
            view.phase(phase)
        for _ in range(5):
            clock.now += 0.02
            view.interval(1234.0, 5e6, 8)
        clock.now += 9.9
        view.trial_ended(record(spec), result)
    view.analysed(analysis)


def test_a_pipe_gets_one_line_for_each_trial() -> None:
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        play(view, clock)
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert lines[0] == "pool-size: 10 trials; into runs/x"
    assert [line.split(":")[0] for line in lines[1:4]] == [
        f"[{n}/10] {trial.setting.id}" for n, trial in enumerate(synthetic.analysis().trials[:3], 1)
    ]
    assert "goodput" in lines[1] and "p99" in lines[1]
    assert lines[1].endswith("about 90 s left") or lines[1].endswith("about 2 min left")
    assert lines[3].endswith("about 70 s left")
    assert lines[4] == "after 3 trials threads=64 leads: goodput 1,479/s"
    assert len(lines) == 5


def test_a_percentile_that_falls_on_failed_requests_is_a_lower_bound_in_a_trials_line() -> None:
    out, clock = io.StringIO(), Clock()
    result = synthetic.analysis().trials[0]
    failing = replace(result, metrics={**result.metrics, "error_rate": 0.05, "response_time_ns_p99": 10e9})
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(EXPERIMENT, RunDir(Path("runs/x")), 10, 0)
        view.trial_ended(record(TrialSpec(result.number, result.block, 1, result.setting, 1)), failing)
    assert "p99 ≥ 10.0 s" in out.getvalue()


def test_an_invalid_trial_says_why_in_its_line() -> None:
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        play(view, clock, trials=12)
    assert "invalid: another process used 0.61 cores during the window (limit 0.10)" in out.getvalue()


def test_a_terminal_shows_progress_the_trial_and_the_ranking() -> None:
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, width=100, height=40, force_terminal=True, color_system=None)
    with LiveView(console, clock) as view:
        play(view, clock)
        view.trial_started(TrialSpec(4, 0, 1, synthetic.setting(threads=7), 1), 10)
        view.phase("measure")
        view.interval(4321.0, 2.5e6, 16)
        view.phase("drain")
    text = out.getvalue()
    for words in (
        "pool-size",
        "3 of 10 trials",
        "threads=7",
        "4,320/s",
        "mean 2.50 ms",
        "16 in flight",
        "so far",
    ):
        assert words in text
    ranking = text[text.rindex("so far") :]
    assert ranking.index("threads=64") < ranking.index("threads=16") < ranking.index("threads=1 ")


def test_a_trial_that_goes_on_on_another_node_is_shown_when_one_ends() -> None:
    out = io.StringIO()
    one, two = (TrialSpec(number, 0, 1, synthetic.setting(threads=number), 1) for number in (1, 2))
    with LiveView(Console(file=out, width=100, force_terminal=True), Clock()) as view:
        for spec in (one, two):
            view.trial_started(spec, 10)
        for ended, shown in ((two, "trial 1"), (one, "between trials")):
            out.truncate(out.seek(0))
            view.trial_ended(record(ended), synthetic.analysis().trials[0])
            assert shown in out.getvalue()


def test_intervals_redraw_no_more_than_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    out, clock = io.StringIO(), Clock()
    view = LiveView(Console(file=out, width=100, force_terminal=True), clock)
    drawn: list[float] = []
    monkeypatch.setattr(view._live, "update", lambda *_, **__: drawn.append(clock.now))
    view.run_started(EXPERIMENT, RunDir(Path("runs/x")), 10, 0)
    drawn.clear()
    for _ in range(1000):  # ten seconds of intervals, a hundred a second
        clock.now += 0.01
        view.interval(1.0, None, 1)
    assert 15 <= len(drawn) <= 21
    assert all(b - a >= REDRAW_S - 1e-6 for a, b in itertools.pairwise(drawn))


def test_a_resumed_run_counts_what_is_there() -> None:
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(EXPERIMENT, RunDir(Path("runs/x")), 10, 4)
    assert "4 of them done already" in out.getvalue()


def test_the_trials_of_a_plan_with_a_budget_are_the_most(tmp_path: Path) -> None:
    out, clock = io.StringIO(), Clock()
    short = EXPERIMENT.model_copy(update={"design": Design(budget="1m")})
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(short, RunDir(tmp_path), 10, 0)
    assert out.getvalue().startswith("pool-size: at most 10 trials; into ")


def test_a_race_says_who_leaves_and_that_its_end_may_come_early() -> None:
    race = EXPERIMENT.model_copy(update={"design": EXPERIMENT.design.model_copy(update={"order": "race"})})
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(race, RunDir(Path("runs/x")), 10, 0)
        spec = TrialSpec(1, 0, 1, synthetic.setting(threads=4), 1, Stage.CONFIRM, 1200.0)
        view.trial_started(spec, 10)
        clock.now += 10
        view.trial_ended(record(spec), replace(synthetic.analysis().trials[0], stage=spec.stage, rate_per_s=1200.0))
        analysis = synthetic_verdicts.race_analysis()
        assert analysis.race is not None
        answer = replace(analysis.answer, regret=0.05)
        looked = replace(analysis, answer=answer, race=replace(analysis.race, looks=analysis.race.looks[:2]))
        view.analysed(looked)
        view.trial_started(spec, 10)
        view.trial_ended(record(spec), synthetic.analysis().trials[0])
        view.analysed(looked)
    lines = out.getvalue().splitlines()
    assert ": at most 10 trials; into " in lines[0]
    assert lines[1].startswith("[1] threads=") and " (to confirm) at 1,200/s: goodput " in lines[1]
    assert lines[2] == (
        "after 1 trial threads=64 leads: goodput 1,479/s; none is better than threads=32 by more than 5 %; "
        "eliminated: threads=4, threads=8, threads=16"
    )
    assert lines[4].startswith("after 2 trials threads=64 leads: ") and "out:" not in lines[4], "said before"


def test_a_first_look_of_a_capacity_search_says_what_load_it_has() -> None:
    objective = {"metric": "capacity_per_s", "subject_to": ["p99 < 50ms"]}
    search = Experiment.model_validate({**EXPERIMENT.model_dump(by_alias=True), "objective": objective})
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(search, RunDir(Path("runs/x")), 10, 0)
        spec = TrialSpec(1, 0, 1, EXPERIMENT.settings()[0], 1, Stage.SATURATE)
        view.trial_started(spec, 10)
        ended = replace(synthetic.analysis().trials[0], setting=spec.setting, stage=spec.stage)
        view.trial_ended(record(spec), ended)
    assert out.getvalue().splitlines()[1].startswith("[1] threads=1 with 8 users that never pause: ")


@pytest.mark.parametrize(("said_s", "left"), [(310, "about 5 min left"), (5, "nearly done")])
def test_the_time_left_is_the_one_that_was_said_last(said_s: float, left: str) -> None:
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(EXPERIMENT, RunDir(Path("runs/x")), 10, 0)
        spec = TrialSpec(1, 0, 1, synthetic.setting(threads=4), 1)
        view.likely_left(said_s)
        view.trial_started(spec, 10)
        clock.now += 10
        view.trial_ended(record(spec), synthetic.analysis().trials[0])
    assert out.getvalue().splitlines()[1].endswith(f"; {left}")


def test_the_first_guess_of_the_time_left_counts_a_ramp_within_the_warm_up_once() -> None:
    def guessed(ramp_ns: int) -> str:
        load = EXPERIMENT.load.model_copy(update={"ramp_ns": ramp_ns})
        measure = EXPERIMENT.measure.model_copy(update={"warmup_ns": 60 * 10**9})
        out = io.StringIO()
        with LiveView(Console(file=out, width=120, force_terminal=True), Clock()) as view:
            ramped = EXPERIMENT.model_copy(update={"load": load, "measure": measure})
            view.run_started(ramped, RunDir(Path("runs/x")), 10, 0)
        return out.getvalue()

    assert " left" in guessed(0) and guessed(60 * 10**9) == guessed(0)


def test_the_time_left_is_not_guessed_where_users_leave() -> None:
    load = EXPERIMENT.load.model_copy(update={"requests_per_user": 100})
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=120, force_terminal=True), clock) as view:
        view.run_started(EXPERIMENT.model_copy(update={"load": load}), RunDir(Path("runs/x")), 10, 0)
        assert "10 trials" in out.getvalue() and " left" not in out.getvalue()
        spec = TrialSpec(1, 0, 1, synthetic.setting(threads=4), 1)
        view.trial_started(spec, 10)
        clock.now += 5
        view.trial_ended(record(spec), synthetic.analysis().trials[0])
    assert "about 45 s left" in out.getvalue()


def test_the_time_left_is_within_the_budget() -> None:
    short = EXPERIMENT.model_copy(update={"design": Design(budget="1m")})
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(short, RunDir(Path("runs/x")), 100, 0)
        spec = TrialSpec(1, 0, 1, synthetic.setting(threads=4), 1)
        view.likely_left(None)
        view.trial_started(spec, 100)
        clock.now += 10
        view.trial_ended(record(spec), synthetic.analysis().trials[0])
    assert out.getvalue().splitlines()[1].endswith("; at most about 50 s left")


def test_the_time_of_a_soak_is_counted() -> None:
    soaking = EXPERIMENT.model_copy(update={"design": EXPERIMENT.design.model_copy(update={"soak_ns": 600 * 10**9})})
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=80), clock) as view:
        view.run_started(soaking, RunDir(Path("runs/x")), 2, 0)
        spec = TrialSpec(1, 0, 1, synthetic.setting(threads=4), 1)
        view.trial_started(spec, 2)
        clock.now += 10
        view.trial_ended(record(spec), synthetic.analysis().trials[0])
    assert out.getvalue().splitlines()[1].endswith("about 10 min left")


def test_a_terminal_shows_the_blocks_of_a_race() -> None:
    race = EXPERIMENT.model_copy(update={"design": EXPERIMENT.design.model_copy(update={"order": "race"})})
    out, clock = io.StringIO(), Clock()
    with LiveView(Console(file=out, width=100, height=40, force_terminal=True, color_system=None), clock) as view:
        view.run_started(race, RunDir(Path("runs/x")), 10, 0)
        view.analysed(synthetic_verdicts.race_analysis())
    assert "round 5 of at most 5 done; 2 settings in the race, 7 eliminated; threads=64 leads" in out.getvalue()
    assert "├" in out.getvalue()


def test_what_a_terminal_obeys_is_not_printed() -> None:
    out = io.StringIO()
    console = Terminal(file=out, width=80, force_terminal=True, color_system="standard")
    console.print(Group(Text("pool-\x1b]0;title\x07\x1b[2J1\x9b2J\u202e", style="red"), Text("plain\x1b[8m")))
    with LiveView(console) as view:
        view.note("thread \x1b[1;1Hname")
    assert "\x1b[31mpool-1\x1b[0m\nplain\n" in out.getvalue() and "thread name\n" in out.getvalue()
    assert not {"\x9b", "\x07", "\u202e"} & set(out.getvalue())


@pytest.mark.parametrize("opened", [os.pipe, os.openpty])
def test_a_run_goes_on_once_nobody_reads_its_progress(opened: Callable[[], tuple[int, int]]) -> None:
    program = """
import os
from powerband.report.terminal.progress import LiveView
with LiveView() as view:
    view.note("begun")
    os.write(1, f"{view.console.is_terminal}\\n".encode())  # what is printed now goes to the terminal
    input()
    view.note("a trial")
    view.phase("measure")
print("the answer")
"""
    watcher, stderr = opened()
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    with child as run:
        os.close(stderr)
        assert run.stdout is not None and run.stdout.readline() == f"{opened is os.openpty}\n"
        os.close(watcher)
        assert run.communicate("\n")[0] == "the answer\n"
    assert run.returncode == 0
