//! The values that a recorder counts and `merge` adds up.

use crate::contract::events;
use crate::contract::outcome::Outcome;
use crate::load::recorder::histogram::Histogram;

pub const OUTCOMES: usize = Outcome::ALL.len();

/// The outcomes that occurred, and how often, by name.
pub fn outcomes(counts: &[u64; OUTCOMES]) -> events::Outcomes {
    Outcome::ALL.into_iter().zip(*counts).filter(|&(_, count)| count > 0).collect()
}

/// Adds each of these fields of `$theirs` to that of `$mine`.
macro_rules! sum {
    ($mine:ident += $theirs:ident: $($field:ident),+) => { $($mine.$field += $theirs.$field;)+ };
}
pub(super) use sum;

pub fn add_outcomes(mine: &mut [u64; OUTCOMES], theirs: &[u64; OUTCOMES]) {
    mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
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
        sum!(self += other: scheduled, sent, dropped, response_time_ns_sum, service_time_ns_sum, bytes_received, bytes_sent);
        sum!(self += other: not_cohort_sent, not_cohort_ended, time_in_system_ns_sum, think_ns_sum, user_ns);
        sum!(self += other: drops, joins_failed, delivered);
        add_outcomes(&mut self.outcomes, &other.outcomes);
        self.response_time_ns_max = self.response_time_ns_max.max(other.response_time_ns_max);
        self.send_lag_ns_max = self.send_lag_ns_max.max(other.send_lag_ns_max);
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
        sum!(self += other: in_flight, connections, users, joined);
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
        sum!(self += other: in_ns_sum, out_ns_sum, in_flight_in, unanswered);
    }
}
