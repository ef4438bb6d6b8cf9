//! A scripted WebSocket server for tests, which can break every rule, and the specs of loads on it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::load_support::{MS, assert_conserved, number, reset, serve_streams, sum};

pub const TEXT: u8 = 0x81;
pub const CLOSE: u8 = 0x88;
pub const PING: u8 = 0x89;
pub const PONG: u8 = 0x8a;

/// One connection of a scripted server.
pub struct Peer<S = TcpStream> {
    pub stream: S,
    /// Bytes that were read and not used yet.
    pending: Vec<u8>,
    /// The number of reads that brought bytes.
    pub reads: u64,
}

/// A frame of the client: its first byte, and its payload unmasked.
pub type Frame = (u8, Vec<u8>);

impl<S: Read + Write> Peer<S> {
    pub fn new(stream: S) -> Peer<S> {
        Peer { stream, pending: Vec::new(), reads: 0 }
    }

    /// The request of an opening handshake; None if the client has closed.
    pub fn request(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = self.pending.drain(..end + 4).collect();
                return Some(String::from_utf8(head).unwrap());
            }
            self.read()?;
        }
    }

    /// Answers the opening handshake, and returns the request.
    pub fn accept(&mut self) -> Option<String> {
        let request = self.request()?;
        self.send(answer_to(&request).as_bytes());
        Some(request)
    }

    /// The next frame, which must be masked; None if the client has closed its side or reset the connection.
    pub fn frame(&mut self) -> Option<Frame> {
        let head = self.take(2)?;
        assert!(head[1] & 0x80 != 0, "a client masks");
        let length = match head[1] & 0x7f {
            126 => u64::from(u16::from_be_bytes(self.take(2)?.try_into().unwrap())),
            127 => u64::from_be_bytes(self.take(8)?.try_into().unwrap()),
            length => u64::from(length),
        };
        let key = self.take(4)?;
        let mut payload = self.take(length as usize)?;
        payload.iter_mut().enumerate().for_each(|(i, byte)| *byte ^= key[i % 4]);
        Some((head[0], payload))
    }

    /// The next frame, as text.
    pub fn text(&mut self) -> Option<String> {
        let (first, payload) = self.frame()?;
        (first == TEXT).then(|| String::from_utf8(payload).unwrap())
    }

    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn say(&mut self, text: &str) -> bool {
        self.send(&frame(TEXT, text.as_bytes()))
    }

    /// Echoes everything, close frames included, until the client has gone.
    pub fn echo(&mut self) {
        while let Some((first, payload)) = self.frame() {
            if !self.send(&frame(first, &payload)) || first == CLOSE {
                return;
            }
        }
    }

    /// Waits until the client has gone.
    pub fn hold(&mut self) {
        while self.read().is_some() {
            self.pending.clear();
        }
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.pending.len() < count {
            self.read()?;
        }
        Some(self.pending.drain(..count).collect())
    }

    fn read(&mut self) -> Option<()> {
        let mut buffer = vec![0; 64 << 10];
        let count = self.stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        self.reads += 1;
        self.pending.extend_from_slice(&buffer[..count]);
        Some(())
    }
}

impl Peer {
    /// Closes with RST.
    pub fn reset(self) {
        reset(self.stream);
    }
}

/// Starts a server that runs `script` for each connection, each in its own thread. It lives as long as the test
/// process.
pub fn serve(script: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    serve_streams(move |stream| script(Peer::new(stream)))
}

/// Like `serve`, but opens a WebSocket on each connection before the script begins.
pub fn serve_opened(script: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    serve(move |mut peer| {
        if peer.accept().is_some() {
            script(peer);
        }
    })
}

pub fn answer_to(request: &str) -> String {
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let accept = base64::engine::general_purpose::STANDARD.encode(digest);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

/// A server's frame, unmasked.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(length as u8),
        length @ 126..=0xffff => {
            frame.push(126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

/// Two users with three messages each; the run starts at once.
pub fn spec(address: SocketAddr, websocket: Value) -> Value {
    json!({
        "protocol": 1,
        "target": {"url": format!("http://{address}")},
        "scenario": [{"name": "message", "message": {"kind": "text", "text": "hello"}}],
        "model": {"kind": "closed", "users": 2, "requests_per_user": 3},
        "connection": {"websocket": websocket},
        "timeouts": {"connect_ns": 5_000 * MS, "request_ns": 5_000 * MS},
        "phases": {"warmup_ns": 0, "drain_ns": 2_000 * MS, "deadline_ns": 20_000 * MS, "go_at_once": true}
    })
}

/// Users that continue until the end of a window of this many ms.
pub fn timed(address: SocketAddr, websocket: Value, measure_ms: u64) -> Value {
    let mut spec = spec(address, websocket);
    spec["model"] = json!({"kind": "closed", "users": 2});
    spec["phases"]["measure_ns"] = json!(measure_ms * MS);
    spec["interval_ns"] = json!(20 * MS);
    spec
}

pub fn text_step(text: &str) -> Value {
    json!({"name": text, "message": {"kind": "text", "text": text}})
}

/// The summary of a run. Checks the conservation of its counts, and that each join ended, in the whole run and in the
/// intervals.
pub fn run(spec: &Value) -> Value {
    let mut run = crate::load_support::Run::start(spec);
    let summary = run.summary();
    assert_joins_conserved(&summary, &run.events);
    summary
}

pub fn assert_joins_conserved(summary: &Value, events: &[Value]) {
    assert_conserved(summary, events);
    let websocket = &summary["websocket"];
    let get = |field: &str| number(&websocket[field]);
    assert_eq!(get("joins_started"), get("joined") + sum(&websocket["joins_failed"]), "{websocket}");
    assert!(get("rejoined") <= get("joined"));
    let histogram = |field: &str| crate::load_support::histogram(&websocket[field]).len();
    assert_eq!(histogram("join_time_ns"), get("joined"));
    assert_eq!(histogram("delivery_time_ns"), get("delivered_in_window"));
    let intervals = events.iter().filter(|event| event["type"] == "interval");
    let mut sums = BTreeMap::new();
    for interval in intervals {
        for field in ["drops", "joins_failed", "delivered"] {
            *sums.entry(field).or_insert(0) += number(&interval[field]);
        }
        assert!(
            number(&interval["joined_now"]) <= number(&interval["users_now"]).max(number(&interval["connections_now"]))
        );
    }
    assert!(sums["drops"] <= sum(&websocket["drops"]));
    assert!(sums["delivered"] <= get("delivered"));
}

pub fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}
