//! One connection and its user, in one cache line. State that few connections need at a time (a partial response,
//! requests behind the first, TLS) is boxed, and freed when it is empty. Makes no system calls.

use std::collections::VecDeque;

use crate::load::flight::Flight;
use crate::load::http1::parse::{Parser, Partial};
use crate::load::tls::TlsConnection;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Closed,
    Connecting,
    /// TCP is connected, TLS not yet.
    Handshake,
    /// Open, without a response so far.
    Fresh,
    Open,
    /// TCP is connected and a WebSocket is being opened: TLS, the opening handshake, the dialect's handshake,
    /// subscriptions.
    Joining,
    /// The WebSocket is open, and steps are sent on it.
    Joined,
    /// The user has sent its close frame and has left.
    Closing,
}

#[repr(align(64))]
pub struct Slot {
    pub fd: i32,
    /// Distinguishes events of this connection from late ones of an earlier connection of this slot.
    pub generation: u16,
    pub state: State,
    /// True if the peer has closed its side: no answers can come beyond those on their way.
    pub peer_closed: bool,
    /// Number of requests in flight, then how many of them (the last ones) are not written yet. On a WebSocket, the
    /// session counts the requests, and `unwritten` is 1 while bytes wait to be written or a message has arrived in
    /// part.
    pub in_flight: u16,
    pub unwritten: u16,
    /// Closed model: number of the user's requests in flight or pausing. Open model: number of arrivals on this
    /// connection.
    pub lanes: u16,
    step: u16,
    /// Number of bytes written of the first unwritten request.
    pub offset: u32,
    /// Number of requests that the user may still begin; `u32::MAX`: no limit.
    requests_left: u32,
    pub parser: Parser,
    /// In us, low 32 bits: the instant of connect(), then that of the last answer; for a closing WebSocket, that of its
    /// close frame.
    pub stamp_us: u32,
    intended_ns: u64,
    sent_ns: u64,
    pub extra: Option<Box<Extra>>,
}

/// State that most connections do not need most of the time.
#[derive(Default)]
pub struct Extra {
    pub partial: Partial,
    /// Requests in flight behind the first.
    queue: VecDeque<Flight>,
    pub tls: Option<TlsConnection>,
}

impl Slot {
    pub fn new(requests_left: u32) -> Slot {
        Slot {
            fd: -1,
            generation: 0,
            state: State::Closed,
            peer_closed: false,
            in_flight: 0,
            unwritten: 0,
            lanes: 0,
            step: 0,
            offset: 0,
            requests_left,
            parser: Parser::default(),
            stamp_us: 0,
            intended_ns: 0,
            sent_ns: 0,
            extra: None,
        }
    }

    /// The oldest request in flight.
    #[inline]
    pub fn front(&self) -> Flight {
        Flight { intended_ns: self.intended_ns, sent_ns: self.sent_ns, step: self.step }
    }

    /// Adds a request, to be written behind those in flight.
    #[inline]
    pub fn push(&mut self, flight: Flight) {
        if self.in_flight == 0 {
            self.set_front(flight);
        } else {
            self.extra.get_or_insert_default().queue.push_back(flight);
        }
        self.in_flight += 1;
        self.unwritten += 1;
    }

    #[inline]
    pub fn pop(&mut self) -> Flight {
        let flight = self.front();
        self.in_flight -= 1;
        if self.in_flight > 0 {
            self.advance_front();
        }
        flight
    }

    #[inline]
    fn advance_front(&mut self) {
        let next = self.extra.as_mut().and_then(|extra| extra.queue.pop_front());
        self.set_front(next.expect("requests behind the first are queued"));
    }

    fn set_front(&mut self, flight: Flight) {
        self.intended_ns = flight.intended_ns;
        self.sent_ns = flight.sent_ns;
        self.step = flight.step;
    }

    /// Returns true if the user may begin another request, and counts that request as begun.
    #[inline]
    pub fn take_request(&mut self) -> bool {
        let may = self.has_requests();
        self.requests_left -= u32::from(may && self.requests_left != u32::MAX);
        may
    }

    /// True if the user may begin another request.
    #[inline]
    pub fn has_requests(&self) -> bool {
        self.requests_left > 0
    }

    /// The steps of the unwritten requests, oldest first.
    pub fn unwritten_steps(&self) -> impl Iterator<Item = u16> + '_ {
        let first = usize::from(self.in_flight - self.unwritten);
        let queue = self.extra.iter().flat_map(|extra| extra.queue.iter());
        std::iter::once(self.front())
            .chain(queue.copied())
            .skip(first)
            .take(usize::from(self.unwritten))
            .map(Flight::step_index)
    }

    /// Number of requests in flight of which a byte was written: they are lost with the connection.
    pub fn begun(&self) -> u16 {
        self.in_flight - self.unwritten + u16::from(self.offset > 0)
    }

    /// True if the server waits for the engine: for the next step of a handshake, the rest of a request, or room for
    /// the rest of a response. If the engine is late, so is what the server sends next.
    #[inline]
    pub fn is_pressing(&self) -> bool {
        match self.state {
            State::Closed | State::Closing => false,
            State::Connecting | State::Handshake | State::Joining => true,
            State::Joined => self.unwritten > 0,
            State::Fresh | State::Open => {
                self.unwritten > 0
                    || self.parser.in_body()
                    || self.extra.as_ref().is_some_and(|extra| {
                        !extra.partial.is_empty() || extra.tls.as_ref().is_some_and(TlsConnection::wants_write)
                    })
            }
        }
    }

    /// Forgets the connection. Requests of which no byte was written stay for the next one.
    pub fn reset(&mut self) {
        self.unwritten -= u16::from(self.offset > 0);
        self.offset = 0;
        self.fd = -1;
        self.generation = self.generation.wrapping_add(1);
        self.state = State::Closed;
        self.peer_closed = false;
        self.parser = Parser::default();
        if let Some(extra) = &mut self.extra {
            extra.partial.clear();
            extra.tls = None;
        }
        self.shed();
    }

    /// Frees the box if it is empty.
    pub fn shed(&mut self) {
        if self
            .extra
            .as_ref()
            .is_some_and(|extra| extra.tls.is_none() && extra.queue.is_empty() && extra.partial.is_empty())
        {
            self.extra = None;
        }
    }

    /// The low bits of the generation, to be compared with `Timer::life`.
    pub fn life(&self) -> u8 {
        self.generation as u8
    }

    pub fn tls(&mut self) -> Option<&mut TlsConnection> {
        self.extra.as_mut().and_then(|extra| extra.tls.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(step: u16) -> Flight {
        Flight { intended_ns: u64::from(step), sent_ns: 0, step }
    }

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    #[test]
    fn requests_leave_in_the_order_they_came() {
        let mut slot = Slot::new(0);
        (0..5).for_each(|step| slot.push(flight(step)));
        slot.unwritten = 2;
        assert_eq!(slot.unwritten_steps().collect::<Vec<_>>(), [3, 4]);
        assert_eq!((0..5).map(|_| slot.pop().step).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_server_waits_for_the_engine_until_the_request_is_written() {
        let mut slot = Slot::new(0);
        assert!(!slot.is_pressing());
        slot.push(flight(0));
        for state in [State::Connecting, State::Handshake, State::Fresh, State::Open] {
            slot.state = state;
            assert!(slot.is_pressing(), "{state:?}");
        }
        slot.unwritten = 0;
        assert!(!slot.is_pressing(), "now the engine waits for the server");
        slot.reset();
        assert!(!slot.is_pressing());
    }

    #[test]
    fn a_lost_connection_keeps_only_requests_of_which_nothing_was_written() {
        let mut slot = Slot::new(0);
        (0..3).for_each(|step| slot.push(flight(step)));
        slot.unwritten = 2;
        slot.offset = 7;
        assert_eq!(slot.begun(), 2);
        slot.reset();
        assert_eq!((slot.unwritten, slot.offset, slot.state), (1, 0, State::Closed));
    }
}
