//! The probe against planted servers: the wait that was planted is what it sees their threads wait on.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::probe_support::Probe;
use crate::serve_support::Server;
use serde_json::{Value, json};

/// Loads a server with closed loops of requests until its pool has been seen blocked often enough, and returns that
/// pool.
fn pool_under_load(options: &[&str], clients: usize, name: &str) -> Value {
    let server = Server::start(options);
    let watch = json!({"name": "subject", "pid": server.child.id()});
    let mut probe = Probe::start(&json!({"protocol": 1, "interval_ns": 20_000_000, "watch": [watch]}));
    let ended = AtomicBool::new(false);
    let event = std::thread::scope(|scope| {
        for _ in 0..clients {
            let mut client = server.connect();
            let ended = &ended;
            scope.spawn(move || {
                while !ended.load(Relaxed) {
                    client.get("/");
                }
            });
        }
        let event = probe.until_that("threads event with many observations", |event| {
            pool(event, name).is_some_and(|pool| observations(&pool) >= 100)
        });
        ended.store(true, Relaxed);
        event
    });
    probe.finish();
    pool(&event, name).unwrap()
}

fn pool(event: &Value, name: &str) -> Option<Value> {
    event["pools"].as_array()?.iter().find(|pool| pool["pool"] == name).cloned()
}

fn observations(pool: &Value) -> u64 {
    pool["blocked_on_samples"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

fn share(pool: &Value, kind: &str) -> f64 {
    pool["blocked_on_samples"][kind].as_u64().unwrap_or(0) as f64 / observations(pool) as f64
}

#[test]
fn threads_that_wait_for_a_database_are_in_its_sockets() {
    let options = ["--threads", "8", "--downstream-kind", "tcp", "--downstream-limit", "2", "--downstream-wait", "5ms"];
    let pool = pool_under_load(&options, 12, "pool");
    assert!(share(&pool, "socket") > 0.8, "{pool}");
}

#[test]
fn threads_that_wait_for_one_of_few_connections_wait_for_a_lock() {
    let options = [
        "--threads",
        "8",
        "--downstream-kind",
        "tcp",
        "--downstream-limit",
        "50",
        "--downstream-connections",
        "2",
        "--downstream-wait",
        "5ms",
    ];
    let pool = pool_under_load(&options, 12, "pool");
    assert!(share(&pool, "lock") > 0.5 && share(&pool, "socket") > 0.05, "{pool}");
}

#[test]
fn a_blocked_loop_sleeps_and_a_free_one_polls() {
    let loops = |waits| pool_under_load(&["--model", "event-loop", "--loop-waits", waits, "--wait", "5ms"], 4, "loop");
    let (blocked, free) = (loops("block"), loops("timer"));
    assert!(share(&blocked, "sleep") > 0.8, "{blocked}");
    assert!(share(&free, "poll") > 0.8, "{free}");
}

#[test]
fn one_holder_of_the_lock_sleeps_and_the_rest_wait_for_it() {
    let pool = pool_under_load(&["--threads", "8", "--lock", "5ms"], 12, "pool");
    assert!(share(&pool, "lock") > 0.7 && share(&pool, "sleep") < 0.25, "{pool}");
}
