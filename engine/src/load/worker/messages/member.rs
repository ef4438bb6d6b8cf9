//! The state of users that hold a WebSocket each, beside their slots. No system call is made here, and nothing decided.

use std::sync::Arc;

use crate::load::flight::Flight;
use crate::load::messages::plan::MessagesPlan;
use crate::load::messages::session::{Desk, Session};

/// One user. Some 250 bytes: together with its slot, its timer and the queue of its requests half a KiB.
#[derive(Default)]
pub struct Member {
    pub session: Session,
    /// Bytes that the socket has not taken yet.
    pub blocked: Option<Box<Blocked>>,
    /// When it was to begin joining.
    pub intended_ns: u64,
    /// With a pace: when its next message is intended; `u64::MAX`: it has sent all that it had to.
    pub next_ns: u64,
    /// When anything last came.
    pub heard_ns: u64,
    /// Lanes that wait for the user to join, and the sum of the instants since when (it may wrap around).
    pub parked: u16,
    pub parked_ns_sum: u64,
    /// With a pace: the step of its next message.
    pub step: u16,
    /// With a pace: the next message is due and may not be sent yet.
    pub held: bool,
    /// It has begun.
    pub present: bool,
    pub joined_before: bool,
    /// The connection is about to end by what has been heard: nothing more is said on it.
    pub ending: bool,
    /// It has no connection and will get none; it leaves once its pauses are over.
    pub out: bool,
}

#[derive(Default)]
pub struct Blocked {
    pub bytes: Vec<u8>,
    /// Bytes of these that have been written.
    pub offset: usize,
    /// Messages without an answer: they are done once all bytes are written.
    pub one_way: Vec<Flight>,
}

/// All users of a worker, and buffers that are used for one of them at a time.
pub struct Messages {
    pub plan: Arc<MessagesPlan>,
    pub members: Vec<Member>,
    pub desk: Desk,
    /// Messages without an answer among what is about to be written.
    pub one_way: Vec<Flight>,
    /// A buffer for those that have just been written.
    pub written: Vec<Flight>,
    /// Messages sent, one after the other, without a look at anything else.
    pub burst: u32,
    /// Connections that wait for the server's close frame.
    pub closing: u32,
    /// At the end, users stay for deliveries until none has come for a while: until this instant.
    pub lingers_until_ns: Option<u64>,
    /// No more is sent.
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
