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

/// The phase of a run; each interval is of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Warmup,
    Measure,
    Drain,
}

/// A line that `powerband-engine load` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum LoadEvent {
    Hello(Hello),
    /// The spec is accepted, addresses are resolved and threads are ready: the engine waits for `go`.
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
    /// The run ended early or never began. Nothing follows.
    Error(ErrorEvent),
}

/// The first line of every engine process: the `protocol` that it speaks, its `version`, its process id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    pub monotonic_ns: u64,
    /// Wall clock (ns since 1970) at the same instant as `monotonic_ns`.
    pub wall_ns: u64,
    /// The number of descriptors that this process may open (its soft limit).
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

/// An engine ends early, or cannot begin, and says why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorEvent {
    /// The kind of error: `spec`, `limit`, `resolve`, `internal` or `launch`.
    pub kind: String,
    /// One or two sentences: what is wrong, where, why, and what to do next.
    pub message: String,
}

impl ErrorEvent {
    pub fn new(kind: &str, message: impl Into<String>) -> ErrorEvent {
        ErrorEvent { kind: kind.into(), message: message.into() }
    }
}

/// The load in one interval. Counts are events within [start, end): `scheduled` requests became due. `*_now` are levels
/// at its end: requests without an answer, open connections, users present (open model: arrivals under way).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    pub start_ns: u64,
    pub end_ns: u64,
    pub phase: Phase,
    pub scheduled: u64,
    pub sent: u64,
    /// Requests that became due and were given up unsent.
    pub dropped: u64,
    /// Number of requests that ended in the interval, by outcome.
    pub outcomes: Outcomes,
    pub in_flight_now: u64,
    pub connections_now: u64,
    pub users_now: u64,
    /// Sum of done - scheduled over the `ok` requests that ended in the interval.
    pub response_time_ns_sum: u64,
    /// Longest done - scheduled of the `ok` requests that ended in the interval.
    pub response_time_ns_max: u64,
    /// Sum of done - sent over the `ok` requests that ended in the interval.
    pub service_time_ns_sum: u64,
    /// Longest lag of a request sent in the interval, measured as in `send_lag_ns` of the summary.
    pub send_lag_ns_max: u64,
    /// CPU time that this engine process used in the interval, user and kernel.
    pub cpu_ns: u64,
    /// Histogram of done - scheduled of the `ok` requests since the last interval that carried a histogram. Absent in
    /// the intervals between two that carry one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<String>,
    /// Number of users that have joined over their WebSocket. Absent without WebSockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_now: Option<u64>,
    /// Number of users that had joined and lost their connection. Absent without WebSockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
    /// Number of joins that failed. Absent without WebSockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins_failed: Option<u64>,
    /// Number of deliveries received: messages that tell when they were sent. Absent without WebSockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<u64>,
}

/// The last line: counts and times of the whole run and of its measured window.
///
/// There are two views of the window, each exact: `cohort` follows the requests *scheduled* within it to their end
/// (times, outcomes); `window` counts what *ended* within it, and the parts that its edges cut off (rates, Little's
/// law).
///
/// `go_ns`, `end_ns`: when the run began and ended; `measure_start_ns`, `measure_end_ns`: when the window did;
/// `max_rss_bytes`: the largest resident memory of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub go_ns: u64,
    pub measure_start_ns: u64,
    pub measure_end_ns: u64,
    pub end_ns: u64,
    /// All requests since `go`: scheduled == sent + dropped; sent == sum of outcomes (`unfinished` included).
    pub total: Counts,
    /// The requests scheduled in the window; both equations of `total` hold for them, too.
    pub cohort: Counts,
    /// Times of the requests scheduled in the window.
    pub cohort_times: Times,
    /// The requests scheduled in the window by step, in scenario order.
    pub steps: Vec<StepSummary>,
    pub window: Window,
    pub connections: Connections,
    /// User CPU time of the process from `measure_start_ns` to `measure_end_ns`.
    pub cpu_user_ns: u64,
    /// Kernel CPU time of the process from `measure_start_ns` to `measure_end_ns`.
    pub cpu_system_ns: u64,
    /// CPU time of each engine thread over the window, user and kernel.
    pub thread_cpu_ns: Vec<u64>,
    pub max_rss_bytes: u64,
    /// Number of rejected responses of the whole run, by HTTP status: those with the outcome `status_rejected`, and
    /// refusals of opening handshakes that had a status.
    #[serde(default)]
    pub rejected_statuses: BTreeMap<String, u64>,
    /// Number of accepted responses of the whole run that redirect elsewhere (301, 302, 303, 307, 308); none are
    /// followed.
    #[serde(default)]
    pub redirects: u64,
    /// The reason why the run ended: `time`, `work` (all users left), `drain`, `stop`, `deadline` or `interrupted`.
    pub ended_by: String,
    /// Counts of users with WebSockets; absent without WebSockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket: Option<WebSocketSummary>,
}

/// Counts that only users with WebSockets have: joins, lost connections, messages that they did not ask for. They cover
/// the whole run unless a field says otherwise. joins_started == joined + sum of joins_failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebSocketSummary {
    pub joins_started: u64,
    /// Joins that were completed, `rejoined` included.
    pub joined: u64,
    /// Completed joins of users that had joined before.
    pub rejoined: u64,
    /// Failed joins, by outcome.
    pub joins_failed: Outcomes,
    /// Histogram of joined - scheduled of all completed joins.
    pub join_time_ns: String,
    /// Number of users that had joined and lost their connection, by reason: `closed`, `reset`, `violation`,
    /// `heartbeat` (the server was silent for longer than it had announced), `timeout` (a request timed out, and the
    /// engine closed the connection).
    pub drops: BTreeMap<String, u64>,
    /// Number of close frames with which servers ended connections, by code; `none`: a frame without a code. Answers to
    /// the engine's own close frames are not counted.
    pub close_codes: BTreeMap<String, u64>,
    /// Whole messages received, without control frames and the messages of joining.
    pub messages_received: u64,
    /// Received messages that the spec or the dialect marks as unsolicited.
    pub unsolicited: u64,
    /// Received messages that answered nothing, and were neither unsolicited nor deliveries.
    pub unmatched: u64,
    /// Sent messages that contained `{stamp}`.
    pub published: u64,
    /// Deliveries received: messages that tell when they were sent.
    pub delivered: u64,
    /// Histogram of delivered - sent, of deliveries of messages that were sent within the measured window.
    pub delivery_time_ns: String,
    /// Messages with `{stamp}` sent within the window.
    pub published_in_window: u64,
    /// Deliveries of messages that were sent within the window, whenever they arrived.
    pub delivered_in_window: u64,
    /// The highest count in any answer, by label.
    pub tallies: BTreeMap<String, u64>,
}

/// Counts of requests. `dropped`: those that became due and were given up unsent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    pub scheduled: u64,
    pub sent: u64,
    pub dropped: u64,
    pub outcomes: Outcomes,
}

/// Histograms of times (base64 of HdrHistogram V2-deflate), present even if empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// done - scheduled, of `ok` requests.
    pub response_time_ns: String,
    /// done - sent, of `ok` requests.
    pub service_time_ns: String,
    /// done - scheduled, of requests with any other outcome.
    pub failed_time_ns: String,
    /// sent - scheduled, of all sent requests. If a message with a `pace` had to wait for answers to others, sent - the
    /// instant from which it could be sent.
    pub send_lag_ns: String,
    /// given up - scheduled, of dropped requests.
    pub dropped_wait_ns: String,
}

/// The outcomes of one step of the scenario, and histograms of its `ok` requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSummary {
    pub name: String,
    pub outcomes: Outcomes,
    pub response_time_ns: String,
    pub service_time_ns: String,
}

/// The requests and pauses that ended between `measure_start_ns` and `measure_end_ns`, whenever they were scheduled.
/// `bytes_received`, `bytes_sent`: what the sockets carried within the window, TLS included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub outcomes: Outcomes,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Sum of done - scheduled over all requests that ended, with any outcome.
    pub time_in_system_ns_sum: u64,
    /// Sum of the lengths of all pauses that ended within the window.
    pub think_ns_sum: u64,
    /// Time integral of the number of users present over the window, in user-ns (open model: of arrivals under way).
    /// Divided by the window's length it is their mean number N. Little's law, N = X (R + Z), is exact if the times
    /// that the edges cut off are included: `user_ns` times the number of requests that a user keeps in flight equals
    /// `time_in_system_ns_sum + think_ns_sum - carried_in_ns_sum + carried_out_ns_sum`. The time for which a user with
    /// a WebSocket waits for a connection counts as a pause. With a `pace` the law does not hold, since that schedule
    /// does not wait for answers.
    pub user_ns: u64,
    /// Sum of the ages, at the start of the window, of all requests in flight and pauses under way at that instant.
    pub carried_in_ns_sum: u64,
    /// Sum of the ages, at the end of the window, of all requests in flight and pauses under way at that instant.
    pub carried_out_ns_sum: u64,
    /// Number of requests that were in flight from before the start of the window until after its end.
    pub unanswered: u64,
    /// Number of users of the closed model who got no `ok` answer within the window, although one of their requests was
    /// in flight all through it, or failed in it and was tried again in vain. 0 in the open model; absent in events of
    /// older engines.
    pub users_unserved: Option<u64>,
    /// Number of requests of the users in `users_unserved` that were scheduled within the window; absent in events of
    /// older engines.
    pub users_unserved_requests: Option<u64>,
    /// Sum, over the users in `users_unserved`, of the time within the window for which they had lost their WebSocket;
    /// absent in events of older engines.
    pub users_unserved_away_ns: Option<u64>,
    /// The longest time by which an event loop, which wakes at the end of each interval, came too late for one of the
    /// window, or for the window's start: for so long it did not run. Absent in events of older engines.
    pub late_ns_max: Option<u64>,
}

/// The connections of the whole run: how many were opened, how many attempts failed, how many the server closed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    pub opened: u64,
    pub failed: u64,
    pub closed_by_peer: u64,
    /// Most connections open at once: exact with one engine thread, an upper bound with several.
    pub open_max: u64,
    /// Histogram of the time to connect (TCP, and TLS if used).
    pub connect_time_ns: String,
}

/// A line that `powerband-engine probe` writes. Fields named `*_now` are levels; counters are cumulative since the tree
/// was first seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProbeEvent {
    Hello(Hello),
    /// The command was started at `at_ns`. `name`: that of its tree in later events.
    Launched {
        name: String,
        pid: i32,
        at_ns: u64,
    },
    Sample(Box<Sample>),
    Threads(Threads),
    Jvm(Jvm),
    Scrape(Scrape),
    /// A reading of the server's metrics page failed after `took_ns`; the next one comes at the next point of the grid.
    ScrapeFailed {
        /// The instant at which the page was requested.
        at_ns: u64,
        took_ns: u64,
        /// The reason, worded as the end of a sentence.
        reason: String,
    },
    Statsd(Statsd),
    Exited(Exited),
    /// The last line, after a last sample. `samples`: how many were taken.
    End {
        at_ns: u64,
        /// Number of processes of the launched tree that had to be killed after the grace period.
        killed: u32,
        /// CPU time of the probe itself.
        cpu_ns: u64,
        samples: u64,
        /// Number of points of the sampling grid that were missed, or met more than half a period late.
        samples_late: u64,
        /// Bytes that the launched command printed. Absent without `launch`, and in events of older engines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_bytes: Option<u64>,
        /// Bytes of `log_bytes` that were not kept in the log file; absent as `log_bytes` is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_dropped_bytes: Option<u64>,
    },
    /// The probe ended early or never began. Nothing follows.
    Error(ErrorEvent),
}

/// One reading of all trees and of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    pub at_ns: u64,
    pub trees: Vec<TreeSample>,
    pub host: HostSample,
}

/// One process tree: sums over all its processes. With more than 64 threads, page faults, voluntary and involuntary
/// switches and `run_wait_ns` are read only once every `threads_interval_ns` (less often if that would cost over 0.67 %
/// of a core), and repeated unchanged in between. `rss_bytes_now`: resident memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeSample {
    pub name: String,
    pub processes_now: u32,
    pub threads_now: u32,
    /// Number of threads created since the tree was first seen, exited ones included; absent if the kernel does not
    /// tell.
    pub threads_started: Option<u64>,
    /// User CPU time of all threads, exited ones included.
    pub cpu_user_ns: u64,
    /// Kernel CPU time of all threads, exited ones included.
    pub cpu_system_ns: u64,
    pub rss_bytes_now: u64,
    /// The part of `rss_bytes_now` that is neither of files nor of shared memory; absent if the kernel does not tell,
    /// and in events of older engines.
    pub anonymous_bytes_now: Option<u64>,
    /// Proportional set size. Read once a second because it is expensive, and repeated in between; absent if not
    /// permitted.
    pub pss_bytes_now: Option<u64>,
    /// Context switches of all threads, exited ones included, counted exactly by perf; absent if perf is not permitted
    /// or not used.
    pub context_switches: Option<u64>,
    /// Voluntary context switches: the sum over live threads, plus the last seen values of exited ones.
    pub voluntary_switches: u64,
    /// Involuntary context switches: the sum over live threads, plus the last seen values of exited ones.
    pub involuntary_switches: u64,
    /// Time in which threads were runnable but waited for a CPU: the sum over live threads, plus the last seen values
    /// of exited ones.
    pub run_wait_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub descriptors_now: u32,
    /// Number of descriptors that may still be opened by the process that is nearest to its limit; absent if the kernel
    /// does not tell.
    pub descriptors_left_now: Option<u64>,
    /// Number of threads that may still be started under the limits of the tree's users, its cgroups and the machine.
    /// Read once a second, repeated in between; absent if there is no limit, or none that is known.
    pub threads_left_now: Option<u64>,
    /// Bytes of memory that the tree's cgroups still allow. Read once a second, repeated in between; absent if there is
    /// no limit, or none that is known.
    pub memory_left_bytes_now: Option<u64>,
    /// Number of open sockets. Counted once a second (less often with thousands of descriptors), repeated in between.
    pub sockets_now: u32,
    /// Number of CPUs on which the tree's threads may run, by their affinity. A parent that hardly runs does not count:
    /// it may be a script that waits for the server. Read once a second (less often with thousands of threads),
    /// repeated in between; absent if the kernel does not tell.
    pub cpus_now: Option<u32>,
    /// Mean number of CPUs that the narrowest quota of the tree's cgroups allows; absent if there is no quota.
    pub cpu_quota_now: Option<f64>,
    /// Number of periods of the quota in `cpu_quota_now` in which its cgroup ran, since the cgroup was made; absent if
    /// there is no quota.
    pub quota_periods: Option<u64>,
    /// Number of the `quota_periods` in which the cgroup had used the quota up, and was stopped until the next period;
    /// absent if there is no quota.
    pub throttled_periods: Option<u64>,
}

/// One reading of the host. CPU times are sums over the CPUs in the spec's `host_cpus`; everything else is of the whole
/// host. Its counters are the kernel's own, and do not start at 0. `cpu_steal_ns`: time that the hypervisor took;
/// `runnable_now`: tasks that run or wait for a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostSample {
    pub cpu_busy_ns: u64,
    pub cpu_idle_ns: u64,
    pub cpu_steal_ns: u64,
    /// The part of `cpu_busy_ns` in interrupts; absent unless the kernel is known to count it apart from the tasks that
    /// they interrupt, and in events of older engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_interrupts_ns: Option<u64>,
    /// The busy time of each of these CPUs, by their numbers, once a second: else it is empty, as in events of older
    /// engines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_busy_ns_each: Vec<u64>,
    /// The stolen time of each, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_steal_ns_each: Vec<u64>,
    pub context_switches: u64,
    pub forks: u64,
    pub runnable_now: u32,
    pub load_average_1m: f64,
    pub memory_available_bytes_now: u64,
    /// Total time in which some task waited for a CPU (`some` of PSI); absent if the kernel has no PSI.
    pub psi_cpu_some_ns: Option<u64>,
    /// Total time in which some task waited for memory; absent if the kernel has no PSI.
    pub psi_memory_some_ns: Option<u64>,
    /// Total time in which some task waited for I/O; absent if the kernel has no PSI.
    pub psi_io_some_ns: Option<u64>,
    /// TcpExt ListenOverflows of the probe's network namespace.
    pub listen_overflows: u64,
    /// TcpExt ListenDrops of the probe's network namespace.
    pub listen_drops: u64,
    /// Number of connections that wait in the accept queues of the watched ports.
    pub accept_queue_now: u32,
    /// Sum of the limits of the accept queues of the watched ports.
    pub accept_queue_limit: u32,
}

/// The threads of one tree, by pool: once every `threads_interval_ns`, or less often if reading many threads would cost
/// too much. A pool is the thread name without its trailing number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    pub at_ns: u64,
    pub tree: String,
    pub pools: Vec<PoolSample>,
    /// At most 160 threads, those that ran longest since the last event first. Older engines list only threads that
    /// ran, or none.
    #[serde(default)]
    pub threads: Vec<ThreadSample>,
}

/// One thread. Its counters are cumulative since the thread was first seen: `on_cpu_ns`, `run_wait_ns` (runnable
/// without a CPU), `blocked_ns`. Events of older engines lack `pid`, `pool`, `preemptions`, `blocked_ns` and
/// `blocked_on_samples`, which are then read as 0 or empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadSample {
    pub tid: i32,
    /// Name of the thread as the kernel knows it, 15 bytes at most.
    pub name: String,
    pub on_cpu_ns: u64,
    pub run_wait_ns: u64,
    /// Context switches, voluntary and involuntary.
    pub switches: u64,
    #[serde(default)]
    pub pid: i32,
    /// Name of the pool that the thread belongs to.
    #[serde(default)]
    pub pool: String,
    /// Number of the `switches` that were involuntary.
    #[serde(default)]
    pub preemptions: u64,
    #[serde(default)]
    pub blocked_ns: u64,
    /// Number of readings that found the thread blocked, by the cause of its wait.
    #[serde(default)]
    pub blocked_on_samples: BTreeMap<WaitKind, u64>,
}

/// Figures of one JVM of the launched tree, read four times a second from the hsperfdata file in which the JVM
/// publishes them. Heap figures are as recent as the JVM keeps them: see docs/methods/process-counters.md. `threads_*`
/// are Java threads; those of `threads_live_now` include the daemons of `threads_daemon_now`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jvm {
    pub at_ns: u64,
    pub tree: String,
    pub pid: i32,
    pub heap_used_bytes_now: u64,
    pub heap_committed_bytes_now: u64,
    /// Bytes that the JVM's old generation may still take; absent if the JVM does not publish its limit.
    pub heap_left_bytes_now: Option<u64>,
    pub collectors: Vec<Collector>,
    /// Time in which all threads of the JVM were stopped; absent if the JVM does not publish it.
    pub safepoint_ns: Option<u64>,
    /// Time that the JVM's compilers spent on finished compilations, summed over their threads; absent if the JVM does
    /// not publish it.
    pub compile_ns: Option<u64>,
    pub threads_live_now: u64,
    pub threads_daemon_now: u64,
    pub threads_peak: u64,
    pub threads_started: u64,
}

/// One garbage collector of the JVM: the number of its collections and the time that they took, so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Collector {
    pub name: String,
    pub count: u64,
    pub time_ns: u64,
}

/// One reading of the server's metrics page. `took_ns`: until its last byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrape {
    /// The instant at which the page was requested.
    pub at_ns: u64,
    pub took_ns: u64,
    /// Values of the requested series that are finite, by name as on the page: `name{label="value"}`.
    pub values: BTreeMap<String, f64>,
}

/// The metrics that the StatsD sink has received. Every number counts from the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statsd {
    pub at_ns: u64,
    /// Values by the name that a Prometheus page would give them: `name_total{tag="value"}` for a counter; `name` for a
    /// gauge, and for a set (the number of its distinct values); `name_count`, `name_sum` and `name_max` for a timer,
    /// histogram or distribution.
    pub values: BTreeMap<String, f64>,
    /// Number of datagrams read.
    pub packets: u64,
    /// Total length of the datagrams read.
    pub bytes: u64,
    /// Number of values accepted; sample rates are not applied to it.
    pub updates: u64,
    /// Number of lines refused.
    pub malformed: u64,
    /// Number of datagrams that the kernel dropped because the buffer of the UDP socket was full. A Unix socket drops
    /// none: its sender waits, or is refused.
    pub dropped: u64,
}

/// One pool of threads. Counters are sums over the threads alive now, plus the last seen values of threads of this pool
/// that exited. For live threads, `on_cpu_ns` + `run_wait_ns` (runnable without a CPU) + `blocked_ns` is their lifetime
/// since the tree was first seen.
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
    /// Number of threads at the sample, by the kernel's state letter (R, S, D, ...).
    pub states_now: BTreeMap<String, u32>,
    /// Number of sleeping threads, by the kernel's wait channel; threads whose channel cannot be read are left out.
    pub wait_channels_now: BTreeMap<String, u32>,
    /// How often a thread was found blocked since the start, by the cause of its wait. Each reading of the threads (at
    /// every sample with up to 64 threads in the tree, else once a second or less often) adds one for each blocked
    /// thread. The growth of one kind over the growth of all kinds is its share of the blocked time. Empty if the
    /// kernel does not show causes, and in events of older engines.
    #[serde(default)]
    pub blocked_on_samples: BTreeMap<WaitKind, u64>,
    /// CPU time of the busiest thread: the most that one thread of the pool gained since the last `threads` event. 0 in
    /// events of older engines.
    #[serde(default)]
    pub on_cpu_ns_max: u64,
}

/// The cause of a thread's wait, found from its system call, or from its wait channel if the call cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// A futex: a lock, or a condition (such as that on which an idle thread of a pool waits for work).
    Lock,
    Sleep,
    /// Receiving, sending, connecting or accepting on one socket, or polling a single one.
    Socket,
    /// Polling several descriptors: an event loop without work.
    Poll,
    Disk,
    /// A page fault, or a call that changes the memory map (both take its lock).
    Memory,
    /// Pipes, children, signals, terminals, devices.
    Other,
}

/// The launched process ended; other processes of its tree may live on until `end`. CPU times, memory and switches are
/// those of rusage: exact, and including the children that it waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exited {
    pub name: String,
    pub at_ns: u64,
    /// Absent if a signal ended the process.
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the process; absent if it exited by itself.
    pub signal: Option<i32>,
    /// True if `stop` had been received before.
    pub asked: bool,
    pub cpu_user_ns: u64,
    pub cpu_system_ns: u64,
    pub max_rss_bytes: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}
