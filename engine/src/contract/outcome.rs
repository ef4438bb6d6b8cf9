//! The outcomes of a request: an exhaustive list. Every sent request has exactly one outcome, so
//! `sent == sum of outcomes` holds at the end of a run. Work that was never sent is `dropped`, which is no outcome. A
//! user that fails to join over a WebSocket has an outcome, too: the reason why it failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The end of one request. Only `Ok` counts towards goodput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Outcome {
    /// A complete response that passed every check.
    Ok,
    /// The peer refused the connection (ECONNREFUSED).
    ConnectRefused,
    /// No connection within the connect timeout; for a user with a WebSocket: it had not joined by then.
    ConnectTimeout,
    /// Any other failure to connect (the host cannot be reached).
    ConnectFailed,
    /// The TLS handshake or a TLS record failed.
    TlsFailed,
    /// The peer reset the connection (ECONNRESET, EPIPE) while the request was in flight.
    Reset,
    /// The peer closed the connection before the response was complete.
    ClosedEarly,
    /// No complete response within the request timeout.
    Timeout,
    /// Bytes that are no valid response of the protocol.
    BadResponse,
    /// A valid response whose status the step does not accept.
    StatusRejected,
    /// A valid response whose body failed a check of the step.
    CheckFailed,
    /// This machine had no descriptor left for a connection (EMFILE, ENFILE): the generator was the limit.
    NoDescriptors,
    /// This machine had no ephemeral port left (EADDRNOTAVAIL): the generator was the limit.
    NoPorts,
    /// Still in flight when the drain phase ended.
    Unfinished,
    /// The server answered the opening handshake of a WebSocket, or that of its dialect, with a refusal or wrongly.
    HandshakeRefused,
    /// The server broke RFC 6455 or the dialect spoken on top of it.
    Violation,
}

impl Outcome {
    /// Every outcome, in the order of the enum; `Outcome::ALL[o as usize] == o`.
    pub const ALL: [Outcome; 16] = [
        Outcome::Ok,
        Outcome::ConnectRefused,
        Outcome::ConnectTimeout,
        Outcome::ConnectFailed,
        Outcome::TlsFailed,
        Outcome::Reset,
        Outcome::ClosedEarly,
        Outcome::Timeout,
        Outcome::BadResponse,
        Outcome::StatusRejected,
        Outcome::CheckFailed,
        Outcome::NoDescriptors,
        Outcome::NoPorts,
        Outcome::Unfinished,
        Outcome::HandshakeRefused,
        Outcome::Violation,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_outcome_in_order() {
        assert!(Outcome::ALL.iter().enumerate().all(|(i, outcome)| *outcome as usize == i));
    }
}
