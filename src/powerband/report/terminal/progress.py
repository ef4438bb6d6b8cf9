"""The live view of a run on stderr, drawn by an Observer. In: events. Out: a table; no statistics are computed here.

On a terminal: progress, time left, the current trial, and the ranking with its intervals, redrawn at most twice a
second, and only when something has happened. Elsewhere (a pipe, a CI log): one line per trial and one per block."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from powerband.base.units import plural, rough_time
from powerband.loads import kind_of
from powerband.model.experiment import Design, Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.report.terminal.console import Terminal
from powerband.report.wording.numbers import ABSENT, format_estimate, format_measured, format_number
from powerband.report.wording.standings import left_line, metric_name, race_line, ranking
from powerband.report.wording.words import bound_words
from powerband.search.forecast import users_leave
from powerband.search.observer import Observer
from powerband.store import RunDir, TrialRecord

REDRAW_S = 0.5  # one redraw costs 3 to 4 ms of CPU: 0.7 % of a core
_START_AND_STOP_S = 2.0  # first guess of a trial's time beyond warm-up and window


class LiveView(Observer):
    """The live view, to be used as a context manager around a run. The caller prints the final answer. `console`: where
    it is drawn."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Terminal(stderr=True)
        self._clock = clock
        self._lines = not self.console.is_terminal
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._state = _Progress(clock)
        self._drawn_at = float("-inf")
        self._told_at = -1
        self._told_out = ""

    def __enter__(self) -> LiveView:
        if not self._lines:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._lines:
            self._live.stop()

    def note(self, text: str, style: str = "") -> None:
        """Prints a remark, above the part that is redrawn. `style`: one of rich, such as `yellow`."""
        self.console.print(Text(text, style=style), soft_wrap=True)

    def run_started(self, experiment: Experiment, run: RunDir, planned_total: int, done: int) -> None:
        """Shows the number of trials; as lines, also the run directory."""
        self._state.begin(experiment, planned_total, done)
        if self._lines:
            again = f", {done} of them done already" if done else ""
            self.note(f"{experiment.name}: {self._state.size()}{again}; into {run.path}")
        self._redraw(now=True)

    def likely_left(self, seconds: float | None) -> None:
        """Keeps the forecast, which counts down from now on."""
        self._state.expect(seconds)

    def trial_started(self, spec: TrialSpec, planned_total: int) -> None:
        """Shows this trial as the current one."""
        self._state.start_trial(spec, planned_total)
        self._redraw(now=True)

    def phase(self, name: str) -> None:
        """Shows the phase of the current trial."""
        self._state.phase = name
        self._redraw(now=True)

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None:
        """Shows the current load, with the next redraw."""
        self._state.rate_per_s = rate_per_s
        self._state.response_time_ns = response_time_ns_mean
        self._state.in_flight = in_flight
        self._redraw()

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        """Counts the trial, and prints its line: always as lines, on a terminal only if the trial is excluded."""
        self._state.end_trial(record.spec)
        if self._lines:
            self.note(self._state.trial_line(result))
        elif not result.valid:
            # Printed above the redrawn part, so that it stays on the screen.
            self.note(self._state.trial_line(result), style="yellow")
        self._redraw(now=True)

    def analysed(self, analysis: Analysis) -> None:
        """Shows the ranking; as lines, the leader and the settings eliminated since."""
        self._state.analysis = analysis
        if self._lines and analysis.answer.leader is not None and self._state.done != self._told_at:
            self._told_at = self._state.done
            leader = next(r for r in analysis.settings if r.setting == analysis.answer.leader)
            estimate = leader.shown.get(analysis.objective)
            figure = f": {metric_name(analysis.objective)} {format_estimate(estimate, analysis.objective)}"
            told = f"after {plural(self._state.done, 'trial')} {leader.setting.id} leads{figure if estimate else ''}"
            out = left_line(analysis)
            new_out = "" if out == self._told_out else out
            self._told_out = out
            self.note("; ".join(part for part in (told, bound_words(analysis), new_out) if part))
        self._redraw(now=True)

    def _redraw(self, *, now: bool = False) -> None:
        """`now`: redraw at once, for changes of state, which are rare; figures wait for the next redraw."""
        if self._lines:
            return
        moment = self._clock()
        if now or moment - self._drawn_at >= REDRAW_S:
            self._drawn_at = moment
            self._live.update(self._state.render(self.console.width), refresh=True)


class _Progress:
    """The state of a run that the view shows."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.experiment: Experiment | None = None
        self.planned = self.done = self._done_here = 0
        self._first_guess_s: float | None = None  # of a trial; None: nobody knows when its users leave
        self._likely: tuple[float, float] | None = None  # seconds left, and when that was said
        self._began_s = self._trial_began_s = clock()
        self._in_flight: dict[int, tuple[TrialSpec, float]] = {}  # with the time of the beginning; nodes run several
        self.spec: TrialSpec | None = None  # the one that is shown
        self.phase = ""
        self.rate_per_s: float | None = None
        self.response_time_ns: float | None = None
        self.in_flight = 0
        self.analysis: Analysis | None = None

    def begin(self, experiment: Experiment, planned: int, done: int) -> None:
        self.experiment, self.planned, self.done = experiment, planned, done
        warmup_ns = kind_of(experiment).warmup(experiment, experiment.load).shortest_ns
        guess_s = (warmup_ns + experiment.load.duration_ns) / 1e9 + _START_AND_STOP_S
        self._first_guess_s = None if users_leave(experiment) else guess_s
        self._began_s = self._clock()

    def expect(self, seconds: float | None) -> None:
        self._likely = None if seconds is None else (seconds, self._clock())

    def size(self) -> str:
        return f"{'at most ' if self._ends_early else ''}{plural(self.planned, 'trial')}"

    @property
    def _ends_early(self) -> bool:
        return self.experiment is not None and self.experiment.may_end_early

    def start_trial(self, spec: TrialSpec, planned: int) -> None:
        self.planned = planned
        self._in_flight[spec.number] = spec, self._clock()
        self._show(spec.number)

    def _show(self, number: int) -> None:
        self.spec, self._trial_began_s = self._in_flight[number]
        self.phase, self.rate_per_s, self.response_time_ns, self.in_flight = "", None, None, 0

    def end_trial(self, spec: TrialSpec) -> None:
        self.done += 1
        self._done_here += 1
        self._in_flight.pop(spec.number, None)
        if not self._in_flight:
            self.spec = None
        elif self.spec is not None and self.spec.number == spec.number:
            self._show(max(self._in_flight))

    def left(self) -> str:
        """Returns `about 2 min left`: what was said last, or else the time for the trials still to come, at the pace of
        those done here or at a first guess, but no longer than the budget; empty without any of these."""
        if self._likely is not None:
            likely_s, said_at = self._likely
            left_s = likely_s - (self._clock() - said_at)
            return f"about {rough_time(left_s)} left" if left_s >= 1 else "nearly done"
        pace_s = (self._clock() - self._began_s) / self._done_here if self._done_here else self._first_guess_s
        if pace_s is None:
            return ""
        if self.spec is not None and self._done_here:
            pace_s = (self._trial_began_s - self._began_s) / self._done_here
        running_s = self._clock() - self._trial_began_s if self.spec is not None else 0.0
        soaks = self.spec is not None and self.spec.stage is Stage.SOAK
        design = Design() if self.experiment is None else self.experiment.design
        gone_s = self._clock() - self._began_s
        left_s = design.left_s(self.planned - self.done, pace_s, running_s, gone_s, soaks=soaks)
        return f"{'at most ' if self._ends_early else ''}about {rough_time(left_s)} left"

    def trial_line(self, result: TrialResult) -> str:
        """`[3/30] threads=4: goodput 12,300/s, p99 4.20 ms`, or the reason why it is excluded. Without the total where
        that is only a bound, which jumps."""
        total = "" if self._ends_early else f"/{self.planned}"
        purpose = self._purpose(result.setting, result.stage, result.rate_per_s)
        head = f"[{self.done}{total}] {result.setting.id}{purpose}"
        head += f" on {result.node}" if result.node else ""
        if not result.valid:
            word = "invalid" if result.status == "measured" else result.status
            why = "; ".join(problem.message for problem in result.problems if problem.fatal)
            return f"{head} {word}: {why}" if why else f"{head} {word}"
        objective = self.experiment.objective.metric if self.experiment else "goodput_per_s"
        names = dict.fromkeys((objective, "goodput_per_s", "response_time_ns_p99"))
        measured = [name for name in names if name in result.metrics][:2]
        shown = [f"{metric_name(name)} {format_measured(name, result.metrics)}" for name in measured]
        left = f"; {self.left()}" if self.done < self.planned else ""
        return f"{head}: {', '.join(shown)}{left}"

    def render(self, width: int) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self.experiment.name if self.experiment else "", style="bold"),
            ProgressBar(
                total=max(self.planned, 1), completed=min(self.done, self.planned), width=24, complete_style="cyan"
            ),
            Text(f"{self.done} of {self.size()}"),
            Text(self.left(), style="dim"),
        )
        parts: list[RenderableType] = [head, self._now()]
        if self.analysis is not None and self.analysis.settings:
            if self.experiment is not None and (standing := race_line(self.analysis, self.experiment)):
                parts.append(Text(standing))
            parts += [Text(), ranking(self.analysis, width)]
        return Group(*parts)

    def _now(self) -> Text:
        if self.spec is None:
            return Text("between trials", style="dim")
        text = Text.assemble((f"trial {self.spec.number}  ", "dim"), (self.spec.setting.id, "cyan"))
        text.append(self._purpose(self.spec.setting, self.spec.stage, self.spec.rate_per_s))
        text.append(f"  {self.phase or 'starting'} {self._clock() - self._trial_began_s:.0f} s")
        if self.rate_per_s is not None:
            text.append(f"  {format_number(self.rate_per_s, 'per_s')}")
            if self.experiment is not None and not kind_of(self.experiment).has_metric("response_time_ns_mean"):
                return text
            response = self.response_time_ns
            text.append(f"  mean {ABSENT if response is None else format_number(response, 'ns')}")
            text.append(f"  {self.in_flight:,} in flight")
        return text

    def _purpose(self, setting: Setting, stage: Stage, rate_per_s: float | None) -> str:
        """The purpose of a trial outside of blocks: ` at 1,200/s`, ` (to confirm)`, ` with 64 users that never pause`;
        empty for a trial of a block."""
        if stage is Stage.SATURATE and self.experiment is not None:
            return f" {kind_of(self.experiment).load_words(self.experiment.load_for(setting))}".rstrip()
        said = f" ({_STAGES[stage]})" if stage in _STAGES else ""
        return said + ("" if rate_per_s is None else f" at {format_number(rate_per_s, 'per_s')}")


_STAGES = {
    Stage.EXPLORE: "a first look",
    Stage.SCREEN: "short",
    Stage.CONFIRM: "to confirm",
    Stage.SOAK: "the soak",
}
