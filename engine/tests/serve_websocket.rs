//! Tests the WebSocket echo of event loops with a small client of its own, which implements RFC 6455 independently of
//! the engine: handshakes, messages and control frames cut anywhere, closes, violations, and the work for each message.

use std::time::{Duration, Instant};

use crate::serve_support::{Client, Server, descriptor_limit};

const LOOPS: [&[&str]; 3] =
    [&["--instances", "1"], &["--instances", "3"], &["--instances", "2", "--accept", "reuseport"]];

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

fn start(args: &[&str]) -> Server {
    let protocol: &[&str] = if args.contains(&"--protocol") { &[] } else { &["--protocol", "websocket"] };
    Server::start(&[&["--model", "event-loop"], protocol, args].concat())
}

fn each_kind_of_loops(more: &[&str], check: impl Fn(&Server)) {
    for loops in LOOPS {
        check(&start(&[loops, more].concat()));
    }
}

/// The opening handshake that RFC 6455 shows (1.2 and 1.3), for this target.
fn handshake(target: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
}

/// A masked frame with this first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = header(first, payload.len() as u64);
    frame.extend(payload.iter().enumerate().map(|(i, byte)| byte ^ KEY[i % 4]));
    frame
}

fn header(first: u8, length: u64) -> Vec<u8> {
    let mut header = vec![first];
    match length {
        0..=125 => header.push(0x80 | length as u8),
        126..=0xffff => {
            header.push(0x80 | 126);
            header.extend((length as u16).to_be_bytes());
        }
        _ => {
            header.push(0x80 | 127);
            header.extend(length.to_be_bytes());
        }
    }
    header.extend(KEY);
    header
}

/// A connection that has become a WebSocket.
struct Peer(Client);

impl Peer {
    fn open(server: &Server, target: &str) -> Peer {
        let mut client = server.connect();
        client.send(handshake(target));
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let head = head.to_ascii_lowercase();
        assert!(head.contains("\r\nupgrade: websocket\r\n") && head.contains("\r\nconnection: upgrade\r\n"), "{head}");
        assert!(head.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        Peer(client)
    }

    fn send(&mut self, first: u8, payload: &[u8]) {
        self.0.send(frame(first, payload));
    }

    /// The next frame's first byte and payload.
    fn receive(&mut self) -> (u8, Vec<u8>) {
        let start = self.0.take(2);
        let length = match start[1] {
            126 => {
                let length = u16::from_be_bytes(self.0.take(2).try_into().unwrap());
                assert!(length > 125);
                usize::from(length)
            }
            127 => {
                let length = u64::from_be_bytes(self.0.take(8).try_into().unwrap());
                assert!(length > 0xffff);
                length as usize
            }
            length => {
                assert!(length < 126, "a server does not mask");
                usize::from(length)
            }
        };
        (start[0], self.0.take(length))
    }

    fn echo(&mut self, first: u8, payload: &[u8]) {
        self.send(first, payload);
        let (echoed_first, echoed) = self.receive();
        assert_eq!(echoed_first, first);
        assert!(echoed == payload, "{} bytes became {}", payload.len(), echoed.len());
    }

    /// Reads up to the server's close frame; returns its code and reason.
    fn end(mut self) -> (Option<u16>, String) {
        let (first, payload) = self.receive();
        assert_eq!(first, CLOSE);
        assert!(self.0.is_closed());
        match payload.split_first_chunk() {
            Some((code, reason)) => (Some(u16::from_be_bytes(*code)), String::from_utf8(reason.into()).unwrap()),
            None => (None, String::new()),
        }
    }
}

#[test]
fn messages_of_every_length_come_back_as_they_were_sent() {
    each_kind_of_loops(&[], |server| {
        let mut peer = Peer::open(server, "/any/path/whatever");
        for length in [0, 1, 7, 125, 126, 127, 1000, 65_535, 65_536, 300_000] {
            let text: String = "Grüße, Bank der Welt! ".chars().cycle().take(length / 2).collect();
            peer.echo(TEXT, text.as_bytes());
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            peer.echo(BINARY, &bytes);
        }
        peer.send(PING, b"are you there");
        assert_eq!(peer.receive(), (PONG, b"are you there".to_vec()));
        peer.send(PONG, b"unasked for");
        peer.echo(TEXT, b"still here");
    });
}

#[test]
fn socketcluster_clients_are_let_in_and_their_calls_answered_by_number() {
    each_kind_of_loops(&["--protocol", "socketcluster"], |server| {
        let mut peer = Peer::open(server, "/socketcluster/");
        for (said, answered) in [
            (
                r##"{"event":"#handshake","data":{"authToken":null},"cid":1}"##,
                r#"{"rid":1,"data":{"id":"reference","isAuthenticated":false}}"#,
            ),
            (r#"{"event":"add","data":[1,2],"cid":2}"#, r#"{"rid":2,"data":[1,2]}"#),
            (r#"{"event":"ping","data":"hello"}"#, r#"{"event":"ping","data":"hello"}"#),
        ] {
            peer.send(TEXT, said.as_bytes());
            assert_eq!(peer.receive(), (TEXT, answered.as_bytes().to_vec()));
        }
    });
}

#[test]
fn a_stream_cut_anywhere_holds_the_same_messages() {
    let stream = [
        frame(0x01, "fragments of κόσμ".as_bytes()),
        frame(PING, b"within"),
        frame(0x00, b""),
        frame(0x80, "ε".as_bytes()),
        frame(BINARY, &[9; 300]),
        frame(TEXT, b""),
    ]
    .concat();
    each_kind_of_loops(&[], |server| {
        let mut peer = Peer::open(server, "/");
        for piece_bytes in [1, 2, 3, 7, 50, stream.len()] {
            for piece in stream.chunks(piece_bytes) {
                peer.0.send(piece);
            }
            assert_eq!(peer.receive(), (PONG, b"within".to_vec()));
            assert_eq!(peer.receive(), (TEXT, "fragments of κόσμε".into()));
            assert_eq!(peer.receive(), (BINARY, vec![9; 300]));
            assert_eq!(peer.receive(), (TEXT, vec![]));
        }
        // The handshake, too, may be cut anywhere, as may what follows it.
        let mut client = server.connect();
        for piece in [handshake("/").as_bytes(), &frame(TEXT, b"eager")].concat().chunks(40) {
            client.send(piece);
        }
        assert!(client.head().starts_with("HTTP/1.1 101 "));
        assert_eq!(Peer(client).receive(), (TEXT, b"eager".to_vec()));
    });
}

#[test]
fn messages_sent_at_once_are_echoed_in_order_whatever_they_cost() {
    for work in [
        &[][..],
        &["--cpu", "20us"],
        &["--wait", "1ms"],
        &["--wait", "100us", "--wait-distribution", "exponential"],
        &["--downstream-limit", "2", "--downstream-wait", "1ms"],
        &["--downstream-limit", "1", "--downstream-wait", "500us", "--wait", "500us"],
        &["--lock", "100us"],
        &["--wait", "1ms", "--loop-waits", "block"],
    ] {
        let server = start(work);
        let mut peers = [Peer::open(&server, "/"), Peer::open(&server, "/work?yields=1")];
        let messages: Vec<Vec<u8>> = (0..60u8).map(|n| vec![n; usize::from(n) * 3]).collect();
        let mut stream: Vec<u8> = messages.iter().flat_map(|message| frame(BINARY, message)).collect();
        stream.extend(frame(PING, b"last"));
        peers.iter_mut().for_each(|peer| peer.0.send(&stream));
        for peer in &mut peers {
            for message in &messages {
                assert_eq!(peer.receive(), (BINARY, message.clone()), "{work:?}");
            }
            assert_eq!(peer.receive(), (PONG, b"last".to_vec()), "{work:?}");
        }
        assert_eq!(server.metric("requests_total"), 120.0);
    }
}

#[test]
fn the_query_of_the_handshake_sets_the_work_of_its_messages_and_waits_hold_up_nobody_else() {
    let server = start(&[]);
    let start = Instant::now();
    let mut slow: Vec<Peer> = (0..50).map(|_| Peer::open(&server, "/?wait=300ms")).collect();
    slow.iter_mut().for_each(|peer| peer.send(TEXT, b"slow"));
    Peer::open(&server, "/").echo(TEXT, b"quick");
    slow.iter_mut().for_each(|peer| assert_eq!(peer.receive(), (TEXT, b"slow".to_vec())));
    // One after the other, the messages would take 15 s.
    assert!((200..5000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    let mut wrong = server.connect();
    wrong.send(handshake("/?wait=5"));
    assert_eq!(wrong.answer().0, 400);
}

#[test]
fn messages_cost_the_work_that_requests_do() {
    let length = Duration::from_millis(400);
    for (args, at_once) in [
        (&["--lock", "10ms"][..], 1),
        (&["--instances", "2", "--cpu", "10ms"], 2),
        (&["--downstream-limit", "3", "--downstream-wait", "10ms"], 3),
        (&["--loop-waits", "block", "--wait", "10ms"], 1),
    ] {
        let server = start(args);
        let mut peers: Vec<Peer> = (0..8).map(|_| Peer::open(&server, "/")).collect();
        let end = Instant::now() + length;
        std::thread::scope(|scope| {
            for peer in &mut peers {
                scope.spawn(move || {
                    while Instant::now() < end {
                        peer.echo(TEXT, b"work");
                    }
                });
            }
        });
        // Waits are 10 ms on average, each shorter by 150 us at most; one more round may be under way at the end.
        let echoed = server.metric("websocket_messages_total");
        let bound = f64::from(at_once) * length.as_secs_f64() / 0.009_85 + 2.0 * peers.len() as f64;
        assert!(echoed > 0.0 && echoed <= bound, "{args:?}: {echoed} echoes, at most {bound}");
    }
}

#[test]
fn closes_are_answered_in_kind_and_end_the_connection() {
    each_kind_of_loops(&["--wait", "1ms"], |server| {
        for (payload, answered) in [
            (&b""[..], (None, "")),
            (b"\x03\xe8", (Some(1000), "")),
            (b"\x03\xe9going away", (Some(1001), "going away")),
            (b"\x0f\xa0own code", (Some(4000), "own code")),
        ] {
            let mut peer = Peer::open(server, "/");
            // Messages before the close frame are echoed; those after it are ignored.
            peer.0.send([frame(TEXT, b"before"), frame(CLOSE, payload), frame(TEXT, b"after")].concat());
            assert_eq!(peer.receive(), (TEXT, b"before".to_vec()));
            let (code, reason) = peer.end();
            assert_eq!((code, reason.as_str()), answered);
        }
        server.wait_for_metric("connections", 0.0);
        assert_eq!(server.metric("websocket_connections"), 0.0);
    });
}

#[test]
fn who_breaks_the_protocol_is_told_with_which_code() {
    let server = start(&[]);
    let unmasked = b"\x81\x05Hello".to_vec();
    let too_big = header(BINARY, (16 << 20) + 1);
    for (bytes, code) in [
        (unmasked, 1002),
        (frame(0xc1, b"compressed"), 1002),
        (frame(0x83, b"opcode 3"), 1002),
        (frame(0x09, b"part of a ping"), 1002),
        (frame(PING, &[0; 126]), 1002),
        (frame(0x80, b"of what"), 1002),
        ([frame(0x01, b"one"), frame(TEXT, b"two")].concat(), 1002),
        (vec![BINARY, 0x80 | 126, 0, 5], 1002),
        (vec![BINARY, 0x80 | 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1002),
        (frame(CLOSE, b"\x03"), 1002),
        (frame(CLOSE, b"\x03\xed"), 1002),
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (frame(TEXT, b"\xc0\xaf"), 1007),
        ([frame(0x01, b"\xe2\x82"), frame(0x00, b"\xff")].concat(), 1007),
        (too_big.clone(), 1009),
        // The server's close must arrive although the client still sends.
        ([too_big, vec![0; 4 << 20]].concat(), 1009),
        ([frame(0x02, &vec![0; 9 << 20]), frame(0x80, &vec![0; 9 << 20])].concat(), 1009),
    ] {
        let mut peer = Peer::open(&server, "/");
        peer.echo(TEXT, b"well so far");
        peer.0.send(&bytes);
        let start = &bytes[..bytes.len().min(12)];
        let (told, reason) = peer.end();
        assert_eq!(told, Some(code), "{start:02x?}");
        assert!(!reason.is_empty());
    }
    server.wait_for_metric("connections", 0.0);
    Peer::open(&server, "/").echo(TEXT, b"others are served");
}

#[test]
fn requests_that_ask_for_no_websocket_are_refused_but_for_health_and_metrics() {
    let server = start(&[]);
    assert_eq!(server.get("/health"), (200, b"ok\n".to_vec()));
    let mut scraper = server.connect();
    for _ in 0..2 {
        let (status, page) = scraper.get("/metrics");
        assert_eq!(status, 200);
        assert!(String::from_utf8(page).unwrap().contains("\nwebsocket_connections 0\n"));
    }
    let good = handshake("/");
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: test\r\n\r\n".to_owned(), 426),
        (good.replace("Version: 13", "Version: 8"), 426),
        (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "tooshort"), 400),
        (good.replace("Host: test\r\n", ""), 400),
        (good.replace("GET", "POST"), 400),
        ("what is this\r\n\r\n".to_owned(), 400),
    ] {
        let mut client = server.connect();
        client.send(&request);
        let (answered, head, body) = client.answer();
        assert_eq!(answered, status, "{request}");
        assert!(!body.is_empty() && head.contains("close"), "{head}");
        assert_eq!(head.contains("Sec-WebSocket-Version: 13"), request.contains("Version: 8"), "{head}");
        assert!(client.is_closed());
    }
    assert_eq!(server.metric("requests_total"), 0.0);
}

#[test]
fn the_metrics_count_connections_and_messages() {
    each_kind_of_loops(&[], |server| {
        let mut peers: Vec<Peer> = (0..6).map(|_| Peer::open(server, "/")).collect();
        assert_eq!(server.metric("websocket_connections"), 6.0);
        for peer in &mut peers {
            peer.echo(TEXT, b"one");
            peer.0.send([frame(0x02, b"tw"), frame(PING, b""), frame(0x80, b"o")].concat());
            assert_eq!(peer.receive(), (PONG, vec![]));
            assert_eq!(peer.receive(), (BINARY, b"two".to_vec()));
        }
        assert_eq!(server.metric("websocket_messages_total"), 12.0);
        assert_eq!(server.metric("requests_total"), 12.0);
        assert_eq!(server.metric("connections_accepted_total"), 6.0);
        // Half of them leave without a close frame.
        peers.drain(..3).for_each(|peer| peer.0.reset());
        server.wait_for_metric("websocket_connections", 3.0);
        drop(peers);
        server.wait_for_metric("websocket_connections", 0.0);
        server.wait_for_metric("connections", 0.0);
    });
    let http = Server::start(&["--model", "event-loop"]);
    assert!(!String::from_utf8(http.get("/metrics").1).unwrap().contains("websocket"));
}

#[test]
fn a_peer_that_leaves_while_its_message_waits_harms_nobody() {
    let server = start(&["--downstream-limit", "1", "--downstream-wait", "5ms", "--wait", "5ms"]);
    for _ in 0..3 {
        let mut leaving = Peer::open(&server, "/");
        leaving.0.send([frame(TEXT, b"one"), frame(TEXT, b"two")].concat());
        leaving.0.reset();
    }
    Peer::open(&server, "/").echo(TEXT, b"after them");
    server.wait_for_metric("downstream_in_use", 0.0);
    server.wait_for_metric("websocket_connections", 0.0);
}

#[test]
fn a_large_message_reaches_a_slow_reader_whole() {
    each_kind_of_loops(&[], |server| {
        let mut peer = Peer::open(server, "/");
        let large: Vec<u8> = (0..6_000_000u32).map(|i| (i / 3) as u8).collect();
        peer.send(BINARY, &large);
        peer.send(TEXT, b"small");
        std::thread::sleep(Duration::from_millis(20));
        let (first, echoed) = peer.receive();
        assert!(first == BINARY && echoed == large);
        assert_eq!(peer.receive(), (TEXT, b"small".to_vec()));
    });
}

#[test]
fn thousands_of_websockets_are_held_and_echo() {
    // As many connections as the limit allows, in this process and in the server.
    let count = descriptor_limit().saturating_sub(100).min(2000);
    let server = start(&["--instances", "2"]);
    let mut peers: Vec<Peer> = (0..count).map(|_| Peer::open(&server, "/")).collect();
    assert_eq!(server.metric("websocket_connections"), count as f64);
    peers.iter_mut().for_each(|peer| peer.send(TEXT, b"here"));
    peers.iter_mut().for_each(|peer| assert_eq!(peer.receive(), (TEXT, b"here".to_vec())));
    assert_eq!(server.metric("websocket_messages_total"), count as f64);
    drop(peers);
    server.wait_for_metric("websocket_connections", 0.0);
}
