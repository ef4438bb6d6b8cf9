//! One step as HTTP/1: the bytes of its request, made once before the run, and the expectations of its response.

use crate::contract::spec::Step;
use crate::load::http1::contains::Needles;
use crate::load::http1::parse::Expected;
use crate::scan::has_token;

pub struct RequestPlan {
    pub request: Vec<u8>,
    pub expected: Expected,
    /// True if sending it twice changes nothing that sending it once does not (RFC 9110, section 9.2.2).
    pub idempotent: bool,
    /// True if its connection carries no request after it, which is not left to the server (RFC 9112, section 9.6).
    pub closes: bool,
    status: Vec<u16>,
}

impl RequestPlan {
    /// `authority`: host and port as written in the URL.
    pub fn new(step: &Step, authority: &str, keep_alive: bool) -> RequestPlan {
        RequestPlan {
            request: request(step, authority, keep_alive),
            expected: Expected { head: step.method == "HEAD", needles: Needles::new(&step.checks.body_contains) },
            idempotent: matches!(step.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"),
            closes: !keep_alive || says_close(step),
            status: step.checks.status.clone(),
        }
    }

    #[inline]
    pub fn accepts(&self, status: u16) -> bool {
        if self.status.is_empty() { (200..400).contains(&status) } else { self.status.contains(&status) }
    }

    /// True for an accepted response that sends the client elsewhere, unless the step asks for that status.
    #[inline]
    pub fn is_redirected(&self, status: u16) -> bool {
        self.status.is_empty() && matches!(status, 301 | 302 | 303 | 307 | 308)
    }
}

/// True if a header of the step asks that the connection be closed after the response.
pub fn says_close(step: &Step) -> bool {
    let mut headers = step.headers.iter();
    headers.any(|(name, value)| name.eq_ignore_ascii_case("connection") && has_token(value.as_bytes(), b"close"))
}

/// The request line, the step's headers in their order, and `Host`, `Content-Length` and `Connection` if these are
/// missing.
fn request(step: &Step, authority: &str, keep_alive: bool) -> Vec<u8> {
    let has = |name: &str| step.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
    let mut text = format!("{} {} HTTP/1.1\r\n", step.method, step.path);
    if !has("host") {
        text += &format!("Host: {authority}\r\n");
    }
    for (name, value) in &step.headers {
        text += &format!("{name}: {value}\r\n");
    }
    let expects_body = step.body.is_some() || matches!(step.method.as_str(), "POST" | "PUT" | "PATCH");
    if expects_body && !has("content-length") && !has("transfer-encoding") {
        text += &format!("Content-Length: {}\r\n", step.body.as_deref().unwrap_or("").len());
    }
    if !keep_alive && !has("connection") {
        text += "Connection: close\r\n";
    }
    text += "\r\n";
    text += step.body.as_deref().unwrap_or("");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(json: &str) -> Step {
        serde_json::from_str(json).unwrap()
    }

    fn text(json: &str, keep_alive: bool) -> String {
        String::from_utf8(request(&step(json), "example:80", keep_alive)).unwrap()
    }

    #[test]
    fn a_plain_get_says_only_what_it_must() {
        assert_eq!(text(r#"{"name": "a", "path": "/x?y=1"}"#, true), "GET /x?y=1 HTTP/1.1\r\nHost: example:80\r\n\r\n");
    }

    #[test]
    fn a_body_gets_its_length_in_bytes_and_a_lone_request_says_close() {
        assert_eq!(
            text(r#"{"name": "a", "method": "POST", "body": "é", "headers": [["X-A", "1"]]}"#, false),
            "POST / HTTP/1.1\r\nHost: example:80\r\nX-A: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\né"
        );
    }

    #[test]
    fn a_post_without_a_body_says_so() {
        assert!(text(r#"{"name": "a", "method": "POST"}"#, true).contains("Content-Length: 0\r\n"));
    }

    #[test]
    fn headers_that_the_step_gives_are_not_given_twice() {
        let json =
            r#"{"name": "a", "body": "x", "headers": [["host", "h"], ["CONTENT-LENGTH", "1"], ["connection", "x"]]}"#;
        assert_eq!(text(json, false), "GET / HTTP/1.1\r\nhost: h\r\nCONTENT-LENGTH: 1\r\nconnection: x\r\n\r\nx");
    }
}
