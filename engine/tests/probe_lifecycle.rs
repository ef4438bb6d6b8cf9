//! The life of a subject under a probe: what it is started with, how its end is reported, and that no process of its
//! tree is ever left, whether the subject, the probe or the controller dies.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use crate::probe_support::{Bench, Probe, engine, find, python, wait_until};
use serde_json::{Value, json};

/// A program that forks a child, a child in its own session, and a double-forked orphan; all of them ignore SIGTERM.
const STUBBORN_FAMILY: &str = r#"
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def live():
    os.write(1, b'up\n')
    while True: time.sleep(60)
if os.fork() == 0: live()
if os.fork() == 0:
    os.setsid()
    live()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: live()
    os._exit(0)
os.wait()
live()
"#;

fn wait_for_family(bench: &Bench) {
    wait_until("four processes are up", || bench.log_text().matches("up\n").count() == 4);
}

#[test]
fn a_family_that_ignores_sigterm_is_killed_and_counted() {
    let bench = Bench::new();
    let mut spec = bench.python(STUBBORN_FAMILY);
    spec["launch"]["grace_ns"] = json!(100_000_000);
    let mut probe = Probe::start(&spec);
    wait_for_family(&bench);
    probe.until_that("sample of four processes", |event| event["trees"][0]["processes_now"] == 4);
    let (events, status) = probe.finish();
    assert!(status.success());
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["killed"]), (&json!("end"), &json!(4)));
    let exited = find(&events, "exited");
    assert_eq!((&exited["signal"], &exited["asked"]), (&json!(9), &json!(true)));
    bench.assert_no_process();
}

#[test]
fn the_end_of_stdin_kills_everything_at_once() {
    let bench = Bench::new();
    let mut probe = Probe::start(&bench.python(STUBBORN_FAMILY));
    wait_for_family(&bench);
    probe.close_stdin();
    while probe.next().is_some() {}
    assert!(!probe.child.wait().unwrap().success());
    bench.assert_no_process();
}

#[test]
fn killing_the_controller_leaves_nothing() {
    let bench = Bench::new();
    let spec_file = bench.folder.join("spec.json");
    std::fs::write(&spec_file, bench.python(STUBBORN_FAMILY).to_string()).unwrap();
    let controller = "import subprocess, sys, time\n\
                      p = subprocess.Popen([sys.argv[1], 'probe'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n\
                      p.stdin.write(open(sys.argv[2], 'rb').read() + b'\\n'); p.stdin.flush(); time.sleep(600)";
    let mut controller = Command::new(python())
        .args(["-c", controller])
        .arg(engine())
        .arg(&spec_file)
        .env("POWERBAND_PROBE_TEST", &bench.mark)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_family(&bench);
    controller.kill().unwrap();
    controller.wait().unwrap();
    bench.wait_for_no_process();
}

#[test]
fn killing_the_probe_itself_leaves_nothing() {
    let bench = Bench::new();
    let mut probe = Probe::start(&bench.python(STUBBORN_FAMILY));
    let pid = probe.until("hello")["pid"].as_i64().unwrap() as i32;
    wait_for_family(&bench);
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    assert!(!probe.child.wait().unwrap().success());
    bench.assert_no_process();
}

#[test]
fn killing_the_keeper_leaves_nothing() {
    let bench = Bench::new();
    let mut probe = Probe::start(&bench.python(STUBBORN_FAMILY));
    wait_for_family(&bench);
    probe.child.kill().unwrap();
    probe.child.wait().unwrap();
    bench.wait_for_no_process();
}

#[test]
fn sigterm_kills_everything_and_ctrl_c_nothing() {
    let bench = Bench::new();
    let mut probe = Probe::start(&bench.python(STUBBORN_FAMILY));
    let inner = probe.until("hello")["pid"].as_i64().unwrap() as i32;
    wait_for_family(&bench);
    let outer = probe.child.id() as i32;
    for pid in [inner, outer] {
        // SAFETY: kill has no memory effects.
        unsafe { libc::kill(pid, libc::SIGINT) };
    }
    probe.until("sample");
    probe.until("sample");
    assert_eq!(bench.marked_processes().len(), 4);
    // SAFETY: as above.
    unsafe { libc::kill(outer, libc::SIGTERM) };
    while probe.next().is_some() {}
    assert!(!probe.child.wait().unwrap().success());
    bench.assert_no_process();
}

#[test]
fn a_daemon_left_behind_is_asked_before_it_is_killed() {
    let bench = Bench::new();
    let code = r#"
import os, signal, sys, time
def bye(*_):
    os.write(1, b'daemon asked\n')
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, bye)
    os.write(1, b'daemon up\n')
    while True: time.sleep(60)
while True: time.sleep(60)
"#;
    let probe = Probe::start(&bench.python(code));
    bench.wait_for_log("daemon up");
    let (events, _) = probe.finish();
    assert_eq!(events.last().unwrap()["killed"], 0);
    assert!(bench.log_text().contains("daemon asked"));
}

#[test]
fn a_subject_that_dies_is_told_at_once_with_code_and_rusage() {
    let bench = Bench::new();
    let code = "x = bytearray(64 << 20)\nfor i in range(3000000): pass\nraise SystemExit(7)";
    let mut probe = Probe::start(&bench.python(code));
    let exited = probe.until("exited");
    assert_eq!((&exited["exit_code"], &exited["signal"]), (&json!(7), &Value::Null));
    assert_eq!((&exited["asked"], &exited["name"]), (&json!(false), &json!("subject")));
    assert!(exited["max_rss_bytes"].as_u64().unwrap() >= 64 << 20);
    assert!(exited["cpu_user_ns"].as_u64().unwrap() > 0);
    // Sampling goes on until stop.
    assert_eq!(probe.until("sample")["trees"][0]["processes_now"], 0);
    let (events, status) = probe.finish();
    assert!(status.success());
    let used = &crate::probe_support::tree(&events, "subject").last().unwrap();
    for field in ["cpu_user_ns", "cpu_system_ns"] {
        // The tree's counters were read earlier; their last values equal the exact rusage, or nearly so because of
        // ticks.
        assert!(used[field].as_u64().unwrap().abs_diff(exited[field].as_u64().unwrap()) <= 20_000_000, "{field}");
    }
}

#[test]
fn a_signal_that_ends_the_subject_is_named() {
    let bench = Bench::new();
    let mut probe = Probe::start(&bench.python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"));
    let exited = probe.until("exited");
    assert_eq!((&exited["exit_code"], &exited["signal"]), (&Value::Null, &json!(11)));
}

#[test]
fn the_subject_starts_with_a_clean_slate() {
    let bench = Bench::new();
    let code = r#"
import os, resource, signal, sys
print(os.getsid(0) == os.getpid(), os.read(0, 1) == b'', os.environ['GIVEN'], os.getcwd())
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), sorted(os.sched_getaffinity(0)))
print('ignored', [line for line in open('/proc/self/status') if line.startswith('SigIgn')])
print('limit', resource.getrlimit(resource.RLIMIT_NOFILE)[0])
print('descriptors', sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 3))
print('on stderr', file=sys.stderr)
"#;
    let mut spec = bench.launch(&["/usr/bin/env", python(), "-c", code]);
    let folder = bench.folder.canonicalize().unwrap();
    spec["launch"]["cwd"] = json!(folder);
    spec["launch"]["cpus"] = json!([0]);
    spec["launch"]["env"].as_array_mut().unwrap().push(json!(["GIVEN", "value"]));
    std::fs::write(bench.log(), "before\n").unwrap();
    // The probe raises its own soft limit; the subject must get the one that the probe was started with.
    let line = spec.to_string();
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -Sn 123; exec \"$0\" probe"])
        .arg(engine())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{line}\n").as_bytes()).unwrap();
    bench.wait_for_log("on stderr");
    drop(stdin);
    child.wait().unwrap();
    let log = bench.log_text();
    assert!(log.starts_with("before\n"), "the log is appended to: {log}");
    assert!(log.contains(&format!("True True value {}", folder.display())), "{log}");
    assert!(log.contains("set() [0]"), "{log}");
    // Python itself ignores SIGPIPE and SIGXFSZ. Signals 32 and 33 belong to the C library, which does not change them.
    let ignored = log.split("SigIgn:\\t").nth(1).and_then(|rest| u64::from_str_radix(&rest[..16], 16).ok()).unwrap();
    assert_eq!(ignored & !(3 << 31), 0x0100_1000, "{log}");
    assert!(log.contains("limit 123\n"), "{log}");
    assert!(log.contains("descriptors []"), "{log}");
}

#[test]
fn a_second_stop_changes_nothing() {
    let bench = Bench::new();
    let mut probe = Probe::start(&bench.launch(&["sleep", "600"]));
    probe.until("launched");
    probe.stop();
    let (events, status) = probe.finish();
    assert!(status.success());
    assert_eq!(find(&events, "exited")["signal"], 15);
    assert_eq!(events.last().unwrap()["killed"], 0);
}

#[test]
fn a_process_lives_on_without_its_main_thread() {
    // The main thread ends as by pthread_exit in C; another thread burns CPU, opens descriptors and continues to serve.
    let code = r#"
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
memory = bytearray(os.urandom(1) * (32 << 20))
kept = [os.dup(0) for _ in range(20)]
libc = ctypes.CDLL(None)
def serve():
    time.sleep(0.1)
    end = time.process_time() + 0.3
    while time.process_time() < end: pass
    os.write(1, b'serving\n')
    while True: time.sleep(0.01)
for _ in range(int(sys.argv[1])): threading.Thread(target=serve, daemon=True).start()
libc.syscall(60 if os.uname().machine == 'x86_64' else 93, 0)
"#;
    for threads in ["3", "100"] {
        let bench = Bench::new();
        let mut spec = bench.launch(&[python(), "-c", code, threads]);
        spec["launch"]["grace_ns"] = json!(200_000_000);
        let mut probe = Probe::start(&spec);
        bench.wait_for_log("serving");
        let alone: u64 = threads.parse().unwrap();
        let sample = probe.until_that("sample without the main thread", |event| {
            let number = |field: &str| event["trees"][0][field].as_u64().unwrap_or(0);
            number("threads_now") == alone && number("cpu_user_ns") + number("cpu_system_ns") > 250_000_000
        });
        let tree = &sample["trees"][0];
        assert_eq!(tree["processes_now"], 1);
        assert!(tree["rss_bytes_now"].as_u64().unwrap() > 32 << 20, "{tree}");
        let level = |event: &Value, field: &str| event["trees"][0][field].as_u64();
        probe.until_that("sample with its memory and descriptors", |event| {
            let memory = ["pss_bytes_now", "anonymous_bytes_now"].map(|field| level(event, field));
            memory.iter().all(|&bytes| bytes > Some(32 << 20)) && level(event, "descriptors_now") > Some(20)
        });
        let listed = |event: &Value| {
            let pools = event["pools"].as_array().into_iter().flatten();
            pools.filter_map(|pool| pool["threads_now"].as_u64()).sum::<u64>()
        };
        probe.until_that("threads event with all that live", |event| listed(event) == alone);
        let (events, status) = probe.finish();
        assert!(status.success());
        assert_eq!(events.last().unwrap()["killed"], 1, "it was alive until it was killed");
        assert!(!events.iter().any(|event| event["type"] == "exited" && event["signal"] != 9));
        bench.assert_no_process();
    }
}

#[test]
fn an_ignored_sigchld_of_the_caller_hides_no_end() {
    let bench = Bench::new();
    let become_probe = "import os, signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
                        os.execv(sys.argv[1], [sys.argv[1], 'probe'])";
    let mut command = Command::new(python());
    command.args(["-c", become_probe]).arg(engine());
    let mut probe = Probe::start_by(command, &bench.python("raise SystemExit(7)").to_string());
    assert_eq!(probe.until("exited")["exit_code"], 7);
    let (_, status) = probe.finish();
    assert!(status.success());
}

#[test]
fn nobody_is_asked_to_stop_twice() {
    let bench = Bench::new();
    // The main process ends at once when asked; its child in the same group needs time to end, and counts the signals.
    let code = r#"
import os, signal, time
asked = 0
def count(*_):
    global asked
    asked += 1
if os.fork() == 0:
    signal.signal(signal.SIGTERM, count)
    os.write(1, b'up\n')
    while not asked: time.sleep(0.01)
    time.sleep(0.5)
    os.write(1, b'asked %d times\n' % asked)
    os._exit(0)
time.sleep(600)
"#;
    let probe = Probe::start(&bench.python(code));
    bench.wait_for_log("up");
    let (events, _) = probe.finish();
    assert_eq!(events.last().unwrap()["killed"], 0);
    assert!(bench.log_text().contains("asked 1 times"), "{}", bench.log_text());
}

#[test]
fn what_is_left_of_a_subject_that_ended_by_itself_is_asked_to_stop() {
    let bench = Bench::new();
    let code = r#"
import os, signal, time
def bye(*_):
    os.write(1, b'asked\n')
    os._exit(0)
up, tell = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, bye)
    os.write(tell, b'up')
    while True: time.sleep(60)
os.read(up, 1)
"#;
    let mut probe = Probe::start(&bench.python(code));
    probe.until("exited");
    let (events, _) = probe.finish();
    assert_eq!(events.last().unwrap()["killed"], 0);
    assert!(bench.log_text().contains("asked"));
}

#[test]
fn a_probe_that_only_watches_ends_with_its_terminal_unless_told_to_stay() {
    for (handling, length) in [(libc::SIG_DFL, "60s"), (libc::SIG_IGN, "300ms")] {
        let mut watcher = Command::new(engine());
        watcher.args(["probe", "--interval", "10ms", "-d", length, "--pid", &std::process::id().to_string()]);
        // SAFETY: signal() is async-signal-safe.
        unsafe { watcher.pre_exec(move || Ok(_ = libc::signal(libc::SIGHUP, handling))) };
        let mut watcher = watcher.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watcher.stdout.take().unwrap()));
        assert!(lines.next().unwrap().unwrap().contains("sample"));
        // SAFETY: kill has no memory effects.
        unsafe { libc::kill(watcher.id() as i32, libc::SIGHUP) };
        let last = lines.last().map_or_else(String::new, |line| line.unwrap_or_default());
        let ends_with_it = handling == libc::SIG_DFL;
        assert_eq!(watcher.wait().unwrap().signal(), ends_with_it.then_some(libc::SIGHUP));
        assert_eq!(last.contains(r#""type":"end""#), !ends_with_it, "{last}");
    }
}

#[test]
fn a_probe_that_only_watches_ends_nothing_not_even_its_own_child() {
    let bench = Bench::new();
    // A process that replaces itself by a probe is still the parent of the processes it had started.
    // No duration is too long.
    let mut watcher = Command::new("sh")
        .args(["-c", "sleep 600 >&2 & exec \"$0\" probe --pid $! --interval 10ms -d 99999999999h"])
        .arg(engine())
        .env("POWERBAND_PROBE_TEST", &bench.mark)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watcher.stdout.take().unwrap()));
    assert!(lines.next().unwrap().unwrap().contains("sample"));
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(watcher.id() as i32, libc::SIGTERM) };
    watcher.wait().unwrap();
    let left = bench.marked_processes();
    assert_eq!(left.len(), 1, "the sleeper lives");
}

#[test]
fn a_pinned_probe_leaves_the_subject_unpinned() {
    // SAFETY: an all-zero set is valid, and the call writes to it alone.
    let allowed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..1024).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect::<Vec<usize>>()
    };
    let bench = Bench::new();
    let mut spec = bench.python("import os; print('cpus', sorted(os.sched_getaffinity(0)))");
    spec["cpus"] = json!([allowed[0]]);
    let mut probe = Probe::start(&spec);
    probe.until("exited");
    probe.finish();
    assert_eq!(bench.log_text(), format!("cpus {allowed:?}\n"));
}
