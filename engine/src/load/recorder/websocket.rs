//! Counts of users with WebSockets, apart from the outcomes of their messages: joins, drops, deliveries.

use std::collections::BTreeMap;

use crate::contract::events::WebSocketSummary;
use crate::load::recorder::counts::{OUTCOMES, add_outcomes, outcomes, sum};
use crate::load::recorder::histogram::Histogram;

/// The reason why a user that had joined lost its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Closed,
    Reset,
    Violation,
    /// The server was silent for longer than it may be.
    Heartbeat,
    /// A request timed out, and the engine closed the connection.
    Timeout,
}

impl Loss {
    pub fn name(self) -> &'static str {
        match self {
            Loss::Closed => "closed",
            Loss::Reset => "reset",
            Loss::Violation => "violation",
            Loss::Heartbeat => "heartbeat",
            Loss::Timeout => "timeout",
        }
    }
}

/// Counts of one thread over the whole run; `add` sums them.
#[derive(Clone, Default)]
pub struct WebSocketCounts {
    pub joins_started: u64,
    pub joined: u64,
    pub rejoined: u64,
    pub joins_failed: [u64; OUTCOMES],
    pub join_time: Histogram,
    /// Number of lost connections, by the name of the `Loss`.
    pub drops: BTreeMap<&'static str, u64>,
    pub close_codes: BTreeMap<Option<u16>, u64>,
    pub messages_received: u64,
    pub unsolicited: u64,
    pub unmatched: u64,
    pub published: u64,
    pub delivered: u64,
    pub delivery_time: Histogram,
    pub published_in_window: u64,
    pub delivered_in_window: u64,
    /// The highest count, by label.
    pub tallies: BTreeMap<String, u64>,
}

impl WebSocketCounts {
    pub fn add(&mut self, other: &WebSocketCounts) {
        sum!(self += other: joins_started, joined, rejoined, messages_received, unsolicited, unmatched, published);
        sum!(self += other: delivered, published_in_window, delivered_in_window);
        add_outcomes(&mut self.joins_failed, &other.joins_failed);
        self.join_time.add(&other.join_time);
        for (why, count) in &other.drops {
            *self.drops.entry(why).or_default() += count;
        }
        for (code, count) in &other.close_codes {
            *self.close_codes.entry(*code).or_default() += count;
        }
        self.delivery_time.add(&other.delivery_time);
        for (label, count) in &other.tallies {
            let highest = self.tallies.entry(label.clone()).or_default();
            *highest = (*highest).max(*count);
        }
    }

    pub fn summary(self) -> WebSocketSummary {
        let code_name = |code: Option<u16>| code.map_or("none".into(), |code| code.to_string());
        WebSocketSummary {
            joins_started: self.joins_started,
            joined: self.joined,
            rejoined: self.rejoined,
            joins_failed: outcomes(&self.joins_failed),
            join_time_ns: self.join_time.encode(),
            drops: self.drops.into_iter().map(|(why, count)| (why.into(), count)).collect(),
            close_codes: self.close_codes.into_iter().map(|(code, count)| (code_name(code), count)).collect(),
            messages_received: self.messages_received,
            unsolicited: self.unsolicited,
            unmatched: self.unmatched,
            published: self.published,
            delivered: self.delivered,
            delivery_time_ns: self.delivery_time.encode(),
            published_in_window: self.published_in_window,
            delivered_in_window: self.delivered_in_window,
            tallies: self.tallies,
        }
    }
}
