//! The pauses of a stop-the-world garbage collector: on a fixed schedule, one thread burns CPU while every other thread
//! stops at its next safe point. There is no garbage; options set how often the pauses come and how long they last.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use crate::clock::now_ns;
use crate::serve::options::config::Pauses;
use crate::serve::timing::burn;
use crate::sys::sleep_until;

#[derive(Default)]
pub struct Collector {
    pauses: Pauses,
    stopped: AtomicBool,
    lock: Mutex<()>,
    resumed: Condvar,
    pub collections: AtomicU64,
    /// Total time of all pauses.
    pub paused_ns: AtomicU64,
}

impl Collector {
    pub fn new(pauses: Pauses) -> Collector {
        Collector { pauses, ..Collector::default() }
    }

    /// Starts the collector's thread, with the name that it has in a JVM.
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let collector = Arc::clone(self);
        std::thread::Builder::new().name("GC Thread#0".into()).spawn(move || collector.run())?;
        Ok(())
    }

    /// Starts a collection at k * every, k = 1, 2, ..., and burns its CPU time. A start that falls into a collection,
    /// because the machine is too busy, is skipped.
    fn run(&self) {
        let start_ns = now_ns();
        let mut turn = 1;
        loop {
            sleep_until(start_ns + turn * self.pauses.every_ns);
            let stopped_ns = now_ns();
            self.stopped.store(true, Relaxed);
            burn(self.pauses.length_ns);
            self.paused_ns.fetch_add(now_ns() - stopped_ns, Relaxed);
            self.collections.fetch_add(1, Relaxed);
            let guard = self.lock.lock().expect("nothing panics with it");
            self.stopped.store(false, Relaxed);
            self.resumed.notify_all();
            drop(guard);
            turn = (now_ns() - start_ns) / self.pauses.every_ns + 1;
        }
    }

    /// A safe point: blocks the calling thread while a collection runs.
    pub fn gate(&self) {
        if !self.stopped.load(Relaxed) {
            return;
        }
        let mut guard = self.lock.lock().expect("nothing panics with it");
        while self.stopped.load(Relaxed) {
            guard = self.resumed.wait(guard).expect("nothing panics with it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::thread_cpu_ns;

    #[test]
    fn whoever_reaches_the_gate_during_a_collection_waits_for_its_end() {
        let collector = Arc::new(Collector::new(Pauses { every_ns: 20_000_000, length_ns: 5_000_000 }));
        collector.gate();
        collector.start().unwrap();
        let (mut pauses, mut longest_ns) = (0, 0);
        let started_ns = now_ns();
        while pauses < 3 {
            let before_ns = now_ns();
            if collector.stopped.load(Relaxed) {
                let cpu_ns = thread_cpu_ns();
                collector.gate();
                pauses += 1;
                longest_ns = longest_ns.max(now_ns() - before_ns);
                assert!(thread_cpu_ns() - cpu_ns < 4_000_000, "it waits without the CPU");
            }
            std::thread::yield_now();
        }
        assert!(now_ns() - started_ns >= 60_000_000, "the third begins at three periods");
        assert!(longest_ns > 1_000_000, "{longest_ns}");
        let (collections, paused_ns) = (collector.collections.load(Relaxed), collector.paused_ns.load(Relaxed));
        assert!(collections >= 3 && paused_ns >= collections * 5_000_000, "{collections}, {paused_ns}");
    }
}
