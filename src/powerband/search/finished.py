"""Reads the finished trials of a run as results, and finds those that were lost since: a file of the trial is missing,
cut short or altered, or its record is gone.

A lost trial is measured again, but a rebuilt planner has to see the result that it decided on at the time. That result
is taken from the last analysis and kept in `seen.json` before the trial is measured again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from powerband.analyze.stored import stored_analysis, stored_results
from powerband.analyze.trial.faults import with_first_start
from powerband.analyze.trial.measure import measure
from powerband.base.errors import UsageError
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import DAMAGED, Problem, TrialResult
from powerband.store import NOT_AS_WRITTEN, DamagedError, RunDir, write_atomically, writing

_SAID_MAX = 5  # arbitrary: enough in a list of warnings


@dataclass(frozen=True)
class Finished:
    """The finished trials of a run, by number. `results`, `specs`: lost trials included; the result of a lost trial is
    invalid, and neither is there if its spec is unknown. `lost`: the reason of each loss. `seen`: the results that the
    planner saw, for lost trials and those measured again."""

    results: Mapping[int, TrialResult]
    specs: Mapping[int, TrialSpec]
    lost: Mapping[int, str]
    seen: Mapping[int, TrialResult]

    @property
    def last(self) -> int:
        """The highest number of a finished trial; 0 if there is none."""
        return max((*self.results, *self.lost), default=0)

    def shown(self, number: int) -> TrialResult | None:
        """The result to pass to a planner; None for a lost trial whose first result is not known."""
        return self.seen.get(number) or (None if number in self.lost else self.results[number])

    def warnings(self) -> Iterator[str]:
        """A sentence for each of the first lost trials, and one for the number of the others."""
        for number, why in list(self.lost.items())[:_SAID_MAX]:
            yield f"trial {number} does not count: {why}; `powerband resume` measures it again"
        if len(self.lost) > _SAID_MAX:
            yield f"{len(self.lost) - _SAID_MAX} more trials are damaged and do not count"


def finished_trials(experiment: Experiment, run: RunDir, in_flight: Collection[int] = ()) -> Finished:
    """Reads and measures the finished trials of a run. `in_flight`: trials that are not lost if they have no record.
    Raises UsageError for a record that another version of powerband wrote."""
    records, lost = run.records_and_damage()
    lost = {n: why for n, why in lost.items() if n not in in_flight or run.trial(n).record.exists()}
    results = {}
    for record in records:
        number = record.spec.number
        try:
            results[number] = measure(run.trial(number), record, experiment)
        except DamagedError as error:
            lost[number] = str(error)
        except NOT_AS_WRITTEN as error:
            lost[number] = f"its files are damaged, or another version wrote them ({type(error).__name__}: {error})"
    seen = _seen(run, lost)
    # Of trials at the end of the run that were not measured again to the end nothing else is left.
    lost = {**{number: "its files were damaged" for number in seen if number not in results}, **lost}
    specs = {number: spec for number, spec in run.planned().items() if number in lost}
    specs |= {record.spec.number: record.spec for record in records}
    results |= {
        number: result_of(specs[number], "failed", Problem(DAMAGED, why))
        for number, why in lost.items()
        if number in specs
    }
    results = {number: with_first_start(result, results.values()) for number, result in sorted(results.items())}
    return Finished(results, specs, dict(sorted(lost.items())), seen)


def keep_seen(run: RunDir, finished: Finished) -> None:
    """Writes `seen.json`, before lost trials are measured again. Raises MeasurementError if the disk cannot be
    written."""
    if not finished.seen or not finished.lost:
        return
    with writing(run.seen):
        write_atomically(run.seen, json.dumps([result.to_json() for result in finished.seen.values()]))


def _seen(run: RunDir, lost: Mapping[int, str]) -> dict[int, TrialResult]:
    """The kept results, and the results of lost trials in the last analysis."""
    found = {}
    try:
        analysed = stored_analysis(run.analysis.read_text(encoding="utf-8")).trials if lost else ()
        found = {result.number: result for result in analysed if result.number in lost and not result.damaged}
    except (OSError, UnicodeError, UsageError):
        pass
    try:
        return found | {result.number: result for result in stored_results(run.seen.read_text(encoding="utf-8"))}
    except (OSError, UnicodeError, UsageError):
        return found


def result_of(spec: TrialSpec, status: str, *problems: Problem) -> TrialResult:
    """The result of a trial that measured nothing."""
    return TrialResult(
        number=spec.number,
        block=spec.block,
        attempt=spec.attempt,
        setting=spec.setting,
        status=status,
        problems=problems,
        metrics={},
        stage=spec.stage,
        rate_per_s=spec.rate_per_s,
    )
