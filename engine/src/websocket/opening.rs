//! The client's side of the opening handshake: writes the request, and checks the answer. In: the bytes of the answer.
//! Out: the length of its head, after which frames follow, or the reason why there is no WebSocket. Redirects and
//! authentication are not supported.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use memchr::memchr;

use super::handshake::accept_of;
use crate::scan::has_token;

const HEADERS_MAX: usize = 128; // as of any response
/// Longer answers are refused.
const ANSWER_BYTES_MAX: usize = 64 << 10; // as the head of any response
/// Shorter answers are checked whenever more bytes have arrived, longer ones only at the end of a line.
const CHECKED_BYTES: usize = 4 << 10; // arbitrary: real answers have 200 bytes

pub struct Opening<'a> {
    /// Path and query.
    pub target: &'a str,
    /// With the port, unless it is the default.
    pub host: &'a str,
    /// The subprotocols on offer, separated by commas; empty: none.
    pub protocols: &'a str,
    /// Further headers.
    pub headers: &'a [(&'a str, &'a str)],
}

/// The nonce of one handshake, in base64.
pub struct Key(String);

impl Key {
    /// `nonce`: random, and new for each connection.
    pub fn new(nonce: [u8; 16]) -> Key {
        Key(BASE64.encode(nonce))
    }
}

/// The reason why an answer opens no WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    NotHttp,
    TooLong,
    /// An HTTP answer with this status instead of 101.
    Status(u16),
    /// 101, but not to WebSocket.
    Upgrade,
    /// Its `Sec-WebSocket-Accept` is missing, or belongs to another key.
    Accept,
    /// It uses an extension, although none was offered.
    Extension,
    /// It uses a subprotocol that was not offered.
    Protocol,
}

/// False if the bytes after the first `before` cannot change the result of `check`. Otherwise, a long answer in many
/// small pieces would be parsed again for each piece.
pub fn is_worth_a_check(answer: &[u8], before: usize) -> bool {
    let long = answer.len() > CHECKED_BYTES && answer.len() <= ANSWER_BYTES_MAX;
    !long || memchr(b'\n', &answer[before..]).is_some()
}

impl Opening<'_> {
    /// Appends the request.
    pub fn write(&self, key: &Key, out: &mut Vec<u8>) {
        // Writing to a Vec cannot fail.
        let _ = write!(
            out,
            "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {}\r\n",
            self.target, self.host, key.0
        );
        if !self.protocols.is_empty() {
            let _ = write!(out, "Sec-WebSocket-Protocol: {}\r\n", self.protocols);
        }
        for (name, value) in self.headers {
            let _ = write!(out, "{name}: {value}\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The length of the answer at the start of these bytes, which are all those received so far; None while it is
    /// incomplete.
    pub fn check(&self, key: &Key, bytes: &[u8]) -> Result<Option<usize>, Rejected> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(bytes) {
            // httparse skips any number of empty lines.
            _ if matches!(bytes.first(), Some(b'\r' | b'\n')) => return Err(Rejected::NotHttp),
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() <= ANSWER_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Err(Rejected::TooLong),
            Err(_) => return Err(Rejected::NotHttp),
        };
        match head.code {
            Some(101) => {}
            status => return Err(Rejected::Status(status.unwrap_or(0))),
        }
        let (mut upgrade, mut connection, mut accept) = (false, false, false);
        for header in head.headers.iter() {
            match header.name {
                name if name.eq_ignore_ascii_case("upgrade") => upgrade |= has_token(header.value, b"websocket"),
                name if name.eq_ignore_ascii_case("connection") => connection |= has_token(header.value, b"upgrade"),
                name if name.eq_ignore_ascii_case("sec-websocket-accept") => {
                    accept = header.value == accept_of(key.0.as_bytes()).as_bytes();
                }
                name if name.eq_ignore_ascii_case("sec-websocket-extensions") => return Err(Rejected::Extension),
                name if name.eq_ignore_ascii_case("sec-websocket-protocol")
                    && !has_token(self.protocols.as_bytes(), header.value) =>
                {
                    return Err(Rejected::Protocol);
                }
                _ => {}
            }
        }
        match (upgrade && connection, accept) {
            (false, _) => Err(Rejected::Upgrade),
            (_, false) => Err(Rejected::Accept),
            (true, true) => Ok(Some(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::handshake;

    const OPENING: Opening<'static> = Opening {
        target: "/chat?room=1",
        host: "server.example.com",
        protocols: "",
        headers: &[("Origin", "http://a")],
    };
    /// RFC 6455, 1.3.
    const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    fn key() -> Key {
        Key::new(*b"the sample nonce")
    }

    fn check(answer: &str) -> Result<Option<usize>, Rejected> {
        OPENING.check(&key(), answer.as_bytes())
    }

    #[test]
    fn the_server_understands_the_request_and_the_client_the_answer() {
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        OPENING.write(&key(), &mut request);
        assert!(request.starts_with(b"GET /chat?room=1 HTTP/1.1\r\nHost: server.example.com\r\n"));
        assert!(request.ends_with(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://a\r\n\r\n"));
        handshake::write_answer(&mut answer, &handshake::accept(&request).unwrap());
        assert_eq!(answer, ANSWER.as_bytes());
        let length = answer.len();
        answer.extend_from_slice(b"\x81\x00");
        assert_eq!(OPENING.check(&key(), &answer), Ok(Some(length)), "what follows are frames");
        for end in 0..length {
            assert_eq!(OPENING.check(&key(), &answer[..end]), Ok(None));
        }
    }

    #[test]
    fn a_long_answer_is_checked_once_a_line() {
        let long = ANSWER.replace("\r\n\r\n", &format!("\r\nA: {}\r\n\r\n", "x".repeat(10_000)));
        let worth = |end: usize| is_worth_a_check(&long.as_bytes()[..end], end - 1);
        assert!((1..=CHECKED_BYTES).all(worth) && worth(long.len() - 2) && worth(long.len()));
        assert!((CHECKED_BYTES + 1..long.len() - 2).all(|end| !worth(end)));
        assert_eq!(check(&long), Ok(Some(long.len())));
        assert_eq!(check(&format!("\r\n{ANSWER}")), Err(Rejected::NotHttp), "lines that are skipped have no number");
    }

    #[test]
    fn answers_that_open_no_websocket_are_told_apart() {
        assert_eq!(check("SSH-2.0-OpenSSH_9.2\r\n"), Err(Rejected::NotHttp));
        assert_eq!(check("HTTP/1.1 404 Not Found\r\n\r\n"), Err(Rejected::Status(404)));
        assert_eq!(check(&format!("HTTP/1.1 101 X\r\nA: {}", "x".repeat(70_000))), Err(Rejected::TooLong));
        for (from, to, rejected) in [
            ("Upgrade: websocket", "Upgrade: h2c", Rejected::Upgrade),
            ("Connection: Upgrade\r\n", "", Rejected::Upgrade),
            ("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "s3pPLMBiTxaQ9kYGzzhZRbK+xOp=", Rejected::Accept),
            ("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", "", Rejected::Accept),
            ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", Rejected::Extension),
            ("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\n", Rejected::Protocol),
        ] {
            assert_eq!(check(&ANSWER.replace(from, to)), Err(rejected));
        }
    }

    #[test]
    fn a_subprotocol_on_offer_may_be_chosen() {
        let offering = Opening { protocols: "superchat, chat", ..OPENING };
        let (mut request, answer) =
            (Vec::new(), ANSWER.replace("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\n"));
        offering.write(&key(), &mut request);
        assert!(String::from_utf8(request).unwrap().contains("Sec-WebSocket-Protocol: superchat, chat\r\n"));
        assert_eq!(offering.check(&key(), answer.as_bytes()), Ok(Some(answer.len())));
    }
}
