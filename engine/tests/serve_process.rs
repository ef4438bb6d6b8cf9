//! Tests the server as a process: its metrics page, its signals, its answers to user errors, and its misbehaviours.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::serve_support::{Client, Server, command, wait_until};

#[test]
fn the_metrics_page_is_prometheus_text() {
    for args in [
        &["--model", "bounded", "--downstream-limit", "2"][..],
        &["--model", "fixed"],
        &["--model", "event-loop", "--instances", "2"],
        &["--model", "thread-per-connection"],
    ] {
        let server = Server::start(args);
        assert_eq!(server.get("/").0, 200);
        let mut client = server.connect();
        client.ask("/metrics");
        let (_, head, page) = client.answer();
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        let metrics = parse(std::str::from_utf8(&page).unwrap());
        assert_eq!(metrics["requests_total"], 1.0);
        match args[1] {
            "bounded" => {
                assert_eq!((metrics["pool_core"], metrics["pool_max"], metrics["queue_limit"]), (8.0, 16.0, 100.0));
                assert_eq!((metrics["pool_threads"], metrics["pool_largest"]), (1.0, 1.0));
                assert_eq!(metrics["downstream_limit"], 2.0);
            }
            "fixed" => assert_eq!(metrics["queue_limit"], f64::INFINITY),
            "event-loop" => {
                let by_loop = |i| metrics[&format!("event_loop_requests_total{{loop=\"{i}\"}}")];
                assert_eq!(by_loop(0) + by_loop(1), 1.0);
            }
            _ => assert!(!metrics.keys().any(|name| name.starts_with("pool_"))),
        }
    }
}

/// Parses a page into values by name (with labels). Fails unless every sample follows its own HELP and TYPE.
fn parse(page: &str) -> BTreeMap<String, f64> {
    assert!(page.ends_with('\n'));
    let (mut help, mut kind) = ("", ("", ""));
    let mut metrics = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("a text").0;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            kind = rest.split_once(' ').expect("a type");
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let family = name.split('{').next().unwrap();
            assert_eq!((family, family), (help, kind.0), "{line}");
            assert_eq!(family.ends_with("_total"), kind.1 == "counter", "{line}");
            assert!(["counter", "gauge"].contains(&kind.1), "{line}");
            assert!(metrics.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
        }
    }
    metrics
}

#[test]
fn metrics_and_health_are_read_while_the_pool_is_saturated() {
    let server = Server::start(&["--model", "fixed", "--threads", "1", "--wait", "60s"]);
    let mut clients: Vec<Client> = (0..5).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.ask("/"));
    server.wait_for_metric("queue_length", 4.0);
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(parse(std::str::from_utf8(&server.get("/metrics").1).unwrap())["pool_active"], 1.0);
}

#[test]
fn sigterm_and_sigint_end_every_model_with_exit_code_0_even_under_load() {
    for model in ["thread-per-connection", "cached", "fixed", "bounded", "event-loop"] {
        for signal in [libc::SIGTERM, libc::SIGINT] {
            let mut server = Server::start(&["--model", model, "--wait", "60s"]);
            let mut client = server.connect();
            client.ask("/");
            server.signal(signal);
            assert_eq!(server.wait().code(), Some(0), "{model}");
        }
    }
}

fn refused(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

#[test]
fn a_port_in_use_is_one_clear_sentence_and_exit_code_1() {
    let server = Server::start(&[]);
    let port = server.address.port().to_string();
    for more in [&[][..], &["--model", "event-loop", "--instances", "2", "--accept", "reuseport"]] {
        let output = refused(&[&["--port", &port][..], more].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(&format!("port {port} on 127.0.0.1 is already in use")), "{message}");
    }
}

#[test]
fn a_shared_port_is_not_shared_with_another_server() {
    let shared = ["--model", "event-loop", "--instances", "2", "--accept", "reuseport"];
    let server = Server::start(&shared);
    let port = server.address.port().to_string();
    assert_eq!(refused(&[&["--port", &port][..], &shared].concat()).status.code(), Some(1));
}

#[test]
fn contradictions_are_refused_in_one_sentence_with_exit_code_2() {
    for (args, says) in [
        (&["--model", "bounded", "--core", "5", "--max", "4"][..], "--core 5 is more than --max 4"),
        (&["--model", "bounded", "--queue", "0", "--policy", "discard-oldest"], "needs a --queue of at least 1"),
        (&["--model", "fixed", "--threads", "0"], "--threads must be at least 1"),
        (&["--model", "event-loop", "--instances", "0"], "--instances must be at least 1"),
        (&["--stall-every", "1s", "--stall-for", "1s"], "--stall-for must be shorter"),
        (&["--gc-every", "1s", "--gc-for", "2s"], "--gc-for must be shorter than --gc-every"),
        (
            &["--model", "event-loop", "--downstream-limit", "1", "--downstream-kind", "tcp"],
            "it needs --loop-waits block",
        ),
        (&["--model", "fixed", "--protocol", "websocket"], "add --model event-loop"),
        (&["--descriptors", "5"], "at least 16"),
        (&["--memory", "99999999999"], "--memory"),
        (&["--payload", "99999999999"], "--payload"),
        (&["--wait", "10"], "write a number and ns, us, ms"),
        (&["--misbehave", "explode"], "die-after:TIME"),
    ] {
        let output = refused(&[&["--port", "0"][..], args].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(says), "{args:?}: {message}");
    }
}

#[test]
fn never_ready_runs_but_does_not_listen() {
    let mut child = command(&["--port", "0", "--misbehave", "never-ready"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none());
    // SAFETY: our own child, not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn die_after_dies_by_itself_and_not_before() {
    let start = Instant::now();
    let mut server = Server::start(&["--misbehave", "die-after:300ms"]);
    assert_eq!(server.get("/").0, 200);
    assert_eq!(server.wait().code(), Some(70));
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn garbage_silence_and_closing_are_what_they_say() {
    let server = Server::start(&["--misbehave", "garbage"]);
    assert_eq!(server.get("/health").0, 200);
    let mut client = server.connect();
    client.ask("/");
    let mut bytes = [0; 16];
    client.stream.read_exact(&mut bytes).unwrap();
    assert!(!bytes.starts_with(b"HTTP/"));

    let server = Server::start(&["--misbehave", "silent"]);
    assert_eq!(server.get("/health").0, 200);
    let mut client = server.connect();
    client.ask("/");
    assert!(client.is_silent());

    let server = Server::start(&["--misbehave", "close"]);
    let mut stream = TcpStream::connect(server.address).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn ignore_sigterm_goes_on_until_sigint() {
    let mut server = Server::start(&["--misbehave", "ignore-sigterm"]);
    server.signal(libc::SIGTERM);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.get("/").0, 200);
    server.signal(libc::SIGINT);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn fork_escape_leaves_a_detached_process_behind() {
    let mut server = Server::start(&["--misbehave", "fork-escape"]);
    let pid = server.escaped.expect("its pid");
    assert_eq!(server.get("/").0, 200);
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives on");
    // SAFETY: the pid is that of the process that the server started for this test.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let session: u32 = fields[3].parse().unwrap();
    assert_ne!(fields[1], server.child.id().to_string(), "not our server's child");
    assert_ne!(session, server.child.id());
    wait_until("it has gone", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}
