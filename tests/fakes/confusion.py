"""Runs the planted cases and counts those that are named rightly. `python -m fakes.confusion PAGE ROWS [WORD...]`, with
tests/ on the path, puts the sums of each set into PAGE between its two marks, and a row of each case into the CSV file
ROWS. With words, only cases whose names contain one of them are tried, and the other rows stay. All of them take 20
minutes on a quiet machine."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fakes.disturbance import await_calm, trial_disturbed_by
from fakes.planted import CASES, HEALTHY, Case
from fakes.planted_containers import CONTAINER_CASES, CONTAINER_HEALTHY
from fakes.planted_further import FURTHER_CASES, FURTHER_HEALTHY
from fakes.planted_held_out import HELD_OUT, HELD_OUT_HEALTHY
from fakes.planted_real import REAL_CASES, REAL_HEALTHY, RealCase
from fakes.scored import Row, file_of, named_otherwise, renewed, sets_of, summary
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import TrialResult

# The cases by the title of the page's marks.
SETS: dict[str, tuple[Case, ...]] = {
    "confusion table": (*CASES, *HEALTHY),
    "held-out table": (*HELD_OUT, *HELD_OUT_HEALTHY),
    "real servers' table": (*REAL_CASES, *CONTAINER_CASES, *REAL_HEALTHY, *CONTAINER_HEALTHY),
    "further servers' table": (*FURTHER_CASES, *FURTHER_HEALTHY),
}
ATTEMPTS = 2
ENGINE_AT_EASE = 0.5  # share of a thread's CPU below which work alone does not make it late


@dataclass(frozen=True)
class Tried:
    case: Case
    result: TrialResult

    @property
    def named(self) -> BottleneckName | None:
        return None if self.result.bottleneck is None else self.result.bottleneck.name

    @property
    def right(self) -> bool:
        return self.named is self.case.expected

    @property
    def disturbed_by(self) -> str:
        """The disturbance of a trial or its looks that may hide the planted bottleneck: by programs not of the case,
        by the hypervisor, or by the lateness of an engine with little CPU work. Empty if there was none."""
        held_up = "the engine, which had a CPU and little to do, was late" if self._late else ""
        return trial_disturbed_by(self.result, beside_cores=self.case.beside_cores) or held_up

    @property
    def disturbed(self) -> bool:
        return bool(self.disturbed_by)

    @property
    def _late(self) -> bool:
        late = any(problem.code == "generator_lag" for problem in self.result.problems)
        at_ease = self.result.metrics.get("engine_cpu_share_max", 1.0) < ENGINE_AT_EASE
        return late and at_ease and not self.case.burners

    def __str__(self) -> str:
        said = "; ".join(self.result.bottleneck.evidence) if self.result.bottleneck else "nothing"
        return f"{self.case.name}: {self.case.expected} was named {self.named} ({said})"


def try_all(cases: Iterable[Case], attempts: int = ATTEMPTS) -> Iterator[Tried]:
    """Tries each case until the machine does not disturb it, `attempts` times at most, whatever was named."""
    for case in cases:
        for attempt in range(1, attempts + 1):
            with tempfile.TemporaryDirectory() as folder:
                tried = Tried(case, case.run(Path(folder)))
            if not tried.disturbed or attempt == attempts:
                yield tried
                break
            await_calm()


def main(page: Path, file: Path, words: Sequence[str]) -> None:
    for title, cases in SETS.items():
        # The row of a case whose programs are not installed stays as it is, if it has one.
        here = [case for case in cases if not isinstance(case, RealCase) or case.installed]
        some = [case for case in here if not words or any(word in case.name for word in words)]
        new = scored(some)
        if not some:
            continue
        sets = sets_of(file.read_text())
        rows = renewed(sets.get(title, {}), new, cases)
        file.write_text(file_of({**sets, title: {row.case: row for row in rows}}))
        if untried := {case.name for case in here} - {row.case for row in rows}:
            sys.stderr.write(f"{len(untried)} cases were never tried, so that the {title} stays as it is\n")
            continue
        text = " ".join(filter(None, (summary(rows, machine()), named_otherwise(rows))))
        page.write_text(put(page.read_text(), title, f"{text}\n"))


def machine() -> str:
    return f"{len(os.sched_getaffinity(0))} CPUs, {platform.system()} {platform.release().partition('-')[0]}"


def scored(cases: Iterable[Case]) -> dict[str, Row]:
    rows = {}
    for tried in try_all(cases):
        verdict = "disturbed" if tried.disturbed else "ok" if tried.right else "WRONG"
        sys.stderr.write(f"{verdict} {tried}\n")
        rows[tried.case.name] = Row.disturbed(tried.case) if tried.disturbed else Row.of(tried.case, tried.result)
    return rows


def put(page: str, title: str, text: str) -> str:
    """The page with this text between the two marks of that title. Raises ValueError without them."""
    begin, end = f"<!-- {title}: begin -->", f"<!-- {title}: end -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    return f"{before}{begin}\n{text}{end}{after}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
