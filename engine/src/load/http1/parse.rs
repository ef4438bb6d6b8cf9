//! Parses responses from bytes cut anywhere. In: bytes. Out: the number of bytes used, and the response if it is
//! complete. Covers lengths, chunks, bodies until close, and informational responses. No sockets and no time; the
//! status is not judged, and the body is searched only if the step has texts to find.
//!
//! Most heads of a server equal the one before, byte for byte (`Date` changes once a second), so `HeadCache` keeps the
//! last parsed head: comparing some 150 bytes is cheaper than parsing them.

use super::contains::Needles;
use crate::scan::has_token;

/// A longer head is refused.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 128; // arbitrary: far above any real response; each costs 32 bytes of stack
/// The start of every head.
const PROTOCOL: &[u8] = b"HTTP/1.";

/// The position of one connection within a response: 12 bytes, which is all that a connection waiting for an answer
/// needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Parser {
    /// Bytes of the body or chunk still to come; while a chunk size is read, the size so far.
    left: u64,
    status: u16,
    place: Place,
    /// True if the connection ends with this response.
    closes: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    Body,
    UntilClose,
    ChunkSize,
    /// At least one digit has been read.
    ChunkSizeDigits,
    ChunkExtension,
    ChunkData,
    ChunkEnd,
    TrailerStart,
    Trailer,
}

/// State of a response that has arrived in part: the start of its head, and the state of the search in its body.
#[derive(Debug, Default)]
pub struct Partial {
    head: Vec<u8>,
    matched: Vec<u32>,
}

impl Partial {
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.matched.is_empty()
    }

    pub fn clear(&mut self) {
        self.head.clear();
        self.matched.clear();
    }
}

/// The properties of a request that its response depends on.
pub struct Expected {
    /// True for a HEAD request: no body follows, whatever the head says.
    pub head: bool,
    pub needles: Needles,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// True if the connection cannot carry another request.
    pub closes: bool,
    /// True if the body contained every text of the step.
    pub contains: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes were used and more are needed.
    More,
    /// A response is complete; this many bytes were used.
    Done(usize, Response),
    /// Not HTTP/1.x, or an invalid length.
    Bad(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    closes: bool,
    body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
    UntilClose,
}

/// The last complete head as bytes, and its parsed form.
#[derive(Default)]
pub struct HeadCache {
    bytes: Vec<u8>,
    head: Option<Head>,
}

impl HeadCache {
    /// Returns the cached head and its length if the bytes start with it.
    #[inline]
    fn again(&self, bytes: &[u8]) -> Option<(usize, Head)> {
        let length = self.bytes.len();
        let head = self.head?;
        (bytes.len() >= length && bytes[..length] == self.bytes[..]).then_some((length, head))
    }

    fn keep(&mut self, bytes: &[u8], head: Head) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.head = Some(head);
    }
}

impl Parser {
    /// Consumes bytes up to the end of one response.
    #[inline]
    pub fn feed(
        &mut self,
        cache: &mut HeadCache,
        partial: &mut Partial,
        expected: &Expected,
        bytes: &[u8],
    ) -> Progress {
        if self.place == Place::Head
            && partial.head.is_empty()
            && let Some((length, head)) = cache.again(bytes)
            && let Body::Length(body) = head.body
            && body <= (bytes.len() - length) as u64
            && !expected.head
            && expected.needles.is_empty()
            && head.status >= 200
        {
            let response = Response { status: head.status, closes: head.closes, contains: true };
            return Progress::Done(length + body as usize, response);
        }
        self.feed_slowly(cache, partial, expected, bytes)
    }

    fn feed_slowly(
        &mut self,
        cache: &mut HeadCache,
        partial: &mut Partial,
        expected: &Expected,
        bytes: &[u8],
    ) -> Progress {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            let step = match self.place {
                Place::Head => self.feed_head(cache, partial, expected, rest),
                Place::Body | Place::ChunkData => Ok(self.feed_data(partial, expected, rest)),
                Place::UntilClose => {
                    expected.needles.feed_if_any(&mut partial.matched, rest);
                    Ok((rest.len(), false))
                }
                _ => self.feed_framing(rest[0]).map(|done| (1, done)),
            };
            match step {
                Ok((count, done)) => {
                    used += count;
                    if done {
                        return Progress::Done(used, self.finish(partial, expected));
                    }
                }
                Err(reason) => return Progress::Bad(reason),
            }
        }
        Progress::More
    }

    /// True within a response, past its head.
    #[inline]
    pub fn in_body(&self) -> bool {
        self.place != Place::Head
    }

    /// Handles the end of the stream: completes a response whose body is delimited by the close.
    pub fn end_of_stream(&mut self, partial: &mut Partial, expected: &Expected) -> Option<Response> {
        (self.place == Place::UntilClose).then(|| self.finish(partial, expected))
    }

    fn finish(&mut self, partial: &mut Partial, expected: &Expected) -> Response {
        let contains = expected.needles.all_found(&partial.matched);
        let response = Response { status: self.status, closes: self.closes, contains };
        partial.clear();
        *self = Parser::default();
        response
    }

    /// Returns the number of bytes used, and true if the response ended with its head.
    fn feed_head(
        &mut self,
        cache: &mut HeadCache,
        partial: &mut Partial,
        expected: &Expected,
        bytes: &[u8],
    ) -> Result<(usize, bool), &'static str> {
        let known = if partial.head.is_empty() { cache.again(bytes) } else { None };
        let (used, head) = match known {
            Some(known) => known,
            None => match complete_head(partial, bytes)? {
                Some((used, head_bytes)) => {
                    let head = parse_head(head_bytes)?;
                    cache.keep(head_bytes, head);
                    (used, head)
                }
                None => return Ok((bytes.len(), false)),
            },
        };
        partial.head.clear();
        Ok((used, self.begin_body(head, expected)?))
    }

    /// Enters the state that the head calls for; true if the response is complete already.
    fn begin_body(&mut self, head: Head, expected: &Expected) -> Result<bool, &'static str> {
        if head.status == 101 {
            return Err("101: the server switched protocols without being asked");
        }
        if head.status < 200 {
            return Ok(false);
        }
        self.status = head.status;
        self.closes = head.closes;
        match head.body {
            _ if expected.head => return Ok(true),
            Body::Length(0) => return Ok(true),
            Body::Length(left) => {
                self.left = left;
                self.place = Place::Body;
            }
            Body::Chunked => self.place = Place::ChunkSize,
            Body::UntilClose => {
                self.closes = true;
                self.place = Place::UntilClose;
            }
        }
        Ok(false)
    }

    fn feed_data(&mut self, partial: &mut Partial, expected: &Expected, bytes: &[u8]) -> (usize, bool) {
        let count = (bytes.len() as u64).min(self.left) as usize;
        expected.needles.feed_if_any(&mut partial.matched, &bytes[..count]);
        self.left -= count as u64;
        let whole_body = self.place == Place::Body && self.left == 0;
        if self.left == 0 && !whole_body {
            self.place = Place::ChunkEnd;
        }
        (count, whole_body)
    }

    /// Consumes one byte of the chunk framing, outside of the data; true if the response is complete.
    fn feed_framing(&mut self, byte: u8) -> Result<bool, &'static str> {
        self.place = match (self.place, byte) {
            (Place::ChunkSize | Place::ChunkSizeDigits, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.left = self.left.checked_mul(16).ok_or("a chunk size beyond 2^64")? + u64::from(digit);
                Place::ChunkSizeDigits
            }
            (Place::ChunkSizeDigits | Place::ChunkExtension, b'\n') => {
                if self.left == 0 {
                    Place::TrailerStart
                } else {
                    Place::ChunkData
                }
            }
            (Place::ChunkSizeDigits, b'\r' | b';' | b' ' | b'\t') => Place::ChunkExtension,
            (Place::ChunkExtension, _) => Place::ChunkExtension,
            (Place::ChunkSize | Place::ChunkSizeDigits, _) => return Err("a chunk size that is no hexadecimal number"),
            (Place::ChunkEnd, b'\r') => Place::ChunkEnd,
            (Place::ChunkEnd, b'\n') => Place::ChunkSize,
            (Place::ChunkEnd, _) => return Err("a chunk longer than its size"),
            (Place::TrailerStart, b'\r') => Place::TrailerStart,
            (Place::TrailerStart, b'\n') => return Ok(true),
            (Place::Trailer, b'\n') => Place::TrailerStart,
            (_, _) => Place::Trailer,
        };
        Ok(false)
    }
}

impl Needles {
    #[inline]
    fn feed_if_any(&self, matched: &mut Vec<u32>, piece: &[u8]) {
        if !self.is_empty() {
            self.feed(matched, piece);
        }
    }
}

/// Returns a complete head and the number of `bytes` that belong to it. None if the head is incomplete; the bytes are
/// then kept in `partial`.
fn complete_head<'a>(partial: &'a mut Partial, bytes: &'a [u8]) -> Result<Option<(usize, &'a [u8])>, &'static str> {
    if partial.head.is_empty()
        && let Some(end) = head_end(bytes, 0)
    {
        return Ok(Some((end, &bytes[..end])));
    }
    let before = partial.head.len();
    let room = (MAX_HEAD_BYTES + 1).saturating_sub(before).min(bytes.len());
    partial.head.extend_from_slice(&bytes[..room]);
    if let Some(end) = head_end(&partial.head, before.saturating_sub(3)) {
        partial.head.truncate(end);
        return Ok(Some((end - before, &partial.head)));
    }
    let start = &partial.head[..partial.head.len().min(PROTOCOL.len())];
    if !PROTOCOL.starts_with(start) {
        return Err("no HTTP/1 response");
    }
    if partial.head.len() > MAX_HEAD_BYTES {
        return Err("a head of more than 64 KiB");
    }
    Ok(None)
}

/// The position after the empty line that ends a head; lines may end in LF alone.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += bytes[at..].iter().position(|&byte| byte == b'\n')? + 1;
        match &bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<Head, &'static str> {
    // httparse skips empty lines before a head. If they arrived in a piece of their own, they would be refused; so all
    // are.
    if !bytes.starts_with(PROTOCOL) {
        return Err("no HTTP/1 response");
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    // Clients have to accept folded lines (RFC 9112, 5.2), and all accept a space before the colon.
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true).allow_spaces_after_header_name_in_responses(true);
    match config.parse_response(&mut response, bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err("a head that is not complete"),
        Err(httparse::Error::TooManyHeaders) => return Err("more than 128 headers"),
        Err(_) => return Err("no HTTP/1 response"),
    }
    let status = response.code.filter(|code| (100..1000).contains(code)).ok_or("a status that is no status")?;
    let (mut close, mut keep_alive) = (false, false);
    let (mut length, mut chunked, mut encoded) = (None, false, false);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = content_length(header.value)?;
            if length.is_some_and(|length| length != value) {
                return Err("two different content lengths");
            }
            length = Some(value);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            let last = header.value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
            chunked = last.eq_ignore_ascii_case(b"chunked");
            // `identity`, of RFC 2616, means that there is none.
            encoded = !last.eq_ignore_ascii_case(b"identity");
        } else if header.name.eq_ignore_ascii_case("connection") {
            close |= has_token(header.value, b"close");
            keep_alive |= has_token(header.value, b"keep-alive");
        }
    }
    let body = match length {
        _ if status == 204 || status == 304 => Body::Length(0),
        _ if chunked => Body::Chunked,
        Some(length) if !encoded => Body::Length(length),
        _ => Body::UntilClose,
    };
    // If both stand there, in whatever lines, the connection ends (RFC 9112, section 9.3).
    let closes = close || (response.version == Some(0) && !keep_alive);
    Ok(Head { status, closes, body })
}

fn content_length(value: &[u8]) -> Result<u64, &'static str> {
    const WRONG: &str = "a content length that is no number";
    let text = std::str::from_utf8(value).map_err(|_| WRONG)?.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG);
    }
    text.parse().map_err(|_| WRONG)
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
