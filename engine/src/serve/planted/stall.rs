//! Freezes of the whole server on a fixed schedule: each thread sleeps at its next `gate` until the freeze ends.

use crate::clock::now_ns;
use crate::serve::options::config::Pauses;
use crate::sys::sleep_until;

/// Freezes from k * every to k * every + length after the start, k = 1, 2, ...
pub struct Stall {
    spec: Pauses,
    start_ns: u64,
}

impl Stall {
    /// Starts the schedule now.
    pub fn new(spec: Pauses) -> Stall {
        Stall { spec, start_ns: now_ns() }
    }

    /// Blocks the calling thread while the server is frozen.
    pub fn gate(&self) {
        if let Some(end_ns) = self.end_ns(now_ns()) {
            sleep_until(end_ns);
        }
    }

    /// The end of the freeze that `now_ns` falls into, if any.
    fn end_ns(&self, now_ns: u64) -> Option<u64> {
        let since = now_ns.saturating_sub(self.start_ns);
        let begun_ns = since - since % self.spec.every_ns;
        (begun_ns > 0 && since < begun_ns + self.spec.length_ns).then(|| self.start_ns + begun_ns + self.spec.length_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freezes_follow_their_schedule() {
        let stall = Stall { spec: Pauses { every_ns: 10, length_ns: 2 }, start_ns: 100 };
        for (now, end) in [
            (100, None),
            (109, None),
            (110, Some(112)),
            (111, Some(112)),
            (112, None),
            (120, Some(122)),
            (121, Some(122)),
        ] {
            assert_eq!(stall.end_ns(now), end, "{now}");
        }
    }
}
