//! One process tree: its members, and its counters, which never fall although members come and go.
//!
//! A member that ends is counted once: if reaped by the probe, with its exact rusage; if waited for by its parent, in
//! the parent's children counters; otherwise (its parent ignores SIGCHLD, or is outside the tree) with its last
//! reading.

use std::collections::HashMap;

use super::limits::Limits;
use super::perf::PerfCounters;
use super::process::{Process, Usage, tick_ns};
use super::procfs::processes;
use super::threads::ThreadTable;
use crate::clock::thread_cpu_ns;
use crate::contract::events::{Threads, TreeSample};
use crate::sys::{CPU_WORDS, affinity};

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// Up to this many threads are read on every sample; with more, readings whose cost grows with them take place once a
/// second.
const FEW_THREADS: u32 = 64;
/// An expensive reading is repeated only after this many times its own cost has passed: 0.25 % of a core.
const DEAR_FACTOR: u64 = 400;
/// The factor for the reading of all threads: 0.67 %.
const THREADS_FACTOR: u64 = 150;
/// The factor for summing the context switches of all threads, for which nothing else waits: 0.25 %.
const SWITCHES_FACTOR: u64 = 400;
/// The factor for opening the files of new threads, which costs more, but only once per thread: 0.5 %.
const OPENING_FACTOR: u64 = 200;
/// The highest rate at which threads that have just started are read; if more come and go, only a sample of them is:
/// 0.25 %.
const NEWCOMERS_PER_S: u64 = 64;
/// A parent whose CPU time is below this part of the busiest member's hardly runs.
const HARDLY_RUNS: u64 = 100; // arbitrary: a server uses far more than the script that starts it

#[derive(Default)]
pub struct Tree {
    pub name: String,
    root: i32,
    /// The probe's own pid for the launched tree: orphans are reparented to it.
    reaper: Option<i32>,
    /// Parents come before their children.
    members: Vec<Process>,
    /// Usage of ended members that is in no children counters.
    gone: Usage,
    /// Usage when the tree was first seen (watched trees).
    base: Usage,
    last: Usage,
    /// Pids of processes that the probe has reaped since the last sample.
    reaped: Vec<i32>,
    threads: ThreadTable,
    /// The time of the last thread scan.
    scanned_ns: Option<u64>,
    perf: PerfCounters,
    /// Number of threads that existed at the start and are not counted by perf, then how many of them count as started.
    first_threads: u64,
    first_started: u64,
    threads_due: Due,
    event_due: Due,
    pss: (Due, Option<u64>),
    sockets: (Due, u32, u32),
    /// Number of CPUs on which the tree may run.
    cpus: (Due, Option<u32>),
    /// The limits of the process that has used the most CPU time: that is the server itself, whatever started it.
    limits: Limits,
    /// The room that these limits leave: when to read it again, threads, memory in bytes.
    left: (Due, Option<u64>, Option<u64>),
    /// Number of threads created, and of those alive, when the threads were last listed; None if members have come or
    /// gone since, for which one may make up for the other.
    listed: Option<(u64, u32)>,
    switches: (Due, Option<u64>),
    scratch: Vec<i32>,
}

impl Tree {
    /// The tree that the probe has just launched: all descendants of the probe.
    pub fn launched(name: &str, root: i32, perf: PerfCounters) -> Tree {
        let reaper = Some(std::process::id() as i32);
        let members = Process::open(root).into_iter().collect();
        Tree { name: name.into(), root, reaper, members, perf, first_threads: 1, first_started: 1, ..Tree::default() }
    }

    /// A running tree: counters start at 0 now.
    pub fn watched(name: &str, root: i32, exact_counts: bool) -> Tree {
        let mut tree = Tree { name: name.into(), root, ..Tree::default() };
        tree.adopt_descendants();
        if exact_counts {
            tree.perf = PerfCounters::attach(|| tree.thread_ids()).unwrap_or_default();
        }
        tree.first_threads = tree.thread_ids().len() as u64;
        tree.base = tree.members.iter().fold(Usage::default(), |sum, member| sum + member.own + member.children);
        tree.list_threads();
        tree.scan_threads(usize::MAX);
        tree.threads.start_from_here();
        tree
    }

    fn adopt_descendants(&mut self) {
        self.members.extend(Process::open(self.root));
        let others = processes();
        let mut next = 0;
        while next < self.members.len() {
            let parent = self.members[next].pid;
            let children = others.iter().filter(|(_, stat)| stat.parent == parent);
            self.members.extend(children.filter_map(|&(pid, _)| Process::open(pid)));
            next += 1;
        }
    }

    /// True if the probe has launched it.
    pub fn is_launched(&self) -> bool {
        self.reaper.is_some()
    }

    /// The processes that are alive.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.members.iter().filter(|member| !member.zombie).map(|member| member.pid)
    }

    fn thread_ids(&self) -> Vec<i32> {
        let mut all = Vec::new();
        let mut tids = Vec::new();
        for member in &self.members {
            member.tasks.list(&mut tids);
            all.append(&mut tids);
        }
        all
    }

    /// Adds the process if its parent belongs to this tree. True if it is a new member.
    pub fn offer(&mut self, pid: i32, parent: i32) -> bool {
        let ours = self.reaper == Some(parent) || self.members.iter().any(|member| member.pid == parent);
        if !ours || self.members.iter().any(|member| member.pid == pid) {
            return false;
        }
        let Some(process) = Process::open(pid) else { return false }; // it has gone already
        self.members.push(process);
        self.listed = None;
        true
    }

    /// Notes that the probe has reaped this process: `usage` is final. Only launched processes can end this way; they
    /// count even if they started and ended between two samples.
    pub fn reaped(&mut self, pid: i32, usage: Usage) {
        if self.reaper.is_none() {
            return;
        }
        self.reaped.push(pid);
        self.gone += usage;
        self.members.retain(|member| member.pid != pid);
        self.listed = None;
    }

    pub fn is_alive(&self) -> bool {
        self.members.iter().any(|member| !member.zombie)
    }

    /// Reads the tree. Returns a sample, and the threads by pool if these are due, `threads_every_ns` after they were
    /// last reported.
    pub fn sample(&mut self, now_ns: u64, threads_every_ns: u64) -> (TreeSample, Option<Threads>) {
        self.update_members(self.threads_due.is_due(now_ns));
        let sum = self.members.iter().fold(self.gone, |sum, member| sum + member.own + member.children);
        self.last = self.last.advance_to(sum.saturating_sub(self.base));
        let threads_now = self.members.iter().map(|member| member.threads).sum();
        let created = self.perf.threads_created(u64::from(threads_now).saturating_sub(self.first_threads));
        self.update_switches(now_ns);
        let event = self.update_threads(now_ns, threads_every_ns, threads_now, created);
        self.update_dear(now_ns);
        let totals = self.threads.totals();
        let live: Vec<&Process> = self.members.iter().filter(|member| !member.zombie).collect();
        let throttling = self.limits.throttling();
        let sample = TreeSample {
            name: self.name.clone(),
            processes_now: live.len() as u32,
            threads_now,
            threads_started: created.map(|created| created + self.first_started),
            cpu_user_ns: self.last.user_ns,
            cpu_system_ns: self.last.system_ns,
            rss_bytes_now: live.iter().map(|member| member.rss_bytes).sum(),
            anonymous_bytes_now: live.iter().map(|member| member.anonymous_bytes).sum(),
            pss_bytes_now: self.pss.1,
            context_switches: self.switches.1,
            voluntary_switches: totals.voluntary_switches,
            involuntary_switches: totals.involuntary_switches,
            run_wait_ns: totals.run_wait_ns,
            minor_faults: self.last.minor_faults,
            major_faults: self.last.major_faults,
            descriptors_now: live
                .iter()
                .map(|member| member.descriptors())
                .sum::<Option<u32>>()
                .unwrap_or(self.sockets.1),
            descriptors_left_now: live.iter().filter_map(|member| member.descriptors_left()).min(),
            threads_left_now: self.left.1,
            memory_left_bytes_now: self.left.2,
            sockets_now: self.sockets.2,
            cpus_now: self.cpus.1,
            cpu_quota_now: throttling.map(|of| of.quota_cpus),
            quota_periods: throttling.map(|of| of.periods),
            throttled_periods: throttling.map(|of| of.throttled),
        };
        (sample, event)
    }

    /// Reads every member, children before their parents: a process that has gone by its turn is in its parent's
    /// counters, which are read after it. A child that was read and then waited for would count twice. Therefore, the
    /// children of a parent whose children counters grew are read again, and all members once more if one of them has
    /// gone.
    fn update_members(&mut self, full: bool) {
        let mut vanished = HashMap::new();
        self.read_members(full, |_| true, &mut vanished);
        if !full && !vanished.is_empty() {
            self.read_members(true, |_| true, &mut vanished); // children counters of parents are only in a full reading
        }
        loop {
            let heirs: Vec<i32> = self.members.iter().filter(|member| member.inherited).map(|heir| heir.pid).collect();
            let gone_before = vanished.len();
            self.read_members(true, |member| heirs.contains(&member.parent), &mut vanished);
            if vanished.len() == gone_before {
                break;
            }
            self.read_members(true, |_| true, &mut vanished);
        }
        for member in vanished.values() {
            self.account_for(member, &vanished);
        }
        self.reaped.clear();
    }

    /// Reads the members for which `wanted` is true, the last first, and moves those that have gone to `vanished`.
    fn read_members(&mut self, full: bool, wanted: impl Fn(&Process) -> bool, vanished: &mut HashMap<i32, Process>) {
        for i in (0..self.members.len()).rev() {
            let member = &mut self.members[i];
            let lightly = !full && member.threads > FEW_THREADS;
            if wanted(member) && !(lightly && member.update_lightly() || member.update()) {
                let member = self.members.remove(i);
                self.listed = None;
                vanished.insert(member.pid, member);
            }
        }
    }

    fn account_for(&mut self, member: &Process, vanished: &HashMap<i32, Process>) {
        let mut heir = member.parent;
        while let Some(parent) = vanished.get(&heir) {
            heir = parent.parent;
        }
        if self.reaped.contains(&heir) {
            return; // its parent's rusage has it
        }
        let used = member.own + member.children;
        let mut missing = used;
        if let Some(parent) = self.members.iter_mut().find(|process| process.pid == heir) {
            missing = used.saturating_sub(parent.children.saturating_sub(parent.claimed));
            parent.claimed += used.saturating_sub(missing);
            // Times of children come in whole ticks: a difference of that size is not missing.
            let slack = 2 * tick_ns();
            if missing.user_ns + missing.system_ns <= slack {
                (missing.user_ns, missing.system_ns) = (0, 0);
            }
        }
        self.gone += missing;
    }

    fn update_threads(
        &mut self,
        now_ns: u64,
        every_ns: u64,
        threads_now: u32,
        created: Option<u64>,
    ) -> Option<Threads> {
        let told = self.event_due.take(now_ns, every_ns);
        let many = threads_now > FEW_THREADS;
        // With many threads, the cost of the reading limits its rate, and the event waits for it.
        if many && !self.threads_due.is_due(now_ns) {
            if told {
                self.event_due = self.threads_due;
            }
            return None;
        }
        let started = thread_cpu_ns();
        let listed = created.map(|created| (created, threads_now));
        if listed.is_none() || listed != self.listed {
            self.list_threads();
            self.listed = listed;
        }
        let passed_ns = now_ns.saturating_sub(self.scanned_ns.replace(now_ns).unwrap_or(0)).min(SECOND_NS);
        self.scan_threads((NEWCOMERS_PER_S * passed_ns / SECOND_NS) as usize);
        let opening_ns = self.threads.opening_ns();
        let reading_ns = (thread_cpu_ns() - started).saturating_sub(opening_ns);
        let pause_ns = THREADS_FACTOR * reading_ns + OPENING_FACTOR * opening_ns;
        self.threads_due.again(now_ns, every_ns, pause_ns);
        (told || many).then(|| {
            let threads = self.threads.tell_threads();
            Threads { at_ns: now_ns, tree: self.name.clone(), pools: self.threads.tell_pools(), threads }
        })
    }

    fn list_threads(&mut self) {
        self.members.iter_mut().filter(|member| !member.zombie).for_each(Process::list_threads);
    }

    fn scan_threads(&mut self, newcomers_max: usize) {
        let live: Vec<&Process> = self.members.iter().filter(|member| !member.zombie).collect();
        self.threads.scan(&live, newcomers_max);
    }

    /// Updates the sum of the switches. Runs on every sample unless there are so many threads that it would be
    /// expensive, and once all have ended.
    fn update_switches(&mut self, now_ns: u64) {
        if self.switches.0.is_due(now_ns) || !self.is_alive() {
            let started = thread_cpu_ns();
            self.switches.1 = self.perf.context_switches();
            self.switches.0.again(now_ns, 0, SWITCHES_FACTOR * (thread_cpu_ns() - started));
        }
    }

    fn update_dear(&mut self, now_ns: u64) {
        if self.pss.0.is_due(now_ns) {
            let started = thread_cpu_ns();
            self.pss.1 = self.members.iter().map(Process::pss_bytes).sum();
            self.pss.0.again(now_ns, SECOND_NS, DEAR_FACTOR * (thread_cpu_ns() - started));
        }
        if self.sockets.0.is_due(now_ns) {
            let started = thread_cpu_ns();
            let counts = self.members.iter().map(|member| member.sockets(&mut self.scratch));
            (self.sockets.1, self.sockets.2) = counts.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
            self.sockets.0.again(now_ns, SECOND_NS, DEAR_FACTOR * (thread_cpu_ns() - started));
        }
        if self.cpus.0.is_due(now_ns) {
            let started = thread_cpu_ns();
            self.cpus.1 = self.cpus_allowed();
            self.cpus.0.again(now_ns, SECOND_NS, DEAR_FACTOR * (thread_cpu_ns() - started));
        }
        if self.left.0.is_due(now_ns) {
            let started = thread_cpu_ns();
            let busiest = self.members.iter().max_by_key(|member| member.own.user_ns + member.own.system_ns);
            if let Some(limits) = busiest.and_then(|member| Limits::of(member.pid)) {
                self.limits = limits;
            }
            let by_users = self.members.iter().filter_map(Process::tasks_most).min();
            let own: u64 = self.members.iter().map(|member| u64::from(member.threads)).sum();
            let threads = self.limits.tasks_left(by_users.map(|most| most.saturating_sub(own)));
            self.left = (self.left.0, threads, self.limits.memory_left());
            self.left.0.again(now_ns, SECOND_NS, DEAR_FACTOR * (thread_cpu_ns() - started));
        }
    }

    /// The number of CPUs on which threads of the tree may run; None if the kernel does not tell.
    fn cpus_allowed(&self) -> Option<u32> {
        let used = |member: &Process| member.own.user_ns + member.own.system_ns;
        let most = self.members.iter().map(used).max()?;
        let is_parent = |one: &Process| self.members.iter().any(|other| other.parent == one.pid);
        let runs = |one: &&Process| !one.zombie && (used(one) * HARDLY_RUNS >= most || !is_parent(one));
        let tids = self.members.iter().filter(runs).flat_map(|member| &member.tids);
        let mut cpus = [0u64; CPU_WORDS];
        for theirs in tids.filter_map(|&tid| affinity(tid)) {
            cpus.iter_mut().zip(theirs).for_each(|(word, more)| *word |= more);
        }
        Some(cpus.iter().map(|word| word.count_ones()).sum()).filter(|&count| count > 0)
    }
}

/// The next time for a repeated task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due {
    at_ns: u64,
    pause_ns: u64,
}

impl Due {
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.at_ns
    }

    /// Returns true if it is due, and then also sets the next time. Slightly early counts as due, since samples jitter
    /// around their grid.
    fn take(&mut self, now_ns: u64, period_ns: u64) -> bool {
        let due = self.is_due(now_ns);
        if due {
            self.again(now_ns, period_ns, 0);
        }
        due
    }

    /// Due again after a period, or, if longer, after a pause for the cost of this time. The shorter of this pause and
    /// the previous one applies: occasionally a pause of the hypervisor during a cheap reading makes it look expensive.
    pub fn again(&mut self, now_ns: u64, period_ns: u64, pause_ns: u64) {
        self.at_ns = now_ns + (period_ns - period_ns / 20).max(pause_ns.min(self.pause_ns));
        self.pause_ns = pause_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn threads_are_listed_anew_when_a_member_comes_or_goes() {
        let own = std::process::id() as i32;
        let listed = Some((1, 1));
        let mut tree = Tree { members: Process::open(own).into_iter().collect(), listed, ..Tree::default() };
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(tree.offer(child.id() as i32, own));
        assert_eq!(tree.listed, None);
        tree.listed = listed;
        tree.update_members(true);
        assert_eq!(tree.listed, listed);
        child.kill().unwrap();
        child.wait().unwrap();
        tree.update_members(true);
        assert_eq!(tree.listed, None);
    }

    #[test]
    fn what_a_parent_had_waited_for_before_it_was_met_stands_for_no_member_that_vanishes() {
        let own = std::process::id() as i32;
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", busy]).status().unwrap().success());
        let mut tree = Tree { members: Process::open(own).into_iter().collect(), ..Tree::default() };
        let waited_for = tree.members[0].children;
        assert!(waited_for.user_ns > 2 * tick_ns(), "{waited_for:?}");
        let mut vanished = Process::open(own).unwrap();
        (vanished.parent, vanished.own) = (own, waited_for);
        let used = vanished.own + vanished.children;
        tree.account_for(&vanished, &HashMap::new());
        assert_eq!(tree.gone, used, "nobody has waited for it");
    }
}
