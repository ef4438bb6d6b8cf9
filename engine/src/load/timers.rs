//! The timers of an event loop: user starts, and requests after a pause. A binary heap of 24-byte entries. Request
//! timeouts are not among them: a sweep over the connections finds them, which costs nothing per request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Timers are ordered by their fields, the first field first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    pub due_ns: u64,
    pub slot: u32,
    pub step: u16,
    /// The length of the pause that ends at `due_ns`.
    pub pause_ns: u64,
    /// True if the user starts with this timer, as its place in the ramp says, or, with a WebSocket, joins or joins
    /// again.
    pub arrives: bool,
    /// With a WebSocket: the user's connection that the timer belongs to, as the low bits of its slot's generation.
    pub life: u8,
}

#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
}

impl Timers {
    pub fn push(&mut self, timer: Timer) {
        self.heap.push(Reverse(timer));
    }

    /// The instant of the earliest timer; `u64::MAX` if there is none.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse(timer)| timer.due_ns)
    }

    /// Removes and returns the earliest timer if it is due before this instant.
    pub fn pop_before(&mut self, end_ns: u64) -> Option<Timer> {
        if self.next_ns() < end_ns { self.heap.pop().map(|Reverse(timer)| timer) } else { None }
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_takes_24_bytes() {
        assert_eq!(size_of::<Timer>(), 24);
    }

    #[test]
    fn timers_come_in_the_order_of_their_time() {
        let mut timers = Timers::default();
        for due_ns in [5, 1, 9, 3] {
            timers.push(Timer { due_ns, pause_ns: 0, slot: 0, step: 0, arrives: false, life: 0 });
        }
        let order: Vec<u64> = std::iter::from_fn(|| timers.pop_before(9)).map(|timer| timer.due_ns).collect();
        assert_eq!(order, [1, 3, 5]);
        assert_eq!(timers.next_ns(), 9);
    }
}
