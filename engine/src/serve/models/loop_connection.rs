//! The state of one connection of an event loop: bytes not served yet, answers not written yet, the request that waits,
//! and how the connection ends. Only the loop changes it.

use crate::serve::request::echo::Echo;
use crate::serve::request::service::{Job, Socket};

pub struct Connection {
    pub socket: Socket,
    /// Bytes read and not yet served; empty between requests.
    pub input: Vec<u8>,
    /// Answers that the socket has not taken yet; nearly always empty.
    pub output: Vec<u8>,
    /// True if the socket may hold unread bytes.
    pub readable: bool,
    /// True if the peer is closing: a short read then does not mean that the socket is empty, because its end is still
    /// to be read.
    pub closing: bool,
    /// The request that waits, if there is one.
    pub pending: Option<Pending>,
    /// The state of the WebSocket once the connection is one.
    pub echo: Option<Box<Echo>>,
    /// True if the connection is to be closed as soon as `output` is written.
    pub ending: bool,
    /// True if, once `output` is written, nothing more is sent or read, and the peer has to close. Closing at once,
    /// with bytes unread, would reset the connection, and the peer might never see the reason.
    pub draining: bool,
    /// True if the connection failed while its request waits: it is not served, and keeps its descriptor until the wait
    /// ends.
    pub broken: bool,
}

impl Connection {
    pub fn new(socket: Socket) -> Connection {
        Connection {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            readable: false,
            closing: false,
            pending: None,
            echo: None,
            ending: false,
            draining: false,
            broken: false,
        }
    }
}

/// A request that waits, by the event that it waits for.
pub enum Pending {
    ForDownstream(Job),
    AtDownstream(Job),
    Wait(Job),
}
