"""Runs the planted cases and says how many are named rightly. `python -m fakes.confusion [PAGE]`, with tests/ on the
path, prints a table of the tuned cases and one of the held-out, or puts each into the page between its two marks; it
takes four minutes of a quiet machine."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fakes.disturbance import await_calm, disturbed_by
from fakes.planted import CASES, HEALTHY, Case
from fakes.planted_held_out import HELD_OUT, HELD_OUT_HEALTHY
from fakes.planted_real import REAL_CASES, REAL_HEALTHY
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import TrialResult

# By the name of the page's marks.
SETS: dict[str, tuple[Case, ...]] = {
    "confusion table": (*CASES, *HEALTHY),
    "held-out table": (*HELD_OUT, *HELD_OUT_HEALTHY),
    "real servers' table": tuple(case for case in (*REAL_CASES, *REAL_HEALTHY) if case.installed),
}
ATTEMPTS = 2
ENGINE_AT_EASE = 0.5  # of a thread's CPU: work alone does not make it late
CPU_LEFT, SLOTS_WITHIN = 0.8, 0.1


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
        """Other programs than the case's own burners, or the hypervisor, where they took a part or held up an engine
        that had work for a part of its CPU only: what it shows is not what was planted. Else empty."""
        held_up = "the engine, which had a CPU and little to do, was late" if self._late else ""
        return disturbed_by(self.result.metrics, burners=len(set(self.case.burners))) or held_up

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
    """Each case until the machine does not disturb it, `attempts` times at most; whatever it is named."""
    for case in cases:
        for attempt in range(1, attempts + 1):
            with tempfile.TemporaryDirectory() as folder:
                tried = Tried(case, case.run(Path(folder)))
            if not tried.disturbed or attempt == attempts:
                yield tried
                break
            await_calm()


def table(trials: Sequence[Tried]) -> str:
    """By what was planted: how many, and what they were named."""
    rows = ["| planted | trials | named so | named otherwise |", "|---|---|---|---|"]
    for name in BottleneckName:
        of_it = [tried for tried in trials if tried.case.expected is name]
        if not of_it:
            continue
        others = Counter(str(tried.named) for tried in of_it if not tried.right)
        otherwise = ", ".join(f"{other} ({count})" for other, count in others.items()) or "-"
        planted = "`none` (healthy)" if name is BottleneckName.NONE else f"`{name}`"
        rows.append(f"| {planted} | {len(of_it)} | {sum(tried.right for tried in of_it)} | {otherwise} |")
    return "\n".join(rows)


def summary(trials: Sequence[Tried], left_out: int) -> str:
    planted = [tried for tried in trials if tried.case.expected is not BottleneckName.NONE]
    healthy = [tried for tried in trials if tried.case.expected is BottleneckName.NONE]
    accused = sum(tried.named not in (None, BottleneckName.NONE) for tried in healthy)
    unnamed = sum(tried.named is None for tried in healthy)
    nameless = f", {unnamed} had no name" if unnamed else ""
    noise = f" Left out, for other programs or the hypervisor disturbed them: {left_out}." if left_out else ""
    return (
        f"{today()}: {sum(tried.right for tried in planted)} of {len(planted)} planted bottlenecks were named rightly, "
        f"{accused} of {len(healthy)} healthy trials were accused{nameless}.{slots_told(trials)}{noise}"
    )


def today() -> str:
    """The date and the machine."""
    kernel = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {len(os.sched_getaffinity(0))} CPUs, {kernel}"


def slots_told(trials: Sequence[Tried]) -> str:
    """How many of the planted numbers of slots were measured within `SLOTS_WITHIN`, where CPU is not the limit."""
    asked = [tried for tried in trials if tried.case.slots and tried.result.metrics["subject_cpu_share"] < CPU_LEFT]
    errors = [abs(tried.result.metrics.get("slots", 0.0) / tried.case.slots - 1) for tried in asked]
    near = sum(error <= SLOTS_WITHIN for error in errors)
    return (
        f" {near} of {len(asked)} numbers of slots were within {SLOTS_WITHIN:.0%} of what was planted." if asked else ""
    )


def main() -> None:
    for title, cases in SETS.items():
        text = scored(cases)
        if len(sys.argv) > 1:
            page = Path(sys.argv[1])
            page.write_text(put(page.read_text(), title, text))
        else:
            sys.stdout.write(f"{title}: {text}\n")


def scored(cases: Iterable[Case]) -> str:
    trials = []
    for tried in try_all(cases):
        trials.append(tried)
        verdict = "disturbed" if tried.disturbed else "ok" if tried.right else "WRONG"
        sys.stderr.write(f"{verdict} {tried}\n")
    fair = [tried for tried in trials if not tried.disturbed]
    return f"{summary(fair, len(trials) - len(fair))}\n\n{table(fair)}\n"


def put(page: str, title: str, text: str) -> str:
    """The page with this text between the two marks of that title."""
    begin, end = f"<!-- {title}: begin -->", f"<!-- {title}: end -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    return f"{before}{begin}\n{text}{end}{after}"


if __name__ == "__main__":
    main()
