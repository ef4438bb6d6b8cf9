//! The engine's input: JSON on its stdin. The first line is a `LoadSpec` or `ProbeSpec`; every later line is a
//! `Command`. The end of stdin means that the controller has gone: the engine then stops at once (deadman). No value is
//! resolved or defaulted elsewhere. All times are integer ns; instants are CLOCK_MONOTONIC, so all engine processes and
//! the control plane on one host share them.

use std::net::{IpAddr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the wire contract.
pub const PROTOCOL: u32 = 1;

/// Refuses a spec of another version before it is parsed in full, so that fields added by that version are not reported
/// as mistakes of the caller. A spec without a version passes; its parser then names the missing field.
pub fn check_protocol(spec: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Versioned {
        protocol: u64,
    }
    match serde_json::from_slice(spec) {
        Ok(Versioned { protocol }) if protocol != u64::from(PROTOCOL) => Err(format!(
            "protocol: {protocol} is not spoken here, this engine speaks {PROTOCOL}: use the engine that came with the caller"
        )),
        _ => Ok(()),
    }
}

/// One engine process's share of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    pub protocol: u32,
    pub target: Target,
    /// The steps that a user goes through in order, again and again. At least one.
    pub scenario: Vec<Step>,
    pub model: Model,
    #[serde(default)]
    pub connection: ConnectionPolicy,
    #[serde(default)]
    pub timeouts: Timeouts,
    pub phases: Phases,
    /// Number of event loops, each on a thread of its own.
    #[serde(default = "u32_of::<1>")]
    pub threads: u32,
    /// CPUs that the threads may run on; empty: any.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// How late a scheduled send may be, so that it can share a wake-up with its neighbours. 0: no send is late on
    /// purpose, and the thread spins shortly before each send.
    #[serde(default = "u64_of::<100_000>")]
    pub precision_ns: u64,
    /// Period of the `interval` events.
    #[serde(default = "u64_of::<100_000_000>")]
    pub interval_ns: u64,
    /// Number of intervals from one that carries a histogram of response times to the next. The last interval of a
    /// phase always carries one.
    #[serde(default = "u32_of::<10>")]
    pub histogram_every: u32,
    /// Seed of every random choice. Engines of one fleet have the same seed, and differ in `first_user`.
    #[serde(default)]
    pub seed: u64,
    /// Index in the fleet of this engine's first user (closed model) or arrival stream (open model).
    #[serde(default)]
    pub first_user: u64,
}

/// The server that requests are sent to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// `http://host:port` or `https://host:port`; a path is refused (paths belong to steps).
    pub url: String,
    /// Addresses to connect to, dealt to connections in turn. Empty: the URL's host is resolved once.
    #[serde(default)]
    pub addresses: Vec<SocketAddr>,
    /// Local addresses to connect from, dealt to connections in turn; needed for more than about 12,000 connections to
    /// one address. Empty: the kernel chooses.
    #[serde(default)]
    pub source_addresses: Vec<IpAddr>,
    #[serde(default)]
    pub tls: Tls,
    /// False: only loopback addresses are accepted.
    #[serde(default)]
    pub allow_remote: bool,
}

/// How the certificate of an https server is verified.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// PEM file of trusted roots; absent: the Mozilla roots.
    pub ca_file: Option<String>,
    /// True: any certificate is accepted.
    pub insecure: bool,
    /// Name to verify, and to send as SNI; absent: the URL's host.
    pub server_name: Option<String>,
}

/// One request of a scenario, its checks, and the pause after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name of the step in results.
    pub name: String,
    #[serde(default = "get")]
    pub method: String,
    /// Path with query, starting with `/`.
    #[serde(default = "slash")]
    pub path: String,
    /// Names and values, sent in this order. `Host`, `Content-Length` and `Connection` are added if absent.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    #[serde(default)]
    pub checks: Checks,
    /// Pause after this step; absent: the model's `think`.
    pub think: Option<Duration>,
    /// The message that the user sends. Required with `connection.websocket`, and refused without it.
    /// `checks.body_contains` then applies to the answer; method, path, headers, body and `checks.status` have no
    /// meaning and must be left out.
    pub message: Option<Message>,
    /// False: the message has no answer, and is `ok` once written. A request always has one.
    #[serde(default = "yes")]
    pub answered: bool,
}

/// The message that a step sends over a WebSocket. In `text` and `data`, tokens are replaced by numbers: `{id}` by one
/// that no other message of the connection has, `{stamp}` by the instant of writing (CLOCK_MONOTONIC, ns), `{user}` by
/// the user's index in the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// A text message of the dialect `plain`.
    Text { text: String },
    /// A binary message of the dialect `plain`. It has no tokens.
    Binary { base64: String },
    /// SocketCluster: an event without a call id.
    Event {
        event: String,
        /// JSON, once its tokens are replaced.
        data: String,
        /// Name of the event that is the answer. Required if the step is `answered`, refused otherwise.
        answer: Option<String>,
    },
    /// SocketCluster: a call, which is answered under its call id. An answer that holds an error fails the check.
    Call { event: String, data: String },
    /// SocketCluster: a `#publish` to a channel. Its answer is a confirmation only.
    Publish { channel: String, data: String },
}

/// The conditions that a response must meet to be `ok`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checks {
    /// Accepted status codes; empty: 200 to 399.
    pub status: Vec<u16>,
    /// Texts that must all occur in the body.
    pub body_contains: Vec<String>,
}

/// The rule by which requests start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Model {
    /// A fixed number of users. Each sends its next request once the last one is answered and its pause is over.
    Closed {
        users: u32,
        /// Pause between a response and the user's next request.
        #[serde(default)]
        think: Duration,
        /// Time over which the users start, at even distances.
        #[serde(default)]
        ramp_ns: u64,
        /// Longest first pause of a user, whatever the length of that pause: a random time spreads users who start
        /// together over the steps of the scenario. 0: a random part of the pause itself. Not of messages.
        #[serde(default)]
        first_pause_ns: u64,
        /// Number of requests after which a user leaves; the run ends when all have left. Absent: users stay until the
        /// end of the measured window.
        requests_per_user: Option<u64>,
        /// Time between two sends of a user, from its joining on, whether or not the messages are answered. Needs
        /// `connection.websocket`, and excludes pauses (`think`). A message that is due while `connection.pipeline`
        /// others have no answer waits; its times count from the instant at which it was scheduled. Absent: a user
        /// sends after an answer and a pause.
        pace: Option<Duration>,
    },
    /// Arrivals on a schedule that does not wait for answers. Each arrival runs the whole scenario once.
    Open {
        arrivals: Arrivals,
        /// Arrivals per second, over all threads of this engine.
        rate_per_s: f64,
        /// A ramp at the start of the run, in which the rate grows linearly from `from_per_s` to `rate_per_s` over
        /// `over_ns`. Absent: the rate is constant.
        ramp: Option<Ramp>,
        /// Most arrivals that may be in progress, pausing ones included; each thread has an even share. An arrival that
        /// finds its thread's share used up is dropped: it is counted, and its wait is recorded.
        max_in_flight: u32,
        /// Pause between the steps of one arrival.
        #[serde(default)]
        think: Duration,
    },
}

/// How arrivals are spaced: evenly, or as a Poisson process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    Constant,
    Poisson,
}

/// A rate that grows linearly from `from_per_s` to the load's own over the first `over_ns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    pub from_per_s: f64,
    pub over_ns: u64,
}

/// A constant or random time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Duration {
    Constant { ns: u64 },
    Uniform { min_ns: u64, max_ns: u64 },
    Exponential { mean_ns: u64 },
}

impl Default for Duration {
    fn default() -> Self {
        Duration::Constant { ns: 0 }
    }
}

/// How requests use connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectionPolicy {
    /// True: a user keeps its connection. False: each request has a connection of its own.
    pub keep_alive: bool,
    /// Most requests in flight on one connection. In the closed model, each user keeps this many in flight.
    pub pipeline: u32,
    /// Each user holds one WebSocket, and steps are messages on it. `pipeline` then limits the number of a user's
    /// messages without an answer. Needs the closed model and `keep_alive`. Absent: steps are HTTP requests.
    pub websocket: Option<WebSocket>,
    /// True: each part of a response is acknowledged (TCP) as soon as it is read. False: the kernel may wait up to 40
    /// ms.
    pub acknowledge_at_once: bool,
}

impl Default for ConnectionPolicy {
    fn default() -> Self {
        ConnectionPolicy { keep_alive: true, pipeline: 1, websocket: None, acknowledge_at_once: false }
    }
}

/// The WebSocket that each user holds: how the user joins, and how received messages are matched with those that it
/// sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebSocket {
    /// Path and query of the opening handshake.
    #[serde(default = "slash")]
    pub path: String,
    /// Additional headers of the opening handshake, as names and values.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Subprotocols offered in the opening handshake, the preferred one first.
    #[serde(default)]
    pub subprotocols: Vec<String>,
    #[serde(default)]
    pub dialect: Dialect,
    /// How answers are matched in the dialect `plain`; the other dialects match events by name and calls by id.
    #[serde(default)]
    pub matching: Matching,
    /// Texts that mark unsolicited messages: a received message that contains one of them answers nothing.
    #[serde(default)]
    pub unsolicited: Vec<String>,
    /// Text messages that a user sends once it has joined, before its first step. Nothing answers them.
    #[serde(default)]
    pub greetings: Vec<String>,
    /// SocketCluster: channels that a user subscribes to as part of joining.
    #[serde(default)]
    pub subscribe: Vec<String>,
    /// The text that marks deliveries: a received message in which digits follow it is a delivery, and answers nothing.
    /// The digits are the instant at which the message was sent (`{stamp}`). Absent: no message is a delivery.
    pub stamp_after: Option<String>,
    /// A running count in answers, to be read from them; absent: none is read.
    pub tally: Option<Tally>,
    /// Most bytes of a message from the server; a longer one is a violation.
    #[serde(default = "u64_of::<{ 16 << 20 }>")]
    pub message_bytes_max: u64,
    /// Pause after which a user that lost its connection, or could not join, joins again; absent: it stays out.
    pub rejoin_after_ns: Option<u64>,
}

/// The protocol on top of WebSocket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    #[default]
    Plain,
    Socketcluster14,
    Socketcluster20,
}

/// The rule by which a message from the server is taken as the answer to one of its user's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Matching {
    /// Each message answers the oldest request without an answer.
    #[default]
    Order,
    /// A message answers the request whose `{id}` is the number that follows the text `after` in it. A message
    /// without this text, or with an unknown number, answers nothing.
    Id { after: String },
}

/// A running count in answers: the digits that follow the text `count_after`. The highest count is kept for each label,
/// which is the word that follows the text `label_after`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Absent: all counts have the same label, the empty one.
    pub label_after: Option<String>,
    pub count_after: String,
}

/// The longest times that the engine waits for a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// Longest time that connecting may take; with `connection.websocket`, joining.
    pub connect_ns: u64,
    /// Longest time from sending a request to the end of its response.
    pub request_ns: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { connect_ns: 5_000_000_000, request_ns: 30_000_000_000 }
    }
}

/// The phases of a run: warm-up, measured window, drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Length of the warm-up; absent: until the `measure` command.
    pub warmup_ns: Option<u64>,
    /// Length of the measured window; absent: until every user has left, or the `drain` command.
    pub measure_ns: Option<u64>,
    /// Longest time that requests in flight have to finish after the measured window.
    pub drain_ns: u64,
    /// Time after `go` at which the engine ends, whatever happens.
    pub deadline_ns: u64,
    /// True: the run starts as soon as the engine is armed. False: it waits for `go`.
    #[serde(default)]
    pub go_at_once: bool,
}

/// The process trees and metrics that a probe process observes, and the command that it starts and owns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeSpec {
    pub protocol: u32,
    /// A command to start, to watch from its first instruction on, and to end together with everything that it forked.
    /// Absent: none.
    pub launch: Option<Launch>,
    /// Running process trees to watch, besides that of `launch`.
    #[serde(default)]
    pub watch: Vec<Watch>,
    /// Period of the `sample` events.
    #[serde(default = "u64_of::<100_000_000>")]
    pub interval_ns: u64,
    /// Period of the `threads` events. They come with samples, and less often if reading many threads would cost too
    /// much.
    #[serde(default = "u64_of::<1_000_000_000>")]
    pub threads_interval_ns: u64,
    /// Listening TCP ports whose accept queues are watched.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// A metrics page to read; absent: none.
    pub scrape: Option<Scrape>,
    /// A sink to which the server may send metrics; absent: none.
    pub statsd: Option<Statsd>,
    /// True: perf events count context switches and thread starts, so that none is missed, but each switch becomes more
    /// expensive. False: switches are summed over the threads that samples meet, and thread starts are unknown.
    #[serde(default = "yes")]
    pub exact_counts: bool,
    /// CPUs that the probe itself runs on; empty: any.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// CPUs whose time the host samples sum up; empty: those on which the probe was allowed to run when it started.
    #[serde(default)]
    pub host_cpus: Vec<u32>,
}

/// A Prometheus text page to be read periodically over plain HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrape {
    pub url: String,
    #[serde(default = "u64_of::<1_000_000_000>")]
    pub interval_ns: u64,
    /// Longest time for one reading, from connecting to the last byte.
    #[serde(default = "u64_of::<1_000_000_000>")]
    pub timeout_ns: u64,
    /// Names of the metrics whose series are reported.
    pub names: Vec<String>,
}

/// A sink for StatsD and DogStatsD metrics, with at least one of `udp` and `unix`. Its sockets are open before the
/// command is launched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statsd {
    /// Address and port to listen at; absent: none.
    pub udp: Option<SocketAddr>,
    /// Path of a Unix datagram socket to create, which is removed at the end; absent: none.
    pub unix: Option<String>,
    /// Period of the `statsd` events.
    #[serde(default = "u64_of::<1_000_000_000>")]
    pub interval_ns: u64,
}

/// A command that the probe starts, watches, and ends together with everything that it forked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Name of this tree in the events (usually `subject`).
    pub name: String,
    /// The program and its arguments; never given to a shell.
    pub argv: Vec<String>,
    /// Names and values to add to the environment.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Working directory; absent: the probe's.
    pub cwd: Option<String>,
    /// Path of the file to which stdout and stderr are appended.
    pub log_file: String,
    /// CPUs that the tree may run on; empty: any.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// Folders of the cgroups that the tree is in from its first instruction on; empty: those of the probe.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// Number of the signal that asks the tree to stop (15: SIGTERM).
    #[serde(default = "sigterm")]
    pub stop_signal: i32,
    /// Time from `stop_signal` until whatever is left of the tree is killed.
    #[serde(default = "u64_of::<5_000_000_000>")]
    pub grace_ns: u64,
}

/// A running process tree to watch, by its root process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Name of this tree in the events (e.g. `engine`).
    pub name: String,
    pub pid: i32,
}

/// A line on stdin after the spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// load: start the schedule at this monotonic instant (0: now).
    Go { at_ns: u64 },
    /// load: end the warm-up and start the measured window at this instant (0: now).
    Measure { at_ns: u64 },
    /// load: end the measured window now and drain.
    Drain,
    /// probe: watch another tree as well.
    Watch { name: String, pid: i32 },
    /// load: end without draining, and report. probe: stop what was launched, report and end. link: report and end.
    Stop,
}

fn u64_of<const N: u64>() -> u64 {
    N
}
fn u32_of<const N: u32>() -> u32 {
    N
}
fn yes() -> bool {
    true
}
fn get() -> String {
    "GET".into()
}
fn slash() -> String {
    "/".into()
}
fn sigterm() -> i32 {
    15
}
