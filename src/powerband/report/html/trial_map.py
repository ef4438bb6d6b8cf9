"""Every trial on the HTML page: a map of the plan as buttons. In: an Analysis. Out: escaped text; templates/report.js
draws the details of the chosen trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis, TrialResult
from powerband.report.html.tracks import TRIALS_MAX
from powerband.report.wording.numbers import format_measured, format_number
from powerband.report.wording.standings import metric_name
from powerband.report.wording.words import rounds_of


def trial_map(analysis: Analysis) -> str:
    """A button for each trial, and the empty boxes that the chosen trial fills; empty if nothing ran."""
    trials = analysis.trials
    if not trials:
        return ""
    rounds = rounds_of(trials)
    columns = _columns(trials, rounds)
    first = next((trial for trial in trials if trial.valid and trial.setting == analysis.answer.setting), trials[0])
    heads = "".join(f'<th scope="col">{name}</th>' for name in columns.values())
    rows = []
    for setting in _in_order(analysis):
        cells = []
        for column in columns:
            here = [trial for trial in trials if trial.setting == setting and _column(trial) == column]
            cells.append(f"<td>{''.join(_trial_button(trial, rounds, trial is first) for trial in here)}</td>")
        rows.append(f'<tr><th scope="row">{escape(setting.id)}</th>{"".join(cells)}</tr>')
    absent = (
        "The time series of this trial is left out, to keep the page of a long run small; the run directory holds it."
        if len(trials) > TRIALS_MAX
        else "There is no time series of this trial, since its files are damaged."
    )
    return (
        '<p class="lead no-print">Choose a trial, with a click or the arrow keys, to see it second by second. A dashed '
        "frame marks an excluded trial. Each button shows the trial’s place in the order of the run. Of many points, "
        "lines keep the lowest and the highest of each stretch.</p>"
        '<div class="chooser"><div class="scroll no-print"><table class="map" aria-label="Trials by setting and round">'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        '<div class="trial-head" aria-live="polite"><h3 id="trial-title"></h3><p id="trial-about"></p>'
        '<p id="trial-why" class="bad" hidden></p>'
        f'<p id="trial-none" data-absent="{absent}" hidden></p>'
        '</div></div><div class="grid two" id="trial-panels"></div>'
    )


_STAGES = {
    Stage.EXPLORE: "first look",
    Stage.SCREEN: "short",
    Stage.SATURATE: "full load",
    Stage.CAPACITY: "capacity search",
    Stage.COMPARE: "block",
    Stage.CONFIRM: "confirmation",
    Stage.SOAK: "soak",
}


def _column(trial: TrialResult) -> tuple[Stage, int]:
    """The column of a trial: one for each block, one for all other trials of the same stage."""
    return trial.stage, trial.block if trial.stage is Stage.COMPARE else 0


def _columns(trials: Iterable[TrialResult], rounds: Mapping[int, int]) -> dict[tuple[Stage, int], str]:
    """The columns in the order in which a run passes through them, with their headings."""
    order = list(_STAGES)
    keys = sorted({_column(trial) for trial in trials}, key=lambda key: (order.index(key[0]), key[1]))
    return {key: f"round {rounds[key[1]]}" if key[0] is Stage.COMPARE else _STAGES[key[0]] for key in keys}


def _trial_button(trial: TrialResult, rounds: Mapping[int, int], first: bool) -> str:
    state = "valid" if trial.valid else "invalid" if trial.status == "measured" else trial.status
    about = [f"round {rounds[trial.block]}" if trial.stage is Stage.COMPARE else _STAGES[trial.stage]]
    if trial.rate_per_s is not None:
        about.append(f"offered {format_number(trial.rate_per_s, 'per_s')}")
    if trial.attempt > 1:
        about.append(f"attempt {trial.attempt}")
    if trial.warmup_s is not None:
        ended = {"steady": "when steady", "limit": "at its limit, not steady", "fixed": "after the set time"}
        about.append(f"warm-up {trial.warmup_s:.1f} s, ended {ended.get(trial.warmup_ended_by or '', 'early')}")
    for name in ("goodput_per_s", "response_time_ns_p99", "error_rate"):
        if name in trial.metrics:
            about.append(f"{metric_name(name)} {format_measured(name, trial.metrics)}")
    if trial.bottleneck is not None:
        about.append(trial.bottleneck.name.words)
    restless = ["it had not reached a steady state"] if trial.steady is False else []
    why = "; ".join([*(problem.message for problem in trial.problems), *restless])
    title = f"Trial {trial.number}, {trial.setting.id}" + ("" if trial.valid else f" ({state})")
    steady = "no" if restless else "yes"
    return (
        f'<button type="button" data-trial="{trial.number}" data-state="{escape(state)}" data-steady="{steady}" '
        f'data-first="{"yes" if first else "no"}" tabindex="{0 if first else -1}" aria-pressed="false" '
        f'aria-label="{escape(title)}" data-title="{escape(title)}" '
        f'data-about="{escape(" · ".join(about))}" data-why="{escape(why)}">{trial.number}</button>'
    )


def _in_order(analysis: Analysis) -> list[Setting]:
    planned = [result.setting for result in analysis.settings]
    return planned + [s for s in dict.fromkeys(trial.setting for trial in analysis.trials) if s not in planned]
