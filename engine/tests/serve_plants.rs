//! Tests that every planted bottleneck limits the server as arithmetic says. Requests are counted over a while and
//! bounded on the side that a busy machine cannot cross: it may serve fewer than the capacity, never more.

use std::time::{Duration, Instant};

use crate::serve_support::{Client, Server, wait_until};

/// Runs `clients` closed loops for a while, and for at least one request each. Returns the number of answers, and the
/// time taken.
fn drive(server: &Server, clients: usize, during: Duration) -> (u64, f64) {
    let connected: Vec<_> = (0..clients).map(|_| server.connect()).collect();
    let started = Instant::now();
    let answered: u64 = std::thread::scope(|scope| {
        let handles: Vec<_> = connected
            .into_iter()
            .map(|mut client| {
                scope.spawn(move || {
                    let mut answered = 0;
                    while answered == 0 || started.elapsed() < during {
                        assert_eq!(client.get("/").0, 200);
                        answered += 1;
                    }
                    answered
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum()
    });
    (answered, started.elapsed().as_secs_f64())
}

/// Checks that a server stays within its capacity, allowing one request more for each of the `slots` that work at once.
fn assert_capacity(server: &Server, clients: usize, per_s: f64, slots: f64) {
    let (answered, seconds) = drive(server, clients, Duration::from_millis(500));
    assert!(answered as f64 <= per_s * seconds * 1.02 + slots, "{answered} in {seconds} s, not {per_s}/s");
}

#[test]
fn a_slow_database_serves_no_more_than_it_can_at_once() {
    let options =
        ["--threads", "12", "--downstream-kind", "tcp", "--downstream-limit", "2", "--downstream-wait", "10ms"];
    let server = Server::start(&options);
    assert_capacity(&server, 12, 200.0, 4.0);
    assert_eq!(server.metric("downstream_limit"), 2.0);
    server.wait_for_metric("downstream_in_use", 0.0);
}

#[test]
fn few_connections_to_a_fast_database_are_a_limit_of_their_own() {
    let server = Server::start(&[
        "--threads",
        "12",
        "--downstream-kind",
        "tcp",
        "--downstream-limit",
        "50",
        "--downstream-connections",
        "3",
        "--downstream-wait",
        "10ms",
    ]);
    assert_capacity(&server, 12, 300.0, 6.0);
    // The wait that a request asks for reaches the database.
    let started = Instant::now();
    assert_eq!(server.get("/?downstream-wait=60ms").0, 200);
    assert!(started.elapsed() >= Duration::from_millis(45), "{:?}", started.elapsed());
}

#[test]
fn a_blocked_event_loop_serves_one_request_after_the_other() {
    let blocking =
        Server::start(&["--model", "event-loop", "--instances", "2", "--loop-waits", "block", "--wait", "10ms"]);
    assert_capacity(&blocking, 8, 200.0, 4.0);
    let calling = Server::start(&[
        "--model",
        "event-loop",
        "--loop-waits",
        "block",
        "--downstream-kind",
        "tcp",
        "--downstream-limit",
        "9",
        "--downstream-wait",
        "10ms",
    ]);
    assert_capacity(&calling, 8, 100.0, 2.0);
}

#[test]
fn nobody_is_answered_during_a_collection_in_any_model() {
    for model in ["fixed", "thread-per-connection", "event-loop"] {
        let server = Server::start(&["--model", model, "--gc-every", "100ms", "--gc-for", "60ms"]);
        let mut client = server.connect();
        let started = Instant::now();
        let mut longest = Duration::ZERO;
        while started.elapsed() < Duration::from_secs(1) {
            let asked = Instant::now();
            assert_eq!(client.get("/").0, 200);
            longest = longest.max(asked.elapsed());
        }
        assert!(longest >= Duration::from_millis(50), "{model}: {longest:?}");
        let (pauses, seconds) = (server.metric("gc_pauses_total"), server.metric("gc_pause_seconds_total"));
        assert!(pauses >= 2.0 && seconds >= pauses * 0.06, "{model}: {pauses}, {seconds} s");
    }
}

#[test]
fn a_collection_stops_cpu_work_in_progress() {
    let server = Server::start(&["--gc-every", "50ms", "--gc-for", "30ms"]);
    let asked = Instant::now();
    assert_eq!(server.get("/?cpu=60ms").0, 200);
    // 60 ms of work fit into no less than three periods' worth of gaps of at most 20 ms, after a first one of 50.
    assert!(asked.elapsed() >= Duration::from_millis(80), "{:?}", asked.elapsed());
}

/// The minor faults of the server, from /proc/PID/stat.
fn minor_faults(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(7).unwrap().parse().unwrap()
}

#[test]
fn each_request_faults_for_every_page_it_touches() {
    let server = Server::start(&["--threads", "2", "--memory", "1048576"]);
    let mut client = server.connect();
    client.get("/");
    let before = minor_faults(&server);
    for _ in 0..10 {
        client.get("/");
    }
    let faults = minor_faults(&server) - before;
    assert!((2560..3500).contains(&faults), "{faults}");
}

/// The involuntary switches of a server's thread, from its status file.
fn involuntary_switches(server: &Server, thread: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let statuses = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    let named = statuses.filter(|status| status.starts_with(&format!("Name:\t{thread}")));
    named.map(|status| status.rsplit('\t').next().unwrap().trim().parse::<u64>().unwrap()).sum()
}

#[test]
fn yielding_threads_switch_when_there_are_others_to_run() {
    let server = Server::start(&["--threads", "16", "--yields", "300"]);
    let (answered, _) = drive(&server, 16, Duration::from_millis(300));
    let switches = involuntary_switches(&server, "pool-");
    // With 16 CPUs or more, each of the 16 threads has its own.
    if std::thread::available_parallelism().unwrap().get() < 16 {
        assert!(switches > answered * 30, "{switches} for {answered} requests");
    }
}

#[test]
fn without_descriptors_the_rest_are_connected_and_not_served_until_one_leaves() {
    for model in [&["--model", "thread-per-connection"][..], &["--model", "fixed"], &["--model", "event-loop"]] {
        let server = Server::start(&[model, &["--descriptors", "32"]].concat());
        let mut clients: Vec<Client> = (0..40).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.ask("/"));
        let (mut served, mut waiting): (Vec<_>, Vec<_>) = clients.into_iter().enumerate().partition(|(i, _)| *i < 15);
        served.iter_mut().for_each(|(_, client)| assert_eq!(client.answer().0, 200));
        let (_, last) = waiting.last_mut().unwrap();
        assert!(last.is_silent(), "{model:?}");
        let (_, mut last) = waiting.pop().unwrap();
        drop((served, waiting));
        assert_eq!(last.answer().0, 200, "{model:?}");
    }
}

#[test]
fn slow_acceptance_limits_new_connections() {
    for model in [&["--model", "thread-per-connection"][..], &["--model", "event-loop", "--instances", "2"], &[]] {
        let server = Server::start(&[model, &["--accept-delay", "20ms"]].concat());
        let started = Instant::now();
        let clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
        assert!(started.elapsed() < Duration::from_secs(5), "the kernel connects them at once");
        for mut client in clients {
            assert_eq!(client.get("/").0, 200);
        }
        // Waits may end early by a quarter.
        assert!(started.elapsed() >= Duration::from_millis(150), "{model:?}: {:?}", started.elapsed());
    }
}

#[test]
fn who_is_connected_is_served_while_others_wait_to_be_accepted() {
    let server = Server::start(&["--accept-delay", "200ms"]);
    let mut first = server.connect();
    assert_eq!(first.get("/").0, 200);
    let waiting: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    let asked = Instant::now();
    assert_eq!(first.get("/").0, 200);
    assert!(asked.elapsed() < Duration::from_secs(5), "all 40 take 8 s: {:?}", asked.elapsed());
    drop(waiting);
}

#[test]
fn a_backlog_of_one_overflows() {
    let server = Server::start(&["--model", "thread-per-connection", "--backlog", "1", "--accept-delay", "500ms"]);
    let overflows = || -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/net/netstat", server.child.id())).unwrap();
        let mut rows = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
        let column = names.split(' ').position(|name| name == "ListenOverflows").unwrap();
        values.split(' ').nth(column).unwrap().parse().unwrap()
    };
    let before = overflows();
    let address = server.address;
    let connecting: Vec<_> = (0..6)
        .map(|_| {
            std::thread::spawn(move || std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok())
        })
        .collect();
    wait_until("the accept queue has overflowed", || overflows() > before);
    let connected: Vec<bool> = connecting.into_iter().map(|handle| handle.join().unwrap()).collect();
    assert!(connected.contains(&true), "{connected:?}");
}
