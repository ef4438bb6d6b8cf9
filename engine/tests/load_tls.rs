//! The load engine over TLS: which certificates it trusts, and the outcomes of failed handshakes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::load_support::*;
use rustls::{HandshakeKind, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// A TLS server for `localhost` that answers every request, and its certificate in PEM.
fn tls_server() -> (SocketAddr, String) {
    let (config, pem) = tls_config();
    let serving = move |stream| answer(ServerConnection::new(config.clone()).unwrap(), stream);
    (serve_streams(serving), pem)
}

fn answer(connection: ServerConnection, stream: TcpStream) {
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line == "\r\n" && stream.get_mut().write_all(OK.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

fn tls_spec(address: SocketAddr, tls: Value) -> Value {
    let mut spec = spec(address);
    spec["target"] =
        json!({"url": format!("https://localhost:{}", address.port()), "addresses": [address], "tls": tls});
    spec["scenario"][0]["checks"] = json!({"body_contains": ["hello"]});
    spec
}

#[test]
fn requests_go_through_kept_new_and_pipelined() {
    let (address, _) = tls_server();
    for (connection, opened) in
        [(json!({}), 2), (json!({"keep_alive": false}), 6), (json!({"keep_alive": true, "pipeline": 3}), 2)]
    {
        let mut spec = tls_spec(address, json!({"insecure": true}));
        spec["connection"] = connection;
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
        assert_eq!(number(&summary["connections"]["opened"]), opened);
        assert_eq!(histogram(&summary["connections"]["connect_time_ns"]).len(), opened);
    }
}

/// A server of several processes may know only some of the sessions: what it is set to must not decide how much a
/// connection costs it.
#[test]
fn every_connection_pays_for_a_full_handshake() {
    let (config, _) = tls_config();
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = kinds.clone();
    let address = serve_streams(move |mut stream| {
        let mut connection = ServerConnection::new(config.clone()).unwrap();
        while connection.is_handshaking() {
            if connection.complete_io(&mut stream).is_err() {
                return;
            }
        }
        seen.lock().unwrap().push(connection.handshake_kind().unwrap());
        answer(connection, stream);
    });
    let mut spec = tls_spec(address, json!({"insecure": true}));
    spec["connection"] = json!({"keep_alive": false});
    assert_eq!(outcomes(&spec), json!({"ok": 6}));
    assert_eq!(*kinds.lock().unwrap(), [HandshakeKind::Full; 6]);
}

#[test]
fn what_a_server_says_last_ends_the_stream_although_its_socket_stays_open() {
    for (answer, outcome) in [
        ("HTTP/1.1 200 OK\r\n\r\nhello", "ok"),
        (OK, "ok"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "closed_early"),
        ("", "closed_early"),
    ] {
        let (config, _) = tls_config();
        let address = serve_streams(move |stream| {
            let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream));
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") && stream.read_line(&mut request).is_ok_and(|length| length > 0) {}
            let stream = stream.get_mut();
            // In one write, so that no request is sent in between.
            let _ = stream.conn.writer().write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
            let _ = stream.sock.read_to_end(&mut Vec::new());
        });
        let mut spec = tls_spec(address, json!({"insecure": true}));
        spec["timeouts"]["request_ns"] = json!(400 * MS);
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({ outcome: 6 }), "{answer:?}");
        assert_eq!(number(&summary["connections"]["opened"]), 6, "{answer:?}");
    }
}

#[test]
fn an_answer_that_comes_before_the_whole_request_counts_although_the_server_closes() {
    let (config, _) = tls_config();
    let address = serve_streams(move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
        let _ = stream.read(&mut [0; 100]);
        let _ = stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        // The rest is unread: closing resets the connection.
    });
    let mut spec = tls_spec(address, json!({"insecure": true}));
    spec["model"] = json!({"kind": "closed", "users": 1, "requests_per_user": 30});
    spec["scenario"] = json!([{"name": "large", "method": "POST", "body": "x".repeat(8_000_000)}]);
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"status_rejected": 30}));
    assert_eq!(summary["rejected_statuses"], json!({"413": 30}));
}

#[test]
fn certificates_are_verified() {
    let (address, pem) = tls_server();
    let file = std::env::temp_dir().join(format!("powerband-load-tls-{}.pem", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let trusted = outcomes(&tls_spec(address, json!({"ca_file": file})));
    let misnamed = outcomes(&tls_spec(address, json!({"ca_file": file, "server_name": "elsewhere"})));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(trusted, json!({"ok": 6}));
    assert_eq!(misnamed, json!({"tls_failed": 6}));
    assert_eq!(outcomes(&tls_spec(address, json!({}))), json!({"tls_failed": 6}));
    let (kind, message) = Run::start(&tls_spec(address, json!({"ca_file": file}))).refusal();
    assert!(kind == "spec" && message.starts_with("target.tls.ca_file: "), "{message}");
}

#[test]
fn a_server_that_speaks_no_tls_fails_the_handshake() {
    let address = serve(|mut peer| {
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        peer.hold();
    });
    assert_eq!(outcomes(&tls_spec(address, json!({"insecure": true}))), json!({"tls_failed": 6}));
    let resets = || {
        serve(|mut peer| {
            let _ = peer.read_some();
            peer.reset();
        })
    };
    for address in [serve(drop), resets()] {
        let summary = run(&tls_spec(address, json!({"insecure": true})));
        assert_eq!(summary["total"]["outcomes"], json!({"tls_failed": 6}));
        assert_eq!(number(&summary["connections"]["failed"]), 6);
        assert_eq!(number(&summary["connections"]["opened"]), 0);
    }
}
