"""Finds settings that cannot last: in each of their trials something grew all through the window.

In: results of trials. Out: a warning for each such setting, and a phrase where a limit is reached soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from powerband.base.units import format_bytes, significant, time_text
from powerband.model.plan import Setting
from powerband.model.results import TrialResult

Growths = Mapping[str, tuple[float, float | None]]
"""The growth per second, and the seconds until its limit is reached (None: not known), by what grows."""

SOON_S = 3600.0  # an hour, as a person waits for it; what fills up later is told in the table, not in the answer
TRIALS_LEAST = 2  # one alone may be chance: six floors in random order rise so in 1 of 120 (lasting.md)
_METRICS = {
    "memory": ("memory_growth_bytes_per_s", "memory_lasts_s"),
    "threads": ("threads_growth_per_s", "threads_lasts_s"),
    "descriptors": ("descriptors_growth_per_s", "descriptors_lasts_s"),
    "queue": ("queue_growth_per_s", ""),  # it has no limit of the server's own
}


def growth_of(metrics: Mapping[str, float]) -> Growths:
    """Returns what grew all through one trial."""
    return {
        what: (metrics[growth], metrics.get(lasts))
        for what, (growth, lasts) in _METRICS.items()
        if metrics.get(growth, 0.0) > 0
    }


def growing(results: Iterable[TrialResult]) -> dict[Setting, Growths]:
    """Returns what grew in each valid trial of a setting that has at least two: the medians of its trials."""
    by_setting: dict[Setting, list[Growths]] = {}
    for result in results:
        if result.valid:
            by_setting.setdefault(result.setting, []).append(growth_of(result.metrics))
    found = {
        setting: {
            what: _median([trial[what] for trial in trials]) for what in _METRICS if all(what in t for t in trials)
        }
        for setting, trials in by_setting.items()
        if len(trials) >= TRIALS_LEAST
    }
    return {setting: grew for setting, grew in found.items() if grew}


def _median(trials: Sequence[tuple[float, float | None]]) -> tuple[float, float | None]:
    ends_s = [end_s for _, end_s in trials if end_s is not None]
    return median(growth for growth, _ in trials), median(ends_s) if ends_s else None


def soon(grew: Growths) -> str:
    """Words what reaches its limit within an hour: `memory grows by 300 MiB/s, full in 80 s`; empty if nothing does."""
    return ", and ".join(
        _phrase(what, *each) for what, each in grew.items() if each[1] is not None and each[1] < SOON_S
    )


def lasting_warnings(found: Mapping[Setting, Growths], soaked: Setting | None = None) -> Iterator[str]:
    """Yields a warning for each setting in `found`. `soaked`: the setting of a soak that gave a verdict, which needs no
    advice to run one."""
    for setting, grew in found.items():
        advice = "" if setting == soaked else "; a long run (--soak 10m) shows whether it goes on"
        yield f"{setting.id} may not last: all through each of its trials {phrases(grew)}{advice}"


def phrases(grew: Growths) -> str:
    """Words all growths: `memory grows by 300 MiB/s, full in 80 s; threads grow by 12/s`."""
    return "; ".join(_phrase(what, *each) for what, each in grew.items())


def _phrase(what: str, growth: float, lasts_s: float | None) -> str:
    if what == "memory":
        end = "" if lasts_s is None else f", full in {time_text(lasts_s * 1e9)}"
        return f"memory grows by {format_bytes(growth)}/s{end}"
    if what == "queue":
        return (
            f"the queue of unanswered requests grows by {significant(growth)}/s: requests arrive faster than they "
            "are answered"
        )
    kind = "file descriptors" if what == "descriptors" else what
    end = "" if lasts_s is None else f", used up in {time_text(lasts_s * 1e9)}"
    return f"{kind} grow by {significant(growth)}/s{end}"
