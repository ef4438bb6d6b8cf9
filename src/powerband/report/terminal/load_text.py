"""The summary of `powerband load`, for people and for machines. In: the merged results of all load generators. Nothing
is computed here. Percentiles of response times are those of a trial: requests without a right answer rank last, and
those of too few requests are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from powerband.base.units import format_duration, joined, plural, significant
from powerband.loads.measured import (
    RESPONSE,
    due_requests,
    enough_s,
    few_requests,
    requests_at,
    response_quantile,
    unanswered_share,
)
from powerband.loads.websocket.measured import codes_text, counted
from powerband.model.clocks import GeneratorNode
from powerband.model.load import Load
from powerband.model.metrics import metric_words
from powerband.readings.crowd import Crowd
from powerband.readings.fleet import QUANTILES, MergedFleet, MergedTimes

if TYPE_CHECKING:
    from powerband.processes.engine_fleet import FleetInterval

_TIMES = {
    RESPONSE: "response time",
    "service_time_ns": "service time",
    "send_lag_ns": "send lag",
}


def load_text(
    fleet: MergedFleet, load: Load, crowd: Crowd | None = None, generators: Sequence[GeneratorNode] = ()
) -> str:
    """A few aligned lines: rates, times, outcomes, WebSocket joins and losses, and the load generator's own resource
    use."""
    share = unanswered_share(fleet, load)
    lines = [
        f"goodput        {significant(fleet.goodput_per_s)}/s  "
        f"(ended {significant(fleet.achieved_per_s)}/s, offered {significant(fleet.offered_per_s)}/s)",
        f"{'':13} {'mean':>9} {'p50':>9} {'p90':>9} {'p95':>9} {'p99':>9} {'p99.9':>9} {'max':>9}",
    ]
    for name, label in _TIMES.items():
        figures = _cohort_times(fleet, load, name, share)
        least = {key for key, q in QUANTILES.items() if name == RESPONSE and q > 1 - share}
        shown = [
            "-" if figure is None else f"{'≥' if key in least else ''}{format_duration(figure)}"
            for key, figure in figures.items()
            if key != "count"
        ]
        lines.append(f"{label:13} " + " ".join(f"{figure:>9}" for figure in shown))
    outcomes = ", ".join(f"{name} {count:,}" for name, count in fleet.cohort.outcomes.items()) or "none"
    statuses = f"; rejected: status {', '.join(sorted(fleet.rejected_statuses))}" if fleet.rejected_statuses else ""
    redirects = f"; {fleet.redirects:,} redirects, not followed" if fleet.redirects else ""
    dropped = f", dropped {fleet.cohort.dropped:,}" if fleet.cohort.dropped else ""
    lines.append(f"outcomes      {outcomes}{dropped}{statuses}{redirects}")
    if 0 < share < 1:
        lines.append(
            f"{'':13} {100 * share:.3g} % of the requests due were not answered rightly: they rank last in the\n"
            f"{'':13} percentiles of response times, and are in no mean, maximum or service time"
        )
    if few := _few_requests(fleet, load):
        # Hyphens are no breaks, which would cut `--duration`.
        lines += wrap(few, 100, initial_indent=" " * 14, subsequent_indent=" " * 14, break_on_hyphens=False)
    if crowd is not None:
        lines += _crowd_lines(crowd)
    lines.append(
        f"generator     {significant(fleet.cpu_cores)} cores, busiest thread {100 * fleet.cpu_share_max:.0f} % of one; "
        f"{fleet.connections_opened:,} connections opened"
    )
    lines += [each.words for each in generators]
    return "\n".join(lines)


def interval_text(interval: FleetInterval, began_ns: int) -> str:
    """The current interval on one short line. `began_ns`: start of the first interval."""
    elapsed_s = (interval.end_ns - began_ns) / 1e9
    mean = interval.response_time_ns_mean
    shown = "-" if math.isnan(mean) else format_duration(mean)
    joined = "" if interval.joined is None else f", {interval.joined:,} users joined"
    rate = significant(interval.rate_per_s)
    return f"{elapsed_s:6.1f} s  {rate}/s, mean {shown}, {interval.in_flight:,} in flight{joined}"


def _crowd_lines(crowd: Crowd) -> Iterator[str]:
    """Join times and failed joins, then the connections lost after joining, and messages that answered nothing."""
    times = crowd.join_times
    took = (
        f", in {format_duration(times.quantile(0.5))} at the median, {format_duration(times.quantile(0.99))} at p99"
        if times.count
        else ""
    )
    failed = f"; {crowd.failed:,} joins failed ({counted(crowd.joins_failed)})" if crowd.failed else ""
    yield f"joined        {crowd.joined:,}{took}{failed}"
    if crowd.dropped:
        codes = f"; {codes_text(crowd.close_codes)}" if crowd.close_codes else ""
        yield f"lost          {crowd.dropped:,} ({counted(crowd.drops)}{codes}), joined again {crowd.rejoined:,}"
    if crowd.unmatched:
        yield f"unmatched     {plural(crowd.unmatched, 'message')} answered nothing"


def load_document(
    fleet: MergedFleet, load: Load, crowd: Crowd | None = None, generators: Sequence[GeneratorNode] = ()
) -> dict[str, Any]:
    """The summary as JSON: rates per second, times in ns, counts of the requests scheduled in the measured window.
    Counts of WebSocket users cover the whole run. `generators`: the other machines that made the load."""
    share, few = unanswered_share(fleet, load), _few_requests(fleet, load)
    return {
        "format": 1,
        "window_s": fleet.window_s,
        "goodput_per_s": fleet.goodput_per_s,
        "achieved_rate_per_s": fleet.achieved_per_s,
        "offered_rate_per_s": fleet.offered_per_s,
        "scheduled": fleet.cohort.scheduled,
        "sent": fleet.cohort.sent,
        "dropped": fleet.cohort.dropped,
        "outcomes": dict(fleet.cohort.outcomes),
        "error_rate": share,
        **{name: _cohort_times(fleet, load, name, share) for name in _TIMES},
        **({"few_requests": few} if few else {}),
        "engine_cpu_cores": fleet.cpu_cores,
        "engine_cpu_share_max": fleet.cpu_share_max,
        "connections_opened": fleet.connections_opened,
        **({} if crowd is None else {"websocket": _crowd(crowd)}),
        **({"generators": [each.to_json() for each in generators]} if generators else {}),
    }


def _crowd(crowd: Crowd) -> dict[str, Any]:
    return {
        "joins_started": crowd.started,
        "joined": crowd.joined,
        "rejoined": crowd.rejoined,
        "joins_failed": dict(crowd.joins_failed),
        "join_time_ns": _times(crowd.join_times),
        "drops": dict(crowd.drops),
        "close_codes": dict(crowd.close_codes),
        "published": crowd.published_in_window,
        "delivered": crowd.delivered_in_window,
        "delivery_time_ns": _times(crowd.delivery_times),
        "tallies": dict(crowd.tallies),
    }


def _cohort_times(fleet: MergedFleet, load: Load, name: str, share: float) -> dict[str, float | None]:
    """The figures of one of _TIMES; percentiles of too few requests are null. `share`: of the requests without a right
    answer."""
    times = fleet.times(name)
    if name == RESPONSE:
        figures = _times(times, partial(response_quantile, fleet, times, share))
        return {**figures, **dict.fromkeys(_lacking(due_requests(fleet, load, times)))}
    return {**_times(times), **dict.fromkeys(_lacking(times.count))}


def _lacking(requests: int) -> list[str]:
    """The percentiles that so many requests are too few for, the lowest first."""
    return [key for key, q in QUANTILES.items() if requests < requests_at(q)]


def _few_requests(fleet: MergedFleet, load: Load) -> str | None:
    """A trial's sentence on the lowest percentile of response times that had too few requests, and how long a window
    the higher ones need; None if none had, or nothing was answered."""
    times = fleet.times(RESPONSE)
    due = due_requests(fleet, load, times)
    lacking = _lacking(due) if times.count else []
    if not lacking:
        return None
    needed = {key: requests_at(QUANTILES[key]) for key in lacking}
    first, *higher = lacking
    what = f"a {metric_words(f'{RESPONSE}_{first}')} needs {needed[first]:,}"
    told = few_requests(due, needed[first], what, fleet.window_s)
    longer = [f"{metric_words(key)} needs {enough_s(due, needed[key], fleet.window_s):,} s" for key in higher]
    return f"{told}; {joined(longer)}" if longer else told


def _times(times: MergedTimes, quantile: Callable[[float], float] | None = None) -> dict[str, float | None]:
    """Null, and not 0, if there are no times. `quantile`: None for that of the times."""
    quantiles = {name: (quantile or times.quantile)(q) for name, q in QUANTILES.items()}
    figures = {"mean": times.moment(1), **quantiles, "max": times.maximum}
    return {"count": times.count, **(figures if times.count else dict.fromkeys(figures))}
