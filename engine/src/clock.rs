//! The clocks: CLOCK_MONOTONIC for every instant on the wire, the wall clock once for the anchor, CPU clocks of the
//! process and of the calling thread. All integer ns. No formatting, no sleeping.

/// CLOCK_MONOTONIC now. Costs about 25 ns (vDSO), no system call.
#[inline]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// ns since 1970.
pub fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread, user and kernel.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process, user and kernel together.
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the process, user and kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    pub cpu_user_ns: u64,
    pub cpu_system_ns: u64,
}

impl ProcessUse {
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_user_ns + self.cpu_system_ns
    }
}

pub fn process_use() -> ProcessUse {
    // SAFETY: `rusage` is plain data for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage; RUSAGE_SELF cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    ProcessUse { cpu_user_ns: timeval_ns(usage.ru_utime), cpu_system_ns: timeval_ns(usage.ru_stime) }
}

pub fn timeval_ns(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
}

/// Largest resident set of this program so far; 0 if /proc does not show it. rusage is not used: its value starts at
/// the size of the process that forked this one.
pub fn max_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.unwrap_or(0u64) * 1024
}

/// The time of any clock; None if the clock does not exist (the CPU clock of a process that has ended).
#[inline]
pub fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// One of the clocks that exist on every Linux.
#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    clock_ns(clock).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_cpu_is_the_sum_of_its_parts_and_grows_with_work() {
        let before = process_use();
        let cpu_before = thread_cpu_ns();
        let mut sum = 0u64;
        while thread_cpu_ns() - cpu_before < 30_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = process_use().cpu_ns() - before.cpu_ns();
        assert!(used >= 15_000_000, "30 ms of work showed as {used} ns");
    }

    #[test]
    fn the_largest_resident_set_holds_what_was_touched() {
        let before = max_rss_bytes();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(max_rss_bytes() >= before.max(touched.len() as u64));
    }
}
