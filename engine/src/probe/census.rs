//! New processes of the host, offered to the trees: they belong to the tree of their parent. The folder /proc is
//! listed only when the kernel's fork counter says that something was created, and only new pids are read.

use super::procfs::{ProcDir, stat_of};
use super::tree::Tree;

pub struct Census {
    proc: ProcDir,
    /// Every pid of the last listing, ascending.
    known: Vec<i32>,
    pids: Vec<i32>,
    forks: u64,
}

impl Census {
    pub fn new() -> std::io::Result<Census> {
        Ok(Census { proc: ProcDir::open("/proc")?, known: Vec::new(), pids: Vec::new(), forks: 0 })
    }

    /// `forks`: the host's count of tasks created. A process that was forked and has ended between two calls is not
    /// seen; its CPU time is in its parent's children counters.
    pub fn refresh(&mut self, forks: u64, trees: &mut [Tree]) {
        if forks == self.forks && forks != 0 {
            return;
        }
        self.forks = forks;
        self.proc.list(&mut self.pids);
        let new = self.pids.iter().filter(|pid| self.known.binary_search(pid).is_err());
        let new: Vec<(i32, i32)> = new.filter_map(|&pid| Some((pid, stat_of(pid)?.parent))).collect();
        std::mem::swap(&mut self.known, &mut self.pids);
        for tree in trees {
            // Again until nothing is taken: a child may be listed before its parent once pids have wrapped around.
            while new.iter().fold(false, |taken, &(pid, parent)| tree.offer(pid, parent) || taken) {}
        }
    }
}
