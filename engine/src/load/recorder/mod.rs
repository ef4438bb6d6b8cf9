//! The counts of one event loop: intervals, the whole run, the measured window, and the cohort (the requests intended
//! within the window) with its times. In: instants and outcomes, in the order of the clock. Out: a `Snapshot` at every
//! edge and one `Final` at the end. Nothing is shared between threads: `merge` sums them later.

pub mod counts;
pub mod histogram;
pub mod merge;
pub mod users;
pub mod websocket;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::{self, ProcessUse};
use crate::contract::events::Phase;
use crate::contract::outcome::Outcome;
use crate::load::flight::{COHORT, Flight};
use crate::load::phases::Edges;
use counts::{Carried, Cohort, ConnectionCounts, Counts, Levels, StepTimes};
use histogram::{Histogram, Sparse};
use users::{Unserved, Users};
use websocket::{Loss, WebSocketCounts};

/// One interval of one thread.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub start_ns: u64,
    pub end_ns: u64,
    pub phase: Phase,
    pub counts: Counts,
    pub levels: Levels,
    /// Response times of `ok` requests since the last interval that had some; None if this interval carries no
    /// histogram.
    pub response_time: Option<Sparse>,
    pub process: ProcessUse,
    /// The phase that begins at the end of this interval, if one does.
    pub next_phase: Option<Phase>,
}

/// All counts of one thread at the end of its run.
pub struct Final {
    pub end_ns: u64,
    pub total: Counts,
    pub window: Counts,
    pub cohort: Cohort,
    pub carried: Carried,
    pub unserved: Unserved,
    pub late_ns_max: u64,
    pub connections: ConnectionCounts,
    pub rejected: BTreeMap<u16, u64>,
    pub redirects: u64,
    pub websocket: WebSocketCounts,
    pub thread_cpu_ns: u64,
    pub process_at_start: ProcessUse,
    pub process_at_end: ProcessUse,
}

pub struct Recorder {
    edges: Arc<Edges>,
    phase: Phase,
    /// True once the last phase has ended. `finish` closes the last interval, including what is given up then.
    over: bool,
    interval_ns: u64,
    histogram_every: u32,
    intervals: u32,
    start_ns: u64,
    end_ns: u64,
    counts: Counts,
    total: Counts,
    window: Counts,
    levels: Levels,
    users_since_ns: u64,
    /// Number of pauses under way.
    pauses: u64,
    /// The sum of the instants at which all requests in flight were intended and all pauses under way began. It may
    /// wrap around; the sum of ages derived from it is correct all the same.
    begun_ns_sum: u64,
    carried: Carried,
    users: Users,
    unserved: Unserved,
    late_ns_max: u64,
    recent: Histogram,
    cohort: Cohort,
    pub connections: ConnectionCounts,
    rejected: BTreeMap<u16, u64>,
    pub redirects: u64,
    pub websocket: WebSocketCounts,
    cpu_at_start_ns: u64,
    cpu_at_end_ns: u64,
    process_at_start: ProcessUse,
    process_at_end: ProcessUse,
    snapshots: Vec<Snapshot>,
}

impl Recorder {
    /// `users`: the users of the closed model; empty in the open model.
    pub fn new(
        edges: Arc<Edges>,
        go_ns: u64,
        interval_ns: u64,
        histogram_every: u32,
        steps: usize,
        users: Users,
    ) -> Recorder {
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
            users,
            unserved: Unserved::default(),
            late_ns_max: 0,
            recent: Histogram::default(),
            cohort: Cohort { steps: vec![StepTimes::default(); steps], ..Cohort::default() },
            connections: ConnectionCounts::default(),
            rejected: BTreeMap::new(),
            redirects: 0,
            websocket: WebSocketCounts::default(),
            cpu_at_start_ns: 0,
            cpu_at_end_ns: 0,
            process_at_start: ProcessUse::default(),
            process_at_end: ProcessUse::default(),
            snapshots: Vec::new(),
        }
    }

    /// The phase of the last recorded instant; None once the run is over.
    pub fn phase(&self) -> Option<Phase> {
        (!self.over).then_some(self.phase)
    }

    /// The instant at which the next interval or phase ends.
    #[inline]
    pub fn next_edge_ns(&self) -> u64 {
        if self.over { u64::MAX } else { self.end_ns.min(self.edges.end_of(self.phase)) }
    }

    /// Notes how late the loop is at this instant for the next edge, if that is one of the window or of its intervals:
    /// it wakes for each of them, so that it did not run meanwhile.
    pub fn late_for_edge(&mut self, now_ns: u64) {
        let edge_ns = match self.phase() {
            Some(Phase::Warmup) => self.edges.measure_start(),
            Some(Phase::Measure) => self.next_edge_ns(),
            Some(Phase::Drain) | None => return,
        };
        self.late_ns_max = self.late_ns_max.max(now_ns.saturating_sub(edge_ns));
    }

    /// Closes all intervals and phases that end at or before this instant. Returns true if a phase ended.
    #[inline]
    pub fn pass(&mut self, now_ns: u64) -> bool {
        now_ns >= self.next_edge_ns() && self.close_until(now_ns)
    }

    /// Removes and returns the intervals closed since the last call.
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

    /// `user`: its index within this thread; any number for an arrival.
    #[inline]
    pub fn sent(&mut self, user: usize, flight: &Flight) {
        self.sent_when_free(user, flight, flight.intended_ns);
    }

    /// Counts a message that may have waited for answers to others. Its send lag counts from `free_ns`, the instant at
    /// which it could be sent: the wait before that was caused by the server.
    #[inline]
    pub fn sent_when_free(&mut self, user: usize, flight: &Flight, free_ns: u64) {
        self.users.sent(user, flight);
        let lag_ns = flight.sent_ns.saturating_sub(free_ns);
        self.counts.sent += 1;
        self.counts.send_lag_ns_max = self.counts.send_lag_ns_max.max(lag_ns);
        self.levels.in_flight += 1;
        self.begun_ns_sum = self.begun_ns_sum.wrapping_add(flight.intended_ns);
        if flight.step & COHORT != 0 {
            self.cohort.sent += 1;
            self.cohort.send_lag.record(lag_ns);
        } else {
            self.counts.not_cohort_sent += 1;
        }
    }

    /// Counts an arrival that found no room and was given up at this instant. Its later steps were never scheduled.
    pub fn dropped(&mut self, intended_ns: u64, now_ns: u64) {
        let cohort = self.scheduled(intended_ns);
        self.counts.dropped += 1;
        if cohort {
            self.cohort.dropped += 1;
            self.cohort.dropped_wait.record(now_ns.saturating_sub(intended_ns));
        }
    }

    #[inline]
    pub fn done(&mut self, user: usize, flight: &Flight, outcome: Outcome, done_ns: u64) {
        self.users.done(user, flight, outcome, self.phase == Phase::Measure);
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
        if flight.step & COHORT != 0 {
            let step = &mut self.cohort.steps[flight.step_index() as usize];
            step.outcomes[outcome as usize] += 1;
            if ok {
                step.response_time.record(response_ns);
                step.service_time.record(service_ns);
            } else {
                self.cohort.failed_time.record(response_ns);
            }
        } else {
            counts.not_cohort_ended += 1;
        }
    }

    /// Counts a response by its status, which was not accepted, over the whole run; `done` or `join_failed` counts its
    /// outcome.
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

    /// Begins a pause of a lane at this instant.
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

    /// Ends `count` pauses. `begin_ns_sum`: the sum of the instants at which they began, which may wrap around.
    pub fn pauses_end(&mut self, count: u64, begin_ns_sum: u64, end_ns: u64) {
        self.pauses -= count;
        self.begun_ns_sum = self.begun_ns_sum.wrapping_sub(begin_ns_sum);
        let lengths_ns = count.wrapping_mul(end_ns).wrapping_sub(begin_ns_sum);
        self.counts.think_ns_sum += lengths_ns.cast_signed().max(0).cast_unsigned();
    }

    /// Counts users that start or leave at this instant. It may lie before the last one: a user that starts late is
    /// present from when it was due, as its first request counts from then.
    pub fn users_changed(&mut self, by: i64, at_ns: u64) {
        self.integrate_users(at_ns);
        let since_ns = self.users_since_ns - at_ns;
        self.counts.user_ns = self.counts.user_ns.saturating_add_signed(by * since_ns.cast_signed());
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

    /// `user`: as in `sent`.
    pub fn joined(&mut self, user: usize, intended_ns: u64, joined_ns: u64, again: bool) {
        let in_window = self.phase == Phase::Measure;
        self.users.joined(user, joined_ns, in_window.then(|| self.edges.measure_start()));
        self.levels.joined += 1;
        self.websocket.joined += 1;
        self.websocket.rejoined += u64::from(again);
        self.websocket.join_time.record(joined_ns.saturating_sub(intended_ns));
    }

    pub fn join_failed(&mut self, outcome: Outcome) {
        self.counts.joins_failed += 1;
        self.websocket.joins_failed[outcome as usize] += 1;
    }

    /// Counts the end of the connection of a user that had joined.
    pub fn parted(&mut self) {
        self.levels.joined -= 1;
    }

    /// Counts a lost connection of a user that had joined. `user`: as in `sent`.
    pub fn dropped_out(&mut self, user: usize, why: Loss, at_ns: u64) {
        self.users.lost(user, at_ns);
        self.counts.drops += 1;
        *self.websocket.drops.entry(why.name()).or_default() += 1;
    }

    pub fn closed_with(&mut self, code: Option<u16>) {
        *self.websocket.close_codes.entry(code).or_default() += 1;
    }

    /// Counts a stamped message that was sent at this instant.
    pub fn published(&mut self, sent_ns: u64) {
        self.websocket.published += 1;
        self.websocket.published_in_window += u64::from(self.edges.in_window(sent_ns));
    }

    /// Counts the delivery of a stamped message that was sent at `sent_ns`.
    pub fn delivered(&mut self, sent_ns: u64, arrived_ns: u64) {
        self.counts.delivered += 1;
        self.websocket.delivered += 1;
        if self.edges.in_window(sent_ns) {
            self.websocket.delivered_in_window += 1;
            self.websocket.delivery_time.record(arrived_ns.saturating_sub(sent_ns));
        }
    }

    /// Closes everything that is still open at the end of this thread's run.
    pub fn finish(mut self, now_ns: u64) -> (Vec<Snapshot>, Final) {
        self.close_until(now_ns);
        self.close_interval(now_ns.max(self.start_ns), None, true);
        let report = Final {
            end_ns: now_ns,
            total: self.total,
            window: self.window,
            cohort: self.cohort,
            carried: self.carried,
            unserved: self.unserved,
            late_ns_max: self.late_ns_max,
            connections: self.connections,
            rejected: self.rejected,
            redirects: self.redirects,
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
                // Requests that were due before the window and sent late, after its start, are among them.
                let before = self.carried.in_flight_in + self.window.not_cohort_sent;
                self.carried.unanswered = before.saturating_sub(self.window.not_cohort_ended);
                self.unserved = self.users.unserved(self.edges.measure_start(), edge_ns);
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

    /// The sum of the ages of all requests in flight and pauses under way. `now_ns` is not before any recorded instant.
    fn ages_ns_sum(&self, now_ns: u64) -> u64 {
        let count = self.levels.in_flight + self.pauses;
        let ages = count.wrapping_mul(now_ns).wrapping_sub(self.begun_ns_sum);
        // If an edge was set too late to be met in time, it may lie before the begin of the youngest of them.
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
mod tests;
