//! The threads of a tree: time on CPU, waiting for a CPU, blocked; switches, states and causes of blocking, summed by
//! pool. A pool is the thread name without its trailing number. The growth of a thread's counters between two scans is
//! added to its current pool, so the sums never fall when threads end or change their name.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::process::{Process, tick_ns};
use super::procfs::{ProcDir, ProcFile, STATUS_MAX, parse_schedstat, parse_stat, parse_status};
use super::waits::{kind_of_call, kind_of_channel, parse_call};
use crate::clock::{clock_ns, thread_cpu_ns};
use crate::contract::events::{PoolSample, ThreadSample, WaitKind};
use crate::sys::descriptor_limits;

/// Pools beyond this many are combined under one name: thread names may be random.
const POOLS_MAX: usize = 256; // arbitrary: far above any program's number; each is reported every second
const OTHER_POOLS: &str = "(other)";
/// The least number of new threads that a scan reads.
const NEWCOMERS_LEAST: usize = 8; // arbitrary: a few, whatever CPU time they cost
/// The number of threads reported individually, the busiest first.
const THREADS_TOLD: usize = 160;
/// Descriptors reserved for other uses; beyond that, files of threads are opened for each reading.
const DESCRIPTOR_RESERVE: u64 = 256;

/// Cumulative counters of one thread, a pool or all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    pub on_cpu_ns: u64,
    pub run_wait_ns: u64,
    pub blocked_ns: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl Counters {
    fn combine(self, other: Counters, f: impl Fn(u64, u64) -> u64) -> Counters {
        Counters {
            on_cpu_ns: f(self.on_cpu_ns, other.on_cpu_ns),
            run_wait_ns: f(self.run_wait_ns, other.run_wait_ns),
            blocked_ns: f(self.blocked_ns, other.blocked_ns),
            voluntary_switches: f(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: f(self.involuntary_switches, other.involuntary_switches),
        }
    }
}

#[derive(Default)]
pub struct ThreadTable {
    threads: HashMap<i32, Thread>,
    pools: Vec<Pool>,
    by_name: HashMap<Vec<u8>, usize>,
    totals: Counters,
    scan: u64,
    kept_files: u64,
    /// The probe's own CPU time spent on opening files of new threads in this scan.
    opening_ns: u64,
    /// New threads skipped in this scan; those still alive at the next one are read then.
    left_out: HashSet<i32>,
    left_out_before: HashSet<i32>,
    /// When this scan began, and the one before, on CLOCK_BOOTTIME.
    begun_ns: Option<u64>,
    begun_before_ns: Option<u64>,
}

struct Thread {
    files: Files,
    /// The thread's start on CLOCK_BOOTTIME, accurate to a tick.
    start_ns: u64,
    /// schedstat's three numbers at the last reading: if they are unchanged, the thread has not run since.
    raw: (u64, u64, u64),
    last: Counters,
    state: u8,
    pool: usize,
    name: Vec<u8>,
    /// True if at the last reading it slept in a wait channel that could be read.
    in_known_channel: bool,
    /// The cause of blocking at the last reading.
    blocked_on: Option<WaitKind>,
    /// The value of `last.on_cpu_ns` at the last event.
    told_on_cpu_ns: u64,
    /// Number of readings at which it was blocked, by cause.
    blocked_on_samples: BTreeMap<WaitKind, u64>,
    pid: i32,
    /// The last scan that saw it.
    seen: u64,
}

/// A thread's files, kept open if descriptors allow.
struct Files {
    tid: i32,
    schedstat: Option<ProcFile>,
    status: Option<ProcFile>,
    wait_channel: Option<ProcFile>,
    call: Option<ProcFile>,
}

#[derive(Default)]
struct Pool {
    name: String,
    counters: Counters,
    threads_now: u32,
    states_now: BTreeMap<u8, u32>,
    wait_channels_now: HashMap<Vec<u8>, u32>,
    blocked_on_samples: BTreeMap<WaitKind, u64>,
    /// The largest gain of one thread since the last event.
    on_cpu_ns_max: u64,
}

/// One reading of a thread.
struct Reading<'b> {
    raw: (u64, u64, u64),
    counters: Counters,
    /// None if unchanged.
    name: Option<&'b [u8]>,
    state: u8,
    /// Empty if unknown.
    channel: &'b [u8],
    /// None if the thread is not blocked, or if the cause is unknown.
    blocked_on: Option<WaitKind>,
}

impl ThreadTable {
    /// Reads all threads of these processes, as last listed. At most `newcomers_max` threads not seen by an earlier
    /// scan are read: if more start and end between two scans, each one read represents those that are not.
    pub fn scan(&mut self, processes: &[&Process], newcomers_max: usize) {
        self.begin_scan();
        let all = || processes.iter().flat_map(|process| process.tids.iter().map(move |&tid| (*process, tid)));
        let newcomers = all().filter(|&(_, tid)| self.is_newcomer(tid)).count();
        let stride = newcomers.div_ceil(newcomers_max.max(NEWCOMERS_LEAST));
        let mut weight = 1;
        for (process, tid) in all() {
            if !self.is_newcomer(tid) {
                self.read_thread(process, tid, 1);
            } else if (weight as usize) < stride {
                weight += 1;
                self.left_out.insert(tid);
            } else {
                self.read_thread(process, tid, weight);
                weight = 1;
            }
        }
        self.forget_ended();
    }

    fn begin_scan(&mut self) {
        self.scan += 1;
        self.opening_ns = 0;
        self.begun_before_ns = std::mem::replace(&mut self.begun_ns, clock_ns(libc::CLOCK_BOOTTIME));
        self.left_out_before = std::mem::take(&mut self.left_out);
        for pool in &mut self.pools {
            pool.threads_now = 0;
            pool.states_now.clear();
            pool.wait_channels_now.clear();
        }
    }

    fn is_newcomer(&self, tid: i32) -> bool {
        !self.threads.contains_key(&tid) && !self.left_out_before.contains(&tid)
    }

    /// Reads one thread. `weight`: the number of threads that it represents.
    fn read_thread(&mut self, process: &Process, tid: i32, weight: u32) {
        let known = self.threads.remove(&tid);
        let first = known.is_none();
        let mut thread = match known {
            Some(thread) => thread,
            None => match self.open_thread(process, tid) {
                Some(thread) => thread,
                None => return,
            },
        };
        let mut buffer = [0u8; STATUS_MAX];
        let mut channel = [0u8; 64];
        let Some(reading) = thread.read(process, &mut buffer, &mut channel) else {
            self.kept_files -= thread.files.kept();
            return; // it has ended; its gains are in its pool
        };
        if let Some(name) = reading.name {
            let pool = self.pool_index(&pool_name(name));
            if pool != thread.pool {
                (thread.pool, thread.told_on_cpu_ns) = (pool, thread.last.on_cpu_ns); // what it gained went to the other
            }
            thread.name.clear();
            thread.name.extend_from_slice(name);
        }
        let mut gained = reading.counters.combine(thread.last, u64::saturating_sub);
        if let (true, Some(begun_ns), Some(before_ns)) = (first, self.begun_ns, self.begun_before_ns) {
            // A thread that an earlier scan left out waited before this one, too: but then, other threads represented
            // it.
            gained.blocked_ns = gained.blocked_ns.min(begun_ns.saturating_sub(before_ns));
        }
        self.totals = self.totals.combine(gained, u64::saturating_add);
        let told_gain_ns = reading.counters.on_cpu_ns - thread.told_on_cpu_ns;
        self.pools[thread.pool].add(gained, &reading, told_gain_ns, weight);
        thread.raw = reading.raw;
        thread.last = reading.counters;
        thread.state = reading.state;
        thread.in_known_channel = !reading.channel.is_empty();
        thread.blocked_on = reading.blocked_on;
        if let Some(kind) = reading.blocked_on {
            *thread.blocked_on_samples.entry(kind).or_default() += 1;
        }
        thread.seen = self.scan;
        self.threads.insert(tid, thread);
    }

    fn open_thread(&mut self, process: &Process, tid: i32) -> Option<Thread> {
        let started_ns = thread_cpu_ns();
        let keep = self.kept_files + 4 + DESCRIPTOR_RESERVE < descriptor_limits().0;
        let thread = Thread::open(process, tid, keep)?;
        self.kept_files += thread.files.kept();
        self.opening_ns += thread_cpu_ns() - started_ns;
        Some(thread)
    }

    fn pool_index(&mut self, name: &[u8]) -> usize {
        if let Some(&index) = self.by_name.get(name) {
            return index;
        }
        let full = self.pools.len() >= POOLS_MAX;
        let name = if full { OTHER_POOLS.as_bytes() } else { name };
        if let Some(&index) = self.by_name.get(name) {
            return index;
        }
        self.pools.push(Pool { name: String::from_utf8_lossy(name).into_owned(), ..Pool::default() });
        self.by_name.insert(name.to_vec(), self.pools.len() - 1);
        self.pools.len() - 1
    }

    /// Removes the threads that this scan did not meet.
    fn forget_ended(&mut self) {
        let scan = self.scan;
        let kept = &mut self.kept_files;
        self.threads.retain(|_, thread| {
            let alive = thread.seen == scan;
            if !alive {
                *kept -= thread.files.kept();
            }
            alive
        });
    }

    /// CPU time that the last scan spent on opening the files of new threads, a cost that occurs once per thread.
    pub fn opening_ns(&self) -> u64 {
        self.opening_ns
    }

    /// Resets all counters, so that they count from the last scan on.
    pub fn start_from_here(&mut self) {
        self.totals = Counters::default();
        for pool in &mut self.pools {
            pool.counters = Counters::default();
            pool.blocked_on_samples.clear();
        }
        self.forget_gains();
    }

    /// Sums over all threads since the start, as far as scans met them.
    pub fn totals(&self) -> Counters {
        self.totals
    }

    /// The pools as of the last scan, for an event; resets the largest gains.
    pub fn tell_pools(&mut self) -> Vec<PoolSample> {
        let pools = self.pools.iter().map(Pool::sample).collect();
        self.forget_gains();
        pools
    }

    /// The threads, those that ran most since the last event first; to be called before `tell_pools`.
    pub fn tell_threads(&self) -> Vec<ThreadSample> {
        let gain_ns = |thread: &Thread| thread.last.on_cpu_ns - thread.told_on_cpu_ns;
        let mut first: Vec<(&i32, &Thread)> = self.threads.iter().collect();
        first.sort_unstable_by_key(|(tid, thread)| (std::cmp::Reverse(gain_ns(thread)), **tid));
        first.truncate(THREADS_TOLD);
        let told = |(tid, thread): (&i32, &Thread)| ThreadSample {
            tid: *tid,
            name: String::from_utf8_lossy(&thread.name).into_owned(),
            on_cpu_ns: thread.last.on_cpu_ns,
            run_wait_ns: thread.last.run_wait_ns,
            switches: thread.last.voluntary_switches + thread.last.involuntary_switches,
            pid: thread.pid,
            pool: self.pools[thread.pool].name.clone(),
            preemptions: thread.last.involuntary_switches,
            blocked_ns: thread.last.blocked_ns,
            blocked_on_samples: thread.blocked_on_samples.clone(),
        };
        first.into_iter().map(told).collect()
    }

    fn forget_gains(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.on_cpu_ns_max = 0);
        self.threads.values_mut().for_each(|thread| thread.told_on_cpu_ns = thread.last.on_cpu_ns);
    }
}

impl Pool {
    fn add(&mut self, gained: Counters, reading: &Reading, told_gain_ns: u64, weight: u32) {
        self.counters = self.counters.combine(gained, u64::saturating_add);
        self.threads_now += weight;
        self.on_cpu_ns_max = self.on_cpu_ns_max.max(told_gain_ns);
        *self.states_now.entry(reading.state).or_default() += weight;
        if let Some(kind) = reading.blocked_on {
            *self.blocked_on_samples.entry(kind).or_default() += u64::from(weight);
        }
        match self.wait_channels_now.get_mut(reading.channel) {
            Some(count) => *count += weight,
            None if reading.channel.is_empty() => {}
            None => {
                self.wait_channels_now.insert(reading.channel.to_vec(), weight);
            }
        }
    }

    fn sample(&self) -> PoolSample {
        let states = self.states_now.iter().map(|(&state, &count)| ((state as char).to_string(), count));
        let channels = self.wait_channels_now.iter();
        let channels = channels.map(|(name, &count)| (String::from_utf8_lossy(name).into_owned(), count));
        PoolSample {
            pool: self.name.clone(),
            threads_now: self.threads_now,
            on_cpu_ns: self.counters.on_cpu_ns,
            run_wait_ns: self.counters.run_wait_ns,
            blocked_ns: self.counters.blocked_ns,
            voluntary_switches: self.counters.voluntary_switches,
            involuntary_switches: self.counters.involuntary_switches,
            states_now: states.collect(),
            wait_channels_now: channels.collect(),
            blocked_on_samples: self.blocked_on_samples.clone(),
            on_cpu_ns_max: self.on_cpu_ns_max,
        }
    }
}

impl Thread {
    fn open(process: &Process, tid: i32, keep: bool) -> Option<Thread> {
        let tasks = &process.tasks;
        let mut buffer = [0u8; 1024];
        let stat = parse_stat(ProcFile::open_in(tasks, &path(tid, "stat")).ok()?.read(&mut buffer).ok()?)?;
        let file = |name| if keep { ProcFile::open_in(tasks, &path(tid, name)).ok() } else { None };
        Some(Thread {
            files: Files {
                tid,
                schedstat: file("schedstat"),
                status: file("status"),
                wait_channel: file("wchan"),
                call: file("syscall"),
            },
            start_ns: stat.start_ticks * tick_ns(),
            raw: (0, 0, 0),
            last: Counters::default(),
            state: stat.state,
            pool: 0,
            name: Vec::new(),
            in_known_channel: false,
            blocked_on: None,
            told_on_cpu_ns: 0,
            blocked_on_samples: BTreeMap::new(),
            pid: process.pid,
            seen: 0,
        })
    }

    /// Reads the thread. None if it has ended. No counter falls.
    ///
    /// `status` is the expensive file (11 us, against 1 for schedstat and 4 for the wait channel), and most threads are
    /// idle. A thread that slept in a known channel, has not run since and is still in a channel (a woken one is in
    /// none) has the same state, name, switches and cause of blocking as before.
    fn read<'b>(&self, process: &Process, buffer: &'b mut [u8], channel: &'b mut [u8]) -> Option<Reading<'b>> {
        let tasks = &process.tasks;
        let raw = parse_schedstat(self.files.schedstat(tasks, buffer)?)?;
        let mut counters = self.times(raw)?;
        let mut channel = self.files.wait_channel(tasks, channel);
        if raw == self.raw && self.in_known_channel && !channel.is_empty() {
            let blocked_on = self.blocked_on;
            return Some(Reading { raw, counters, name: None, state: self.state, channel, blocked_on });
        }
        let status = parse_status(self.files.status(tasks, buffer)?)?;
        counters.voluntary_switches = status.voluntary_switches;
        counters.involuntary_switches = status.involuntary_switches;
        if status.state == b'R' {
            channel = &[];
        }
        let blocked_on = self.files.blocked_on(process, status.state, channel);
        Some(Reading { raw, counters, name: Some(status.name), state: status.state, channel, blocked_on })
    }

    /// The thread's life so far, split by schedstat; switches unchanged.
    fn times(&self, (on_cpu_ns, run_wait_ns, _): (u64, u64, u64)) -> Option<Counters> {
        let on_cpu_ns = on_cpu_ns.max(self.last.on_cpu_ns);
        let run_wait_ns = run_wait_ns.max(self.last.run_wait_ns);
        let lifetime_ns = clock_ns(libc::CLOCK_BOOTTIME)?.saturating_sub(self.start_ns);
        let blocked_ns = lifetime_ns.saturating_sub(on_cpu_ns + run_wait_ns).max(self.last.blocked_ns);
        Some(Counters { on_cpu_ns, run_wait_ns, blocked_ns, ..self.last })
    }
}

impl Files {
    fn kept(&self) -> u64 {
        [&self.schedstat, &self.status, &self.wait_channel, &self.call].into_iter().flatten().count() as u64
    }

    fn schedstat<'b>(&self, tasks: &ProcDir, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        self.read(tasks, &self.schedstat, "schedstat", buffer)
    }

    fn status<'b>(&self, tasks: &ProcDir, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        self.read(tasks, &self.status, "status", buffer)
    }

    /// The channel in which the thread sleeps. Empty if the kernel does not show it, or if the thread does not sleep
    /// (the kernel writes `0`).
    fn wait_channel<'b>(&self, tasks: &ProcDir, buffer: &'b mut [u8]) -> &'b [u8] {
        let channel = self.read(tasks, &self.wait_channel, "wchan", buffer).unwrap_or_default();
        if channel == b"0" { &[] } else { channel }
    }

    /// The cause of blocking. None if the thread is not blocked (it runs, has stopped or ended), or if the kernel shows
    /// no cause.
    fn blocked_on(&self, process: &Process, state: u8, channel: &[u8]) -> Option<WaitKind> {
        if !matches!(state, b'S' | b'D') {
            return None;
        }
        let mut buffer = [0u8; 256];
        match self.read(&process.tasks, &self.call, "syscall", &mut buffer).and_then(parse_call) {
            Some(call) => kind_of_call(call, state, process),
            None => kind_of_channel(channel, state),
        }
    }

    /// Reads the file kept open, or opens it for this reading.
    fn read<'b>(&self, tasks: &ProcDir, kept: &Option<ProcFile>, name: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        match kept {
            Some(file) => file.read(buffer).ok(),
            None => ProcFile::open_in(tasks, &path(self.tid, name)).ok()?.read(buffer).ok(),
        }
    }
}

/// The path relative to the folder of a process's tasks.
fn path(tid: i32, name: &str) -> String {
    format!("{tid}/{name}")
}

/// The name without trailing digits and separators; a name that consists of these alone is unchanged. Newer JDKs cut
/// long names in the middle (`http-n..exec-1`, `http-n..xec-12`), so that the end shifts with the number. The pool of
/// such a name is its head with its last letter, which distinguishes `exec` from `Poller`.
/// Python, from 3.14 on, adds a function to the number, and the end is cut off (`Thread-7 (proce`, `Thread-12 (proc`).
/// Erlang puts it first (`1_scheduler`).
fn pool_name(name: &[u8]) -> Cow<'_, [u8]> {
    const CUT_HEAD: std::ops::RangeInclusive<usize> = 6..=7;
    let digits = name.iter().take_while(|b| b.is_ascii_digit()).count();
    let rest = name[digits..].strip_prefix(b"_").filter(|rest| digits > 0 && rest.iter().any(u8::is_ascii_alphabetic));
    let name = rest.unwrap_or(name);
    let numbered = name.windows(3).position(|three| three[0].is_ascii_digit() && three[1..] == *b" (");
    let name = numbered.map_or(name, |digit| &name[..=digit]);
    let numberless = name.iter().rposition(|b| !b.is_ascii_digit() && !b"-_#:./ ".contains(b));
    let Some(last) = numberless else { return name.into() };
    let cut = name.windows(2).position(|pair| pair == b"..").filter(|cut| CUT_HEAD.contains(cut));
    match cut {
        Some(cut) if name.len() >= 14 && last > cut + 1 => [&name[..cut + 2], &name[last..=last]].concat().into(),
        _ => name[..=last].into(),
    }
}

#[cfg(test)]
#[path = "threads_tests.rs"]
mod tests;
