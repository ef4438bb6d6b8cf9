"""Words the answer for a server that was deployed already, or is in a container: what the intervals include, and what
was not seen.

In: an answer that is worded for fresh starts, the settings, the trials. Out: the answer worded for trials, with one
sentence more. Nothing is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from powerband.model.experiment import Experiment
from powerband.model.results import Analysis, Answer, SettingResult, TrialResult, Verdict

NOT_RESTARTED = (
    "The server was deployed already and was not restarted between settings: the intervals come from repeated rounds "
    "on that one server, and do not include differences between its starts."
)
FROM_OUTSIDE = "Only its responses were seen, from outside: the bottleneck inside it is not known."
NOT_FOUND = (
    "Only its responses were seen: the container's process was not found, so the bottleneck inside it is not known."
)
NO_DIFFERENCE = "No difference between the settings was found: check that the setting takes effect."
_START = re.compile(r"(?<![\w.=-])(fresh )?start(s?)(?![\w=-])")
"""Matches `start` as a word of its own, not as the name or level of a setting."""


def deployed_answer(
    experiment: Experiment, answer: Answer, rows: Sequence[SettingResult], results: Sequence[TrialResult]
) -> Answer:
    """The answer with what a deployed server adds to it, or a container that was not found."""
    subject = experiment.subject
    if subject.is_own_process:
        return answer
    valid = [result for result in results if result.valid]
    unseen = bool(valid) and not any("subject_cpu_cores" in result.metrics for result in valid)
    if subject.deployed is None:
        return replace(answer, sentences=(*answer.sentences, NOT_FOUND)) if unseen else answer
    said = [NOT_RESTARTED] if valid else []
    if unseen:
        said.append(FROM_OUTSIDE)
    compared = [row for row in rows if row.trials > 1]
    alike = all(row.feasible and row.verdict not in (Verdict.WORSE, Verdict.BETTER) for row in rows)
    if len(compared) > 1 and len(compared) == len(rows) and alike:
        said.append(NO_DIFFERENCE)
    sentences = (*map(_of_trials, answer.sentences), *([" ".join(said)] if said else []))
    return replace(answer, sentences=sentences)


def in_words_of_trials(analysis: Analysis) -> Analysis:
    """The analysis of a deployed server with its other sentences worded for trials."""
    if not analysis.deployed:
        return analysis
    race = analysis.race
    if race is not None and race.confirmation is not None:
        told = replace(race.confirmation, sentence=_of_trials(race.confirmation.sentence))
        race = replace(race, confirmation=told)
    return replace(analysis, race=race, settings=tuple(map(_row, analysis.settings)))


def _row(row: SettingResult) -> SettingResult:
    return replace(
        row,
        infeasible_because=tuple(map(_of_trials, row.infeasible_because)),
        uncertain_because=tuple(map(_of_trials, row.uncertain_because)),
    )


def _of_trials(text: str) -> str:
    return _START.sub(lambda match: f"{'further ' if match[1] else ''}trial{match[2]}", text)
