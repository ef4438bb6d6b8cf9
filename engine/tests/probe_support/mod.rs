//! Drives a real probe process, as a controller would: spec and commands on its stdin, events from its stdout.
//! Subjects are small Python programs, marked in their environment so that leftovers can be found.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Long enough for any step on a busy machine; no test measures speed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A test's own folder, and the mark of its processes.
pub struct Bench {
    pub folder: PathBuf,
    pub mark: String,
}

impl Bench {
    pub fn new() -> Bench {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("powerband-probe-test-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&mark);
        std::fs::create_dir_all(&folder).unwrap();
        Bench { folder, mark }
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("subject.log")
    }

    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// A spec that launches a Python program.
    pub fn python(&self, code: &str) -> Value {
        self.launch(&[python(), "-c", code])
    }

    pub fn launch(&self, argv: &[&str]) -> Value {
        json!({"protocol": 1, "interval_ns": 20_000_000, "launch": {
            "name": "subject", "argv": argv, "log_file": self.log(),
            "env": [["POWERBAND_PROBE_TEST", self.mark]], "grace_ns": 20_000_000_000u64,
        }})
    }

    /// The pids of living processes that carry this bench's mark.
    pub fn marked_processes(&self) -> Vec<i32> {
        let is_marked = |pid: &i32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|&b| b == 0).any(|pair| pair == format!("POWERBAND_PROBE_TEST={}", self.mark).as_bytes())
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_marked).collect()
    }

    pub fn assert_no_process(&self) {
        assert!(self.marked_processes().is_empty(), "left behind: {:?}", self.marked_processes());
    }

    pub fn wait_for_no_process(&self) {
        wait_until("every marked process has gone", || self.marked_processes().is_empty());
    }

    /// Waits until the subject has written `text`.
    pub fn wait_for_log(&self, text: &str) {
        wait_until(text, || self.log_text().contains(text));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for pid in self.marked_processes() {
            // Only a failed test leaves anything here.
            // SAFETY: kill has no memory effects.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The path of the Python interpreter itself: the program called `python3` may be a script that starts it.
pub fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    })
}

pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn engine() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_powerband-engine"))
}

/// A running probe.
pub struct Probe {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// All events so far.
    pub events: Vec<Value>,
}

impl Probe {
    pub fn start(spec: &Value) -> Probe {
        Probe::start_with_line(&spec.to_string())
    }

    pub fn start_with_line(line: &str) -> Probe {
        let mut command = Command::new(engine());
        command.arg("probe");
        Probe::start_by(command, line)
    }

    /// Starts a command that becomes a probe.
    pub fn start_by(mut command: Command, line: &str) -> Probe {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut probe = Probe { child, stdin, stdout, events: Vec::new() };
        probe.tell(line);
        probe
    }

    pub fn tell(&mut self, line: &str) {
        // A probe that ended at once (after an error) reads no more.
        let _ = writeln!(self.stdin.as_mut().unwrap(), "{line}");
    }

    pub fn stop(&mut self) {
        self.tell(r#"{"type": "stop"}"#);
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next event; None at the end of the output.
    pub fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.events.push(event.clone());
        Some(event)
    }

    /// Reads up to and including an event of this type.
    pub fn until(&mut self, kind: &str) -> Value {
        self.until_that(kind, |event| event["type"] == kind)
    }

    pub fn until_that(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        while let Some(event) = self.next() {
            if wanted(&event) {
                return event;
            }
            assert!(Instant::now() < deadline, "no {what} in time");
        }
        panic!("the output ended without {what}: {:?}", self.events.last());
    }

    /// Stops the subject and reads to the end.
    pub fn finish(mut self) -> (Vec<Value>, ExitStatus) {
        self.stop();
        while self.next().is_some() {}
        let status = self.child.wait().unwrap();
        (std::mem::take(&mut self.events), status)
    }
}

/// The samples of one tree, in order.
pub fn tree<'e>(events: &'e [Value], name: &'e str) -> impl Iterator<Item = &'e Value> {
    let samples = events.iter().filter(|event| event["type"] == "sample");
    samples.flat_map(|event| event["trees"].as_array().unwrap()).filter(move |tree| tree["name"] == name)
}

pub fn find<'e>(events: &'e [Value], kind: &str) -> &'e Value {
    events.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind} event"))
}
