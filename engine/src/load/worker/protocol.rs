//! The protocol of a load, as the event loop sees it. The loop owns sockets, TLS records, timers, slots, phases and
//! counts (`Core`). A protocol is one value for all connections of a thread: it has its own state, and decides which
//! bytes are written when, what received bytes mean, and when a user is done. The loop is compiled once for each
//! protocol, so that no call is indirect.

use super::core::Core;
use crate::contract::outcome::Outcome;
use crate::load::timers::Timer;

pub trait Protocol: Send + 'static {
    /// Most reads of one connection before other connections get their turn.
    const READS_AT_ONCE: usize;

    /// Handles a timer that is due: a user starts, or a pause is over.
    fn fire(&mut self, core: &mut Core, timer: Timer);

    /// Begins an arrival of the open model on this slot. Protocols whose specs exclude the open model need not
    /// implement it.
    fn arrive(&mut self, _core: &mut Core, _index: usize, _intended_ns: u64) {
        unreachable!("the spec's check refuses the open model with this protocol");
    }

    /// TCP is connected; with TLS the handshake begins now.
    fn connected(&mut self, core: &mut Core, index: usize);

    /// The connection could not be made: TCP or TLS failed.
    fn connect_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome);

    /// The TLS handshake is done; its last records are still to be written.
    fn secured(&mut self, _core: &mut Core, _index: usize) {}

    /// Handles plain bytes from the server.
    fn receive(&mut self, core: &mut Core, index: usize, bytes: &mut [u8]);

    /// Writes the answers to received bytes; called after the bytes of each read.
    fn flush(&mut self, core: &mut Core, index: usize);

    /// The socket has room for more bytes.
    fn writable(&mut self, core: &mut Core, index: usize);

    /// The server has closed its side of an open connection.
    fn end_of_stream(&mut self, core: &mut Core, index: usize);

    /// Reading from an open connection failed.
    fn broken(&mut self, core: &mut Core, index: usize, outcome: Outcome);

    /// The instant up to which a slot may wait, and the outcome after it. None if the slot waits for nothing.
    fn waits_until(&self, core: &Core, index: usize) -> Option<(u64, Outcome)>;

    /// The slot has waited too long; `outcome` is that of its oldest request.
    fn time_is_up(&mut self, core: &mut Core, index: usize, outcome: Outcome);

    /// Called after all slots have been swept for timeouts. Returns the instant of the next sweep: `next_ns` or
    /// earlier.
    fn swept(&mut self, _core: &mut Core, next_ns: u64) -> u64 {
        next_ns
    }

    /// The window has ended: interrupts pauses and schedules nothing more. May be called again.
    fn call_off(&mut self, core: &mut Core, end_ns: u64);

    /// True if, while draining, there is something to wait for besides answers.
    fn stays(&self) -> bool {
        false
    }

    /// The run is over: requests without an answer are unfinished, and connections are closed.
    fn abandon(&mut self, core: &mut Core);
}
