//! Finds new processes of the host and offers them to the trees: a process belongs to the tree of its parent. The
//! folder /proc is listed only when the kernel's fork counter has changed, and only new pids are read.

use super::procfs::{ProcDir, stat_of};
use super::tree::{Due, SECOND_NS, Tree};
use crate::clock::{now_ns, thread_cpu_ns};

/// A listing is repeated only after this many times its own cost has passed (0.25 % of a core), or after a second.
const LISTING_FACTOR: u64 = 400;

pub struct Census {
    proc: ProcDir,
    /// Every pid of the last listing, ascending.
    known: Vec<i32>,
    pids: Vec<i32>,
    forks: u64,
    due: Due,
}

impl Census {
    pub fn new() -> std::io::Result<Census> {
        Ok(Census { proc: ProcDir::open("/proc")?, known: Vec::new(), pids: Vec::new(), forks: 0, due: Due::default() })
    }

    /// `forks`: the host's count of tasks created. A process that was forked and ended between two calls is not seen;
    /// its CPU time is in its parent's children counters. Threads are tasks, too: if they come and go all the time, the
    /// cost of listings limits their rate.
    pub fn refresh(&mut self, forks: u64, trees: &mut [Tree]) {
        let now_ns = now_ns();
        if forks == self.forks && forks != 0 || !self.due.is_due(now_ns) {
            return;
        }
        self.forks = forks;
        let started = thread_cpu_ns();
        self.proc.list(&mut self.pids);
        self.due.again(now_ns, 0, (LISTING_FACTOR * (thread_cpu_ns() - started)).min(SECOND_NS));
        let new = self.pids.iter().filter(|pid| self.known.binary_search(pid).is_err());
        let new: Vec<(i32, i32)> = new.filter_map(|&pid| Some((pid, stat_of(pid)?.parent))).collect();
        std::mem::swap(&mut self.known, &mut self.pids);
        for tree in trees {
            // Repeat until no process is taken: a child may be listed before its parent once pids have wrapped around.
            while new.iter().fold(false, |taken, &(pid, parent)| tree.offer(pid, parent) || taken) {}
        }
    }
}
