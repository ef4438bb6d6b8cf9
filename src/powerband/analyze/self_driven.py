"""What only a self-driven subject has, or has otherwise: its rate without a load, what its last words say, what the
StatsD sink lost of its counts. In: a trial's figures. Out: metrics and problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from powerband.analyze.constraints import OPERATORS
from powerband.analyze.fleet import Fleet
from powerband.analyze.probes import Counters, Probe
from powerband.analyze.results import Problem
from powerband.arithmetic import value
from powerband.experiment import Constraint, Counts
from powerband.metrics import METRICS
from powerband.own_expression import OwnExpression
from powerband.units import format_value


def counted_metrics(fleet: Fleet) -> dict[str, float]:
    """The counter's growth in the window; nothing that needs a load."""
    return {"goodput_per_s": fleet.goodput_per_s, "achieved_rate_per_s": fleet.achieved_per_s}


def final_metrics(wanted: Mapping[str, OwnExpression], last_words: Mapping[str, float]) -> dict[str, float]:
    """Of the expressions those over the subject's last words, where these name all that they are made of."""
    found = {}
    for name, expression in wanted.items():
        if not expression.is_final:
            continue
        try:
            number = value(expression.term, lambda series: last_words[series.name])
        except (KeyError, ZeroDivisionError):
            continue
        if isfinite(number):
            found[name] = number
    return found


def invariant_problems(invariants: Sequence[Constraint], metrics: Mapping[str, float]) -> Iterator[Problem]:
    """What must hold in each trial and does not, or cannot be told."""
    for wanted in invariants:
        found = metrics.get(wanted.metric)
        if found is None:
            yield Problem(
                "invariant",
                f"it cannot be told whether {wanted.text}: this trial has no {wanted.metric}; see what "
                "measure.metrics makes it of, and subject.log",
            )
        elif not OPERATORS[wanted.op](found, wanted.threshold):
            unit = METRICS[wanted.metric].unit
            yield Problem(
                "invariant",
                f"{wanted.text} does not hold: {wanted.metric} was {format_value(found, unit)}; the subject is not "
                "right at this setting, so its figures do not count",
            )


def lost_counts(counts: Counts | None, probe: Probe, fleet: Fleet) -> Iterator[Problem]:
    """What the kernel threw away on the way to the sink within the window, and what the sink could not read. Where the
    sink is what counts, the rate is too low by nobody knows how much; a line that cannot be read may not be its own."""
    series = probe.scrapes
    if series is None:
        return
    if malformed := _grown(series, "statsd_malformed_total", fleet):
        yield Problem(
            "statsd_malformed",
            f"{malformed:,.0f} lines that the subject sent to the StatsD sink within the window could not be read, or "
            "were refused (docs/statsd.md has the grammar and the limits): metrics that they were for are too low",
            fatal=False,
        )
    if not (dropped := _grown(series, "statsd_dropped_total", fleet)):
        return
    lost = f"the kernel dropped {dropped:,.0f} StatsD packets within the window, for nobody read them fast enough"
    if counts is not None and not _on_page(counts, probe):
        yield Problem(
            "counts_lost",
            f"{lost}: the counter {counts.series} is too low; put several metrics into one packet, count before "
            "sending, or serve the counter on a metrics page",
        )
    else:
        yield Problem("statsd_dropped", f"{lost}: metrics that the subject sends are too low", fatal=False)


def _grown(series: Counters, name: str, fleet: Fleet) -> float:
    return series.growth(name, fleet.start_ns, fleet.end_ns, covered_least=0.0) or 0.0


def _on_page(counts: Counts, probe: Probe) -> bool:
    return any(counts.wanted.covers(name) for name in probe.on_page)
