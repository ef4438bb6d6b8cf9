"""The series and histograms of a run in the form that the page needs: scaled to one unit per panel, thinned if very
long.

Series and quantiles come from `analyze`; nothing is computed here except the change of unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from powerband.analyze.trial.measure import quantile_table
from powerband.analyze.trial.series import TrialSeries, series_of
from powerband.analyze.trial.thread_states import ThreadStates
from powerband.analyze.trial.threads import LabelledSeries, is_counter
from powerband.analyze.trial.timeline import LimitSpan, limits_over_time
from powerband.loads.measured import requests_at
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS
from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis, TrialResult
from powerband.readings.fleet import MergedTimes, encoded_times, merge_fleet
from powerband.readings.probe_samples import read_probe
from powerband.report.html.page import Distribution, Quantiles, Track, TrialView
from powerband.report.wording.numbers import unit_scale
from powerband.report.wording.words import STATES
from powerband.store import NOT_AS_WRITTEN, DamagedError, RunDir, TrialRecord

POINTS_MAX = 400  # of one line; a longer one keeps extremes: a plot is some 500 px wide
POINTS_LEAST = 60  # however many trials there are
POINTS_OF_ALL = 20_000  # of one line in all trials together, so that the file of a long run stays small
POINTS_OF_PAGE = 450_000  # of all lines: about 4 MB of the file
TRIALS_MAX = 200  # trials with series on the page; with 500, opening it would take three times as long
_UNITS = {"_seconds": "s", "_bytes": "bytes", "_ratio": "ratio"}  # by the ending of Prometheus names
POOLS_SHOWN = 2  # the busiest pools: arbitrary, the others hardly work
NAMED = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("maximum", 1.0))

Values = Sequence[float | None]


def trial_views(
    run: RunDir, analysis: Analysis, records: Iterable[TrialRecord], experiment: Experiment | None = None
) -> tuple[TrialView, ...]:
    """The recorded trials over time: all of them, or those of `trials_shown` for a long run. Without the experiment,
    the server's own metrics and the bottlenecks are unknown."""
    shown = trials_shown(analysis, TRIALS_MAX)
    points_max = max(POINTS_LEAST, min(POINTS_MAX, POINTS_OF_ALL // max(1, len(shown))))
    results = {trial.number: trial for trial in analysis.trials}
    views = []
    for record in records:
        if record.spec.number in shown:
            with suppress(DamagedError, *NOT_AS_WRITTEN):
                views.append(_read(run, record, results.get(record.spec.number), experiment, points_max))
    return _within(views, POINTS_OF_PAGE)


def _within(views: Sequence[TrialView], most: int) -> tuple[TrialView, ...]:
    """Thins all lines equally if there are so many points that the page would take too long to open."""
    step = -(-sum(len(track.points) for view in views for track in view.tracks) // most)
    if step <= 1:
        return tuple(views)
    return tuple(
        replace(view, tracks=tuple(track for panel in _panels(view) for track in _by_step(panel, step)))
        for view in views
    )


def _panels(view: TrialView) -> list[list[Track]]:
    """The lines of each panel. Those of one have the same times."""
    return [list(lines) for _, lines in groupby(view.tracks, lambda track: (track.panel, len(track.points)))]


def _read(
    run: RunDir, record: TrialRecord, result: TrialResult | None, experiment: Experiment | None, points_max: int
) -> TrialView:
    """Reads each file once: the files are long."""
    directory = run.trial(record.spec.number)
    events, probe = list(directory.read_events()), read_probe(directory.read_probe())
    series = series_of(record, events, probe, None if experiment is None else experiment.measure)
    if result is None or experiment is None:
        return _view(series, record.spec.number, (), points_max)
    limits = limits_over_time(result, record, events, probe, experiment)
    return _view(series, record.spec.number, limits, points_max)


def trials_shown(analysis: Analysis, most: int) -> frozenset[int]:
    """Numbers of at most `most` trials: a quarter for excluded ones, since readers will ask about them; the others are
    distributed evenly over the settings."""
    trials = analysis.trials
    if len(trials) <= most:
        return frozenset(trial.number for trial in trials)
    chosen = [trial.number for trial in trials if not trial.valid][: most // 4]
    turns: dict[Setting, int] = {}
    waiting = []
    for trial in trials:
        if trial.valid:
            turns[trial.setting] = turns.get(trial.setting, 0) + 1
            waiting.append((turns[trial.setting], trial.number))
    chosen += [number for _, number in sorted(waiting)[: most - len(chosen)]]
    return frozenset(chosen)


def distributions(analysis: Analysis, records: Iterable[TrialRecord]) -> tuple[Distribution, ...]:
    """The times of each setting's comparable trials merged into one histogram, in plan order; settings without any are
    omitted."""
    valid = _comparable(analysis)
    by_setting: dict[str, list[TrialRecord]] = {}
    for record in records:
        if record.spec.number in valid:
            by_setting.setdefault(record.spec.setting.id, []).append(record)
    made = []
    for result in analysis.settings:
        mine = by_setting.get(result.setting.id, [])
        response, service = (_merged(mine, name) for name in ("response_time_ns", "service_time_ns"))
        if response.count and service.count:
            made.append(Distribution(result.setting.id, _quantiles(response), _quantiles(service)))
    return tuple(made)


def _comparable(analysis: Analysis) -> set[int]:
    """Trials whose requests may be merged into one histogram: those of blocks, which had the same load; for a capacity
    search, those at the highest rate at which the constraints held each time."""
    highest = {
        result.setting: max((p.rate_per_s for p in result.capacity.curve if p.held == p.trials), default=None)
        for result in analysis.settings
        if result.capacity is not None
    }
    return {
        trial.number
        for trial in analysis.trials
        if trial.valid
        and (
            trial.stage is Stage.COMPARE
            or (trial.stage is Stage.CAPACITY and trial.rate_per_s == highest.get(trial.setting, trial.rate_per_s))
        )
    }


def _merged(records: Iterable[TrialRecord], name: str) -> MergedTimes:
    fleets = [fleet for record in records if (fleet := merge_fleet(record.engines)) is not None]
    return MergedTimes(encoded for fleet in fleets for encoded in encoded_times(fleet.summaries, name))


def _quantiles(times: MergedTimes) -> Quantiles:
    known = {name: times.quantile(q) for name, q in NAMED if q == 1.0 or times.count >= requests_at(q)}
    return Quantiles(times.count, quantile_table(times), tuple((name, known.get(name)) for name, _ in NAMED))


def _view(
    series: TrialSeries, number: int, limits: tuple[LimitSpan, ...] = (), points_max: int = POINTS_MAX
) -> TrialView:
    load, subject, host, jvm, counter = series.load, series.subject, series.host, series.jvm, series.counter
    dotnet = series.dotnet
    start, end = series.phases_s.get("measure"), series.phases_s.get("drain")
    failed = [("failed", load.failed_per_s)] if any(load.failed_per_s) else []
    lost = [("dropped", load.drops_per_s), ("failed to join", load.joins_failed_per_s)]
    panels = (
        _panel("Rate", "per_s", load.t_s, [("ok", load.rate_per_s), *failed]),
        _panel("Users", "count", load.t_s, [("joined", load.joined)]),
        _panel("Users lost", "per_s", load.t_s, [line for line in lost if any(line[1])]),
        _panel("Deliveries", "per_s", load.t_s, [("", load.delivered_per_s)] if any(load.delivered_per_s) else []),
        _panel(
            "Response time", "ns", load.t_s, [("p50", load.response_time_ns_p50), ("p99", load.response_time_ns_p99)]
        ),
        _panel(
            "Server’s CPU",
            "cores",
            subject.t_s,
            [("user", subject.cpu_user_cores), ("kernel", subject.cpu_system_cores)],
        ),
        _panel("Memory", "bytes", subject.t_s, [("resident", subject.rss_bytes)]),
        _panel("Java heap", "bytes", jvm.t_s, [("in use", jvm.heap_used_bytes), ("taken", jvm.heap_committed_bytes)]),
        _panel("Garbage collection", "ratio", jvm.t_s, [("share of the time", jvm.gc_share)]),
        _panel(".NET heap", "bytes", dotnet.t_s, [("in use", dotnet.heap_bytes)]),
        _panel(".NET’s pauses", "ratio", dotnet.t_s, [("share of the time", dotnet.gc_share)]),
        _panel(
            ".NET’s pool", "count", dotnet.t_s, [("threads", dotnet.pool_threads), ("items wait", dotnet.pool_queue)]
        ),
        _panel(
            "As a rate counter prints it",
            "per_s",
            counter.t_s,
            [("windows of 3 s", counter.window_per_s), ("since the first answer", counter.cumulative_per_s)],
        ),
        *(_panel(own.name, METRICS[own.name].unit, own.t_s, [("", own.values)]) for own in series.own),
        *map(_labelled_panel, series.labelled),
        _panel("Threads", "count", subject.t_s, [("alive", subject.threads)]),
        _bands("Thread states", series.states),
        *(_bands(f"Threads named {pool.pool}", pool.states) for pool in series.pools[:POOLS_SHOWN]),
        _panel("Context switches", "per_s", subject.t_s, [("all", subject.context_switches_per_s)]),
        _panel("In flight", "count", load.t_s, [("requests", load.in_flight)]),
        _panel("Whole machine", "ratio", host.t_s, [("CPU in use", host.busy_share), ("stolen", host.steal_share)]),
    )
    return TrialView(
        number,
        tuple(track for panel in panels for track in _thinned(panel, points_max)),
        None if start is None or end is None else (start, end),
        limits,
    )


def _labelled_panel(found: LabelledSeries) -> list[Track]:
    """The panel of a labelled series; its unit follows from the end of the name. Seconds per second, as a counter of
    CPU time yields, are CPUs."""
    name = found.name.removesuffix("_total")
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "count")
    if is_counter(found.name):
        return _panel(f"{found.name}/s", "cores" if unit == "s" else "per_s", found.t_s, found.lines)
    return _panel(found.name, unit, found.t_s, found.lines)


def _bands(name: str, states: ThreadStates) -> list[Track]:
    """Thread states, in threads, stacked. Sampled once a second, when run-queue waits and the causes of blocking are
    read."""
    lines = [(STATES.get(state, STATES["other"]), values) for state, values in states.bands]
    return [replace(track, band=True) for track in _panel(name, "count", states.t_s, lines)]


def _panel(name: str, unit: str, t_s: Sequence[float], lines: Sequence[tuple[str, Values]]) -> list[Track]:
    """Lines that share a plot and a unit; lines without any value are omitted. Only times from go on are shown."""
    present = [(label, values) for label, values in lines if any(value is not None for value in values)]
    largest = max((abs(value) for _, values in present for value in values if value is not None), default=0.0)
    scale, suffix = unit_scale(largest, unit)
    tracks = []
    for label, values in present:
        points = [(t, None if value is None else value / scale) for t, value in zip(t_s, values, strict=True) if t >= 0]
        tracks.append(Track(name, label, {"cores": "cores"}.get(unit, suffix), tuple(points)))
    return tracks


def _thinned(panel: Sequence[Track], points_max: int) -> list[Track]:
    step = -(-max((len(track.points) for track in panel), default=0) // points_max)
    return list(panel) if step <= 1 else _by_step(panel, step)


def _by_step(panel: Sequence[Track], step: int) -> list[Track]:
    """The lines of a panel with one point for `step` of their own: means for bands, which are parts of a whole;
    otherwise all lines at those times at which one of them is lowest or highest in its stretch, so that a stall of one
    second stays where it was, and what stands at one time was measured then."""
    length = len(panel[0].points)
    if panel[0].band:
        parts = [slice(begin, begin + step) for begin in range(0, length, step)]
        return [replace(track, points=tuple(_mean(track.points[part]) for part in parts)) for track in panel]
    size, kept = 2 * step * len(panel), {0, length - 1}
    for begin in range(0, length, size):
        part = range(begin, min(begin + size, length))
        for track in panel:
            known = [(value, row) for row in part if (value := track.points[row][1]) is not None]
            kept |= {min(known)[1], max(known)[1]} if known else {begin}
    rows = sorted(kept)
    return [replace(track, points=tuple(track.points[row] for row in rows)) for track in panel]


def _mean(points: Sequence[tuple[float, float | None]]) -> tuple[float, float | None]:
    values = [value for _, value in points if value is not None]
    return points[0][0], sum(values) / len(values) if values else None
