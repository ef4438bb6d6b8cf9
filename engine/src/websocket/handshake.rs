//! The server's side of the opening handshake. In: the bytes of an HTTP request. Out: the answer, or the reason for
//! refusing. No extension or subprotocol is ever accepted.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::digest;

use crate::scan::has_token;

const HEADERS_MAX: usize = 64; // arbitrary: of a request; clients and browsers send about 15
const VERSION: &[u8] = b"13";
const KEY_BYTES: usize = 16;
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An HTTP request without an upgrade to WebSocket.
    NotAsked,
    Version,
    /// An upgrade that violates RFC 6455; the sentence gives the reason.
    Malformed(&'static str),
}

/// The value of `Sec-WebSocket-Accept` for a complete request.
pub fn accept(request: &[u8]) -> Result<String, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    if !matches!(head.parse(request), Ok(httparse::Status::Complete(_))) {
        return Err(Refusal::Malformed("this is no HTTP request"));
    }
    let (mut upgrade, mut connection, mut host) = (false, false, false);
    let (mut version, mut key): (Option<&[u8]>, Option<&[u8]>) = (None, None);
    for header in head.headers.iter() {
        match header.name {
            name if name.eq_ignore_ascii_case("upgrade") => upgrade |= has_token(header.value, b"websocket"),
            name if name.eq_ignore_ascii_case("connection") => connection |= has_token(header.value, b"upgrade"),
            name if name.eq_ignore_ascii_case("host") => host = true,
            name if name.eq_ignore_ascii_case("sec-websocket-version") => version = Some(header.value),
            name if name.eq_ignore_ascii_case("sec-websocket-key") => key = Some(header.value),
            _ => {}
        }
    }
    if !upgrade {
        return Err(Refusal::NotAsked);
    }
    if head.method != Some("GET") || head.version != Some(1) {
        return Err(Refusal::Malformed("a WebSocket opens with GET and HTTP/1.1"));
    }
    if !connection || !host {
        return Err(Refusal::Malformed("a WebSocket opens with the headers Host and Connection: Upgrade"));
    }
    if version != Some(VERSION) {
        return Err(Refusal::Version);
    }
    match key {
        Some(key) if is_key(key) => Ok(accept_of(key)),
        _ => Err(Refusal::Malformed("a WebSocket opens with a Sec-WebSocket-Key of 16 bytes in base64")),
    }
}

/// Appends the answer that makes the connection a WebSocket.
pub fn write_answer(out: &mut Vec<u8>, accept: &str) {
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
}

impl Refusal {
    /// Appends the answer; the connection must then be closed.
    pub fn write_answer(self, out: &mut Vec<u8>) {
        let (status, more, text) = match self {
            Refusal::NotAsked => (
                "426 Upgrade Required",
                "Upgrade: websocket\r\nConnection: upgrade, close\r\n",
                "WebSocket is spoken here: ask for an upgrade",
            ),
            Refusal::Version => (
                "426 Upgrade Required",
                "Upgrade: websocket\r\nConnection: upgrade, close\r\nSec-WebSocket-Version: 13\r\n",
                "version 13 of WebSocket is spoken here",
            ),
            Refusal::Malformed(reason) => ("400 Bad Request", "Connection: close\r\n", reason),
        };
        let _ = write!(
            out,
            "HTTP/1.1 {status}\r\n{more}Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}\n",
            text.len() + 1
        );
    }
}

/// The `Sec-WebSocket-Accept` that proves that a server has understood this key.
pub(super) fn accept_of(key: &[u8]) -> String {
    // SHA-1 protects nothing here; RFC 6455 uses it only to distinguish a WebSocket server from any other.
    let mut sha1 = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    sha1.update(key);
    sha1.update(GUID);
    BASE64.encode(sha1.finish())
}

fn is_key(key: &[u8]) -> bool {
    BASE64.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 6455, 1.2.
    const REQUEST: &str = "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                           Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://example.com\r\n\
                           Sec-WebSocket-Protocol: chat, superchat\r\nSec-WebSocket-Version: 13\r\n\r\n";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn accept_text(request: &str) -> Result<String, Refusal> {
        accept(request.as_bytes())
    }

    #[test]
    fn names_and_tokens_are_found_in_any_case_and_company() {
        let request = REQUEST
            .replace("Upgrade: websocket", "upgrade: h2c, WebSocket")
            .replace("Connection: Upgrade", "CONNECTION: keep-alive, upgrade")
            .replace("Sec-WebSocket-Key", "sec-websocket-key");
        assert_eq!(accept_text(&request), Ok(ACCEPT.into()));
    }

    #[test]
    fn what_is_no_handshake_is_refused_and_told_why() {
        for (from, to) in [
            ("GET", "POST"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("Connection: Upgrade", "Connection: keep-alive"),
            ("Host: server.example.com\r\n", ""),
            ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "not base64 at all"),
            ("\r\n\r\n", "\r\n"),
        ] {
            let refusal = accept_text(&REQUEST.replace(from, to)).unwrap_err();
            assert!(matches!(refusal, Refusal::Malformed(_)), "{from}: {refusal:?}");
        }
        assert_eq!(accept_text(&REQUEST.replace("Upgrade: websocket\r\n", "")), Err(Refusal::NotAsked));
        assert_eq!(accept_text(&REQUEST.replace("Upgrade: websocket", "Upgrade: h2c")), Err(Refusal::NotAsked));
        assert_eq!(accept_text(&REQUEST.replace("Version: 13", "Version: 8")), Err(Refusal::Version));
        let mut out = Vec::new();
        Refusal::Version.write_answer(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 426 ") && text.contains("Sec-WebSocket-Version: 13\r\n"), "{text}");
    }

    proptest! {
        #[test]
        fn no_request_makes_it_panic(cut in 0..REQUEST.len(), noise in prop::collection::vec(any::<u8>(), 0..50)) {
            let bytes = [&REQUEST.as_bytes()[..cut], &noise, &REQUEST.as_bytes()[cut..]].concat();
            let _ = accept(&bytes);
            let _ = accept(&REQUEST.as_bytes()[..cut]);
        }
    }
}
