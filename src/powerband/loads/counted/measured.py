"""A self-driven program's rate, and the counts that the StatsD sink lost. In: a trial's evidence. Out: metrics and
problems.
"""

from __future__ import annotations

from collections.abc import Iterator

from powerband.model.experiment import WorkCounter
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import MergedFleet
from powerband.readings.probe_samples import Counters, ProbeSamples


def counted_metrics(evidence: Evidence) -> dict[str, float]:
    """Returns the rate at which the counter grew in the window; all other metrics of a load need requests."""
    fleet = evidence.fleet
    return {"goodput_per_s": fleet.goodput_per_s, "achieved_rate_per_s": fleet.achieved_per_s}


def lost_counts(counts: WorkCounter | None, probe: ProbeSamples, fleet: MergedFleet) -> Iterator[Problem]:
    """Reports packets that the kernel dropped on the way to the StatsD sink within the window, and lines that the sink
    could not read. Lost packets are fatal if the counter is sent to the sink: its rate is then too low by an unknown
    amount."""
    series = probe.scrapes
    if series is None:
        return
    if malformed := _grown(series, "statsd_malformed_total", fleet):
        yield Problem(
            "statsd_malformed",
            f"{malformed:,.0f} lines that the program sent to the StatsD sink within the window could not be read, or "
            "were refused (docs/statsd.md has the grammar and the limits): metrics that they were for are too low",
            fatal=False,
        )
    if not (dropped := _grown(series, "statsd_dropped_total", fleet)):
        return
    lost = f"the kernel dropped {dropped:,.0f} StatsD packets within the window, because they were not read fast enough"
    if counts is not None and not _on_page(counts, probe):
        yield Problem(
            "counts_lost",
            f"{lost}: the counter {counts.series} is too low; put several metrics into one packet, count before "
            "sending, or serve the counter on a metrics page",
        )
    else:
        yield Problem("statsd_dropped", f"{lost}: metrics that the program sends are too low", fatal=False)


def _grown(series: Counters, name: str, fleet: MergedFleet) -> float:
    return series.growth(name, fleet.start_ns, fleet.end_ns, covered_least=0.0) or 0.0


def _on_page(counts: WorkCounter, probe: ProbeSamples) -> bool:
    return any(counts.wanted.covers(name) for name in probe.on_page)


COUNTER = Source("load", counted_metrics)
NO_USERS = Source("users")
