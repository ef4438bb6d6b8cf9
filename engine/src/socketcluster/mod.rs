//! SocketCluster's wire protocol from the client's side, without time and without sockets: writes the texts of steps
//! and replies (`outgoing`), and parses received texts as far as a load needs them (`incoming`). `serving` is a minimal
//! server, for the reference subject. `websocket` makes the frames around the texts.
//!
//! Version 14 uses protocol 1, versions 15 to 20 use protocol 2; both put JSON objects with `event`, `cid`, `rid`,
//! `data` and `error` into text messages. Codecs other than JSON, authentication and outgoing batches are absent.

pub mod incoming;
#[cfg(test)]
mod oracle;
pub mod outgoing;
pub mod serving;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Protocol 1: heartbeats `#1` and `#2`, and a `#disconnect` before the connection closes.
    V14,
    /// Protocol 2: heartbeats are empty texts.
    V20,
}

/// The `cid` of the handshake; the connection's other calls continue from it.
pub const HANDSHAKE_ID: u64 = 1;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
