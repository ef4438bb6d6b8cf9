//! Lanes of requests, which wait for their answers in their slot: decides what is sent next, and when.
//!
//! A *lane* is one sequence of requests through the scenario. A user has as many lanes as requests that it keeps in
//! flight; an arrival is one lane. A failed request ends the pass through the scenario: a user starts the scenario
//! again, an arrival is over.

use rand::Rng;

use super::core::Core;
use super::slot::State;
use crate::contract::outcome::Outcome;
use crate::contract::spec::{Duration, Model};
use crate::load::flight::{COHORT, FIRST, Flight};
use crate::load::plan::{draw, draw_first};
use crate::load::timers::Timer;

/// The shortest pause of a user that could not connect, so that a refused port is not hammered.
const CONNECT_PAUSE_NS: u64 = 100_000_000; // arbitrary: ten attempts a second for each user

impl Core {
    /// Starts all lanes of a user.
    pub fn start_user(&mut self, index: usize, due_ns: u64) {
        self.read_clock();
        self.to_start -= 1;
        self.recorder.users_changed(1, due_ns);
        let pipeline = self.plan.spec.connection.pipeline;
        let slot = &mut self.slots[index];
        while u32::from(slot.lanes) < pipeline && slot.take_request() {
            slot.lanes += 1;
        }
        // A set number of requests is a job, and no load that is to be steady.
        let endless = matches!(self.plan.spec.model, Model::Closed { requests_per_user: None, .. });
        for _ in 0..slot.lanes {
            self.send_now(index, if endless { FIRST } else { 0 }, due_ns);
        }
    }

    /// Ends the pause of a lane, and sends the request of its next step.
    pub fn end_pause(&mut self, timer: &Timer) {
        self.recorder.pause_ends(timer.due_ns - timer.pause_ns, timer.due_ns);
        self.send_now(timer.slot as usize, timer.step, timer.due_ns);
    }

    fn send_now(&mut self, index: usize, step: u16, intended_ns: u64) {
        let sent_ns = self.read_clock();
        self.send_at(index, step, intended_ns, sent_ns);
    }

    /// Puts a request into its slot, from which the protocol writes it.
    #[inline]
    pub fn send_at(&mut self, index: usize, step: u16, intended_ns: u64, sent_ns: u64) {
        let cohort = self.recorder.scheduled(intended_ns);
        let flight = Flight { intended_ns, sent_ns, step: step | if cohort { COHORT } else { 0 } };
        self.recorder.sent(index, &flight);
        self.slots[index].push(flight);
    }

    /// Ends the oldest request of a connection: records it, and continues its lane.
    #[inline]
    pub fn end_request(&mut self, index: usize, outcome: Outcome) {
        let flight = self.slots[index].pop();
        self.recorder.done(index, &flight, outcome, self.done_ns);
        let last = usize::from(flight.step_index()) + 1 == self.plan.pauses.len();
        let anew = last || outcome != Outcome::Ok;
        if self.open.is_some() && anew || self.draining {
            return self.end_lane(index);
        }
        if !self.slots[index].take_request() {
            return self.end_lane(index);
        }
        let first = flight.step & FIRST;
        let next = if anew { 0 } else { flight.step_index() + 1 };
        let pause = self.plan.pauses[usize::from(flight.step_index())];
        let pause_ns = if first == 0 { draw(&pause, &mut self.rng) } else { self.draw_first(&pause) };
        let pause_ns = pause_ns.max(least_pause_ns(outcome));
        if pause_ns == 0 {
            let free_ns = self.done_ns;
            if free_ns < self.now_ns {
                self.read_clock();
            }
            self.send_at(index, next, free_ns, self.now_ns);
        } else {
            let due_ns = self.done_ns + pause_ns;
            self.recorder.pause_begins(self.done_ns);
            self.set_timer(Timer { due_ns, pause_ns, slot: index as u32, step: next, arrives: false, life: 0 });
        }
    }

    #[cold]
    fn draw_first(&mut self, pause: &Duration) -> u64 {
        match self.plan.spec.model {
            Model::Closed { first_pause_ns: most_ns @ 1.., .. } => self.rng.random_range(0..most_ns),
            _ => draw_first(pause, &mut self.rng),
        }
    }

    /// Interrupts all pauses at the end of the window, and ends their lanes.
    pub fn end_pauses(&mut self, end_ns: u64) {
        while let Some(timer) = self.timers.pop_before(u64::MAX) {
            if timer.arrives {
                continue;
            }
            self.recorder.pause_ends(timer.due_ns - timer.pause_ns, end_ns.min(timer.due_ns));
            self.end_lane(timer.slot as usize);
        }
    }

    fn end_lane(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.lanes -= 1;
        let free = slot.lanes == 0;
        if let Some(open) = &mut self.open {
            open.end(index, free);
            self.recorder.users_changed(-1, self.now_ns);
        } else if free {
            self.recorder.users_changed(-1, self.now_ns);
            // The user has no request left to send.
            if self.slots[index].state != State::Closed {
                self.close(index);
            }
            self.report_if_all_left();
        }
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
