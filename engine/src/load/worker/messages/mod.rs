//! WebSocket messages as a protocol of the event loop: opens WebSockets, reads and writes messages, and handles every
//! way in which that fails. `members` decides what that means for a user; `paces` decides when a user with its own
//! schedule sends.

mod member;
mod members;
mod paces;

use super::core::Core;
use super::protocol::Protocol;
use super::slot::State;
use crate::contract::outcome::Outcome;
use crate::load::messages::session::Heard;
use crate::load::recorder::websocket::Loss;
use crate::load::sys::{self, Errno};
use crate::load::timers::Timer;
use crate::load::tls::TlsError;
use member::Blocked;
pub use member::Messages;
use members::{CLOSING_NS, LINGER_NS};

/// While more bytes than this wait to be written, pings are not answered.
const CROWDED_BYTES: usize = 64 << 10; // arbitrary: what a server that reads accepts at once

impl Protocol for Messages {
    /// Bounded, since a server may send faster than its messages are parsed.
    const READS_AT_ONCE: usize = 16;

    /// Starts a user, joins again, or continues after a pause.
    fn fire(&mut self, core: &mut Core, timer: Timer) {
        let index = timer.slot as usize;
        if timer.arrives {
            self.join(core, index, timer.due_ns);
        } else if self.plan.pace.is_none() {
            self.pause_is_over(core, index, &timer);
        } else if timer.life == core.slots[index].life() {
            core.read_clock();
            self.pace_on(core, index);
        }
        self.flush(core, index);
    }

    /// Starts TLS or the opening handshake.
    fn connected(&mut self, core: &mut Core, index: usize) {
        core.slots[index].state = State::Joining;
        if core.slots[index].tls().is_none() {
            self.secured(core, index);
        }
        self.flush(core, index);
    }

    fn connect_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        self.connection_failed(core, index, outcome);
    }

    /// Starts the opening handshake.
    fn secured(&mut self, core: &mut Core, index: usize) {
        core.connection_stands(index);
        self.members[index].session.open(&self.plan, &mut self.desk);
    }

    #[inline]
    fn receive(&mut self, core: &mut Core, index: usize, bytes: &mut [u8]) {
        let member = &mut self.members[index];
        member.heard_ns = core.now_ns;
        let blocked = member.blocked.as_ref().map_or(0, |blocked| blocked.bytes.len() - blocked.offset);
        let sealed = core.slots[index].tls().map_or(0, |tls| tls.waiting_bytes());
        self.desk.crowded = blocked + sealed > CROWDED_BYTES;
        member.session.hear(&self.plan, bytes, &mut self.desk);
        let mut heard = std::mem::take(&mut self.desk.heard);
        member.ending |= matches!(heard.last(), Some(Heard::Closed { .. } | Heard::Violated | Heard::Refused { .. }));
        let leaving = core.slots[index].state == State::Closing;
        for what in heard.drain(..) {
            // A message that was taken for an answer leaves one answer over, which comes last.
            if !leaving || what == Heard::Unmatched {
                self.heed(core, index, what);
            }
        }
        self.desk.heard = heard;
        if leaving && self.members[index].ending {
            self.close_member(core, index);
        }
    }

    /// Writes the queued bytes of a connection, and continues what was waiting for that.
    #[inline]
    fn flush(&mut self, core: &mut Core, index: usize) {
        self.write_and_go_on(core, index);
        self.burst = 0;
    }

    fn writable(&mut self, core: &mut Core, index: usize) {
        if self.members[index].blocked.is_some() || core.plan.tls.is_some() {
            core.read_clock();
            self.flush(core, index);
        }
    }

    /// Handles the end of a stream that had no close frame.
    fn end_of_stream(&mut self, core: &mut Core, index: usize) {
        core.recorder.connections.closed_by_peer += u64::from(core.slots[index].state == State::Joined);
        self.lose(core, index, Loss::Closed, Outcome::ClosedEarly);
    }

    fn broken(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        let by_peer = outcome == Outcome::Reset && core.slots[index].state == State::Joined;
        core.recorder.connections.closed_by_peer += u64::from(by_peer);
        self.lose(core, index, Loss::Reset, outcome);
    }

    fn waits_until(&self, core: &Core, index: usize) -> Option<(u64, Outcome)> {
        let timeouts = &core.plan.spec.timeouts;
        let member = &self.members[index];
        match core.slots[index].state {
            State::Connecting | State::Joining => {
                Some((core.began_ns(index).saturating_add(timeouts.connect_ns), Outcome::ConnectTimeout))
            }
            State::Closing => Some((core.began_ns(index) + CLOSING_NS, Outcome::ClosedEarly)),
            State::Joined => {
                let unwritten = member.blocked.as_ref().and_then(|blocked| blocked.one_way.first());
                let sent_ns = [member.session.oldest_sent_ns(), unwritten.map(|flight| flight.sent_ns)];
                let sent_ns = sent_ns.into_iter().flatten().min();
                let request = sent_ns.map(|sent_ns| (sent_ns.saturating_add(timeouts.request_ns), Outcome::Timeout));
                let silence = member.session.silence_ns_max();
                let silence = silence.map(|most_ns| (member.heard_ns.saturating_add(most_ns), Outcome::ClosedEarly));
                [request, silence].into_iter().flatten().min_by_key(|(until_ns, _)| *until_ns)
            }
            _ => None,
        }
    }

    fn time_is_up(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        // A user that has joined loses its connection to silence, or to a message that has no answer in time.
        let why = if outcome == Outcome::ClosedEarly { Loss::Heartbeat } else { Loss::Timeout };
        self.lose(core, index, why, outcome);
    }

    fn swept(&mut self, core: &mut Core, mut next_ns: u64) -> u64 {
        match self.lingers_until_ns {
            Some(until_ns) if until_ns <= core.now_ns => self.end_lingering(core),
            Some(until_ns) => next_ns = next_ns.min(until_ns),
            None => {}
        }
        if self.closing > 0 {
            next_ns = next_ns.min(core.now_ns + CLOSING_NS);
        }
        next_ns
    }

    /// Makes users without a request leave; messages that are not due yet are not sent.
    fn call_off(&mut self, core: &mut Core, end_ns: u64) {
        if std::mem::replace(&mut self.called_off, true) {
            return;
        }
        if self.plan.stamp_after.is_some() {
            self.lingers_until_ns = Some(core.now_ns + LINGER_NS);
            core.sweep_by(core.now_ns + LINGER_NS);
        }
        while let Some(timer) = core.timers.pop_before(u64::MAX) {
            let index = timer.slot as usize;
            if timer.arrives {
                if self.members[index].present {
                    self.stay_out(core, index);
                }
            } else if self.plan.pace.is_none() {
                core.recorder.pause_ends(timer.due_ns - timer.pause_ns, end_ns.min(timer.due_ns));
                self.lane_leaves(core, index);
                self.flush(core, index);
            }
        }
        for index in 0..core.slots.len() {
            match core.slots[index].state {
                State::Closed => self.leave_if_out(core, index),
                State::Connecting | State::Joining => self.join_failed(core, index, Outcome::Unfinished),
                State::Joined => {
                    self.drop_unsent(core, index, end_ns);
                    self.flush(core, index);
                }
                _ => {}
            }
        }
    }

    fn stays(&self) -> bool {
        self.closing > 0 || self.lingers_until_ns.is_some()
    }

    fn abandon(&mut self, core: &mut Core) {
        self.lingers_until_ns = None;
        for index in 0..core.slots.len() {
            let one_way = self.members[index].blocked.as_mut().map(|blocked| std::mem::take(&mut blocked.one_way));
            self.end_all(core, index, one_way.unwrap_or_default(), Outcome::Unfinished, Outcome::Unfinished);
            if core.slots[index].state == State::Joined && core.slots[index].lanes > 0 {
                self.lane_leaves(core, index);
            }
            self.take_leave(core, index);
            self.flush(core, index);
            if core.slots[index].state != State::Closed {
                self.close_member(core, index);
            }
        }
        core.recorder.websocket.tallies = std::mem::take(&mut self.desk.tallies);
    }
}

impl Messages {
    /// Handles one thing that was heard.
    #[inline]
    fn heed(&mut self, core: &mut Core, index: usize, what: Heard) {
        match what {
            Heard::Answer { flight, ok } => {
                core.recorder.websocket.messages_received += 1;
                self.ended(core, index, &flight, if ok { Outcome::Ok } else { Outcome::CheckFailed });
            }
            Heard::Delivery { stamp_ns } => {
                core.recorder.websocket.messages_received += 1;
                core.recorder.delivered(stamp_ns, core.done_ns);
                self.linger(core);
            }
            Heard::Unsolicited => {
                core.recorder.websocket.messages_received += 1;
                core.recorder.websocket.unsolicited += 1;
            }
            Heard::Unmatched => {
                core.recorder.websocket.messages_received += 1;
                core.recorder.websocket.unmatched += 1;
            }
            Heard::Joined => self.joined(core, index),
            Heard::Closed { code } => {
                core.recorder.closed_with(code);
                core.recorder.connections.closed_by_peer += 1;
                // The server may have gone already: then its close frame needs no answer.
                let _ = self.push_out(core, index);
                let joining = core.slots[index].state == State::Joining;
                let outcome = if joining { Outcome::HandshakeRefused } else { Outcome::ClosedEarly };
                self.lose(core, index, Loss::Closed, outcome);
            }
            Heard::Violated => {
                let _ = self.push_out(core, index);
                self.lose(core, index, Loss::Violation, Outcome::Violation);
            }
            Heard::Refused { outcome, status } => {
                if let Some(status) = status {
                    core.recorder.rejected(status);
                }
                self.join_failed(core, index, outcome);
            }
        }
    }

    #[inline]
    fn write_and_go_on(&mut self, core: &mut Core, index: usize) {
        loop {
            if matches!(core.slots[index].state, State::Closed | State::Connecting) {
                return self.desk.out.clear();
            }
            match self.push_out(core, index) {
                Ok(true) => {}
                Ok(false) => return self.wait_for_room(core, index),
                Err(_) if core.is_in_handshake(index) => {
                    return self.connection_failed(core, index, Outcome::TlsFailed);
                }
                Err(_) => return self.broken(core, index, Outcome::Reset),
            }
            let member = &mut self.members[index];
            if let Some(blocked) = member.blocked.take() {
                self.one_way.splice(0..0, blocked.one_way);
            }
            core.slots[index].unwritten = u16::from(member.session.is_within_message());
            self.one_way_done(core, index);
            self.pace_on_if_held(core, index);
            if self.desk.out.is_empty() {
                return;
            }
        }
    }

    /// Ends the written messages that expect no answer.
    #[inline]
    fn one_way_done(&mut self, core: &mut Core, index: usize) {
        if self.one_way.is_empty() {
            return;
        }
        core.read_clock();
        std::mem::swap(&mut self.one_way, &mut self.written);
        let mut written = std::mem::take(&mut self.written);
        for flight in written.drain(..) {
            self.burst += 1;
            self.ended(core, index, &flight, Outcome::Ok);
        }
        self.written = written;
    }

    /// Keeps the messages that expect no answer until the socket has room again.
    fn wait_for_room(&mut self, core: &mut Core, index: usize) {
        let blocked = self.members[index].blocked.get_or_insert_default();
        blocked.one_way.append(&mut self.one_way);
        core.slots[index].unwritten = 1;
    }

    /// Writes all queued bytes; false if the socket has no room for the rest.
    #[inline]
    fn push_out(&mut self, core: &mut Core, index: usize) -> Result<bool, Errno> {
        let out = &mut self.desk.out;
        let slot = &mut core.slots[index];
        let fd = slot.fd;
        if let Some(tls) = slot.tls() {
            if !out.is_empty() {
                tls.send(out);
                out.clear();
            }
            let written = tls.flush(fd).map_err(|error| if let TlsError::Socket(code) = error { code } else { 0 })?;
            core.recorder.wrote(written);
            return Ok(!tls.wants_write());
        }
        let member = &mut self.members[index];
        if let Some(blocked) = &mut member.blocked {
            blocked.bytes.append(out);
            let (written, result) = write_all(fd, &blocked.bytes[blocked.offset..]);
            blocked.offset += written;
            // Free what is written, so that a peer that reads just enough to continue asking does not make the buffer
            // grow.
            if blocked.offset > blocked.bytes.len() / 2 {
                blocked.bytes.drain(..blocked.offset);
                blocked.offset = 0;
            }
            core.recorder.wrote(written);
            return result;
        }
        let (written, result) = write_all(fd, out);
        core.recorder.wrote(written);
        if result == Ok(false) {
            let bytes = out[written..].to_vec();
            member.blocked = Some(Box::new(Blocked { bytes, ..Blocked::default() }));
        }
        out.clear();
        result
    }

    /// Stops waiting for deliveries.
    fn end_lingering(&mut self, core: &mut Core) {
        self.lingers_until_ns = None;
        for index in 0..core.slots.len() {
            if core.slots[index].lanes == 0 {
                self.take_leave(core, index);
                self.flush(core, index);
            }
        }
    }
}

/// Writes until everything is written or the socket is full (`false`). Also returns the number of bytes written.
#[inline]
fn write_all(fd: i32, bytes: &[u8]) -> (usize, Result<bool, Errno>) {
    let mut written = 0;
    while written < bytes.len() {
        match sys::write(fd, &bytes[written..]) {
            Ok(count) => written += count,
            Err(libc::EAGAIN) => return (written, Ok(false)),
            Err(libc::EINTR) => {}
            Err(code) => return (written, Err(code)),
        }
    }
    (written, Ok(true))
}
