//! Users that each hold a WebSocket: they join, send the messages of their steps when these are due, lose their
//! connection, join again, and leave. The parent module writes their messages.
//!
//! A user has as many *lanes* as messages that it may have without an answer. Each lane goes through the scenario by
//! itself, and is in flight, in a pause, or parked until the user has joined. With a *pace* the user has a schedule
//! instead (`paces`).

use super::member::Messages;
use crate::contract::outcome::Outcome;
use crate::load::flight::{COHORT, Flight};
use crate::load::plan::{draw, draw_first};
use crate::load::recorder::websocket::Loss;
use crate::load::timers::Timer;
use crate::load::worker::core::Core;
use crate::load::worker::slot::State;

/// The longest wait for the server's answer to a close frame.
pub const CLOSING_NS: u64 = 500_000_000; // arbitrary: a server answers at once, or never
/// After the end of the window, users wait for deliveries until none has come for this long.
pub const LINGER_NS: u64 = 250_000_000; // arbitrary: far above a delivery on one machine
/// Most messages without answers and without pauses that a lane sends before others have their turn.
const BURST: u32 = 64; // like the loop's `DUE_AT_ONCE`

impl Messages {
    /// Starts to join, for the first time or again.
    pub fn join(&mut self, core: &mut Core, index: usize, due_ns: u64) {
        core.read_clock();
        let member = &mut self.members[index];
        member.intended_ns = due_ns;
        if !member.present {
            member.present = true;
            core.to_start -= 1;
            core.recorder.users_changed(1, due_ns);
            self.make_lanes(core, index, due_ns);
        }
        core.recorder.websocket.joins_started += 1;
        if let Err(outcome) = core.connect(index) {
            self.connection_failed(core, index, outcome);
        }
    }

    fn make_lanes(&mut self, core: &mut Core, index: usize, since_ns: u64) {
        if self.plan.pace.is_some() {
            core.slots[index].lanes = 1;
            return;
        }
        let pipeline = core.plan.spec.connection.pipeline;
        while u32::from(core.slots[index].lanes) < pipeline && core.slots[index].take_request() {
            core.slots[index].lanes += 1;
            self.park(core, index, since_ns);
        }
    }

    /// Makes a lane wait until its user has joined.
    fn park(&mut self, core: &mut Core, index: usize, since_ns: u64) {
        core.recorder.pause_begins(since_ns);
        let member = &mut self.members[index];
        member.parked += 1;
        member.parked_ns_sum = member.parked_ns_sum.wrapping_add(since_ns);
    }

    /// Ends the wait of all parked lanes; returns their number.
    fn unpark(&mut self, core: &mut Core, index: usize, now_ns: u64) -> u16 {
        let member = &mut self.members[index];
        let (parked, since_ns_sum) = (std::mem::take(&mut member.parked), std::mem::take(&mut member.parked_ns_sum));
        core.recorder.pauses_end(u64::from(parked), since_ns_sum, now_ns);
        parked
    }

    /// Starts the user's messages once the last step of joining is done.
    pub fn joined(&mut self, core: &mut Core, index: usize) {
        let done_ns = core.done_ns;
        let member = &mut self.members[index];
        core.recorder.joined(index, member.intended_ns, done_ns, member.joined_before);
        member.joined_before = true;
        member.step = 0;
        member.held = false;
        // No schedule yet: if the same read also ended the connection, no message was due on it.
        member.next_ns = u64::MAX;
        let (ending, silence_ns_max) = (member.ending, member.session.silence_ns_max());
        core.slots[index].state = State::Joined;
        if let Some(silence_ns_max) = silence_ns_max {
            core.sweep_by(done_ns.saturating_add(silence_ns_max));
        }
        if ending {
            return;
        }
        self.greet(core, index);
        match self.plan.pace {
            Some(pace) => {
                let next_ns = done_ns + draw_first(&pace, &mut core.rng);
                self.members[index].next_ns = next_ns;
                set_timer(core, index, 0, next_ns, 0);
            }
            None => self.begin_lanes(core, index),
        }
    }

    fn greet(&mut self, core: &mut Core, index: usize) {
        let (user, now_ns) = (core.user(index), core.now_ns);
        for greeting in &self.plan.greetings {
            self.members[index].session.greet(greeting, now_ns, user, &mut self.desk);
        }
    }

    fn begin_lanes(&mut self, core: &mut Core, index: usize) {
        let think = self.plan.think;
        for _ in 0..self.unpark(core, index, core.done_ns) {
            match draw_first(&think, &mut core.rng) {
                0 => self.say(core, index, 0, core.done_ns),
                pause_ns => self.pause(core, index, 0, pause_ns),
            }
        }
    }

    fn pause(&mut self, core: &mut Core, index: usize, step: u16, pause_ns: u64) {
        core.recorder.pause_begins(core.done_ns);
        set_timer(core, index, step, core.done_ns + pause_ns, pause_ns);
    }

    /// Ends the pause of a lane: it continues, or waits until its user has joined.
    pub fn pause_is_over(&mut self, core: &mut Core, index: usize, timer: &Timer) {
        core.recorder.pause_ends(timer.due_ns - timer.pause_ns, timer.due_ns);
        if !self.may_speak(core, index) {
            self.park(core, index, timer.due_ns);
            return self.leave_if_out(core, index);
        }
        core.read_clock();
        // After another join, the scenario starts again.
        let step = if timer.life == core.slots[index].life() { timer.step } else { 0 };
        self.say(core, index, step, timer.due_ns);
    }

    pub fn may_speak(&self, core: &Core, index: usize) -> bool {
        core.slots[index].state == State::Joined && !self.members[index].ending
    }

    /// Queues a step's message; `flush` writes it.
    #[inline]
    fn say(&mut self, core: &mut Core, index: usize, step: u16, intended_ns: u64) {
        self.say_when_free(core, index, step, intended_ns, intended_ns);
    }

    /// Queues a step's message that may have waited, until `free_ns`, for answers to others.
    #[inline]
    pub fn say_when_free(&mut self, core: &mut Core, index: usize, step: u16, intended_ns: u64, free_ns: u64) {
        let sent_ns = core.now_ns;
        let user = core.user(index);
        let cohort = core.recorder.scheduled(intended_ns);
        let flight = Flight { intended_ns, sent_ns, step: step | if cohort { COHORT } else { 0 } };
        core.recorder.sent_when_free(index, &flight, free_ns);
        let message = &self.plan.steps[usize::from(step)];
        if message.stamped {
            core.recorder.published(sent_ns);
        }
        self.members[index].session.say(message, flight, user, &mut self.desk);
        if !message.answered {
            self.one_way.push(flight);
        }
    }

    /// Records the end of a message and continues its lane. A message ends when it is answered, when it is written (if
    /// it expects no answer), or when its answer can no longer come.
    #[inline]
    pub fn ended(&mut self, core: &mut Core, index: usize, flight: &Flight, outcome: Outcome) {
        core.recorder.done(index, flight, outcome, core.done_ns);
        let ok = outcome == Outcome::Ok;
        if self.plan.pace.is_some() {
            if !ok {
                self.members[index].step = 0;
            }
            return;
        }
        if core.draining || !core.slots[index].take_request() {
            return self.lane_leaves(core, index);
        }
        if !self.may_speak(core, index) {
            return self.park(core, index, core.done_ns);
        }
        let step = flight.step_index();
        let last = usize::from(step) + 1 == self.plan.steps.len();
        let next = if last || !ok { 0 } else { step + 1 };
        let think = core.plan.pauses[usize::from(step)];
        let pause_ns = draw(&think, &mut core.rng);
        if pause_ns > 0 || self.burst > BURST {
            return self.pause(core, index, next, pause_ns);
        }
        let free_ns = core.done_ns;
        if free_ns < core.now_ns {
            core.read_clock();
        }
        self.say(core, index, next, free_ns);
    }

    /// Handles a failure of TCP or TLS.
    pub fn connection_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        core.recorder.connections.failed += 1;
        self.join_failed(core, index, outcome);
    }

    /// Handles a failure to join.
    pub fn join_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        if core.slots[index].state != State::Closed {
            self.close_member(core, index);
        }
        core.recorder.join_failed(outcome);
        self.is_away(core, index);
    }

    /// Handles a connection that is lost or given up. `outcome` is that of the oldest message without an answer.
    pub fn lose(&mut self, core: &mut Core, index: usize, why: Loss, outcome: Outcome) {
        match core.slots[index].state {
            State::Joined => {}
            State::Closing => return self.close_member(core, index),
            State::Connecting => return self.connection_failed(core, index, outcome),
            _ => return self.join_failed(core, index, outcome),
        }
        core.recorder.parted();
        core.recorder.dropped_out(index, why, core.done_ns);
        let blocked = self.members[index].blocked.take();
        self.close_member(core, index);
        // A late answer or a wrong message belongs to the oldest request; those behind it only lose their connection.
        let behind = if outcome == Outcome::Reset { Outcome::Reset } else { Outcome::ClosedEarly };
        self.end_all(core, index, blocked.map_or(Vec::new(), |blocked| blocked.one_way), outcome, behind);
        self.drop_unsent(core, index, core.done_ns);
        self.is_away(core, index);
    }

    /// Ends all unfinished messages of a user: the oldest with the outcome `first`, the others with `behind`.
    pub fn end_all(&mut self, core: &mut Core, index: usize, one_way: Vec<Flight>, first: Outcome, behind: Outcome) {
        let mut outcome = first;
        while let Some(flight) = self.members[index].session.give_up() {
            self.ended(core, index, &flight, outcome);
            outcome = behind;
        }
        if outcome != Outcome::Timeout {
            // Of a message that expects no answer, only the writing may have taken too long.
            outcome = behind;
        }
        let about_to_be_written = std::mem::take(&mut self.one_way);
        for flight in one_way.into_iter().chain(about_to_be_written) {
            self.ended(core, index, &flight, outcome);
            outcome = behind;
        }
    }

    /// Handles a user without a connection: it joins again after a pause, or stays out.
    fn is_away(&mut self, core: &mut Core, index: usize) {
        if core.slots[index].lanes == 0 {
            return;
        }
        let has_said_all = self.plan.pace.is_some() && !core.slots[index].has_requests();
        match self.plan.rejoin_after_ns.filter(|_| !core.draining && !has_said_all) {
            None => self.stay_out(core, index),
            Some(pause_ns) => {
                let due_ns = core.done_ns + pause_ns;
                core.set_timer(Timer { due_ns, pause_ns, slot: index as u32, step: 0, arrives: true, life: 0 });
            }
        }
    }

    /// Makes a user stay without a connection for good.
    pub fn stay_out(&mut self, core: &mut Core, index: usize) {
        self.members[index].out = true;
        match self.plan.pace {
            Some(_) => self.lane_leaves(core, index),
            None => self.leave_if_out(core, index),
        }
    }

    /// Makes a user that stays out leave as a whole, once the pauses of all its lanes are over: the user's time then
    /// equals that of its lanes.
    pub fn leave_if_out(&mut self, core: &mut Core, index: usize) {
        let member = &self.members[index];
        if member.out && member.parked == core.slots[index].lanes {
            for _ in 0..self.unpark(core, index, core.now_ns) {
                self.lane_leaves(core, index);
            }
        }
    }

    pub fn lane_leaves(&mut self, core: &mut Core, index: usize) {
        let slot = &mut core.slots[index];
        slot.lanes -= 1;
        if slot.lanes > 0 {
            return;
        }
        core.recorder.users_changed(-1, core.now_ns);
        if self.lingers_until_ns.is_none() {
            self.take_leave(core, index);
        }
        if self.plan.work_ends {
            core.report_if_all_left();
        }
    }

    /// Starts to close the connection of a user that has nothing left to say.
    pub fn take_leave(&mut self, core: &mut Core, index: usize) {
        if core.slots[index].state != State::Joined {
            return;
        }
        self.members[index].session.take_leave(&self.plan, &mut self.desk);
        core.recorder.parted();
        self.closing += 1;
        let slot = &mut core.slots[index];
        slot.state = State::Closing;
        slot.stamp_us = (core.now_ns / 1_000) as u32;
        core.sweep_by(core.now_ns + CLOSING_NS);
    }

    /// Closes the connection without a close frame.
    pub fn close_member(&mut self, core: &mut Core, index: usize) {
        let slot = &mut core.slots[index];
        self.closing -= u32::from(slot.state == State::Closing);
        slot.unwritten = 0;
        core.close(index);
        let member = &mut self.members[index];
        member.blocked = None;
        member.ending = false;
        self.desk.out.clear();
    }

    /// Waits longer for deliveries, since one has come after the end of the window.
    #[inline]
    pub fn linger(&mut self, core: &Core) {
        if let Some(until_ns) = &mut self.lingers_until_ns {
            *until_ns = core.now_ns + LINGER_NS;
        }
    }

    /// With a pace: drops the messages that were due before this instant and could not be sent.
    pub fn drop_unsent(&mut self, core: &mut Core, index: usize, before_ns: u64) {
        let Some(pace) = self.plan.pace else { return };
        let before_ns = before_ns.min(core.edges.measure_end());
        while self.members[index].next_ns < before_ns && core.slots[index].take_request() {
            let next_ns = self.members[index].next_ns;
            core.recorder.dropped(next_ns, core.now_ns);
            self.members[index].next_ns = next_ns + draw(&pace, &mut core.rng).max(1);
        }
    }
}

/// Sets a timer for the user's current connection.
pub fn set_timer(core: &mut Core, index: usize, step: u16, due_ns: u64, pause_ns: u64) {
    let life = core.slots[index].life();
    core.set_timer(Timer { due_ns, pause_ns, slot: index as u32, step, arrives: false, life });
}
