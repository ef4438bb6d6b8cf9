//! What is sent next, and when: users of the closed model, arrivals of the open one, pauses, the end of the run. Bytes and
//! sockets are `wire`'s.
//!
//! A *lane* is one sequence of requests through the scenario: a user has as many as requests it keeps in flight, an arrival is
//! one. A request that fails ends its pass: the user begins the scenario anew, the arrival is over.

use super::slot::{Slot, State};
use super::{SWEEP_NS, Worker};
use crate::clock::now_ns;
use crate::contract::outcome::Outcome;
use crate::contract::spec::Model;
use crate::load::arrivals::Schedule;
use crate::load::flight::{COHORT, Flight};
use crate::load::input::{Input, Report};
use crate::load::plan::draw;
use crate::load::timers::Timer;

/// The least pause of a user that could not connect: a refused port is not hammered.
const CONNECT_PAUSE_NS: u64 = 100_000_000;
/// Due sends made before events are looked at again.
const DUE_AT_ONCE: usize = 64;

/// The open model's side of a worker.
pub struct Open {
    schedule: Schedule,
    go_ns: u64,
    next_ns: u64,
    /// Arrivals that are not over, and how many there may be.
    active: u32,
    active_max: u32,
    slots_max: u32,
    /// Connections (or slots for one) without an arrival, the most recently used last.
    idle: Vec<u32>,
    /// Where the search for room behind other requests begins.
    cursor: usize,
}

impl Worker {
    pub(super) fn make_slots(&mut self) {
        if let Model::Closed { users, requests_per_user, .. } = self.plan.spec.model {
            let requests_left = requests_per_user.map_or(u32::MAX, |most| most as u32);
            let users = self.share.of(users) as usize;
            self.slots.reserve_exact(users);
            self.slots.resize_with(users, || Slot::new(requests_left));
            if self.plan.messages.is_some() {
                self.web.make_members(users);
            }
        }
    }

    /// Lays down the schedule, as seen from the start.
    pub(super) fn start(&mut self, go_ns: u64) {
        let spec = &self.plan.spec;
        match &spec.model {
            Model::Closed { users, ramp_ns, .. } => {
                for slot in 0..self.slots.len() {
                    let user = slot as u64 * u64::from(self.share.threads) + u64::from(self.share.thread);
                    let after_ns = (u128::from(*ramp_ns) * u128::from(user) / u128::from(*users)) as u64;
                    let due_ns = go_ns + after_ns;
                    self.timers.push(Timer { due_ns, pause_ns: 0, slot: slot as u32, step: 0, arrives: true, life: 0 });
                }
                self.all_left = self.slots.is_empty();
                if self.all_left {
                    let _ = self.reports.send(Input::Report(self.share.thread as usize, Report::AllLeft(go_ns)));
                }
            }
            Model::Open { arrivals, rate_per_s, ramp, max_in_flight, .. } => {
                let (thread, threads) = (self.share.thread, self.share.threads);
                let seed = rand::Rng::random(&mut self.rng);
                let mut schedule =
                    Schedule::new(*arrivals, *rate_per_s, ramp.as_ref(), thread, threads, spec.first_user, seed);
                let active_max = self.share.of(*max_in_flight);
                self.open = Some(Open {
                    next_ns: go_ns + schedule.next_ns(),
                    schedule,
                    go_ns,
                    active: 0,
                    active_max,
                    slots_max: active_max.div_ceil(spec.connection.pipeline),
                    idle: Vec::new(),
                    cursor: 0,
                });
            }
        }
        self.sweep_ns = go_ns;
    }

    /// When the next arrival is intended; `u64::MAX`: there is none.
    pub(super) fn next_arrival_ns(&self) -> u64 {
        self.open.as_ref().map_or(u64::MAX, |open| open.next_ns)
    }

    /// Everything that is due now: user starts, requests after a pause, arrivals, timeouts, the end of the window.
    #[cold]
    pub(super) fn run_due(&mut self) {
        // What is done here may read a clock that has passed the end of the window. What was due before that end is sent all
        // the same, in the next turn; only then is the rest called off.
        let draining = self.draining;
        let end_ns = self.edges.measure_end();
        let until_ns = self.now_ns.saturating_add(1).min(end_ns);
        for _ in 0..DUE_AT_ONCE {
            if let Some(timer) = self.timers.pop_before(until_ns) {
                self.fire(timer);
            } else if self.next_arrival_ns() < until_ns {
                self.arrive();
            } else {
                if draining {
                    self.cancel(end_ns);
                }
                break;
            }
        }
        if self.now_ns >= self.sweep_ns {
            self.sweep();
        }
        let scheduled_ns = self.timers.next_ns().min(self.next_arrival_ns());
        self.behind = scheduled_ns < until_ns || self.draining != draining;
        self.due_ns = if self.behind { 0 } else { scheduled_ns.min(self.sweep_ns) };
    }

    fn fire(&mut self, timer: Timer) {
        let index = timer.slot as usize;
        let pressing = self.slots[index].is_pressing();
        if self.plan.messages.is_some() {
            self.member_fires(index, timer);
            return self.weigh(index, pressing);
        }
        if timer.arrives {
            self.user_starts(index, timer.due_ns);
        } else {
            self.recorder.pause_ends(timer.due_ns - timer.pause_ns, timer.due_ns);
            self.schedule(index, timer.step, timer.due_ns);
        }
        self.advance(index);
        self.weigh(index, pressing);
    }

    fn user_starts(&mut self, index: usize, due_ns: u64) {
        self.read_clock();
        self.recorder.users_changed(1, due_ns);
        let pipeline = self.plan.spec.connection.pipeline;
        let slot = &mut self.slots[index];
        while u32::from(slot.lanes) < pipeline && slot.take_request() {
            slot.lanes += 1;
        }
        for _ in 0..slot.lanes {
            self.schedule(index, 0, due_ns);
        }
    }

    /// A request is to be sent now; `advance` writes it.
    fn schedule(&mut self, index: usize, step: u16, intended_ns: u64) {
        let sent_ns = self.read_clock();
        self.send_at(index, step, intended_ns, sent_ns);
    }

    #[inline]
    fn send_at(&mut self, index: usize, step: u16, intended_ns: u64, sent_ns: u64) {
        let cohort = self.recorder.scheduled(intended_ns);
        let flight = Flight { intended_ns, sent_ns, step: step | if cohort { COHORT } else { 0 } };
        self.recorder.sent(&flight);
        self.slots[index].push(flight);
    }

    /// The oldest request of a connection has ended: it is recorded, and its lane goes on.
    #[inline]
    pub(super) fn end_request(&mut self, index: usize, outcome: Outcome) {
        let flight = self.slots[index].pop();
        self.recorder.done(&flight, outcome, self.done_ns);
        let last = usize::from(flight.step_index()) + 1 == self.plan.steps.len();
        let anew = last || outcome != Outcome::Ok;
        if self.open.is_some() && anew || self.draining {
            return self.lane_ends(index);
        }
        if !self.slots[index].take_request() {
            return self.lane_ends(index);
        }
        let next = if anew { 0 } else { flight.step_index() + 1 };
        let think = self.plan.steps[usize::from(flight.step_index())].think;
        let pause_ns = draw(&think, &mut self.rng).max(least_pause_ns(outcome));
        if pause_ns == 0 {
            let free_ns = self.done_ns;
            if free_ns < self.now_ns {
                self.read_clock();
            }
            self.send_at(index, next, free_ns, self.now_ns);
        } else {
            let due_ns = self.done_ns + pause_ns;
            self.recorder.pause_begins(self.done_ns);
            self.timers.push(Timer { due_ns, pause_ns, slot: index as u32, step: next, arrives: false, life: 0 });
            self.due_ns = self.due_ns.min(due_ns);
        }
    }

    fn lane_ends(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.lanes -= 1;
        let free = slot.lanes == 0;
        if let Some(open) = &mut self.open {
            open.active -= 1;
            if free {
                open.idle.push(index as u32);
            }
            self.recorder.users_changed(-1, self.now_ns);
        } else if free {
            self.recorder.users_changed(-1, self.now_ns);
            self.user_leaves(index);
        }
    }

    /// A user has no request left to send: its connection closes.
    fn user_leaves(&mut self, index: usize) {
        if self.slots[index].state != State::Closed {
            self.close(index);
        }
        self.tell_if_all_left();
    }

    pub(super) fn tell_if_all_left(&mut self) {
        if self.recorder.users() == 0 && self.timers.is_empty() && !self.all_left && !self.draining {
            self.all_left = true;
            let _ = self.reports.send(Input::Report(self.share.thread as usize, Report::AllLeft(self.now_ns)));
        }
    }

    /// The next arrival is taken off the schedule and sent, or dropped where no room is.
    fn arrive(&mut self) {
        let now_ns = self.read_clock();
        let Some(open) = &mut self.open else { return };
        let intended_ns = open.next_ns;
        open.next_ns = open.go_ns + open.schedule.next_ns();
        if open.active >= open.active_max {
            return self.recorder.dropped(intended_ns, now_ns);
        }
        open.active += 1;
        let index = self.room();
        let pressing = self.slots[index].is_pressing();
        self.recorder.users_changed(1, now_ns);
        self.slots[index].lanes += 1;
        self.send_at(index, 0, intended_ns, now_ns);
        self.advance(index);
        self.weigh(index, pressing);
    }

    /// A connection for an arrival: an idle one, else a new one, else one with room behind other requests.
    fn room(&mut self) -> usize {
        let Some(open) = &mut self.open else { return 0 };
        if let Some(index) = open.idle.pop() {
            return index as usize;
        }
        if self.slots.len() < open.slots_max as usize {
            self.slots.push(Slot::new(u32::MAX));
            return self.slots.len() - 1;
        }
        let pipeline = self.plan.spec.connection.pipeline as u16;
        while self.slots[open.cursor].lanes >= pipeline {
            open.cursor = (open.cursor + 1) % self.slots.len();
        }
        open.cursor
    }

    /// No more is scheduled: pauses are interrupted at the end of the window, users without a request leave.
    fn cancel(&mut self, end_ns: u64) {
        if self.plan.messages.is_some() {
            return self.call_off(end_ns);
        }
        if let Some(open) = &mut self.open {
            open.next_ns = u64::MAX;
        }
        while let Some(timer) = self.timers.pop_before(u64::MAX) {
            if timer.arrives {
                continue;
            }
            self.recorder.pause_ends(timer.due_ns - timer.pause_ns, end_ns.min(timer.due_ns));
            self.lane_ends(timer.slot as usize);
        }
    }

    /// Finds requests and connections whose time is up. The next sweep comes when the first of those now in flight could be:
    /// whatever is sent meanwhile has more time.
    fn sweep(&mut self) {
        if self.plan.messages.is_some() {
            return self.sweep_members();
        }
        let timeouts = &self.plan.spec.timeouts;
        let (connect_ns, request_ns) = (timeouts.connect_ns, timeouts.request_ns);
        let mut next_ns = self.now_ns + connect_ns.min(request_ns);
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.in_flight == 0 {
                continue;
            }
            let mut left_ns = (slot.front().sent_ns + request_ns).saturating_sub(self.now_ns);
            let mut outcome = Outcome::Timeout;
            if matches!(slot.state, State::Connecting | State::Handshake) {
                let connect_left_ns = connect_ns.saturating_sub(self.connecting_ns(index));
                // The stamp of connect() is in us: a difference of less is none.
                if connect_left_ns <= left_ns.saturating_add(1_000) {
                    (left_ns, outcome) = (left_ns.min(connect_left_ns), Outcome::ConnectTimeout);
                }
            }
            if left_ns > 0 {
                next_ns = next_ns.min(self.now_ns + left_ns);
            } else {
                let pressing = slot.is_pressing();
                self.read_clock();
                self.fail(index, outcome);
                self.weigh(index, pressing);
            }
        }
        self.sweep_ns = next_ns.max(self.now_ns + SWEEP_NS);
    }

    /// The end: what is still in flight stays unfinished; arrivals that were due and never sent are dropped.
    pub(super) fn abandon(&mut self, end_ns: u64) {
        self.draining = true;
        self.now_ns = end_ns;
        self.done_ns = end_ns;
        let window_end_ns = self.edges.measure_end().min(end_ns);
        while self.next_arrival_ns() < window_end_ns {
            let Some(open) = &mut self.open else { break };
            let intended_ns = open.next_ns;
            open.next_ns = open.go_ns + open.schedule.next_ns();
            self.recorder.dropped(intended_ns, end_ns);
        }
        self.cancel(window_end_ns);
        if self.plan.messages.is_some() {
            return self.abandon_members();
        }
        for index in 0..self.slots.len() {
            for _ in 0..self.slots[index].in_flight {
                self.end_request(index, Outcome::Unfinished);
            }
            if self.slots[index].state != State::Closed {
                self.close(index);
            }
        }
    }

    /// ns since connect() was called, from its stamp in us; wraps after 71 minutes, which no connect takes.
    pub(super) fn connecting_ns(&self, index: usize) -> u64 {
        let now_us = (now_ns().max(self.now_ns) / 1_000) as u32;
        u64::from(now_us.wrapping_sub(self.slots[index].connect_us)) * 1_000
    }
}

fn least_pause_ns(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::ConnectRefused
        | Outcome::ConnectTimeout
        | Outcome::ConnectFailed
        | Outcome::TlsFailed
        | Outcome::NoDescriptors
        | Outcome::NoPorts => CONNECT_PAUSE_NS,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::super::Share;
    use super::*;
    use crate::load::phases::Edges;
    use crate::load::plan;
    use crate::load::sys::Wake;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A worker of this model whose run began a second ago and whose window ended half a second ago.
    fn late_worker(model: &str) -> (Worker, u64) {
        let json = format!(
            r#"{{"protocol": 1, "target": {{"url": "http://127.0.0.1:9"}}, "scenario": [{{"name": "a"}}],
                "model": {model}, "phases": {{"drain_ns": 0, "deadline_ns": 1}}}}"#
        );
        let plan =
            Arc::new(plan::make(serde_json::from_str(&json).unwrap(), 1024).unwrap_or_else(|_| panic!("{json}")));
        let go_ns = now_ns() - SECOND_NS;
        let end_ns = go_ns + SECOND_NS / 2;
        let edges = Arc::new(Edges::default());
        edges.set(go_ns, end_ns, u64::MAX);
        let (sender, _) = channel();
        let wake = Arc::new(Wake::new().unwrap());
        let mut worker = Worker::new(plan, Share { thread: 0, threads: 1 }, edges, wake, sender).unwrap();
        worker.start(go_ns);
        (worker, end_ns)
    }

    #[test]
    fn an_edge_passed_while_sending_calls_off_nothing_that_was_due_before_it() {
        // 50 arrivals a second, of which 25 are intended within the window; all but one find no room.
        let (mut worker, end_ns) =
            late_worker(r#"{"kind": "open", "arrivals": "constant", "rate_per_s": 50, "max_in_flight": 1}"#);
        worker.now_ns = end_ns - SECOND_NS / 10;
        worker.run_due();
        assert!(worker.draining, "the clock was read and had passed the end of the window");
        assert_eq!(worker.due_ns, 0, "the rest is due at once");
        worker.run_due();
        worker.run_due();
        assert_eq!(worker.next_arrival_ns(), u64::MAX, "then all is called off");
        let (_, report) = worker.recorder.finish(now_ns());
        assert_eq!((report.total.scheduled, report.cohort.scheduled), (25, 25));
    }

    #[test]
    fn pauses_are_credited_up_to_the_end_of_the_window_and_no_further() {
        let (mut worker, end_ns) =
            late_worker(r#"{"kind": "closed", "users": 1, "think": {"kind": "constant", "ns": 1000000000}}"#);
        // A pause from 100 ms before the end of the window to long after it; the user's start reads the clock and passes the edge.
        worker.slots[0].lanes = 1;
        worker.recorder.pause_begins(end_ns - SECOND_NS / 10);
        let due_ns = end_ns - SECOND_NS / 10 + SECOND_NS;
        worker.timers.push(Timer { due_ns, pause_ns: SECOND_NS, slot: 0, step: 0, arrives: false, life: 0 });
        worker.now_ns = end_ns - SECOND_NS / 10;
        while !worker.timers.is_empty() {
            worker.run_due();
        }
        let (_, report) = worker.recorder.finish(now_ns());
        assert_eq!(report.total.think_ns_sum, SECOND_NS / 10);
    }
}
