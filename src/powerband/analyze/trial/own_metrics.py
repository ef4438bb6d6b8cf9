"""Computes a subject's own metrics over the measured window, from the scrapes of its Prometheus page.

In: the expressions that the experiment names, the scrapes. Out: metrics by name; one that the scrapes cannot back is
absent. The grammar is `own_expression.py`'s; scraping is the probe's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from powerband.base.arithmetic import value
from powerband.loads import kind_of
from powerband.loads.counted.measured import lost_counts
from powerband.model.own_expression import COUNTERS, OwnExpression, Series, labels_of
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import SECOND_NS
from powerband.readings.probe_samples import Array, Counters


def own_metrics(
    wanted: Mapping[str, OwnExpression],
    scrapes: Counters,
    start_ns: int,
    end_ns: int,
    loaded: tuple[int, int] | None = None,
) -> dict[str, float]:
    """The wanted metrics over the window, by name. `scrapes`: a field for each series, called as on the page
    (`name{a="x"}`); `loaded`: as in `Counters.growth`. Those of last words are none of the page's."""
    page = MetricsPage(scrapes, loaded)
    found = {name: _over(each, page, start_ns, end_ns) for name, each in wanted.items() if not each.is_final}
    return {name: number for name, number in found.items() if number is not None and math.isfinite(number)}


def own_series(wanted: Mapping[str, OwnExpression], scrapes: Counters) -> dict[str, tuple[float | None, ...]]:
    """The wanted metrics over time, a value for each scrape or None; counters over the time since the scrape before,
    None if they began again. Last words have no values over time."""
    page = MetricsPage(scrapes)
    return {name: tuple(_over_time(each, page)) for name, each in wanted.items() if not each.is_final}


class MetricsPage:
    """A Prometheus page at each of its scrapes, in which series are found by name and labels. `loaded`: as in
    `Counters.growth`."""

    def __init__(self, scrapes: Counters, loaded: tuple[int, int] | None = None) -> None:
        self.scrapes = scrapes
        self._loaded = loaded
        self._named: dict[str, list[tuple[frozenset[tuple[str, str]], str]]] = {}
        for text in scrapes.fields:
            name, _, labels = text.partition("{")
            self._named.setdefault(name, []).append((labels_of(labels), text))

    def fields(self, series: Series) -> list[str]:
        """The series of the page that have this name and at least these labels, written as on the page."""
        wanted = set(series.labels)
        return [text for labels, text in self._named.get(series.name, ()) if wanted <= labels]

    def levels(self, series: Series) -> Array:
        """The sum, at each scrape, of the matching series that it has; NaN if it has none."""
        rows = [self.scrapes.fields[text] for text in self.fields(series)]
        if not rows:
            return np.full(self.scrapes.at_ns.shape, np.nan)
        found = np.array(rows)
        return np.where(np.isnan(found).all(axis=0), np.nan, np.nansum(found, axis=0))

    def growth(self, series: Series, start_ns: int, end_ns: int) -> float:
        """The growth of all matching series; NaN if none is known, or if one falls, so that it cannot be known. If a
        series covers only a part of the window, its rate is extrapolated."""
        if self.falling(series, start_ns, end_ns):
            return math.nan
        grown = [
            growth
            for text in self.fields(series)
            if (growth := self.scrapes.growth(text, start_ns, end_ns, 0.0, self._loaded)) is not None
        ]
        return sum(grown) if grown else math.nan

    def falling(self, series: Series, start_ns: int, end_ns: int) -> list[str]:
        """Those of `fields` that fall within the window, so that they are no counters or began again."""
        return [text for text in self.fields(series) if self.scrapes.falls(text, start_ns, end_ns)]


def _over(expression: OwnExpression, page: MetricsPage, start_ns: int, end_ns: int) -> float | None:
    if expression.function in COUNTERS:
        # The counters are divided, not their result: the time of a query does not depend on how long one looks.
        per = (end_ns - start_ns) / SECOND_NS if expression.function == "rate" else 1.0
        return _value(expression, lambda series: page.growth(series, start_ns, end_ns) / per)
    at = page.scrapes.at_ns
    inside = (at >= start_ns) & (at <= end_ns)
    levels = {series: page.levels(series)[inside] for series in expression.series}
    values = [
        number
        for index in range(int(inside.sum()))
        if math.isfinite(number := _value(expression, lambda series, index=index: float(levels[series][index])))  # type: ignore[misc]
    ]
    return _SUMMARIES[expression.function](values) if values else None


def _over_time(expression: OwnExpression, page: MetricsPage) -> Iterator[float | None]:
    passed_s = np.diff(page.scrapes.at_ns, prepend=np.nan) / SECOND_NS
    levels = {series: page.levels(series) for series in expression.series}
    if expression.function in COUNTERS:
        steps = {series: np.diff(values, prepend=np.nan) for series, values in levels.items()}
        per = passed_s if expression.function == "rate" else np.ones_like(passed_s)
        levels = {series: np.where(step < 0, np.nan, step) / per for series, step in steps.items()}  # it began again
    for index in range(page.scrapes.at_ns.size):
        found = _value(expression, lambda series, index=index: float(levels[series][index]))  # type: ignore[misc]
        yield float(found) if math.isfinite(found) else None


_SUMMARIES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "last": lambda values: values[-1],
    "mean": lambda values: sum(values) / len(values),
}


def _value(expression: OwnExpression, value_of: Callable[[Series], float]) -> float:
    try:
        return value(expression.term, value_of)
    except ZeroDivisionError:
        return math.nan


def final_metrics(wanted: Mapping[str, OwnExpression], last_words: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are made of the subject's last words; one that needs a missing word is left out."""
    found = {}
    for name, expression in wanted.items():
        if not expression.is_final:
            continue
        try:
            number = value(expression.term, lambda series: last_words[series.name])
        except (KeyError, ZeroDivisionError):
            continue
        if math.isfinite(number):
            found[name] = number
    return found


def _metrics(evidence: Evidence) -> dict[str, float]:
    wanted = evidence.experiment.measure.own_metrics()
    page = None if evidence.probe is None else evidence.probe.scrapes
    loaded = kind_of(evidence.experiment).loaded(evidence.fleet)
    of_page = {} if page is None else own_metrics(wanted, page, *evidence.window, loaded)
    return {**of_page, **final_metrics(wanted, evidence.record.last_words)}


def _problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Yields a problem for counts that were lost on their way, and a note on readings of the metrics page that failed
    within the window, with the most frequent reason. Later readings do not count: the subject's end may cut the last
    one. Another note names the metrics that are left out because a counter of theirs falls within the window."""
    probe, subject = evidence.probe, evidence.experiment.subject
    if probe is None:
        return
    yield from lost_counts(subject.counts, probe, evidence.fleet)
    if not evidence.experiment.measure.metrics and subject.counts is None:
        return
    start_ns, end_ns = evidence.window
    reasons = Counter(event["reason"] for event in probe.scrapes_failed if start_ns <= event["at_ns"] <= end_ns)
    if reasons:
        times = "1 reading" if reasons.total() == 1 else f"{reasons.total()} readings"
        ((reason, _),) = reasons.most_common(1)
        message = f"{times} of the server's metrics page failed within the window: {reason}"
        yield Problem("metrics_page", message, fatal=False)
    if probe.scrapes is None:
        return
    page = MetricsPage(probe.scrapes)
    for name, expression in evidence.experiment.measure.own_metrics().items():
        series = expression.series if expression.function in COUNTERS else ()
        if falling := sorted({text for each in series for text in page.falling(each, *evidence.window)}):
            message = f"{name} is left out: {falling[0]} falls within the window, so it is no counter or began again"
            yield Problem("metrics_page", message, fatal=False)


OWN = Source("own", _metrics, _problems)
