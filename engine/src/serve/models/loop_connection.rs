//! The state of one connection of an event loop: bytes not served yet, answers not written yet, the request that waits, and
//! how the connection ends. Only the loop changes it.

use crate::serve::request::echo::Echo;
use crate::serve::request::service::{Job, Socket};

pub struct Connection {
    pub socket: Socket,
    /// Bytes read and not yet served; empty between requests.
    pub input: Vec<u8>,
    /// Answers that the socket has not taken yet; nearly always empty.
    pub output: Vec<u8>,
    /// The socket may hold bytes that are not read yet.
    pub readable: bool,
    /// The peer is closing: a short read does not mean that the socket is empty, because the end is still to be read.
    pub closing: bool,
    /// The request that waits, if one does.
    pub pending: Option<Pending>,
    /// Present once the connection is a WebSocket.
    pub echo: Option<Box<Echo>>,
    /// To be closed as soon as `output` is written.
    pub ending: bool,
    /// After `output` is written nothing more is sent or read, and the peer has to close. Closing at once, with bytes unread,
    /// would reset the connection, and the peer might never see the reason.
    pub draining: bool,
    /// The connection failed while its request waits: it keeps its descriptor until the wait ends, and is not served.
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

/// A request that waits, by the event it waits for.
pub enum Pending {
    ForDownstream(Job),
    AtDownstream(Job),
    Wait(Job),
}
