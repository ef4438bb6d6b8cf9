"""The data of the HTML page, as values: an Analysis, and further contents of a run directory.

`gather.py` reads a run directory into a `ReportPage`; `report.py` and `charts.py` draw it."""

from __future__ import annotations

from dataclasses import dataclass

from powerband.analyze.trial.threads import LabelTable, ThreadUse
from powerband.analyze.trial.timeline import LimitSpan
from powerband.model.results import Analysis


@dataclass(frozen=True)
class Quantiles:
    """One merged histogram of `count` requests. `points`: rising (quantile in [0, 1], ns) pairs for a line. `named`:
    those for a table, by name (`p99`), in ns; None for one that needs more requests."""

    count: int
    points: tuple[tuple[float, float], ...]
    named: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True)
class Distribution:
    """The times of one setting's requests, all its valid trials merged. `setting`: its id. `response_time`: from the
    scheduled start of a request; `service_time`: from when it was sent."""

    setting: str
    response_time: Quantiles
    service_time: Quantiles


@dataclass(frozen=True)
class Track:
    """One line over the time of a trial. `label`: its name in the plot's key; empty for a single line. `points`:
    seconds since go, and values in `unit` (None: not measured then)."""

    panel: str  # tracks of one panel share a plot
    label: str
    unit: str
    points: tuple[tuple[float, float | None], ...]
    band: bool = False  # the tracks of its panel are parts of a whole and are stacked


@dataclass(frozen=True)
class TrialView:
    """One trial over time. `number`: that of the trial; `tracks`: its lines. `measured_s`: the window, in seconds since
    go; None if the trial did not get there. `limits`: the bottlenecks of its throughput, without gaps."""

    number: int
    tracks: tuple[Track, ...] = ()
    measured_s: tuple[float, float] | None = None
    limits: tuple[LimitSpan, ...] = ()


@dataclass(frozen=True)
class InsideView:
    """Details of one trial (`number`) of a `setting`: its busiest `threads`, and the labelled series of its metrics
    page as `tables`."""

    setting: str
    number: int
    threads: tuple[ThreadUse, ...] = ()
    tables: tuple[LabelTable, ...] = ()


@dataclass(frozen=True)
class BarsView:
    """The median trial (`number`) of a `setting`: its mean rates (`rates_per_s`) in bars of `width_s`, from the start
    of the measured window."""

    setting: str
    number: int
    width_s: float
    rates_per_s: tuple[float, ...]


@dataclass(frozen=True)
class Facts:
    """One list of facts, such as those of the host, under a `title`. `rows`: name and value of each."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReportPage:
    """All data of the page. `analysis`: that of the run. `run`: its directory. `experiment_yaml`: the file as resolved,
    without secrets; `hidden`: the keys of those. `when`: the time of day at which it began. `facts`: how it was
    measured. `distributions`: one for each setting. `trials`: those that are drawn over time. `inside`, `bars`: None if
    the files of a trial are not as they were written."""

    analysis: Analysis
    run: str
    command: str  # the command that repeats the run
    experiment_yaml: str
    when: str
    facts: tuple[Facts, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    trials: tuple[TrialView, ...] = ()
    inside: tuple[InsideView, ...] | None = ()
    bars: tuple[BarsView, ...] | None = ()
    hidden: tuple[str, ...] = ()
