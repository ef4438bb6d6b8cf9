//! Conducts one run from its plan to its summary: starts, arms and releases the threads, moves the edges of the phases
//! as commands, signals and the clock demand, and turns the threads' reports into events. It sends no requests and
//! measures no request times.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::{now_ns, process_use};
use crate::contract::events::{LoadEvent, Phase, Summary};
use crate::contract::spec::Command;
use crate::load::input::{Input, Report, Reports};
use crate::load::phases::Edges;
use crate::load::plan::Plan;
use crate::load::problem::Problem;
use crate::load::recorder::Final;
use crate::load::recorder::merge::{Intervals, Span, summary};
use crate::load::worker::{self, Share};
use crate::sys::{Bell, cpu_set, run_on};

/// New edges lie at least this far in the future, so that every thread learns of them in time.
const AHEAD_NS: u64 = 3_000_000;
/// A thread that has not ended this long after the end of the run, nor as long again, is stuck.
const STUCK_NS: u64 = 5_000_000_000; // arbitrary: a loop turns within ms, even on a busy machine

/// Receives the events. Returns false if nobody reads them any more.
pub type Sink<'a> = &'a mut dyn FnMut(LoadEvent) -> bool;

/// Runs a plan. `inputs` also receives the threads' reports, through clones of `sender`.
///
/// # Errors
/// Kind `internal`, when threads cannot start or one hangs; `launch`, when the controller goes or stops before `go`.
pub fn run(plan: Plan, sender: Sender<Input>, inputs: Receiver<Input>, sink: Sink<'_>) -> Result<Summary, Problem> {
    let mut run = Run::arm(plan, sender, inputs)?;
    sink(LoadEvent::Armed { at_ns: now_ns() });
    run.wait_for_go()?;
    sink(LoadEvent::Phase { phase: Phase::Warmup, at_ns: run.go_ns });
    run.until_end(sink)
}

struct Run {
    plan: Arc<Plan>,
    edges: Arc<Edges>,
    bells: Vec<Arc<Bell>>,
    gates: Vec<Sender<u64>>,
    threads: Vec<JoinHandle<()>>,
    inputs: Receiver<Input>,
    intervals: Intervals,
    finals: Vec<Option<Final>>,
    go_ns: u64,
    measure_start_ns: u64,
    measure_end_ns: u64,
    over_ns: u64,
    /// For each thread whose users have all left: the instant at which the last one did.
    left_ns: Vec<u64>,
    ended_by: &'static str,
}

impl Run {
    fn arm(plan: Plan, sender: Sender<Input>, inputs: Receiver<Input>) -> Result<Run, Problem> {
        let plan = Arc::new(plan);
        let edges = Arc::new(Edges::default());
        let count = plan.spec.threads;
        let mut run = Run {
            edges: edges.clone(),
            bells: Vec::new(),
            gates: Vec::new(),
            threads: Vec::new(),
            inputs,
            intervals: Intervals::new(count as usize, plan.has_websockets()),
            finals: (0..count).map(|_| None).collect(),
            go_ns: 0,
            measure_start_ns: u64::MAX,
            measure_end_ns: u64::MAX,
            over_ns: u64::MAX,
            left_ns: Vec::new(),
            ended_by: "time",
            plan,
        };
        let cpus = usable(&run.plan.spec.cpus)?;
        for thread in 0..count {
            run.start_thread(Share { thread, threads: count }, cpus, &sender)?;
        }
        Ok(run)
    }

    fn start_thread(
        &mut self,
        share: Share,
        cpus: Option<libc::cpu_set_t>,
        sender: &Sender<Input>,
    ) -> Result<(), Problem> {
        let bell = Arc::new(Bell::new().map_err(|error| internal("cannot make an eventfd", error))?);
        let reports = Reports { worker: share.thread as usize, inputs: sender.clone() };
        let run = worker::prepare(self.plan.clone(), share, self.edges.clone(), bell.clone(), reports)
            .map_err(|error| internal("cannot make an event loop", error))?;
        let (gate, opened) = channel();
        let body = move || {
            if let Some(cpus) = cpus {
                let _ = run_on(&cpus);
            }
            if let Ok(go_ns) = opened.recv() {
                run(go_ns);
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("load-{}", share.thread))
            .spawn(body)
            .map_err(|error| internal("cannot start a thread", error))?;
        self.bells.push(bell);
        self.gates.push(gate);
        self.threads.push(thread);
        Ok(())
    }

    /// Waits for `go`, then sets the edges and opens the gates.
    fn wait_for_go(&mut self) -> Result<(), Problem> {
        let mut measure_at_ns = None;
        let at_ns = if self.plan.spec.phases.go_at_once { 0 } else { self.go_command(&mut measure_at_ns)? };
        self.go_ns = at_ns.max(now_ns() + AHEAD_NS / 3);
        let phases = &self.plan.spec.phases;
        self.over_ns = self.go_ns.saturating_add(phases.deadline_ns);
        let warmup_end_ns = phases.warmup_ns.map_or(u64::MAX, |warmup_ns| self.go_ns.saturating_add(warmup_ns));
        self.begin_window(measure_at_ns.map_or(warmup_end_ns, |at_ns: u64| at_ns.max(self.go_ns)));
        self.intervals.begin(process_use().cpu_ns());
        for gate in &self.gates {
            gate.send(self.go_ns).map_err(|_| Problem::new("internal", "an engine thread ended before the run"))?;
        }
        Ok(())
    }

    fn go_command(&self, measure_at_ns: &mut Option<u64>) -> Result<u64, Problem> {
        loop {
            match self.inputs.recv() {
                Ok(Input::Command(Command::Go { at_ns })) => return Ok(at_ns),
                Ok(Input::Command(Command::Measure { at_ns })) => *measure_at_ns = Some(at_ns),
                Ok(Input::Wrong(text)) => return Err(wrong_command(&text)),
                Ok(Input::Command(Command::Watch { .. })) => {
                    return Err(wrong_command("watch is a command of the probe"));
                }
                Ok(Input::Report(..)) => {}
                Ok(Input::Command(Command::Stop | Command::Drain)) => return Err(no_go("it was told to stop")),
                Ok(Input::Interrupted) => return Err(no_go("it was interrupted")),
                Ok(Input::Closed) | Err(_) => return Err(no_go("the controller closed its end of stdin")),
            }
        }
    }

    fn begin_window(&mut self, start_ns: u64) {
        self.measure_start_ns = start_ns;
        self.end_window(
            self.plan.spec.phases.measure_ns.map_or(u64::MAX, |length_ns| start_ns.saturating_add(length_ns)),
        );
    }

    /// Sets the end of the window, and the end of the run after it.
    fn end_window(&mut self, end_ns: u64) {
        self.measure_end_ns = end_ns;
        self.publish(end_ns.saturating_add(self.plan.spec.phases.drain_ns));
    }

    /// Publishes the edges. The run is over at `over_ns`, or at the deadline if that is earlier.
    fn publish(&mut self, over_ns: u64) {
        let deadline_ns = self.go_ns.saturating_add(self.plan.spec.phases.deadline_ns);
        self.over_ns = over_ns.min(deadline_ns);
        self.edges.set(self.measure_start_ns, self.measure_end_ns, self.over_ns);
        self.bells.iter().for_each(|bell| bell.ring());
    }

    fn until_end(mut self, sink: Sink<'_>) -> Result<Summary, Problem> {
        let mut listened = true;
        let mut overdue = false;
        while self.finals.iter().any(Option::is_none) {
            let stuck_ns = self.over_ns.saturating_add(STUCK_NS);
            // A process that was stopped finds this time over, though its threads have had none of it.
            let patience_ns = if overdue { STUCK_NS } else { stuck_ns.saturating_sub(now_ns()).min(3_600_000_000_000) };
            match self.inputs.recv_timeout(Duration::from_nanos(patience_ns)) {
                Ok(input) => self.take(input)?,
                Err(RecvTimeoutError::Timeout) if !overdue => overdue = now_ns() >= stuck_ns,
                Err(_) => {
                    return Err(Problem::new(
                        "internal",
                        "an engine thread did not end; this is a defect of powerband",
                    ));
                }
            }
            for event in self.intervals.take() {
                listened = sink(event) && listened;
            }
            if !listened {
                self.stop("stop");
            }
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        Ok(self.summary())
    }

    fn take(&mut self, input: Input) -> Result<(), Problem> {
        match input {
            Input::Command(Command::Measure { at_ns }) => self.measure(at_ns),
            Input::Command(Command::Drain) => self.drain("drain"),
            Input::Command(Command::Stop) | Input::Closed => self.stop("stop"),
            Input::Interrupted => self.interrupt(),
            Input::Command(Command::Go { .. }) => return Err(wrong_command("go: the run goes already")),
            Input::Command(Command::Watch { .. }) => return Err(wrong_command("watch is a command of the probe")),
            Input::Wrong(text) => return Err(wrong_command(&text)),
            Input::Report(thread, Report::Interval(snapshot)) => self.intervals.add(thread, *snapshot),
            Input::Report(_, Report::AllLeft(at_ns)) => self.all_left(at_ns),
            Input::Report(thread, Report::Final(report)) => {
                self.intervals.thread_ended(thread);
                self.finals[thread] = Some(*report);
            }
        }
        Ok(())
    }

    fn measure(&mut self, at_ns: u64) {
        let soon_ns = now_ns() + AHEAD_NS;
        if self.measure_start_ns > soon_ns {
            self.begin_window(at_ns.max(soon_ns));
        }
    }

    fn drain(&mut self, why: &'static str) {
        let soon_ns = now_ns() + AHEAD_NS;
        if self.measure_end_ns > soon_ns {
            self.ended_by = why;
            self.measure_start_ns = self.measure_start_ns.min(soon_ns);
            self.end_window(soon_ns);
        }
    }

    fn stop(&mut self, why: &'static str) {
        let soon_ns = now_ns() + AHEAD_NS;
        if self.over_ns > soon_ns {
            self.ended_by = why;
            self.measure_end_ns = self.measure_end_ns.min(soon_ns);
            self.measure_start_ns = self.measure_start_ns.min(soon_ns);
            self.publish(soon_ns);
        }
    }

    /// Handles an interrupt: the first one drains, the second one stops.
    fn interrupt(&mut self) {
        if self.ended_by == "interrupted" || self.measure_end_ns <= now_ns() {
            self.stop("interrupted");
        } else {
            self.drain("interrupted");
        }
    }

    fn all_left(&mut self, at_ns: u64) {
        self.left_ns.push(at_ns);
        if self.left_ns.len() == self.finals.len() {
            self.drain("work");
        }
    }

    fn summary(self) -> Summary {
        let deadline_ns = self.go_ns.saturating_add(self.plan.spec.phases.deadline_ns);
        let ended_ns = now_ns();
        let at_deadline = self.ended_by == "time" && self.edges.measure_end() >= deadline_ns && ended_ns >= deadline_ns;
        let ended_by = if at_deadline { "deadline" } else { self.ended_by };
        let measure_start_ns = self.edges.measure_start();
        let mut measure_end_ns = self.edges.measure_end();
        if ended_by == "work" {
            // This edge was set a little after the last user left, so that all threads learn of it in time; nothing
            // happened in between.
            let left_ns = self.left_ns.iter().max().map_or(measure_end_ns, |left_ns| left_ns + 1);
            measure_end_ns = left_ns.clamp(measure_start_ns, measure_end_ns);
        }
        let span = Span { go_ns: self.go_ns, measure_start_ns, measure_end_ns };
        let names: Vec<String> = self.plan.spec.scenario.iter().map(|step| step.name.clone()).collect();
        let finals: Vec<Final> = self.finals.into_iter().flatten().collect();
        summary(span, &names, &finals, ended_by, self.plan.has_websockets())
    }
}

fn internal(what: &str, error: impl std::fmt::Display) -> Problem {
    Problem::new("internal", format!("{what}: {error}"))
}

/// The set of these CPUs; None for any. A thread tries whether it may run on them: otherwise the engine would run on CPUs
/// of the server, and nobody would know.
fn usable(cpus: &[u32]) -> Result<Option<libc::cpu_set_t>, Problem> {
    let Some(set) = cpu_set(cpus).map_err(|why| Problem::spec("cpus", why))? else { return Ok(None) };
    let thread = std::thread::Builder::new().spawn(move || run_on(&set));
    match thread.map_err(|error| internal("cannot start a thread", error))?.join() {
        Ok(Err(error)) => {
            Err(Problem::spec("cpus", format!("cannot run on {cpus:?}: {error}; are they online and allowed?")))
        }
        _ => Ok(Some(set)),
    }
}

fn wrong_command(why: &str) -> Problem {
    Problem::new("spec", format!("stdin: not a command of load: {why}"))
}

fn no_go(why: &str) -> Problem {
    Problem::new("launch", format!("the run never began: {why} before `go`"))
}
