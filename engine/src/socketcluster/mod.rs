//! SocketCluster's wire protocol from the client's side, without time and without sockets: steps and duties become texts
//! (`outgoing`), texts become what a load has to know of them (`incoming`). `serving` is the least of a server, for the reference
//! subject. The frames around the texts are `websocket`'s.
//!
//! Version 14 speaks protocol 1, versions 15 to 20 speak protocol 2; both put JSON objects with `event`, `cid`, `rid`, `data`
//! and `error` into text messages. Codecs other than JSON, authentication and outgoing batches are absent.

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

/// The `cid` of the handshake; those of a connection's other calls follow it.
pub const HANDSHAKE_ID: u64 = 1;

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
