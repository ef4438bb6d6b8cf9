//! Exact counts from the kernel's perf software events, inherited by every thread and process that a watched one
//! creates, so that nothing is missed between two samples: context switches, and threads created. If perf is not
//! permitted the counts are None; nothing here is estimated.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const TYPE_SOFTWARE: u32 = 1;
const CONTEXT_SWITCHES: u64 = 3;
const DUMMY: u64 = 9;
const FLAG_DISABLED: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_ENABLE_ON_EXEC: u64 = 1 << 12;
/// Records of forks and exits in the ring.
const FLAG_TASK: u64 = 1 << 13;
const OPEN_CLOEXEC: libc::c_ulong = 8;
const IOCTL_SET_OUTPUT: libc::c_ulong = 0x2405;
const RECORD_LOST: u32 = 2;
const RECORD_FORK: u32 = 7;
/// Data pages of one CPU's ring: 256 KiB hold about 4,000 thread starts (with their ends) between two samples, and stay
/// within the limit of locked memory for an unprivileged user (perf_event_mlock_kb, 516).
const RING_PAGES: usize = 64;
/// The most descriptors for attaching to running threads; beyond it the counts are None.
const ATTACH_LIMIT: usize = 2048;

/// `struct perf_event_attr`, first version (64 bytes), which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

/// The counters of one tree.
#[derive(Debug, Default)]
pub struct PerfCounters {
    /// One per thread that existed at the start; each sums its thread and all that descend from it.
    switches: Vec<OwnedFd>,
    forks: Option<ForkCounter>,
}

impl PerfCounters {
    /// Opens the counters on a child that has not yet called exec; counting starts with its exec.
    pub fn open_for_exec(pid: i32) -> PerfCounters {
        let flags = FLAG_INHERIT | FLAG_DISABLED | FLAG_ENABLE_ON_EXEC;
        let switches = open(CONTEXT_SWITCHES, flags, pid, -1).into_iter().collect();
        let mut forks = ForkCounter::new();
        let opened = forks.as_mut().is_some_and(|forks| forks.add(pid, flags));
        PerfCounters { switches, forks: forks.filter(|_| opened) }
    }

    /// Opens the counters on running processes; counting starts now. `list` returns the ids of all their threads. Returns
    /// None if not all of these can be counted.
    pub fn attach(mut list: impl FnMut() -> Vec<i32>) -> Option<PerfCounters> {
        let mut counters = PerfCounters { switches: Vec::new(), forks: Some(ForkCounter::new()?) };
        let mut covered = HashSet::new();
        // A thread that appears during attaching is covered already if its creator was: its fork is in the ring then.
        // Otherwise it is opened too, until a listing shows nothing new.
        for _ in 0..16 {
            let forks = counters.forks.as_mut()?;
            let mut new: Vec<i32> = list();
            forks.drain(Some(&mut covered));
            new.retain(|tid| !covered.contains(tid));
            if new.is_empty() {
                forks.started = 0; // threads that appeared while attaching count as initial ones
                return Some(counters);
            }
            if (covered.len() + new.len()) * (1 + forks.rings.len()) > ATTACH_LIMIT {
                return None;
            }
            for tid in new {
                covered.insert(tid);
                match open(CONTEXT_SWITCHES, FLAG_INHERIT, tid, -1) {
                    Ok(fd) => counters.switches.push(fd),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(_) => return None,
                }
                if !forks.add(tid, FLAG_INHERIT) {
                    return None;
                }
            }
        }
        None
    }

    /// Context switches since the start, over all living and ended threads.
    pub fn context_switches(&self) -> Option<u64> {
        if self.switches.is_empty() {
            return None;
        }
        self.switches.iter().map(read_count).sum()
    }

    /// Threads created since the start (first threads of forked processes included). Must be called often enough for
    /// the rings not to overflow; after an overflow the count is None for good. The kernel reports an overflow only
    /// before its next record, so the count is also None while it is below the number of living threads, `at_least`
    /// (one such reading is no proof of a loss, since a thread can be seen a moment before its record; two are).
    pub fn threads_created(&mut self, at_least: u64) -> Option<u64> {
        let forks = self.forks.as_mut()?;
        forks.drain(None);
        let short = forks.started < at_least;
        if forks.lost || short && forks.short {
            self.forks = None;
            return None;
        }
        forks.short = short;
        (!short).then_some(forks.started)
    }
}

fn read_count(fd: &OwnedFd) -> Option<u64> {
    let mut value = 0u64;
    // SAFETY: reads 8 bytes into a u64.
    let n = unsafe { libc::read(fd.as_raw_fd(), (&raw mut value).cast(), 8) };
    (n == 8).then_some(value)
}

fn open(config: u64, flags: u64, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let attr = Attr { kind: TYPE_SOFTWARE, size: 64, config, flags, ..Attr::default() };
    // SAFETY: the attribute is a valid structure of the size it states; the descriptor returned is ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, -1, OPEN_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

/// Counts fork records. An inherited event may only have a ring if it is bound to a CPU, so there is one for each.
#[derive(Debug)]
struct ForkCounter {
    rings: Vec<Ring>,
    /// Descriptors that share the rings: they only have to stay open.
    sharing: Vec<OwnedFd>,
    started: u64,
    lost: bool,
    /// True if the last count was below the number of living threads.
    short: bool,
}

impl ForkCounter {
    fn new() -> Option<ForkCounter> {
        let rings: Vec<Ring> = online_cpus()?.into_iter().map(Ring::new).collect();
        Some(ForkCounter { rings, sharing: Vec::new(), started: 0, lost: false, short: false })
    }

    /// Watches a thread. Also returns true if the thread has gone already.
    fn add(&mut self, tid: i32, flags: u64) -> bool {
        for ring in &mut self.rings {
            let fd = match open(DUMMY, flags | FLAG_TASK, tid, ring.cpu) {
                Ok(fd) => fd,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return true,
                Err(_) => return false,
            };
            match &ring.map {
                None => {
                    if !ring.map_on(fd) {
                        return false;
                    }
                }
                Some(map) => {
                    // SAFETY: an ioctl between two perf descriptors of ours.
                    if unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_SET_OUTPUT, map.fd.as_raw_fd()) } != 0 {
                        return false;
                    }
                    self.sharing.push(fd);
                }
            }
        }
        true
    }

    fn drain(&mut self, mut tids: Option<&mut HashSet<i32>>) {
        for ring in &mut self.rings {
            ring.drain(|kind, tid| match kind {
                RECORD_FORK => {
                    self.started += 1;
                    if let Some(tids) = tids.as_deref_mut() {
                        tids.insert(tid);
                    }
                }
                RECORD_LOST => self.lost = true,
                _ => {}
            });
        }
    }
}

/// The CPUs online, from e.g. `0-3,8`.
fn online_cpus() -> Option<Vec<i32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    parse_cpu_list(text.trim())
}

fn parse_cpu_list(text: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<i32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[derive(Debug)]
struct Ring {
    cpu: i32,
    map: Option<Map>,
}

#[derive(Debug)]
struct Map {
    fd: OwnedFd,
    /// The control page, followed by the data pages.
    base: *mut u8,
    length: usize,
    data_offset: usize,
    data_size: usize,
}

impl Ring {
    fn new(cpu: i32) -> Ring {
        Ring { cpu, map: None }
    }

    fn map_on(&mut self, fd: OwnedFd) -> bool {
        // SAFETY: maps the descriptor's own buffer, of a size perf accepts (one page plus a power of two).
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let length = (1 + RING_PAGES) * page;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            if base == libc::MAP_FAILED {
                return false;
            }
            self.map = Some(Map { fd, base: base.cast(), length, data_offset: page, data_size: RING_PAGES * page });
        }
        true
    }

    /// Calls `record(type, tid)` for each new record; the tid is meaningful for forks only.
    fn drain(&mut self, mut record: impl FnMut(u32, i32)) {
        let Some(map) = &self.map else { return };
        let head = map.control(1024).load(Ordering::Acquire);
        let tail_word = map.control(1032);
        let mut tail = tail_word.load(Ordering::Relaxed);
        while tail < head {
            let header = map.word(tail);
            let (kind, size) = (header as u32, header >> 48);
            if size == 0 {
                break;
            }
            // struct { header; u32 pid, ppid; u32 tid, ptid; u64 time; }
            record(kind, map.word(tail + 16) as i32);
            tail += size;
        }
        tail_word.store(head, Ordering::Release);
    }
}

impl Map {
    /// A word of the control page: 1024 `data_head`, written by the kernel; 1032 `data_tail`, by us.
    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the control page, 8-aligned, and shared with the kernel as an atomic word.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }

    /// The 8 bytes at a position of the endless stream; records are 8-aligned, so a word never wraps.
    fn word(&self, position: u64) -> u64 {
        let at = (position % self.data_size as u64) as usize;
        // SAFETY: within the data pages, 8-aligned, and published by the kernel through `data_head`.
        unsafe { self.base.add(self.data_offset + at).cast::<u64>().read_volatile() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map_on` mapped.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_have_ranges_and_single_ones() {
        assert_eq!(parse_cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("x"), None);
    }
}
