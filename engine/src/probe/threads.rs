//! The threads of a tree: on CPU, waiting for a CPU, blocked; switches, states and wait channels, added up by pool.
//! A pool is the thread name without its trailing number. What a thread gains between two scans is added to the pool
//! it belongs to then, so the sums never fall when threads end or change their name.

use std::collections::{BTreeMap, HashMap};

use super::clock_ns;
use super::process::{Process, tick_ns};
use super::procfs::{ProcFile, parse_schedstat, parse_stat, parse_status};
use crate::events::PoolSample;

/// Pools beyond this many are added up under one name: thread names may be made at random.
const POOLS_MAX: usize = 256;
const OTHER_POOLS: &str = "(other)";
/// Descriptors left for other uses; beyond that, files of threads are opened for each reading.
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
    tids: Vec<i32>,
}

struct Thread {
    schedstat: Option<ProcFile>,
    status: Option<ProcFile>,
    wait_channel: Option<ProcFile>,
    /// On CLOCK_BOOTTIME, to a tick.
    start_ns: u64,
    last: Counters,
    /// The scan that last saw it.
    seen: u64,
}

#[derive(Default)]
struct Pool {
    name: String,
    counters: Counters,
    threads_now: u32,
    states_now: BTreeMap<u8, u32>,
    wait_channels_now: HashMap<Vec<u8>, u32>,
}

/// One reading of a thread.
struct Reading<'b> {
    counters: Counters,
    name: &'b [u8],
    state: u8,
}

impl ThreadTable {
    /// Before the first process of a scan.
    pub fn begin_scan(&mut self) {
        self.scan += 1;
        for pool in &mut self.pools {
            pool.threads_now = 0;
            pool.states_now.clear();
            pool.wait_channels_now.clear();
        }
    }

    /// Reads all threads of one process. `detailed`: their wait channels too.
    pub fn scan(&mut self, process: &Process, detailed: bool) {
        let mut tids = std::mem::take(&mut self.tids);
        process.tasks.list(&mut tids);
        for &tid in &tids {
            self.read_thread(process.pid, tid, detailed);
        }
        self.tids = tids;
    }

    fn read_thread(&mut self, pid: i32, tid: i32, detailed: bool) {
        let may_keep = self.kept_files + 3 + DESCRIPTOR_RESERVE < descriptor_limit();
        let mut thread = match self.threads.remove(&tid) {
            Some(thread) => thread,
            None => match Thread::open(pid, tid, may_keep) {
                Some(thread) => {
                    self.kept_files += 3 * u64::from(may_keep);
                    thread
                }
                None => return,
            },
        };
        let mut buffer = [0u8; 4096];
        let mut channel = [0u8; 64];
        let Some(reading) = thread.read(pid, tid, &mut buffer) else {
            self.kept_files -= thread.kept_files();
            return; // it has ended; what it had gained is in its pool
        };
        let gained = reading.counters.combine(thread.last, u64::saturating_sub);
        thread.last = reading.counters;
        thread.seen = self.scan;
        let index = self.pool_index(pool_name(reading.name));
        let pool = &mut self.pools[index];
        pool.counters = pool.counters.combine(gained, u64::saturating_add);
        pool.threads_now += 1;
        *pool.states_now.entry(reading.state).or_default() += 1;
        if detailed && matches!(reading.state, b'S' | b'D' | b'I') {
            let channel = thread.wait_channel(pid, tid, &mut channel);
            if !channel.is_empty() && channel != b"0" {
                match pool.wait_channels_now.get_mut(channel) {
                    Some(count) => *count += 1,
                    None => {
                        pool.wait_channels_now.insert(channel.to_vec(), 1);
                    }
                }
            }
        }
        self.totals = self.totals.combine(gained, u64::saturating_add);
        self.threads.insert(tid, thread);
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

    /// After the last process of a scan: forgets the threads that were not met.
    pub fn end_scan(&mut self) {
        let scan = self.scan;
        let kept = &mut self.kept_files;
        self.threads.retain(|_, thread| {
            let alive = thread.seen == scan;
            if !alive {
                *kept -= thread.kept_files();
            }
            alive
        });
    }

    /// All counters count from the last scan on.
    pub fn start_from_here(&mut self) {
        self.totals = Counters::default();
        self.pools.clear();
        self.by_name.clear();
    }

    /// Over all threads since the start, as far as scans met them.
    pub fn totals(&self) -> Counters {
        self.totals
    }

    /// The pools as of the last scan.
    pub fn pools(&self) -> Vec<PoolSample> {
        self.pools.iter().map(Pool::sample).collect()
    }
}

impl Pool {
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
        }
    }
}

impl Thread {
    fn open(pid: i32, tid: i32, keep: bool) -> Option<Thread> {
        let mut buffer = [0u8; 1024];
        let stat = parse_stat(ProcFile::open(&path(pid, tid, "stat")).ok()?.read(&mut buffer).ok()?)?;
        let file = |name| if keep { ProcFile::open(&path(pid, tid, name)).ok() } else { None };
        Some(Thread {
            schedstat: file("schedstat"),
            status: file("status"),
            wait_channel: file("wchan"),
            start_ns: stat.start_ticks * tick_ns(),
            last: Counters::default(),
            seen: 0,
        })
    }

    fn kept_files(&self) -> u64 {
        if self.status.is_some() { 3 } else { 0 }
    }

    /// None when the thread has ended. Every counter is at least what it was.
    fn read<'b>(&self, pid: i32, tid: i32, buffer: &'b mut [u8]) -> Option<Reading<'b>> {
        let text = read_file(&self.schedstat, pid, tid, "schedstat", buffer)?;
        let (on_cpu_ns, run_wait_ns, _) = parse_schedstat(text)?;
        let on_cpu_ns = on_cpu_ns.max(self.last.on_cpu_ns);
        let run_wait_ns = run_wait_ns.max(self.last.run_wait_ns);
        let lifetime_ns = clock_ns(libc::CLOCK_BOOTTIME)?.saturating_sub(self.start_ns);
        let status = parse_status(read_file(&self.status, pid, tid, "status", buffer)?)?;
        Some(Reading {
            counters: Counters {
                on_cpu_ns,
                run_wait_ns,
                blocked_ns: lifetime_ns.saturating_sub(on_cpu_ns + run_wait_ns).max(self.last.blocked_ns),
                voluntary_switches: status.voluntary_switches,
                involuntary_switches: status.involuntary_switches,
            },
            name: status.name,
            state: status.state,
        })
    }

    fn wait_channel<'b>(&self, pid: i32, tid: i32, buffer: &'b mut [u8]) -> &'b [u8] {
        read_file(&self.wait_channel, pid, tid, "wchan", buffer).unwrap_or_default()
    }
}

fn path(pid: i32, tid: i32, name: &str) -> String {
    format!("/proc/{pid}/task/{tid}/{name}")
}

/// From the file kept open, or by opening it for this once.
fn read_file<'b>(kept: &Option<ProcFile>, pid: i32, tid: i32, name: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    match kept {
        Some(file) => file.read(buffer).ok(),
        None => ProcFile::open(&path(pid, tid, name)).ok()?.read(buffer).ok(),
    }
}

/// The name without trailing digits and separators; a name of nothing else stays whole.
fn pool_name(name: &[u8]) -> &[u8] {
    let numberless = name.iter().rposition(|b| !b.is_ascii_digit() && !b"-_#:./ ".contains(b));
    numberless.map_or(name, |last| &name[..=last])
}

/// The probe's soft limit (which it has raised to the hard one).
fn descriptor_limit() -> u64 {
    use std::sync::OnceLock;
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        // SAFETY: getrlimit writes to a valid structure.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_names_without_their_numbers() {
        for (name, pool) in [
            ("pool-1-thread-12", "pool-1-thread"),
            ("vert.x-eventloo", "vert.x-eventloo"),
            ("GC Thread#0", "GC Thread"),
            ("worker 3", "worker"),
            ("pool-10-thread-", "pool-10-thread"),
            ("java", "java"),
            ("42", "42"),
        ] {
            assert_eq!(pool_name(name.as_bytes()), pool.as_bytes());
        }
    }
}
