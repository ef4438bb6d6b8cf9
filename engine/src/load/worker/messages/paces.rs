//! Users with a pace: each has its own schedule, which does not wait for answers unless too many are missing. A message
//! that is due and may not be sent yet waits without being counted; the next instant is drawn when it is sent or
//! dropped.

use super::member::Messages;
use super::members::set_timer;
use crate::load::plan::draw;
use crate::load::worker::core::Core;
use crate::load::worker::slot::State;

/// Most bytes of due messages gathered on one connection for one write.
const GATHER_BYTES: usize = 64 << 10;

impl Messages {
    /// Sends the messages that are due and allowed by now, and sets a timer for the next.
    pub fn pace_on(&mut self, core: &mut Core, index: usize) {
        let Some(pace) = self.plan.pace else { return };
        let until_ns = core.now_ns.saturating_add(1).min(core.edges.measure_end());
        loop {
            let (next_ns, step) = (self.members[index].next_ns, self.members[index].step);
            let full = self.desk.out.len() >= GATHER_BYTES;
            if (next_ns >= until_ns || full) && self.may_speak(core, index) {
                self.members[index].held = false;
                if next_ns != u64::MAX && !core.draining {
                    set_timer(core, index, 0, next_ns, 0);
                }
                return;
            }
            if !self.may_say(core, index, step) {
                self.members[index].held = true;
                core.follows = true;
                return;
            }
            core.slots[index].take_request();
            let free_ns = if self.members[index].held { next_ns.max(core.done_ns) } else { next_ns };
            self.say_when_free(core, index, step, next_ns, free_ns);
            let member = &mut self.members[index];
            member.step = if usize::from(step) + 1 == self.plan.steps.len() { 0 } else { step + 1 };
            // Who has said all leaves with the last answer, and not when another message would be due.
            let has_more = core.slots[index].has_requests();
            member.next_ns = if has_more { next_ns + draw(&pace, &mut core.rng).max(1) } else { u64::MAX };
        }
    }

    /// Continues a schedule that waited for answers or for written bytes; makes a user leave that has nothing left to
    /// send.
    #[inline]
    pub fn pace_on_if_held(&mut self, core: &mut Core, index: usize) {
        if self.plan.pace.is_none() || core.slots[index].state != State::Joined {
            return;
        }
        if self.members[index].held {
            self.pace_on(core, index);
        }
        let member = &self.members[index];
        let has_more = member.next_ns != u64::MAX && !self.called_off;
        let waits = member.session.unanswered() > 0 || member.blocked.is_some() || !self.one_way.is_empty();
        if !has_more && !waits && core.slots[index].lanes > 0 {
            self.lane_leaves(core, index);
        }
    }

    /// True if the next message may be sent at once.
    fn may_say(&self, core: &Core, index: usize, step: u16) -> bool {
        let member = &self.members[index];
        let answered = self.plan.steps[usize::from(step)].answered;
        let room = !answered || member.session.unanswered() < core.plan.spec.connection.pipeline as usize;
        room && member.blocked.is_none() && self.may_speak(core, index)
    }
}
