"""Settings that cannot last: in each of their trials something grew all through the window.

In: results of trials. Out: a warning for each such setting, and a phrase where a limit is reached soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from powerband.base.units import format_bytes, format_duration, significant
from powerband.model.plan import Setting
from powerband.model.results import TrialResult

SOON_S = 3600.0
TRIALS_LEAST = 2
_GROW = ("memory", "threads", "descriptors")


def growing(results: Iterable[TrialResult]) -> dict[Setting, dict[str, tuple[float, float | None]]]:
    """By setting and by what grew in each of its valid trials, of which there must be two: the growth per second, and
    in how many seconds its limit is reached (None: not known), the middle ones of the trials."""
    by_setting: dict[Setting, list[TrialResult]] = {}
    for result in results:
        if result.valid:
            by_setting.setdefault(result.setting, []).append(result)
    found = {}
    for setting, trials in by_setting.items():
        grew = {what: each for what in _GROW if len(trials) >= TRIALS_LEAST and (each := _of_all(what, trials))}
        if grew:
            found[setting] = grew
    return found


def _of_all(what: str, trials: list[TrialResult]) -> tuple[float, float | None] | None:
    name = "memory_growth_bytes_per_s" if what == "memory" else f"{what}_growth_per_s"
    growths = [trial.metrics.get(name, 0.0) for trial in trials]
    if not all(growth > 0 for growth in growths):
        return None
    lasts = [trial.metrics[f"{what}_lasts_s"] for trial in trials if f"{what}_lasts_s" in trial.metrics]
    return median(growths), median(lasts) if lasts else None


def soon(grew: Mapping[str, tuple[float, float | None]]) -> str:
    """`memory grows by 300 MiB/s, full in 80 s`: what reaches its limit within an hour; empty: nothing does."""
    return ", and ".join(
        _phrase(what, *each) for what, each in grew.items() if each[1] is not None and each[1] < SOON_S
    )


def lasting_warnings(found: Mapping[Setting, Mapping[str, tuple[float, float | None]]]) -> Iterator[str]:
    for setting, grew in found.items():
        said = "; ".join(_phrase(what, *each) for what, each in grew.items())
        yield f"{setting.id} may not last: all through each of its trials {said}"


def _phrase(what: str, growth: float, lasts_s: float | None) -> str:
    if what == "memory":
        end = "" if lasts_s is None else f", full in {format_duration(lasts_s * 1e9)}"
        return f"memory grows by {format_bytes(growth)}/s{end}"
    kind = "file descriptors" if what == "descriptors" else what
    end = "" if lasts_s is None else f", used up in {format_duration(lasts_s * 1e9)}"
    return f"{kind} grow by {significant(growth)}/s{end}"
