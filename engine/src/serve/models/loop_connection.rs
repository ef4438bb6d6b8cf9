//! What an event loop knows of one connection: what is read and not served, what is not written, for what it waits and
//! how it is to end. Who changes it, and when, is the loop's business.

use crate::serve::request::echo::Echo;
use crate::serve::request::service::{Job, Socket};

pub struct Connection {
    pub socket: Socket,
    /// Bytes read and not yet served; empty between requests.
    pub input: Vec<u8>,
    /// Answers that the socket did not take yet; empty nearly always.
    pub output: Vec<u8>,
    /// The socket may hold bytes that are not read yet.
    pub readable: bool,
    /// The peer is closing: a short read does not mean that the socket is empty, for its end is still to be read.
    pub closing: bool,
    /// Its request that waits for something.
    pub pending: Option<Pending>,
    /// It has become a WebSocket.
    pub echo: Option<Box<Echo>>,
    /// To be closed as soon as `output` is written.
    pub ending: bool,
    /// Nothing more is said once `output` is written, nor heard; it is left to the peer to close. Closed at once, with bytes
    /// unread, it would be reset, and the peer might never see why.
    pub draining: bool,
    /// Given up while its request still waits: it keeps its descriptor until then, and is served no more.
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

/// What a request waits for.
pub enum Pending {
    ForDownstream(Job),
    AtDownstream(Job),
    Wait(Job),
}
