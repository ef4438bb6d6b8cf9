//! Hostile clients: whatever they send, or do not read, costs the server bounded memory, and other clients are still
//! served.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::serve_support::{Client, Server, command, wait_until};

const LOOP_0_PENDING: &str = "event_loop_pending{loop=\"0\"}";
const MIB: usize = 1 << 20;

#[test]
fn answers_that_nobody_reads_hold_up_the_requests_after_them() {
    let server = Server::start(&["--model", "event-loop"]);
    let mut client = server.connect();
    let (requests, bytes) = (4, 16 * MIB);
    client.send(format!("GET /?payload={bytes}&wait=1us HTTP/1.1\r\n\r\n").repeat(requests));
    let mut before = 0.0;
    wait_until("it answers no more", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = server.metric("requests_total");
        now > 0.0 && server.metric(LOOP_0_PENDING) == 0.0 && std::mem::replace(&mut before, now) == now
    });
    // The answer that the socket does not take, and the answer to the request that already waited.
    assert!(before <= 2.0, "{before}");
    for _ in 0..requests {
        assert_eq!(client.answer().2.len(), bytes);
    }
}

#[test]
fn a_connection_keeps_no_memory_for_an_answer_that_is_sent() {
    let server = Server::start(&["--model", "event-loop"]);
    // More than the 32 MiB that glibc ever takes from its heap, so that freed memory leaves the process.
    let bytes = 33 * MIB;
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get(&format!("/?payload={bytes}")).1.len(), bytes);
            client
        })
        .collect();
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident: usize = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    // The loop keeps one such buffer, which all its connections share.
    assert!(resident * 1024 < 3 * bytes, "{resident} KiB for {} idle connections", clients.len());
}

/// Until dropped, sends these bytes again and again and discards the answers. First sends bodies until the kernel has
/// enlarged its buffers.
struct Flood {
    over: Arc<AtomicBool>,
    stream: std::net::TcpStream,
}

impl Flood {
    fn start(server: &Server, bytes: Vec<u8>) -> Flood {
        let stream = server.connect().stream;
        let over = Arc::new(AtomicBool::new(false));
        let (mut writer, mut reader) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
        let its_over = Arc::clone(&over);
        std::thread::spawn(move || {
            let body =
                [format!("POST / HTTP/1.1\r\nContent-Length: {MIB}\r\n\r\n").into_bytes(), vec![b'x'; MIB]].concat();
            for _ in 0..200 {
                writer.write_all(&body).unwrap();
            }
            while !its_over.load(Relaxed) && writer.write_all(&bytes).is_ok() {}
        });
        std::thread::spawn(move || while matches!(reader.read(&mut [0; 64 << 10]), Ok(1..)) {});
        Flood { over, stream }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn a_client_that_never_stops_sending_leaves_the_loop_to_others() {
    // Bodies that are made but not sent: the client is faster than the loop, so its socket is never empty.
    for request in ["HEAD /?payload=1024 HTTP/1.1\r\n\r\n", "HEAD /?payload=1024&wait=1ns HTTP/1.1\r\n\r\n"] {
        let server = Server::start(&["--model", "event-loop"]);
        let _flood = Flood::start(&server, request.repeat(10_000).into_bytes());
        wait_until("the flood is served", || server.metric("requests_total") > 200.0);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(server.get("/health").0, 200, "{request}");
        }
    }
}

#[test]
fn the_poller_of_a_pool_waits_for_nobody_who_does_not_read() {
    let server = Server::start(&["--model", "fixed"]);
    let pages = b"GET /metrics HTTP/1.1\r\n\r\n".repeat(6000);
    let stalled: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = server.connect();
            client.stream.set_nonblocking(true).unwrap();
            while matches!(client.stream.write(&pages), Ok(1..)) {}
            client
        })
        .collect();
    // Each of these clients could hold it for five seconds.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(server.get("/health").0, 200);
    }
    drop(stalled);
}

#[test]
fn a_client_that_drips_does_not_keep_the_management_port() {
    let server = Server::start(&["--model", "fixed"]);
    let mut slow = Client::new(server.management);
    let over = Arc::new(AtomicBool::new(false));
    let its_over = Arc::clone(&over);
    let dripping = std::thread::spawn(move || {
        while !its_over.load(Relaxed) && slow.stream.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    let (status, _) = Client::new(server.management).get("/health");
    over.store(true, Relaxed);
    dripping.join().unwrap();
    assert_eq!(status, 200);
}

#[test]
fn bad_servers_end_a_connection_that_speaks_no_http() {
    for how in ["garbage", "silent"] {
        let server = Server::start(&["--misbehave", how]);
        let mut client = server.connect();
        client.send(b"\x00\x01\x02");
        assert!(client.is_closed(), "{how} would gather whatever comes");
    }
}

/// Bytes of address space of the process a moment later.
fn address_space(pid: i32) -> u64 {
    std::thread::sleep(Duration::from_millis(5));
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_refused_thread_is_survived_though_nobody_reads_what_is_said_of_it() {
    let server = Server::start_with(&["--model", "thread-per-connection"], |command| {
        command.stderr(Stdio::from(std::io::pipe().unwrap().1));
    });
    let pid = server.child.id() as i32;
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // When a thread starts, the allocator maps more than it keeps, for a moment.
    let used = (0..20).map(|_| address_space(pid)).min().unwrap();
    // Room for about three stacks, and no more.
    let room = used + MIB as u64;
    // SAFETY: old and new limits are valid during the calls.
    unsafe {
        assert_eq!(libc::prlimit(pid, libc::RLIMIT_AS, std::ptr::null(), &raw mut before), 0);
        let less = libc::rlimit { rlim_cur: room, ..before };
        assert_eq!(libc::prlimit(pid, libc::RLIMIT_AS, &raw const less, std::ptr::null_mut()), 0);
    }
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    assert!(clients.last_mut().unwrap().is_closed(), "there is no thread for it");
    drop(clients);
    // SAFETY: as above.
    unsafe { assert_eq!(libc::prlimit(pid, libc::RLIMIT_AS, &raw const before, std::ptr::null_mut()), 0) };
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn more_loops_than_any_machine_has_are_refused_with_a_sentence() {
    for loops in ["18446744073709551615", "10000000"] {
        let output = command(&["--port", "0", "--model", "event-loop", "--instances", loops]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("--instances"), "{message}");
    }
}
