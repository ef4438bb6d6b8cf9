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
    /// Event loops, one thread each.
    #[serde(default = "one")]
    pub threads: u32,
    /// CPUs that the threads may run on; empty: any.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// How late a scheduled send may be in order to share a wake-up with its neighbours. 0: never on purpose,
    /// the last stretch before each send is spun.
    #[serde(default = "default_precision_ns")]
    pub precision_ns: u64,
    /// Period of the `interval` events.
    #[serde(default = "default_interval_ns")]
    pub interval_ns: u64,
    /// Every how many intervals one carries a histogram of the response times since the last.
    #[serde(default = "default_histogram_every")]
    pub histogram_every: u32,
    /// Seed of every random choice; engines of one fleet get different `first_user` and the same seed.
    #[serde(default)]
    pub seed: u64,
    /// Index of this engine's first user (closed) or arrival stream (open) in the fleet.
    #[serde(default)]
    pub first_user: u64,
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// `http://host:port` or `https://host:port`; a path is refused (paths belong to steps).
    pub url: String,
    /// Addresses to connect to, dealt to connections in turn; empty: the URL's host is resolved once.
    #[serde(default)]
    pub addresses: Vec<SocketAddr>,
    /// Local addresses, dealt to connections in turn (past about 12,000 connections to one address); empty: the kernel's choice.
    #[serde(default)]
    pub source_addresses: Vec<IpAddr>,
    #[serde(default)]
    pub tls: Tls,
    /// Without this, only loopback addresses are accepted.
    #[serde(default)]
    pub allow_remote: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// PEM file of trusted roots; absent: the Mozilla roots.
    pub ca_file: Option<String>,
    /// Accept any certificate.
    pub insecure: bool,
    /// Name to verify and to send as SNI; absent: the URL's host.
    pub server_name: Option<String>,
}

/// One request of a scenario, its checks, and the pause after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Names the step in results.
    pub name: String,
    #[serde(default = "get")]
    pub method: String,
    /// Path with query, starting with `/`.
    #[serde(default = "slash")]
    pub path: String,
    /// In order; `Host`, `Content-Length` and `Connection` are added where absent.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    #[serde(default)]
    pub checks: Checks,
    /// Pause after this step; absent: the model's `think`.
    pub think: Option<Duration>,
    /// With `connection.websocket`, and only then: what the user sends. Of `checks`, `body_contains` then applies to the answer;
    /// method, path, headers, body and `checks.status` have no meaning and are left out.
    pub message: Option<Message>,
    /// The message has an answer. Otherwise it is `ok` once written.
    #[serde(default = "yes")]
    pub answered: bool,
}

/// What one step sends over a WebSocket. In `text` and `data` the tokens `{id}`, `{stamp}` and `{user}` stand for a number that no
/// other message of the connection has, the instant of writing (CLOCK_MONOTONIC, ns), and the user's index in the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Dialect `plain`.
    Text { text: String },
    /// Dialect `plain`; without tokens.
    Binary { base64: String },
    /// SocketCluster: an event without a call id. The event named `answer` answers it.
    Event {
        event: String,
        /// JSON.
        data: String,
        /// Required where the step is answered, refused where it is not.
        answer: Option<String>,
    },
    /// SocketCluster: a call, answered under its call id. An answer that holds an error fails the check.
    Call { event: String, data: String },
    /// SocketCluster: `#publish`; its answer only confirms it.
    Publish { channel: String, data: String },
}

/// What makes a response `ok`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checks {
    /// Accepted status codes; empty: 200 to 399.
    pub status: Vec<u16>,
    /// Each must occur in the body.
    pub body_contains: Vec<String>,
}

/// Who decides when the next request starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Model {
    /// A fixed number of users, each sending again once answered and done thinking.
    Closed {
        users: u32,
        /// Pause between a response and the user's next request.
        #[serde(default)]
        think: Duration,
        /// Users start evenly over this time.
        #[serde(default)]
        ramp_ns: u64,
        /// Each user leaves after this many requests; the run ends when all have left.
        requests_per_user: Option<u64>,
        /// With `connection.websocket`: the time from one send of a user to its next, answered or not, from its joining on. A
        /// message that may not be sent yet, because `connection.pipeline` others have no answer, waits; its times count from the
        /// instant at which it was intended. Excludes pauses.
        pace: Option<Duration>,
    },
    /// Arrivals on a schedule that does not wait for answers. Each arrival runs the whole scenario once.
    Open {
        arrivals: Arrivals,
        /// Arrivals per second over all threads of this engine.
        rate_per_s: f64,
        /// Rate grows linearly from `from_per_s` to `rate_per_s` over `over_ns`, from the start of the run.
        ramp: Option<Ramp>,
        /// Arrivals in progress (pausing ones included) at most, dealt evenly to the threads. One that finds its thread's share
        /// taken is dropped: counted, and its wait is timed.
        max_in_flight: u32,
        /// Pause between the steps of one arrival.
        #[serde(default)]
        think: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    Constant,
    Poisson,
}

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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectionPolicy {
    /// A user keeps its connection; otherwise each request has its own.
    pub keep_alive: bool,
    /// Requests that one connection may have in flight. In the closed model each user keeps this many in flight.
    pub pipeline: u32,
    /// Each user holds one WebSocket instead, and the steps are messages on it. `pipeline` then limits how many of a user's
    /// messages may be without an answer at once. Needs the closed model and `keep_alive`.
    pub websocket: Option<WebSocket>,
    /// A part of a response is acknowledged as soon as it is read, not up to 40 ms later.
    pub acknowledge_at_once: bool,
}

impl Default for ConnectionPolicy {
    fn default() -> Self {
        ConnectionPolicy { keep_alive: true, pipeline: 1, websocket: None, acknowledge_at_once: false }
    }
}

/// How users join, and which of the messages that they receive answers which that they sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebSocket {
    /// Path and query of the opening handshake.
    #[serde(default = "slash")]
    pub path: String,
    /// More headers of the opening handshake.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// On offer, the best first.
    #[serde(default)]
    pub subprotocols: Vec<String>,
    #[serde(default)]
    pub dialect: Dialect,
    /// Of the plain dialect: the others match events by name and calls by id.
    #[serde(default)]
    pub matching: Matching,
    /// A message that holds one of these texts answers nothing.
    #[serde(default)]
    pub unsolicited: Vec<String>,
    /// Text messages that a user sends once it has joined, before its first step; nothing answers them.
    #[serde(default)]
    pub greetings: Vec<String>,
    /// SocketCluster: channels that a user subscribes to as part of joining.
    #[serde(default)]
    pub subscribe: Vec<String>,
    /// A message that holds this text and then digits is a delivery: these tell when it was sent (`{stamp}`). It answers nothing.
    pub stamp_after: Option<String>,
    /// A running count that the answers hold.
    pub tally: Option<Tally>,
    /// A longer message from the server is a violation.
    #[serde(default = "default_message_bytes_max")]
    pub message_bytes_max: u64,
    /// A user that lost its connection, or could not join, joins again after this pause; absent: it stays out.
    pub rejoin_after_ns: Option<u64>,
}

/// What is spoken on top of WebSocket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    #[default]
    Plain,
    Socketcluster14,
    Socketcluster20,
}

/// Which message from the server answers which request of its user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Matching {
    /// Each answers the oldest request without an answer.
    #[default]
    Order,
    /// Each answers the request whose message held, in place of `{id}`, the digits that follow this text in the answer. One without
    /// the text, or with an unknown id, answers nothing.
    Id { after: String },
}

/// The digits after `count_after` are a count, of which the highest is kept for each label: the word after `label_after`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Absent: there is one label, the empty one.
    pub label_after: Option<String>,
    pub count_after: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    /// To connect; with `connection.websocket`: to join.
    pub connect_ns: u64,
    /// From sent to done.
    pub request_ns: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { connect_ns: 5_000_000_000, request_ns: 30_000_000_000 }
    }
}

/// warmup -> measure -> drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Length of the warm-up; absent: until the `measure` command.
    pub warmup_ns: Option<u64>,
    /// Length of the measured window; absent: until every user has left, or the `drain` command.
    pub measure_ns: Option<u64>,
    /// At most this long for what is in flight to finish.
    pub drain_ns: u64,
    /// The engine ends itself this long after `go`, whatever happens.
    pub deadline_ns: u64,
    /// Start as soon as armed instead of waiting for `go`.
    #[serde(default)]
    pub go_at_once: bool,
}

/// What a probe process watches and, with `launch`, starts and owns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeSpec {
    pub protocol: u32,
    /// A command to start, watch from its first instruction, and end together with everything it forked.
    pub launch: Option<Launch>,
    /// Running process trees to watch as well.
    #[serde(default)]
    pub watch: Vec<Watch>,
    /// Period of the `sample` events.
    #[serde(default = "default_interval_ns")]
    pub interval_ns: u64,
    /// Period of the `threads` events, as samples and the cost of reading many threads allow.
    #[serde(default = "a_second_ns")]
    pub threads_interval_ns: u64,
    /// Listening TCP ports whose accept queues are watched.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// A metrics page to read as well.
    pub scrape: Option<Scrape>,
    /// Where the subject may push metrics to.
    pub statsd: Option<Statsd>,
    /// Counts context switches and thread starts by perf events, so that none is missed, but each switch is dearer; else
    /// switches are added up over the threads that samples meet, and starts are not known.
    #[serde(default = "yes")]
    pub exact_counts: bool,
    /// CPUs that the probe itself runs on; empty: any.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// CPUs whose time the host samples add up; empty: those that the probe was allowed when it started.
    #[serde(default)]
    pub host_cpus: Vec<u32>,
}

/// A Prometheus text page, read again and again over plain HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scrape {
    pub url: String,
    #[serde(default = "a_second_ns")]
    pub interval_ns: u64,
    /// Of one reading, from connecting to the last byte.
    #[serde(default = "a_second_ns")]
    pub timeout_ns: u64,
    /// Metrics whose series are told of.
    pub names: Vec<String>,
}

/// A StatsD and DogStatsD sink: at least one of `udp` and `unix`. Open before the command is launched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statsd {
    /// Address and port to listen at.
    pub udp: Option<SocketAddr>,
    /// Path of a Unix datagram socket to make; it is removed at the end.
    pub unix: Option<String>,
    /// Period of the `statsd` events.
    #[serde(default = "a_second_ns")]
    pub interval_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Name of this tree in the events (usually `subject`).
    pub name: String,
    /// The program and its arguments; never given to a shell.
    pub argv: Vec<String>,
    /// Added to the environment.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Working directory; absent: the probe's.
    pub cwd: Option<String>,
    /// stdout and stderr are appended here.
    pub log_file: String,
    /// CPUs of the tree; empty: any.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// Folders of the cgroups that the tree is in from its first instruction on; empty: those of the probe.
    #[serde(default)]
    pub cgroups: Vec<String>,
    /// Signal that asks it to stop (15: SIGTERM).
    #[serde(default = "sigterm")]
    pub stop_signal: i32,
    /// After this long, whatever is left of the tree is killed.
    #[serde(default = "default_grace_ns")]
    pub grace_ns: u64,
}

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
    /// load: drain nothing, report and end. probe: stop what was launched, report and end.
    Stop,
}

fn one() -> u32 {
    1
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
fn default_message_bytes_max() -> u64 {
    16 << 20
}
fn default_precision_ns() -> u64 {
    100_000
}
fn default_interval_ns() -> u64 {
    100_000_000
}
fn default_histogram_every() -> u32 {
    10
}
fn a_second_ns() -> u64 {
    1_000_000_000
}
fn default_grace_ns() -> u64 {
    5_000_000_000
}
