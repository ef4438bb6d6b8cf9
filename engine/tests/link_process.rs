//! Compares a real `powerband-engine link`, with real sockets at both ends, with theory. Nothing here relies on a quiet
//! machine: packets may be late by any time, but never early, never out of order, never faster than the rate. On a
//! machine that cannot make a link, the tests say so and do nothing (with POWERBAND_NO_SKIP=1 they fail).

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a packet's headers on the wire: Ethernet, IP, UDP.
const UDP_HEADERS_BYTES: usize = 14 + 20 + 8;

struct Link {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    up: Value,
}

impl Link {
    /// Starts a link. None, with the reason on stderr, if this machine cannot make one.
    fn start(spec: &Value) -> Option<Link> {
        let (child, stdin, mut stdout) = launch(&spec.to_string());
        let up = next_event(&mut stdout).expect("a first event");
        if up["type"] == "error" && up["kind"] == "limit" {
            let reason = up["message"].as_str().unwrap();
            assert_ne!(std::env::var("POWERBAND_NO_SKIP").as_deref(), Ok("1"), "may not be skipped: {reason}");
            eprintln!("skipped: {reason}");
            return None;
        }
        assert_eq!(up["type"], "up", "{up}");
        Some(Link { child, stdin: Some(stdin), stdout, up })
    }

    /// Runs `work` on a thread at one end of the link.
    fn at<T: Send + 'static>(&self, end: &str, work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
        let namespace = File::open(self.up[end]["namespace"].as_str().unwrap()).expect("the namespace");
        thread::spawn(move || {
            // SAFETY: setns takes no pointers; only this thread moves.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            drop(namespace);
            work()
        })
    }

    fn address(&self, end: &str) -> String {
        self.up[end]["address"].as_str().unwrap().to_owned()
    }

    /// True if the link's queue counts bytes; netem's counts packets.
    fn is_bridge(&self) -> bool {
        self.up["form"] == "bridge"
    }

    /// Ends the link, by a command or by the end of its stdin, and returns its summary.
    fn finish(mut self, by_command: bool) -> Value {
        if by_command {
            writeln!(self.stdin.as_mut().unwrap(), r#"{{"type": "stop"}}"#).unwrap();
        } else {
            self.stdin = None;
        }
        let summary = next_event(&mut self.stdout).expect("a summary");
        assert_eq!(summary["type"], "summary", "{summary}");
        assert!(next_event(&mut self.stdout).is_none(), "the summary is the last line");
        assert!(self.child.wait().unwrap().success());
        summary
    }
}

fn launch(line: &str) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    launch_with(&std::env::var("PATH").unwrap(), line)
}

fn launch_with(path: &str, line: &str) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_powerband-engine"));
    command.arg("link").env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the engine starts");
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{line}").unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdin, stdout)
}

fn next_event(stdout: &mut BufReader<ChildStdout>) -> Option<Value> {
    let mut line = String::new();
    (stdout.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
}

fn udp(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("an address of this end");
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Starts a thread that sends back this many packets.
fn echo(link: &Link, packets: usize) -> thread::JoinHandle<()> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let address = format!("{}:7", link.address("b"));
    let echoing = link.at("b", move || {
        let socket = udp(&address);
        ready.send(()).unwrap();
        let mut buffer = [0; 2048];
        for _ in 0..packets {
            let (length, from) = socket.recv_from(&mut buffer).expect("a packet");
            socket.send_to(&buffer[..length], from).unwrap();
        }
    });
    is_ready.recv().expect("the other end listens");
    echoing
}

#[test]
fn a_round_trip_takes_the_delay_twice_and_what_sending_takes() {
    let (delay, rate) = (Duration::from_millis(15), 2_000_000);
    let Some(link) = Link::start(&json!({"protocol": 1, "delay_ns": delay.as_nanos() as u64, "rate_bits_per_s": rate}))
    else {
        return;
    };
    let packets = 20;
    let echoing = echo(&link, packets);
    let (here, there) = (format!("{}:0", link.address("a")), format!("{}:7", link.address("b")));
    let length = 500;
    let trips = link.at("a", move || {
        let socket = udp(&here);
        let mut buffer = [0; 2048];
        let mut trip = || {
            let start = Instant::now();
            socket.send_to(&vec![1; length], &there).unwrap();
            assert_eq!(socket.recv(&mut buffer).expect("an answer"), length);
            start.elapsed()
        };
        (0..packets).map(|_| trip()).collect::<Vec<_>>()
    });
    let trips = trips.join().unwrap();
    echoing.join().unwrap();
    let sending = Duration::from_secs_f64(((length + UDP_HEADERS_BYTES) * 8) as f64 / rate as f64);
    let theory = 2 * (delay + sending);
    let (shortest, longest) = (trips.iter().min().unwrap(), trips.iter().max().unwrap());
    assert!(*shortest >= theory, "{shortest:?} is less than {theory:?}");
    assert!(
        *shortest < theory + Duration::from_millis(30),
        "even the shortest took {shortest:?}, the longest {longest:?}"
    );
    let summary = link.finish(true);
    for way in ["a_to_b", "b_to_a"] {
        assert!(summary[way]["packets"].as_u64().unwrap() >= packets as u64, "{summary}");
        assert_eq!(summary[way]["dropped"], 0);
        assert_eq!(summary[way]["missed"], 0);
    }
}

#[test]
fn a_bulk_stream_is_no_faster_than_the_link_and_is_sent_once() {
    let rate = 40_000_000.0;
    let Some(link) = Link::start(&json!({"protocol": 1, "delay_ns": 2_000_000, "rate_bits_per_s": rate as u64})) else {
        return;
    };
    let (address, bytes) = (format!("{}:9", link.address("b")), 4_000_000);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let listening = address.clone();
    let reading = link.at("b", move || {
        let listener = TcpListener::bind(listening).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        (all.len(), Instant::now())
    });
    is_ready.recv().unwrap();
    let start = Instant::now();
    link.at("a", move || TcpStream::connect(address).unwrap().write_all(&vec![0; bytes]).unwrap()).join().unwrap();
    let (received, end) = reading.join().unwrap();
    assert_eq!(received, bytes);
    let (took, least) = ((end - start).as_secs_f64(), bytes as f64 * 8.0 / rate);
    assert!(took > least, "{took} s for what needs {least} s at the least");
    // Nearly all of it crossed only once (few retransmissions), so that nothing but the rate limited it.
    let summary = link.finish(false);
    let carried = summary["a_to_b"]["bytes"].as_u64().unwrap();
    assert!(carried > bytes as u64 && carried < bytes as u64 * 5 / 4, "{summary}");
}

#[test]
fn packets_keep_their_order_and_none_is_made_up() {
    let Some(link) = Link::start(&json!({"protocol": 1, "delay_ns": 1_000_000})) else { return };
    let (here, there) = (format!("{}:0", link.address("a")), format!("{}:8", link.address("b")));
    let packets = 2_000u32;
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (over, is_over) = std::sync::mpsc::channel();
    let listening = there.clone();
    let reading = link.at("b", move || {
        let socket = udp(&listening);
        ready.send(()).unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 16];
        loop {
            assert_eq!(socket.recv(&mut buffer).expect("a last packet"), 4);
            match u32::from_be_bytes(buffer[..4].try_into().unwrap()) {
                u32::MAX => break,
                number => seen.push(number),
            }
        }
        over.send(()).unwrap();
        (seen, socket) // closed, it would send back that nobody listens
    });
    is_ready.recv().unwrap();
    let last = link
        .at("a", move || {
            let socket = udp(&here);
            for number in 0..packets {
                socket.send_to(&number.to_be_bytes(), &there).unwrap();
                if number % 50 == 49 {
                    thread::sleep(Duration::from_millis(1)); // so that no socket's buffer overflows
                }
            }
            // A busy machine may miss any packet: last ones are sent until one has arrived.
            (1..=1_000u32).find(|_| {
                socket.send_to(&u32::MAX.to_be_bytes(), &there).unwrap();
                is_over.recv_timeout(Duration::from_millis(20)).is_ok()
            })
        })
        .join()
        .unwrap()
        .expect("a last packet arrives");
    let (seen, _socket) = reading.join().unwrap();
    assert!(seen.is_sorted_by(|a, b| a < b), "out of order, or twice");
    let summary = link.finish(true);
    let way = &summary["a_to_b"];
    let count = |name: &str| way[name].as_u64().unwrap();
    assert_eq!(count("packets") + count("dropped") + count("missed"), u64::from(packets + last), "{summary}");
    assert_eq!(summary["b_to_a"]["packets"], 0, "nothing but what was sent goes over the link: {summary}");
}

#[test]
fn what_the_queue_cannot_hold_is_dropped_and_counted() {
    // 1,000 bytes per millisecond; the queue holds ten packets of 1,000 bytes.
    let spec = json!({"protocol": 1, "delay_ns": 1_000_000, "rate_bits_per_s": 8_000_000, "queue_bytes": 10_000});
    let Some(link) = Link::start(&spec) else { return };
    let (here, there) = (format!("{}:0", link.address("a")), format!("{}:8", link.address("b")));
    let _reading = link.at("b", {
        let there = there.clone();
        move || udp(&there)
    });
    link.at("a", move || {
        let socket = udp(&here);
        for _ in 0..100 {
            socket.send_to(&[0; 1_000 - UDP_HEADERS_BYTES], &there).unwrap();
        }
    })
    .join()
    .unwrap();
    thread::sleep(Duration::from_millis(300)); // until the link has delivered what it accepted
    let is_bridge = link.is_bridge();
    let summary = link.finish(true);
    let count = |name: &str| summary["a_to_b"][name].as_u64().unwrap();
    assert_eq!(count("packets") + count("dropped") + count("missed"), 100, "{summary}");
    assert!(count("packets") >= 6, "{summary}");
    if is_bridge {
        assert!(count("packets") >= 10, "{summary}");
        assert_eq!(count("bytes"), 1_000 * count("packets"));
    }
}

#[test]
fn after_a_kill_nothing_is_left_of_it() {
    let Some(mut link) = Link::start(&json!({"protocol": 1, "delay_ns": 0})) else { return };
    let devices = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let (killed, is_killed) = std::sync::mpsc::channel::<()>();
    let (first, has_looked) = std::sync::mpsc::channel();
    let watching = link.at("a", move || {
        first.send(devices()).unwrap();
        is_killed.recv().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while devices().contains("link0") && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        devices()
    });
    assert!(has_looked.recv().unwrap().contains("link0"));
    link.child.kill().unwrap();
    link.child.wait().unwrap();
    killed.send(()).unwrap();
    assert!(!watching.join().unwrap().contains("link0"), "the device outlived its holder");
    assert!(!std::path::Path::new(link.up["b"]["namespace"].as_str().unwrap()).exists());
}

#[test]
fn a_tc_that_shows_no_counts_is_found_at_the_start() {
    if Link::start(&json!({"protocol": 1, "delay_ns": 0})).is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("powerband-tc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tc"), "#!/bin/sh\necho qdisc netem 8001: root\n").unwrap();
    std::fs::set_permissions(folder.join("tc"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let spec = json!({"protocol": 1, "delay_ns": 0, "form": "netem"});
    let (mut child, _stdin, mut stdout) = launch_with(&path, &spec.to_string());
    let event = next_event(&mut stdout).expect("an error event");
    assert!(event["message"].as_str().is_some_and(|message| message.contains("no counts of netem")), "{event}");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_spec_or_command_that_is_wrong_is_told_in_a_sentence() {
    for (line, said) in [
        ("", "stdin: empty"),
        ("{}", "no valid LinkSpec"),
        (r#"{"protocol": 1, "delay_ns": 1, "speed": 3}"#, "unknown field `speed`"),
        (r#"{"protocol": 1, "delay_ns": 1, "rate_bits_per_s": 0}"#, "rate_bits_per_s: 0"),
        (r#"{"protocol": 7, "delay_ns": 1}"#, "protocol: 7"),
    ] {
        let (mut child, stdin, mut stdout) = launch(line);
        drop(stdin);
        let event = next_event(&mut stdout).expect("an error event");
        assert_eq!((&event["type"], &event["kind"]), (&json!("error"), &json!("spec")), "{event}");
        assert!(event["message"].as_str().unwrap().contains(said), "{event}");
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
    let Some(mut link) = Link::start(&json!({"protocol": 1, "delay_ns": 0})) else { return };
    writeln!(link.stdin.as_mut().unwrap(), r#"{{"type": "drain"}}"#).unwrap();
    let event = next_event(&mut link.stdout).expect("an error event");
    assert!(event["message"].as_str().unwrap().contains("one command"), "{event}");
    assert_eq!(link.child.wait().unwrap().code(), Some(1));
}
