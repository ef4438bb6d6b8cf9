//! Tests what clients see when the bounded pool refuses work: every policy, for requests and for connections.

use crate::serve_support::{Client, Server};

/// A server with one thread and one place in the queue.
fn full_pool(policy: &str, unit: &str) -> Server {
    Server::start(&[
        "--model", "bounded", "--core", "1", "--max", "1", "--queue", "1", "--policy", policy, "--unit", unit,
    ])
}

/// Longer than any test: the thread stays occupied, however slow the machine.
const FOR_GOOD: &str = "wait=60s";
/// Long enough for a few steps on a busy machine, for requests that are to be answered.
const FOR_A_WHILE: &str = "wait=3s";

/// Connects two clients, one after the other: the first occupies the thread for this long, the second the queue.
fn fill(server: &Server, running_for: &str) -> (Client, Client) {
    let (mut running, mut queued) = (server.connect(), server.connect());
    running.ask(&format!("/?payload=1&{running_for}"));
    server.wait_for_metric("pool_active", 1.0);
    queued.ask("/?payload=2");
    server.wait_for_metric("queue_length", 1.0);
    (running, queued)
}

#[test]
fn abort_answers_503_and_the_rest_go_on() {
    let server = full_pool("abort", "request");
    let _held = fill(&server, FOR_GOOD);
    let mut refused = server.connect();
    assert_eq!(refused.get("/").0, 503);
    assert_eq!(refused.get("/").0, 503, "the connection goes on");
    assert_eq!(server.metric("tasks_rejected_total"), 2.0);
    assert_eq!(server.get("/health").0, 200, "the poller is not the pool");
    let server = full_pool("abort", "request");
    let (mut running, mut queued) = fill(&server, FOR_A_WHILE);
    let mut refused = server.connect();
    assert_eq!(refused.get("/").0, 503);
    assert_eq!((running.answer().2.len(), queued.answer().2.len()), (1, 2));
    assert_eq!(refused.get("/").0, 200, "once there is room");
}

#[test]
fn caller_runs_serves_it_in_the_poller_which_reads_nothing_meanwhile() {
    let server = full_pool("caller-runs", "request");
    let _held = fill(&server, FOR_GOOD);
    let (mut by_caller, mut health) = (server.connect(), server.connect());
    by_caller.ask(&format!("/?payload=3&{FOR_A_WHILE}"));
    server.wait_for_metric("tasks_rejected_total", 1.0);
    health.ask("/health");
    assert!(health.is_silent(), "the poller is busy");
    assert_eq!(by_caller.answer().2.len(), 3);
    assert_eq!(health.answer().0, 200);
    server.wait_for_metric("requests_total", 1.0);
    assert_eq!(server.metric("tasks_completed_total"), 0.0, "the caller is no pool thread");
}

#[test]
fn discard_never_answers_it() {
    let server = full_pool("discard", "request");
    let (mut running, mut queued) = fill(&server, FOR_A_WHILE);
    let mut discarded = server.connect();
    discarded.ask("/");
    server.wait_for_metric("tasks_rejected_total", 1.0);
    assert_eq!((running.answer().2.len(), queued.answer().2.len()), (1, 2));
    discarded.ask("/");
    assert!(discarded.is_silent(), "nor anything after it on that connection");
    drop((running, queued, discarded));
    server.wait_for_metric("connections", 0.0);
    assert_eq!(server.metric("requests_total"), 2.0);
}

#[test]
fn discard_oldest_never_answers_the_one_that_queued_longest() {
    let server = full_pool("discard-oldest", "request");
    let (mut running, mut queued) = fill(&server, FOR_A_WHILE);
    let mut newest = server.connect();
    newest.ask("/?payload=3");
    assert_eq!((running.answer().2.len(), newest.answer().2.len()), (1, 3));
    assert!(queued.is_silent());
    assert_eq!((server.metric("tasks_rejected_total"), server.metric("queue_length")), (1.0, 0.0));
}

#[test]
fn connections_are_refused_by_the_same_policies() {
    std::thread::scope(|scope| {
        for policy in ["abort", "discard", "discard-oldest", "caller-runs"] {
            scope.spawn(move || refuse_a_connection(policy));
        }
    });
}

fn refuse_a_connection(policy: &str) {
    let server = full_pool(policy, "connection");
    let (mut running, mut queued) = fill(&server, FOR_A_WHILE);
    let mut third = server.connect();
    third.ask("/?payload=3");
    server.wait_for_metric("tasks_rejected_total", 1.0);
    match policy {
        "abort" => {
            assert_eq!(third.answer().0, 503);
            assert!(third.is_closed());
        }
        "discard" => assert!(third.is_silent()),
        "caller-runs" => assert_eq!(third.answer().2.len(), 3),
        _ => {}
    }
    assert_eq!(running.answer().2.len(), 1);
    drop(running);
    if policy == "discard-oldest" {
        assert_eq!(third.answer().2.len(), 3);
        assert!(queued.is_silent());
    } else {
        assert_eq!(queued.answer().2.len(), 2);
    }
    drop((queued, third));
    server.wait_for_metric("connections", 0.0);
}

#[test]
fn threads_beyond_the_core_come_only_with_a_full_queue_and_go_when_idle() {
    let server =
        Server::start(&["--model", "bounded", "--core", "1", "--max", "2", "--queue", "1", "--keep-alive", "50ms"]);
    let (mut running, mut queued) = fill(&server, FOR_A_WHILE);
    assert_eq!(server.metric("pool_threads"), 1.0);
    let mut third = server.connect();
    third.ask("/?payload=3");
    server.wait_for_metric("pool_largest", 2.0);
    assert_eq!(third.answer().2.len(), 3);
    assert_eq!((running.answer().2.len(), queued.answer().2.len()), (1, 2));
    server.wait_for_metric("pool_threads", 1.0);
    assert_eq!(server.metric("pool_largest"), 2.0);
}
