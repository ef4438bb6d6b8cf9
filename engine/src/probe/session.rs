//! The probe's one loop: commands in, samples out on a fixed grid, children reaped as they end; at the end no launched
//! process is left. A session ends by `stop`, when the controller has gone (end of stdin, a broken stdout, the keeper's
//! death), or by SIGTERM.

use std::process::ExitCode;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::census::Census;
use super::host::Host;
use super::input::Input;
use super::jvm::Jvms;
use super::keeper::{self, Reaped};
use super::launch::{Inherited, allowed_cpus, launch};
use super::log::Log;
use super::output::{Gone, Output};
use super::process::Usage;
use super::scrape::Scraper;
use super::signals::Signals;
use super::statsd::{Bound, Sink};
use super::tree::Tree;
use crate::clock::{now_ns, process_cpu_ns};
use crate::contract::events::{ErrorEvent, Exited, Hello, ProbeEvent, Sample};
use crate::contract::spec::{Command, Launch, ProbeSpec, Watch, check_protocol};
use crate::lines::Line;
use crate::sys::{cpu_set, raise_descriptor_limit, run_on};

/// Shortest and longest sampling period.
const INTERVAL_NS: std::ops::RangeInclusive<u64> = 1_000_000..=3_600_000_000_000;

/// Reads a spec and commands from stdin. `keeper`: the pid of the parent.
pub fn serve(keeper: i32) -> ExitCode {
    let signals = match Signals::install(Some(keeper)) {
        Ok(signals) => signals,
        Err(error) => return complain(&format!("cannot watch signals: {error}")),
    };
    let descriptor_limits = raise_descriptor_limit();
    let mut output = Output::new(0);
    let mut input = Input::stdin();
    let result =
        start(&mut input, &signals, &mut output, descriptor_limits).and_then(|mut session| session.run(&mut input));
    if result.is_err() {
        keeper::kill_descendants(|_| ()); // in any case, no launched process is left
    }
    conclude(result, &mut output, &signals)
}

/// Watches running processes for a user: JSON Lines until the first tree has ended, the duration is over, or Ctrl-C. It
/// owns nothing, so it ends nothing, not even a process that happens to be its child.
pub fn watch_alone(spec: ProbeSpec, duration_ns: Option<u64>) -> ExitCode {
    let signals = match Signals::install(None) {
        Ok(signals) => signals,
        Err(error) => return complain(&format!("cannot watch signals: {error}")),
    };
    // SAFETY: restores the default, so that Ctrl-C ends a probe that owns nothing.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let pid = spec.watch[0].pid;
    if !std::path::Path::new(&format!("/proc/{pid}/stat")).exists() {
        return complain(&format!("there is no process {pid}; `ps` lists those that run"));
    }
    let limits = raise_descriptor_limit();
    let mut input = Input::none(duration_ns.map(|duration| now_ns().saturating_add(duration)));
    let mut output = Output::new(-1);
    let result = Session::new(&spec, &signals, &mut output, limits).and_then(|mut session| session.run(&mut input));
    conclude(result, &mut output, &signals)
}

/// The reason why a session ended early.
enum End {
    Gone,
    Error(ErrorEvent),
}

impl From<Gone> for End {
    fn from(_: Gone) -> End {
        End::Gone
    }
}

fn error(kind: &str, message: impl Into<String>) -> End {
    End::Error(ErrorEvent::new(kind, message))
}

fn complain(message: &str) -> ExitCode {
    eprintln!("powerband-engine: {message}");
    ExitCode::FAILURE
}

/// Reports why the session ended early, if it did.
fn conclude(result: Result<(), End>, output: &mut Output, signals: &Signals) -> ExitCode {
    let Err(end) = result else { return ExitCode::SUCCESS };
    if let End::Error(event) = end {
        eprintln!("powerband-engine: {}", event.message);
        // The event is not needed if the controller has gone as well.
        let _ = output.emit(&ProbeEvent::Error(event), signals);
    }
    ExitCode::FAILURE
}

fn start<'s>(
    input: &mut Input,
    signals: &'s Signals,
    output: &'s mut Output,
    limits: (u64, u64),
) -> Result<Session<'s>, End> {
    output.emit(&ProbeEvent::Hello(Hello::now(limits.1)), signals)?;
    let line = loop {
        match input.next_line() {
            Line::Text(line) => break line,
            Line::Ended => return Err(End::Gone),
            Line::None => {
                input.wait(signals, None);
                if signals.must_end() {
                    return Err(End::Gone);
                }
            }
        }
    };
    check_protocol(&line).map_err(|message| error("spec", message))?;
    let spec: ProbeSpec = serde_json::from_slice(&line)
        .map_err(|e| error("spec", format!("the first line on stdin is no valid ProbeSpec: {e}")))?;
    Session::new(&spec, signals, output, limits)
}

fn check(spec: &ProbeSpec) -> Result<(), End> {
    if !INTERVAL_NS.contains(&spec.interval_ns) {
        let message = format!("interval_ns is {}: it must be from 1 ms (1000000) to 1 h", spec.interval_ns);
        return Err(error("spec", message));
    }
    let names = spec.launch.iter().map(|launch| &launch.name).chain(spec.watch.iter().map(|watch| &watch.name));
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(error("spec", format!("two trees are called `{name}`: every name in the spec must differ")));
        }
    }
    if let Some(launch) = &spec.launch
        && !(1..=64).contains(&launch.stop_signal)
    {
        return Err(error("spec", format!("launch.stop_signal is {}: it must be from 1 to 64", launch.stop_signal)));
    }
    Ok(())
}

/// The launched command.
struct Subject {
    launch: Launch,
    log: Log,
    pid: i32,
    ended: bool,
}

struct Session<'s> {
    signals: &'s Signals,
    output: &'s mut Output,
    interval_ns: u64,
    threads_interval_ns: u64,
    exact_counts: bool,
    subject: Option<Subject>,
    trees: Vec<Tree>,
    census: Census,
    host: Host,
    jvms: Jvms,
    scraper: Option<Scraper>,
    sink: Option<Sink>,
    /// The end of the grace period after `stop`.
    stopping_until_ns: Option<u64>,
    /// Pid and start time of the processes in the subject's group when it was asked to stop.
    asked: Vec<(i32, u64)>,
    /// Processes that the subject left behind have been asked to stop, too.
    asked_rest: bool,
    samples: u64,
    samples_late: u64,
}

impl<'s> Session<'s> {
    fn new(
        spec: &ProbeSpec,
        signals: &'s Signals,
        output: &'s mut Output,
        limits: (u64, u64),
    ) -> Result<Session<'s>, End> {
        check(spec)?;
        cpu_set(&spec.host_cpus).map_err(|message| error("spec", format!("host_cpus: {message}")))?;
        let allowed = allowed_cpus();
        let host_cpus = if spec.host_cpus.is_empty() { allowed.clone() } else { spec.host_cpus.clone() };
        let mut inherited = Inherited { descriptor_limit: limits.0, cpus: Vec::new() };
        if let Some(cpus) = cpu_set(&spec.cpus).map_err(|message| error("spec", format!("cpus: {message}")))? {
            inherited.cpus = allowed;
            run_on(&cpus).map_err(|e| error("spec", format!("the probe cannot run on cpus {:?}: {e}", spec.cpus)))?;
        }
        let census = Census::new().map_err(|e| error("internal", format!("cannot open /proc: {e}; is it mounted?")))?;
        let mut session = Session {
            signals,
            output,
            interval_ns: spec.interval_ns,
            threads_interval_ns: spec.threads_interval_ns,
            exact_counts: spec.exact_counts,
            subject: None,
            trees: Vec::new(),
            census,
            host: Host::new(&spec.ports, &host_cpus),
            jvms: Jvms::default(),
            scraper: None,
            sink: None,
            stopping_until_ns: None,
            asked: Vec::new(),
            asked_rest: false,
            samples: 0,
            samples_late: 0,
        };
        // Bind before the launch, to receive the subject's first datagrams.
        let bound = spec.statsd.as_ref().map(Bound::bind).transpose().map_err(|e| error("spec", e))?;
        if let Some(launch) = &spec.launch {
            session.launch(launch, &inherited)?;
        }
        // Start threads after the fork of the launched command: until then, the probe must have one thread.
        session.sink = bound.map(Sink::start).transpose().map_err(|e| error("internal", e))?;
        session.scraper = spec.scrape.as_ref().map(Scraper::start).transpose().map_err(|e| error("spec", e))?;
        let watched = |Watch { name, pid }: &Watch| Tree::watched(name, *pid, spec.exact_counts);
        session.trees.extend(spec.watch.iter().map(watched));
        Ok(session)
    }

    fn launch(&mut self, spec: &Launch, inherited: &Inherited) -> Result<(), End> {
        let launched = launch(spec, inherited, self.exact_counts).map_err(|message| error("launch", message))?;
        let event = ProbeEvent::Launched { name: spec.name.clone(), pid: launched.pid, at_ns: now_ns() };
        self.output.emit(&event, self.signals)?;
        self.trees.push(Tree::launched(&spec.name, launched.pid, launched.perf));
        self.subject = Some(Subject { launch: spec.clone(), log: launched.log, pid: launched.pid, ended: false });
        Ok(())
    }

    fn run(&mut self, input: &mut Input) -> Result<(), End> {
        let mut next_ns = now_ns();
        // Each sample is delayed by a random time after its grid point: otherwise, a server that works in step with the
        // grid would be sampled in the same state each time.
        let (mut rng, mut jitter_ns) = (SmallRng::seed_from_u64(next_ns), 0);
        loop {
            let woken_ns = now_ns();
            if woken_ns >= next_ns + jitter_ns {
                let late_ns = woken_ns - next_ns;
                let missed = late_ns / self.interval_ns;
                self.samples_late += missed + u64::from(late_ns % self.interval_ns > self.interval_ns / 2);
                next_ns += (missed + 1) * self.interval_ns;
                jitter_ns = rng.random_range(0..=self.interval_ns / 16);
                self.sample()?;
            }
            let sample_ns = next_ns + jitter_ns;
            let wake_ns = self.stopping_until_ns.map_or(sample_ns, |until| until.min(sample_ns));
            input.wait(self.signals, Some(wake_ns));
            if self.signals.must_end() {
                return Err(End::Gone);
            }
            self.signals.clear_children();
            let nothing_left = self.reap()?;
            loop {
                match input.next_line() {
                    Line::None => break,
                    Line::Ended => return Err(End::Gone),
                    Line::Text(line) => self.obey(&line)?,
                }
            }
            if input.is_over() || (input.is_alone() && !self.trees.iter().any(Tree::is_alive)) {
                return self.end(0);
            }
            if let Some(until_ns) = self.stopping_until_ns {
                self.ask_the_rest();
                if nothing_left {
                    return self.end(0);
                }
                if now_ns() >= until_ns {
                    return self.kill_and_end();
                }
            }
        }
    }

    fn sample(&mut self) -> Result<(), End> {
        let host = self.host.sample();
        self.census.refresh(host.forks, &mut self.trees);
        let at_ns = now_ns();
        let told = self.trees.iter_mut().map(|tree| tree.sample(at_ns, self.threads_interval_ns));
        let (trees, threads): (Vec<_>, Vec<_>) = told.unzip();
        self.samples += 1;
        self.output.emit(&ProbeEvent::Sample(Box::new(Sample { at_ns, trees, host })), self.signals)?;
        for event in threads.into_iter().flatten() {
            self.output.emit(&ProbeEvent::Threads(event), self.signals)?;
        }
        for jvm in self.jvms.read(at_ns, &self.trees) {
            self.output.emit(&ProbeEvent::Jvm(jvm), self.signals)?;
        }
        for event in self.scraper.iter().flat_map(Scraper::readings) {
            self.output.emit(&event, self.signals)?;
        }
        for event in self.sink.iter().flat_map(Sink::readings) {
            self.output.emit(&event, self.signals)?;
        }
        Ok(())
    }

    fn obey(&mut self, line: &[u8]) -> Result<(), End> {
        let command: Command = serde_json::from_slice(line)
            .map_err(|e| error("spec", format!("a line on stdin is no valid command: {e}")))?;
        match command {
            Command::Watch { name, pid } => {
                if self.trees.iter().any(|tree| tree.name == name) {
                    return Err(error("spec", format!("watch: there is a tree called `{name}` already")));
                }
                self.trees.push(Tree::watched(&name, pid, self.exact_counts));
            }
            Command::Stop => self.stop(),
            Command::Go { .. } | Command::Measure { .. } | Command::Drain => {
                return Err(error(
                    "spec",
                    "go, measure and drain are commands for `load`; a probe knows watch and stop",
                ));
            }
        }
        Ok(())
    }

    /// Asks the subject to stop; a second `stop` changes nothing.
    fn stop(&mut self) {
        if self.stopping_until_ns.is_some() {
            return;
        }
        let mut grace_ns = 0;
        if let Some(subject) = &self.subject {
            grace_ns = subject.launch.grace_ns;
            // Once it has ended, its pid and group may belong to another process: then the remaining ones are asked one
            // by one.
            if !subject.ended {
                let group = keeper::living_descendants().into_iter().filter(|(_, stat)| stat.group == subject.pid);
                self.asked = group.map(|(pid, stat)| (pid, stat.start_ticks)).collect();
                // The whole group, like Ctrl-C in a terminal.
                // SAFETY: kill has no memory effects.
                unsafe { libc::kill(-subject.pid, subject.launch.stop_signal) };
            }
        }
        self.stopping_until_ns = Some(now_ns().saturating_add(grace_ns));
    }

    /// Once the main process has ended, the processes that it left are asked to stop, too, unless they have been. No
    /// process is asked twice: many servers take a second signal as the order to drop everything.
    fn ask_the_rest(&mut self) {
        if let Some(subject) = &self.subject
            && subject.ended
            && !self.asked_rest
        {
            self.asked_rest = true;
            for (pid, stat) in keeper::living_descendants() {
                if !self.asked.contains(&(pid, stat.start_ticks)) {
                    // SAFETY: kill has no memory effects.
                    unsafe { libc::kill(pid, subject.launch.stop_signal) };
                }
            }
        }
    }

    /// Reaps every child that has ended. True when none is left, and therefore nothing of the launched tree.
    fn reap(&mut self) -> Result<bool, End> {
        let mut reaped = Vec::new();
        let any_left = keeper::reap_all(&mut |child| reaped.push(child));
        self.account_for(reaped)?;
        Ok(!any_left)
    }

    fn account_for(&mut self, reaped: Vec<Reaped>) -> Result<(), End> {
        for child in reaped {
            for tree in &mut self.trees {
                tree.reaped(child.pid, Usage::of_rusage(&child.usage));
            }
            if let Some(subject) = self.subject.as_mut().filter(|subject| subject.pid == child.pid) {
                subject.ended = true;
                subject.log.save(); // the event's reader finds the last output in the file
                let event = exited(&subject.launch.name, &child, self.stopping_until_ns.is_some());
                self.output.emit(&ProbeEvent::Exited(event), self.signals)?;
            }
        }
        Ok(())
    }

    fn kill_and_end(&mut self) -> Result<(), End> {
        let mut reaped = Vec::new();
        let killed = keeper::kill_descendants(|child| reaped.push(child));
        self.account_for(reaped)?;
        self.end(killed)
    }

    /// Takes a last sample with the final counters; the sink's last event has everything that the subject has sent.
    fn end(&mut self, killed: u32) -> Result<(), End> {
        self.sink.iter_mut().for_each(Sink::finish);
        self.sample()?;
        let (log_bytes, log_dropped_bytes) = self.subject.as_ref().map(|subject| subject.log.finish()).unzip();
        let event = ProbeEvent::End {
            at_ns: now_ns(),
            killed,
            cpu_ns: process_cpu_ns(),
            samples: self.samples,
            samples_late: self.samples_late,
            log_bytes,
            log_dropped_bytes,
        };
        Ok(self.output.emit(&event, self.signals)?)
    }
}

fn exited(name: &str, child: &Reaped, asked: bool) -> Exited {
    let times = Usage::of_rusage(&child.usage);
    Exited {
        name: name.into(),
        at_ns: now_ns(),
        exit_code: libc::WIFEXITED(child.status).then(|| libc::WEXITSTATUS(child.status)),
        signal: libc::WIFSIGNALED(child.status).then(|| libc::WTERMSIG(child.status)),
        asked,
        cpu_user_ns: times.user_ns,
        cpu_system_ns: times.system_ns,
        max_rss_bytes: child.usage.ru_maxrss as u64 * 1024,
        voluntary_switches: child.usage.ru_nvcsw as u64,
        involuntary_switches: child.usage.ru_nivcsw as u64,
    }
}
