"""The CPU that other programs and the hypervisor used while a test measured, by the kernel's counters, and repetition
of the measurement if that was too much, or if the machine stood still meanwhile, by the load engine's clock. Whether a
test measures again depends on these alone, never on its result."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from fakes.needs import without
from powerband.analyze.trial.faults import STOPPED
from powerband.model.experiment import FOREIGN_CPU_MAX, STEAL_MAX
from powerband.model.results import TrialResult
from powerband.search.noise import cpu_times

# CPU of programs that do not belong to a trial. A quiet machine shows 0.05 to 0.15 cores.
FOREIGN_CORES_MAX = 0.4
# More attempts and a longer wait if a test without a measurement fails instead of being skipped.
ATTEMPTS, CALM_WITHIN_S = (5, 60.0) if os.environ.get("POWERBAND_NO_SKIP") == "1" else (3, 10.0)
Found = TypeVar("Found")


@dataclass(frozen=True)
class CpuUse:
    """CPU seconds since boot at a time: of the whole machine, of this process and its ended children, and stolen."""

    busy_s: float
    ours_s: float
    steal_s: float
    at_s: float

    @classmethod
    def now(cls) -> CpuUse:
        ticks = cpu_times()
        hertz = os.sysconf("SC_CLK_TCK")
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ours_s = sum(use.ru_utime + use.ru_stime for use in own)
        return cls(ticks["busy"] / hertz, ours_s, ticks["steal"] / hertz, time.monotonic())

    def quiet_since(self, before: CpuUse) -> bool:
        """True if little CPU went to other programs since then, and little was stolen, by the limits that hold for a
        trial."""
        cpu_s = (self.at_s - before.at_s) * (os.cpu_count() or 1)
        foreign_s = (self.busy_s - before.busy_s) - (self.ours_s - before.ours_s)
        return foreign_s <= FOREIGN_CPU_MAX * cpu_s and self.steal_s - before.steal_s <= STEAL_MAX * cpu_s


def disturbed_by(metrics: Mapping[str, float], *, beside_cores: float = 0.0) -> str:
    """The disturbance of a trial, in words; empty if there was none. `beside_cores`: the CPUs that programs of the
    trial use beside the server."""
    foreign = metrics.get("host_foreign_cores", 0.0) - beside_cores
    steal = metrics.get("host_steal_share", 0.0)
    if foreign > FOREIGN_CORES_MAX:
        return f"other programs used {foreign:.2f} CPUs"
    return f"the hypervisor took {steal:.1%} of the CPU time" if steal > STEAL_MAX else ""


def trial_disturbed_by(result: TrialResult, *, beside_cores: float = 0.0) -> str:
    """The disturbance of a trial as `disturbed_by` or `stood_still`, or of the looks after it, by the trial's notes."""
    notes = (each.message for each in result.problems if each.code == "no_slots" and "meanwhile" in each.message)
    return disturbed_by(result.metrics, beside_cores=beside_cores) or stood_still(result) or next(notes, "")


def stood_still(result: TrialResult) -> str:
    """Says that the load engine did not run for a while, as where the whole machine stops; empty if it always ran. No
    counter of the kernel shows it."""
    return stopped(each.code for each in result.problems)


def stopped(codes: Iterable[str]) -> str:
    """Says the same, from the codes of a trial's problems."""
    return "the load engine stood still" if STOPPED in codes else ""


def run_disturbed_by(trials: Iterable[Mapping[str, float]]) -> str:
    """The disturbance of a run, by the medians of its trials' metrics; empty if there was none."""
    found = list(trials)
    names = ("host_foreign_cores", "host_steal_share")
    return disturbed_by({name: median(metrics.get(name, 0.0) for metrics in found) for name in names})


def spoilt(analysis: Mapping[str, Any]) -> str:
    """The disturbance of the first invalid trial of a run that was disturbed; empty if there is no such trial."""
    for trial in analysis["trials"]:
        fatal = [problem["code"] for problem in trial["problems"] if problem["fatal"]]
        if fatal and (said := disturbed_by(trial["metrics"]) or stopped(fatal)):
            return said
    return ""


def undisturbed(
    measured: Callable[[int], Found], disturbance: Callable[[Found], str], attempts: int = ATTEMPTS
) -> Found:
    """The first measurement that nothing disturbed, of `attempts` at most; without one the test is skipped or fails.
    `measured` takes the number of the attempt, from 0."""
    said = ""
    for attempt in range(attempts):
        if attempt:
            await_calm()
        found = measured(attempt)
        if not (said := disturbance(found)):
            return found
    without(f"each of {attempts} measurements was disturbed (the last: {said}): run this on a quiet machine")


def await_calm() -> None:
    """Waits until the machine was quiet for a second, for at most `CALM_WITHIN_S`."""
    deadline = time.monotonic() + CALM_WITHIN_S
    before = CpuUse.now()
    while time.monotonic() < deadline:
        time.sleep(1.0)
        now = CpuUse.now()
        if now.quiet_since(before):
            return
        before = now
