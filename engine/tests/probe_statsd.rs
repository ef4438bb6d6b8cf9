//! The StatsD sink of a real probe against real senders: every value is added up exactly, over both kinds of sockets;
//! lost datagrams are counted, so that sent = read + dropped; and nothing that a sender sends ends the sink.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::probe_support::{Bench, Probe, find, python, wait_until};
use serde_json::{Value, json};

/// An address of this machine that no other test uses.
fn address() -> SocketAddr {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let own = ((std::process::id() & 0xffff) << 8) | (NUMBER.fetch_add(1, Ordering::Relaxed) & 0xff);
    SocketAddr::from((Ipv4Addr::from_bits(0x7f00_0000 | own), 8125))
}

fn path(bench: &Bench) -> PathBuf {
    bench.folder.join("statsd.sock")
}

/// A probe that only has a sink.
fn sink(udp: Option<SocketAddr>, unix: Option<PathBuf>) -> Probe {
    let mut probe = Probe::start(&json!({
        "protocol": 1, "interval_ns": 20_000_000, "statsd": {"udp": udp, "unix": unix, "interval_ns": 50_000_000},
    }));
    probe.until("statsd");
    probe
}

/// The last event of the sink; checks that its numbers never fall from event to event.
fn last(events: &[Value]) -> &Value {
    let all: Vec<&Value> = events.iter().filter(|event| event["type"] == "statsd").collect();
    for field in ["at_ns", "packets", "bytes", "updates", "malformed", "dropped"] {
        assert!(all.is_sorted_by_key(|event| event[field].as_u64()), "{field} falls");
    }
    let at = |kind: &str| events.iter().rposition(|event| event["type"] == kind);
    assert!(at("statsd") < at("end"));
    all[all.len() - 1]
}

fn number(event: &Value, field: &str) -> u64 {
    event[field].as_u64().unwrap_or_else(|| panic!("{field} in {event}"))
}

#[test]
fn all_that_a_subject_pushes_from_its_first_to_its_last_moment_is_added_up() {
    let bench = Bench::new();
    let code = r#"
import signal, socket, sys
host, port = sys.argv[1].split(':')
udp, unix = socket.socket(type=socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
udp.connect((host, int(port))); unix.connect(sys.argv[2])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
udp.send(b'first:1|c')
for _ in range(1000):
    udp.send(b'\n'.join([b'hits:1|c|#way:udp'] * 20))
    unix.send(b'hits:2|c|#way:unix\nhits:bad|c')
udp.send(b'queue:7|g\nusers:a|s\nusers:b|s\ntime:1:2:3|d\n_sc|x|0')
print('sent', flush=True)
signal.sigwait([signal.SIGTERM])
unix.send(b'last:1|c')
udp.send(b'last:1|c')
"#;
    let (udp, unix) = (address(), path(&bench));
    let mut spec = bench.launch(&[python(), "-c", code, &udp.to_string(), unix.to_str().unwrap()]);
    spec["statsd"] = json!({"udp": udp, "unix": unix});
    let probe = Probe::start(&spec);
    bench.wait_for_log("sent");
    let (events, status) = probe.finish();
    assert!(status.success());
    assert_eq!(find(&events, "exited")["exit_code"], 0, "{}", bench.log_text());
    let first = find(&events, "statsd");
    assert!(number(first, "packets") <= number(last(&events), "packets"));
    let last = last(&events);
    let values = json!({
        "first_total": 1.0, "hits_total{way=\"udp\"}": 20_000.0, "hits_total{way=\"unix\"}": 2_000.0, "queue": 7.0,
        "users": 2.0, "time_count": 3.0, "time_sum": 6.0, "time_max": 3.0, "last_total": 2.0,
    });
    assert_eq!(last["values"], values);
    let packets = 1 + 1000 + 1000 + 1 + 2;
    let bytes = 9 + 1000 * (20 * 18 - 1) + 1000 * 29 + 50 + 2 * 8;
    let updates = 1 + 20_000 + 1000 + 7 + 2;
    let found = ["packets", "bytes", "updates", "malformed", "dropped"].map(|field| number(last, field));
    assert_eq!(found, [packets, bytes, updates, 1000, 0]);
    assert!(!unix.exists(), "the socket's file is left");
}

#[test]
fn the_sink_tells_on_a_grid_even_if_nothing_comes() {
    let mut probe = sink(Some(address()), None);
    for _ in 0..3 {
        probe.until("statsd");
    }
    let (events, _) = probe.finish();
    let told: Vec<&Value> = events.iter().filter(|event| event["type"] == "statsd").collect();
    for event in &told {
        assert_eq!((&event["values"], number(event, "packets")), (&json!({}), 0));
    }
    // The last event comes at the end of the probe, at any time.
    for pair in told[..told.len() - 1].windows(2) {
        assert!(number(pair[1], "at_ns") > number(pair[0], "at_ns"));
    }
}

/// Stops a probe's process, and waits until none of its threads runs.
fn halt(probe: &Probe) -> i32 {
    let pid = number(find(&probe.events, "hello"), "pid") as i32;
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    wait_until("every thread has stopped", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let state = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        tasks.map(state).all(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")))
    });
    pid
}

fn go_on(pid: i32) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid, libc::SIGCONT) };
}

const UPDATES: u64 = 40;

/// A datagram of this many updates: 40 updates, as client libraries fill one, are about 1,400 bytes.
fn packet(updates: u64) -> Vec<u8> {
    let way = "y".repeat(1_400 / updates as usize - 32);
    let lines: Vec<String> =
        (0..updates).map(|nth| format!("flood.updates:1|c|#pair:{nth},way:{way}", nth = nth % 4)).collect();
    lines.join("\n").into_bytes()
}

/// Checks an event's numbers, if each datagram had this many updates.
fn assert_added_up(event: &Value, each: u64) {
    let packets = number(event, "packets");
    let sums: f64 = event["values"].as_object().unwrap().values().map(|value| value.as_f64().unwrap()).sum();
    assert_eq!((number(event, "updates"), number(event, "malformed")), (packets * each, 0));
    assert_eq!(sums, (packets * each) as f64);
    assert_eq!(number(event, "bytes"), packets * packet(each).len() as u64);
}

#[test]
fn what_does_not_fit_while_the_reader_stands_still_is_told_exactly() {
    let few = 4; // read within the last reading's time limit even by a debug build on a busy machine
    let packet = packet(few);
    let to = address();
    let probe = sink(Some(to), None);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let pid = halt(&probe);
    // Twice as much as the largest buffer holds.
    let sent = 60_000;
    for _ in 0..sent {
        sender.send_to(&packet, to).unwrap();
    }
    go_on(pid);
    let (events, _) = probe.finish();
    let last = last(&events);
    let (read, dropped) = (number(last, "packets"), number(last, "dropped"));
    assert!(read > 0 && dropped > 0, "{read} read, {dropped} dropped");
    assert_eq!(read + dropped, sent);
    assert_added_up(last, few);
}

#[test]
fn a_unix_socket_drops_nothing_but_lets_its_sender_wait() {
    let packet = packet(UPDATES);
    let bench = Bench::new();
    let probe = sink(None, Some(path(&bench)));
    let sender = UnixDatagram::unbound().unwrap();
    sender.connect(path(&bench)).unwrap();
    sender.set_nonblocking(true).unwrap();
    let pid = halt(&probe);
    let mut sent = 0;
    let refused = loop {
        match sender.send(&packet) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 1_000_000, "its queue has no end");
    };
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    go_on(pid);
    sender.set_nonblocking(false).unwrap();
    for _ in 0..5_000 {
        sender.send(&packet).unwrap();
    }
    let (events, _) = probe.finish();
    let last = last(&events);
    assert_eq!((number(last, "packets"), number(last, "dropped")), (sent + 5_000, 0));
    assert_added_up(last, UPDATES);
}

#[test]
fn senders_at_full_speed_over_both_sockets_are_accounted_for() {
    let packet = packet(UPDATES);
    let bench = Bench::new();
    let to = address();
    let probe = sink(Some(to), Some(path(&bench)));
    let over_udp = || {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..50_000 {
            sender.send_to(&packet, to).unwrap();
        }
    };
    let over_unix = || {
        let sender = UnixDatagram::unbound().unwrap();
        sender.connect(path(&bench)).unwrap();
        for _ in 0..20_000 {
            sender.send(&packet).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let senders = [scope.spawn(over_udp), scope.spawn(over_udp), scope.spawn(over_unix)];
        senders.map(|sender| sender.join().unwrap())
    });
    let (events, _) = probe.finish();
    let last = last(&events);
    assert_eq!(number(last, "packets") + number(last, "dropped"), 2 * 50_000 + 20_000);
    assert_added_up(last, UPDATES);
}

#[test]
fn nothing_that_is_sent_ends_it() {
    let bench = Bench::new();
    let to = address();
    let probe = sink(Some(to), Some(path(&bench)));
    let (udp, unix) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UnixDatagram::unbound().unwrap());
    let garbage: Vec<u8> = (0..60_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for length in [0, 1, 100, 60_000] {
        udp.send_to(&garbage[..length], to).unwrap();
        unix.send_to(&garbage[..length], path(&bench)).unwrap();
    }
    // More bytes than fit into a datagram: the truncated line is refused, the lines before it count.
    let long = "long:1|c\n".repeat(10_000);
    unix.send_to(long.as_bytes(), path(&bench)).unwrap();
    udp.send_to(b"good:1|c", to).unwrap();
    let (events, status) = probe.finish();
    assert!(status.success());
    let last = last(&events);
    assert_eq!((&last["values"]["good_total"], number(last, "packets")), (&json!(1.0), 10));
    assert_eq!(last["values"]["long_total"], json!((65_536 / 9) as f64));
    assert!(number(last, "malformed") > 0);
}

#[test]
fn a_sink_that_cannot_be_is_explained_before_anything_is_launched() {
    let bench = Bench::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address)).unwrap();
    for (statsd, expected) in [
        (json!({}), "give udp, unix, or both"),
        (json!({"udp": "127.0.0.1:0"}), "a port other than 0"),
        (json!({"udp": address(), "interval_ns": 0}), "interval_ns is 0"),
        (json!({"udp": taken.1}), "another process listens at udp"),
        (json!({"udp": "192.0.2.1:8125"}), "cannot listen at udp 192.0.2.1:8125"),
        (json!({"unix": "/no/such/folder/socket"}), "cannot listen at the Unix socket /no/such/folder/socket"),
        (json!({"unix": bench.folder}), "no socket"),
    ] {
        let mut spec = bench.launch(&["sleep", "600"]);
        spec["statsd"] = statsd;
        let mut probe = Probe::start(&spec);
        while probe.next().is_some() {}
        assert!(!probe.child.wait().unwrap().success());
        let last = probe.events.last().unwrap();
        assert_eq!((&last["type"], &last["kind"]), (&json!("error"), &json!("spec")), "{last}");
        let message = last["message"].as_str().unwrap();
        assert!(message.starts_with("statsd: ") && message.contains(expected), "{message}");
        assert!(!probe.events.iter().any(|event| event["type"] == "launched"));
    }
    bench.assert_no_process();
}

#[test]
fn a_controller_that_is_gone_leaves_no_socket() {
    let bench = Bench::new();
    let mut probe = sink(None, Some(path(&bench)));
    assert!(path(&bench).exists());
    probe.close_stdin();
    while probe.next().is_some() {}
    assert!(!probe.child.wait().unwrap().success());
    assert!(!path(&bench).exists());
}
