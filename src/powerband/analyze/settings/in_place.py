"""Words what was not seen: a difference between the settings; of a server that was deployed already, or is in a
container, also what the intervals do not include.

In: an answer that is worded for fresh starts, the settings, the trials. Out: the answer, for a deployed server worded
for trials, with one sentence more. Nothing is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from powerband.analyze.settings.contest import CHEAPER_BY, COSTS
from powerband.analyze.settings.why import P99, SOONER_BY
from powerband.analyze.trial.faults import FIRST_START, in_one_line
from powerband.model.experiment import Experiment
from powerband.model.plan import REVISION
from powerband.model.results import Analysis, Answer, ClaimResult, Race, SettingResult, TrialResult, Verdict

CPU = "subject_cpu_cores"
NOT_RESTARTED = (
    "The server was deployed already and was not restarted between settings: the intervals come from repeated rounds "
    "on that one server, and do not include differences between its starts."
)
FROM_OUTSIDE = "Only its responses were seen, from outside: the bottleneck inside it is not known."
NOT_FOUND = (
    "Only its responses were seen: the container's process was not found, so the bottleneck inside it is not known."
)
NO_DIFFERENCE = "No difference between the settings was found: check that the setting takes effect."
_START = re.compile(r"(?<![\w.=/`-])(fresh )?start(s?)(?![\w=/`-]|\.\w)")
"""Matches `start` as a word of its own, not in the name or level of a setting, of a program or of a file."""


def with_unseen(
    experiment: Experiment, answer: Answer, rows: Sequence[SettingResult], results: Sequence[TrialResult]
) -> Answer:
    """The answer with what a deployed server adds to it, a container that was not found, or settings that do not
    differ."""
    subject = experiment.subject
    deployed = subject.deployed is not None
    valid = [result for result in results if result.valid]
    said = [NOT_RESTARTED] if valid and deployed else []
    if valid and not subject.is_own_process and not any(CPU in result.metrics for result in valid):
        said.append(FROM_OUTSIDE if deployed else NOT_FOUND)
    compared = len(rows) > 1 and all(row.feasible and row.trials > 1 for row in rows)
    if compared and not _tails_differ(rows) and (_no_better(rows) if deployed else _all_alike(experiment, rows)):
        said.append(NO_DIFFERENCE)
    quoted = _messages(results) if deployed else ()
    told = (_of_trials(text, quoted) for text in answer.sentences) if deployed else answer.sentences
    return replace(answer, sentences=tuple(filter(None, (*told, " ".join(said)))))


def _tails_differ(rows: Sequence[SettingResult]) -> bool:
    """True if some setting's p99 is far above that of another, or its whole interval above the other's."""
    found = [row.estimates[P99] for row in rows if P99 in row.estimates]
    values, ends = [each.value for each in found], [each.ends for each in found]
    if not found:
        return False
    apart = max(low for low, _ in ends) > CHEAPER_BY * min(high for _, high in ends)
    return apart or max(values) >= SOONER_BY * min(values)


def _no_better(rows: Sequence[SettingResult]) -> bool:
    return all(row.verdict not in (Verdict.WORSE, Verdict.BETTER) for row in rows)


def _all_alike(experiment: Experiment, rows: Sequence[SettingResult]) -> bool:
    """True if settings of the server are equivalent and alike in threads, memory and CPU, as if it never got them."""
    values = [[row.estimates[name].value for row in rows if name in row.estimates] for name in COSTS]
    of_server = any(name != REVISION and not name.startswith("load.") for name in experiment.factors)
    equivalent = all(row.verdict is Verdict.EQUIVALENT for row in rows)
    return of_server and equivalent and all(max(each) <= CHEAPER_BY * min(each) for each in values if each)


def in_words_of_trials(analysis: Analysis) -> Analysis:
    """The analysis of a deployed server with its other sentences worded for trials."""
    if not analysis.deployed:
        return analysis
    quoted = _messages(analysis.trials)
    claimed = {text for claim in analysis.claims for text in (claim.says, claim.published) if text}
    return replace(
        analysis,
        race=None if analysis.race is None else _race(analysis.race, quoted),
        settings=tuple(_row(row, quoted) for row in analysis.settings),
        warnings=tuple(_of_trials(text, quoted) for text in analysis.warnings),
        claims=tuple(_claim(claim, quoted) for claim in analysis.claims),
        found=tuple(_of_trials(text, quoted | claimed) for text in analysis.found),
    )


def _race(race: Race, quoted: Collection[str]) -> Race:
    left = tuple(replace(each, reason=_of_trials(each.reason, quoted)) for each in race.departures)
    fresh = race.confirmation
    told = None if fresh is None else replace(fresh, sentence=_of_trials(fresh.sentence, quoted))
    return replace(race, departures=left, confirmation=told)


def _row(row: SettingResult, quoted: Collection[str]) -> SettingResult:
    found = row.capacity
    return replace(
        row,
        infeasible_because=tuple(_of_trials(why, quoted) for why in row.infeasible_because),
        uncertain_because=tuple(_of_trials(why, quoted) for why in row.uncertain_because),
        capacity=None if found is None else replace(found, note=_of_trials(found.note, quoted)),
    )


def _claim(claim: ClaimResult, quoted: Collection[str]) -> ClaimResult:
    parts = tuple(replace(part, sentence=_of_trials(part.sentence, quoted)) for part in claim.parts)
    return replace(claim, sentence=_of_trials(claim.sentence, quoted), parts=parts)


def _messages(results: Iterable[TrialResult]) -> set[str]:
    """The messages of problems that contain the word, as a sentence has them: they may quote a command or a log, or
    advise to start something in another way. The note on a failed first start is worded for trials, as all else is."""
    problems = (problem for result in results for problem in result.problems if problem.code != FIRST_START)
    told = {problem.message for problem in problems if _START.search(problem.message)}
    return told | set(map(in_one_line, told))


def _of_trials(text: str, quoted: Collection[str] = ()) -> str:
    """The text worded for trials. `quoted`: parts that stay as they are, but for their first letter."""
    kept = "|".join(re.escape(each[1:]) for each in sorted(quoted, key=len, reverse=True) if each[1:])
    parts = re.split(f"({kept})", text) if kept else [text]
    return "".join(part if at % 2 else _START.sub(_trial, part) for at, part in enumerate(parts))


def _trial(found: re.Match[str]) -> str:
    return f"{'further ' if found[1] else ''}trial{found[2]}"
