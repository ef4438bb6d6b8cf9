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
        let is_known = |pid: i32| self.known.binary_search(&pid).is_ok();
        let parent_of = |pid: i32| stat_of(pid).map(|stat| stat.parent);
        let new = self.pids.iter().filter(|&&pid| !is_known(pid));
        let new = new.filter_map(|&pid| Some((pid, parent_of(pid)?))).collect();
        // Each tree is asked, also after one has taken it.
        let offer = |pid, parent| trees.iter_mut().fold(false, |taken, tree| tree.offer(pid, parent) | taken);
        offer_all(new, offer, parent_of, is_known);
        std::mem::swap(&mut self.known, &mut self.pids);
    }
}

/// Offers new processes, each with its parent, until none is taken: a child may be listed before its parent once pids
/// have wrapped around, and may belong to two trees. A parent that has ended since it was read cannot be taken; its
/// children have another parent then, with which they are offered again. A parent that is known is read but once: if it
/// is no member, its children are other programs.
fn offer_all(
    mut new: Vec<(i32, i32)>,
    mut offer: impl FnMut(i32, i32) -> bool,
    parent_of: impl Fn(i32) -> Option<i32>,
    is_known: impl Fn(i32) -> bool,
) {
    let mut moved = true;
    while moved {
        let mut left = usize::MAX;
        while new.len() < left {
            left = new.len();
            new.retain(|&(pid, parent)| !offer(pid, parent));
        }
        new.retain(|&(_, parent)| !is_known(parent));
        moved = false;
        for (pid, parent) in &mut new {
            let before = std::mem::replace(parent, parent_of(*pid).unwrap_or(*parent));
            moved |= *parent != before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_a_parent_that_ends_meanwhile_are_offered_by_their_next_one() {
        const OURS: i32 = 1;
        let mut members = vec![OURS];
        // 3 is a child of 2, and 4 of 3. When they are offered, 2 has gone, and 3 was given to 1.
        let offer = |pid, parent| {
            let taken = pid != 2 && members.contains(&parent) && !members.contains(&pid);
            members.extend(taken.then_some(pid));
            taken
        };
        let parent_of = |pid| [(3, OURS), (4, 3), (9, 8)].into_iter().find(|known| known.0 == pid).map(|known| known.1);
        offer_all(vec![(4, 3), (2, OURS), (3, 2), (9, 8)], offer, parent_of, |pid| pid == OURS);
        assert_eq!(members, [OURS, 3, 4]);
    }

    #[test]
    fn the_parents_of_members_and_of_other_programs_are_not_read_again() {
        let read = std::cell::RefCell::new(Vec::new());
        let mut members = vec![1];
        let offer = |pid, parent| {
            let taken = members.contains(&parent);
            members.extend(taken.then_some(pid));
            taken
        };
        let parent_of = |pid| {
            read.borrow_mut().push(pid);
            None
        };
        // 8 is an old program that has started 9; 11 was started by 10, which is as new.
        offer_all(vec![(2, 1), (9, 8), (11, 10)], offer, parent_of, |pid| pid == 1 || pid == 8);
        assert_eq!((members, read.into_inner()), (vec![1, 2], vec![11]));
    }
}
