//! Exact CPU time and exact waits, for requests and for planted bottlenecks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::{now_ns, thread_cpu_ns};
use crate::sys::sleep_until;

/// Burns this much CPU time, measured by the CPU clock of the calling thread. Time in which the thread is preempted
/// does not count, nor does time stolen by a hypervisor if the kernel accounts for it.
pub fn burn(cpu_ns: u64) {
    burn_with(cpu_ns, 0, || ());
}

/// Burns CPU time as `burn` does, calls `meanwhile` about every half microsecond, and in between yields the CPU so many
/// times. The CPU time of the yields counts, and no piece prolongs the whole.
pub fn burn_with(cpu_ns: u64, yields: u32, meanwhile: impl Fn()) {
    if cpu_ns == 0 && yields == 0 {
        return;
    }
    let (start_ns, pieces) = (thread_cpu_ns(), u128::from(yields) + 1);
    let mut x = 1u64;
    for piece in 1..=pieces {
        if piece > 1 {
            std::thread::yield_now();
        }
        let end_ns = start_ns + (u128::from(cpu_ns) * piece / pieces) as u64;
        while thread_cpu_ns() < end_ns {
            meanwhile();
            // The clock is a system call: read it about every half microsecond.
            for _ in 0..400 {
                x = std::hint::black_box(x.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(7));
            }
        }
    }
}

/// Sleeps until `wait_ns` after `from_ns`. The mean of many waits is exact; a single one ends a little early or late.
pub fn wait_from(from_ns: u64, wait_ns: u64) {
    if wait_ns == 0 {
        return;
    }
    if let Some(late_ns) = sleep_late_ns(from_ns + wait_ns - wake_early_ns(wait_ns)) {
        note_lateness(late_ns);
    }
}

/// Sleeps; returns how much too late it woke. None if the time had passed already, which says nothing about waking.
fn sleep_late_ns(due_ns: u64) -> Option<u64> {
    (now_ns() < due_ns).then(|| {
        sleep_until(due_ns);
        now_ns().saturating_sub(due_ns)
    })
}

/// The mean lateness with which this machine wakes a sleeping thread, as a moving mean. Sleeps end earlier by this
/// much, so that the *mean* wait is exact. Lateness above the maximum is time spent in the run queue, not wake-up time,
/// and is left out.
static LATENESS_NS: AtomicU64 = AtomicU64::new(0);
const LATENESS_NS_MAX: u64 = 150_000; // arbitrary: three times the usual timer slack, 50 us

/// How much earlier the timer of a wait of `wait_ns` is set.
pub fn wake_early_ns(wait_ns: u64) -> u64 {
    LATENESS_NS.load(Relaxed).min(wait_ns / 4)
}

/// Adds one observed wake-up delay to the moving mean.
pub fn note_lateness(late_ns: u64) {
    if late_ns <= LATENESS_NS_MAX {
        // Threads may overwrite each other's update; a lost one does no harm.
        LATENESS_NS.store((LATENESS_NS.load(Relaxed) * 31 + late_ns) / 32, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_make_no_burning_longer() {
        let burned = || {
            let start = thread_cpu_ns();
            burn_with(2_000_000, 200, || ());
            thread_cpu_ns() - start
        };
        // The least of several: a busy virtual machine counts some of its own time.
        let least = (0..5).map(|_| burned()).min().unwrap();
        assert!((2_000_000..2_200_000).contains(&least), "{least}");
    }

    #[test]
    fn a_wait_that_is_over_before_it_begins_tells_no_lateness() {
        assert_eq!(sleep_late_ns(now_ns() - 1_000), None);
        assert!(sleep_late_ns(now_ns() + 50_000_000).is_some());
    }

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
        // Each wait may end early by a quarter at most.
        assert!(now_ns() - wall >= 15_000_000);
        assert!(thread_cpu_ns() - cpu < 10_000_000);
    }
}
