//! The metrics page, in Prometheus' text format (version 0.0.4). Counters are kept where things happen; pool and
//! downstream are read when the page is requested. No rates and no histograms: those are the observer's business.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::planted::collector::Collector;
use super::planted::permits::Permits;
use super::pool::{Pool, Rules, Snapshot};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Default)]
pub struct Metrics {
    /// Number of requests answered by the threads of a pool or of a connection (event loops count their own).
    pub requests: AtomicU64,
    pub accepted: AtomicU64,
    pub connections: AtomicI64,
    pub loops: Vec<LoopGauges>,
    /// True if the requests of event loops are WebSocket messages.
    websocket: bool,
    pool: OnceLock<PoolView>,
}

/// The gauges of one event loop, which alone writes them. Each has a cache line of its own, so that loops do not slow
/// each other down.
#[derive(Default)]
#[repr(align(128))]
pub struct LoopGauges {
    pub requests: AtomicU64,
    pub connections: AtomicI64,
    /// Number of connections past the opening handshake of a WebSocket.
    pub websockets: AtomicI64,
    /// Number of requests that wait for a timer or for the downstream.
    pub pending: AtomicI64,
    /// Time spent outside the kernel's wait for events.
    pub busy_ns: AtomicU64,
    /// The longest single turn of the loop, during which nothing else was served.
    pub turn_ns_max: AtomicU64,
}

impl LoopGauges {
    /// Adds one without a locked instruction, since there is only one writer.
    pub fn count_request(&self) {
        self.requests.store(self.requests.load(Relaxed) + 1, Relaxed);
    }

    pub fn note_turn(&self, ns: u64) {
        self.busy_ns.store(self.busy_ns.load(Relaxed) + ns, Relaxed);
        if ns > self.turn_ns_max.load(Relaxed) {
            self.turn_ns_max.store(ns, Relaxed);
        }
    }
}

struct PoolView {
    rules: Rules,
    snapshot: Box<dyn Fn() -> Snapshot + Send + Sync>,
}

impl Metrics {
    pub fn new(event_loops: usize, websocket: bool) -> Metrics {
        Metrics { loops: (0..event_loops).map(|_| LoopGauges::default()).collect(), websocket, ..Metrics::default() }
    }

    /// Adds a pool to the page. At most one per server.
    pub fn watch_pool<T: Send + 'static>(&self, pool: &Arc<Pool<T>>) {
        let (rules, pool) = (pool.rules.clone(), Arc::clone(pool));
        let first = self.pool.set(PoolView { rules, snapshot: Box::new(move || pool.snapshot()) }).is_ok();
        assert!(first, "a server has one pool");
    }

    /// Writes the whole page.
    pub fn render(&self, downstream: Option<&Permits>, collector: Option<&Collector>) -> String {
        let mut page = Page(String::with_capacity(4096));
        let in_loops: u64 = self.loops.iter().map(|gauges| gauges.requests.load(Relaxed)).sum();
        page.value("requests_total", "Requests answered.", self.requests.load(Relaxed) + in_loops);
        page.value("connections_accepted_total", "Connections accepted.", self.accepted.load(Relaxed));
        page.value("connections", "Connections open.", self.connections.load(Relaxed));
        if self.websocket {
            let open: i64 = self.loops.iter().map(|gauges| gauges.websockets.load(Relaxed)).sum();
            page.value("websocket_connections", "Connections that have become WebSockets.", open);
            page.value("websocket_messages_total", "Messages echoed; each is a request, too.", in_loops);
        }
        if let Some(pool) = self.pool.get() {
            page.pool(&pool.rules, &(pool.snapshot)());
        }
        if !self.loops.is_empty() {
            page.loops(&self.loops);
        }
        if let Some(downstream) = downstream {
            page.value("downstream_limit", "Requests that may be with the downstream at once.", downstream.limit());
            page.value("downstream_in_use", "Requests with the downstream.", downstream.in_use());
            page.value("downstream_waiting", "Requests that wait for the downstream.", downstream.waiting());
        }
        if let Some(collector) = collector {
            let paused_s = collector.paused_ns.load(Relaxed) as f64 / 1e9;
            page.value("gc_pauses_total", "Garbage collections.", collector.collections.load(Relaxed));
            page.value("gc_pause_seconds_total", "Time for which collections stopped every thread.", paused_s);
        }
        page.0
    }
}

struct Page(String);

impl Page {
    fn value(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help);
        self.line(format_args!("{name} {value}"));
    }

    fn head(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{text}").expect("writing to a String cannot fail");
    }

    fn pool(&mut self, rules: &Rules, now: &Snapshot) {
        let queue_limit = rules.queue_limit.map_or("+Inf".to_owned(), |limit| limit.to_string());
        self.value("pool_core", "Threads that are started before anything is queued.", rules.core);
        self.value("pool_max", "Threads at most.", rules.max);
        self.value("pool_threads", "Threads of the pool.", now.threads);
        self.value("pool_active", "Threads of the pool that run a task.", now.active);
        self.value("pool_largest", "Most threads that the pool has had at once.", now.largest);
        self.value("queue_limit", "Tasks that the queue takes at most.", queue_limit);
        self.value("queue_length", "Tasks in the queue.", now.queued);
        self.value("tasks_completed_total", "Tasks that the pool's threads have finished.", now.completed);
        self.value("tasks_rejected_total", "Tasks that the pool refused, whatever its policy did.", now.rejected);
    }

    fn loops(&mut self, loops: &[LoopGauges]) {
        self.value("event_loops", "Event loops.", loops.len());
        let seconds = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e9;
        self.each("event_loop_requests_total", "Requests answered.", loops, |g| g.requests.load(Relaxed) as f64);
        self.each("event_loop_connections", "Connections open.", loops, |g| g.connections.load(Relaxed) as f64);
        let waiting = "Requests that wait for a timer or the downstream.";
        self.each("event_loop_pending", waiting, loops, |g| g.pending.load(Relaxed) as f64);
        let busy = "Time not spent waiting for events.";
        self.each("event_loop_busy_seconds_total", busy, loops, |g| seconds(&g.busy_ns));
        let longest = "Longest time in which nothing else was served.";
        self.each("event_loop_turn_seconds_max", longest, loops, |g| seconds(&g.turn_ns_max));
    }

    fn each(&mut self, name: &str, help: &str, loops: &[LoopGauges], value: impl Fn(&LoopGauges) -> f64) {
        self.head(name, help);
        for (i, gauges) in loops.iter().enumerate() {
            self.line(format_args!("{name}{{loop=\"{i}\"}} {}", value(gauges)));
        }
    }
}
