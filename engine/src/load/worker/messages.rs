//! Bytes between WebSockets and sockets: connections become WebSockets, what is read is heard, what is said is written, and
//! every way in which that fails. What it means to a user is `members`' business.

use super::Worker;
use super::member::Blocked;
use super::slot::State;
use super::wire::LARGE_BYTES;
use crate::contract::outcome::Outcome;
use crate::load::messages::session::Heard;
use crate::load::recorder::websocket::Loss;
use crate::load::sys::{self, Errno, FAILED, PEER_CLOSED, READABLE, WRITABLE};
use crate::load::tls::TlsError;

/// Reads of one connection before others are looked at: a server may send faster than its messages are understood.
const READS_AT_ONCE: usize = 16;
/// While more waits to be written no ping is answered.
const CROWDED_BYTES: usize = 64 << 10;

impl Worker {
    /// TCP has connected: TLS or the opening handshake begins.
    pub(super) fn tcp_stands(&mut self, index: usize) {
        self.slots[index].state = State::Joining;
        if self.slots[index].tls().is_none() {
            self.open_websocket(index);
        }
        self.flush_messages(index);
    }

    fn open_websocket(&mut self, index: usize) {
        self.connection_stands(index);
        if let Some(plan) = &self.plan.messages {
            self.web.members[index].session.open(plan, &mut self.web.desk);
        }
    }

    /// An event on a connection that is, becomes, or was a WebSocket.
    #[inline]
    pub(super) fn exchange_messages(&mut self, index: usize, flags: u32, buffer: &mut [u8]) {
        let generation = self.slots[index].generation;
        if flags & (PEER_CLOSED | FAILED) != 0 {
            self.slots[index].peer_closed = true;
        }
        if flags & (READABLE | PEER_CLOSED | FAILED) != 0 {
            self.read_messages(index, buffer);
        }
        let blocked = self.web.members[index].blocked.is_some() || self.plan.tls.is_some();
        if flags & WRITABLE != 0 && blocked && self.slots[index].generation == generation {
            self.read_clock();
            self.flush_messages(index);
        }
    }

    /// Goes on with connections that had more than was read at once.
    #[inline]
    pub(super) fn read_on(&mut self, buffer: &mut [u8]) {
        for index in std::mem::take(&mut self.web.unread) {
            let index = index as usize;
            if self.slots[index].state > State::Open {
                let pressing = self.slots[index].is_pressing();
                self.read_messages(index, buffer);
                self.weigh(index, pressing);
            }
        }
    }

    fn read_messages(&mut self, index: usize, buffer: &mut [u8]) {
        let generation = self.slots[index].generation;
        for _ in 0..READS_AT_ONCE {
            match self.read_socket(index, buffer) {
                Ok(0) => return self.stream_ends(index),
                Ok(count) => {
                    self.recorder.received(count);
                    self.large |= count >= LARGE_BYTES;
                    if self.plan.tls.is_some() {
                        self.receive_sealed(index, &buffer[..count]);
                    } else {
                        self.hear(index, &mut buffer[..count]);
                        self.flush_messages(index);
                    }
                    let slot = &self.slots[index];
                    if slot.generation != generation || (count < buffer.len() && !slot.peer_closed) {
                        return;
                    }
                }
                Err(libc::EAGAIN) => return,
                Err(libc::EINTR) => {}
                Err(_) => return self.stream_breaks(index),
            }
        }
        self.web.unread.push(index as u32);
    }

    /// TLS records.
    fn receive_sealed(&mut self, index: usize, records: &[u8]) {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let slot = &mut self.slots[index];
        let generation = slot.generation;
        let (mut shakes, mut shook) = (false, false);
        let received = slot.tls().map_or(Err(TlsError::Broken), |tls| {
            shakes = tls.handshaking();
            let received = tls.receive(records, &mut plain);
            shook = shakes && !tls.handshaking();
            received
        });
        if shook {
            self.open_websocket(index);
        }
        if !plain.is_empty() {
            self.hear(index, &mut plain);
        }
        self.plain = plain;
        if self.slots[index].generation != generation {
            return;
        }
        match received {
            Ok(()) => self.flush_messages(index),
            Err(_) if shakes => self.connect_failed(index, Outcome::TlsFailed),
            Err(_) => self.lose(index, Loss::Reset, Outcome::TlsFailed),
        }
    }

    /// Plain bytes of the server's.
    #[inline]
    fn hear(&mut self, index: usize, bytes: &mut [u8]) {
        let member = &mut self.web.members[index];
        member.heard_ns = self.now_ns;
        let waiting = member.blocked.as_ref().map_or(0, |blocked| blocked.bytes.len() - blocked.offset);
        self.web.desk.crowded = waiting > CROWDED_BYTES;
        let Some(plan) = &self.plan.messages else { return };
        member.session.hear(plan, bytes, &mut self.web.desk);
        let mut heard = std::mem::take(&mut self.web.desk.heard);
        member.ending |= matches!(heard.last(), Some(Heard::Closed { .. } | Heard::Violated | Heard::Refused { .. }));
        let leaving = self.slots[index].state == State::Closing;
        for what in heard.drain(..) {
            if leaving {
                continue;
            }
            self.heed(index, what);
        }
        self.web.desk.heard = heard;
        if leaving && self.web.members[index].ending {
            self.close_member(index);
        }
    }

    /// One thing that was heard.
    #[inline]
    fn heed(&mut self, index: usize, what: Heard) {
        match what {
            Heard::Answer { flight, ok } => {
                self.recorder.websocket.messages_received += 1;
                self.ended(index, &flight, if ok { Outcome::Ok } else { Outcome::CheckFailed });
            }
            Heard::Delivery { stamp_ns } => {
                self.recorder.websocket.messages_received += 1;
                self.recorder.delivered(stamp_ns, self.done_ns);
                self.linger();
            }
            Heard::Unsolicited => {
                self.recorder.websocket.messages_received += 1;
                self.recorder.websocket.unsolicited += 1;
            }
            Heard::Unmatched => {
                self.recorder.websocket.messages_received += 1;
                self.recorder.websocket.unmatched += 1;
            }
            Heard::Joined => self.joined(index),
            Heard::Closed { code } => {
                self.recorder.closed_with(code);
                self.recorder.connections.closed_by_peer += 1;
                // The server may be gone already: then nobody needs the answer to its close frame.
                let _ = self.push_out(index);
                let joining = self.slots[index].state == State::Joining;
                let outcome = if joining { Outcome::HandshakeRefused } else { Outcome::ClosedEarly };
                self.lose(index, Loss::Closed, outcome);
            }
            Heard::Violated => {
                let _ = self.push_out(index);
                self.lose(index, Loss::Violation, Outcome::Violation);
            }
            Heard::Refused { outcome, status } => {
                if let Some(status) = status {
                    self.recorder.rejected(status);
                }
                self.join_failed(index, outcome);
            }
        }
    }

    /// Writes what has been said on a connection, and goes on with what only waited to be written.
    pub(super) fn flush_messages(&mut self, index: usize) {
        self.write_and_go_on(index);
        self.web.burst = 0;
    }

    #[inline]
    fn write_and_go_on(&mut self, index: usize) {
        loop {
            if matches!(self.slots[index].state, State::Closed | State::Connecting) {
                return self.web.desk.out.clear();
            }
            match self.push_out(index) {
                Ok(true) => {}
                Ok(false) => return self.wait_for_room(index),
                Err(_) => return self.stream_breaks(index),
            }
            let member = &mut self.web.members[index];
            if let Some(blocked) = member.blocked.take() {
                self.web.one_way.splice(0..0, blocked.one_way);
            }
            self.slots[index].unwritten = u16::from(member.session.is_within_message());
            self.one_way_done(index);
            self.pace_on_if_held(index);
            if self.web.desk.out.is_empty() {
                return;
            }
        }
    }

    /// The messages without an answer that have been written are done.
    #[inline]
    fn one_way_done(&mut self, index: usize) {
        if self.web.one_way.is_empty() {
            return;
        }
        self.read_clock();
        std::mem::swap(&mut self.web.one_way, &mut self.web.written);
        let mut written = std::mem::take(&mut self.web.written);
        for flight in written.drain(..) {
            self.web.burst += 1;
            self.ended(index, &flight, Outcome::Ok);
        }
        self.web.written = written;
    }

    /// The socket is full: what has no answer is not done yet.
    fn wait_for_room(&mut self, index: usize) {
        let blocked = self.web.members[index].blocked.get_or_insert_default();
        blocked.one_way.append(&mut self.web.one_way);
        self.slots[index].unwritten = 1;
    }

    /// Writes all that waits to be written; `false`: the socket has no room for the rest.
    #[inline]
    fn push_out(&mut self, index: usize) -> Result<bool, Errno> {
        let out = &mut self.web.desk.out;
        let slot = &mut self.slots[index];
        let fd = slot.fd;
        if let Some(tls) = slot.tls() {
            if !out.is_empty() {
                tls.send(out);
                out.clear();
            }
            let written = tls.flush(fd).map_err(|error| if let TlsError::Socket(code) = error { code } else { 0 })?;
            self.recorder.wrote(written);
            return Ok(!tls.wants_write());
        }
        let member = &mut self.web.members[index];
        if let Some(blocked) = &mut member.blocked {
            blocked.bytes.append(out);
            let (written, result) = write_all(fd, &blocked.bytes[blocked.offset..]);
            blocked.offset += written;
            // A peer that reads just enough to go on asking is not kept all that it has read.
            if blocked.offset > blocked.bytes.len() / 2 {
                blocked.bytes.drain(..blocked.offset);
                blocked.offset = 0;
            }
            self.recorder.wrote(written);
            return result;
        }
        let (written, result) = write_all(fd, out);
        self.recorder.wrote(written);
        if result == Ok(false) {
            let bytes = out[written..].to_vec();
            member.blocked = Some(Box::new(Blocked { bytes, ..Blocked::default() }));
        }
        out.clear();
        result
    }

    /// The server has closed its side without a close frame.
    fn stream_ends(&mut self, index: usize) {
        let handshaking = self.slots[index].tls().is_some_and(|tls| tls.handshaking());
        if handshaking {
            return self.connect_failed(index, Outcome::TlsFailed);
        }
        self.recorder.connections.closed_by_peer += u64::from(self.slots[index].state == State::Joined);
        self.lose(index, Loss::Closed, Outcome::ClosedEarly);
    }

    /// Reading or writing has failed.
    fn stream_breaks(&mut self, index: usize) {
        let handshaking = self.slots[index].tls().is_some_and(|tls| tls.handshaking());
        if handshaking {
            return self.connect_failed(index, Outcome::TlsFailed);
        }
        self.recorder.connections.closed_by_peer += u64::from(self.slots[index].state == State::Joined);
        self.lose(index, Loss::Reset, Outcome::Reset);
    }
}

/// Writes until all is written or the socket is full (`false`); the number of bytes written, whatever came of the rest.
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
