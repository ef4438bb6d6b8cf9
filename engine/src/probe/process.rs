//! One process: its open /proc files, and their current values. `tree` sums them over trees, and accounts for the
//! counters of processes that have ended.

use std::ops::{Add, AddAssign};

use super::procfs::{ProcDir, ProcFile, STATUS_MAX, Stat, Statm, after, number_after, parse_stat, parse_statm};
use super::waits::Surroundings;
use crate::clock::{clock_ns, timeval_ns};

/// Resources used by a process; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
}

impl Usage {
    /// From the rusage of a process that was reaped: it covers the process and its waited-for children.
    pub fn of_rusage(usage: &libc::rusage) -> Usage {
        Usage {
            user_ns: timeval_ns(usage.ru_utime),
            system_ns: timeval_ns(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
        }
    }

    /// Field by field self - other, not below 0.
    pub fn saturating_sub(self, other: Usage) -> Usage {
        Usage {
            user_ns: self.user_ns.saturating_sub(other.user_ns),
            system_ns: self.system_ns.saturating_sub(other.system_ns),
            minor_faults: self.minor_faults.saturating_sub(other.minor_faults),
            major_faults: self.major_faults.saturating_sub(other.major_faults),
        }
    }

    /// The usage after a new reading `new` of the counter that stood at `self`. A grown CPU total is kept exactly, and
    /// split so that neither part falls (the kernel's own split comes from ticks and may fluctuate).
    pub fn advance_to(self, new: Usage) -> Usage {
        let total = (new.user_ns + new.system_ns).max(self.user_ns + self.system_ns);
        let user_ns = new.user_ns.clamp(self.user_ns, total - self.system_ns);
        Usage {
            user_ns,
            system_ns: total - user_ns,
            minor_faults: new.minor_faults.max(self.minor_faults),
            major_faults: new.major_faults.max(self.major_faults),
        }
    }
}

impl Add for Usage {
    type Output = Usage;

    fn add(mut self, other: Usage) -> Usage {
        self += other;
        self
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
    }
}

/// Numbers of capabilities (linux/capability.h).
const CAP_SYS_ADMIN: u64 = 21;
const CAP_SYS_RESOURCE: u64 = 24;

#[derive(Debug)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Usage of the process itself at the last reading, exited threads included.
    pub own: Usage,
    /// Usage of the children that it has waited for, and of theirs, at the last reading. Accurate to a tick for each
    /// field.
    pub children: Usage,
    /// The part of `children` that no process seen to vanish from now on can be in: what was there when its files were
    /// opened, and what has been matched with such processes since.
    pub claimed: Usage,
    pub threads: u32,
    pub rss_bytes: u64,
    /// The part of `rss_bytes` that is neither of files nor of shared memory; None if not known.
    pub anonymous_bytes: Option<u64>,
    /// True if it has ended and its parent has not waited for it yet.
    pub zombie: bool,
    /// Its threads as last listed (see `list_threads`).
    pub tids: Vec<i32>,
    /// The thread whose files show memory and descriptors: the files of a main thread that has ended are empty.
    shown_by: i32,
    /// True if the children's counters grew at the last reading.
    pub inherited: bool,
    stat: ProcFile,
    memory: Option<ProcFile>,
    last_stat: Stat,
    pub tasks: ProcDir,
    descriptors: Option<ProcDir>,
    cpu_clock: libc::clockid_t,
}

impl Process {
    /// Opens the files of a process. None if it has gone already.
    pub fn open(pid: i32) -> Option<Process> {
        let mut process = Process {
            pid,
            parent: 0,
            own: Usage::default(),
            children: Usage::default(),
            claimed: Usage::default(),
            threads: 0,
            rss_bytes: 0,
            anonymous_bytes: None,
            zombie: false,
            tids: Vec::new(),
            shown_by: pid,
            inherited: false,
            stat: ProcFile::open(&format!("/proc/{pid}/stat")).ok()?,
            memory: None,
            last_stat: Stat::default(),
            tasks: ProcDir::open(&format!("/proc/{pid}/task")).ok()?,
            descriptors: None,
            // Computed like clock_getcpuclockid: the scheduler's exact clock of the whole process.
            cpu_clock: (!pid << 3) | 2,
        };
        process.show_by(pid);
        let alive = process.update();
        // What it has waited for so far cannot be a process that vanishes later.
        process.claimed = process.children;
        alive.then_some(process)
    }

    /// Reads the process anew; false when it has gone (the last values stay).
    pub fn update(&mut self) -> bool {
        let mut buffer = [0u8; 1024];
        let Some(stat) = self.stat.read(&mut buffer).ok().and_then(parse_stat) else { return false };
        self.last_stat = stat;
        self.parent = stat.parent;
        self.zombie = stat.is_dead();
        let ended = u32::from(stat.main_thread_ended());
        self.threads = if self.zombie { 0 } else { stat.threads - ended };
        if !stat.main_thread_ended() && self.shown_by != self.pid {
            self.show_by(self.pid); // another thread has called exec, and is the main thread now
        }
        let pages = match (self.zombie, stat.main_thread_ended()) {
            (true, _) => Some(Statm::default()),
            (false, true) => self.shown_by_another(),
            // A small process may seem to have none, as each CPU holds some of its count back.
            (false, false) => self.pages().or((stat.rss_pages == 0).then(Statm::default)),
        };
        self.rss_bytes = pages.map_or(stat.rss_pages, |pages| pages.resident) * page_bytes();
        self.anonymous_bytes = pages.map(|pages| pages.anonymous * page_bytes());
        self.own = self.own.advance_to(own_usage(&stat, clock_ns(self.cpu_clock)));
        let children = self.children.advance_to(Usage {
            user_ns: stat.child_user_ticks * tick_ns(),
            system_ns: stat.child_system_ticks * tick_ns(),
            minor_faults: stat.child_minor_faults,
            major_faults: stat.child_major_faults,
        });
        self.inherited = children != self.children;
        self.children = children;
        true
    }

    fn show_by(&mut self, tid: i32) {
        self.shown_by = tid;
        self.memory = ProcFile::open(&format!("/proc/{tid}/statm")).ok();
        self.descriptors = ProcDir::open(&format!("/proc/{tid}/fd")).ok();
    }

    /// Pages, read from a thread that is alive although the main thread has ended.
    fn shown_by_another(&mut self) -> Option<Statm> {
        let told = self.pages();
        if told.is_some() {
            return told;
        }
        let mut tids = Vec::new();
        self.tasks.list(&mut tids);
        tids.retain(|&tid| tid != self.pid);
        for tid in tids {
            self.show_by(tid);
            let told = self.pages();
            if told.is_some() {
                return told;
            }
        }
        None
    }

    /// Pages, as `shown_by` shows them; None if it has ended, or its file could not be opened.
    fn pages(&self) -> Option<Statm> {
        let mut buffer = [0u8; 128];
        let told = parse_statm(self.memory.as_ref()?.read(&mut buffer).ok()?)?;
        (told.resident > 0).then_some(told)
    }

    /// A cheaper `update`, without readings whose cost grows with the threads, except the exact CPU clock: CPU time,
    /// split as at the last full reading, memory and number of threads. False when a full update is needed.
    pub fn update_lightly(&mut self) -> bool {
        let Some(pages) = self.pages() else { return false }; // a zombie, or gone
        let ended = u32::from(self.shown_by != self.pid);
        let (threads, clock) = (self.tasks.subfolders().saturating_sub(ended), clock_ns(self.cpu_clock));
        if threads == 0 || clock.is_none() {
            return false;
        }
        self.rss_bytes = pages.resident * page_bytes();
        self.anonymous_bytes = Some(pages.anonymous * page_bytes());
        self.threads = threads;
        self.own = self.own.advance_to(own_usage(&self.last_stat, clock));
        self.inherited = false;
        true
    }

    /// Lists the process's threads into `tids`, without a main thread that has ended.
    pub fn list_threads(&mut self) {
        self.tasks.list(&mut self.tids);
        if self.shown_by != self.pid {
            self.tids.retain(|&tid| tid != self.pid);
        }
    }

    /// Open descriptors; None before Linux 6.2 (count them with `sockets` there) or if not permitted.
    pub fn descriptors(&self) -> Option<u32> {
        self.descriptors.as_ref().map(|dir| dir.size() as u32).filter(|&count| count > 0)
    }

    /// Number of descriptors left below its soft limit; None if either number is unknown.
    pub fn descriptors_left(&self) -> Option<u64> {
        let open = u64::from(self.descriptors()?);
        Some(self.limit(libc::RLIMIT_NOFILE)?.saturating_sub(open))
    }

    /// The most threads that the process's user may have in all. None if unknown, or if no limit applies to the process
    /// (capabilities(7): CAP_SYS_RESOURCE and CAP_SYS_ADMIN lift it).
    pub fn tasks_most(&self) -> Option<u64> {
        let mut buffer = [0u8; STATUS_MAX];
        let status = ProcFile::open(&format!("/proc/{}/status", self.shown_by)).ok()?;
        let capabilities = after(status.read(&mut buffer).ok()?, b"\nCapEff:\t")?.get(..16)?;
        let capabilities = u64::from_str_radix(std::str::from_utf8(capabilities).ok()?, 16).ok()?;
        if capabilities & (1 << CAP_SYS_ADMIN | 1 << CAP_SYS_RESOURCE) != 0 {
            return None;
        }
        self.limit(libc::RLIMIT_NPROC).filter(|&most| most != libc::RLIM_INFINITY)
    }

    /// The soft limit on a resource; None if it cannot be read.
    fn limit(&self, resource: libc::__rlimit_resource_t) -> Option<u64> {
        // SAFETY: prlimit without a new limit only writes to a valid structure.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            (libc::prlimit(self.pid, resource, std::ptr::null(), &mut limit) == 0).then_some(limit)?
        };
        Some(limit.rlim_cur)
    }

    /// Open descriptors and how many of them are sockets. Expensive: about 1.5 us for each descriptor.
    pub fn sockets(&self, scratch: &mut Vec<i32>) -> (u32, u32) {
        let Some(dir) = &self.descriptors else { return (0, 0) };
        dir.list(scratch);
        let sockets = scratch.iter().filter(|&&fd| dir.is_socket(fd)).count();
        (scratch.len() as u32, sockets as u32)
    }

    /// Proportional set size. Expensive: the kernel walks the page tables. None if not permitted.
    pub fn pss_bytes(&self) -> Option<u64> {
        if self.zombie {
            return Some(0);
        }
        let mut buffer = [0u8; 2048];
        let file = ProcFile::open(&format!("/proc/{}/smaps_rollup", self.shown_by)).ok()?;
        let text = file.read(&mut buffer).ok()?;
        Some(number_after(text, b"\nPss:").unwrap_or(0) * 1024)
    }
}

impl Surroundings for Process {
    /// Returns false also if the descriptor may not be inspected.
    fn is_socket(&self, descriptor: i32) -> bool {
        self.descriptors.as_ref().is_some_and(|dir| dir.is_socket(descriptor))
    }

    fn first_polled(&self, address: u64) -> Option<i32> {
        let mut descriptor = [0u8; size_of::<i32>()]; // the first field of a pollfd
        let local = libc::iovec { iov_base: descriptor.as_mut_ptr().cast(), iov_len: descriptor.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: descriptor.len() };
        // SAFETY: writes at most the given length to a live buffer; the other address is the other process's.
        let read = unsafe { libc::process_vm_readv(self.pid, &raw const local, 1, &raw const remote, 1, 0) };
        (read == descriptor.len() as isize).then(|| i32::from_ne_bytes(descriptor))
    }
}

/// The exact CPU total from the process's clock, split in the proportion of the ticks in `stat`; the remainder beyond
/// whole ticks is split in the same proportion.
fn own_usage(stat: &Stat, clock_ns: Option<u64>) -> Usage {
    let (user_ns, system_ns) = (stat.user_ticks * tick_ns(), stat.system_ticks * tick_ns());
    let ticked = user_ns + system_ns;
    let rest = clock_ns.unwrap_or(0).saturating_sub(ticked);
    let user_rest = if ticked == 0 { rest } else { (rest as u128 * user_ns as u128 / ticked as u128) as u64 };
    Usage {
        user_ns: user_ns + user_rest,
        system_ns: system_ns + (rest - user_rest),
        minor_faults: stat.minor_faults,
        major_faults: stat.major_faults,
    }
}

/// Length of a tick in /proc: 10 ms nearly everywhere.
pub fn tick_ns() -> u64 {
    // SAFETY: sysconf has no precondition.
    1_000_000_000 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf has no precondition.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage(user_ns: u64, system_ns: u64) -> Usage {
        Usage { user_ns, system_ns, ..Usage::default() }
    }

    #[test]
    fn the_clock_gives_the_total_and_the_ticks_the_split() {
        let stat = Stat { user_ticks: 3, system_ticks: 1, ..Stat::default() };
        let exact = own_usage(&stat, Some(48_000_000));
        assert_eq!((exact.user_ns, exact.system_ns), (36_000_000, 12_000_000));
        assert_eq!(own_usage(&Stat::default(), Some(7)), usage(7, 0));
        assert_eq!(own_usage(&stat, None), usage(30_000_000, 10_000_000));
    }

    proptest! {
        #[test]
        fn advancing_never_falls_and_keeps_a_growing_total(readings in prop::collection::vec((0u64..1000, 0u64..1000), 1..20)) {
            let mut at = Usage::default();
            for (user, system) in readings {
                let next = at.advance_to(usage(user, system));
                prop_assert!(next.user_ns >= at.user_ns && next.system_ns >= at.system_ns);
                let highest = (user + system).max(at.user_ns + at.system_ns);
                prop_assert_eq!(next.user_ns + next.system_ns, highest);
                at = next;
            }
        }
    }

    #[test]
    fn own_process_is_read() {
        let mut process = Process::open(std::process::id() as i32).unwrap();
        assert!(process.threads >= 1 && process.rss_bytes > 0 && !process.zombie);
        assert!(process.anonymous_bytes.is_some_and(|bytes| bytes > 0));
        let (rss_bytes, threads) = (process.rss_bytes, process.threads);
        assert!(process.update_lightly());
        assert!(process.rss_bytes > rss_bytes / 2 && process.threads.abs_diff(threads) < 100);
        assert!(process.anonymous_bytes.is_some_and(|bytes| bytes < process.rss_bytes));
        assert!(process.pss_bytes().unwrap() > 0);
        let (descriptors, _) = process.sockets(&mut Vec::new());
        assert!(descriptors >= 3);
        assert!(Process::open(i32::MAX - 1).is_none());
    }
}
