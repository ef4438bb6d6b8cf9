//! Whole runs of the load engine: phases and commands, both models, limits, and how a run ends.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::load_support::*;
use serde_json::{Value, json};

fn slow(answer_after: Duration) -> std::net::SocketAddr {
    serve(move |mut peer| {
        while peer.request().is_some() {
            std::thread::sleep(answer_after);
            peer.send(OK.as_bytes());
        }
    })
}

fn silent() -> std::net::SocketAddr {
    serve(|peer| peer.hold())
}

/// Sends a signal to a living child.
fn signal(pid: i32, signal: i32) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// A load that runs until it is told to stop.
fn endless(address: std::net::SocketAddr) -> Value {
    let mut spec = spec(address);
    spec["model"] = json!({"kind": "closed", "users": 3, "think": {"kind": "exponential", "mean_ns": 5 * MS}});
    spec["phases"]["warmup_ns"] = Value::Null;
    spec["phases"]["go_at_once"] = json!(false);
    spec["interval_ns"] = json!(20 * MS);
    spec["histogram_every"] = json!(3);
    spec
}

/// In step they would send all at 0, 400 and 800 ms, and so nothing in the window.
#[test]
fn users_who_begin_together_and_pause_for_one_time_do_not_stay_in_step() {
    for think in [
        json!({"kind": "constant", "ns": 400 * MS}),
        json!({"kind": "uniform", "min_ns": 390 * MS, "max_ns": 410 * MS}),
    ] {
        let mut spec = spec(always(OK));
        spec["model"] = json!({"kind": "closed", "users": 100, "think": think});
        spec["phases"]["warmup_ns"] = json!(500 * MS);
        spec["phases"]["measure_ns"] = json!(200 * MS);
        let scheduled = number(&run(&spec)["cohort"]["scheduled"]);
        assert!((20..=80).contains(&scheduled), "{scheduled} of 50 with {think}");
    }
}

/// With each pause of the first pass cut, they would send twice as often as asked.
#[test]
fn users_send_as_often_in_their_first_pass_through_a_scenario_as_later() {
    let mut spec = spec(always(OK));
    spec["scenario"] = (0..5).map(|step| json!({"name": format!("step {step}")})).collect();
    spec["model"] = json!({"kind": "closed", "users": 100, "think": {"kind": "constant", "ns": 200 * MS}});
    spec["phases"]["warmup_ns"] = json!(250 * MS);
    spec["phases"]["measure_ns"] = json!(200 * MS);
    let scheduled = number(&run(&spec)["cohort"]["scheduled"]);
    assert!((80..=120).contains(&scheduled), "{scheduled} of 100");
}

/// With a first pause of 200 ms at most they would all be at two of the four steps in the window.
#[test]
fn a_long_first_pause_spreads_users_who_begin_together_over_all_steps() {
    let mut spec = spec(always(OK));
    spec["scenario"] = (0..4).map(|step| json!({"name": format!("step {step}")})).collect();
    let think = json!({"kind": "constant", "ns": 200 * MS});
    spec["model"] = json!({"kind": "closed", "users": 100, "think": think, "first_pause_ns": 800 * MS});
    spec["phases"]["warmup_ns"] = json!(850 * MS);
    spec["phases"]["measure_ns"] = json!(200 * MS);
    let summary = run(&spec);
    let steps: Vec<u64> = (0..4).map(|step| sum(&summary["steps"][step]["outcomes"])).collect();
    assert!(steps.iter().all(|count| (8..=50).contains(count)), "{steps:?} of 25 each");
}

#[test]
fn commands_move_the_phases() {
    let mut run = Run::start(&endless(always(OK)));
    run.until("armed");
    run.command(json!({"type": "go", "at_ns": 0}));
    assert_eq!(run.until("phase")["phase"], "warmup");
    run.until("interval");
    run.command(json!({"type": "measure", "at_ns": 0}));
    let measure = run.until("phase");
    assert_eq!(measure["phase"], "measure");
    run.until("interval");
    run.until("interval");
    run.command(json!({"type": "drain"}));
    let drain = run.until("phase");
    assert_eq!(drain["phase"], "drain");
    let summary = run.summary();
    assert_eq!(summary["ended_by"], "drain");
    assert_eq!(summary["measure_start_ns"], measure["at_ns"]);
    assert_eq!(summary["measure_end_ns"], drain["at_ns"]);
    // Little's law: time in the system and pauses add up to the users' time, with what the edges cut.
    let window = &summary["window"];
    let user_ns = number(&window["user_ns"]);
    let busy_ns = number(&window["time_in_system_ns_sum"])
        + number(&window["think_ns_sum"])
        + number(&window["carried_out_ns_sum"])
        - number(&window["carried_in_ns_sum"]);
    let length_ns = number(&summary["measure_end_ns"]) - number(&summary["measure_start_ns"]);
    assert_eq!(user_ns, 3 * length_ns);
    assert!(busy_ns.abs_diff(user_ns) < user_ns / 50, "{busy_ns} of {user_ns}");
    assert_eq!(number(&window["unanswered"]), 0);
}

#[test]
fn users_that_wait_all_through_the_window_are_counted() {
    let mut run = Run::start(&endless(silent()));
    run.command(json!({"type": "go", "at_ns": 0}));
    run.until("interval");
    run.command(json!({"type": "measure", "at_ns": 0}));
    run.until("phase");
    run.until("interval");
    run.command(json!({"type": "drain"}));
    let summary = run.summary();
    let window = &summary["window"];
    assert_eq!(number(&window["unanswered"]), 3);
    assert_eq!(
        number(&window["user_ns"]),
        number(&window["carried_out_ns_sum"]) - number(&window["carried_in_ns_sum"])
    );
}

#[test]
fn intervals_carry_every_response_time_once() {
    let mut run = Run::start(&endless(always(OK)));
    run.command(json!({"type": "go", "at_ns": 0}));
    run.command(json!({"type": "measure", "at_ns": 0}));
    std::thread::sleep(Duration::from_millis(150));
    run.command(json!({"type": "drain"}));
    let summary = run.summary();
    let intervals = run.events.iter().filter(|event| event["type"] == "interval");
    let counted: u64 =
        intervals.filter_map(|interval| interval.get("response_time_ns")).map(|h| histogram(h).len()).sum();
    assert_eq!(counted, number(&summary["total"]["outcomes"]["ok"]));
}

#[test]
fn the_end_of_stdin_stops_at_once() {
    let mut run = Run::start(&endless(silent()));
    run.command(json!({"type": "go", "at_ns": 0}));
    run.until("interval");
    let closed = Instant::now();
    run.close_stdin();
    let summary = run.summary();
    assert!(closed.elapsed() < Duration::from_secs(5));
    assert_eq!(summary["ended_by"], "stop");
    assert_eq!(summary["total"]["outcomes"], json!({"unfinished": 3}));
}

#[test]
fn the_end_of_stdin_before_go_ends_too() {
    let mut run = Run::start(&endless(silent()));
    run.until("armed");
    run.close_stdin();
    assert_eq!(run.error(1).0, "launch");
}

#[test]
fn the_deadline_stands_above_everything() {
    let mut spec = endless(silent());
    spec["timeouts"]["request_ns"] = json!(60_000 * MS);
    spec["phases"]["go_at_once"] = json!(true);
    spec["phases"]["deadline_ns"] = json!(200 * MS);
    let summary = run(&spec);
    assert_eq!(summary["ended_by"], "deadline");
    assert_eq!(summary["total"]["outcomes"], json!({"unfinished": 3}));
}

#[test]
fn what_does_not_finish_in_the_drain_is_unfinished() {
    let mut spec = open_spec(silent(), 100.0, 300, 100);
    spec["phases"]["drain_ns"] = json!(50 * MS);
    let summary = run(&spec);
    assert_eq!(summary["ended_by"], "time");
    assert_eq!(summary["cohort"]["outcomes"], json!({"unfinished": 30}));
    let waited = histogram(&summary["cohort_times"]["failed_time_ns"]);
    assert!(waited.max() >= 340 * MS, "the first waited from the start to the end of the drain");
}

#[test]
fn arrivals_that_find_no_room_are_dropped_and_counted() {
    for threads in [1, 2] {
        let mut spec = open_spec(slow(Duration::from_millis(50)), 500.0, 500, 4);
        spec["threads"] = json!(threads);
        let summary = run(&spec);
        assert_eq!(number(&summary["cohort"]["scheduled"]), 250);
        assert!(number(&summary["cohort"]["dropped"]) > 150, "{}", summary["cohort"]);
        assert!(number(&summary["connections"]["open_max"]) <= 4);
    }
}

#[test]
fn an_arrival_runs_the_whole_scenario_with_its_pauses() {
    let mut spec = open_spec(always(OK), 10.0, 2_000, 50);
    spec["scenario"] = json!([{"name": "one"}, {"name": "two", "path": "/2"}]);
    spec["model"]["think"] = json!({"kind": "constant", "ns": MS});
    let summary = run(&spec);
    assert_eq!(sum(&summary["steps"][0]["outcomes"]), 20);
    assert!(sum(&summary["steps"][1]["outcomes"]) >= 18, "all but arrivals that the end of the window cut short");
}

/// The server answers nobody for a second. In the open model every arrival of that second waits, which its response
/// time shows; a user of the closed model waits once.
#[test]
fn a_stall_shows_in_the_response_times_of_an_open_load() {
    let start = OnceLock::new();
    let address = serve(move |mut peer| {
        while peer.request().is_some() {
            let since = start.get_or_init(Instant::now).elapsed();
            let stall = Duration::from_millis(500)..Duration::from_millis(1500);
            if stall.contains(&since) {
                std::thread::sleep(stall.end - since);
            }
            peer.send(OK.as_bytes());
        }
    });
    // There are only ten connections: arrivals behind a stalled one are pipelined, and wait.
    let mut spec = open_spec(address, 200.0, 2_500, 400);
    spec["connection"] = json!({"pipeline": 40});
    let summary = run(&spec);
    assert_eq!(summary["cohort"]["outcomes"], json!({"ok": 500}));
    let response = histogram(&summary["cohort_times"]["response_time_ns"]);
    assert!(response.value_at_quantile(0.99) > 800 * MS, "p99 {}", response.value_at_quantile(0.99));
    let waited = response.count_between(100 * MS, u64::MAX);
    assert!(waited >= 120, "{waited} of the 200 arrivals of the stalled second waited");
    let service = histogram(&summary["cohort_times"]["service_time_ns"]);
    for quantile in [0.5, 0.9, 0.99, 1.0] {
        assert!(response.value_at_quantile(quantile) >= service.value_at_quantile(quantile));
    }
}

/// The engine itself is frozen: requests that it could not send on time count as waiting, although the server was
/// quick.
#[test]
fn a_stall_of_the_engine_shows_in_response_time_and_send_lag_but_not_in_service_time() {
    let mut spec = open_spec(always(OK), 200.0, 2_000, 400);
    spec["phases"]["go_at_once"] = json!(false);
    let mut run = Run::start(&spec);
    run.until("armed");
    run.command(json!({"type": "go", "at_ns": 0}));
    run.until("interval");
    signal(run.pid(), libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(700));
    signal(run.pid(), libc::SIGCONT);
    let summary = run.summary();
    assert_eq!(number(&summary["cohort"]["scheduled"]), 400);
    let p90 = |name: &str| histogram(&summary["cohort_times"][name]).value_at_quantile(0.9);
    assert!(p90("response_time_ns") > 300 * MS);
    assert!(p90("send_lag_ns") > 300 * MS);
    // On a busy machine the server may be slow as well; that adds the same to both times.
    assert!(p90("service_time_ns") + 200 * MS < p90("response_time_ns"));
}

/// How late a run that is stopped for so long, from its first interval on, says that it was.
fn late_ns_after_a_stop(spec: &Value, length: Duration) -> u64 {
    let mut run = Run::start(spec);
    run.until("interval");
    signal(run.pid(), libc::SIGSTOP);
    std::thread::sleep(length);
    signal(run.pid(), libc::SIGCONT);
    number(&run.summary()["window"]["late_ns_max"])
}

/// Its users send nothing meanwhile, which no lag of theirs shows: the summary says for how long it did not run.
#[test]
fn a_stall_of_the_engine_across_the_end_of_the_window_is_told() {
    let mut spec = spec(slow(Duration::from_millis(5)));
    spec["model"] = json!({"kind": "closed", "users": 2});
    spec["phases"]["measure_ns"] = json!(1_500 * MS);
    let late_ns = late_ns_after_a_stop(&spec, Duration::from_millis(1_900));
    assert!(late_ns > 300 * MS, "{late_ns}");
}

/// When it goes on, its threads are as late as the wait for them has been long.
#[test]
fn a_stall_of_the_engine_far_past_its_end_is_told_and_not_taken_for_a_thread_that_hangs() {
    let mut spec = spec(silent());
    spec["timeouts"]["request_ns"] = json!(60_000 * MS);
    spec["phases"]["measure_ns"] = json!(1_500 * MS);
    spec["phases"]["drain_ns"] = json!(0);
    let late_ns = late_ns_after_a_stop(&spec, Duration::from_secs(8));
    assert!(late_ns > 5_000 * MS, "{late_ns}");
}

/// One request is in flight when the engine is frozen, and is answered meanwhile: its service time is the server's
/// delay, as the kernel's time stamp shows.
#[test]
fn a_stall_of_the_engine_adds_nothing_to_the_service_time_of_what_is_answered_meanwhile() {
    let (received, receives) = channel();
    let (sent, sends) = channel();
    let (received, sent) = (Mutex::new(received), Mutex::new(sent));
    let address = serve(move |mut peer| {
        while peer.request().is_some() {
            let arrived = Instant::now();
            received.lock().unwrap().send(()).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            peer.send(OK.as_bytes());
            sent.lock().unwrap().send(arrived.elapsed()).unwrap();
        }
    });
    let mut run = Run::start(&open_spec(address, 1.0, 900, 10));
    receives.recv().unwrap();
    signal(run.pid(), libc::SIGSTOP);
    let delay = sends.recv().unwrap();
    std::thread::sleep(Duration::from_millis(600));
    signal(run.pid(), libc::SIGCONT);
    let summary = run.summary();
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 1}));
    let service_ns = histogram(&summary["cohort_times"]["service_time_ns"]).max();
    let delay_ns = delay.as_nanos() as u64;
    assert!(service_ns > 190 * MS, "{service_ns}");
    assert!(service_ns < delay_ns + 300 * MS, "{service_ns} for a delay of {delay_ns}, in a stop of 600 ms more");
}

/// The engine may send late, but must never keep a server waiting, neither for a connection nor for the reading of a
/// large response.
#[test]
fn a_coarse_precision_is_not_counted_as_the_servers_time() {
    let large: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n{}", "x".repeat(600_000)).into_boxed_str());
    for (response, keep_alive) in [(OK, false), (large, true)] {
        let precision_ns = 100 * MS; // far more than a busy machine takes for an answer
        let mut spec = open_spec(always(response), 60.0, 1_500, 400);
        spec["precision_ns"] = json!(precision_ns);
        spec["connection"] = json!({"keep_alive": keep_alive});
        let summary = run(&spec);
        assert_eq!(summary["cohort"]["outcomes"], json!({"ok": 90}));
        let service_ns = histogram(&summary["cohort_times"]["service_time_ns"]).value_at_quantile(0.5);
        assert!(service_ns < precision_ns / 2, "p50 {service_ns} with keep_alive {keep_alive}");
    }
}

/// Requests that follow an answer at once are due while others are scheduled soon, for which the engine naps.
#[test]
fn a_coarse_precision_bounds_the_delay_of_every_step_alike() {
    let precision_ns = 2 * MS;
    let mut spec = open_spec(always(OK), 200.0, 1_500, 400);
    spec["precision_ns"] = json!(precision_ns);
    spec["scenario"] = (0..4).map(|step| json!({"name": format!("step {step}")})).collect();
    let lag_ns = histogram(&run(&spec)["cohort_times"]["send_lag_ns"]).value_at_quantile(0.5);
    assert!(lag_ns < precision_ns * 3 / 2, "p50 {lag_ns}, where three of four follow an answer");
}

/// The kernel stamps the arrival of bytes, but not that of the end of a connection.
#[test]
fn a_body_that_ends_with_its_connection_is_read_to_the_end_at_once() {
    let [until_close_ns, of_known_length_ns] = ["", "Content-Length: 5\r\nConnection: close\r\n"].map(|headers| {
        let address = serve(move |mut peer| {
            if peer.request().is_some() {
                peer.send_and_close(format!("HTTP/1.1 200 OK\r\n{headers}\r\nhello").as_bytes());
            }
        });
        let mut spec = open_spec(address, 200.0, 1_500, 400);
        spec["precision_ns"] = json!(4 * MS);
        let summary = run(&spec);
        assert_eq!(summary["cohort"]["outcomes"], json!({"ok": 300}));
        histogram(&summary["cohort_times"]["service_time_ns"]).value_at_quantile(0.5)
    });
    let longest_ns = of_known_length_ns + 2 * MS;
    assert!(until_close_ns < longest_ns, "p50 {until_close_ns} and {of_known_length_ns}, where a nap takes 5 ms");
}

#[test]
fn a_precision_of_zero_spins_and_sends_earlier_than_a_coarse_one() {
    let run_with = |precision_ns: u64| {
        let mut spec = open_spec(always(OK), 400.0, 1_000, 100);
        spec["precision_ns"] = json!(precision_ns);
        let summary = run(&spec);
        assert_eq!(number(&summary["cohort"]["scheduled"]), 400);
        let lag_ns = histogram(&summary["cohort_times"]["send_lag_ns"]).value_at_quantile(0.5);
        (lag_ns, number(&summary["thread_cpu_ns"][0]))
    };
    let (spun_lag_ns, spun_cpu_ns) = run_with(0);
    let (coarse_lag_ns, coarse_cpu_ns) = run_with(50 * MS);
    assert!(spun_lag_ns < coarse_lag_ns / 2, "{spun_lag_ns} and {coarse_lag_ns}");
    assert!(spun_cpu_ns > coarse_cpu_ns, "{spun_cpu_ns} and {coarse_cpu_ns}");
}

#[test]
fn random_arrivals_scatter_and_come_from_the_seed() {
    let schedule = |arrivals: &str, seed: u64| {
        let mut spec = open_spec(always(OK), 1_000.0, 1_000, 500);
        spec["model"]["arrivals"] = json!(arrivals);
        spec["seed"] = json!(seed);
        spec["interval_ns"] = json!(20 * MS);
        let mut run = Run::start(&spec);
        let scheduled = number(&run.summary()["cohort"]["scheduled"]);
        let measured = run.events.iter().filter(|event| event["type"] == "interval" && event["phase"] == "measure");
        let counts: Vec<f64> = measured.map(|interval| number(&interval["scheduled"]) as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (scheduled, variance / mean)
    };
    let (count, dispersion) = schedule("poisson", 7);
    assert!((840..=1160).contains(&count), "{count} is within 5 standard deviations of 1000");
    assert!(dispersion > 0.4, "{dispersion}: 1 for a Poisson process, 0 for even arrivals");
    assert_eq!(schedule("poisson", 7).0, count, "the schedule comes from the seed alone");
    assert_ne!(schedule("poisson", 8).0, count);
}

#[test]
fn users_ramp_up_and_are_dealt_to_threads() {
    let mut spec = spec(always(OK));
    spec["threads"] = json!(3);
    spec["model"] = json!({"kind": "closed", "users": 10, "ramp_ns": 100 * MS, "requests_per_user": 7});
    let mut run = Run::start(&spec);
    let summary = run.summary();
    assert_eq!(summary["ended_by"], "work");
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 70}));
    assert_eq!(number(&summary["connections"]["opened"]), 10);
    let took_ns = number(&summary["measure_end_ns"]) - number(&summary["go_ns"]);
    assert!(took_ns >= 90 * MS, "the last user starts after 90 ms");
}

#[test]
fn steps_that_nobody_reaches_take_no_memory() {
    let mut spec = spec(always(OK));
    spec["scenario"] = (0..500).map(|step| json!({"name": format!("step {step}")})).collect();
    let summary = run(&spec);
    assert_eq!(summary["steps"][2]["outcomes"], json!({"ok": 2}));
    let used = number(&summary["max_rss_bytes"]);
    assert!(used < 100 << 20, "{used} bytes; the histograms of all steps have room for 270 MB");
}

#[test]
fn a_descriptor_limit_of_256_gives_an_error_or_an_outcome_and_never_a_hang() {
    let limited = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", ENGINE]);
        shell
    };
    let mut closed = spec(always(OK));
    closed["model"] = json!({"kind": "closed", "users": 1000});
    let (kind, message) = Run::start_as(&mut limited(), &closed).refusal();
    assert_eq!(kind, "limit");
    assert!(message.contains("model.users: 1000 users need") && message.contains("256"), "{message}");

    let mut open = open_spec(silent(), 1000.0, 600, 1000);
    open["phases"]["drain_ns"] = json!(100 * MS);
    let summary = Run::start_as(&mut limited(), &open).summary();
    let outcomes = &summary["total"]["outcomes"];
    assert!(number(&outcomes["no_descriptors"]) > 100 && number(&outcomes["unfinished"]) > 200, "{outcomes}");
}

#[test]
fn source_addresses_and_ports_are_used_in_turn() {
    let address = serve(|mut peer| {
        let from = match peer.peer_address() {
            std::net::IpAddr::V4(address) => address.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        };
        let body = format!("from {from}.");
        while peer.request().is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        }
    });
    let mut spec = spec(address);
    spec["target"]["source_addresses"] = json!(["127.0.0.3", "127.0.0.4"]);
    spec["scenario"][0]["checks"] = json!({"body_contains": ["from 3."]});
    assert_eq!(outcomes(&spec), json!({"ok": 3, "check_failed": 3}));
}

#[test]
fn wrong_specs_are_refused_with_the_field() {
    let refused = |change: fn(&mut Value)| {
        let mut spec = spec("127.0.0.1:9".parse().unwrap());
        change(&mut spec);
        Run::start(&spec).refusal()
    };
    let wrong = refused(|spec| spec["model"]["users"] = json!(0));
    assert_eq!(wrong, ("spec".into(), "model.users: 0 must be at least 1".into()));
    let (kind, message) = refused(|spec| spec["phases"]["drain"] = json!(1));
    assert!(kind == "spec" && message.starts_with("phases") && message.contains("unknown field `drain`"), "{message}");
    let (kind, message) = refused(|spec| spec["target"]["url"] = json!("http://192.0.2.1"));
    assert!(kind == "spec" && message.contains("allow_remote"), "{message}");
    let (kind, message) = refused(|spec| spec["target"]["url"] = json!("http://no-such-host.invalid"));
    assert!(kind == "resolve" && message.contains("no-such-host.invalid"), "{message}");
    let (kind, message) = refused(|spec| spec["cpus"] = json!([1023]));
    assert!(kind == "spec" && message.starts_with("cpus: cannot run on [1023]: "), "{message}");
    assert_eq!(refused(|spec| spec["cpus"] = json!([5000])).1, "cpus: there is no CPU 5000");
}

#[test]
fn alone_it_prints_a_summary_and_an_interrupt_ends_it_early() {
    let address = always(OK);
    let mut alone = Command::new(ENGINE);
    alone.args(["load", &format!("http://{address}/"), "-c", "2", "-d", "60s"]).stdout(Stdio::piped());
    let mut child = alone.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    signal(child.id() as i32, libc::SIGINT);
    stdout.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    for part in
        ["1 thread and 2 connections", "Response time", "Service time", "send lag", "Requests/sec:", "CPU per request"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn alone_it_ends_with_its_terminal_unless_told_to_stay() {
    let address = always(OK);
    for (handling, length) in [(libc::SIG_DFL, "60s"), (libc::SIG_IGN, "300ms")] {
        let mut alone = Command::new(ENGINE);
        alone.args(["load", &format!("http://{address}/"), "-c", "2", "-d", length]).stdout(Stdio::piped());
        // SAFETY: signal() is async-signal-safe.
        unsafe { alone.pre_exec(move || Ok(_ = libc::signal(libc::SIGHUP, handling))) };
        let mut child = alone.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        signal(child.id() as i32, libc::SIGHUP);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        let ends_with_it = handling == libc::SIG_DFL;
        assert_eq!(child.wait().unwrap().signal(), ends_with_it.then_some(libc::SIGHUP));
        assert_eq!(rest.contains("Requests/sec:"), !ends_with_it, "{rest}");
    }
}

#[test]
fn alone_it_ranks_requests_without_a_correct_response_last() {
    let address = serve(|mut peer| {
        for answer in [OK, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"].iter().cycle() {
            if peer.request().is_none() {
                return;
            }
            peer.send(answer.as_bytes());
        }
    });
    let mut alone = Command::new(ENGINE);
    alone.args(["load", &format!("http://{address}/"), "-c", "1", "-d", "200ms"]);
    let text = String::from_utf8(alone.output().unwrap().stdout).unwrap();
    let row = |quantile: &str| text.lines().find(|line| line.trim_start().starts_with(quantile)).unwrap_or_default();
    assert!(row("75% ").contains(">=") && row("99% ").contains(">="), "{text}");
    assert!(text.contains("requests due had no correct response: they rank last"), "{text}");
}

#[test]
fn alone_it_ends_in_peace_when_nobody_reads_its_summary() {
    let mut alone = Command::new(ENGINE);
    alone.args(["load", &format!("http://{}/", always(OK)), "-c", "2", "-d", "200ms"]);
    let mut child = alone.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn an_interrupt_ends_an_engine_that_still_waits_for_its_spec() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let mut command = Command::new(ENGINE);
        command.arg("load").stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: signal() is async-signal-safe. A shell starts its background jobs with SIGINT ignored.
        unsafe { command.pre_exec(move || Ok(_ = libc::signal(number, libc::SIG_DFL))) };
        let mut child = command.spawn().unwrap();
        let mut hello = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut hello).unwrap();
        assert!(hello.contains("hello"), "{hello}");
        signal(child.id() as i32, number);
        assert_eq!(child.wait().unwrap().signal(), Some(number));
    }
}

#[test]
fn on_a_terminal_without_a_url_it_says_how_it_is_used() {
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: both descriptors are written to live integers; name, settings and size are left out.
    assert_eq!(unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null_mut(), null_mut()) }, 0);
    // SAFETY: both descriptors were just opened and belong to nobody else.
    let (_ours, theirs) = unsafe { (Stdio::from_raw_fd(ours), Stdio::from_raw_fd(theirs)) };
    let output = Command::new(ENGINE).arg("load").stdin(theirs).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("no URL") && text.contains("powerband-engine load http://"), "{text}");
}
