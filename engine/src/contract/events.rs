//! The engine's output: JSON Lines on stdout, one `LoadEvent` or `ProbeEvent` per line. All times are integer ns, and
//! instants are CLOCK_MONOTONIC; `hello` pairs one instant with the wall clock. Histograms are HdrHistogram V2-deflate
//! in base64, with 3 significant digits and values in ns from 1 to 3.6e12 (1 h; longer values are clamped).
//! Distributions of request times leave the engine only in this form: merge the histograms, never their quantiles.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{now_ns, wall_ns};
use crate::contract::outcome::Outcome;
use crate::contract::spec::PROTOCOL;

/// Requests by outcome; outcomes that did not occur are left out.
pub type Outcomes = BTreeMap<Outcome, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Warmup,
    Measure,
    Drain,
}

/// A line of `powerband-engine load`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum LoadEvent {
    Hello(Hello),
    /// The spec is accepted, addresses are resolved, threads stand ready: waiting for `go`.
    Armed {
        at_ns: u64,
    },
    /// A phase began.
    Phase {
        phase: Phase,
        at_ns: u64,
    },
    Interval(Interval),
    Summary(Box<Summary>),
    /// The run ended early or never began; nothing follows.
    Error(ErrorEvent),
}

/// First line of every engine process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    pub monotonic_ns: u64,
    /// Wall clock (ns since 1970) at the same instant as `monotonic_ns`.
    pub wall_ns: u64,
    /// This process's soft descriptor limit.
    pub descriptor_limit: u64,
}

impl Hello {
    pub fn now(descriptor_limit: u64) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            monotonic_ns: now_ns(),
            wall_ns: wall_ns(),
            descriptor_limit,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorEvent {
    /// `spec`, `limit`, `resolve`, `internal`, `launch`.
    pub kind: String,
    /// What, where, why, what to do next; one sentence or two.
    pub message: String,
}

impl ErrorEvent {
    pub fn new(kind: &str, message: impl Into<String>) -> ErrorEvent {
        ErrorEvent { kind: kind.into(), message: message.into() }
    }
}

/// What happened in one interval. Counts are events within [start, end); `*_now` are levels at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    pub start_ns: u64,
    pub end_ns: u64,
    pub phase: Phase,
    pub scheduled: u64,
    pub sent: u64,
    pub dropped: u64,
    /// Requests that ended in the interval.
    pub outcomes: Outcomes,
    pub in_flight_now: u64,
    pub connections_now: u64,
    pub users_now: u64,
    /// Over the `ok` requests that ended in the interval.
    pub response_time_ns_sum: u64,
    pub response_time_ns_max: u64,
    pub service_time_ns_sum: u64,
    /// Over the requests sent in the interval.
    pub send_lag_ns_max: u64,
    /// CPU that this engine process used in the interval, user and kernel.
    pub cpu_ns: u64,
    /// Response times of the `ok` requests since the last interval that carried one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<String>,
    /// With WebSockets only, as are the three that follow: users that have joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_now: Option<u64>,
    /// Users that had joined and lost their connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins_failed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<u64>,
}

/// The whole run, and its measured window, in numbers. Last line.
///
/// Two views of the window, each exact: `cohort` follows the requests *intended* within it to their end (times, outcomes);
/// `window` counts what *ended* within it, and what its edges cut (rates, Little's law).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub go_ns: u64,
    pub measure_start_ns: u64,
    pub measure_end_ns: u64,
    pub end_ns: u64,
    /// Everything since `go`: scheduled == sent + dropped; sent == sum of outcomes (`unfinished` included).
    pub total: Counts,
    /// Requests intended in the window: the same two equalities hold.
    pub cohort: Counts,
    pub cohort_times: Times,
    /// The same by step, in scenario order.
    pub steps: Vec<StepSummary>,
    pub window: Window,
    pub connections: Connections,
    /// CPU of the process from `measure_start_ns` to `measure_end_ns`.
    pub cpu_user_ns: u64,
    pub cpu_system_ns: u64,
    /// CPU of each engine thread over the window.
    pub thread_cpu_ns: Vec<u64>,
    pub max_rss_bytes: u64,
    /// Of the outcomes `status_rejected` of the whole run, and of the opening handshakes that were refused with a status: how many
    /// had which.
    #[serde(default)]
    pub rejected_statuses: BTreeMap<String, u64>,
    /// Why it ended: `time`, `work` (all users left), `drain`, `stop`, `deadline`, `interrupted`.
    pub ended_by: String,
    /// Absent without WebSockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket: Option<WebSocketSummary>,
}

/// What only users with WebSockets do: join, lose their connection, receive what they did not ask for. Of the whole run, unless a
/// field says otherwise. joins_started == joined + sum of joins_failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebSocketSummary {
    pub joins_started: u64,
    /// Those that were complete, `rejoined` included.
    pub joined: u64,
    /// Of users that had joined before.
    pub rejoined: u64,
    pub joins_failed: Outcomes,
    /// joined - intended, of all joins, as a histogram.
    pub join_time_ns: String,
    /// Users that had joined and lost their connection, by reason: `closed`, `reset`, `violation`, `heartbeat` (nothing came for as
    /// long as the server said that nothing may), `timeout` (the engine closed after a request timed out).
    pub drops: BTreeMap<String, u64>,
    /// Close frames with which servers ended connections, by code; `none`: without one. Answers to the engine's own are not counted.
    pub close_codes: BTreeMap<String, u64>,
    /// Whole messages; control frames and what belongs to joining are none.
    pub messages_received: u64,
    pub unsolicited: u64,
    /// Messages that answered nothing, and were neither unsolicited nor deliveries.
    pub unmatched: u64,
    /// Messages sent that held `{stamp}`.
    pub published: u64,
    pub delivered: u64,
    /// delivered - sent, of deliveries of messages sent within the measured window, as a histogram.
    pub delivery_time_ns: String,
    /// Messages with `{stamp}` sent within the window, and how often such were delivered, whenever that was.
    pub published_in_window: u64,
    pub delivered_in_window: u64,
    /// The highest count that answers told, by label.
    pub tallies: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    pub scheduled: u64,
    pub sent: u64,
    pub dropped: u64,
    pub outcomes: Outcomes,
}

/// Histograms (base64 V2-deflate); empty ones are present too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// done - intended, of `ok` requests.
    pub response_time_ns: String,
    /// done - sent, of `ok` requests.
    pub service_time_ns: String,
    /// done - intended, of all other outcomes.
    pub failed_time_ns: String,
    /// sent - intended, of all sent requests.
    pub send_lag_ns: String,
    /// given up - intended, of dropped work.
    pub dropped_wait_ns: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSummary {
    pub name: String,
    pub outcomes: Outcomes,
    pub response_time_ns: String,
    pub service_time_ns: String,
}

/// What ended between `measure_start_ns` and `measure_end_ns`, whenever it was intended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub outcomes: Outcomes,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Sum of done - intended over all that ended, ok or not.
    pub time_in_system_ns_sum: u64,
    /// Sum of the pauses that ended within the window.
    pub think_ns_sum: u64,
    /// Time integral over the window of users present (open model: of arrivals that are not over), in user-ns; divided
    /// by its length: N. Little's law, N = X (R + Z), is exact with what the edges cut: times the requests that a user
    /// keeps in flight, it equals `time_in_system_ns_sum + think_ns_sum - carried_in_ns_sum + carried_out_ns_sum`. What users with
    /// WebSockets wait for a connection counts as a pause. With a `pace` there is no such law: their schedule waits for no answer.
    pub user_ns: u64,
    /// The requests in flight and the pauses under way when the window began: the sum of their ages at that instant.
    pub carried_in_ns_sum: u64,
    /// The same when the window ended.
    pub carried_out_ns_sum: u64,
    /// Requests intended before the window and still without an answer when it ended.
    pub unanswered: u64,
    /// Users (closed model) who had no `ok` answer within the window although a request of theirs was in flight all through
    /// it, or failed in it and was tried again in vain. Open model: 0.
    pub users_unserved: Option<u64>,
    /// The requests of the cohort that are theirs.
    pub users_unserved_requests: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    pub opened: u64,
    pub failed: u64,
    pub closed_by_peer: u64,
    pub open_max: u64,
    /// Time to connect (TCP, and TLS where used), as a histogram.
    pub connect_time_ns: String,
}

/// A line of `powerband-engine probe`. Counters are cumulative since the tree was first seen unless they say `_now`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProbeEvent {
    Hello(Hello),
    Launched {
        name: String,
        pid: i32,
        at_ns: u64,
    },
    Sample(Box<Sample>),
    Threads(Threads),
    Jvm(Jvm),
    Scrape(Scrape),
    /// The subject's metrics page could not be read this time; it is asked again at the next point of the grid.
    ScrapeFailed {
        at_ns: u64,
        took_ns: u64,
        /// What was wrong, as the end of a sentence.
        reason: String,
    },
    Statsd(Statsd),
    Exited(Exited),
    /// Last line, after a last sample. `killed`: processes of the launched tree that had to be killed after the grace.
    /// `cpu_ns`: CPU of the probe itself. `samples_late`: points of the sampling grid that were missed altogether or
    /// met more than half a period late. `log_bytes`: printed by the launched command; `log_dropped_bytes`: of them, those
    /// that were not kept.
    End {
        at_ns: u64,
        killed: u32,
        cpu_ns: u64,
        samples: u64,
        samples_late: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_bytes: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_dropped_bytes: Option<u64>,
    },
    Error(ErrorEvent),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    pub at_ns: u64,
    pub trees: Vec<TreeSample>,
    pub host: HostSample,
}

/// One process tree, all its processes added up. With more than 64 threads, faults, voluntary and
/// involuntary switches and run-queue wait are read once a second (less often where that would cost over 1 % of a core)
/// and repeated unchanged in between.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeSample {
    pub name: String,
    pub processes_now: u32,
    pub threads_now: u32,
    /// Threads created since the tree was first seen, exited ones included; absent where the kernel does not tell.
    pub threads_started: Option<u64>,
    /// CPU of all threads, exited ones included.
    pub cpu_user_ns: u64,
    pub cpu_system_ns: u64,
    pub rss_bytes_now: u64,
    /// Proportional set size; sampled once a second (it is dear), repeated in between; absent where not permitted.
    pub pss_bytes_now: Option<u64>,
    /// Exact, exited threads included (perf); absent where perf is not permitted.
    pub context_switches: Option<u64>,
    /// Sums over the threads alive at the sample plus the last seen values of the exited.
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Time runnable but waiting for a CPU, live threads plus last seen values of the exited.
    pub run_wait_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub descriptors_now: u32,
    /// How many more the process that is nearest to its limit may open; absent where the kernel does not tell.
    pub descriptors_left_now: Option<u64>,
    /// How many more threads its users, its cgroups and the machine allow, and how much more memory its cgroups; once a
    /// second, repeated in between; absent where there is no limit or none that is known.
    pub threads_left_now: Option<u64>,
    pub memory_left_bytes_now: Option<u64>,
    /// Counted once a second (less often with thousands of descriptors), repeated in between.
    pub sockets_now: u32,
    /// The CPUs that the narrowest quota of its cgroups allows on average; absent where there is none.
    pub cpu_quota_now: Option<f64>,
    /// Periods of that quota since the cgroup was made in which it ran, and those in which it had used the quota up and
    /// was stopped until the next.
    pub quota_periods: Option<u64>,
    pub throttled_periods: Option<u64>,
}

/// CPU times are those of the CPUs in the spec's `host_cpus`; everything else is the whole host's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSample {
    pub cpu_busy_ns: u64,
    pub cpu_idle_ns: u64,
    pub cpu_steal_ns: u64,
    pub context_switches: u64,
    pub forks: u64,
    pub runnable_now: u32,
    pub load_average_1m: f64,
    pub memory_available_bytes_now: u64,
    /// PSI totals (`some`), ns; absent where the kernel has no PSI.
    pub psi_cpu_some_ns: Option<u64>,
    pub psi_memory_some_ns: Option<u64>,
    pub psi_io_some_ns: Option<u64>,
    /// TcpExt ListenOverflows and ListenDrops of the host (network namespace).
    pub listen_overflows: u64,
    pub listen_drops: u64,
    /// Connections waiting in the accept queues of the watched ports, and those queues' limit.
    pub accept_queue_now: u32,
    pub accept_queue_limit: u32,
}

/// Threads by pool, once a second, and more often in short trials (`threads_interval_ns`; pool: the thread name without
/// its trailing number).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    pub at_ns: u64,
    pub tree: String,
    pub pools: Vec<PoolSample>,
    /// Those that ran since the last event, the busiest first, 64 at most.
    #[serde(default)]
    pub threads: Vec<ThreadSample>,
}

/// One thread; counters are its own since it was first met. `blocked_on_samples`: as a pool's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadSample {
    pub tid: i32,
    /// As the kernel knows it, 15 bytes at most.
    pub name: String,
    pub on_cpu_ns: u64,
    pub run_wait_ns: u64,
    pub switches: u64,
    /// 0 in events of older engines, as all that follow.
    #[serde(default)]
    pub pid: i32,
    /// The name of its pool.
    #[serde(default)]
    pub pool: String,
    #[serde(default)]
    pub preemptions: u64,
    #[serde(default)]
    pub blocked_ns: u64,
    #[serde(default)]
    pub blocked_on_samples: BTreeMap<WaitKind, u64>,
}

/// One JVM of a launched tree, four times a second, as it tells of itself in its hsperfdata file. Heap figures are as fresh as
/// the JVM keeps them: see docs/methods/process-counters.md.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jvm {
    pub at_ns: u64,
    pub tree: String,
    pub pid: i32,
    pub heap_used_bytes_now: u64,
    pub heap_committed_bytes_now: u64,
    /// What its old generation may still take; absent where the JVM does not tell.
    pub heap_left_bytes_now: Option<u64>,
    pub collectors: Vec<Collector>,
    /// Time in which all its threads were stopped; absent where the JVM does not tell.
    pub safepoint_ns: Option<u64>,
    /// Time that its compilers spent on methods that are done, all their threads added up; absent where it does not tell.
    pub compile_ns: Option<u64>,
    pub threads_live_now: u64,
    pub threads_daemon_now: u64,
    pub threads_peak: u64,
    pub threads_started: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Collector {
    pub name: String,
    pub count: u64,
    pub time_ns: u64,
}

/// One reading of the subject's metrics page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrape {
    /// When it was asked for.
    pub at_ns: u64,
    pub took_ns: u64,
    /// Of the series asked for, those that have a finite value: `name{label="value"}` as on the page.
    pub values: BTreeMap<String, f64>,
}

/// What the StatsD sink has taken in; every number is since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statsd {
    pub at_ns: u64,
    /// By the name that a Prometheus page would have for it: `name_total{tag="value"}` of a counter, `name` of a gauge and of a
    /// set (its distinct values), `name_count`, `name_sum` and `name_max` of a timer, histogram or distribution.
    pub values: BTreeMap<String, f64>,
    /// Datagrams read, and their length.
    pub packets: u64,
    pub bytes: u64,
    /// Values accepted; sample rates are not applied.
    pub updates: u64,
    /// Lines refused.
    pub malformed: u64,
    /// Datagrams that the kernel threw away because the UDP socket's buffer was full. A Unix socket drops none: its sender waits,
    /// or is refused.
    pub dropped: u64,
}

/// `on_cpu + run_wait + blocked` of a pool's live threads equals their lifetime (since the tree was first seen); counters are sums over threads alive
/// now plus the last seen values of threads of this pool that exited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSample {
    pub pool: String,
    pub threads_now: u32,
    pub on_cpu_ns: u64,
    pub run_wait_ns: u64,
    pub blocked_ns: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Threads by kernel state letter at the sample (R, S, D, ...).
    pub states_now: BTreeMap<String, u32>,
    /// For sleeping threads: what they wait on, by kernel wait channel where readable.
    pub wait_channels_now: BTreeMap<String, u32>,
    /// Observations of a blocked thread since the start, by what it waited on: each reading of the threads (at every sample
    /// with up to 64 threads in the tree, else once a second or less often) adds one for each thread that it finds
    /// blocked. A kind's growth over the growth of all is its share of the blocked time. Empty where the kernel does not tell.
    #[serde(default)]
    pub blocked_on_samples: BTreeMap<WaitKind, u64>,
    /// The largest time on a CPU that one thread of the pool gained since the last `threads` event: the busiest thread.
    #[serde(default)]
    pub on_cpu_ns_max: u64,
}

/// What a blocked thread waits on, by its system call, or by its wait channel where that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// A futex: a lock, or a condition (an idle thread of a pool waits for work there, too).
    Lock,
    Sleep,
    /// To receive, send, connect or accept on one socket; polling a single one included.
    Socket,
    /// For any of several descriptors: an event loop without work.
    Poll,
    Disk,
    /// A page fault, or a call that changes the memory map (both take its lock).
    Memory,
    /// Pipes, children, signals, terminals, devices.
    Other,
}

/// The launched process ended (its tree may live on until `end`). rusage covers it and its waited-for children, exactly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exited {
    pub name: String,
    pub at_ns: u64,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Whether `stop` had been asked for.
    pub asked: bool,
    pub cpu_user_ns: u64,
    pub cpu_system_ns: u64,
    pub max_rss_bytes: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}
