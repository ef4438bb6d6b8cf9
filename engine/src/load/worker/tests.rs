//! Tests of loops that pass the end of the window late.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;

use super::core::start_after_ns;
use super::*;
use crate::load::flight::Flight;
use crate::load::plan;

const SECOND_NS: u64 = 1_000_000_000;
/// The longest time from a request to its answer.
const REQUEST_NS: u64 = 2 * SECOND_NS;

/// A worker of this model whose run began a second ago and whose window ended half a second ago.
fn late_worker(model: &str) -> (Worker<Http1>, u64) {
    worker(9, r#"{"name": "a"}"#, model)
}

fn worker(port: u16, step: &str, model: &str) -> (Worker<Http1>, u64) {
    let plan = planned(&format!("http://127.0.0.1:{port}"), step, model, "{}");
    let ProtocolPlan::Http1(steps) = &plan.protocol else { panic!("{step}") };
    let http1 = Http1::new(steps.clone());
    started(plan, http1)
}

fn planned(url: &str, step: &str, model: &str, connection: &str) -> Arc<Plan> {
    let json = format!(
        r#"{{"protocol": 1, "target": {{"url": "{url}"}}, "scenario": [{step}], "model": {model},
            "connection": {connection}, "timeouts": {{"connect_ns": {SECOND_NS}, "request_ns": {REQUEST_NS}}},
            "phases": {{"drain_ns": 0, "deadline_ns": 1}}}}"#
    );
    Arc::new(plan::make(serde_json::from_str(&json).unwrap(), 1024).unwrap_or_else(|_| panic!("{json}")))
}

fn started<P: Protocol>(plan: Arc<Plan>, protocol: P) -> (Worker<P>, u64) {
    let go_ns = now_ns() - SECOND_NS;
    let end_ns = go_ns + SECOND_NS / 2;
    let edges = Arc::new(Edges::default());
    edges.set(go_ns, end_ns, u64::MAX);
    let reports = Reports { worker: 0, inputs: channel().0 };
    let bell = Arc::new(Bell::new().unwrap());
    let core = Core::new(plan, Share { thread: 0, threads: 1 }, edges, reports).unwrap();
    let mut worker = Worker::new(core, bell, protocol).unwrap();
    worker.core.start(go_ns);
    (worker, end_ns)
}

#[test]
fn an_edge_passed_while_sending_calls_off_nothing_that_was_due_before_it() {
    // 50 arrivals a second, of which 25 are intended within the window; all but one find no room.
    let (mut worker, end_ns) =
        late_worker(r#"{"kind": "open", "arrivals": "constant", "rate_per_s": 50, "max_in_flight": 1}"#);
    worker.core.now_ns = end_ns - SECOND_NS / 10;
    worker.run_due(&mut []);
    assert!(worker.core.draining, "the clock was read and had passed the end of the window");
    assert_eq!(worker.core.due_ns, 0, "the rest is due at once");
    worker.run_due(&mut []);
    worker.run_due(&mut []);
    assert_eq!(worker.core.next_arrival_ns(), u64::MAX, "then all is called off");
    let (_, report) = worker.core.recorder.finish(now_ns());
    assert_eq!((report.total.scheduled, report.cohort.scheduled), (25, 25));
}

#[test]
fn pauses_are_credited_up_to_the_end_of_the_window_and_no_further() {
    let (mut worker, end_ns) =
        late_worker(r#"{"kind": "closed", "users": 1, "think": {"kind": "constant", "ns": 1000000000}}"#);
    // A pause that begins 100 ms before the end of the window and ends long after it; the start of the user reads the
    // clock and passes the edge.
    worker.core.slots[0].lanes = 1;
    worker.core.recorder.pause_begins(end_ns - SECOND_NS / 10);
    let due_ns = end_ns - SECOND_NS / 10 + SECOND_NS;
    worker.core.timers.push(Timer { due_ns, pause_ns: SECOND_NS, slot: 0, step: 0, arrives: false, life: 0 });
    worker.core.now_ns = end_ns - SECOND_NS / 10;
    while !worker.core.timers.is_empty() {
        worker.run_due(&mut []);
    }
    let (_, report) = worker.core.recorder.finish(now_ns());
    assert_eq!(report.total.think_ns_sum, SECOND_NS / 10);
}

/// The kernel stamps what arrives; the loop may read it later.
#[test]
fn a_websocket_user_that_stays_out_leaves_with_all_its_lanes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let step = r#"{"name": "a", "message": {"kind": "text", "text": "a"}}"#;
    let plan = planned(&url, step, r#"{"kind": "closed", "users": 1}"#, r#"{"pipeline": 3, "websocket": {}}"#);
    let ProtocolPlan::Messages(messages) = &plan.protocol else { panic!("{step}") };
    let messages = Messages::new(messages.clone(), 1);
    let (mut worker, _) = started(plan, messages);
    let Worker { core, protocol, .. } = &mut worker;
    let due_ns = core.now_ns;
    protocol.join(core, 0, due_ns);
    core.done_ns = due_ns + SECOND_NS;
    core.now_ns = core.done_ns + SECOND_NS / 2;
    protocol.stay_out(core, 0);
    let (_, report) = worker.core.recorder.finish(now_ns() + 2 * SECOND_NS);
    assert_eq!(report.total.think_ns_sum, 3 * report.total.user_ns);
}

#[test]
fn an_answer_that_came_before_the_server_closed_counts_although_the_request_cannot_be_written() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let step = format!(r#"{{"name": "a", "method": "POST", "body": "{}"}}"#, "x".repeat(16 << 20));
    let model = r#"{"kind": "closed", "users": 1, "requests_per_user": 1}"#;
    let (mut worker, _) = worker(listener.local_addr().unwrap().port(), &step, model);
    let mut events = [Event { events: 0, u64: 0 }; 1];
    worker.core.read_clock();
    worker.run_due(&mut []);
    assert_eq!(worker.core.epoll.wait(&mut events, Some(SECOND_NS)), 1);
    worker.protocol.connected(&mut worker.core, 0);
    assert_eq!(worker.core.slots[0].unwritten, 1, "the body is larger than what the kernel takes");
    let (mut server, _) = listener.accept().unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    server.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").unwrap();
    drop(server); // with unread bytes, which resets the connection
    let mut polled = [crate::sys::readable(worker.core.slots[0].fd)];
    while polled[0].revents & libc::POLLHUP == 0 {
        crate::sys::poll(&mut polled, Some(SECOND_NS));
    }
    worker.protocol.writable(&mut worker.core, 0);
    let (_, report) = worker.core.recorder.finish(now_ns());
    assert_eq!(report.total.outcomes[Outcome::StatusRejected as usize], 1, "{:?}", report.total.outcomes);
    assert_eq!(report.rejected.into_iter().collect::<Vec<_>>(), [(413, 1)]);
}

/// Sends a request, lets the server answer it so many ns later, and looks for timeouts before it reads the answer, once
/// the request's time is up. Returns how many requests ended ok and by the timeout. `stamped`: the kernel stamps arrivals.
fn answered_and_read_late(stamped: bool, after_ns: u64) -> [u64; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let model = r#"{"kind": "closed", "users": 1, "requests_per_user": 1}"#;
    let (mut worker, _) = worker(listener.local_addr().unwrap().port(), r#"{"name": "a"}"#, model);
    worker.core.stamped = stamped;
    worker.core.read_clock();
    worker.run_due(&mut []);
    assert_eq!(worker.core.epoll.wait(&mut [Event { events: 0, u64: 0 }; 1], Some(SECOND_NS)), 1);
    worker.connected(0, 0);
    let (mut server, _) = listener.accept().unwrap();
    assert!(server.read(&mut [0; 1000]).unwrap() > 0);
    let sent_ns = now_ns() - after_ns;
    let slot = &mut worker.core.slots[0];
    let flight = Flight { sent_ns, ..slot.pop() };
    slot.push(flight);
    slot.unwritten = 0;
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    crate::sys::poll(&mut [crate::sys::readable(worker.core.slots[0].fd)], Some(SECOND_NS));
    // Stamps count once the wall clock has been seen to be steady.
    (0..2).for_each(|_| worker.core.compare_clocks());
    worker.core.now_ns = now_ns().max(sent_ns + REQUEST_NS);
    worker.core.sweep_ns = 0;
    worker.run_due(&mut vec![0; READ_BUFFER_BYTES]);
    let (_, report) = worker.core.recorder.finish(now_ns());
    [Outcome::Ok, Outcome::Timeout].map(|outcome| report.total.outcomes[outcome as usize])
}

#[test]
fn an_answer_that_came_in_time_is_no_timeout_although_it_is_read_late() {
    assert_eq!([false, true].map(|stamped| answered_and_read_late(stamped, 0)), [[1, 0]; 2]);
    assert_eq!(answered_and_read_late(true, REQUEST_NS + SECOND_NS), [0, 1]);
}

/// Begins to connect to a server that listens or not, and looks for timeouts before it handles the end of that, once
/// the time to connect is up. Returns how many requests ended by the timeout, how many were refused, and how many
/// connections were opened.
fn connected_and_seen_late(listens: bool) -> [u64; 3] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _listener = listens.then_some(listener);
    let model = r#"{"kind": "closed", "users": 1, "requests_per_user": 1}"#;
    let (mut worker, _) = worker(port, r#"{"name": "a"}"#, model);
    worker.core.read_clock();
    worker.run_due(&mut []);
    assert_eq!(worker.core.slots[0].state, State::Connecting);
    assert_eq!(worker.core.epoll.wait(&mut [Event { events: 0, u64: 0 }; 1], Some(SECOND_NS)), 1);
    let slot = &mut worker.core.slots[0];
    slot.stamp_us = slot.stamp_us.wrapping_sub((SECOND_NS / 1_000) as u32 + 1);
    worker.core.now_ns = now_ns();
    worker.core.sweep_ns = 0;
    worker.run_due(&mut []);
    let (_, report) = worker.core.recorder.finish(now_ns());
    let [late, refused] = [Outcome::ConnectTimeout, Outcome::ConnectRefused].map(|each| each as usize);
    [report.total.outcomes[late], report.total.outcomes[refused], report.connections.opened]
}

#[test]
fn a_connection_that_ended_its_attempt_in_time_is_no_timeout_although_it_is_seen_late() {
    assert_eq!(connected_and_seen_late(true), [0, 0, 1]);
    assert_eq!(connected_and_seen_late(false), [0, 1, 0]);
}

#[test]
fn a_connection_that_the_server_resets_as_it_accepts_it_was_opened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let model = r#"{"kind": "closed", "users": 1, "requests_per_user": 1}"#;
    let (mut worker, _) = worker(listener.local_addr().unwrap().port(), r#"{"name": "a"}"#, model);
    worker.core.read_clock();
    worker.run_due(&mut []);
    let (server, _) = listener.accept().unwrap();
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of_val(&at_once) as libc::socklen_t;
    // SAFETY: the option's value outlives the call and its size is passed.
    unsafe {
        let value = (&raw const at_once).cast();
        libc::setsockopt(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, length);
    }
    drop(server);
    let mut events = [Event { events: 0, u64: 0 }; 1];
    assert_eq!(worker.core.epoll.wait(&mut events, Some(SECOND_NS)), 1);
    let [Event { events: flags, u64: token }] = events;
    assert_ne!(flags & FAILED, 0, "it has been reset");
    worker.handle(token, flags, &mut []);
    let (_, report) = worker.core.recorder.finish(now_ns());
    assert_eq!(report.total.outcomes[Outcome::Reset as usize], 1, "{:?}", report.total.outcomes);
    assert_eq!((report.connections.opened, report.connections.failed), (1, 0));
}

/// When a server closes a connection: before the next request has come, after that, or after it has read it.
#[derive(Clone, Copy, PartialEq)]
enum Closes {
    Before,
    Unread,
    Read,
}

/// Answers one request of a user who then rests for so long, closes the connection around the next request, and answers
/// what follows on another connection, if anything does. Returns how many requests ended ok, by a reset, and as
/// `closed_early`.
fn after_a_rest(method: &str, rested_us: u32, closes: Closes) -> [u64; 3] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let step = format!(r#"{{"name": "a", "method": "{method}"}}"#);
    let model = r#"{"kind": "open", "arrivals": "constant", "rate_per_s": 0.001, "max_in_flight": 1}"#;
    let (mut worker, _) = worker(listener.local_addr().unwrap().port(), &step, model);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let connected = |worker: &mut Worker<Http1>| {
        let mut events = [Event { events: 0, u64: 0 }; 1];
        assert_eq!(worker.core.epoll.wait(&mut events, Some(SECOND_NS)), 1);
        worker.connected(0, 0);
        listener.accept().unwrap().0
    };
    let answer = |server: &mut std::net::TcpStream, worker: &mut Worker<Http1>, buffer: &mut [u8]| {
        assert!(server.read(&mut [0; 1000]).unwrap() > 0);
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        crate::sys::poll(&mut [crate::sys::readable(worker.core.slots[0].fd)], Some(SECOND_NS));
        worker.read(0, u64::MAX, buffer);
    };
    worker.arrive();
    let mut server = connected(&mut worker);
    answer(&mut server, &mut worker, &mut buffer);
    let server = (closes != Closes::Before).then_some(server);
    worker.arrive();
    // Sent later than it ends, so that no pause of this test counts.
    let slot = &mut worker.core.slots[0];
    let sent_ns = now_ns() + 600 * SECOND_NS;
    let flight = Flight { sent_ns, ..slot.pop() };
    slot.push(flight);
    slot.unwritten = 0;
    slot.stamp_us = ((sent_ns / 1_000) as u32).wrapping_sub(rested_us);
    if let Some(mut server) = server {
        crate::sys::poll(&mut [crate::sys::readable(server.as_raw_fd())], Some(SECOND_NS));
        if closes == Closes::Read {
            assert!(server.read(&mut [0; 1000]).unwrap() > 0);
        }
        drop(server); // with an unread request this resets the connection
    }
    crate::sys::poll(&mut [crate::sys::readable(worker.core.slots[0].fd)], Some(SECOND_NS));
    worker.exchange(0, READABLE, &mut buffer);
    if worker.core.slots[0].state != State::Closed {
        let mut server = connected(&mut worker);
        answer(&mut server, &mut worker, &mut buffer);
    }
    let (_, report) = worker.core.recorder.finish(now_ns());
    let outcomes = &report.total.outcomes;
    [Outcome::Ok, Outcome::Reset, Outcome::ClosedEarly].map(|outcome| outcomes[outcome as usize])
}

#[test]
fn a_request_that_crosses_the_end_of_a_rested_connection_is_sent_again_unless_it_may_change_something() {
    assert_eq!(after_a_rest("GET", 2_000_000, Closes::Unread), [2, 0, 0]);
    assert_eq!(after_a_rest("POST", 2_000_000, Closes::Unread), [1, 1, 0]);
    assert_eq!(after_a_rest("GET", 2_000, Closes::Unread), [1, 1, 0]);
}

#[test]
fn a_request_that_came_after_the_server_had_closed_is_sent_again_however_short_the_rest_was() {
    assert_eq!(after_a_rest("GET", 2_000, Closes::Before), [2, 0, 0]);
    assert_eq!(after_a_rest("POST", 2_000, Closes::Before), [1, 0, 1]);
}

#[test]
fn a_request_that_the_server_read_and_left_without_an_answer_is_not_sent_again() {
    for rested_us in [2_000, 2_000_000] {
        assert_eq!(after_a_rest("GET", rested_us, Closes::Read), [1, 0, 1]);
    }
}

#[test]
fn the_engines_of_a_fleet_do_not_start_their_users_together() {
    for (engines, users) in [(4, 10), (8, 250), (4, 500), (5, 1)] {
        let start_ns =
            |engine: u64, user: u32| start_after_ns(u64::from(user), users, SECOND_NS, engine * u64::from(users));
        let mut starts: Vec<u64> =
            (0..engines).flat_map(|engine| (0..users).map(move |user| start_ns(engine, user))).collect();
        starts.sort_unstable();
        let evenly_ns = SECOND_NS / (engines * u64::from(users));
        let apart = starts.windows(2).all(|pair| pair[1] - pair[0] > evenly_ns / 2);
        assert!(apart && starts[starts.len() - 1] < SECOND_NS, "{engines} engines with {users} users");
    }
    let alone = [0, 1, 9].map(|user| start_after_ns(user, 10, SECOND_NS, 0));
    assert_eq!(alone, [0, SECOND_NS / 10, SECOND_NS / 10 * 9]);
    assert_eq!(start_after_ns(2, 3, 0, 6), 0, "without a ramp all start at once");
}
