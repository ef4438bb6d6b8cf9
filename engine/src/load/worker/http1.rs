//! HTTP/1 as a protocol of the event loop: writes requests, reads responses, and handles every way in which that fails.
//! Each request costs one write and one read: sockets are registered once, edge-triggered; a read that did not fill the
//! buffer has emptied the socket; the end of a response is followed by the next request at once.

use std::sync::Arc;

use super::core::{Core, READ_BUFFER_BYTES};
use super::protocol::Protocol;
use super::slot::{Slot, State};
use crate::contract::outcome::Outcome;
use crate::load::http1::parse::{HeadCache, Parser, Partial, Progress, Response};
use crate::load::http1::plan::RequestPlan;
use crate::load::sys;
use crate::load::timers::Timer;

/// Most bytes of requests gathered for one write; the first request may be longer.
const GATHER_BYTES: usize = 64 * 1024; // arbitrary: a larger write saves nothing more
const RESTED_US: i32 = 900_000; // servers give up a connection that rests after a second or more, less the way there
const CROSSED_NS: u64 = 20_000_000; // most time between a request and the reset of the connection that it crossed

pub struct Http1 {
    steps: Arc<[RequestPlan]>,
    cache: HeadCache,
    /// State of the response being parsed, unless its connection has one of its own.
    partial: Partial,
    /// Requests gathered for one write.
    gather: Vec<u8>,
}

impl Protocol for Http1 {
    /// Bounded, since a body may be endless and arrive faster than it is read.
    const READS_AT_ONCE: usize = 16;

    fn fire(&mut self, core: &mut Core, timer: Timer) {
        let index = timer.slot as usize;
        if timer.arrives {
            core.start_user(index, timer.due_ns);
        } else {
            core.end_pause(&timer);
        }
        self.advance(core, index);
    }

    fn arrive(&mut self, core: &mut Core, index: usize, intended_ns: u64) {
        core.send_at(index, 0, intended_ns, core.now_ns);
        self.advance(core, index);
    }

    fn connected(&mut self, core: &mut Core, index: usize) {
        if core.slots[index].tls().is_some() {
            core.slots[index].state = State::Handshake;
            return self.flush_tls(core, index);
        }
        self.established(core, index);
        self.advance(core, index);
    }

    fn connect_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        core.recorder.connections.failed += 1;
        self.fail_all(core, index, outcome);
    }

    /// Handles the responses in these bytes; the requests that they make room for are then written together.
    #[inline]
    fn receive(&mut self, core: &mut Core, index: usize, bytes: &mut [u8]) {
        self.hear(core, index, bytes);
        self.advance(core, index);
    }

    /// Writes TLS records. Requests have been written already, as soon as responses made room for them.
    #[inline]
    fn flush(&mut self, core: &mut Core, index: usize) {
        if core.plan.tls.is_some() {
            self.flush_tls(core, index);
        }
    }

    fn writable(&mut self, core: &mut Core, index: usize) {
        if core.plan.tls.is_some() {
            self.flush_tls(core, index);
        } else if core.slots[index].unwritten > 0 {
            self.write_requests(core, index);
        }
    }

    /// Handles the end of the stream: the end of a body without a length, a lost request, or the end of an idle
    /// connection.
    fn end_of_stream(&mut self, core: &mut Core, index: usize) {
        let slot = &mut core.slots[index];
        if slot.in_flight > 0 {
            let expected = &self.steps[usize::from(slot.front().step_index())].expected;
            let partial = match &mut slot.extra {
                Some(extra) => &mut extra.partial,
                None => &mut self.partial,
            };
            let mut parser = slot.parser;
            if let Some(response) = parser.end_of_stream(partial, expected) {
                core.until_close = true;
                self.answered(core, index, response);
                return self.advance(core, index);
            }
        }
        core.recorder.connections.closed_by_peer += 1;
        self.fail(core, index, Outcome::ClosedEarly);
    }

    fn broken(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        core.recorder.connections.closed_by_peer += u64::from(outcome == Outcome::Reset);
        self.fail(core, index, outcome);
    }

    fn waits_until(&self, core: &Core, index: usize) -> Option<(u64, Outcome)> {
        let slot = &core.slots[index];
        if slot.in_flight == 0 {
            return None;
        }
        let timeouts = &core.plan.spec.timeouts;
        let until_ns = slot.front().sent_ns.saturating_add(timeouts.request_ns);
        if matches!(slot.state, State::Connecting | State::Handshake) {
            let connect_until_ns = core.began_ns(index).saturating_add(timeouts.connect_ns);
            // The stamp of connect() is in us: smaller differences mean nothing.
            if connect_until_ns <= until_ns.saturating_add(1_000) {
                return Some((until_ns.min(connect_until_ns), Outcome::ConnectTimeout));
            }
        }
        Some((until_ns, Outcome::Timeout))
    }

    fn time_is_up(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        self.fail(core, index, outcome);
    }

    fn call_off(&mut self, core: &mut Core, end_ns: u64) {
        core.end_pauses(end_ns);
    }

    fn abandon(&mut self, core: &mut Core) {
        for index in 0..core.slots.len() {
            for _ in 0..core.slots[index].in_flight {
                core.end_request(index, Outcome::Unfinished);
            }
            if core.slots[index].state != State::Closed {
                core.close(index);
            }
        }
    }
}

impl Http1 {
    pub fn new(steps: Arc<[RequestPlan]>) -> Http1 {
        Http1 { steps, cache: HeadCache::default(), partial: Partial::default(), gather: Vec::new() }
    }

    /// Handles the responses in these bytes, and writes nothing on their connection.
    #[inline]
    fn hear(&mut self, core: &mut Core, index: usize, mut bytes: &[u8]) {
        let generation = core.slots[index].generation;
        while !bytes.is_empty() {
            let slot = &mut core.slots[index];
            if slot.begun() == 0 {
                // Bytes that answer no request: the connection cannot be used any more.
                return self.fail(core, index, Outcome::BadResponse);
            }
            let expected = &self.steps[usize::from(slot.front().step_index())].expected;
            let partial = match &mut slot.extra {
                Some(extra) => &mut extra.partial,
                None => &mut self.partial,
            };
            let mut parser = slot.parser;
            let progress = parser.feed(&mut self.cache, partial, expected, bytes);
            slot.parser = parser;
            match progress {
                Progress::Done(used, response) => {
                    bytes = &bytes[used..];
                    self.answered(core, index, response);
                    if core.slots[index].generation != generation {
                        break;
                    }
                }
                Progress::More => {
                    if slot.extra.is_none() && !self.partial.is_empty() {
                        let partial = std::mem::take(&mut self.partial);
                        slot.extra.insert(Box::default()).partial = partial;
                    }
                    if core.plan.spec.connection.acknowledge_at_once {
                        sys::acknowledge(slot.fd);
                    }
                    break;
                }
                Progress::Bad(_) => {
                    self.partial.clear();
                    return self.fail(core, index, Outcome::BadResponse);
                }
            }
        }
    }

    /// Sends a slot's unwritten requests: opens the connection, or writes.
    #[inline]
    fn advance(&mut self, core: &mut Core, index: usize) {
        let slot = &core.slots[index];
        if slot.unwritten == 0 {
            return;
        }
        match slot.state {
            State::Closed => {
                if let Err(outcome) = core.connect(index) {
                    self.connect_failed(core, index, outcome);
                }
            }
            State::Fresh | State::Open => self.write_requests(core, index),
            // The connection is being made; its events continue.
            _ => {}
        }
    }

    /// Counts the connection (TCP, and TLS if used) as open.
    fn established(&mut self, core: &mut Core, index: usize) {
        core.slots[index].state = State::Fresh;
        core.connection_stands(index);
    }

    fn write_requests(&mut self, core: &mut Core, index: usize) {
        if core.plan.tls.is_some() {
            return self.write_tls_requests(core, index);
        }
        while core.slots[index].unwritten > 0 {
            let slot = &mut core.slots[index];
            let written = if slot.unwritten == 1 {
                let step = if slot.in_flight == 1 { slot.front().step_index() } else { last_step(slot) };
                sys::write(slot.fd, &self.steps[usize::from(step)].request[slot.offset as usize..])
            } else {
                self.gather.clear();
                for step in slot.unwritten_steps() {
                    self.gather.extend_from_slice(&self.steps[usize::from(step)].request);
                    if self.gather.len() >= GATHER_BYTES {
                        break;
                    }
                }
                sys::write(slot.fd, &self.gather[slot.offset as usize..])
            };
            match written {
                Ok(count) => self.wrote(core, index, count),
                Err(libc::EAGAIN) => return,
                Err(libc::EINTR) => {}
                Err(_) => return self.write_failed(core, index),
            }
        }
    }

    /// Accounts for written bytes of the unwritten requests, oldest first.
    #[inline]
    fn wrote(&mut self, core: &mut Core, index: usize, count: usize) {
        core.recorder.wrote(count);
        let slot = &mut core.slots[index];
        let mut left = slot.offset as usize + count;
        while slot.unwritten > 0 {
            let step = if slot.in_flight == 1 {
                slot.front().step_index()
            } else {
                slot.unwritten_steps().next().unwrap_or(0)
            };
            let length = self.steps[usize::from(step)].request.len();
            if left < length {
                break;
            }
            left -= length;
            slot.unwritten -= 1;
        }
        slot.offset = left as u32;
    }

    /// Handles a failed write. The server may have answered before it closed, as it does if a body is too large, so what
    /// has arrived is read first. A kept connection may have been closed while it was idle: then nothing of the request
    /// has been sent, and it moves to a new connection. On a connection that never answered, the request fails.
    #[cold]
    fn write_failed(&mut self, core: &mut Core, index: usize) {
        let generation = core.slots[index].generation;
        core.slots[index].peer_closed = true;
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        for _ in 0..Self::READS_AT_ONCE {
            let Ok(count @ 1..) = core.read_socket(index, &mut buffer) else { break };
            core.recorder.received(count);
            self.hear(core, index, &buffer[..count]);
            if core.slots[index].generation != generation {
                return self.advance(core, index);
            }
        }
        core.recorder.connections.closed_by_peer += 1;
        if core.slots[index].state == State::Fresh {
            self.fail_all(core, index, Outcome::Reset);
        } else {
            self.fail(core, index, Outcome::Reset);
        }
    }

    /// Ends the oldest request of a connection, which has its response.
    #[inline]
    fn answered(&mut self, core: &mut Core, index: usize, response: Response) {
        let slot = &mut core.slots[index];
        slot.state = State::Open;
        if slot.extra.is_some() {
            slot.shed();
        }
        let step = &self.steps[usize::from(slot.front().step_index())];
        let outcome = if !step.accepts(response.status) {
            core.recorder.rejected(response.status);
            Outcome::StatusRejected
        } else if !response.contains {
            Outcome::CheckFailed
        } else {
            core.recorder.redirects += u64::from(step.is_redirected(response.status));
            Outcome::Ok
        };
        slot.stamp_us = (core.now_ns / 1_000) as u32;
        // This response answers a request that is only half written: the rest of the request would be taken for another
        // one.
        let cut_short = slot.in_flight == slot.unwritten;
        // The peer has closed its side and owes no more answers: unwritten requests need a new connection.
        let closed = slot.peer_closed && slot.in_flight - 1 == slot.unwritten;
        if response.closes || closed || cut_short || step.closes {
            core.recorder.connections.closed_by_peer += u64::from((response.closes || closed) && !step.closes);
            let lost = slot.begun() - 1;
            core.close(index);
            core.end_request(index, outcome);
            for _ in 0..lost {
                core.end_request(index, Outcome::ClosedEarly);
            }
        } else {
            core.end_request(index, outcome);
        }
    }

    /// Closes a lost connection. Requests of which a byte was written fail; the others move to a new connection.
    fn fail(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        let slot = &core.slots[index];
        if slot.state < State::Fresh {
            return self.connect_failed(core, index, outcome);
        }
        if slot.state == State::Fresh && slot.begun() == 0 && slot.in_flight > 0 {
            return self.fail_all(core, index, outcome);
        }
        if self.crossed(core, index, outcome) {
            let slot = &mut core.slots[index];
            (slot.unwritten, slot.offset) = (1, 0);
            core.close(index);
            return self.advance(core, index);
        }
        // A late or bad response belongs to the oldest request; those behind it only lose their connection.
        let behind = match outcome {
            Outcome::Timeout | Outcome::BadResponse => Outcome::ClosedEarly,
            outcome => outcome,
        };
        let lost = slot.begun();
        core.close(index);
        for nth in 0..lost {
            core.end_request(index, if nth == 0 { outcome } else { behind });
        }
        self.advance(core, index);
    }

    /// True if a request crossed the end of a connection that the server had given up: it has seen nothing of it. Clients
    /// send such a request again (RFC 9112, section 9.3.1). The end of a stream confirms what had arrived before; a reset
    /// does not, so that it is taken for a crossing only soon after a request on a connection that had rested.
    fn crossed(&self, core: &Core, index: usize, outcome: Outcome) -> bool {
        let slot = &core.slots[index];
        let flight = slot.front();
        let rested_us = ((flight.sent_ns / 1_000) as u32).wrapping_sub(slot.stamp_us) as i32;
        slot.state == State::Open
            && (slot.in_flight, slot.begun()) == (1, 1)
            && slot.parser == Parser::default()
            && slot.extra.as_ref().is_none_or(|extra| extra.partial.is_empty())
            && self.steps[usize::from(flight.step_index())].idempotent
            && match outcome {
                Outcome::ClosedEarly => sys::unacknowledged(slot.fd) > 0,
                Outcome::Reset => rested_us >= RESTED_US && core.now_ns.saturating_sub(flight.sent_ns) <= CROSSED_NS,
                _ => false,
            }
    }

    /// Closes a lost connection. All its requests fail, since none of them could begin.
    fn fail_all(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        let lost = core.slots[index].in_flight;
        if core.slots[index].state != State::Closed {
            core.close(index);
        }
        core.slots[index].unwritten = 0;
        for _ in 0..lost {
            core.end_request(index, outcome);
        }
        self.advance(core, index);
    }

    fn write_tls_requests(&mut self, core: &mut Core, index: usize) {
        let slot = &mut core.slots[index];
        let steps: Vec<u16> = slot.unwritten_steps().collect();
        slot.unwritten = 0;
        for step in steps {
            if let Some(tls) = slot.tls() {
                tls.send(&self.steps[usize::from(step)].request);
            }
        }
        self.flush_tls(core, index);
    }

    /// Writes waiting TLS records, and the requests once the handshake is done.
    fn flush_tls(&mut self, core: &mut Core, index: usize) {
        let slot = &mut core.slots[index];
        let fd = slot.fd;
        let Some(tls) = slot.tls() else { return };
        match tls.flush(fd) {
            Ok(count) => core.recorder.wrote(count),
            Err(_) if slot.state == State::Handshake => return self.connect_failed(core, index, Outcome::TlsFailed),
            // The event of the peer's end is still to come. It is handled once all records that came before have been
            // read, since the server may have answered (`write_failed`).
            Err(_) => return slot.peer_closed = true,
        }
        let slot = &mut core.slots[index];
        if slot.state == State::Handshake && slot.tls().is_some_and(|tls| !tls.handshaking()) {
            self.established(core, index);
            self.advance(core, index);
        }
    }
}

fn last_step(slot: &Slot) -> u16 {
    slot.unwritten_steps().last().unwrap_or(0)
}
