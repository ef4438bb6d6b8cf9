"""The metrics of one trial: name, unit, source and meaning of each.

The metrics of a trial are a mapping from these names to floats; a metric that could not be measured is absent, never 0.
Objectives, claims, tables and plots use exactly these names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import add

from powerband.base.errors import did_you_mean


@dataclass(frozen=True)
class Metric:
    """One measured quantity. `name`: as in objectives and results; `help`: its meaning, in one clause. `unit`: `per_s`,
    `ns`, `s`, `ratio`, `bytes`, `count`, `cores` or `per_request`. `source`: the part of a trial's evidence that it is
    computed from (`readings/evidence.py`); `search` for the result of a capacity search, `own` for a metric of the
    server's own. `better`: `maximise` if more of it is better, `minimise` if less is; None if that depends, as of the
    server's own. `of_whole`: True for a ratio that is a share of a whole, so that 1 is all of it."""

    name: str
    unit: str
    source: str
    help: str
    better: str | None = None
    of_whole: bool = False

    @property
    def needs_load(self) -> bool:
        """True if it describes requests, users or load engines, so that a no-load server never has it."""
        return self.name in _OF_A_LOAD or (self.source in _LOAD_SOURCES and self.name not in _OF_A_COUNTER)


_LOAD_SOURCES = ("load", "users", "burst", "slots")
_OF_A_LOAD = ("engine_run_wait_cores", "engine_run_wait_ns_mean", "finish_s")  # from other sources
_OF_A_COUNTER = ("goodput_per_s", "achieved_rate_per_s", "burst_goodput_per_s", "burst_accept_overflows")


# One metric a line: name | unit | better | source | help. `better`: whether more or less of it is better, `-` if that
# depends. `share` is a ratio that is a share of a whole. A name with braces stands for several that share one help.
_TABLE = """\
goodput_per_s | per_s | more | load | requests answered correctly per second; of a program without requests the growth
  of its counter; of users who never pause users / mean response time
capacity_per_s | per_s | more | search | highest Poisson rate at which the SLO holds; an objective only
achieved_rate_per_s | per_s | more | load | requests ended per second, whatever their outcome
offered_rate_per_s | per_s | - | load | requests scheduled per second
error_rate | share | less | load | share of requests that did not end ok; includes dropped work and users_unserved
run_error_rate | share | less | load | share of all requests since the start that did not end ok, or had no answer
  after the drain
dropped_rate | share | less | load | share of scheduled work that was never sent (in-flight bound)
response_time_ns_{mean,p50,p90,p95,p99,p999,max} | ns | less | load | from scheduled send to completion; percentiles
  and max are of all due requests
response_time_ns_{p50,p90,p95,p99,p999}_low | ns | less | load | 95 % interval within a trial
response_time_ns_{p50,p90,p95,p99,p999}_high | ns | less | load | 95 % interval within a trial
service_time_ns_{mean,p50,p90,p95,p99,p999,max} | ns | less | load | from actual send to completion
connect_time_ns_p99 | ns | less | load | time to connect
send_lag_ns_p99 | ns | less | load | from scheduled to actual send: the load generator's delay
subject_cpu_cores | cores | less | probe | CPU of the server's process tree
subject_cpu_share | share | - | probe | subject_cpu_cores as a share of the CPUs that the server may use (pinning,
  quota)
cpu_quota_cores | cores | - | probe | CPUs that the narrowest quota of the server's cgroups allows
cpu_throttled_share | share | - | probe | share of that quota's periods in which it was used up
subject_cpu_ns_per_request | ns | less | probe | CPU of the server per ended request
subject_cpu_system_share | share | - | probe | kernel share of the server's CPU
gc_cpu_share | share | less | pools | share of the server's CPUs that its garbage collectors used
thread_cpu_share_max | share | - | pools | CPU share of the server's busiest thread
rss_bytes_max | bytes | less | probe | largest resident set of the process tree
pss_bytes_max | bytes | less | probe | largest proportional set size
threads_max | count | less | probe | most threads at once
threads_mean | count | less | probe | mean threads
threads_started_per_s | per_s | less | probe | threads created per second
processes_added | count | less | probe | processes by which the server grew under load, until the end of the window
context_switches_per_s | per_s | less | probe | context switches per second, exited threads included
context_switches_per_request | per_request | less | probe | context switches per ended request
involuntary_switch_share | share | - | probe | share of involuntary switches
run_wait_cores | cores | less | probe | mean threads runnable without a CPU
descriptors_max | count | less | probe | most open descriptors
memory_growth_bytes_per_s | bytes | less | growing | growth of anonymous memory (RssAnon; of a JVM: of the heap after
  collections); 0 unless it grew all through the window
{threads,descriptors,queue}_growth_per_s | per_s | less | growing | growth of threads, descriptors, requests in flight
  (open load); 0 unless all through the window
memory_lasts_s | s | more | growing | time until memory (machine, cgroup, JVM heap) is full at that pace
{threads,descriptors}_lasts_s | s | more | growing | time until their limit is reached at that pace
page_faults_per_s | per_s | less | probe | minor and major faults per second
accept_overflows | count | less | probe | connections refused by a full accept queue (host counter)
services_cpu_cores | cores | - | probe | CPU of what was started beside the server (a database, a link in user space)
link_{dropped,missed} | count | - | link | packets that the link's full queue dropped, that a link in user space was
  too slow for
link_late_ns_p99 | ns | less | link | how late a link in user space let packets go
engine_cpu_cores | cores | - | load | CPU of all engine processes
engine_cpu_share_max | share | - | load | CPU share of the busiest engine thread
engine_run_wait_cores | cores | - | probe | mean engine threads runnable without a CPU, as on the worst node
engine_run_wait_ns_mean | ns | less | probe | engine threads' mean wait for CPU, worst node
engine_cpu_ns_per_request | ns | less | load | CPU of the engine per ended request
host_steal_share | share | - | probe | share of CPU time taken by the hypervisor
host_foreign_cores | cores | - | probe | CPU used on the trial's CPUs by other programs
held_up_share_max | share | - | machine | largest share of the window that others can have cost
quiet_s | s | - | machine | seconds in which others hardly ran; both rates of a disturbed trial are of these
quiet_held_up_share_max | share | - | machine | largest share of these that others can have cost
window_{goodput,achieved_rate}_per_s | per_s | more | machine | the rates of a disturbed trial over its whole window
host_awake_cores | cores | - | probe | CPU of the idle-priority loops of `host.awake`; idle in all other figures
host_busy_share | share | - | probe | share of the trial's CPUs in use
psi_{cpu,memory,io}_share | share | - | probe | share of time in which a task of the host waited for it (PSI)
users_mean | count | - | users | mean users present (closed load)
users_unserved | count | less | users | users without an ok answer in the whole window though one was due (closed load)
users_unserved_share | share | less | users | users_unserved as a share of the users present
in_flight_mean | count | - | users | mean requests in flight
littles_law_deviation | ratio | - | users | |N - X (R + Z)| / N, the window's edges counted (closed load)
join_time_ns_{mean,p50,p99,max} | ns | less | users | from a WebSocket user's scheduled start to joined
join_error_rate | share | less | users | share of ended joins that failed, since the start
joined_users | count | more | users | mean users that hold a WebSocket
drops | count | less | users | connections lost by joined users, since the start
drop_rate | share | less | users | drops as a share of completed joins
rejoins | count | - | users | joins of users who had joined before (load.websocket.rejoin_after)
delivery_time_ns_{mean,p50,p99,max} | ns | less | users | from the writing of a message to its arrival at a subscriber
delivered_share | ratio | more | users | deliveries over stamped messages x joined users (load.websocket.stamp_after)
tally_missing | count | less | users | messages sent less those that the server counted (load.websocket.tally)
ready_s | s | less | trial | from launch to ready
finish_s | s | less | trial | from the start of the load to its last answer (load.requests_per_user)
rate_counter_window_per_s_mean | per_s | more | rate_counter | mean and standard deviation of windows of 3 s since the
  first answer
rate_counter_window_per_s_sd | per_s | - | rate_counter | mean and standard deviation of windows of 3 s since the first
  answer
rate_counter_per_s_last | per_s | more | rate_counter | mean rate since the first answer, warm-up included
bar_rate_per_s_{min,max} | per_s | more | bars | lowest, highest rate of a bar (measure.bars)
bar_cpu_cores_{min,max} | cores | - | bars | lowest, highest subject_cpu_cores of a bar
bar_gc_share_max | ratio | less | bars | highest jvm_gc_share of a bar; a collection counts when it is over
visits | count | - | visits | visits of the browser's page (measure.visitor)
visits_failed | count | less | visits | visits of the browser's page without an answer
visit_time_ns_{p50,p90,max} | ns | less | visits | duration of a visit, as the page saw it
acknowledge_ns_p50 | ns | less | acknowledged | from a write to its acknowledgement (measure.acknowledged)
visible_delay_ns_{p50,p90,max} | ns | less | acknowledged | from an acknowledgement to the first read that saw all of
  the write
missing_at_acknowledgement_{mean,max} | count | less | acknowledged | what the first read after an acknowledgement
  missed
burst_goodput_per_s | per_s | more | burst | goodput of the first moments (measure.burst)
burst_error_rate | share | less | burst | error rate of the first moments
burst_accept_overflows | count | less | burst | connections refused by a full accept queue in the first moments
burst_response_time_ns_{mean,p50,p90,p95,p99,p999,max} | ns | less | burst | response time in the first moments
jvm_heap_used_bytes_{max,mean} | bytes | less | jvm | heap in use, as the JVM last reported (some do after collections
  only)
jvm_heap_committed_bytes_{max,before} | bytes | less | jvm | heap taken from the system: most, when the load began
jvm_gc_share | share | less | jvm | share of the window that collections took; of several JVMs the largest
jvm_gc_per_s | per_s | - | jvm | collections per second
jvm_compile_share | ratio | - | jvm | time of JVM compilers per second; two at once count twice
jvm_safepoint_share | share | - | jvm | share of the window with all Java threads stopped; of several JVMs the largest
jvm_threads_live_max | count | less | jvm | most live Java threads
jvm_threads_started_per_s | per_s | less | jvm | Java threads started per second
dotnet_gc_share | share | less | dotnet | share of the window in which collections stopped all .NET threads; of several
  processes the largest
dotnet_gc{,_gen2}_per_s | per_s | - | dotnet | collections per second, those of generation 2
dotnet_heap_bytes_max | bytes | less | dotnet | most heap in use, with what is not collected yet
dotnet_allocated_bytes_per_s | bytes | - | dotnet | bytes allocated per second
dotnet_pool_threads_max | count | - | dotnet | most threads of .NET's pool
dotnet_pool_growth_per_s | per_s | less | dotnet | growth of that pool; below 0 it shrank
dotnet_pool_{busy,blocked}_mean | count | - | dotnet | mean pool threads with a work item, those of them that neither
  run nor wait for a CPU
dotnet_pool_queue_mean | count | - | dotnet | mean work items that wait for a pool thread
dotnet_work_items_per_s | per_s | - | dotnet | work items done per second
dotnet_lock_contentions_per_s | per_s | - | dotnet | waits for a lock per second (`lock`, `Monitor`)
jvm_live_{,growth_}bytes | bytes | less | heap | live heap right after the window, less that before it
  (measure.snapshots)
slots | count | more | slots | requests served at once: rate of all users x time of one user alone (measure.slots)
slots_{low,high} | count | - | slots | its 95 % interval
alone_time_ns_mean | ns | less | slots | request time of one user alone
prompt_time_ns_mean | ns | less | slots | request time of one user alone who acknowledges each part of an answer at once
doubled_users_rate_per_s | per_s | more | slots | goodput with twice the users
doubled_users_gain | ratio | more | slots | doubled_users_rate_per_s over goodput: near 1 where more load gains nothing
bench_cpu_cores | cores | - | trial | CPU of powerband itself, load generator apart
"""


# How people say a metric's name where the name alone does not read well: name | words. With braces on both sides, each
# name has the words of the same place.
_WORDS_TABLE = """\
run_error_rate | error rate since the start
dropped_rate | share of work never sent
response_time_ns_{p50,p90,p95,p99,p999}_low | lower end of response time {p50,p90,p95,p99,p99.9}
response_time_ns_{p50,p90,p95,p99,p999}_high | upper end of response time {p50,p90,p95,p99,p99.9}
send_lag_ns_p99 | send delay p99
subject_cpu_cores | CPUs used by the server
subject_cpu_share | used share of the server's CPUs
cpu_quota_cores | CPU quota of the server
cpu_throttled_share | throttled share of the CPU quota's periods
subject_cpu_ns_per_request | CPU time per request
subject_cpu_system_share | kernel share of the server's CPU time
gc_cpu_share | CPU share of garbage collectors
thread_cpu_share_max | CPU share of the busiest thread
rss_bytes_max | memory
pss_bytes_max | memory (PSS)
involuntary_switch_share | share of involuntary switches
run_wait_cores | threads waiting for a CPU
descriptors_max | most open descriptors
memory_growth_bytes_per_s | memory growth per second
{threads,descriptors,queue}_growth_per_s | growth of {threads,open descriptors,requests in flight}
memory_lasts_s | time until memory is full
{threads,descriptors}_lasts_s | time until the limit of {threads,open descriptors}
{,burst_}accept_overflows | connections refused{, in the burst}
services_cpu_cores | CPUs used by services
link_{dropped,missed} | packets {dropped,missed} by the link
link_late_ns_p99 | lateness of the link p99
engine_cpu_cores | CPUs used by the load generator
engine_cpu_share_max | CPU share of the load generator's busiest thread
engine_run_wait_cores | load generator's threads waiting for a CPU
engine_run_wait_ns_mean | mean wait of the load generator for a CPU
engine_cpu_ns_per_request | load generator's CPU time per request
host_steal_share | CPU share taken by the hypervisor
host_foreign_cores | CPUs used by other programs
{,quiet_}held_up_share_max | share of {the window,quiet time} lost to others
quiet_s | quiet time
window_{goodput,achieved_rate}_per_s | {goodput,achieved rate} of the whole window
host_awake_cores | CPUs kept awake
host_busy_share | used share of the trial's CPUs
psi_{cpu,memory,io}_share | share of time waiting for {a CPU,memory,I/O}
users_unserved{,_share} | {,share of }users never served
in_flight_mean | mean requests in flight
littles_law_deviation | deviation from Little's law
drops | lost connections
drop_rate | lost connections per join
delivered_share | share of messages delivered
tally_missing | messages missing in the server's count
ready_s | time until ready
finish_s | time to finish
rate_counter_window_per_s_{mean,sd} | {mean,standard deviation} of the rate counter's windows
rate_counter_per_s_last | last rate of the rate counter
bar_rate_per_s_{min,max} | {lowest,highest} rate of a bar
bar_cpu_cores_{min,max} | {fewest,most} CPUs used in a bar
bar_gc_share_max | highest collection share of a bar
visits_failed | failed visits
acknowledge_ns_p50 | time to acknowledge p50
visible_delay_ns_{p50,p90,max} | {,,maximum }delay until visible{ p50, p90,}
missing_at_acknowledgement_{mean,max} | {mean,most} missing at the acknowledgement
jvm_heap_used_bytes_{max,mean} | {most,mean} Java heap in use
jvm_heap_committed_bytes_{max,before} | {most committed Java heap,committed Java heap before the load}
jvm_gc_share | share of time in Java's collections
jvm_gc_per_s | Java's collections
jvm_compile_share | compile time of the JVM per second
jvm_safepoint_share | share of time in JVM safepoints
jvm_threads_live_max | most live Java threads
jvm_threads_started_per_s | Java threads started
dotnet_gc_share | share of time in .NET's collections
dotnet_gc{,_gen2}_per_s | .NET's {,generation 2 }collections
dotnet_heap_bytes_max | most .NET heap in use
dotnet_allocated_bytes_per_s | bytes allocated by .NET per second
dotnet_pool_threads_max | most threads of .NET's pool
dotnet_pool_growth_per_s | growth of .NET's pool
dotnet_pool_{busy,blocked}_mean | mean {busy,blocked} threads of .NET's pool
dotnet_pool_queue_mean | mean work items waiting for .NET's pool
dotnet_work_items_per_s | work items of .NET
dotnet_lock_contentions_per_s | waits for a .NET lock
jvm_live_{,growth_}bytes | {,growth of the }live Java heap
slots | requests served at once
slots_{low,high} | {lower,upper} end of requests served at once
{alone,prompt}_time_ns_mean | request time of one user alone{, who acknowledges at once}
doubled_users_{rate_per_s,gain} | {goodput,gain} with twice the users
bench_cpu_cores | CPUs used by powerband
"""


def _each(text: str) -> list[str]:
    """`a{b,c}d{,e}` stands for `abd` and `acde`; text without braces for itself."""
    parts = re.split(r"\{(.*?)\}", text)
    choices = zip(*(part.split(",") for part in parts[1::2]), strict=True)
    return ["".join(map(add, parts[::2], (*choice, ""))) for choice in choices] or [text]


_UNIT = {"share": "ratio"}
_BETTER = {"more": "maximise", "less": "minimise", "-": None}


def _metrics() -> Iterator[Metric]:
    for row in _TABLE.replace("\n  ", " ").splitlines():
        names, unit, better, source, meaning = row.split(" | ", 4)
        for name in _each(names):
            yield Metric(name, _UNIT.get(unit, unit), source, meaning, _BETTER[better], unit == "share")


_WORDS: dict[str, str] = dict(
    pair for row in _WORDS_TABLE.splitlines() for pair in zip(*map(_each, row.split(" | ")), strict=True)
)


# The server's own metrics, which an experiment defines (`measure.metrics`), have names that begin so.
OWN = "app_"
_OWN_UNITS = {"_per_s": "per_s", "_s": "s", "_ns": "ns", "_share": "ratio", "_ratio": "ratio", "_bytes": "bytes"}


class _Registry(dict[str, Metric]):
    """Metrics by name; one of the server's own is made from its name, whose end says the unit."""

    def __missing__(self, name: str) -> Metric:
        if not name.startswith(OWN):
            raise KeyError(name)
        unit = next((unit for end, unit in _OWN_UNITS.items() if name.endswith(end)), "count")
        about = "the server's own, as the experiment defines it"
        return Metric(name, unit, "own", about, of_whole=name.endswith("_share"))


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


_FIRST = {"mean": "mean", "max": "maximum"}  # ends of names that come first in words


def metric_words(metric: str) -> str:
    """A metric's name as people say it: `goodput`, `response time p99`, `CPUs used by the server`; one of the server's
    own as the experiment writes it."""
    if metric.startswith(OWN) or metric in _WORDS:
        return _WORDS.get(metric, metric)
    text = metric.removesuffix("_per_s").replace("_ns_", " ").replace("_", " ").replace("p999", "p99.9")
    stem, _, end = text.rpartition(" ")
    return f"{_FIRST[end]} {stem}" if end in _FIRST else text
