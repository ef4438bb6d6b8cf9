//! Tests that every concurrency model answers the same requests in the same way (kept alive, pipelined, closed, cut
//! into pieces), and that each has the capacity that its settings imply, counted against bounds from arithmetic.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::serve_support::{Client, Server, descriptor_limit};

const MODELS: [&[&str]; 10] = [
    &["--model", "thread-per-connection"],
    &["--model", "cached"],
    &["--model", "cached", "--unit", "connection"],
    &["--model", "fixed", "--threads", "3"],
    &["--model", "fixed", "--threads", "3", "--unit", "connection"],
    &["--model", "bounded", "--core", "0", "--max", "3", "--queue", "10"],
    &["--model", "bounded", "--core", "1", "--max", "3", "--queue", "0", "--unit", "connection"],
    &["--model", "event-loop"],
    &["--model", "event-loop", "--instances", "3"],
    &["--model", "event-loop", "--instances", "2", "--accept", "reuseport"],
];

fn each_model(more: &[&str], check: impl Fn(&Server)) {
    for model in MODELS {
        eprintln!("model: {model:?}");
        check(&Server::start(&[model, more].concat()));
    }
}

#[test]
fn a_kept_connection_serves_many_requests_and_a_closed_one_is_closed() {
    each_model(&["--payload", "200"], |server| {
        let mut client = server.connect();
        for _ in 0..20 {
            let (status, body) = client.get("/");
            assert_eq!((status, body.len()), (200, 200));
        }
        assert_eq!(client.get("/health"), (200, b"ok\n".to_vec()));
        assert_eq!(client.get("/nowhere").0, 404);
        assert_eq!(client.get("/work?wait=5").0, 400);
        client.send("GET /work HTTP/1.1\r\nConnection: close\r\n\r\n");
        let (status, head, _) = client.answer();
        assert_eq!(status, 200);
        assert!(head.contains("Connection: close"), "{head}");
        assert!(client.is_closed());
        server.wait_for_metric("requests_total", 21.0);
        server.wait_for_metric("connections", 0.0);
        assert_eq!(server.metric("connections_accepted_total"), 1.0);
    });
}

#[test]
fn pipelined_requests_are_answered_in_order_whatever_they_wait() {
    each_model(&["--downstream-limit", "2", "--downstream-wait", "1ms"], |server| {
        let mut client = server.connect();
        let sizes: Vec<usize> = (1..=40).collect();
        let requests: String = sizes
            .iter()
            .map(|n| format!("GET /?payload={n}&wait={}us HTTP/1.1\r\n\r\n", if n % 3 == 0 { 2000 } else { 0 }))
            .collect();
        client.send(requests);
        for n in sizes {
            assert_eq!(client.answer().2.len(), n);
        }
    });
}

#[test]
fn requests_in_pieces_with_bodies_and_other_methods_are_understood() {
    each_model(&[], |server| {
        let mut client = server.connect();
        for piece in
            ["PO", "ST /?payl", "oad=3 HTTP/1.1\r\nContent-Le", "ngth: 4\r\n\r\nab", "cdHEAD / HTTP/1.1\r\n\r\n"]
        {
            client.send(piece);
            client.stream.flush().unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(client.answer().2.len(), 3);
        // HEAD has the content length of GET and no body, so the next answer follows at once.
        client.send(
            "PUT /?response=chunked&payload=9000 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        );
        assert!(client.head().contains("Content-Length: 128"));
        let (status, _, body) = client.answer();
        assert_eq!((status, body.len()), (200, 9000));
    });
}

#[test]
fn http_1_0_and_nonsense_end_their_connection() {
    each_model(&["--response", "chunked"], |server| {
        let mut old = server.connect();
        old.send("GET / HTTP/1.0\r\n\r\n");
        assert!(!old.answer().1.contains("chunked"));
        assert!(old.is_closed());
        let mut wrong = server.connect();
        wrong.send("what is this\r\n\r\n");
        assert_eq!(wrong.answer().0, 400);
        assert!(wrong.is_closed());
    });
}

#[test]
fn a_large_answer_reaches_a_slow_reader_whole() {
    each_model(&["--payload", "6000000"], |server| {
        let mut client = server.connect();
        client.ask("/");
        client.ask("/?payload=1");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(client.answer().2.len(), 6_000_000);
        assert_eq!(client.answer().2.len(), 1);
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_harms_nobody() {
    each_model(&["--wait", "20ms", "--downstream-limit", "1", "--downstream-wait", "1ms"], |server| {
        // One connection less than the smallest pool of connections has threads.
        for _ in 0..2 {
            server.connect().ask("/");
        }
        assert_eq!(server.get("/").0, 200);
        server.wait_for_metric("connections", 0.0);
        server.wait_for_metric("downstream_in_use", 0.0);
    });
}

#[test]
fn a_client_that_leaves_while_its_pipelined_request_waits_disturbs_no_other() {
    for (args, wait) in [
        (&["--instances", "1"][..], "wait=400ms"),
        (&["--instances", "1", "--downstream-limit", "1"], "downstream-wait=400ms"),
    ] {
        let server = Server::start(&[&["--model", "event-loop"], args].concat());
        // While the loop is busy, another client sends a request and leaves: the loop later reads it and cannot write
        // the answer.
        let mut busy = server.connect();
        busy.ask("/?cpu=500ms");
        for _ in 0..3 {
            let mut leaving = server.connect();
            leaving.send(format!("GET /health HTTP/1.1\r\n\r\nGET /?{wait} HTTP/1.1\r\n\r\n"));
            leaving.reset();
        }
        assert_eq!(busy.answer().0, 200);
        drop(busy);
        // The next client may get a descriptor that the client before it had, but nothing that was meant for that
        // client.
        let mut next = server.connect();
        let start = Instant::now();
        assert_eq!(next.get("/?wait=1500ms").0, 200);
        assert!(start.elapsed() >= Duration::from_millis(1100), "{:?}", start.elapsed());
        drop(next);
        server.wait_for_metric("connections", 0.0);
        if args.contains(&"--downstream-limit") {
            server.wait_for_metric("downstream_in_use", 0.0);
        }
    }
}

/// Sends requests from `users` connections, again and again for `length`, and returns the number of answers within that
/// time.
fn answers_within(server: &Server, users: usize, length: Duration) -> u64 {
    let end = Instant::now() + length;
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..users)
            .map(|_| {
                let mut client = server.connect();
                scope.spawn(move || {
                    let mut answered = 0;
                    while Instant::now() < end {
                        assert_eq!(client.get("/").0, 200);
                        answered += u64::from(Instant::now() < end);
                    }
                    answered
                })
            })
            .collect();
        users.into_iter().map(|user| user.join().unwrap()).sum()
    })
}

#[test]
fn no_model_answers_more_than_its_capacity_allows() {
    let length = Duration::from_millis(400);
    // Settings that serve at most this many requests at a time, each for 10 ms.
    for (args, at_once) in [
        (&["--model", "fixed", "--threads", "4", "--wait", "10ms"][..], 4),
        (&["--model", "bounded", "--core", "1", "--max", "2", "--queue", "1000", "--wait", "10ms"], 1),
        (
            &[
                "--model",
                "bounded",
                "--core",
                "1",
                "--max",
                "3",
                "--queue",
                "2",
                "--wait",
                "10ms",
                "--policy",
                "caller-runs",
            ],
            4, // its threads and the poller
        ),
        (&["--model", "cached", "--downstream-limit", "3", "--downstream-wait", "10ms"], 3),
        (&["--model", "event-loop", "--downstream-limit", "3", "--downstream-wait", "10ms"], 3),
        (&["--model", "event-loop", "--instances", "2", "--cpu", "10ms"], 2),
        (&["--model", "thread-per-connection", "--lock", "10ms"], 1),
        (&["--model", "event-loop", "--instances", "4", "--lock", "10ms", "--lock-kind", "burn"], 1),
    ] {
        let server = Server::start(args);
        let answered = answers_within(&server, 12, length);
        // Waits are 10 ms in the mean, each shorter by 150 us at most; one more round may be under way at the end.
        let bound = at_once as f64 * (length.as_secs_f64() / 0.009_85 + 1.0);
        assert!(answered > 0 && answered as f64 <= bound, "{args:?}: {answered} answers, at most {bound}");
    }
}

#[test]
fn waits_hold_up_neither_an_event_loop_nor_an_unlimited_pool() {
    for args in [&["--model", "event-loop"][..], &["--model", "cached"], &["--model", "thread-per-connection"]] {
        let server = Server::start(&[args, &["--wait", "300ms"]].concat());
        let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
        let start = Instant::now();
        clients.iter_mut().for_each(|client| client.ask("/"));
        clients.iter_mut().for_each(|client| assert_eq!(client.answer().0, 200));
        // One after the other, the requests would take 15 s.
        assert!(start.elapsed() < Duration::from_secs(5), "{args:?}: {:?}", start.elapsed());
    }
}

#[test]
fn a_pool_of_connections_leaves_those_beyond_it_unserved_until_one_closes() {
    let server = Server::start(&["--model", "fixed", "--threads", "1", "--unit", "connection"]);
    let mut first = server.connect();
    assert_eq!(first.get("/").0, 200);
    let mut second = server.connect();
    second.ask("/");
    server.wait_for_metric("queue_length", 1.0);
    assert!(second.is_silent());
    drop(first);
    assert_eq!(second.answer().0, 200);
}

#[test]
fn nobody_is_answered_while_the_server_is_frozen() {
    each_model(&["--stall-every", "300ms", "--stall-for", "150ms"], |server| {
        let mut client = server.connect();
        let start = Instant::now();
        let mut longest = Duration::ZERO;
        while start.elapsed() < Duration::from_millis(700) {
            let asked = Instant::now();
            assert_eq!(client.get("/").0, 200);
            longest = longest.max(asked.elapsed());
        }
        // A request sent at the beginning of a freeze waits for nearly all of it.
        assert!(longest >= Duration::from_millis(100), "{longest:?}");
    });
}

#[test]
fn thousands_of_connections_are_held_and_served() {
    // As many connections as the limit allows, in this process and in the server.
    let count = descriptor_limit().saturating_sub(100).min(2000);
    let server = Server::start(&["--model", "event-loop", "--instances", "2"]);
    let mut clients: Vec<Client> = (0..count).map(|_| server.connect()).collect();
    server.wait_for_metric("connections", count as f64);
    clients.iter_mut().for_each(|client| client.ask("/"));
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().0, 200));
    drop(clients);
    server.wait_for_metric("connections", 0.0);
    assert_eq!(server.metric("requests_total"), count as f64);
}
