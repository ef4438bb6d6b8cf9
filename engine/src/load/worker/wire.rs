//! Bytes between slots and sockets: connecting, writing requests, reading responses, and every way in which that fails.
//! One read and one write per request: sockets are registered once, edge-triggered; a read that did not fill the buffer has
//! emptied the socket; a response that ends is followed by the next request at once.

use super::Worker;
use super::slot::State;
use crate::contract::outcome::Outcome;
use crate::load::http1::parse::{Progress, Response};
use crate::load::sys::{self, FAILED, PEER_CLOSED, READABLE, WRITABLE};
use crate::load::tls::TlsError;

/// Requests gathered for one write beyond the first stop here.
const GATHER_BYTES: usize = 64 * 1024;
/// So much in one read comes close to what the kernel takes in for a connection at first (half of 128 KiB by default).
pub(super) const LARGE_BYTES: usize = 32 * 1024;

impl Worker {
    /// Brings a slot's requests on their way: opens the connection, or writes.
    #[inline]
    pub(super) fn advance(&mut self, index: usize) {
        let slot = &self.slots[index];
        if slot.unwritten == 0 {
            return;
        }
        match slot.state {
            State::Closed => self.open_connection(index),
            State::Fresh | State::Open => self.write_requests(index),
            // The rest comes with the next event; WebSockets do not come here.
            State::Connecting | State::Handshake | State::Joining | State::Joined | State::Closing => {}
        }
    }

    pub(super) fn open_connection(&mut self, index: usize) {
        let target = &self.plan.spec.target;
        let turn = self.dealt as usize;
        self.dealt += u64::from(self.share.threads);
        let address = &self.plan.addresses[turn % self.plan.addresses.len()];
        let sources = &target.source_addresses;
        // Sources change once all addresses have been dealt, so that every pair occurs.
        let source = (!sources.is_empty()).then(|| sources[turn / self.plan.addresses.len() % sources.len()]);
        let tls = self.plan.tls.as_ref().map(|tls| tls.connection()).transpose();
        let opened = sys::connect(address, source);
        let (fd, tls) = match (opened, tls) {
            (Ok(fd), Ok(tls)) => (fd, tls),
            (Ok(fd), Err(_)) => {
                sys::close(fd);
                return self.connect_failed(index, Outcome::TlsFailed);
            }
            (Err(code), _) => return self.connect_failed(index, connect_outcome(code)),
        };
        let slot = &mut self.slots[index];
        slot.fd = fd;
        slot.state = State::Connecting;
        slot.connect_us = (self.now_ns / 1_000) as u32;
        if tls.is_some() {
            slot.extra.get_or_insert_default().tls = tls;
        }
        if self.stamped {
            // Where it is refused, reads carry no stamp and the clock is read instead.
            let _ = sys::stamp_arrivals(fd);
        }
        let token = index as u64 | u64::from(slot.generation) << 32;
        self.recorder.connections_changed(1);
        if self.epoll.add(fd, token).is_err() {
            self.connect_failed(index, Outcome::NoDescriptors);
        }
    }

    pub(super) fn connect_failed(&mut self, index: usize, outcome: Outcome) {
        self.recorder.connections.failed += 1;
        if self.plan.messages.is_some() {
            return self.join_failed(index, outcome);
        }
        self.fail_all(index, outcome);
    }

    /// The first event of a connecting socket.
    pub(super) fn connected(&mut self, index: usize, flags: u32) {
        self.read_clock();
        let slot = &mut self.slots[index];
        if flags & FAILED != 0 {
            let code = sys::socket_error(slot.fd);
            if code != 0 {
                return self.connect_failed(index, connect_outcome(code));
            }
        }
        if self.plan.messages.is_some() {
            return self.tcp_stands(index);
        }
        if slot.tls().is_some() {
            slot.state = State::Handshake;
            return self.flush_tls(index);
        }
        self.established(index);
        self.advance(index);
    }

    fn established(&mut self, index: usize) {
        self.slots[index].state = State::Fresh;
        self.connection_stands(index);
    }

    pub(super) fn connection_stands(&mut self, index: usize) {
        let took_ns = self.connecting_ns(index);
        self.recorder.connections.opened += 1;
        self.recorder.connections.connect_time.record(took_ns);
    }

    fn write_requests(&mut self, index: usize) {
        if self.plan.tls.is_some() {
            return self.write_tls_requests(index);
        }
        while self.slots[index].unwritten > 0 {
            let slot = &mut self.slots[index];
            let plan = &self.plan;
            let written = if slot.unwritten == 1 {
                let step = if slot.in_flight == 1 { slot.front().step_index() } else { last_step(slot) };
                sys::write(slot.fd, &plan.steps[usize::from(step)].request[slot.offset as usize..])
            } else {
                self.gather.clear();
                for step in slot.unwritten_steps() {
                    self.gather.extend_from_slice(&plan.steps[usize::from(step)].request);
                    if self.gather.len() >= GATHER_BYTES {
                        break;
                    }
                }
                sys::write(slot.fd, &self.gather[slot.offset as usize..])
            };
            match written {
                Ok(count) => self.wrote(index, count),
                Err(libc::EAGAIN) => return,
                Err(libc::EINTR) => {}
                Err(_) => return self.write_failed(index),
            }
        }
    }

    /// Accounts for bytes of the unwritten requests, oldest first.
    #[inline]
    fn wrote(&mut self, index: usize, count: usize) {
        self.recorder.wrote(count);
        let slot = &mut self.slots[index];
        let mut left = slot.offset as usize + count;
        while slot.unwritten > 0 {
            let step = if slot.in_flight == 1 {
                slot.front().step_index()
            } else {
                slot.unwritten_steps().next().unwrap_or(0)
            };
            let length = self.plan.steps[usize::from(step)].request.len();
            if left < length {
                break;
            }
            left -= length;
            slot.unwritten -= 1;
        }
        slot.offset = left as u32;
    }

    /// The peer no longer takes bytes. A kept connection may have been closed while it was idle: then nothing of the request
    /// has left, and it goes to a new connection. On a connection that never answered it is a failure.
    fn write_failed(&mut self, index: usize) {
        self.recorder.connections.closed_by_peer += 1;
        if self.slots[index].state == State::Fresh {
            self.fail_all(index, Outcome::Reset);
        } else {
            self.fail(index, Outcome::Reset);
        }
    }

    /// An event on an open connection, or one in its TLS handshake.
    #[inline]
    pub(super) fn exchange(&mut self, index: usize, flags: u32, buffer: &mut [u8]) {
        let generation = self.slots[index].generation;
        if flags & (PEER_CLOSED | FAILED) != 0 {
            self.slots[index].peer_closed = true;
        }
        if flags & (READABLE | PEER_CLOSED | FAILED) != 0 {
            self.read_responses(index, buffer);
        }
        let slot = &self.slots[index];
        if flags & WRITABLE != 0 && slot.generation == generation && slot.state != State::Closed {
            if self.plan.tls.is_some() {
                self.flush_tls(index);
            } else if slot.unwritten > 0 {
                self.write_requests(index);
            }
        }
    }

    fn read_responses(&mut self, index: usize, buffer: &mut [u8]) {
        let generation = self.slots[index].generation;
        loop {
            match self.read_socket(index, buffer) {
                Ok(0) => return self.end_of_stream(index),
                Ok(count) => {
                    self.recorder.received(count);
                    self.large |= count >= LARGE_BYTES;
                    self.receive(index, &buffer[..count]);
                    let slot = &self.slots[index];
                    if slot.generation != generation || (count < buffer.len() && !slot.peer_closed) {
                        return;
                    }
                }
                Err(libc::EAGAIN) => return,
                Err(libc::EINTR) => {}
                Err(_) if self.slots[index].state == State::Handshake => {
                    return self.connect_failed(index, Outcome::TlsFailed);
                }
                Err(_) => {
                    self.recorder.connections.closed_by_peer += 1;
                    return self.fail(index, Outcome::Reset);
                }
            }
        }
    }

    /// Reads once, and then the clock.
    #[inline]
    pub(super) fn read_socket(&mut self, index: usize, buffer: &mut [u8]) -> Result<usize, sys::Errno> {
        let fd = self.slots[index].fd;
        if self.stamped {
            let read = sys::read_stamped(fd, buffer);
            self.read_clock_for(read.ok().and_then(|(_, stamp_ns)| stamp_ns));
            read.map(|(count, _)| count)
        } else {
            let read = sys::read(fd, buffer);
            self.read_clock();
            read
        }
    }

    #[inline]
    fn receive(&mut self, index: usize, bytes: &[u8]) {
        if self.plan.tls.is_some() {
            self.receive_records(index, bytes);
        } else {
            self.parse(index, bytes);
        }
    }

    /// Plain bytes of responses. After them the requests they made room for are written, together.
    #[inline]
    fn parse(&mut self, index: usize, mut bytes: &[u8]) {
        let generation = self.slots[index].generation;
        while !bytes.is_empty() {
            let slot = &mut self.slots[index];
            if slot.begun() == 0 {
                // Bytes that nobody asked for: the connection is of no use any more.
                return self.fail(index, Outcome::BadResponse);
            }
            let expected = &self.plan.steps[usize::from(slot.front().step_index())].expected;
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
                    self.answered(index, response);
                    if self.slots[index].generation != generation {
                        break;
                    }
                }
                Progress::More => {
                    if slot.extra.is_none() && !self.partial.is_empty() {
                        let partial = std::mem::take(&mut self.partial);
                        slot.extra.insert(Box::default()).partial = partial;
                    }
                    break;
                }
                Progress::Bad(_) => {
                    self.partial.clear();
                    return self.fail(index, Outcome::BadResponse);
                }
            }
        }
        self.advance(index);
    }

    /// The oldest request of a connection has its response.
    #[inline]
    fn answered(&mut self, index: usize, response: Response) {
        let slot = &mut self.slots[index];
        slot.state = State::Open;
        if slot.extra.is_some() {
            slot.shed();
        }
        let step = &self.plan.steps[usize::from(slot.front().step_index())];
        let outcome = if !step.accepts(response.status) {
            self.recorder.rejected(response.status);
            Outcome::StatusRejected
        } else if !response.contains {
            Outcome::CheckFailed
        } else {
            Outcome::Ok
        };
        let keep_alive = self.plan.spec.connection.keep_alive;
        // A response to a request that is only half written: the rest of it would be taken for another request.
        let cut_short = slot.in_flight == slot.unwritten;
        // The peer has closed its side and owes no answer any more: what is not written yet needs a new connection.
        let closed = slot.peer_closed && slot.in_flight - 1 == slot.unwritten;
        if response.closes || closed || cut_short || !keep_alive {
            self.recorder.connections.closed_by_peer += u64::from((response.closes || closed) && keep_alive);
            let lost = slot.begun() - 1;
            self.close(index);
            self.end_request(index, outcome);
            for _ in 0..lost {
                self.end_request(index, Outcome::ClosedEarly);
            }
        } else {
            self.end_request(index, outcome);
        }
    }

    /// The peer has closed: the end of a body without a length, a lost request, or an idle connection that goes.
    fn end_of_stream(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if slot.state == State::Handshake {
            return self.connect_failed(index, Outcome::TlsFailed);
        }
        if slot.in_flight > 0 {
            let expected = &self.plan.steps[usize::from(slot.front().step_index())].expected;
            let partial = match &mut slot.extra {
                Some(extra) => &mut extra.partial,
                None => &mut self.partial,
            };
            let mut parser = slot.parser;
            if let Some(response) = parser.end_of_stream(partial, expected) {
                self.answered(index, response);
                return self.advance(index);
            }
        }
        self.recorder.connections.closed_by_peer += 1;
        self.fail(index, Outcome::ClosedEarly);
    }

    /// The connection is lost with all requests of which a byte was written; the others go to a new one.
    pub(super) fn fail(&mut self, index: usize, outcome: Outcome) {
        let slot = &self.slots[index];
        if slot.state < State::Fresh {
            return self.connect_failed(index, outcome);
        }
        if slot.state == State::Fresh && slot.begun() == 0 && slot.in_flight > 0 {
            return self.fail_all(index, outcome);
        }
        // A late or bad response is the oldest request's; those behind it only lose their connection.
        let behind = match outcome {
            Outcome::Timeout | Outcome::BadResponse => Outcome::ClosedEarly,
            outcome => outcome,
        };
        let lost = slot.begun();
        self.close(index);
        for nth in 0..lost {
            self.end_request(index, if nth == 0 { outcome } else { behind });
        }
        self.advance(index);
    }

    /// The connection is lost with all its requests: they could not even begin.
    fn fail_all(&mut self, index: usize, outcome: Outcome) {
        let lost = self.slots[index].in_flight;
        if self.slots[index].state != State::Closed {
            self.close(index);
        }
        self.slots[index].unwritten = 0;
        for _ in 0..lost {
            self.end_request(index, outcome);
        }
        self.advance(index);
    }

    pub(super) fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        sys::close(slot.fd);
        slot.reset();
        self.recorder.connections_changed(-1);
    }

    fn receive_records(&mut self, index: usize, records: &[u8]) {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let slot = &mut self.slots[index];
        let generation = slot.generation;
        let received = slot.tls().map_or(Err(TlsError::Broken), |tls| tls.receive(records, &mut plain));
        if !plain.is_empty() {
            self.parse(index, &plain);
        }
        self.plain = plain;
        if self.slots[index].generation != generation {
            return;
        }
        match received {
            Ok(()) => self.flush_tls(index),
            Err(_) if self.slots[index].state == State::Handshake => self.connect_failed(index, Outcome::TlsFailed),
            Err(_) => self.fail(index, Outcome::TlsFailed),
        }
    }

    fn write_tls_requests(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let steps: Vec<u16> = slot.unwritten_steps().collect();
        slot.unwritten = 0;
        for step in steps {
            if let Some(tls) = slot.tls() {
                tls.send(&self.plan.steps[usize::from(step)].request);
            }
        }
        self.flush_tls(index);
    }

    /// Writes what TLS has to say, and the requests once the handshake is done.
    fn flush_tls(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let fd = slot.fd;
        let Some(tls) = slot.tls() else { return };
        match tls.flush(fd) {
            Ok(count) => self.recorder.wrote(count),
            Err(_) if slot.state == State::Handshake => return self.connect_failed(index, Outcome::TlsFailed),
            Err(_) => return self.write_failed(index),
        }
        let slot = &mut self.slots[index];
        if slot.state == State::Handshake && slot.tls().is_some_and(|tls| !tls.handshaking()) {
            self.established(index);
            self.advance(index);
        }
    }
}

/// The step of the newest request in flight.
fn last_step(slot: &super::Slot) -> u16 {
    slot.unwritten_steps().last().unwrap_or(0)
}

fn connect_outcome(code: sys::Errno) -> Outcome {
    match code {
        libc::ECONNREFUSED => Outcome::ConnectRefused,
        libc::ETIMEDOUT => Outcome::ConnectTimeout,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => Outcome::NoDescriptors,
        libc::EADDRNOTAVAIL => Outcome::NoPorts,
        _ => Outcome::ConnectFailed,
    }
}
