//! The outcomes that the load engine reports for everything that a server may do to a request, byte by byte, against
//! scripted servers.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::load_support::*;
use serde_json::{Value, json};

/// The summary of two users with three requests each, to a server that sends these bytes in pieces and then goes on or
/// closes.
fn answered(bytes: &'static str, piece: usize, closes: bool) -> Value {
    spec(serve(move |mut peer| {
        while peer.request().is_some() {
            peer.send_pieces(bytes.as_bytes(), piece);
            if closes {
                return;
            }
        }
    }))
}

fn impatient(mut spec: Value) -> Value {
    spec["timeouts"]["request_ns"] = json!(400 * MS);
    spec
}

#[test]
fn responses_of_every_framing_are_ok_however_they_are_cut() {
    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nA: b\r\n\r\n";
    const INFORMED: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    for (bytes, piece, closes) in [
        (OK, 1000, false),
        (OK, 7, false),
        (CHUNKED, 1000, false),
        (CHUNKED, 3, false),
        (INFORMED, 5, false),
        ("HTTP/1.1 204 No Content\r\n\r\n", 9, false),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", 100, false),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", 5, true),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 100, true),
    ] {
        assert_eq!(outcomes(&answered(bytes, piece, closes)), json!({"ok": 6}), "{bytes} by {piece}");
    }
}

#[test]
fn what_is_no_complete_response_has_its_own_outcome() {
    for (bytes, closes, outcome) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", false, "bad_response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", false, "bad_response"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", false, "bad_response"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", true, "closed_early"),
        ("HTTP/1.1 200", true, "closed_early"),
        ("", true, "closed_early"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", false, "timeout"),
        ("", false, "timeout"),
        ("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", false, "status_rejected"),
    ] {
        let spec = answered(bytes, 1000, closes);
        let spec = if outcome == "timeout" { impatient(spec) } else { spec };
        assert_eq!(outcomes(&spec), json!({ outcome: 6 }), "{bytes}");
    }
}

#[test]
fn a_reset_is_a_reset() {
    let address = serve(|mut peer| {
        peer.request();
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Le");
        peer.reset();
    });
    assert_eq!(outcomes(&spec(address)), json!({"reset": 6}));
}

#[test]
fn a_refused_port_is_not_hammered() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut spec = spec(address);
    spec["model"] = json!({"kind": "closed", "users": 5});
    spec["phases"]["measure_ns"] = json!(350 * MS);
    let outcomes = outcomes(&spec);
    assert_eq!(outcomes.as_object().unwrap().keys().collect::<Vec<_>>(), ["connect_refused"]);
    let refused = number(&outcomes["connect_refused"]);
    assert!((5..=20).contains(&refused), "{refused} attempts of 5 users in 350 ms, 100 ms apart");
}

#[test]
fn a_full_accept_queue_is_a_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: no pointers; listen() again only shortens the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let address = listener.local_addr().unwrap();
    let fill = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let _full: Vec<_> = std::iter::repeat_with(fill).take(4).collect();
    let mut spec = spec(address);
    spec["model"]["requests_per_user"] = json!(1);
    for connect_ms in [200, 400] {
        spec["timeouts"]["connect_ns"] = json!(connect_ms * MS);
        let summary = run(&spec);
        assert_eq!(
            summary["total"]["outcomes"],
            json!({"connect_timeout": 2}),
            "also where the request has no more time"
        );
        assert_eq!(number(&summary["connections"]["failed"]), 2);
        assert_eq!(number(&summary["connections"]["opened"]), 0);
    }
}

#[test]
fn checks_look_at_status_and_body_across_chunks() {
    const CHUNKED: &str =
        "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n4\r\nlo w\r\n4\r\norld\r\n0\r\n\r\n";
    let address = always(CHUNKED);
    for (checks, outcome) in [
        (json!({"status": [404], "body_contains": ["hello world", "low"]}), "check_failed"),
        (json!({"status": [404], "body_contains": ["hello world", "lo w"]}), "ok"),
        (json!({"status": [200, 201]}), "status_rejected"),
        (json!({}), "status_rejected"),
    ] {
        let mut spec = spec(address);
        spec["scenario"][0]["checks"] = checks.clone();
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({ outcome: 6 }), "{checks}");
        let rejected = if outcome == "status_rejected" { json!({"404": 6}) } else { json!({}) };
        assert_eq!(summary["rejected_statuses"], rejected, "{checks}");
    }
}

#[test]
fn redirects_are_right_answers_and_counted_unless_the_step_asks_for_them() {
    const FOUND: &str = "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n";
    const SAME: &str = "HTTP/1.1 304 Not Modified\r\n\r\n";
    for (response, checks, redirects) in
        [(FOUND, json!({}), 6), (FOUND, json!({"status": [302]}), 0), (SAME, json!({}), 0)]
    {
        let mut spec = spec(always(response));
        spec["scenario"][0]["checks"] = checks.clone();
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}), "{response} {checks}");
        assert_eq!(number(&summary["redirects"]), redirects, "{response} {checks}");
    }
}

#[test]
fn an_idle_connection_that_the_server_closes_is_reopened_without_a_failure() {
    let address = serve(|mut peer| {
        peer.request();
        peer.send(OK.as_bytes());
        std::thread::sleep(Duration::from_millis(100));
    });
    let mut spec = spec(address);
    spec["model"]["think"] = json!({"kind": "constant", "ns": 300 * MS});
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    assert_eq!(number(&summary["connections"]["opened"]), 6);
    assert_eq!(number(&summary["connections"]["closed_by_peer"]), 4, "but for the last of each user");
}

#[test]
fn without_keep_alive_each_request_has_its_connection_and_says_so() {
    let address = serve(|mut peer| {
        while let Some(request) = peer.request() {
            let known = request.contains("\r\nConnection: close\r\n");
            peer.send(if known { OK } else { "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n" }.as_bytes());
        }
    });
    let mut spec = spec(address);
    spec["connection"] = json!({"keep_alive": false});
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    assert_eq!(number(&summary["connections"]["opened"]), 6);
}

/// `Connection: close` obliges the client, too (RFC 9112, section 9.6): not all servers repeat it, and all close.
#[test]
fn a_step_that_asks_for_the_end_of_its_connection_is_the_last_request_on_it() {
    let address = serve(|mut peer| {
        if peer.request().is_some() {
            peer.send(OK.as_bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut spec = spec(address);
    spec["scenario"][0]["headers"] = json!([["connection", "TE, Close"]]);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    assert_eq!(number(&summary["connections"]["opened"]), 6);
    assert_eq!(number(&summary["connections"]["closed_by_peer"]), 0);
}

/// A server that answers `/a` with A and `/b` with B, and any other request with its body.
fn echo() -> std::net::SocketAddr {
    serve(|mut peer| {
        while let Some(request) = peer.request() {
            let body = if request.starts_with("GET /a ") {
                "A"
            } else if request.starts_with("GET /b ") {
                "B"
            } else {
                request.split("\r\n\r\n").nth(1).unwrap()
            };
            let length = body.len();
            let head = request.starts_with("HEAD ");
            let body = if head { "" } else { body };
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes());
        }
    })
}

#[test]
fn steps_run_in_order_and_pipelined_responses_find_their_requests() {
    for pipeline in [1, 2, 5, 16] {
        let mut spec = spec(echo());
        spec["connection"] = json!({"pipeline": pipeline});
        spec["model"]["requests_per_user"] = json!(100);
        spec["scenario"] = json!([
            {"name": "first", "path": "/a", "checks": {"body_contains": ["A"]}},
            {"name": "second", "path": "/b", "checks": {"body_contains": ["B"]}},
            {"name": "third", "method": "PUT", "path": "/c", "body": "text", "checks": {"body_contains": ["text"]}},
            {"name": "fourth", "method": "HEAD", "path": "/a"}
        ]);
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({"ok": 200}), "pipeline {pipeline}");
        let counts: Vec<u64> = summary["steps"].as_array().unwrap().iter().map(|step| sum(&step["outcomes"])).collect();
        assert!(counts.iter().all(|&count| count.abs_diff(50) <= 2 * pipeline), "{counts:?}");
    }
}

#[test]
fn requests_behind_one_that_closes_are_lost() {
    let address = serve(|mut peer| {
        for _ in 0..4 {
            peer.request();
        }
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    });
    let mut spec = spec(address);
    spec["connection"] = json!({"pipeline": 4});
    spec["model"] = json!({"kind": "closed", "users": 1, "requests_per_user": 8});
    assert_eq!(outcomes(&spec), json!({"ok": 2, "closed_early": 6}));
}

/// The summary of one user that keeps four requests in flight, none of which gets a good answer.
fn unanswered(answer: &'static str) -> Value {
    let address = serve(move |mut peer| {
        for _ in 0..4 {
            peer.request();
        }
        peer.send(answer.as_bytes());
        peer.hold();
    });
    let mut spec = spec(address);
    spec["connection"] = json!({"pipeline": 4});
    spec["model"] = json!({"kind": "closed", "users": 1, "requests_per_user": 4});
    outcomes(&impatient(spec))
}

#[test]
fn requests_behind_one_that_fails_only_lose_their_connection() {
    assert_eq!(unanswered(""), json!({"timeout": 1, "closed_early": 3}));
    assert_eq!(unanswered("HTTP/1.1 200 OK\r\nContent-Le"), json!({"timeout": 1, "closed_early": 3}));
    assert_eq!(unanswered("no HTTP\r\n\r\n"), json!({"bad_response": 1, "closed_early": 3}));
    let first = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nno HTTP\r\n\r\n";
    assert_eq!(unanswered(first), json!({"ok": 1, "bad_response": 1, "closed_early": 2}));
}

#[test]
fn nothing_is_written_to_a_connection_that_is_known_to_be_closed() {
    let address = serve(|mut peer| {
        if peer.request().is_some() && peer.request().is_some() {
            peer.send_and_close([OK, OK].concat().as_bytes());
        }
    });
    let mut spec = spec(address);
    spec["connection"] = json!({"pipeline": 2});
    spec["model"] = json!({"kind": "closed", "users": 1, "requests_per_user": 8});
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 8}));
    assert_eq!(number(&summary["connections"]["opened"]), 4);
}

#[test]
fn a_large_body_goes_out_and_comes_back_whole() {
    let mut spec = spec(echo());
    let body = "0123456789".repeat(300_000) + "end";
    spec["scenario"] =
        json!([{"name": "large", "method": "POST", "body": body, "checks": {"body_contains": ["9end"]}}]);
    spec["timeouts"]["request_ns"] = json!(10_000 * MS);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    assert!(number(&summary["window"]["bytes_sent"]) > 6 * 3_000_000);
    assert!(number(&summary["window"]["bytes_received"]) > 6 * 3_000_000);
}
