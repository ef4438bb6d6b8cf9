"""The metrics of one trial: name, unit, source and meaning of each.

The metrics of a trial are a mapping from these names to floats; a metric that could not be measured is absent, never 0.
Objectives, claims, tables and plots use exactly these names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from powerband.base.errors import did_you_mean


@dataclass(frozen=True)
class Metric:
    """One measured quantity. `unit`: `per_s`, `ns`, `s`, `ratio`, `bytes`, `count`, `cores` or `per_request`. `source`:
    the part of a trial's evidence that it is computed from (`readings/evidence.py`); `search` for the result of a
    capacity search, `own` for a metric of the server's own."""

    name: str
    unit: str
    source: str
    help: str

    @property
    def needs_load(self) -> bool:
        """True if it describes requests, users or load engines, so that a self-driven program never has it."""
        return self.name in _OF_A_LOAD or (self.source in _LOAD_SOURCES and self.name not in _OF_A_COUNTER)


_LOAD_SOURCES = ("load", "users", "burst", "slots")
_OF_A_LOAD = ("engine_run_wait_cores", "engine_run_wait_ns_mean", "finish_s")  # from other sources
_OF_A_COUNTER = ("goodput_per_s", "achieved_rate_per_s", "burst_goodput_per_s", "burst_accept_overflows")


# One metric a line: name | unit | source | help. Braces stand for several names, each with its own word for `*`.
_TABLE = """\
goodput_per_s | per_s | load | requests answered rightly per second of the measured window (of a disturbed trial, of
  quiet_s); of a program without requests the growth of its counter
capacity_per_s | per_s | search | highest Poisson rate at which the constraints hold: searched for each setting, an
  objective only
achieved_rate_per_s | per_s | load | requests that ended per second, whatever their outcome
offered_rate_per_s | per_s | load | requests scheduled per second
error_rate | ratio | load | share of requests that did not end ok (dropped work included;
  users_unserved with as many as a served user had)
run_error_rate | ratio | load | share of all requests since the start, warm-up included, that did not end ok; those
  without an answer when the drain was over are among them
dropped_rate | ratio | load | share of scheduled work that was never sent (in-flight bound)
response_time_ns_{mean,p50,p90,p95,p99,p999,max} | ns | load | from intended to done, *; percentiles are of all requests
  that were due
response_time_ns_p99_{low,high} | ns | load | within a trial, the * end of the 95 % interval of its p99
service_time_ns_{mean,p50,p90,p95,p99,p999,max} | ns | load | from sent to done, *
connect_time_ns_p99 | ns | load | time to connect, p99
send_lag_ns_p99 | ns | load | from intended to sent, p99: the generator's own delay
subject_cpu_cores | cores | probe | CPU seconds per second of the server's process tree
subject_cpu_share | ratio | probe | subject_cpu_cores as a share of the CPUs that the server may use (those it is
  pinned to, and no more than a cgroup quota allows)
cpu_quota_cores | cores | probe | CPUs that the narrowest CPU quota of the server's cgroups allows on average; absent
  where there is none
cpu_throttled_share | ratio | probe | share of that quota's periods in which the server had used it up and was stopped
subject_cpu_ns_per_request | ns | probe | CPU of the server per ended request
subject_cpu_system_share | ratio | probe | kernel share of the server's CPU
gc_cpu_share | ratio | pools | share of the server's CPUs that its garbage collectors used: their threads, and what Go
  counts itself; absent where nothing is known to collect
thread_cpu_share_max | ratio | pools | CPU share of the server's busiest thread, of all its pools
rss_bytes_max | bytes | probe | largest resident set of the tree in the window
pss_bytes_max | bytes | probe | largest proportional set size in the window
threads_max | count | probe | most threads alive at once in the window
threads_mean | count | probe | mean threads alive in the window
threads_started_per_s | per_s | probe | threads created per second
context_switches_per_s | per_s | probe | context switches of the tree per second, exited threads included
context_switches_per_request | per_request | probe | context switches per ended request
involuntary_switch_share | ratio | probe | share of involuntary switches
run_wait_cores | cores | probe | thread-seconds per second spent runnable but waiting for a CPU
descriptors_max | count | probe | most open descriptors
memory_growth_bytes_per_s | bytes | growing | growth of the resident set a second, of a JVM of what its heap holds after
  collections; 0 where it did not grow all through the window
threads_growth_per_s | per_s | growing | growth of the threads a second; 0 where they did not grow all through the
  window
descriptors_growth_per_s | per_s | growing | the same of open descriptors
queue_growth_per_s | per_s | growing | the same of the requests in flight under an open load
memory_lasts_s | s | growing | seconds until the memory of the machine, the cgroup or the JVM's heap is full at that
  pace
threads_lasts_s | s | growing | seconds until no more threads are allowed at that pace
descriptors_lasts_s | s | growing | the same of descriptors of the process that has fewest left
page_faults_per_s | per_s | probe | minor and major faults per second
accept_overflows | count | probe | connections refused by a full accept queue in the window (host counter)
services_cpu_cores | cores | probe | CPU seconds per second of what was started beside the server (a database, a link
  in user space)
link_dropped | count | link | packets that the link dropped, since its start: its queue was full
link_missed | count | link | packets that a link in user space was too slow for, since its start
link_late_ns_p99 | ns | link | how much later than planned a link in user space let packets go, p99
engine_cpu_cores | cores | load | CPU seconds per second of all engine processes
engine_cpu_share_max | ratio | load | CPU share of the busiest engine thread
engine_run_wait_cores | cores | probe | thread-seconds per second that engine threads waited for a CPU
engine_run_wait_ns_mean | ns | probe | mean wait of an engine thread for a CPU, each time it was to run
engine_cpu_ns_per_request | ns | load | CPU of the engine per ended request
host_steal_share | ratio | probe | share of the CPUs' time stolen by the hypervisor
host_foreign_cores | cores | probe | CPU used on the trial's CPUs by programs that are not part of it
held_up_share_max | ratio | machine | share of the window in which other programs and the hypervisor can have held the
  trial up, at most
quiet_s | s | machine | seconds of the window in which others hardly ran: of a disturbed trial the two rates are of
  these (docs/methods/disturbance.md)
quiet_held_up_share_max | ratio | machine | share of these in which others can have held the trial up, at most
window_goodput_per_s | per_s | machine | of such a trial: the rate of its whole window
window_achieved_rate_per_s | per_s | machine | likewise
host_awake_cores | cores | probe | CPU of the loops of idle priority that kept the trial's CPUs awake (`host.awake`);
  counted as idle in all other figures
host_busy_share | ratio | probe | share of the time of the trial's CPUs in use
psi_cpu_share | ratio | probe | share of the time in which some task of the host waited for a CPU (PSI)
psi_memory_share | ratio | probe | share of the time in which some task of the host waited for memory (PSI)
psi_io_share | ratio | probe | share of the time in which some task of the host waited for a disk (PSI)
users_mean | count | users | mean users present (closed model)
users_unserved | count | users | users who got no ok answer in the whole window though one was due: a request was in
  flight all through it, or failed and was tried again in vain (closed model)
users_unserved_share | ratio | users | the same, as a share of the users present; it is part of error_rate, and of the
  percentiles of the response time with at least the length of the window
in_flight_mean | count | users | mean requests in flight, sampled
littles_law_deviation | ratio | users | |N - X (R + Z)| / N, the window's edges counted (closed model)
join_time_ns_mean | ns | users | from a WebSocket user's intended start to joined, mean; of all joins of the run
join_time_ns_{p50,p99,max} | ns | users | the same, *
join_error_rate | ratio | users | share of all joins since the start that failed; those under way at the end are in
  neither
joined_users | count | users | mean users that hold a WebSocket, sampled over the window
drops | count | users | how often a user who had joined lost the connection, since the start
drop_rate | ratio | users | drops as a share of all joins that were complete
rejoins | count | users | joins of users who had joined before (load.websocket.rejoin_after)
delivery_time_ns_mean | ns | users | from the writing of a message to its arrival at a subscriber, mean; of messages
  sent within the window
delivery_time_ns_{p50,p99,max} | ns | users | the same, *
delivered_share | ratio | users | deliveries as a share of stamped messages x joined users (load.websocket.stamp_after)
tally_missing | count | users | messages sent since the start less those that the server's workers counted
  (load.websocket.tally)
ready_s | s | trial | from launch to ready
finish_s | s | trial | from the start of the load to its last answer (users with a set number of requests)
rate_counter_window_per_s_mean | per_s | rate_counter | mean rate of windows of 3 s since the first answer
rate_counter_window_per_s_sd | per_s | rate_counter | standard deviation of those windows, within one trial
rate_counter_per_s_last | per_s | rate_counter | mean rate since the first answer, warm-up included
bar_rate_per_s_min | per_s | bars | lowest mean rate of a bar of the measured window (measure.bars)
bar_rate_per_s_max | per_s | bars | highest mean rate of a bar of the measured window (measure.bars)
bar_cpu_cores_min | cores | bars | subject_cpu_cores of the bar in which it was lowest
bar_cpu_cores_max | cores | bars | subject_cpu_cores of the bar in which it was highest
bar_gc_share_max | ratio | bars | jvm_gc_share of the bar in which it was highest; a collection counts when it is over
visits | count | visits | visits of a real browser's page within the window (measure.visitor)
visits_failed | count | visits | those of them that got no answer
visit_time_ns_p50 | ns | visits | how long they took, as the page saw it, median
visit_time_ns_{p90,max} | ns | visits | the same, *
acknowledge_ns_p50 | ns | acknowledged | from a write to its acknowledgement, median (measure.acknowledged)
visible_delay_ns_p50 | ns | acknowledged | from an acknowledgement to the first read that saw all of the write, median
visible_delay_ns_{p90,max} | ns | acknowledged | the same, *
missing_at_acknowledgement_mean | count | acknowledged | of a write, what the first read after its acknowledgement
  missed
missing_at_acknowledgement_max | count | acknowledged | the same, the most of any write
burst_goodput_per_s | per_s | burst | requests answered rightly per second in the first moments (measure.burst)
burst_error_rate | ratio | burst | share of the requests that ended in the first moments and did not end ok
burst_accept_overflows | count | burst | connections that found the accept queue full in the first moments (host
  counter)
burst_response_time_ns_{mean,p50,p90,p95,p99,p999,max} | ns | burst | from intended to done, in the first moments, *
jvm_heap_used_bytes_max | bytes | jvm | most heap in use, as the JVM last told (some tell after collections only)
jvm_heap_used_bytes_mean | bytes | jvm | mean heap in use, as the JVM last told
jvm_heap_committed_bytes_max | bytes | jvm | largest heap taken from the system
jvm_heap_committed_bytes_before | bytes | jvm | heap taken from the system when the load began, within 0.3 s
jvm_gc_share | ratio | jvm | share of the window that collections took
jvm_gc_per_s | per_s | jvm | collections per second
jvm_compile_share | ratio | jvm | time that compilers of the JVM spent, per second; two of them at once count twice
jvm_safepoint_share | ratio | jvm | share of the window in which all Java threads were stopped
jvm_threads_live_max | count | jvm | most live Java threads at once
jvm_threads_started_per_s | per_s | jvm | Java threads started per second
dotnet_gc_share | ratio | dotnet | share of the window in which collections stopped all threads of a .NET program
dotnet_gc_per_s | per_s | dotnet | collections per second, of all generations
dotnet_gc_gen2_per_s | per_s | dotnet | those of generation 2 among them
dotnet_heap_bytes_max | bytes | dotnet | most heap in use, with what is not collected yet
dotnet_allocated_bytes_per_s | bytes | dotnet | bytes allocated per second
dotnet_pool_threads_max | count | dotnet | most threads of .NET's pool
dotnet_pool_growth_per_s | per_s | dotnet | threads by which the pool grew per second of the window; below 0 it shrank
dotnet_pool_busy_mean | count | dotnet | mean threads of the pool that have a work item in hand
dotnet_pool_blocked_mean | count | dotnet | those of them that neither run nor wait for a CPU
dotnet_pool_queue_mean | count | dotnet | mean work items that wait for a thread of the pool
dotnet_work_items_per_s | per_s | dotnet | work items that the pool did per second
dotnet_lock_contentions_per_s | per_s | dotnet | times a second that a thread had to wait for a lock (`lock`, `Monitor`)
jvm_live_bytes | bytes | heap | what lives on the heap right after the window (measure.snapshots)
jvm_live_growth_bytes | bytes | heap | the same, less what lived right before the window
slots | count | slots | requests that the server serves at once: the rate of all users times the time of one user alone
  (measure.slots)
slots_{low,high} | count | slots | * end of its 95 % interval
alone_time_ns_mean | ns | slots | how long a request of one user alone takes, mean
prompt_time_ns_mean | ns | slots | the same where the user acknowledges each part of an answer at once, mean
doubled_users_rate_per_s | per_s | slots | requests answered rightly per second with twice the users
doubled_users_gain | ratio | slots | that rate over the one of the measured window: near 1 where more load gets
  no more
bench_cpu_cores | cores | trial | CPU seconds per second of the bench itself: control plane and probes, engine apart
"""
_WORDS = {"low": "lower", "high": "upper", "p50": "median", "p999": "p99.9", "max": "maximum"}


def _metrics() -> Iterator[Metric]:
    for row in _TABLE.replace("\n  ", " ").splitlines():
        name, unit, source, meaning = row.split(" | ", 3)
        stem, _, keys = name.partition("{")
        for key in keys.rstrip("}").split(","):
            yield Metric(stem + key, unit, source, meaning.replace("*", _WORDS.get(key, key)))


# The server's own metrics, which an experiment defines (`measure.metrics`), have names that begin so.
OWN = "app_"
_OWN_UNITS = {"_per_s": "per_s", "_s": "s", "_ns": "ns", "_share": "ratio", "_ratio": "ratio", "_bytes": "bytes"}


class _Registry(dict[str, Metric]):
    """Metrics by name; one of the server's own is made from its name, whose end says the unit."""

    def __missing__(self, name: str) -> Metric:
        if not name.startswith(OWN):
            raise KeyError(name)
        unit = next((unit for end, unit in _OWN_UNITS.items() if name.endswith(end)), "count")
        return Metric(name, unit, "own", "the server's own, as the experiment defines it")


METRICS: dict[str, Metric] = _Registry({metric.name: metric for metric in _metrics()})

# Short names that people write in objectives and claims.
ALIASES: dict[str, str] = {
    "goodput": "goodput_per_s",
    "throughput": "goodput_per_s",
    "capacity": "capacity_per_s",
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
    """The metric of this name or alias. Raises ValueError with the nearest known name."""
    try:
        return METRICS[ALIASES.get(name, name)]
    except KeyError:
        raise ValueError(f"there is no metric {name}; {did_you_mean(name, [*ALIASES, *METRICS])}") from None


def margin_words(margin: float, metric: str) -> str:
    """A margin in words: `3 %`, or for metrics that are shares `3 percentage points`."""
    return f"{100 * margin:.6g} {'percentage points' if METRICS[metric].unit == 'ratio' else '%'}"


def regret_words(regret: float, metric: str) -> str:
    """A bound in words, rounded up: above 10 % to a whole percent (`19 %`), else to a tenth (`4.4 %`)."""
    percent = 100 * regret
    up = math.ceil(percent - 1e-9) if percent > 10 else math.ceil(10 * percent - 1e-9) / 10
    return margin_words(up / 100, metric)


def metric_words(metric: str) -> str:
    """A metric's name as people say it: `goodput`, `response time p99`."""
    return metric.removesuffix("_per_s").replace("_ns_", " ").replace("_", " ")
