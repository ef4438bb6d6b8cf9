"""The vocabulary of what one trial yields: each metric's name, unit, meaning and better direction.

A trial's measurement is a mapping from these names to floats; a metric that could not be measured is absent, never 0.
Objectives, claims, tables and plots name metrics by these names; `?` in a pattern is not supported: names are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from powerband.errors import did_you_mean

Direction = Literal["maximise", "minimise"]


@dataclass(frozen=True)
class Metric:
    """One measured quantity. `unit`: `per_s`, `ns`, `ratio`, `bytes`, `count`, `cores`, `per_request`."""

    name: str
    unit: str
    better: Direction
    help: str


def _quantiles(what: str, label: str) -> list[Metric]:
    names = {
        "mean": "mean",
        "p50": "median",
        "p90": "p90",
        "p95": "p95",
        "p99": "p99",
        "p999": "p99.9",
        "max": "maximum",
    }
    return [Metric(f"{what}_ns_{key}", "ns", "minimise", f"{label}, {text}") for key, text in names.items()]


_ALL = [
    Metric("goodput_per_s", "per_s", "maximise", "requests answered rightly per second of the measured window"),
    Metric("achieved_rate_per_s", "per_s", "maximise", "requests that ended per second, whatever their outcome"),
    Metric("offered_rate_per_s", "per_s", "maximise", "requests scheduled per second"),
    Metric("error_rate", "ratio", "minimise", "share of requests that did not end ok (dropped work included)"),
    Metric("dropped_rate", "ratio", "minimise", "share of scheduled work that was never sent (in-flight bound)"),
    *_quantiles("response_time", "from intended to done"),
    *_quantiles("service_time", "from sent to done"),
    Metric("connect_time_ns_p99", "ns", "minimise", "time to connect, p99"),
    Metric("send_lag_ns_p99", "ns", "minimise", "from intended to sent, p99: the generator's own delay"),
    Metric("subject_cpu_cores", "cores", "minimise", "CPU seconds per second of the subject's process tree"),
    Metric(
        "subject_cpu_share", "ratio", "minimise", "subject_cpu_cores as a share of the CPUs that the subject may use"
    ),
    Metric("subject_cpu_ns_per_request", "ns", "minimise", "CPU of the subject per ended request"),
    Metric("subject_cpu_system_share", "ratio", "minimise", "kernel share of the subject's CPU"),
    Metric("rss_bytes_max", "bytes", "minimise", "largest resident set of the tree in the window"),
    Metric("pss_bytes_max", "bytes", "minimise", "largest proportional set size in the window"),
    Metric("threads_max", "count", "minimise", "most threads alive at once in the window"),
    Metric("threads_mean", "count", "minimise", "mean threads alive in the window"),
    Metric("threads_started_per_s", "per_s", "minimise", "threads created per second"),
    Metric(
        "context_switches_per_s",
        "per_s",
        "minimise",
        "context switches of the tree per second, exited threads included",
    ),
    Metric("context_switches_per_request", "per_request", "minimise", "context switches per ended request"),
    Metric("involuntary_switch_share", "ratio", "minimise", "share of involuntary switches"),
    Metric("run_wait_cores", "cores", "minimise", "thread-seconds per second spent runnable but waiting for a CPU"),
    Metric("descriptors_max", "count", "minimise", "most open descriptors"),
    Metric("page_faults_per_s", "per_s", "minimise", "minor and major faults per second"),
    Metric(
        "accept_overflows",
        "count",
        "minimise",
        "connections refused by a full accept queue in the window (host counter)",
    ),
    Metric("engine_cpu_cores", "cores", "minimise", "CPU seconds per second of all engine processes"),
    Metric("engine_cpu_share_max", "ratio", "minimise", "CPU share of the busiest engine thread"),
    Metric(
        "engine_run_wait_cores", "cores", "minimise", "thread-seconds per second that engine threads waited for a CPU"
    ),
    Metric(
        "engine_run_wait_ns_mean", "ns", "minimise", "mean wait of an engine thread for a CPU, each time it was to run"
    ),
    Metric("engine_cpu_ns_per_request", "ns", "minimise", "CPU of the engine per ended request"),
    Metric("host_steal_share", "ratio", "minimise", "share of the CPUs' time stolen by the hypervisor"),
    Metric(
        "host_foreign_cores", "cores", "minimise", "CPU used on the trial's CPUs by programs that are not part of it"
    ),
    Metric("host_busy_share", "ratio", "minimise", "share of the time of the trial's CPUs in use"),
    Metric("users_mean", "count", "maximise", "mean users present (closed model)"),
    Metric("in_flight_mean", "count", "minimise", "mean requests in flight, sampled"),
    Metric(
        "littles_law_deviation", "ratio", "minimise", "|N - X (R + Z)| / N, the window's edges counted (closed model)"
    ),
    Metric("ready_s", "count", "minimise", "seconds from launch to ready"),
]

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}

# Short names that people write in objectives and claims.
ALIASES: dict[str, str] = {
    "goodput": "goodput_per_s",
    "throughput": "goodput_per_s",
    "rate": "achieved_rate_per_s",
    "errors": "error_rate",
    "mean": "response_time_ns_mean",
    "p50": "response_time_ns_p50",
    "p90": "response_time_ns_p90",
    "p95": "response_time_ns_p95",
    "p99": "response_time_ns_p99",
    "p999": "response_time_ns_p999",
    "cpu": "subject_cpu_cores",
    "memory": "rss_bytes_max",
    "threads": "threads_max",
}


def metric_named(name: str) -> Metric:
    """The metric of this name or alias. Raises ValueError with the nearest right spelling."""
    metric = METRICS.get(ALIASES.get(name, name))
    if metric is None:
        raise ValueError(f"there is no metric {name}; {did_you_mean(name, [*ALIASES, *METRICS])}")
    return metric
