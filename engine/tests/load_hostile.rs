//! The load engine against hostile servers: whatever they send, and however slowly or fast, a run ends in time, uses
//! little memory, and sends no requests to other addresses.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::load_support::*;
use crate::websocket_support;
use serde_json::{Value, json};

/// The most memory of any run here; the engine itself takes a few MB.
const MEMORY_MAX: u64 = 64 << 20;
/// The longest time of any run here; its work takes a second.
const PATIENCE: Duration = Duration::from_secs(15);

/// The highest resident memory of the engine so far; None once it has ended.
fn peak_bytes(engine: &Run) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", engine.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10)
}

/// Runs the engine for a second, which must end in time and with little memory, and returns the summary.
fn survived(spec: Value) -> Value {
    survived_for(spec, 1_000, 400)
}

fn survived_for(mut spec: Value, measure_ms: u64, timeout_ms: u64) -> Value {
    spec["timeouts"] = json!({"connect_ns": timeout_ms * MS, "request_ns": timeout_ms * MS});
    spec["phases"] = json!({"warmup_ns": 0, "measure_ns": measure_ms * MS, "drain_ns": 600 * MS, "deadline_ns": 20_000 * MS, "go_at_once": true});
    let begun = Instant::now();
    let mut engine = Run::start(&spec);
    let mut peak = None;
    while engine.until("interval")["phase"] != "drain" {
        peak = peak_bytes(&engine).or(peak);
    }
    let peak = peak.expect("no interval before the drain");
    assert!(peak < MEMORY_MAX, "{} MB", peak >> 20);
    let summary = engine.summary();
    assert!(begun.elapsed() < PATIENCE);
    summary
}

fn without_end(spec: Value) -> Value {
    let mut spec = spec;
    spec["model"] = json!({"kind": "closed", "users": 4});
    spec
}

/// A server that sends `first`, then `more` again and again, with a pause in between.
fn endless(first: &'static [u8], more: Vec<u8>, pause: Duration) -> SocketAddr {
    serve(move |mut peer| {
        peer.request();
        let mut stream = peer.into_stream();
        let mut sent = stream.write_all(first);
        while sent.is_ok() {
            std::thread::sleep(pause);
            sent = stream.write_all(&more);
        }
    })
}

#[test]
fn answers_without_end_are_given_up_in_time() {
    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let many = |text: &str| text.repeat((256 << 10) / text.len()).into_bytes();
    for (first, more, outcome) in [
        (&b"HTTP/1.1 200 OK\r\n\r\n"[..], many("x"), "timeout"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", many("x"), "timeout"),
        (CHUNKED, many("1\r\nx\r\n"), "timeout"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", many("x"), "timeout"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", many("a: b\r\n"), "timeout"),
        (b"", many("HTTP/1.1 100 Continue\r\n\r\n"), "timeout"),
        (b"HTTP/1.1 200 OK\r\n", many("a: b\r\n"), "bad_response"),
        (b"HTTP/1.1 200 OK\r\na: ", many("x"), "bad_response"),
    ] {
        let summary = survived(without_end(spec(endless(first, more, Duration::ZERO))));
        let outcomes = summary["total"]["outcomes"].as_object().unwrap();
        assert!(number(&outcomes[outcome]) > 0, "{outcomes:?}");
        assert!(!outcomes.contains_key("ok"), "{outcomes:?}");
    }
}

#[test]
fn answers_that_drip_are_given_up_in_time() {
    for first in [&b""[..], b"HTTP/1.1 200 OK\r\na: ", b"HTTP/1.1 200 OK\r\n\r\n"] {
        let dripping = endless(first, b"H".to_vec(), Duration::from_millis(20));
        let summary = survived(without_end(spec(dripping)));
        let outcomes = &summary["total"]["outcomes"];
        assert_eq!(outcomes["ok"], Value::Null);
        assert!(sum(outcomes) >= 4, "{outcomes}");
    }
}

#[test]
fn a_redirection_is_an_answer_and_is_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let location = elsewhere.local_addr().unwrap();
    let address = serve(move |mut peer| {
        while peer.request().is_some() {
            peer.send(
                format!("HTTP/1.1 302 Found\r\nLocation: http://{location}/\r\nContent-Length: 0\r\n\r\n").as_bytes(),
            );
        }
    });
    assert_eq!(outcomes(&spec(address)), json!({"ok": 6}));
    assert!(elsewhere.accept().is_err(), "somebody went there");
}

fn over_tls(address: SocketAddr) -> Value {
    let mut spec = without_end(spec(address));
    spec["target"] = json!({
        "url": format!("https://localhost:{}", address.port()), "addresses": [address], "tls": {"insecure": true}
    });
    spec
}

#[test]
fn a_tls_handshake_that_stalls_is_given_up_in_time() {
    // A handshake record, whose length says that more is to come.
    let record = b"\x16\x03\x03\x40\x00\x02\x00\xff\xff".to_vec();
    let drip = |first: Vec<u8>| {
        serve_streams(move |mut stream| {
            let mut sent = stream.write_all(&first);
            while sent.is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                sent = stream.write_all(b"\0");
            }
        })
    };
    let silent = serve_streams(|stream| {
        std::thread::sleep(Duration::from_secs(20));
        drop(stream);
    });
    for address in [silent, drip(record)] {
        let outcomes = survived(over_tls(address))["total"]["outcomes"].clone();
        assert!(number(&outcomes["connect_timeout"]) >= 4, "{outcomes}");
    }
}

#[test]
fn labels_of_a_tally_are_bounded() {
    // Labels differ between connections, too, so that there are enough of them however slow the machine is.
    let labels = std::sync::atomic::AtomicU64::new(0);
    let address = websocket_support::serve_opened(move |mut peer| {
        while peer.text().is_some() {
            let label = labels.fetch_add(64, std::sync::atomic::Ordering::Relaxed);
            // One answer, followed by very many unsolicited messages: only answers may be counted.
            let answer = |label: u64| {
                websocket_support::frame(websocket_support::TEXT, format!("w:{label:0200} n:1").as_bytes())
            };
            let answers: Vec<u8> = (0..64).flat_map(|more| answer(label + more)).collect();
            if !peer.send(&answers) {
                return;
            }
        }
    });
    let tally = json!({"label_after": "w:", "count_after": "n:"});
    let mut spec = websocket_support::spec(address, json!({"tally": tally}));
    spec["model"] = json!({"kind": "closed", "users": 4});
    spec["connection"]["pipeline"] = json!(64);
    spec["scenario"] = json!([websocket_support::text_step("{id}")]);
    let summary = survived_for(spec, 3_000, 400); // enough for so many labels beside other programs, too
    let tallies = summary["websocket"]["tallies"].as_object().unwrap();
    assert_eq!(tallies.len(), 10_000);
}

/// A server that opens WebSockets over TLS, sends pings as fast as it can, and reads nothing.
fn pinging(stream: TcpStream, config: std::sync::Arc<rustls::ServerConfig>) {
    let connection = rustls::ServerConnection::new(config).unwrap();
    let mut peer = websocket_support::Peer::new(rustls::StreamOwned::new(connection, stream));
    if peer.accept().is_none() {
        return;
    }
    let pings = websocket_support::frame(websocket_support::PING, &[b'x'; 100]).repeat(600);
    // Uses only the record layer, since a stream would read as well.
    let (mut connection, mut socket) = (peer.stream.conn, peer.stream.sock);
    while connection.writer().write_all(&pings).is_ok() {
        while connection.wants_write() {
            if connection.write_tls(&mut socket).is_err() {
                return;
            }
        }
    }
}

#[test]
fn pongs_to_a_server_that_does_not_read_are_not_kept() {
    let (config, _) = tls_config();
    let address = serve_streams(move |stream| pinging(stream, config.clone()));
    let mut spec = websocket_support::spec(address, json!({}));
    spec["target"] = over_tls(address)["target"].clone();
    spec["model"] = json!({"kind": "closed", "users": 1});
    survived_for(spec, 3_000, 10_000);
}

#[test]
fn an_opening_that_drips_is_given_up_in_time() {
    let address = serve(|mut peer| {
        peer.request();
        let mut stream = peer.into_stream();
        let mut sent = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\na: ");
        while sent.is_ok() {
            sent = stream.write_all(b"x");
        }
    });
    let mut spec = websocket_support::spec(address, json!({"rejoin_after_ns": 1_000_000}));
    spec["model"] = json!({"kind": "closed", "users": 4});
    let summary = survived(spec);
    assert!(sum(&summary["websocket"]["joins_failed"]) >= 4, "{}", summary["websocket"]);
}
