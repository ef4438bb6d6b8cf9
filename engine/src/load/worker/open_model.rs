//! The open model's part of a worker: the instant of the next arrival, the number of arrivals under way, and the slot
//! for a new one.

use super::share::Share;
use super::slot::Slot;
use crate::contract::spec::{LoadSpec, Model};
use crate::load::arrivals::Schedule;

pub struct OpenModel {
    /// The intended instant of the next arrival; `u64::MAX` if there is none.
    pub next_ns: u64,
    schedule: Schedule,
    go_ns: u64,
    /// Number of arrivals under way, then the most there may be.
    active: u32,
    active_max: u32,
    slots_max: u32,
    /// Most requests in flight on one connection.
    pipeline: u16,
    /// Slots without an arrival, the most recently used last.
    idle: Vec<u32>,
    /// The slot at which the search for room behind other requests begins: the one after the last slot found, so that
    /// arrivals are dealt out to all connections in turn.
    cursor: usize,
}

impl OpenModel {
    /// Returns None if the spec has a closed model.
    pub fn new(spec: &LoadSpec, share: Share, go_ns: u64, seed: u64) -> Option<OpenModel> {
        let Model::Open { arrivals, rate_per_s, ramp, max_in_flight, .. } = &spec.model else { return None };
        let (thread, threads) = (share.thread, share.threads);
        let mut schedule = Schedule::new(*arrivals, *rate_per_s, ramp.as_ref(), thread, threads, spec.first_user, seed);
        let active_max = share.of(*max_in_flight);
        Some(OpenModel {
            next_ns: go_ns.saturating_add(schedule.next_ns()),
            schedule,
            go_ns,
            active: 0,
            active_max,
            slots_max: active_max.div_ceil(spec.connection.pipeline),
            pipeline: spec.connection.pipeline as u16,
            idle: Vec::new(),
            cursor: 0,
        })
    }

    /// Takes the next arrival off the schedule; returns its intended instant.
    pub fn take(&mut self) -> u64 {
        let intended_ns = self.next_ns;
        self.next_ns = self.go_ns.saturating_add(self.schedule.next_ns());
        intended_ns
    }

    /// Finds a slot for an arrival: an idle one, else a new one, else one with room behind other requests. None if too
    /// many arrivals are under way.
    pub fn begin(&mut self, slots: &mut Vec<Slot>) -> Option<usize> {
        if self.active >= self.active_max {
            return None;
        }
        self.active += 1;
        if let Some(index) = self.idle.pop() {
            return Some(index as usize);
        }
        if slots.len() < self.slots_max as usize {
            slots.push(Slot::new(u32::MAX));
            return Some(slots.len() - 1);
        }
        while slots[self.cursor].lanes >= self.pipeline {
            self.cursor = (self.cursor + 1) % slots.len();
        }
        let index = self.cursor;
        self.cursor = (self.cursor + 1) % slots.len();
        Some(index)
    }

    /// Ends an arrival on this slot. `idle`: true if no other is under way there.
    pub fn end(&mut self, index: usize, idle: bool) {
        self.active -= 1;
        if idle {
            self.idle.push(index as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_beyond_the_clock_never_come() {
        let json = r#"{"protocol": 1, "target": {"url": "http://127.0.0.1:9"}, "scenario": [{"name": "a"}],
            "model": {"kind": "open", "arrivals": "constant", "rate_per_s": 1e-12, "max_in_flight": 2},
            "phases": {"drain_ns": 0, "deadline_ns": 1}}"#;
        let spec: LoadSpec = serde_json::from_str(json).unwrap();
        let go_ns = 1_000_000_000;
        for (thread, first_ns) in [(0, go_ns), (1, u64::MAX)] {
            let mut open = OpenModel::new(&spec, Share { thread, threads: 2 }, go_ns, 1).unwrap();
            assert_eq!((open.take(), open.take(), open.next_ns), (first_ns, u64::MAX, u64::MAX));
        }
    }

    #[test]
    fn arrivals_behind_others_are_dealt_out_to_all_connections() {
        let json = r#"{"protocol": 1, "target": {"url": "http://127.0.0.1:9"}, "scenario": [{"name": "a"}],
            "model": {"kind": "open", "arrivals": "constant", "rate_per_s": 1000, "max_in_flight": 64},
            "connection": {"pipeline": 16}, "phases": {"drain_ns": 0, "deadline_ns": 1}}"#;
        let spec: LoadSpec = serde_json::from_str(json).unwrap();
        let mut open = OpenModel::new(&spec, Share { thread: 0, threads: 1 }, 0, 1).unwrap();
        let mut slots = Vec::new();
        let mut begin = |count: usize| -> Vec<u16> {
            for _ in 0..count {
                let index = open.begin(&mut slots).unwrap();
                slots[index].lanes += 1;
            }
            slots.iter().map(|slot| slot.lanes).collect()
        };
        assert_eq!(begin(3), [1, 1, 1], "new connections come first");
        assert_eq!(begin(7), [3, 3, 2, 2]);
        assert_eq!(begin(54), [16; 4]);
        assert_eq!(open.begin(&mut slots), None);
        slots[2].lanes -= 1;
        open.end(2, false);
        assert_eq!(open.begin(&mut slots), Some(2), "the only one with room");
    }
}
