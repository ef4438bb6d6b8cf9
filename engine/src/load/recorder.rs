//! What one event loop counts: intervals, the whole run, the measured window, and the cohort of requests intended within
//! the window with their times. Instants and outcomes enter in the order of the clock; `Snapshot`s leave at every edge,
//! one `Final` at the end. Nothing is shared: threads are summed later (`merge`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::{self, ProcessUse};
use crate::contract::events::Phase;
use crate::contract::outcome::Outcome;
pub use crate::load::flight::{COHORT, Flight};
use crate::load::histogram::{Histogram, Sparse};
use crate::load::phases::Edges;
use crate::load::recorder_websocket::WebSocketCounts;

pub const OUTCOMES: usize = Outcome::ALL.len();

/// Counts of one stretch of time, summed by `add`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub scheduled: u64,
    pub sent: u64,
    pub dropped: u64,
    pub outcomes: [u64; OUTCOMES],
    pub response_time_ns_sum: u64,
    pub response_time_ns_max: u64,
    pub service_time_ns_sum: u64,
    pub send_lag_ns_max: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Of the outcomes, those of requests that were not intended in the window.
    pub not_cohort: u64,
    /// done - intended over all outcomes.
    pub time_in_system_ns_sum: u64,
    pub think_ns_sum: u64,
    pub user_ns: u64,
    /// With WebSockets: users that lost their connection, joins that failed, deliveries.
    pub drops: u64,
    pub joins_failed: u64,
    pub delivered: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.scheduled += other.scheduled;
        self.sent += other.sent;
        self.dropped += other.dropped;
        for (mine, theirs) in self.outcomes.iter_mut().zip(other.outcomes) {
            *mine += theirs;
        }
        self.response_time_ns_sum += other.response_time_ns_sum;
        self.response_time_ns_max = self.response_time_ns_max.max(other.response_time_ns_max);
        self.service_time_ns_sum += other.service_time_ns_sum;
        self.send_lag_ns_max = self.send_lag_ns_max.max(other.send_lag_ns_max);
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.not_cohort += other.not_cohort;
        self.time_in_system_ns_sum += other.time_in_system_ns_sum;
        self.think_ns_sum += other.think_ns_sum;
        self.user_ns += other.user_ns;
        self.drops += other.drops;
        self.joins_failed += other.joins_failed;
        self.delivered += other.delivered;
    }
}

/// Levels at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    pub in_flight: u64,
    pub connections: u64,
    pub users: u64,
    /// Users whose WebSocket stands.
    pub joined: u64,
}

impl Levels {
    pub fn add(&mut self, other: &Levels) {
        self.in_flight += other.in_flight;
        self.connections += other.connections;
        self.users += other.users;
        self.joined += other.joined;
    }
}

/// One thread's interval.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub start_ns: u64,
    pub end_ns: u64,
    pub phase: Phase,
    pub counts: Counts,
    pub levels: Levels,
    /// Response times of `ok` requests since the last interval that carried them.
    pub response_time: Option<Sparse>,
    pub process: ProcessUse,
    /// The phase that begins where this interval ends, if another one does.
    pub next_phase: Option<Phase>,
}

/// One step of the scenario, over the cohort.
#[derive(Clone, Default)]
pub struct StepTimes {
    pub outcomes: [u64; OUTCOMES],
    pub response_time: Histogram,
    pub service_time: Histogram,
}

/// Requests intended within the window, followed to their end.
#[derive(Clone, Default)]
pub struct Cohort {
    pub scheduled: u64,
    pub sent: u64,
    pub dropped: u64,
    pub steps: Vec<StepTimes>,
    pub failed_time: Histogram,
    pub send_lag: Histogram,
    pub dropped_wait: Histogram,
}

#[derive(Clone, Default)]
pub struct ConnectionCounts {
    pub opened: u64,
    pub failed: u64,
    pub closed_by_peer: u64,
    pub open_max: u64,
    pub connect_time: Histogram,
}

/// What the edges of the window cut: requests in flight, and pauses under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The sum of their ages at the start of the window.
    pub in_ns_sum: u64,
    /// The same at its end.
    pub out_ns_sum: u64,
    /// Requests in flight at the start.
    pub in_flight_in: u64,
    /// Requests in flight from before the start until after the end.
    pub unanswered: u64,
}

impl Carried {
    pub fn add(&mut self, other: &Carried) {
        self.in_ns_sum += other.in_ns_sum;
        self.out_ns_sum += other.out_ns_sum;
        self.in_flight_in += other.in_flight_in;
        self.unanswered += other.unanswered;
    }
}

/// Everything one thread counted.
pub struct Final {
    pub end_ns: u64,
    pub total: Counts,
    pub window: Counts,
    pub cohort: Cohort,
    pub carried: Carried,
    pub connections: ConnectionCounts,
    pub rejected: BTreeMap<u16, u64>,
    pub websocket: WebSocketCounts,
    pub thread_cpu_ns: u64,
    pub process_at_start: ProcessUse,
    pub process_at_end: ProcessUse,
}

pub struct Recorder {
    pub(super) edges: Arc<Edges>,
    phase: Phase,
    /// The last phase has ended; its interval is closed by `finish`, with what is given up then.
    over: bool,
    interval_ns: u64,
    histogram_every: u32,
    intervals: u32,
    start_ns: u64,
    end_ns: u64,
    pub(super) counts: Counts,
    total: Counts,
    window: Counts,
    pub(super) levels: Levels,
    users_since_ns: u64,
    /// Pauses under way.
    pauses: u64,
    /// The sum of the instants at which all requests in flight were intended and all pauses under way began. It may wrap
    /// around: what is made of it, a sum of ages, does not.
    begun_ns_sum: u64,
    carried: Carried,
    recent: Histogram,
    cohort: Cohort,
    pub connections: ConnectionCounts,
    rejected: BTreeMap<u16, u64>,
    pub websocket: WebSocketCounts,
    cpu_at_start_ns: u64,
    cpu_at_end_ns: u64,
    process_at_start: ProcessUse,
    process_at_end: ProcessUse,
    snapshots: Vec<Snapshot>,
}

impl Recorder {
    pub fn new(edges: Arc<Edges>, go_ns: u64, interval_ns: u64, histogram_every: u32, steps: usize) -> Recorder {
        Recorder {
            edges,
            phase: Phase::Warmup,
            over: false,
            interval_ns,
            histogram_every,
            intervals: 0,
            start_ns: go_ns,
            end_ns: go_ns + interval_ns,
            counts: Counts::default(),
            total: Counts::default(),
            window: Counts::default(),
            levels: Levels::default(),
            users_since_ns: go_ns,
            pauses: 0,
            begun_ns_sum: 0,
            carried: Carried::default(),
            recent: Histogram::default(),
            cohort: Cohort { steps: vec![StepTimes::default(); steps], ..Cohort::default() },
            connections: ConnectionCounts::default(),
            rejected: BTreeMap::new(),
            websocket: WebSocketCounts::default(),
            cpu_at_start_ns: 0,
            cpu_at_end_ns: 0,
            process_at_start: ProcessUse::default(),
            process_at_end: ProcessUse::default(),
            snapshots: Vec::new(),
        }
    }

    /// The phase that the last recorded instant lies in; `None`: the run is over.
    pub fn phase(&self) -> Option<Phase> {
        (!self.over).then_some(self.phase)
    }

    /// When the next interval or phase ends.
    #[inline]
    pub fn next_edge_ns(&self) -> u64 {
        if self.over { u64::MAX } else { self.end_ns.min(self.edges.end_of(self.phase)) }
    }

    /// Closes all intervals and phases that end at or before this instant; true: a phase ended.
    #[inline]
    pub fn pass(&mut self, now_ns: u64) -> bool {
        now_ns >= self.next_edge_ns() && self.close_until(now_ns)
    }

    /// Intervals closed since the last call.
    pub fn take_snapshots(&mut self) -> std::vec::Drain<'_, Snapshot> {
        self.snapshots.drain(..)
    }

    #[inline]
    pub fn scheduled(&mut self, intended_ns: u64) -> bool {
        let cohort = self.edges.in_window(intended_ns);
        self.counts.scheduled += 1;
        self.cohort.scheduled += u64::from(cohort);
        cohort
    }

    #[inline]
    pub fn sent(&mut self, flight: &Flight) {
        self.sent_when_free(flight, flight.intended_ns);
    }

    /// Of a message that had to wait for answers: the lag counts from the instant at which it was free to go, since the wait
    /// before it is the server's doing.
    #[inline]
    pub fn sent_when_free(&mut self, flight: &Flight, free_ns: u64) {
        let lag_ns = flight.sent_ns.saturating_sub(free_ns);
        self.counts.sent += 1;
        self.counts.send_lag_ns_max = self.counts.send_lag_ns_max.max(lag_ns);
        self.levels.in_flight += 1;
        self.begun_ns_sum = self.begun_ns_sum.wrapping_add(flight.intended_ns);
        if flight.step & COHORT != 0 {
            self.cohort.sent += 1;
            self.cohort.send_lag.record(lag_ns);
        }
    }

    /// An arrival that found no room, given up at this instant. The steps it never reached were never scheduled.
    pub fn dropped(&mut self, intended_ns: u64, now_ns: u64) {
        let cohort = self.scheduled(intended_ns);
        self.counts.dropped += 1;
        if cohort {
            self.cohort.dropped += 1;
            self.cohort.dropped_wait.record(now_ns.saturating_sub(intended_ns));
        }
    }

    #[inline]
    pub fn done(&mut self, flight: &Flight, outcome: Outcome, done_ns: u64) {
        let response_ns = done_ns.saturating_sub(flight.intended_ns);
        let service_ns = done_ns.saturating_sub(flight.sent_ns);
        self.levels.in_flight -= 1;
        self.begun_ns_sum = self.begun_ns_sum.wrapping_sub(flight.intended_ns);
        let counts = &mut self.counts;
        counts.outcomes[outcome as usize] += 1;
        counts.time_in_system_ns_sum += response_ns;
        let ok = outcome == Outcome::Ok;
        if ok {
            counts.response_time_ns_sum += response_ns;
            counts.service_time_ns_sum += service_ns;
            counts.response_time_ns_max = counts.response_time_ns_max.max(response_ns);
            self.recent.record(response_ns);
        }
        counts.not_cohort += u64::from(flight.step & COHORT == 0);
        if flight.step & COHORT != 0 {
            let step = &mut self.cohort.steps[flight.step_index() as usize];
            step.outcomes[outcome as usize] += 1;
            if ok {
                step.response_time.record(response_ns);
                step.service_time.record(service_ns);
            } else {
                self.cohort.failed_time.record(response_ns);
            }
        }
    }

    /// An answer whose status was not accepted, counted over the whole run; its outcome is told to `done` or `join_failed`.
    #[cold]
    pub fn rejected(&mut self, status: u16) {
        *self.rejected.entry(status).or_default() += 1;
    }

    #[inline]
    pub fn received(&mut self, bytes: usize) {
        self.counts.bytes_received += bytes as u64;
    }

    #[inline]
    pub fn wrote(&mut self, bytes: usize) {
        self.counts.bytes_sent += bytes as u64;
    }

    /// A lane pauses from this instant on.
    #[inline]
    pub fn pause_begins(&mut self, begin_ns: u64) {
        self.pauses += 1;
        self.begun_ns_sum = self.begun_ns_sum.wrapping_add(begin_ns);
    }

    pub fn pause_ends(&mut self, begin_ns: u64, end_ns: u64) {
        self.pauses -= 1;
        self.begun_ns_sum = self.begun_ns_sum.wrapping_sub(begin_ns);
        self.counts.think_ns_sum += end_ns.saturating_sub(begin_ns);
    }

    /// So many pauses end, which began at instants of this sum (it may wrap around).
    pub fn pauses_end(&mut self, count: u64, begin_ns_sum: u64, end_ns: u64) {
        self.pauses -= count;
        self.begun_ns_sum = self.begun_ns_sum.wrapping_sub(begin_ns_sum);
        let lengths_ns = count.wrapping_mul(end_ns).wrapping_sub(begin_ns_sum);
        self.counts.think_ns_sum += lengths_ns.cast_signed().max(0).cast_unsigned();
    }

    pub fn users_changed(&mut self, by: i64, now_ns: u64) {
        self.integrate_users(now_ns);
        self.levels.users = self.levels.users.saturating_add_signed(by);
    }

    pub fn users(&self) -> u64 {
        self.levels.users
    }

    pub fn in_flight(&self) -> u64 {
        self.levels.in_flight
    }

    pub fn connections_changed(&mut self, by: i64) {
        self.levels.connections = self.levels.connections.saturating_add_signed(by);
        self.connections.open_max = self.connections.open_max.max(self.levels.connections);
    }

    /// Closes everything that is open at the end of this thread's run.
    pub fn finish(mut self, now_ns: u64) -> (Vec<Snapshot>, Final) {
        self.close_until(now_ns);
        self.close_interval(now_ns.max(self.start_ns), None, true);
        let report = Final {
            end_ns: now_ns,
            total: self.total,
            window: self.window,
            cohort: self.cohort,
            carried: self.carried,
            connections: self.connections,
            rejected: self.rejected,
            websocket: self.websocket,
            thread_cpu_ns: self.cpu_at_end_ns.saturating_sub(self.cpu_at_start_ns),
            process_at_start: self.process_at_start,
            process_at_end: self.process_at_end,
        };
        (self.snapshots, report)
    }

    #[cold]
    fn close_until(&mut self, now_ns: u64) -> bool {
        let before = self.phase();
        while !self.over {
            let phase_end_ns = self.edges.end_of(self.phase);
            let edge_ns = self.end_ns.min(phase_end_ns).max(self.start_ns);
            if now_ns < edge_ns {
                break;
            }
            if edge_ns < phase_end_ns {
                self.intervals += 1;
                let due = self.intervals.is_multiple_of(self.histogram_every);
                self.close_interval(edge_ns, None, due);
            } else if let Some(next) = after(self.phase) {
                self.close_interval(edge_ns, Some(next), true);
                self.enter(next, edge_ns);
            } else {
                self.over = true;
            }
        }
        self.phase() != before
    }

    fn enter(&mut self, next: Phase, edge_ns: u64) {
        self.phase = next;
        self.intervals = 0;
        match next {
            Phase::Measure => {
                self.carried.in_ns_sum = self.ages_ns_sum(edge_ns);
                self.carried.in_flight_in = self.levels.in_flight;
                self.cpu_at_start_ns = clock::thread_cpu_ns();
                self.process_at_start = clock::process_use();
            }
            Phase::Drain => {
                self.carried.out_ns_sum = self.ages_ns_sum(edge_ns);
                self.carried.unanswered = self.carried.in_flight_in.saturating_sub(self.window.not_cohort);
                self.cpu_at_end_ns = clock::thread_cpu_ns();
                self.process_at_end = clock::process_use();
            }
            Phase::Warmup => {}
        }
    }

    fn close_interval(&mut self, edge_ns: u64, next_phase: Option<Phase>, with_histogram: bool) {
        self.integrate_users(edge_ns);
        let counts = std::mem::take(&mut self.counts);
        self.total.add(&counts);
        let phase = self.phase;
        if phase == Phase::Measure {
            self.window.add(&counts);
        }
        self.snapshots.push(Snapshot {
            start_ns: self.start_ns,
            end_ns: edge_ns,
            phase,
            counts,
            levels: self.levels,
            response_time: with_histogram.then(|| self.recent.take()),
            process: clock::process_use(),
            next_phase,
        });
        self.start_ns = edge_ns;
        self.end_ns = edge_ns.saturating_add(self.interval_ns);
    }

    /// The ages of all requests in flight and pauses under way, at an instant that nothing recorded so far lies after.
    fn ages_ns_sum(&self, now_ns: u64) -> u64 {
        let count = self.levels.in_flight + self.pauses;
        let ages = count.wrapping_mul(now_ns).wrapping_sub(self.begun_ns_sum);
        // An edge that was set too late to be met has begun before the youngest of them.
        ages.cast_signed().max(0).cast_unsigned()
    }

    fn integrate_users(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.users_since_ns);
        self.counts.user_ns += self.levels.users * elapsed_ns;
        self.users_since_ns = self.users_since_ns.max(now_ns);
    }
}

fn after(phase: Phase) -> Option<Phase> {
    match phase {
        Phase::Warmup => Some(Phase::Measure),
        Phase::Measure => Some(Phase::Drain),
        Phase::Drain => None,
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
