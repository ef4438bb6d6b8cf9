//! Compares the counters with programs whose counts are known: threads created, switches, CPU time, faults, sockets,
//! pools. Also checks that no counter ever falls while threads and processes come and go.

use std::net::TcpListener;

use crate::probe_support::{Bench, Probe, find, python, tree};
use serde_json::{Value, json};

const COUNTERS: [&str; 9] = [
    "threads_started",
    "cpu_user_ns",
    "cpu_system_ns",
    "context_switches",
    "voluntary_switches",
    "involuntary_switches",
    "run_wait_ns",
    "minor_faults",
    "major_faults",
];

fn assert_never_falls(events: &[Value], name: &str) {
    for field in COUNTERS {
        let values: Vec<u64> = tree(events, name).filter_map(|tree| tree[field].as_u64()).collect();
        assert!(values.is_sorted(), "{field} falls: {values:?}");
    }
}

/// True if this machine permits counting with perf; otherwise the fields must be absent.
fn perf_is_permitted() -> bool {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    // SAFETY: geteuid cannot fail.
    level.trim().parse::<i32>().is_ok_and(|level| level <= 1) || unsafe { libc::geteuid() } == 0
}

#[test]
fn threads_and_switches_are_counted_exactly_even_of_those_that_ended() {
    let bench = Bench::new();
    // 100 threads of 5 sleeps, 4 forked children of one more thread each; every sleep is a voluntary switch.
    let code = r#"
import os, threading, time
def work():
    for _ in range(5): time.sleep(0.002)
for _ in range(10):
    threads = [threading.Thread(target=work) for _ in range(10)]
    for t in threads: t.start()
    for t in threads: t.join()
for _ in range(4):
    if os.fork() == 0:
        t = threading.Thread(target=work); t.start(); t.join()
        os._exit(0)
    os.wait()
"#;
    let mut probe = Probe::start(&bench.python(code));
    let exited = probe.until("exited");
    let (events, _) = probe.finish();
    assert_eq!(exited["exit_code"], 0);
    assert_never_falls(&events, "subject");
    let last = tree(&events, "subject").last().unwrap();
    if !perf_is_permitted() {
        assert_eq!((&last["threads_started"], &last["context_switches"]), (&Value::Null, &Value::Null));
        return;
    }
    assert_eq!(last["threads_started"], 1 + 100 + 4 + 4);
    let switches = last["context_switches"].as_u64().unwrap();
    let rusage = exited["voluntary_switches"].as_u64().unwrap() + exited["involuntary_switches"].as_u64().unwrap();
    assert!(switches >= 104 * 5, "{switches}");
    // rusage also counts the wait for the start signal, and the last switch away of each task, which perf no longer
    // sees.
    assert!(switches <= rusage && rusage - switches <= 1 + 109 + 5, "perf {switches}, rusage {rusage}");
}

#[test]
fn without_events_switches_are_those_of_the_threads_that_samples_meet() {
    let bench = Bench::new();
    // Two threads of 50 sleeps each, which stay alive until both have been seen.
    let code = r#"
import threading, time
over = threading.Event()
def work():
    for _ in range(50): time.sleep(0.004)
    over.wait()
threads = [threading.Thread(target=work) for _ in range(2)]
for t in threads: t.start()
time.sleep(1)
over.set()
"#;
    let mut spec = bench.python(code);
    spec["exact_counts"] = false.into();
    let mut probe = Probe::start(&spec);
    probe.until("exited");
    let (events, _) = probe.finish();
    assert_never_falls(&events, "subject");
    let last = tree(&events, "subject").last().unwrap();
    assert_eq!((&last["threads_started"], &last["context_switches"]), (&Value::Null, &Value::Null));
    assert!(last["voluntary_switches"].as_u64().unwrap() >= 100, "{last}");
}

#[test]
fn cpu_of_ended_children_is_kept_whoever_waits_for_them() {
    let bench = Bench::new();
    // Children that are waited for; children that are never waited for (SIGCHLD ignored); children orphaned by a double
    // fork.
    let code = r#"
import os, signal, time
def burn(cpu_s):
    while time.process_time() < cpu_s: pass
def tell():
    os.write(1, b'used %d\n' % time.process_time_ns())
def child(cpu_s):
    burn(cpu_s); tell(); os._exit(0)
for _ in range(2):
    if os.fork() == 0: child(0.15)
    os.wait()
if os.fork() == 0:
    if os.fork() == 0: child(0.15)
    os._exit(0)
os.wait()
burn(0.2)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0: child(0.3)
time.sleep(0.1)
tell()
os.write(1, b'done\n')
while len(os.listdir('/proc/self/task')) and os.path.exists('/proc/self'): time.sleep(1)
"#;
    let mut probe = Probe::start(&bench.python(code));
    // 0.3 waited for + 0.15 orphan + 0.2 own + nearly 0.3 ignored (counted up to its last sample).
    let enough = |event: &Value| {
        let tree = &event["trees"][0];
        let cpu_ns = tree["cpu_user_ns"].as_u64().unwrap_or(0) + tree["cpu_system_ns"].as_u64().unwrap_or(0);
        cpu_ns >= 850_000_000 && tree["processes_now"] == 1
    };
    probe.until_that("sample with the CPU time of all", enough);
    bench.wait_for_log("done");
    let (events, _) = probe.finish();
    assert_never_falls(&events, "subject");
    let last = tree(&events, "subject").last().unwrap();
    let cpu_ns = last["cpu_user_ns"].as_u64().unwrap() + last["cpu_system_ns"].as_u64().unwrap();
    // The parent's wait, and what a child does after its message, come on top; counting anything twice would add 150 ms
    // or more.
    let log = bench.log_text();
    let used: Vec<u64> = log.lines().filter_map(|line| line.strip_prefix("used ")?.parse().ok()).collect();
    assert_eq!(used.len(), 5, "{log}");
    assert!(cpu_ns < used.iter().sum::<u64>() + 150_000_000, "{cpu_ns} where they used {used:?}");
}

#[test]
fn levels_pools_and_accept_queues_are_as_the_subject_made_them() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = r#"
import ctypes, mmap, os, socket, sys, tempfile, threading, time
libc = ctypes.CDLL(None)
def work(name):
    libc.prctl(15, name.encode(), 0, 0, 0)
    time.sleep(600)
for i in range(12): threading.Thread(target=work, args=(f'pool-1-thread-{i}',), daemon=True).start()
kept = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(7)]
file = tempfile.TemporaryFile()
file.truncate(64 << 20)
mapped = mmap.mmap(file.fileno(), 64 << 20, access=mmap.ACCESS_READ)
read = mapped[::4096]
memory = bytearray(os.urandom(1) * (32 << 20))
time.sleep(600)
"#;
    let mut spec = bench.launch(&[python(), "-c", code, &port.to_string()]);
    spec["ports"] = json!([port]);
    let mut probe = Probe::start(&spec);
    let sample = probe.until_that("sample with every level", |event| {
        let tree = &event["trees"][0];
        let memory = |field: &str| tree[field].as_u64().is_some_and(|bytes| bytes > 32 << 20);
        let levels = tree["threads_now"] == 13 && tree["sockets_now"] == 7 && event["host"]["accept_queue_now"] == 7;
        levels && memory("rss_bytes_now") && memory("pss_bytes_now") && memory("anonymous_bytes_now")
    });
    let level = |field: &str| sample["trees"][0][field].as_u64().unwrap();
    assert!(level("descriptors_now") >= 10);
    assert!(level("rss_bytes_now") >= level("anonymous_bytes_now") + (64 << 20), "it has read a file that it maps");
    assert!(sample["host"]["accept_queue_limit"].as_u64().unwrap() >= 7);
    let pool = |event: &Value| {
        let pools = event["pools"].as_array()?;
        pools.iter().find(|pool| pool["pool"] == "pool-1-thread" && pool["states_now"] == json!({"S": 12})).cloned()
    };
    let event = probe.until_that("threads event with the pool", |event| pool(event).is_some());
    let pool = pool(&event).unwrap();
    assert_eq!(pool["threads_now"], 12);
    let channels = pool["wait_channels_now"].as_object().unwrap();
    let known: u64 = channels.values().map(|count| count.as_u64().unwrap()).sum();
    assert!(known == 12 || channels.is_empty(), "{channels:?}");
    assert!(pool["blocked_ns"].as_u64().unwrap() > pool["on_cpu_ns"].as_u64().unwrap());
    probe.finish();
}

#[test]
fn the_cpus_of_a_server_are_those_on_which_its_threads_may_run() {
    let bench = Bench::new();
    // A shell that may run anywhere waits for a server that binds itself to one CPU, and later a thread to another.
    let code = r#"
import os, sys, threading, time
cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, cpus[:1])
while time.process_time() < 0.7: pass
def elsewhere():
    os.sched_setaffinity(0, cpus[-1:])
    time.sleep(600)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
threading.Thread(target=elsewhere, daemon=True).start()
print('cpus', len({cpus[0], cpus[-1]}), flush=True)
time.sleep(600)
"#;
    let sign = bench.folder.join("go");
    let script = r#""$0" -c "$1" "$2"; true"#;
    let mut probe = Probe::start(&bench.launch(&["sh", "-c", script, python(), code, sign.to_str().unwrap()]));
    probe.until_that("sample of a server with one CPU", |event| event["trees"][0]["cpus_now"] == 1);
    std::fs::write(&sign, "").unwrap();
    bench.wait_for_log("\n");
    let both = bench.log_text().trim().strip_prefix("cpus ").unwrap().parse::<u32>().unwrap();
    probe.until_that("sample of all its CPUs", |event| event["trees"][0]["cpus_now"] == both);
    probe.finish();
}

#[test]
fn what_each_blocked_thread_waits_on_is_told_by_kind() {
    let bench = Bench::new();
    let code = r#"
import ctypes, os, select, socket, threading, time
libc = ctypes.CDLL(None)
held = threading.Lock(); held.acquire()
listening = socket.create_server(('127.0.0.1', 0))
sending = socket.create_connection(listening.getsockname())
reading, _ = listening.accept()
patient = socket.create_connection(listening.getsockname()); silent = listening.accept()
patient.settimeout(600); patient = patient.makefile('rb', 0)
quiet, _ = os.pipe()
polled = select.epoll(); polled.register(quiet)
def burn():
    while True: libc.getppid()
waits = {
    'lock': held.acquire, 'sleep': lambda: time.sleep(600), 'receive': lambda: reading.recv(1), 'accept': listening.accept,
    'read': lambda: os.read(sending.fileno(), 1), 'poll': polled.poll, 'select': lambda: select.select([quiet], [], []),
    'timeout': patient.read, 'pipe': lambda: os.read(quiet, 1), 'burn': burn, 'child': lambda: os.waitpid(child, 0),
}
child = os.fork()
if child == 0: time.sleep(600)
def named(name, wait):
    libc.prctl(15, b'in-' + name.encode(), 0, 0, 0)
    wait()
for name, wait in waits.items(): threading.Thread(target=named, args=(name, wait), daemon=True).start()
time.sleep(600)
"#;
    let mut probe = Probe::start(&bench.python(code));
    let pool = |event: &Value, name: &str| {
        let pools = event["pools"].as_array().cloned().unwrap_or_default();
        pools.into_iter().find(|pool| pool["pool"] == format!("in-{name}").as_str())
    };
    let seen =
        |pool: &Value| pool["blocked_on_samples"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let event = probe.until_that("threads event with observations of the last thread", |event| {
        pool(event, "child").is_some_and(|pool| seen(&pool) >= 5u64)
    });
    for (name, kind) in [
        ("lock", "lock"),
        ("sleep", "sleep"),
        ("receive", "socket"),
        ("accept", "socket"),
        ("read", "socket"),
        ("timeout", "socket"),
        ("poll", "poll"),
        ("select", "poll"),
        ("pipe", "other"),
        ("child", "other"),
    ] {
        let pool = pool(&event, name).unwrap();
        // The interpreter's own lock may have been met once or twice on the way there.
        let in_kind = pool["blocked_on_samples"][kind].as_u64().unwrap_or(0);
        assert!(in_kind >= 3 && in_kind + 2 >= seen(&pool), "{name}: {pool}");
    }
    let burning = pool(&event, "burn").unwrap();
    let largest_ns = burning["on_cpu_ns_max"].as_u64().unwrap();
    assert!(largest_ns > 0 && largest_ns <= burning["on_cpu_ns"].as_u64().unwrap(), "{burning}");
    probe.finish();
}

#[test]
fn the_busiest_thread_of_a_pool_is_told_since_the_last_event() {
    let bench = Bench::new();
    let code = r#"
import ctypes, threading, time
libc = ctypes.CDLL(None)
def idle():
    libc.prctl(15, b'loop', 0, 0, 0)
    time.sleep(600)
for _ in range(5): threading.Thread(target=idle, daemon=True).start()
libc.prctl(15, b'loop-9', 0, 0, 0)
while True: libc.getppid()
"#;
    let mut probe = Probe::start(&bench.python(code));
    let of_loop = |event: &Value| {
        let pools = event["pools"].as_array()?;
        pools.iter().find(|pool| pool["pool"] == "loop" && pool["threads_now"] == 6).cloned()
    };
    let first = probe.until_that("first event with all loops", |event| of_loop(event).is_some());
    let second = probe.until_that("the event after it", |event| of_loop(event).is_some());
    let (first, second) = (of_loop(&first).unwrap(), of_loop(&second).unwrap());
    let number = |pool: &Value, field: &str| pool[field].as_u64().unwrap();
    let gained_ns = number(&second, "on_cpu_ns") - number(&first, "on_cpu_ns");
    let largest_ns = number(&second, "on_cpu_ns_max");
    assert!(largest_ns <= gained_ns && gained_ns - largest_ns < 20_000_000, "{largest_ns} of {gained_ns}");
    probe.finish();
}

#[test]
fn a_thousand_threads_are_met_and_never_fall() {
    let bench = Bench::new();
    let code = r#"
import threading, time
threading.stack_size(65536)
def work():
    while True: time.sleep(0.5)
for _ in range(1000): threading.Thread(target=work, daemon=True).start()
time.sleep(600)
"#;
    let mut probe = Probe::start(&bench.python(code));
    let all = |event: &Value| {
        let pools = event["pools"].as_array().into_iter().flatten();
        pools.filter_map(|pool| pool["threads_now"].as_u64()).sum::<u64>() == 1001
    };
    probe.until_that("threads event with all", all);
    probe.until("threads");
    let (events, _) = probe.finish();
    assert_never_falls(&events, "subject");
    if perf_is_permitted() {
        assert_eq!(tree(&events, "subject").last().unwrap()["threads_started"], 1001);
    }
}

#[test]
fn a_tree_may_be_watched_later_and_counts_from_then_on() {
    let bench = Bench::new();
    let code = r#"
import sys, threading, time
for _ in range(50):
    t = threading.Thread(target=time.sleep, args=(0.001,)); t.start(); t.join()
end = time.process_time() + 0.3
while time.process_time() < end: pass
print('ready', flush=True)
sys.stdin.readline()
for _ in range(30):
    t = threading.Thread(target=time.sleep, args=(0.001,)); t.start(); t.join()
print('done', flush=True)
sys.stdin.readline()
"#;
    let log = std::fs::File::create(bench.log()).unwrap();
    let mut other = std::process::Command::new(python())
        .args(["-c", code])
        .env("POWERBAND_PROBE_TEST", &bench.mark)
        .stdin(std::process::Stdio::piped())
        .stdout(log)
        .spawn()
        .unwrap();
    bench.wait_for_log("ready");
    let mut probe = Probe::start(&json!({"protocol": 1, "interval_ns": 20_000_000}));
    assert_eq!(probe.until("sample")["trees"], json!([]));
    probe.tell(&json!({"type": "watch", "name": "engine", "pid": other.id()}).to_string());
    let first = probe.until_that("sample of the tree", |event| event["trees"][0]["name"] == "engine");
    assert!(first["trees"][0]["cpu_user_ns"].as_u64().unwrap() < 200_000_000, "{first}");
    let stdin = other.stdin.as_mut().unwrap();
    std::io::Write::write_all(stdin, b"go\n").unwrap();
    bench.wait_for_log("done");
    if perf_is_permitted() {
        let seen = probe.until_that("sample of 30 threads", |event| event["trees"][0]["threads_started"] == 30);
        assert!(seen["trees"][0]["context_switches"].as_u64().unwrap() >= 30);
    }
    drop(other.stdin.take());
    other.wait().unwrap();
    probe.until_that("sample without it", |event| event["trees"][0]["processes_now"] == 0);
    let (events, status) = probe.finish();
    // A process that is merely watched is not ended, and does not count in `killed`.
    assert!(status.success());
    assert_eq!(events.last().unwrap()["killed"], 0);
    assert_never_falls(&events, "engine");
}

#[test]
fn a_person_may_watch_a_process() {
    let pid = std::process::id().to_string();
    let watch = |arguments: &[&str]| {
        std::process::Command::new(crate::probe_support::engine()).arg("probe").args(arguments).output().unwrap()
    };
    let output = watch(&["--pid", &pid, "--interval", "10ms", "-d", "200ms"]);
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(tree(&events, "process").all(|tree| tree["processes_now"].as_u64().unwrap() >= 1));
    assert_eq!(find(&events, "end")["type"], "end");
    let output = watch(&["--pid", "2147483646"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no process 2147483646"));
}

#[test]
fn a_subject_behind_a_forking_shim_is_counted_like_any_other() {
    let bench = Bench::new();
    // Like the shim of a version manager: a few short-lived helpers, then the program, here as a child that it waits
    // for.
    let code = r#"
import os, threading, time
def work():
    for _ in range(5): time.sleep(0.002)
threads = [threading.Thread(target=work) for _ in range(20)]
for t in threads: t.start()
for t in threads: t.join()
while time.process_time() < 0.4: pass
os.write(1, b'serving\n')
time.sleep(0.2)
"#;
    for last in ["exec", ""] {
        let shim = format!("for i in 1 2 3 4 5 6 7 8; do x=$(/bin/echo $i); done; {last} \"$0\" -c \"$1\"");
        let mut probe = Probe::start(&bench.launch(&["sh", "-c", &shim, python(), code]));
        let exited = probe.until("exited");
        let (events, _) = probe.finish();
        assert_eq!(exited["exit_code"], 0);
        assert_never_falls(&events, "subject");
        let processes = if last == "exec" { 1 } else { 2 };
        assert!(
            tree(&events, "subject").any(|tree| tree["threads_now"] == processes && tree["processes_now"] == processes)
        );
        let used = tree(&events, "subject").last().unwrap();
        for field in ["cpu_user_ns", "cpu_system_ns"] {
            let (sampled, exact) = (used[field].as_u64().unwrap(), exited[field].as_u64().unwrap());
            assert!(sampled.abs_diff(exact) <= 40_000_000, "{field}: {sampled}, exactly {exact}");
        }
        if perf_is_permitted() {
            // Each helper is a process; a shell may fork once more for the command in it.
            let started = used["threads_started"].as_u64().unwrap();
            assert!((processes + 20 + 8..=processes + 20 + 16).contains(&started), "{started}");
            let switches = used["context_switches"].as_u64().unwrap();
            let rusage =
                exited["voluntary_switches"].as_u64().unwrap() + exited["involuntary_switches"].as_u64().unwrap();
            assert!(switches >= 20 * 5 && switches <= rusage, "perf {switches}, rusage {rusage}");
            assert!(rusage - switches <= 1 + 2 * started, "perf {switches}, rusage {rusage}");
        }
    }
}

#[test]
fn a_child_that_ends_during_a_sample_is_not_counted_twice() {
    let bench = Bench::new();
    // Many idle members make readings slow; each busy child has used much CPU time when it ends, and is waited for at
    // once.
    let code = r#"
import os, time
idle = []
for _ in range(150):
    pid = os.fork()
    if pid == 0:
        time.sleep(600); os._exit(0)
    idle.append(pid)
for _ in range(6):
    if os.fork() == 0:
        end = time.process_time() + 0.4
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
for pid in idle:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"#;
    let mut spec = bench.python(code);
    spec["interval_ns"] = json!(2_000_000);
    let mut probe = Probe::start(&spec);
    probe.until("exited");
    let (events, _) = probe.finish();
    assert_never_falls(&events, "subject");
    let readings: Vec<(u64, u64)> = events
        .iter()
        .filter(|event| event["type"] == "sample")
        .map(|event| {
            let ns = |field: &str| event["trees"][0][field].as_u64().unwrap();
            (event["at_ns"].as_u64().unwrap(), ns("cpu_user_ns") + ns("cpu_system_ns"))
        })
        .collect();
    for pair in readings.windows(2) {
        // One process at a time is busy. A sample may be taken late; a child counted twice would show as 400 ms.
        let (passed, used) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        assert!(used <= passed + 250_000_000, "{used} ns of CPU within {passed} ns");
    }
}

#[test]
fn a_process_may_belong_to_two_trees() {
    let bench = Bench::new();
    // A child of the subject that forks once it is told to; by then it is a tree of its own, too.
    let code = r#"
import os, sys, time
if os.fork() == 0:
    print('inner', os.getpid(), flush=True)
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
    os.fork()
time.sleep(600)
"#;
    let sign = bench.folder.join("go");
    let mut probe = Probe::start(&bench.launch(&[python(), "-c", code, sign.to_str().unwrap()]));
    bench.wait_for_log("\n");
    let inner: i32 = bench.log_text().trim().strip_prefix("inner ").unwrap().parse().unwrap();
    probe.tell(&json!({"type": "watch", "name": "inner", "pid": inner}).to_string());
    let processes = |event: &Value| [0, 1].map(|tree| event["trees"][tree]["processes_now"].as_u64());
    probe.until_that("sample of both trees", |event| processes(event) == [Some(2), Some(1)]);
    std::fs::write(&sign, "").unwrap();
    probe.until_that("sample of the third process in both", |event| processes(event) == [Some(3), Some(2)]);
    probe.finish();
}
