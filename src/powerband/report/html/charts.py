"""Chart descriptions: the numbers of each chart, their unit and their labels. In: values. Out: values;
templates/charts.js draws them.

Numbers are scaled here to one unit per chart and carry their text with them, so that the page formats nothing but round
axis ticks. An axis has positions with labels: log2 of the value if a parameter's values form a geometric ladder, the
value itself for other numbers, and the index otherwise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from powerband.base.units import capital
from powerband.model.metrics import METRICS, OWN, margin_words, metric_words
from powerband.model.plan import Level, Setting, format_level, numbers_of
from powerband.model.results import Analysis, Estimate, SettingResult
from powerband.report.wording.names import level_words, short_names
from powerband.report.wording.numbers import ABSENT, format_estimate, format_interval, unit_scale
from powerband.report.wording.words import is_as_good

LADDER_RATIO = 8.0  # a parameter is drawn on a log axis from this ratio of its largest to its smallest value on
LADDER_STEP = 1.5  # or if each value is at least this times the one before, from three values on
LOG_VALUE_RATIO = 20.0  # minimum ratio for a log axis of measured values: below it the least is still seen
FLAT_CHARACTERS = 40  # with more characters in all labels, they are listed down the side
BOUNDS = " Triangles are lower bounds."
MAX_LINES = 6  # the most values of a second parameter that are drawn as lines of one chart


@dataclass(frozen=True)
class Axis:
    """An axis with a place for each value or setting. `name`: its title. `positions`: where each place lies, in units
    of the axis alone. `labels`: the text at each. `ordered`: neighbours may be joined by a line."""

    name: str
    positions: tuple[float, ...]
    labels: tuple[str, ...]
    ordered: bool


@dataclass(frozen=True)
class Point:
    """One value of a chart. `x`: its position on the axis. `value`, `low`, `high`: in the chart's unit; None: no
    interval. `text`: the figure with its interval, for the tooltip. `setting`: its id. `answer`: it is the answer.
    `equal`: it is equivalent to the answer, within the margin. `at_least`: `value` is a lower bound."""

    x: float
    value: float
    low: float | None
    high: float | None
    text: str
    setting: str
    answer: bool
    equal: bool = False
    at_least: bool = False


@dataclass(frozen=True)
class Line:
    """The points of one metric, or of one value of the parameter that is drawn as lines. `name`: its label; empty if it
    is the only one. `points`: in the order in which they are joined."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Picture:
    """A picture that a script of templates/ draws. `id`: the end of its element's id. `kind`: the name by which the
    script knows what to draw. `title`: its heading. `note`: a sentence below the heading, or empty."""

    id: str
    kind: str
    title: str
    note: str


@dataclass(frozen=True)
class Chart(Picture):
    """A chart of settings. `kind`: estimates (points with intervals) or stack (shares of a whole). `unit`: that of all
    values. `axis`: the settings. `lines`: the values. `log_value`: the axis of values is logarithmic. `band_label`:
    what the band means, empty without one."""

    unit: str
    axis: Axis
    lines: tuple[Line, ...]
    log_value: bool = False
    flat: bool = False  # settings down the side, values across: for names too long to stand side by side
    band: tuple[float, float] | None = None  # values that count as equivalent
    band_label: str = ""


@dataclass(frozen=True)
class Layout:
    """The positions of settings on an `axis`: by one parameter, with the values of another as lines, or by name."""

    axis: Axis
    across: int | None  # index of the parameter on the axis; None: settings by name
    lines: int | None  # index of the parameter whose values are lines


def layout(analysis: Analysis) -> Layout:
    """A single parameter lies on the axis. With two, the one with more values lies on the axis and the other becomes
    lines. Otherwise settings are listed by name."""
    settings = [result.setting for result in analysis.settings]
    factors = len(settings[0].levels) if settings else 0
    levels = [distinct_levels(settings, place) for place in range(factors)]
    if factors == 1:
        return Layout(_factor_axis(settings[0].levels[0][0], levels[0]), 0, None)
    if factors == 2 and len(settings) == len(levels[0]) * len(levels[1]):
        numeric = [numbers_of(values) is not None for values in levels]
        across = 0 if (numeric[0], len(levels[0])) >= (numeric[1], len(levels[1])) else 1
        if len(levels[1 - across]) <= MAX_LINES:
            return Layout(_factor_axis(settings[0].levels[across][0], levels[across]), across, 1 - across)
    short = short_names(analysis)
    names = tuple(map(short.of, settings))
    return Layout(named_axis(short.heading, names), None, None)


def main_charts(analysis: Analysis) -> list[Chart]:
    """The objective, throughput and response time against the setting."""
    place = layout(analysis)
    interval = "Whiskers are confidence intervals over the trials of a setting."
    objective = analysis.objective
    charts = []
    if any(result.capacity for result in analysis.settings):
        interval = "At rates near each setting’s capacity."
    if objective != "goodput_per_s":
        said = "Whiskers are the intervals of the search." if objective == "capacity_per_s" else interval
        charts.append(_estimates(("objective", capital(metric_words(objective)), said), analysis, place, [objective]))
    of = "goodput" if analysis.noun == "request" else f"{analysis.noun}s"
    charts.append(_estimates(("goodput", f"Throughput ({of})", interval), analysis, place, ["goodput_per_s"]))
    median, tail = "response_time_ns_p50", "response_time_ns_p99"
    if place.lines is None:
        charts.append(_estimates(("response-time", "Response time", interval), analysis, place, [median, tail]))
    else:
        charts.append(_estimates(("response-time", "Response time, p99", interval), analysis, place, [tail]))
        charts.append(_estimates(("response-time-p50", "Response time, median", interval), analysis, place, [median]))
    return [chart for chart in charts if _has_points(chart)]


_RESOURCES = (
    ("subject_cpu_cores", "CPU", "CPU seconds per second of the server, user and kernel"),
    ("rss_bytes_max", "Memory", "largest resident set"),
    ("threads_max", "Threads", "most alive at once"),
    ("context_switches_per_request", "Context switches per {noun}", "of all threads, exited ones included"),
    ("run_wait_cores", "Waiting for a CPU", "thread-seconds per second runnable but not running"),
    ("thread_cpu_share_max", "Busiest thread", "CPU share of the busiest of its threads"),
    ("gc_cpu_share", "Garbage collection", "share of its CPUs that the collector’s threads used"),
    ("jvm_heap_used_bytes_max", "Java heap in use", "most, as last reported by the JVM"),
    ("jvm_gc_share", "Java’s collections", "share of the time that they took"),
    ("dotnet_gc_share", ".NET’s pauses", "share of the time in which collections stopped its threads"),
    ("dotnet_heap_bytes_max", ".NET heap in use", "most"),
    ("dotnet_pool_threads_max", ".NET’s pool", "most threads of its thread pool"),
    ("dotnet_pool_queue_mean", "Waiting for .NET’s pool", "mean work items without a thread"),
    ("dotnet_lock_contentions_per_s", "Waits for a .NET lock", "per second, of lock statements"),
    ("services_cpu_cores", "Beside the server", "CPU of what was started with it, such as a database"),
    ("missing_at_acknowledgement_mean", "Missing when acknowledged", "of a write, what a read at once does not see"),
    ("visible_delay_ns_p50", "Seen after the acknowledgement", "median time until a read sees the whole write"),
    ("joined_users", "Users joined", "mean users that hold a WebSocket"),
    ("join_time_ns_p99", "Joining, p99", "from a user’s start to its WebSocket being ready for messages"),
    ("drop_rate", "Users lost", "connections lost by users who had joined, as a share of joins"),
    ("delivery_time_ns_p99", "Delivery, p99", "from the writing of a message to its arrival at a subscriber"),
    ("error_rate", "Errors", "share of requests that did not end well"),
)


def resource_charts(analysis: Analysis) -> list[Chart]:
    """Resource use of the server by setting: one small chart for each metric measured, the server's own metrics
    last."""
    place = layout(analysis)
    own = dict.fromkeys(name for row in analysis.settings for name in row.estimates if name.startswith(OWN))
    shown = [*_RESOURCES, *((name, name, "the server’s own metric") for name in own)]
    charts = [
        _estimates((f"cost-{name}", title.replace("{noun}", analysis.noun), note), analysis, place, [name])
        for name, title, note in shown
    ]
    return [chart for chart in charts if _has_points(chart)]


def state_chart(analysis: Analysis) -> Chart | None:
    """Thread states, as shares of time: on a CPU, runnable but waiting for one, blocked (all the rest)."""
    short = short_names(analysis)
    names = [short.of(result.setting) for result in analysis.settings]
    parts: dict[str, list[Point]] = {"on a CPU": [], "waiting for a CPU": [], "blocked": []}
    for index, result in enumerate(analysis.settings):
        needed = [result.estimates.get(name) for name in ("threads_mean", "subject_cpu_cores", "run_wait_cores")]
        if any(estimate is None for estimate in needed):
            continue
        threads, cpu, wait = (estimate.value for estimate in needed if estimate is not None)
        blocked = max(0.0, threads - cpu - wait)
        whole = cpu + wait + blocked
        for label, part in zip(parts, (cpu, wait, blocked), strict=True):
            share = 100 * part / whole if whole else 0.0
            text = f"{share:.1f} %" if share >= 0.1 or share == 0 else "< 0.1 %"
            answer = result.setting == analysis.answer.setting
            parts[label].append(Point(float(index), share, None, None, text, result.setting.id, answer))
    if not parts["blocked"]:
        return None
    axis = named_axis(short.heading, names)
    lines = tuple(Line(label, tuple(points)) for label, points in parts.items())
    return Chart(
        "states", "stack", "Thread states", f"Share of the time of all its threads.{short.note}", "%", axis, lines
    )


def _estimates(head: tuple[str, str, str], analysis: Analysis, place: Layout, metrics: Sequence[str]) -> Chart:
    """Returns a chart of estimates. `head`: the chart's id, title and note."""
    chart_id, title, note = head
    values = [result.shown[name].value for result in analysis.settings for name in metrics if name in result.shown]
    scale, unit = unit_scale(max(map(abs, values), default=0.0), METRICS[metrics[0]].unit)
    lines = []
    for metric in metrics:
        label = METRICS[metric].name.rsplit("_", 1)[-1] if len(metrics) > 1 else ""
        for name, results in _groups(analysis, place):
            points = _points(results, analysis, place, metric, scale)
            lines.append(Line(" ".join(part for part in (label, name) if part), points))
    low = min(values, default=1.0)
    log_value = METRICS[metrics[0]].unit == "ns" and low > 0 and max(values, default=1.0) / low >= LOG_VALUE_RATIO
    band = _margin_band(analysis, scale) if list(metrics) == [analysis.objective] else None
    label = f"within {margin_words(analysis.margin, analysis.objective)} of the leader" if band else ""
    flat = not place.axis.ordered and sum(map(len, place.axis.labels)) > FLAT_CHARACTERS
    if place.across is None:
        note += short_names(analysis).note
    if any(point.at_least for line in lines for point in line.points):
        note += BOUNDS
    return Chart(
        id=chart_id,
        kind="estimates",
        title=title,
        # A vertical band has no room for its label beside the settings' names.
        note=f"{note} Shaded: {label}." if flat and label else note,
        unit=unit,
        axis=place.axis,
        lines=tuple(lines),
        log_value=log_value,
        flat=flat,
        band=band,
        band_label=label,
    )


def _margin_band(analysis: Analysis, scale: float) -> tuple[float, float] | None:
    leader = next((result for result in analysis.settings if result.setting == analysis.answer.leader), None)
    if leader is None or analysis.objective not in leader.shown:
        return None
    value = leader.shown[analysis.objective].value
    share = METRICS[analysis.objective].unit == "ratio"
    margin = analysis.margin * (1.0 if share else abs(value))
    edge = value - margin if analysis.direction == "maximise" else value + margin
    if value == 0 and not share:
        return None
    return min(value, edge) / scale, max(value, edge) / scale


def _points(
    results: Sequence[tuple[float, SettingResult]], analysis: Analysis, place: Layout, metric: str, scale: float
) -> tuple[Point, ...]:
    points = [
        Point(
            x,
            estimate.value / scale,
            *whiskers(estimate, scale),
            estimate_words(estimate, metric),
            result.setting.id,
            result.setting == analysis.answer.setting,
            is_as_good(result.setting, analysis),
            estimate.at_least,
        )
        for x, result in results
        if (estimate := result.shown.get(metric)) is not None
    ]
    return tuple(sorted(points, key=lambda point: point.x) if place.axis.ordered else points)


def whiskers(estimate: Estimate, scale: float) -> tuple[float | None, float | None]:
    """The ends of the interval, scaled; none for a lower bound, of which no interval is known."""
    if estimate.low is None or estimate.high is None or estimate.at_least:
        return None, None
    return estimate.low / scale, estimate.high / scale


def estimate_words(estimate: Estimate, metric: str) -> str:
    """`1,481/s (1,466–1,496), 5 trials`; without an interval, `1,481/s, 5 trials`."""
    interval = format_interval(estimate, metric)
    trials = f"{estimate.n} trial{'s' if estimate.n != 1 else ''}"
    shown = f" ({interval})" if interval != ABSENT else ""
    return f"{format_estimate(estimate, metric)}{shown}, {trials}"


def _groups(analysis: Analysis, place: Layout) -> list[tuple[str, list[tuple[float, SettingResult]]]]:
    """Settings with their position on the axis, by the value of the parameter that is drawn as lines."""
    groups: dict[str, list[tuple[float, SettingResult]]] = {}
    for index, result in enumerate(analysis.settings):
        levels = result.setting.levels
        name = "" if place.lines is None else "=".join((levels[place.lines][0], format_level(levels[place.lines][1])))
        if place.across is None:
            x = float(index)
        else:
            x = place.axis.positions[place.axis.labels.index(level_words(levels[place.across][1]))]
        groups.setdefault(name, []).append((x, result))
    return list(groups.items())


def _factor_axis(name: str, levels: Sequence[Level]) -> Axis:
    numbers = numbers_of(levels)
    if numbers is None or len(levels) < 2:
        return named_axis(name, list(map(level_words, levels)))
    ladder = min(numbers) > 0 and (max(numbers) / min(numbers) >= LADDER_RATIO or _steps_like_a_ladder(numbers))
    positions = tuple(math.log2(number) if ladder else number for number in numbers)
    return Axis(name, positions, tuple(map(level_words, levels)), ordered=True)


def _steps_like_a_ladder(numbers: Sequence[float]) -> bool:
    steps = [after / before for before, after in itertools.pairwise(sorted(numbers))]
    return len(steps) >= 2 and min(steps) >= LADDER_STEP


def named_axis(name: str, labels: Sequence[str]) -> Axis:
    """An axis of names, whose positions are their indices."""
    return Axis(name, tuple(map(float, range(len(labels)))), tuple(labels), ordered=False)


def distinct_levels(settings: Sequence[Setting], place: int) -> list[Level]:
    """The values of a parameter, in the order of the settings."""
    seen: dict[str, Level] = {}
    for setting in settings:
        seen.setdefault(format_level(setting.levels[place][1]), setting.levels[place][1])
    return list(seen.values())


def _has_points(chart: Chart) -> bool:
    return any(line.points for line in chart.lines)
