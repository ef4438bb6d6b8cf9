//! What a recorder counts of users with WebSockets besides their messages' outcomes: joins, drops, deliveries. Counts of threads
//! are added up, and become the summary's. Nothing is decided here.

use std::collections::BTreeMap;

use crate::contract::events::WebSocketSummary;
use crate::contract::outcome::Outcome;
use crate::load::histogram::Histogram;
use crate::load::merge::outcomes;
use crate::load::recorder::{OUTCOMES, Recorder};

/// Why a user that had joined lost its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    Closed,
    Reset,
    Violation,
    /// The server was silent for longer than it may.
    Heartbeat,
    /// A request timed out, and the engine closed.
    Timeout,
}

impl Loss {
    const ALL: [Loss; 5] = [Loss::Closed, Loss::Reset, Loss::Violation, Loss::Heartbeat, Loss::Timeout];

    fn name(self) -> &'static str {
        match self {
            Loss::Closed => "closed",
            Loss::Reset => "reset",
            Loss::Violation => "violation",
            Loss::Heartbeat => "heartbeat",
            Loss::Timeout => "timeout",
        }
    }
}

/// Of one thread and the whole run.
#[derive(Clone, Default)]
pub struct WebSocketCounts {
    pub joins_started: u64,
    joined: u64,
    rejoined: u64,
    joins_failed: [u64; OUTCOMES],
    join_time: Histogram,
    drops: [u64; Loss::ALL.len()],
    close_codes: BTreeMap<Option<u16>, u64>,
    pub messages_received: u64,
    pub unsolicited: u64,
    pub unmatched: u64,
    published: u64,
    delivered: u64,
    delivery_time: Histogram,
    published_in_window: u64,
    delivered_in_window: u64,
    /// The highest count of each label.
    pub tallies: BTreeMap<String, u64>,
}

impl Recorder {
    pub fn joined(&mut self, intended_ns: u64, joined_ns: u64, again: bool) {
        self.levels.joined += 1;
        self.websocket.joined += 1;
        self.websocket.rejoined += u64::from(again);
        self.websocket.join_time.record(joined_ns.saturating_sub(intended_ns));
    }

    pub fn join_failed(&mut self, outcome: Outcome) {
        self.counts.joins_failed += 1;
        self.websocket.joins_failed[outcome as usize] += 1;
    }

    /// A user that had joined holds no connection any more.
    pub fn parted(&mut self) {
        self.levels.joined -= 1;
    }

    /// It has lost it.
    pub fn dropped_out(&mut self, why: Loss) {
        self.counts.drops += 1;
        self.websocket.drops[why as usize] += 1;
    }

    pub fn closed_with(&mut self, code: Option<u16>) {
        *self.websocket.close_codes.entry(code).or_default() += 1;
    }

    /// A message with a stamp was sent at this instant.
    pub fn published(&mut self, sent_ns: u64) {
        self.websocket.published += 1;
        self.websocket.published_in_window += u64::from(self.edges.in_window(sent_ns));
    }

    /// One that was sent at this instant has arrived.
    pub fn delivered(&mut self, sent_ns: u64, arrived_ns: u64) {
        self.counts.delivered += 1;
        self.websocket.delivered += 1;
        if self.edges.in_window(sent_ns) {
            self.websocket.delivered_in_window += 1;
            self.websocket.delivery_time.record(arrived_ns.saturating_sub(sent_ns));
        }
    }
}

impl WebSocketCounts {
    pub fn add(&mut self, other: &WebSocketCounts) {
        self.joins_started += other.joins_started;
        self.joined += other.joined;
        self.rejoined += other.rejoined;
        for (mine, theirs) in self.joins_failed.iter_mut().zip(other.joins_failed) {
            *mine += theirs;
        }
        self.join_time.add(&other.join_time);
        for (mine, theirs) in self.drops.iter_mut().zip(other.drops) {
            *mine += theirs;
        }
        for (code, count) in &other.close_codes {
            *self.close_codes.entry(*code).or_default() += count;
        }
        self.messages_received += other.messages_received;
        self.unsolicited += other.unsolicited;
        self.unmatched += other.unmatched;
        self.published += other.published;
        self.delivered += other.delivered;
        self.delivery_time.add(&other.delivery_time);
        self.published_in_window += other.published_in_window;
        self.delivered_in_window += other.delivered_in_window;
        for (label, count) in &other.tallies {
            let highest = self.tallies.entry(label.clone()).or_default();
            *highest = (*highest).max(*count);
        }
    }

    pub fn summary(self) -> WebSocketSummary {
        let code_name = |code: Option<u16>| code.map_or("none".into(), |code| code.to_string());
        let drops = Loss::ALL.into_iter().zip(self.drops).filter(|&(_, count)| count > 0);
        WebSocketSummary {
            joins_started: self.joins_started,
            joined: self.joined,
            rejoined: self.rejoined,
            joins_failed: outcomes(&self.joins_failed),
            join_time_ns: self.join_time.encode(),
            drops: drops.map(|(why, count)| (why.name().into(), count)).collect(),
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
