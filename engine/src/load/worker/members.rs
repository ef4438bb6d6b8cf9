//! Users that hold a WebSocket each: they join, say what their steps say when it is due, lose their connection, join again, and
//! leave. Bytes and sockets are `messages`'.
//!
//! A user has as many *lanes* as messages that it may have without an answer: each goes through the scenario by itself, and is
//! in flight, in a pause, or parked until the user has joined. With a *pace* the user has a schedule instead (`paces`).

use super::slot::State;
use super::{SWEEP_NS, Worker};
use crate::contract::outcome::Outcome;
use crate::contract::spec::Duration;
use crate::load::flight::{COHORT, Flight};
use crate::load::plan::{draw, draw_first};
use crate::load::recorder::websocket::Loss;
use crate::load::timers::Timer;

/// How long the server's answer to a close frame is waited for.
const CLOSING_NS: u64 = 500_000_000;
/// At the end, deliveries are waited for until none has come for so long.
const LINGER_NS: u64 = 250_000_000;
/// Messages without an answer and without pauses that a lane sends before others have their turn.
const BURST: u32 = 64;

impl Worker {
    /// A user starts, joins again, or goes on.
    pub(super) fn member_fires(&mut self, index: usize, timer: Timer) {
        if timer.arrives {
            self.join(index, timer.due_ns);
        } else if self.pace().is_none() {
            self.pause_is_over(index, &timer);
        } else if timer.life == self.life(index) {
            self.read_clock();
            self.pace_on(index);
        }
        self.flush_messages(index);
    }

    fn join(&mut self, index: usize, due_ns: u64) {
        self.read_clock();
        let member = &mut self.web.members[index];
        member.intended_ns = due_ns;
        if !member.present {
            member.present = true;
            self.recorder.users_changed(1, due_ns);
            self.make_lanes(index, due_ns);
        }
        self.recorder.websocket.joins_started += 1;
        self.open_connection(index);
    }

    fn make_lanes(&mut self, index: usize, since_ns: u64) {
        if self.pace().is_some() {
            self.slots[index].lanes = 1;
            return;
        }
        let pipeline = self.plan.spec.connection.pipeline;
        while u32::from(self.slots[index].lanes) < pipeline && self.slots[index].take_request() {
            self.slots[index].lanes += 1;
            self.park(index, since_ns);
        }
    }

    /// A lane waits for its user to join.
    fn park(&mut self, index: usize, since_ns: u64) {
        self.recorder.pause_begins(since_ns);
        let member = &mut self.web.members[index];
        member.parked += 1;
        member.parked_ns_sum = member.parked_ns_sum.wrapping_add(since_ns);
    }

    /// No lane waits any more; how many did.
    fn unpark(&mut self, index: usize, now_ns: u64) -> u16 {
        let member = &mut self.web.members[index];
        let (parked, since_ns_sum) = (std::mem::take(&mut member.parked), std::mem::take(&mut member.parked_ns_sum));
        self.recorder.pauses_end(u64::from(parked), since_ns_sum, now_ns);
        parked
    }

    /// The last step of joining is done: the user begins.
    pub(super) fn joined(&mut self, index: usize) {
        let done_ns = self.done_ns;
        let member = &mut self.web.members[index];
        self.recorder.joined(member.intended_ns, done_ns, member.joined_before);
        member.joined_before = true;
        member.step = 0;
        member.held = false;
        let (ending, silence_ns_max) = (member.ending, member.session.silence_ns_max());
        self.slots[index].state = State::Joined;
        if let Some(silence_ns_max) = silence_ns_max {
            self.sweep_by(done_ns.saturating_add(silence_ns_max));
        }
        if ending {
            return;
        }
        self.greet(index);
        match self.pace() {
            Some(pace) => {
                let next_ns = done_ns + draw_first(&pace, &mut self.rng);
                self.web.members[index].next_ns = next_ns;
                self.set_timer(index, 0, next_ns, 0);
            }
            None => self.begin_lanes(index),
        }
    }

    fn greet(&mut self, index: usize) {
        let (user, now_ns) = (self.user(index), self.now_ns);
        let Some(plan) = &self.plan.messages else { return };
        for greeting in &plan.greetings {
            self.web.members[index].session.greet(greeting, now_ns, user, &mut self.web.desk);
        }
    }

    fn begin_lanes(&mut self, index: usize) {
        let think = self.plan.messages.as_ref().map_or(Duration::default(), |plan| plan.think);
        for _ in 0..self.unpark(index, self.done_ns) {
            match draw_first(&think, &mut self.rng) {
                0 => self.say(index, 0, self.done_ns),
                pause_ns => self.pause(index, 0, pause_ns),
            }
        }
    }

    fn pause(&mut self, index: usize, step: u16, pause_ns: u64) {
        self.recorder.pause_begins(self.done_ns);
        self.set_timer(index, step, self.done_ns + pause_ns, pause_ns);
    }

    pub(super) fn set_timer(&mut self, index: usize, step: u16, due_ns: u64, pause_ns: u64) {
        let life = self.life(index);
        self.timers.push(Timer { due_ns, pause_ns, slot: index as u32, step, arrives: false, life });
        self.due_ns = self.due_ns.min(due_ns);
    }

    fn pause_is_over(&mut self, index: usize, timer: &Timer) {
        self.recorder.pause_ends(timer.due_ns - timer.pause_ns, timer.due_ns);
        if !self.may_speak(index) {
            self.park(index, timer.due_ns);
            return self.leave_if_out(index, self.now_ns);
        }
        self.read_clock();
        // On another connection the scenario begins anew.
        let step = if timer.life == self.life(index) { timer.step } else { 0 };
        self.say(index, step, timer.due_ns);
    }

    pub(super) fn may_speak(&self, index: usize) -> bool {
        self.slots[index].state == State::Joined && !self.web.members[index].ending
    }

    /// A step's message is said; `flush_messages` writes it.
    #[inline]
    fn say(&mut self, index: usize, step: u16, intended_ns: u64) {
        self.say_when_free(index, step, intended_ns, intended_ns);
    }

    /// The same of a message that may have waited, until `free_ns`, for answers to others.
    #[inline]
    pub(super) fn say_when_free(&mut self, index: usize, step: u16, intended_ns: u64, free_ns: u64) {
        let sent_ns = self.now_ns;
        let user = self.user(index);
        let cohort = self.recorder.scheduled(intended_ns);
        let flight = Flight { intended_ns, sent_ns, step: step | if cohort { COHORT } else { 0 } };
        self.recorder.sent_when_free(&flight, free_ns);
        let Some(plan) = &self.plan.messages else { return };
        let message = &plan.steps[usize::from(step)];
        if message.stamped {
            self.recorder.published(sent_ns);
        }
        self.web.members[index].session.say(message, flight, user, &mut self.web.desk);
        if !message.answered {
            self.web.one_way.push(flight);
        }
    }

    /// A message has its answer, or is written and has none, or never will have one: its lane goes on.
    #[inline]
    pub(super) fn ended(&mut self, index: usize, flight: &Flight, outcome: Outcome) {
        self.recorder.done(flight, outcome, self.done_ns);
        let ok = outcome == Outcome::Ok;
        if self.pace().is_some() {
            if !ok {
                self.web.members[index].step = 0;
            }
            return;
        }
        if self.draining || !self.slots[index].take_request() {
            return self.lane_leaves(index);
        }
        if !self.may_speak(index) {
            return self.park(index, self.done_ns);
        }
        let step = flight.step_index();
        let last = usize::from(step) + 1 == self.plan.steps.len();
        let next = if last || !ok { 0 } else { step + 1 };
        let think = self.plan.steps[usize::from(step)].think;
        let pause_ns = draw(&think, &mut self.rng);
        if pause_ns > 0 || self.web.burst > BURST {
            return self.pause(index, next, pause_ns);
        }
        let free_ns = self.done_ns;
        if free_ns < self.now_ns {
            self.read_clock();
        }
        self.say(index, next, free_ns);
    }

    /// The user could not join.
    pub(super) fn join_failed(&mut self, index: usize, outcome: Outcome) {
        if self.slots[index].state != State::Closed {
            self.close_member(index);
        }
        self.recorder.join_failed(outcome);
        self.is_away(index);
    }

    /// The connection is lost, or given up. `outcome`: of the oldest message without an answer.
    pub(super) fn lose(&mut self, index: usize, why: Loss, outcome: Outcome) {
        match self.slots[index].state {
            State::Joined => {}
            State::Closing => return self.close_member(index),
            State::Connecting => return self.connect_failed(index, outcome),
            _ => return self.join_failed(index, outcome),
        }
        self.recorder.parted();
        self.recorder.dropped_out(why);
        let blocked = self.web.members[index].blocked.take();
        self.close_member(index);
        // A late answer or a wrong message is the oldest request's; those behind it only lose their connection.
        let behind = if outcome == Outcome::Reset { Outcome::Reset } else { Outcome::ClosedEarly };
        self.end_all(index, blocked.map_or(Vec::new(), |blocked| blocked.one_way), outcome, behind);
        self.drop_unsent(index, self.done_ns);
        self.is_away(index);
    }

    /// All messages of a user that are not done end so.
    fn end_all(&mut self, index: usize, one_way: Vec<Flight>, first: Outcome, behind: Outcome) {
        let mut outcome = first;
        while let Some(flight) = self.web.members[index].session.give_up() {
            self.ended(index, &flight, outcome);
            outcome = behind;
        }
        let about_to_be_written = std::mem::take(&mut self.web.one_way);
        for flight in one_way.into_iter().chain(about_to_be_written) {
            self.ended(index, &flight, behind);
        }
    }

    /// A user has no connection: it joins again after a while, or stays out.
    fn is_away(&mut self, index: usize) {
        let rejoin_after_ns = self.plan.messages.as_ref().and_then(|plan| plan.rejoin_after_ns);
        if self.slots[index].lanes == 0 {
            return;
        }
        match rejoin_after_ns.filter(|_| !self.draining) {
            None => self.stay_out(index, self.done_ns),
            Some(pause_ns) => {
                let due_ns = self.done_ns + pause_ns;
                self.timers.push(Timer { due_ns, pause_ns, slot: index as u32, step: 0, arrives: true, life: 0 });
                self.due_ns = self.due_ns.min(due_ns);
            }
        }
    }

    /// The user will have no connection any more.
    fn stay_out(&mut self, index: usize, now_ns: u64) {
        self.web.members[index].out = true;
        match self.pace() {
            Some(_) => self.lane_leaves(index),
            None => self.leave_if_out(index, now_ns),
        }
    }

    /// A user that stays out leaves as a whole, when the pauses of all its lanes are over: so its time is its lanes' time.
    fn leave_if_out(&mut self, index: usize, now_ns: u64) {
        let member = &self.web.members[index];
        if member.out && member.parked == self.slots[index].lanes {
            for _ in 0..self.unpark(index, now_ns) {
                self.lane_leaves(index);
            }
        }
    }

    pub(super) fn lane_leaves(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.lanes -= 1;
        if slot.lanes > 0 {
            return;
        }
        self.recorder.users_changed(-1, self.now_ns);
        if self.web.lingers_until_ns.is_none() {
            self.take_leave(index);
        }
        if self.plan.messages.as_ref().is_some_and(|plan| plan.work_ends) {
            self.tell_if_all_left();
        }
    }

    /// A user that has said all closes its connection.
    fn take_leave(&mut self, index: usize) {
        if self.slots[index].state != State::Joined {
            return;
        }
        let Some(plan) = &self.plan.messages else { return };
        self.web.members[index].session.take_leave(plan, &mut self.web.desk);
        self.recorder.parted();
        self.web.closing += 1;
        let slot = &mut self.slots[index];
        slot.state = State::Closing;
        slot.connect_us = (self.now_ns / 1_000) as u32;
        self.sweep_by(self.now_ns + CLOSING_NS);
    }

    /// The connection is closed without another word.
    pub(super) fn close_member(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        self.web.closing -= u32::from(slot.state == State::Closing);
        slot.unwritten = 0;
        self.close(index);
        let member = &mut self.web.members[index];
        member.blocked = None;
        member.ending = false;
        self.web.desk.out.clear();
    }

    /// Deliveries may follow each other for a while after the end of the window.
    #[inline]
    pub(super) fn linger(&mut self) {
        if let Some(until_ns) = &mut self.web.lingers_until_ns {
            *until_ns = self.now_ns + LINGER_NS;
        }
    }

    /// The end of the window: pauses are interrupted, what is due no more is not sent, users without a request leave.
    pub(super) fn call_off(&mut self, end_ns: u64) {
        if std::mem::replace(&mut self.web.called_off, true) {
            return;
        }
        if self.plan.messages.as_ref().is_some_and(|plan| plan.stamp_after.is_some()) {
            self.web.lingers_until_ns = Some(self.now_ns + LINGER_NS);
            self.sweep_by(self.now_ns + LINGER_NS);
        }
        while let Some(timer) = self.timers.pop_before(u64::MAX) {
            let index = timer.slot as usize;
            if timer.arrives {
                if self.web.members[index].present {
                    self.stay_out(index, end_ns);
                }
            } else if self.pace().is_none() {
                self.recorder.pause_ends(timer.due_ns - timer.pause_ns, end_ns.min(timer.due_ns));
                self.lane_leaves(index);
                self.flush_messages(index);
            }
        }
        for index in 0..self.slots.len() {
            match self.slots[index].state {
                State::Closed => self.leave_if_out(index, end_ns),
                State::Connecting | State::Joining => self.join_failed(index, Outcome::Unfinished),
                State::Joined => {
                    self.drop_unsent(index, end_ns);
                    self.flush_messages(index);
                }
                _ => {}
            }
        }
    }

    /// Finds messages, joins and connections whose time is up.
    pub(super) fn sweep_members(&mut self) {
        let timeouts = &self.plan.spec.timeouts;
        let mut next_ns = self.now_ns + timeouts.connect_ns.min(timeouts.request_ns);
        for index in 0..self.slots.len() {
            let Some((left_ns, why)) = self.time_left(index) else { continue };
            if left_ns > 0 {
                next_ns = next_ns.min(self.now_ns + left_ns);
                continue;
            }
            let pressing = self.slots[index].is_pressing();
            self.read_clock();
            match why {
                Loss::Heartbeat => self.lose(index, why, Outcome::ClosedEarly),
                _ if self.slots[index].state == State::Joined => self.lose(index, why, Outcome::Timeout),
                _ => self.lose(index, why, Outcome::ConnectTimeout),
            }
            self.weigh(index, pressing);
        }
        match self.web.lingers_until_ns {
            Some(until_ns) if until_ns <= self.now_ns => self.end_lingering(),
            Some(until_ns) => next_ns = next_ns.min(until_ns),
            None => {}
        }
        if self.web.closing > 0 {
            next_ns = next_ns.min(self.now_ns + CLOSING_NS);
        }
        self.sweep_ns = next_ns.max(self.now_ns + SWEEP_NS);
    }

    /// How long a connection may still go on without anything happening on it, and what it is lost to then.
    fn time_left(&self, index: usize) -> Option<(u64, Loss)> {
        let timeouts = &self.plan.spec.timeouts;
        let member = &self.web.members[index];
        match self.slots[index].state {
            State::Connecting | State::Joining => {
                Some((timeouts.connect_ns.saturating_sub(self.connecting_ns(index)), Loss::Timeout))
            }
            State::Closing => Some((CLOSING_NS.saturating_sub(self.connecting_ns(index)), Loss::Closed)),
            State::Joined => {
                let unwritten = member.blocked.as_ref().and_then(|blocked| blocked.one_way.first());
                let sent_ns = [member.session.oldest_sent_ns(), unwritten.map(|flight| flight.sent_ns)];
                let sent_ns = sent_ns.into_iter().flatten().min();
                let ends = |from_ns: u64, after_ns: u64| from_ns.saturating_add(after_ns).saturating_sub(self.now_ns);
                let request = sent_ns.map(|sent_ns| (ends(sent_ns, timeouts.request_ns), Loss::Timeout));
                let silence = member.session.silence_ns_max();
                let silence = silence.map(|most_ns| (ends(member.heard_ns, most_ns), Loss::Heartbeat));
                [request, silence].into_iter().flatten().min_by_key(|(left_ns, _)| *left_ns)
            }
            _ => None,
        }
    }

    fn sweep_by(&mut self, at_ns: u64) {
        self.sweep_ns = self.sweep_ns.min(at_ns);
        self.due_ns = self.due_ns.min(at_ns);
    }

    /// No more deliveries are waited for.
    fn end_lingering(&mut self) {
        self.web.lingers_until_ns = None;
        for index in 0..self.slots.len() {
            if self.slots[index].lanes == 0 {
                self.take_leave(index);
                self.flush_messages(index);
            }
        }
    }

    /// The end: what has no answer stays unfinished.
    pub(super) fn abandon_members(&mut self) {
        self.web.lingers_until_ns = None;
        for index in 0..self.slots.len() {
            let one_way = self.web.members[index].blocked.as_mut().map(|blocked| std::mem::take(&mut blocked.one_way));
            self.end_all(index, one_way.unwrap_or_default(), Outcome::Unfinished, Outcome::Unfinished);
            if self.slots[index].state == State::Joined && self.slots[index].lanes > 0 {
                self.lane_leaves(index);
            }
            self.take_leave(index);
            self.flush_messages(index);
            if self.slots[index].state != State::Closed {
                self.close_member(index);
            }
        }
    }

    #[inline]
    pub(super) fn pace(&self) -> Option<Duration> {
        self.plan.messages.as_ref().and_then(|plan| plan.pace)
    }

    /// Which of its user's connections this is, roughly.
    fn life(&self, index: usize) -> u8 {
        self.slots[index].generation as u8
    }

    /// The user's index in the fleet.
    fn user(&self, index: usize) -> u64 {
        self.plan.spec.first_user + index as u64 * u64::from(self.share.threads) + u64::from(self.share.thread)
    }
}
