//! The three instants that divide a run: warm-up | measure | drain | over. The coordinator sets them, always a little
//! in the future. The event loops read them with every event, so all threads switch phases at exactly the same
//! instants.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::contract::events::Phase;

/// Ends of warm-up, measure and drain; `u64::MAX` while unknown.
pub struct Edges {
    ends: [AtomicU64; 3],
}

impl Default for Edges {
    fn default() -> Self {
        Edges { ends: [const { AtomicU64::new(u64::MAX) }; 3] }
    }
}

impl Edges {
    #[inline]
    pub fn end_of(&self, phase: Phase) -> u64 {
        self.ends[phase as usize].load(Ordering::Acquire)
    }

    pub fn measure_start(&self) -> u64 {
        self.end_of(Phase::Warmup)
    }

    pub fn measure_end(&self) -> u64 {
        self.end_of(Phase::Measure)
    }

    pub fn over(&self) -> u64 {
        self.end_of(Phase::Drain)
    }

    /// True if something intended at this instant belongs to the measured window.
    #[inline]
    pub fn in_window(&self, at_ns: u64) -> bool {
        at_ns >= self.measure_start() && at_ns < self.measure_end()
    }

    /// Stores the later edges first: a loop that sees the end of its phase then also sees the ends of the following
    /// ones.
    pub fn set(&self, measure_start: u64, measure_end: u64, over: u64) {
        let measure_end = measure_end.min(over);
        self.ends[2].store(over, Ordering::Release);
        self.ends[1].store(measure_end, Ordering::Release);
        self.ends[0].store(measure_start.min(measure_end), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_never_pass_the_ones_after_them() {
        let edges = Edges::default();
        edges.set(50, u64::MAX, 40);
        assert_eq!([edges.measure_start(), edges.measure_end(), edges.over()], [40, 40, 40]);
        edges.set(10, 20, 40);
        assert_eq!([9, 10, 19, 20].map(|at| edges.in_window(at)), [false, true, true, false]);
    }
}
