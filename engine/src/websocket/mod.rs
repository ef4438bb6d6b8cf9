//! WebSocket (RFC 6455) without time and without sockets, for both ends: bytes cut anywhere become messages (`reader`),
//! messages become frames (`frame`), and HTTP becomes WebSocket (`handshake` for the server, `opening` for the client).
//! No extensions: compressed messages are refused like any other use of the reserved bits.

pub mod frame;
pub mod handshake;
pub mod opening;
pub mod reader;
mod violation;

pub use violation::Violation;
