//! Tests that neither other users of the machine nor a hostile subject can stop a probe's samples, fill its memory, or
//! keep it from ending.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::probe_support::{Bench, PATIENCE, Probe, python};
use serde_json::{Value, json};

const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    // SAFETY: geteuid cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Runs a Python program as another user of this machine.
fn as_nobody(code: &str, arguments: &[&str]) {
    let status = Command::new("python3").args(["-c", code]).args(arguments).uid(NOBODY).gid(NOBODY).status().unwrap();
    assert!(status.success());
}

/// A program that plants a JVM's figures for another process.
const PLANT: &str = r#"
import os, struct, sys
folder, pid, what = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
file = f"{folder}/{pid}"
if what == "page":
    name = b"java.threads.live\0"
    at = (20 + len(name) + 7) // 8 * 8
    entry = struct.pack("<III4sI", at + 8, 20, 0, b"J\0\1\3", at) + name
    entry = entry.ljust(at, b"\0") + struct.pack("<q", 7)
    page = bytes([0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1]).ljust(24, b"\0") + struct.pack("<II", 32, 1) + entry
    open(file, "wb").write(page)
else:
    os.mkfifo(file + ".new")
    os.rename(file + ".new", file)
"#;

/// Takes samples for this long; each must come soon after the one before.
fn sample_for(probe: &mut Probe, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        probe.until("sample");
    }
}

#[test]
fn files_that_others_plant_for_a_jvm_are_neither_read_nor_waited_for() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let mut probe = Probe::start(&bench.launch(&["sleep", "600"]));
    let pid = probe.until("launched")["pid"].as_i64().unwrap().to_string();
    let folder = format!("/tmp/hsperfdata_{}", bench.mark);
    as_nobody(PLANT, &[&folder, &pid, "page"]);
    sample_for(&mut probe, Duration::from_millis(2_200));
    as_nobody(PLANT, &[&folder, &pid, "fifo"]);
    sample_for(&mut probe, Duration::from_millis(2_200));
    let (events, status) = probe.finish();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(status.success());
    assert!(!events.iter().any(|event| event["type"] == "jvm"), "a stranger's file was read");
}

#[test]
fn a_probe_that_is_stuck_is_killed_with_all_that_it_started() {
    let bench = Bench::new();
    let mut probe = Probe::start(
        &bench.python("import os, time\nif os.fork() == 0: os.setsid()\nos.write(1, b'up')\ntime.sleep(600)"),
    );
    let pid = probe.until("hello")["pid"].as_i64().unwrap() as i32;
    bench.wait_for_log("upup");
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    probe.close_stdin();
    let begun = Instant::now();
    while probe.child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the keeper waits for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    bench.wait_for_no_process();
}

/// The probe's events within this time about a page served by a script, each connection in its own thread.
fn scraped(script: impl Fn(TcpStream) + Send + Sync + Copy + 'static, time: Duration) -> Vec<Value> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                script(stream);
            });
        }
    });
    let bench = Bench::new();
    let mut spec = bench.launch(&[python(), "-c", "import time; time.sleep(600)"]);
    spec["scrape"] = json!({"url": url, "names": ["a"], "interval_ns": 200_000_000, "timeout_ns": 300_000_000});
    let mut probe = Probe::start(&spec);
    let pid = probe.until("hello")["pid"].as_i64().unwrap();
    sample_for(&mut probe, time);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    assert!(peak.parse::<u64>().unwrap() < 128 << 10, "{peak} kB");
    let (events, status) = probe.finish();
    assert!(status.success());
    events.into_iter().filter(|event| event["type"].as_str().unwrap().starts_with("scrape")).collect()
}

fn reasons(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["reason"].as_str()).collect()
}

#[test]
fn a_metrics_page_that_drips_or_never_ends_costs_its_own_reading_only() {
    let drip = |first: &'static [u8], more: &'static [u8], pause_ms: u64| {
        move |mut stream: TcpStream| {
            let mut sent = stream.write_all(first);
            while sent.is_ok() {
                std::thread::sleep(Duration::from_millis(pause_ms));
                sent = stream.write_all(more);
            }
        }
    };
    const BODY: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
    const LONG: &[u8] = &[b'x'; 65_536];
    for (script, expected) in [
        (drip(b"HTTP/1.1 200 OK\r\na: ", b"x", 10), "it took longer than 300ms"),
        (drip(BODY, b"a", 10), "it took longer than 300ms"),
        (drip(b"HTTP/1.1 200 OK\r\na: ", LONG, 0), "its head is longer than 64 KiB"),
        (drip(BODY, LONG, 0), "it is longer than 16 MiB"),
        (
            drip(b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\n\r\n", b"x", 10),
            "it answered with status 301 Moved",
        ),
    ] {
        let events = scraped(script, Duration::from_millis(1_000));
        let slow = "it took longer than 300ms";
        assert!(reasons(&events).iter().any(|reason| [expected, slow].contains(reason)), "{expected}: {events:?}");
    }
}

#[test]
fn series_that_are_new_at_each_reading_are_bounded() {
    let page = |mut stream: TcpStream| {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let first = NUMBER.fetch_add(50_000, std::sync::atomic::Ordering::Relaxed);
        let lines: String = (first..first + 4_000).map(|n| format!("a{{n=\"{n:0100}\"}} 1\n")).collect();
        let _ =
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{lines}", lines.len()).as_bytes());
    };
    let events = scraped(page, Duration::from_millis(2_000));
    let series: usize = events.iter().filter_map(|event| event["values"].as_object()).map(|values| values.len()).sum();
    assert_eq!(series, 8_000, "two whole pages");
    assert!(reasons(&events).iter().all(|reason| reason.contains("more than 10000 series")), "{events:?}");
    assert!(reasons(&events).len() > 2);
}
