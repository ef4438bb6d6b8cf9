"""Exposes runs as metrics for Prometheus. In: `RunState` values. Out: OpenMetrics, or the older text format.

Units are base units: seconds, bytes. Unknown values are omitted, never 0. Metrics of the trial in flight disappear with
it, so that Prometheus sees where one trial ends and the next begins. Not here: the server's own metrics page
(`subject_page.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.registry import Collector

from powerband.live.growing_files import plain_text
from powerband.live.state import Figures, RunState, RunStatus, SettingState, TrialPhase, TrialState
from powerband.readings.fleet import SECOND_NS

_TRIAL = ("trial", "setting")


class Row(NamedTuple):
    """One sample of a family. `labels`: values of the family's labels. `value`: in base units. `node`: the label of
    that name, which the sample has where several nodes run trials; empty elsewhere."""

    labels: tuple[str, ...]
    value: float
    node: str = ""


@dataclass(frozen=True)
class Family:
    """One metric of the page. `name`, and `help`: the comment that Prometheus shows. `labels`: names of those after the
    first one, `run`. `rows`: its samples for one run. `unit`: the end of the name, declared in OpenMetrics; empty for
    others."""

    name: str
    help: str
    labels: tuple[str, ...]
    rows: Callable[[RunState], Iterator[Row]]
    unit: str = ""


def exposition(runs: Iterable[RunState], accept: str | None) -> tuple[bytes, str]:
    """The page and its content type: OpenMetrics if the `Accept` header of the scrape names it, else text."""
    page = _Runs(list(runs))
    try:
        encoder, content_type = choose_encoder(accept or "")
    except (TypeError, ValueError):  # an invalid version
        encoder, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    return encoder(page), content_type


class _Runs(Collector):
    """The collector that prometheus_client asks for metric families."""

    def __init__(self, runs: Sequence[RunState]) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        info = InfoMetricFamily("powerband_run", "Each run, by its directory; its experiment's name", labels=["run"])
        for run in self._runs:
            info.add_metric([_run(run)], {"name": plain_text(run.name)})
        yield info
        for family in FAMILIES:
            found = GaugeMetricFamily(family.name, family.help, labels=["run", *family.labels], unit=family.unit)
            for run in self._runs:
                for labels, value, node in family.rows(run):
                    named = dict(zip(family.labels, map(plain_text, labels), strict=True))
                    named |= {"node": plain_text(node)} if node else {}
                    found.add_sample(found.name, {"run": _run(run), **named}, value)
            yield found


def _run(run: RunState) -> str:
    return plain_text(Path(run.path).name)


def _statuses(run: RunState) -> Iterator[Row]:
    for status in RunStatus:
        yield Row((status.value,), float(run.status is status))


def _nodes(run: RunState) -> Iterator[Row]:
    for node in run.nodes:
        for does in ("runs", "idle", "lost"):
            yield Row((does,), float(node.does == does), node.name)


def _trials(run: RunState) -> Iterator[Row]:
    counts = {"done": run.done, "valid": run.valid, "invalid": run.invalid, "failed": run.failed}
    for state, count in counts.items():
        yield Row((state,), float(count))
    if run.planned_total is not None:
        yield Row(("planned",), float(run.planned_total))


def _eta(run: RunState) -> Iterator[Row]:
    if run.eta_s is not None:
        yield Row((), run.eta_s)


def _phases(run: RunState) -> Iterator[Row]:
    for node, trial in _in_flight(run):
        for phase in TrialPhase:
            yield Row((*_trial(trial), phase.value), float(trial.phase is phase), node)


def _in_flight(run: RunState) -> Iterator[tuple[str, TrialState]]:
    """Yields the trials in flight, each with its node; on one machine the node is empty."""
    if run.current is not None:
        yield "", run.current
    yield from ((node.name, node.trial) for node in run.nodes if node.trial is not None)


def _trial(trial: TrialState) -> tuple[str, str]:
    return str(trial.number), trial.setting


def _of_trial(
    name: str,
    text: str,
    figure: Callable[[Figures], float | Mapping[str, float | None] | None],
    label: str = "",
    unit: str = "",
) -> Family:
    """A family of one figure of the trial in flight, or of several, distinguished by one more `label`."""

    def rows(run: RunState) -> Iterator[Row]:
        if (trial := run.current) is not None and trial.figures is not None:
            found = figure(trial.figures)
            named = {(each,): value for each, value in found.items()} if isinstance(found, Mapping) else {(): found}
            for labels, value in named.items():
                if value is not None:
                    yield Row((*_trial(trial), *labels), float(value))

    return Family(name, text, (*_TRIAL, label) if label else _TRIAL, rows, unit)


def _response_times(figures: Figures) -> dict[str, float | None]:
    return {"0.5": _seconds(figures.response_time_ns_p50), "0.99": _seconds(figures.response_time_ns_p99)}


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / SECOND_NS


def _estimates(run: RunState) -> Iterator[Row]:
    """The estimates of the objective, in its base unit, labelled with its name."""
    scale = 1 / SECOND_NS if run.unit == "ns" else 1.0
    metric = run.objective.replace("_ns", "_seconds") if run.unit == "ns" else run.objective
    for setting in run.settings:
        for bound, value in (("value", setting.estimate), ("low", setting.low), ("high", setting.high)):
            if value is not None:
                yield Row((setting.id, metric, bound), value * scale)


def _of_settings(figure: Callable[[SettingState], float]) -> Callable[[RunState], Iterator[Row]]:
    def rows(run: RunState) -> Iterator[Row]:
        for setting in run.settings:
            yield Row((setting.id,), float(figure(setting)))

    return rows


FAMILIES: tuple[Family, ...] = (
    Family("powerband_run_status", "1 for what the run is now", ("status",), _statuses),
    Family("powerband_run_trials", "Trials of the run; planned: the most, as far as known", ("state",), _trials),
    Family("powerband_run_eta_seconds", "Time that the run will still take", (), _eta, "seconds"),
    Family("powerband_node_status", "1 for what a node of the cluster does now", ("status",), _nodes),
    Family("powerband_trial_phase", "1 for the phase that the trial in flight is in", (*_TRIAL, "phase"), _phases),
    _of_trial(
        "powerband_rate_per_second", "Requests answered correctly in the last second", lambda now: now.rate_per_s
    ),
    _of_trial("powerband_errors_per_second", "Requests that failed in the last second", lambda now: now.errors_per_s),
    _of_trial(
        "powerband_response_time_seconds",
        "Response times of the last second, from scheduled to done, by quantile",
        _response_times,
        "quantile",
        "seconds",
    ),
    _of_trial(
        "powerband_response_time_mean_seconds",
        "Mean response time of the last second, from scheduled to done",
        lambda now: _seconds(now.response_time_ns_mean),
        unit="seconds",
    ),
    _of_trial("powerband_in_flight", "Requests in flight", lambda now: now.in_flight),
    _of_trial("powerband_users", "Users present", lambda now: now.users),
    _of_trial(
        "powerband_cpu_cores",
        "CPU seconds per second of a tree of processes: subject, engine, link, ...",
        lambda now: now.cpu_cores,
        "tree",
    ),
    _of_trial(
        "powerband_memory_bytes", "Resident memory of a tree of processes", lambda now: now.rss_bytes, "tree", "bytes"
    ),
    _of_trial(
        "powerband_threads",
        "Threads of the server by state: thread seconds per second spent in it",
        lambda now: now.threads,
        "state",
    ),
    _of_trial(
        "powerband_context_switches_per_second",
        "Context switches of the server",
        lambda now: now.context_switches_per_s,
    ),
    _of_trial(
        "powerband_gauge",
        "The server's own metrics that the experiment asks for, in the unit of their names",
        lambda now: now.gauges,
        "name",
    ),
    Family(
        "powerband_setting_estimate",
        "The objective as estimated so far, and the ends of its interval, by bound",
        ("setting", "metric", "bound"),
        _estimates,
    ),
    Family(
        "powerband_setting_trials",
        "Valid trials of a setting in the last analysis",
        ("setting",),
        _of_settings(lambda setting: setting.trials),
    ),
    Family(
        "powerband_setting_in_race",
        "Whether a setting is still in the race; always 1 without one",
        ("setting",),
        _of_settings(lambda setting: setting.left_after_block is None),
    ),
)
"""All families except `powerband_run_info`, in the order of the page."""
