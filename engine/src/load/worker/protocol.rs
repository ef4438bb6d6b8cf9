//! The protocol of a load, as the event loop sees it. The loop owns sockets, TLS records, timers, slots, phases and counts
//! (`Core`). A protocol is one value for all connections of a thread: it owns its own state and decides which bytes are written
//! when, what received bytes mean, and when a user is done. The loop is compiled once for each protocol; no call is indirect.

use super::core::Core;
use crate::contract::outcome::Outcome;
use crate::load::timers::Timer;

pub trait Protocol: Send + 'static {
    /// Reads of one connection before others are looked at.
    const READS_AT_ONCE: usize;

    /// A timer is due: a user starts, or a pause is over.
    fn fire(&mut self, core: &mut Core, timer: Timer);

    /// An arrival of the open model begins on this slot. Protocols whose specs cannot have the open model leave it out.
    fn arrive(&mut self, _core: &mut Core, _index: usize, _intended_ns: u64) {
        unreachable!("the spec's check refuses the open model with this protocol");
    }

    /// TCP stands; with TLS its handshake begins.
    fn connected(&mut self, core: &mut Core, index: usize);

    /// A connection could not be made: TCP or TLS failed.
    fn connect_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome);

    /// The TLS handshake is done, and its last records are still to be written.
    fn secured(&mut self, _core: &mut Core, _index: usize) {}

    /// Plain bytes from the server.
    fn receive(&mut self, core: &mut Core, index: usize, bytes: &mut [u8]);

    /// The bytes of one read have been received: writes the answers to them.
    fn flush(&mut self, core: &mut Core, index: usize);

    /// The socket has room for more bytes.
    fn writable(&mut self, core: &mut Core, index: usize);

    /// The server has closed its side of an open connection.
    fn end_of_stream(&mut self, core: &mut Core, index: usize);

    /// Reading from an open connection failed.
    fn broken(&mut self, core: &mut Core, index: usize, outcome: Outcome);

    /// The time that a slot may still wait, and the outcome after it. None: the slot waits for nothing.
    fn time_left(&self, core: &Core, index: usize) -> Option<(u64, Outcome)>;

    /// The slot has waited too long.
    fn time_is_up(&mut self, core: &mut Core, index: usize, outcome: Outcome);

    /// All slots have been swept for timeouts; returns when the next sweep is due, `next_ns` or earlier.
    fn swept(&mut self, _core: &mut Core, next_ns: u64) -> u64 {
        next_ns
    }

    /// The window has ended: pauses are interrupted, and nothing more is scheduled. May be called again.
    fn call_off(&mut self, core: &mut Core, end_ns: u64);

    /// While draining: true if there is something to wait for besides answers.
    fn stays(&self) -> bool {
        false
    }

    /// The run is over: what has no answer stays unfinished, and connections close.
    fn abandon(&mut self, core: &mut Core);
}
