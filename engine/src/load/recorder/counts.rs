//! The values that a recorder counts and `merge` adds up.

use crate::contract::events;
use crate::contract::outcome::Outcome;
use crate::load::recorder::histogram::Histogram;

pub const OUTCOMES: usize = Outcome::ALL.len();

/// The outcomes that occurred, and how often, by name.
pub fn outcomes(counts: &[u64; OUTCOMES]) -> events::Outcomes {
    Outcome::ALL.into_iter().zip(*counts).filter(|&(_, count)| count > 0).collect()
}

/// Counts of one stretch of time; `add` sums them.
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
    /// Number of requests sent that were not intended within the window.
    pub not_cohort_sent: u64,
    /// Number of outcomes of requests that were not intended within the window.
    pub not_cohort_ended: u64,
    /// Sum of done - intended over all outcomes.
    pub time_in_system_ns_sum: u64,
    pub think_ns_sum: u64,
    pub user_ns: u64,
    /// With WebSockets: users that lost their connection, then joins that failed, then deliveries.
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
        self.not_cohort_sent += other.not_cohort_sent;
        self.not_cohort_ended += other.not_cohort_ended;
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
    /// Number of users that have joined over their WebSocket.
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

/// Requests in flight and pauses under way at the edges of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The sum of their ages at the start of the window.
    pub in_ns_sum: u64,
    /// The sum of their ages at the end of the window.
    pub out_ns_sum: u64,
    /// Number of requests in flight at the start of the window.
    pub in_flight_in: u64,
    /// Number of requests that were due before the start of the window and in flight at its end.
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
