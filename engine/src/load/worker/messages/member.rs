//! The state of users that each hold a WebSocket, apart from their slots. Makes no system calls and no decisions.

use std::sync::Arc;

use crate::load::flight::Flight;
use crate::load::messages::plan::MessagesPlan;
use crate::load::messages::session::{Desk, Session};

/// One user: some 250 bytes. With its slot, its timer and the queue of its requests it takes half a KiB.
#[derive(Default)]
pub struct Member {
    pub session: Session,
    /// Bytes that the socket has not taken yet.
    pub blocked: Option<Box<Blocked>>,
    /// The instant at which joining was to begin.
    pub intended_ns: u64,
    /// With a pace, once the user has joined: the intended instant of the next message; `u64::MAX` if none is to be
    /// sent.
    pub next_ns: u64,
    /// The instant at which anything was last received.
    pub heard_ns: u64,
    /// Number of lanes that wait for the user to join, then the sum of the instants since which they wait (may wrap
    /// around).
    pub parked: u16,
    pub parked_ns_sum: u64,
    /// With a pace: the step of its next message.
    pub step: u16,
    /// With a pace: true if the next message is due and may not be sent yet.
    pub held: bool,
    /// True once the user has started.
    pub present: bool,
    pub joined_before: bool,
    /// True if something received ends the connection: nothing more is said on it.
    pub ending: bool,
    /// True if the user has no connection and will get none; it leaves once its pauses are over.
    pub out: bool,
}

#[derive(Default)]
pub struct Blocked {
    pub bytes: Vec<u8>,
    /// Number of these bytes that have been written.
    pub offset: usize,
    /// Messages that expect no answer: they are done once all bytes are written.
    pub one_way: Vec<Flight>,
}

/// All users of a worker, and buffers that serve one user at a time.
pub struct Messages {
    pub plan: Arc<MessagesPlan>,
    pub members: Vec<Member>,
    pub desk: Desk,
    /// Messages that expect no answer, among those to be written next.
    pub one_way: Vec<Flight>,
    /// A buffer for the messages just written.
    pub written: Vec<Flight>,
    /// Number of messages sent in a row before anything else gets its turn.
    pub burst: u32,
    /// Number of connections that wait for the server's close frame.
    pub closing: u32,
    /// After the end of the window, users stay until this instant, which each delivery moves on; None outside of that
    /// time.
    pub lingers_until_ns: Option<u64>,
    /// True once no more is sent.
    pub called_off: bool,
}

impl Messages {
    pub fn new(plan: Arc<MessagesPlan>, users: usize) -> Messages {
        let mut members = Vec::new();
        members.reserve_exact(users);
        members.resize_with(users, Member::default);
        Messages {
            plan,
            members,
            desk: Desk::default(),
            one_way: Vec::new(),
            written: Vec::new(),
            burst: 0,
            closing: 0,
            lingers_until_ns: None,
            called_off: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_small() {
        assert!(size_of::<Member>() <= 256, "{}", size_of::<Member>());
    }
}
