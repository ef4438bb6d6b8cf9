//! Users with a pace: each has a schedule of its own, which waits for no answer as long as few enough are missing. What is due and
//! may not be sent waits without being counted; the schedule is drawn on when it is sent, or given up.

use super::Worker;
use super::slot::State;
use crate::load::plan::draw;

/// What is due on one connection is gathered for one write up to here.
const GATHER_BYTES: usize = 64 << 10;

impl Worker {
    /// Sends what is due by now, as far as may be, and sets a timer for the next.
    pub(super) fn pace_on(&mut self, index: usize) {
        let Some(pace) = self.pace() else { return };
        let until_ns = self.now_ns.saturating_add(1).min(self.edges.measure_end());
        loop {
            let (next_ns, step) = (self.web.members[index].next_ns, self.web.members[index].step);
            let full = self.web.desk.out.len() >= GATHER_BYTES;
            if (next_ns >= until_ns || full) && self.may_speak(index) {
                self.web.members[index].held = false;
                if next_ns != u64::MAX && !self.draining {
                    self.set_timer(index, 0, next_ns, 0);
                }
                return;
            }
            if !self.may_say(index, step) {
                self.web.members[index].held = true;
                return;
            }
            if !self.slots[index].take_request() {
                self.web.members[index].next_ns = u64::MAX;
                continue;
            }
            let free_ns = if self.web.members[index].held { next_ns.max(self.done_ns) } else { next_ns };
            self.say_when_free(index, step, next_ns, free_ns);
            let member = &mut self.web.members[index];
            member.step = if usize::from(step) + 1 == self.plan.steps.len() { 0 } else { step + 1 };
            member.next_ns = next_ns + draw(&pace, &mut self.rng).max(1);
        }
    }

    /// After answers have come or bytes were written: goes on with a schedule that waited for that, or leaves.
    #[inline]
    pub(super) fn pace_on_if_held(&mut self, index: usize) {
        if self.pace().is_none() || self.slots[index].state != State::Joined {
            return;
        }
        if self.web.members[index].held {
            self.pace_on(index);
        }
        let member = &self.web.members[index];
        let has_more = member.next_ns != u64::MAX && !self.web.called_off;
        let waits = member.session.unanswered() > 0 || member.blocked.is_some() || !self.web.one_way.is_empty();
        if !has_more && !waits && self.slots[index].lanes > 0 {
            self.lane_leaves(index);
        }
    }

    /// With a pace: whether the next message may be sent at once.
    fn may_say(&self, index: usize, step: u16) -> bool {
        let member = &self.web.members[index];
        let answered = self.plan.messages.as_ref().is_some_and(|plan| plan.steps[usize::from(step)].answered);
        let room = !answered || member.session.unanswered() < self.plan.spec.connection.pipeline as usize;
        room && member.blocked.is_none() && self.may_speak(index)
    }

    /// With a pace: what was due before this instant and could not be sent is given up.
    pub(super) fn drop_unsent(&mut self, index: usize, before_ns: u64) {
        let Some(pace) = self.pace() else { return };
        let before_ns = before_ns.min(self.edges.measure_end());
        while self.web.members[index].next_ns < before_ns && self.slots[index].take_request() {
            let next_ns = self.web.members[index].next_ns;
            self.recorder.dropped(next_ns, self.now_ns);
            self.web.members[index].next_ns = next_ns + draw(&pace, &mut self.rng).max(1);
        }
    }
}
