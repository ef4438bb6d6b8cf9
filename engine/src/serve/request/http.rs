//! The server side of HTTP/1.1, reduced to what correct answers need. `parse` turns bytes into a request or an error
//! status; `respond` appends a response to bytes. No sockets and no time here. Bodies of requests are skipped.

use std::io::Write;

use crate::scan::has_token;

/// Most bytes of a request's head (also of a chunk's line and of the trailer) and of its body: a test bench sends far
/// fewer.
const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 1 << 20;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Longest chunk of a chunked response. A body of two bytes or more has at least two chunks.
const CHUNK_BYTES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub path: &'a str,
    /// The text after the `?`; empty if there is none.
    pub query: &'a str,
    pub reply: ReplyForm,
}

/// The form of an answer, as the request asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyForm {
    /// HEAD: headers only.
    pub head_only: bool,
    /// True if the connection continues after this answer.
    pub keep_alive: bool,
    /// HTTP/1.0: no chunks, and keep-alive needs a header.
    pub http_1_0: bool,
}

/// The form of an answer to an ordinary GET.
pub const KEPT_ALIVE: ReplyForm = ReplyForm { head_only: false, keep_alive: true, http_1_0: false };
/// The form of an answer to something that could not be read as a request.
pub const LAST_ANSWER: ReplyForm = ReplyForm { keep_alive: false, ..KEPT_ALIVE };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A whole request, and how many bytes it took.
    Complete(Request<'a>, usize),
    /// More bytes are needed.
    Partial,
    /// No valid request: the answer is this status, and the connection must be closed.
    Bad(Status),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    BadRequest,
    NotFound,
    TooLarge,
    HeadTooLarge,
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "HTTP/1.1 200 OK\r\n",
            Status::BadRequest => "HTTP/1.1 400 Bad Request\r\n",
            Status::NotFound => "HTTP/1.1 404 Not Found\r\n",
            Status::TooLarge => "HTTP/1.1 413 Content Too Large\r\n",
            Status::HeadTooLarge => "HTTP/1.1 431 Request Header Fields Too Large\r\n",
            Status::Unavailable => "HTTP/1.1 503 Service Unavailable\r\n",
        }
    }
}

/// Reads the first request in `bytes`. A request is complete when its body is.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut headers = [const { std::mem::MaybeUninit::uninit() }; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut []);
    let head_bytes = match head.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => return Parsed::Bad(Status::HeadTooLarge),
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(httparse::Error::TooManyHeaders) => return Parsed::Bad(Status::HeadTooLarge),
        Err(_) => return Parsed::Bad(Status::BadRequest),
    };
    let http_1_0 = head.version == Some(0);
    let mut keep_alive = !http_1_0;
    let mut body = Body::None;
    for header in head.headers.iter() {
        let value = header.value;
        if header.name.eq_ignore_ascii_case("connection") {
            keep_alive = (keep_alive || has_token(value, b"keep-alive")) && !has_token(value, b"close");
        } else if header.name.eq_ignore_ascii_case("content-length") {
            match std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<usize>().ok()) {
                // With both, chunked framing wins (RFC 9112, 6.3).
                Some(length) if body != Body::Chunked => body = Body::Length(length),
                Some(_) => {}
                None => return Parsed::Bad(Status::BadRequest),
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") && has_token(value, b"chunked") {
            body = Body::Chunked;
        }
    }
    let body_bytes = match body_length(body, &bytes[head_bytes..]) {
        Ok(Some(length)) => length,
        Ok(None) => return Parsed::Partial,
        Err(status) => return Parsed::Bad(status),
    };
    let target = head.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let head_only = head.method == Some("HEAD");
    Parsed::Complete(
        Request { path, query, reply: ReplyForm { head_only, keep_alive, http_1_0 } },
        head_bytes + body_bytes,
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    None,
    Length(usize),
    Chunked,
}

/// Length of the body at the start of `rest`; `None` while it is incomplete.
fn body_length(body: Body, rest: &[u8]) -> Result<Option<usize>, Status> {
    match body {
        Body::None => Ok(Some(0)),
        Body::Length(length) if length > BODY_BYTES_MAX => Err(Status::TooLarge),
        Body::Length(length) => Ok((rest.len() >= length).then_some(length)),
        Body::Chunked => chunked_length(rest),
    }
}

fn chunked_length(rest: &[u8]) -> Result<Option<usize>, Status> {
    let mut at = 0;
    loop {
        let (line_bytes, size) = match httparse::parse_chunk_size(&rest[at..]) {
            Ok(httparse::Status::Complete((line_bytes, size))) => (line_bytes, size),
            Ok(httparse::Status::Partial) => return incomplete(&rest[at..]),
            Err(_) => return Err(Status::BadRequest),
        };
        if size > BODY_BYTES_MAX as u64 || at > 2 * BODY_BYTES_MAX {
            return Err(Status::TooLarge);
        }
        at += line_bytes;
        if size == 0 {
            return match trailer_length(&rest[at..]) {
                Some(trailer) => Ok(Some(at + trailer)),
                None => incomplete(&rest[at..]),
            };
        }
        // The chunk and the CRLF after it.
        at += size as usize + 2;
        if at > rest.len() {
            return Ok(None);
        }
    }
}

/// Returns None (more bytes are needed), or an error if these bytes of a chunk's line or of the trailer are too many
/// already.
fn incomplete(bytes: &[u8]) -> Result<Option<usize>, Status> {
    if bytes.len() > HEAD_BYTES_MAX { Err(Status::HeadTooLarge) } else { Ok(None) }
}

/// Length of the trailer lines up to and including the empty line that ends them.
fn trailer_length(rest: &[u8]) -> Option<usize> {
    if rest.starts_with(b"\r\n") {
        return Some(2);
    }
    rest.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Appends a response with a content length.
pub fn respond(out: &mut Vec<u8>, status: Status, content_type: &str, body: &[u8], form: ReplyForm) {
    respond_head(out, status, content_type, form);
    let _ = write!(out, "Content-Length: {}\r\n\r\n", body.len());
    if !form.head_only {
        out.extend_from_slice(body);
    }
}

/// Appends a 200 response in chunks.
pub fn respond_chunked(out: &mut Vec<u8>, content_type: &str, body: &[u8], form: ReplyForm) {
    respond_head(out, Status::Ok, content_type, form);
    out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    if form.head_only {
        return;
    }
    for chunk in body.chunks(body.len().div_ceil(2).clamp(1, CHUNK_BYTES_MAX)) {
        let _ = write!(out, "{:x}\r\n", chunk.len());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
}

fn respond_head(out: &mut Vec<u8>, status: Status, content_type: &str, form: ReplyForm) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{}Content-Type: {content_type}\r\n", status.line());
    if !form.keep_alive {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if form.http_1_0 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(bytes: &[u8]) -> (Request<'_>, usize) {
        match parse(bytes) {
            Parsed::Complete(request, length) => (request, length),
            other => panic!("{other:?} for {:?}", String::from_utf8_lossy(bytes)),
        }
    }

    #[test]
    fn a_request_is_split_into_path_and_query_and_the_next_is_left_alone() {
        let bytes = b"GET /work?wait=5ms HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let (request, length) = complete(bytes);
        assert_eq!((request.path, request.query), ("/work", "wait=5ms"));
        assert_eq!(request.reply, ReplyForm { head_only: false, keep_alive: true, http_1_0: false });
        assert_eq!(&bytes[length..], b"GET / HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn every_proper_prefix_is_partial() {
        for whole in [
            &b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"[..],
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n0\r\nA: b\r\n\r\n",
        ] {
            for end in 0..whole.len() {
                assert_eq!(parse(&whole[..end]), Parsed::Partial, "{:?}", String::from_utf8_lossy(&whole[..end]));
            }
            assert_eq!(complete(whole).1, whole.len());
        }
    }

    #[test]
    fn keep_alive_follows_version_and_connection_header() {
        for (bytes, keep_alive) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], true),
            (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", false),
            (b"GET / HTTP/1.1\r\nconnection: foo, Close\r\n\r\n", false),
            (b"GET / HTTP/1.0\r\n\r\n", false),
            (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ] {
            assert_eq!(complete(bytes).0.reply.keep_alive, keep_alive, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_status() {
        assert_eq!(parse(b"\x00\x01\x02"), Parsed::Bad(Status::BadRequest));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"), Parsed::Bad(Status::BadRequest));
        assert_eq!(parse(b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"), Parsed::Bad(Status::TooLarge));
        let long = [b"GET /".to_vec(), vec![b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(parse(&long), Parsed::Bad(Status::HeadTooLarge));
    }

    #[test]
    fn chunks_and_trailers_without_end_are_refused() {
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for endless in [&b"0\r\na: b\r\n"[..], b"0\r\n", b"1;", b"1\r\nx\r\n1;"] {
            let more = |bytes| [&head[..], endless, &b"a".repeat(bytes)].concat();
            assert_eq!(parse(&more(1000)), Parsed::Partial, "{endless:?}");
            assert_eq!(parse(&more(HEAD_BYTES_MAX + 1)), Parsed::Bad(Status::HeadTooLarge), "{endless:?}");
        }
    }

    #[test]
    fn responses_are_framed() {
        let form = ReplyForm { head_only: false, keep_alive: true, http_1_0: false };
        let mut out = Vec::new();
        respond(&mut out, Status::Ok, "text/plain", b"abc", form);
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc");
        out.clear();
        respond_chunked(&mut out, "text/plain", b"abc", ReplyForm { keep_alive: false, ..form });
        assert_eq!(
            out,
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
              2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        );
        out.clear();
        respond_chunked(&mut out, "text/plain", b"", form);
        assert!(out.ends_with(b"\r\n\r\n0\r\n\r\n"));
    }
}
