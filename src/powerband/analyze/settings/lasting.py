"""Finds settings that cannot last: in each of their trials something grew all through the window.

In: results of trials. Out: a warning for each such setting, and a phrase where a limit is reached soon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from powerband.base.units import format_bytes, significant, time_text
from powerband.model.plan import Setting, Stage
from powerband.model.results import TrialResult

Growths = Mapping[str, tuple[float, float | None]]
"""The growth per second, and the seconds until its limit is reached (None: not known), by what grows."""

SOON_S = 3600.0  # an hour, as a person waits for it; what fills up later is told in the table, not in the answer
SEEN_LEAST = 0.01
"""The least share of the time to a limit that a trial measures, for the answer to name that limit: arbitrary. The heap
of Node, Go or .NET fills for longer than a short trial, and its pace at first says nothing of an hour."""
TRIALS_LEAST = 2  # one alone may be chance: six floors in random order rise so in 1 of 120 (lasting.md)
MEMORY = "memory_growth_bytes_per_s"
_METRICS = {
    "memory": (MEMORY, "memory_lasts_s"),
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
    """Returns what grew in each valid full trial of a setting that has at least two: the medians of its trials. Short
    trials have too few readings to show it, and in those that a race shortened what soon fills up grows to the end."""
    by_setting: dict[Setting, list[TrialResult]] = {}
    for result in results:
        shortened = result.stage is Stage.COMPARE and result.window_s is not None
        if result.valid and result.stage is not Stage.SCREEN and not shortened:
            by_setting.setdefault(result.setting, []).append(result)
    found = {setting: _grew(trials) for setting, trials in by_setting.items()}
    return {setting: grew for setting, grew in found.items() if grew}


def _grew(trials: Sequence[TrialResult]) -> Growths:
    """Returns what grew in each of these trials. A soak that could not show it is left out."""
    found: dict[str, tuple[float, float | None]] = {}
    for what, (growth, _) in _METRICS.items():
        seen = [growth_of(each.metrics) for each in trials if each.stage is not Stage.SOAK or growth in each.metrics]
        if len(seen) >= TRIALS_LEAST and all(what in each for each in seen):
            found[what] = _median([each[what] for each in seen])
    return found


def _median(trials: Sequence[tuple[float, float | None]]) -> tuple[float, float | None]:
    ends_s = [end_s for _, end_s in trials if end_s is not None]
    return median(growth for growth, _ in trials), median(ends_s) if ends_s else None


def soon(grew: Growths, window_s: float) -> str:
    """Words what reaches its limit within an hour, and within a hundred times the `window_s` that a trial measures, in
    seconds: `memory grows by 300 MiB/s, full in 80 s`; empty if nothing does."""
    most_s = min(SOON_S, window_s / SEEN_LEAST)
    return ", and ".join(
        _phrase(what, *each) for what, each in grew.items() if each[1] is not None and each[1] < most_s
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
