"""Charts of the findings behind an answer: a race look by look, a capacity's curve, the thread states of a pool. In:
values. Out: values; templates/verdicts.js draws them.

Numbers carry their text with them, like those of `charts.py`. Nothing is computed but axis ranges, and the trial that
represents a setting in the chart of its pools (the median one)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from powerband.base.units import plural
from powerband.loads.measured import is_lower_bound
from powerband.model.constraint import constraint_of
from powerband.model.metrics import METRICS, margin_words
from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis, CapacityPoint, PoolUse, SettingResult, TrialResult
from powerband.readings.fleet import MergedFleet, merge_fleet
from powerband.report.html.charts import BOUNDS, Axis, Chart, Line, Picture, Point, named_axis
from powerband.report.wording.findings import capacity_words, departure_of, ratio_phrase, state_words
from powerband.report.wording.names import short_names
from powerband.report.wording.numbers import format_measured, format_number, unit_scale
from powerband.report.wording.standings import metric_name, ranked
from powerband.report.wording.words import STATES, margin_as_ratio
from powerband.store import TrialRecord

RACE_REACH = (5.0, 12.0)  # width of a race's chart, in margins to each side of the leader: the least and the most
MARGIN_LEAST = 0.001  # for that width, which a margin of 0 would make 0
RACE_BARS = 10  # the most bars of one setting; of more looks every second or third is drawn, and the last
POOL_ROWS = 12  # with more rows, only the busiest pool of each setting is drawn
_BLOCKED = {kind: words for kind, words in STATES.items() if kind not in ("on_cpu", "run_wait", "blocked")}


@dataclass(frozen=True)
class RaceBar:
    """One setting after one round of a race. `block`: the round, from 1. `value`: its ratio to the leader, with the
    interval `low` to `high`. `text`: the same as a change in percent."""

    block: int
    value: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class RaceRow:
    """One `setting` of a race, by its id. `label`: its short name. `state`: its verdict or elimination in words.
    `leads`: it is the last leader. `out`: it was eliminated. `bars`: one for each round in which it did not lead."""

    setting: str
    label: str
    state: str
    leads: bool
    out: bool
    bars: tuple[RaceBar, ...]


@dataclass(frozen=True)
class RaceChart(Picture):
    """The race: settings down the side (`rows`), ratios to the leader across, one bar per round; bars are clipped to
    `span`. `band`: the ratios that count as equivalent, with their `band_label`. `every`: the rounds between two
    bars that are drawn."""

    rows: tuple[RaceRow, ...]
    span: tuple[float, float]
    band: tuple[float, float]
    band_label: str
    every: int = 1


@dataclass(frozen=True)
class CapacityMark:
    """One offered rate (`rate_per_s`) of the curve. `p50_ns`, `p99_ns`: response times there; None if they were not
    measured. `p50_at_least`, `p99_at_least`: they are lower bounds. `held`: whether all, some or none of its trials met
    the SLO. `text`: the same in words."""

    rate_per_s: float
    p50_ns: float | None
    p99_ns: float | None
    p50_at_least: bool
    p99_at_least: bool
    held: str
    text: str


@dataclass(frozen=True)
class Limit:
    """A response time limit of `ns`, set by a constraint. `label`: the constraint as it was written."""

    ns: float
    label: str


@dataclass(frozen=True)
class CapacityChart(Picture):
    """Response time against the offered rate, for one setting. `marks`: the rates that were tried. `band`: the interval
    of the capacity; None without one. `limits`: those of the SLO."""

    marks: tuple[CapacityMark, ...]
    band: tuple[float, float] | None
    limits: tuple[Limit, ...]
    span_ns: tuple[float, float]  # of the vertical axis, equal for all settings


AnyChart = Chart | RaceChart | CapacityChart


def race_chart(analysis: Analysis) -> RaceChart | None:
    """The chart; None if there was no race, or no block of it has ended."""
    race = analysis.race
    if race is None or not race.looks:
        return None
    leader = race.looks[-1].leader
    short = short_names(analysis)
    rows = tuple(
        RaceRow(
            result.setting.id,
            short.row(result.setting),
            "leader" if result.setting == leader else state_words(result, analysis),
            result.setting == leader,
            departure_of(result.setting, race) is not None,
            tuple(_bars(result.setting, analysis)),
        )
        for result in ranked(analysis)
    )
    shown = tuple(row for row in rows if row.bars or row.leads)
    margin = margin_as_ratio(analysis, leader)
    band = (1 - margin, 1.0) if analysis.direction == "maximise" else (1.0, 1 + margin)
    every = -(-len(race.looks) // RACE_BARS)
    adds = "Each round" if every == 1 else f"One round in {every}"
    note = f"{adds} adds a bar, the palest first: the ratio to whatever led then, with its interval.{short.note}"
    label = f"within {margin_words(analysis.margin, analysis.objective)}"
    span = _span(analysis, margin)
    return RaceChart("race", "race", "Ratio to the leader, round by round", note, shown, span, band, label, every)


def _bars(setting: Setting, analysis: Analysis) -> Iterator[RaceBar]:
    """One bar for each look in which the setting was live and did not lead."""
    for look in analysis.race.looks if analysis.race else ():
        effect = look.effects.get(setting.id)
        if effect is not None and setting != look.leader:
            yield RaceBar(look.block + 1, effect.value, *effect.ends, ratio_phrase(effect))


def _span(analysis: Analysis, margin: float) -> tuple[float, float]:
    """The range around the leader: wide enough for intervals near it, ignoring hopeless settings. `margin`: as a
    ratio."""
    assert analysis.race is not None
    least, most = (reach * max(margin, MARGIN_LEAST) for reach in RACE_REACH)
    ends = [
        end
        for look in analysis.race.looks[-1:]
        for effect in look.effects.values()
        for end in (effect.low, effect.high)
        if end is not None and abs(end - 1) <= most
    ]
    return min([1 - least, *ends]), max([1 + least, *ends])


def exploration_chart(analysis: Analysis) -> Chart | None:
    """The objective of every explored setting, in the order of the trials; None if nothing was explored or no trial
    measured it."""
    metric = analysis.objective
    looks = [
        trial for trial in analysis.trials if trial.stage is Stage.EXPLORE and trial.valid and metric in trial.metrics
    ]
    if not looks:
        return None
    raced = {result.setting for result in analysis.settings}
    scale, unit = unit_scale(max(abs(trial.metrics[metric]) for trial in looks), METRICS[metric].unit)
    points = [
        Point(
            float(trial.number),
            trial.metrics[metric] / scale,
            None,
            None,
            format_measured(metric, trial.metrics) + (", raced" if trial.setting in raced else ""),
            trial.setting.id,
            trial.setting in raced,
            at_least=is_lower_bound(metric, trial.metrics),
        )
        for trial in looks
    ]
    axis = Axis("trial", tuple(p.x for p in points), tuple(f"{p.x:.0f}" for p in points), ordered=False)
    note = "Filled points went into the race; the others were not among the best."
    if any(point.at_least for point in points):
        note += BOUNDS
    if len({trial.node for trial in looks}) > 1:
        note += " Points are as measured; the best were chosen without what the speeds of the nodes differ by."
    title = f"First look: {metric_name(metric)} of each setting tried"
    return Chart("exploration", "estimates", title, note, unit, axis, (Line("", tuple(points)),))


def capacity_charts(analysis: Analysis) -> list[CapacityChart]:
    """One chart for each setting whose curve was measured, in plan order."""
    found = [(row.setting, row.capacity) for row in analysis.settings if row.capacity and row.capacity.curve]
    limits = tuple(_limits(analysis.constraints))
    times = [ns for _, capacity in found for point in capacity.curve for ns in (point.p50_ns, point.p99_ns) if ns]
    times += [limit.ns for limit in limits]
    if not times:
        return []
    span = min(times), max(times)
    return [
        CapacityChart(
            f"capacity-{index}",
            "capacity",
            setting.id,
            capacity.note or f"holds up to {capacity_words(capacity)}",
            tuple(_mark(point) for point in capacity.curve),
            None if capacity.shown is None or capacity.shown.at_least else capacity.shown.ends,
            limits,
            span,
        )
        for index, (setting, capacity) in enumerate(found)
    ]


def _mark(point: CapacityPoint) -> CapacityMark:
    held = "all" if point.held == point.trials else "some" if point.held else "none"
    text = f"held in {point.held} of {plural(point.trials, 'trial')}"
    failed = {"error_rate": point.error_rate or 0.0}
    p50, p99 = (is_lower_bound(f"response_time_ns_{key}", failed) for key in ("p50", "p99"))
    return CapacityMark(point.rate_per_s, point.p50_ns, point.p99_ns, p50, p99, held, text)


def _limits(constraints: Sequence[str]) -> Iterator[Limit]:
    for constraint in filter(None, map(constraint_of, constraints)):
        if constraint.metric.startswith("response_time_ns"):
            yield Limit(constraint.threshold, constraint.text)


def pool_trial(result: SettingResult, analysis: Analysis) -> TrialResult | None:
    """The trial that represents the setting: the median one by throughput of the trials with the setting's
    bottleneck."""
    mine = [trial for trial in analysis.trials if trial.setting == result.setting and trial.valid and trial.pools]
    compared = [trial for trial in mine if trial.stage in (Stage.COMPARE, Stage.CONFIRM)] or mine
    name = result.bottleneck.name if result.bottleneck else None
    agreeing = [trial for trial in compared if trial.bottleneck and trial.bottleneck.name is name] or compared
    return middle_trial(agreeing)


def middle_trial(trials: Iterable[TrialResult]) -> TrialResult | None:
    """The median trial by throughput; the upper one of an even number."""
    ranked = sorted(trials, key=lambda trial: trial.metrics.get("goodput_per_s", 0.0))
    return ranked[len(ranked) // 2] if ranked else None


def middle_records(
    analysis: Analysis, records: Iterable[TrialRecord]
) -> Iterator[tuple[TrialRecord, MergedFleet | None]]:
    """The record of each setting's median valid trial by throughput, where there is one, and its merged engines."""
    by_number = {record.spec.number: record for record in records}
    for result in analysis.settings:
        trial = middle_trial(trial for trial in analysis.trials if trial.valid and trial.setting == result.setting)
        if trial is not None and trial.number in by_number:
            yield by_number[trial.number], merge_fleet(by_number[trial.number].engines)


def pool_chart(analysis: Analysis) -> Chart | None:
    """Thread states of each setting's busiest pools, as shares; None if no trial has them."""
    rows: list[tuple[Setting, PoolUse]] = []
    for result in analysis.settings:
        trial = pool_trial(result, analysis)
        rows += [(result.setting, pool) for pool in (trial.pools[:2] if trial else ()) if pool.threads > 0]
    if len(rows) > POOL_ROWS:
        firsts: dict[str, tuple[Setting, PoolUse]] = {}
        for row in rows:
            firsts.setdefault(row[0].id, row)
        rows = list(firsts.values())
    if not rows:
        return None
    parts: dict[str, list[Point]] = {}
    labels = []
    short = short_names(analysis)
    for index, (setting, pool) in enumerate(rows):
        name = f"{setting.id}: {pool.pool}"
        labels.append(f"{short.row(setting)}: {pool.pool}")
        for label, threads in pool_parts(pool):
            share = 100 * threads / pool.threads
            text = f"{format_number(threads, 'count')} threads, {share:.1f} %"
            point = Point(float(index), share, None, None, text, name, setting == analysis.answer.setting)
            parts.setdefault(label, []).append(point)
    order = ["on a CPU", "waiting for a CPU", *_BLOCKED.values(), "blocked"]
    lines = tuple(Line(label, tuple(parts[label])) for label in order if label in parts)
    heading = short.heading if short.has_parts else ""
    axis = named_axis(heading, labels)
    note = f"Share of the time of a pool’s threads, in each setting’s middle trial.{short.note}"
    return Chart("pools", "stack", "What the threads of a pool did", note, "%", axis, lines)


def pool_parts(pool: PoolUse) -> list[tuple[str, float]]:
    """Numbers of threads by state, which add up to the pool's. Threads whose wait the kernel does not specify are
    `blocked`."""
    parts = {"on a CPU": pool.on_cpu, "waiting for a CPU": pool.run_wait}
    known = {kind: share for kind, share in pool.blocked_on.items() if share > 0}
    for kind, share in known.items():
        words = _BLOCKED.get(kind, _BLOCKED["other"])
        parts[words] = parts.get(words, 0.0) + share * pool.blocked
    rest = pool.blocked * (1 - sum(known.values()))
    if rest > 1e-6 * pool.threads:
        words = _BLOCKED["other"] if known else "blocked"
        parts[words] = parts.get(words, 0.0) + rest
    return list(parts.items())
