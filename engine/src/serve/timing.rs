//! Exact amounts of CPU time and of waiting, for whatever a request or a planted bottleneck takes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::{now_ns, thread_cpu_ns};
use crate::sys::sleep_until;

/// Uses this much CPU time of the calling thread, by its own CPU clock: preemption does not count, and neither does
/// the time a hypervisor took where the kernel accounts for it.
pub fn burn(cpu_ns: u64) {
    burn_with(cpu_ns, || ());
}

/// The same, with something to do every half microsecond.
pub fn burn_with(cpu_ns: u64, meanwhile: impl Fn()) {
    if cpu_ns == 0 {
        return;
    }
    let end_ns = thread_cpu_ns() + cpu_ns;
    let mut x = 1u64;
    while thread_cpu_ns() < end_ns {
        meanwhile();
        // About half a microsecond between two looks at the clock, which is a system call.
        for _ in 0..400 {
            x = std::hint::black_box(x.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(7));
        }
    }
}

/// Waits without using the CPU until `wait_ns` after `from_ns`, on average.
pub fn wait_from(from_ns: u64, wait_ns: u64) {
    if wait_ns == 0 {
        return;
    }
    let due_ns = from_ns + wait_ns - wake_early_ns(wait_ns);
    sleep_until(due_ns);
    note_lateness(now_ns().saturating_sub(due_ns));
}

/// How late this machine wakes a sleeper: a moving mean, from which timed waits are started early, so that the
/// *mean* wait is what was asked for. Longer lateness is no wake-up time but a queue for the CPU, and left out.
static LATENESS_NS: AtomicU64 = AtomicU64::new(0);
const LATENESS_NS_MAX: u64 = 150_000;

/// How long before its end a wait of `wait_ns` should be due.
pub fn wake_early_ns(wait_ns: u64) -> u64 {
    LATENESS_NS.load(Relaxed).min(wait_ns / 4)
}

/// Reports by how much a sleeper missed the instant it had asked for.
pub fn note_lateness(late_ns: u64) {
    if late_ns <= LATENESS_NS_MAX {
        // Threads may overwrite each other's update: any of them is a fair one.
        LATENESS_NS.store((LATENESS_NS.load(Relaxed) * 31 + late_ns) / 32, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burning_uses_the_cpu_and_waiting_does_not() {
        let start = thread_cpu_ns();
        burn(2_000_000);
        let burned = thread_cpu_ns() - start;
        assert!(burned >= 2_000_000, "{burned}");
        let (cpu, wall) = (thread_cpu_ns(), now_ns());
        for _ in 0..10 {
            wait_from(now_ns(), 2_000_000);
        }
        // Each may be due early by a quarter at most.
        assert!(now_ns() - wall >= 15_000_000);
        assert!(thread_cpu_ns() - cpu < 10_000_000);
    }
}
