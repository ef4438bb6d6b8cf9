//! Reads the file in which a JVM publishes heap, collections and threads on its own. It is found by pid below the
//! process's own /tmp, and read whole four times a second. A JVM without that file (-XX:-UsePerfData) is skipped.
//!
//! /tmp is shared and the names are predictable: only a regular file of the process's own user is read, in a folder of
//! that user. `hsperfdata` parses it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::hsperfdata::Page;
use super::tree::{Due, Tree};
use crate::clock::thread_cpu_ns;
use crate::contract::events::Jvm;

const EVERY_NS: u64 = 250_000_000; // arbitrary: eight readings in a window of 2 s; DEAR_FACTOR bounds the cost
/// The file is read again only after this many times the cost of a reading: 0.25 % of a core.
const DEAR_FACTOR: u64 = 400;
/// A process without such a file after this many rounds is hardly a JVM: the file appears about 50 ms after its start.
const LOOKS_MOST: u32 = 40;
/// From then on it is looked for in every 20th round, every 5 s: a script may build a server first, and become its JVM
/// by `exec` afterwards.
const SELDOM: u32 = 20;
/// The most entries of /tmp to search for the file: any user may create any number there.
const ENTRIES_MAX: usize = 10_000;
/// HotSpot makes the file no larger than 2 MiB (PerfDataMemorySize) and a page.
const FILE_MAX: u64 = 4 << 20;
/// The most bytes read from all such files in one round.
const FILES_MAX: u64 = 16 << 20;

/// The JVMs of the launched tree.
#[derive(Default)]
pub struct Jvms {
    known: HashMap<i32, State>,
    due: Due,
}

enum State {
    /// Not found yet; the number of rounds.
    Sought(u32),
    Found(Published),
}

/// The file of a JVM, and the user that it must belong to.
struct Published {
    path: PathBuf,
    user: u32,
}

impl Jvms {
    /// One event for each JVM, if a quarter of a second has passed since the last.
    pub fn read(&mut self, at_ns: u64, trees: &[Tree]) -> Vec<Jvm> {
        if !self.due.is_due(at_ns) {
            return Vec::new();
        }
        let started = thread_cpu_ns();
        let (mut told, mut round) = (Vec::new(), Round { folders: HashMap::new(), left: FILES_MAX });
        for tree in trees.iter().filter(|tree| tree.is_launched()) {
            let pids: Vec<i32> = tree.pids().collect();
            self.known.retain(|pid, _| pids.contains(pid));
            told.extend(pids.into_iter().filter_map(|pid| self.read_one(at_ns, &tree.name, pid, &mut round)));
        }
        self.due.again(at_ns, EVERY_NS, DEAR_FACTOR * (thread_cpu_ns() - started));
        told
    }

    /// Reads one process's file. None if the process is no JVM, has just ended, or is writing the file at this moment.
    fn read_one(&mut self, at_ns: u64, tree: &str, pid: i32, round: &mut Round) -> Option<Jvm> {
        let state = self.known.entry(pid).or_insert(State::Sought(0));
        if let State::Sought(rounds) = state {
            *rounds = rounds.saturating_add(1);
            if !looks(*rounds) {
                return None;
            }
            *state = State::Found(round.find(pid)?);
        }
        let State::Found(file) = state else { return None };
        let page = Page::parse(&round.read(file)?).ok()?;
        Some(page.jvm(at_ns, tree, pid))
    }
}

/// True if a process that was no JVM yet is looked at in this round of its life.
fn looks(round: u32) -> bool {
    round <= LOOKS_MOST || round.is_multiple_of(SELDOM)
}

/// One reading of all JVMs: bounded, whatever the number of processes and of files in /tmp.
struct Round {
    /// The folders that may hold such files and their owners, by the device and inode of a /tmp.
    folders: HashMap<(u64, u64), Vec<(OsString, u32)>>,
    /// Bytes that may still be read.
    left: u64,
}

impl Round {
    /// The file of a process, in its own mount and pid namespaces: /tmp/hsperfdata_USER/PID.
    fn find(&mut self, pid: i32) -> Option<Published> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name| Some(status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace());
        let inside = field("NSpid:")?.last()?;
        let user = field("Uid:")?.nth(1)?.parse().ok()?; // the effective one
        let tmp = Path::new(&format!("/proc/{pid}/root")).join("tmp");
        let facts = fs::metadata(&tmp).ok()?;
        let folders = self.folders.entry((facts.dev(), facts.ino())).or_insert_with(|| list(&tmp));
        folders
            .iter()
            .filter(|(_, owner)| *owner == user)
            .map(|(name, _)| Published { path: tmp.join(name).join(inside), user })
            .find(|file| file.open().is_some())
    }

    fn read(&mut self, file: &Published) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        file.open()?.take(FILE_MAX.min(self.left)).read_to_end(&mut data).ok()?;
        self.left -= data.len() as u64;
        Some(data)
    }
}

fn list(tmp: &Path) -> Vec<(OsString, u32)> {
    let entries = fs::read_dir(tmp).into_iter().flatten().take(ENTRIES_MAX).flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"hsperfdata_"))
        .filter_map(|entry| entry.metadata().ok().filter(|facts| facts.is_dir()).map(|f| (entry.file_name(), f.uid())))
        .collect()
}

impl Published {
    /// Never waits: not for a writer of a FIFO either. A symbolic link is not followed.
    fn open(&self) -> Option<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options().read(true).custom_flags(flags).open(&self.path).ok()?;
        let facts = file.metadata().ok()?;
        (facts.is_file() && facts.uid() == self.user && facts.len() <= FILE_MAX).then_some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_no_jvm_at_first_is_looked_at_again_but_seldom() {
        assert!((1..=LOOKS_MOST).all(looks));
        let rounds_of_an_hour = 14_400;
        let later = (LOOKS_MOST + 1..=rounds_of_an_hour).filter(|&round| looks(round));
        assert_eq!(later.count() as u32, (rounds_of_an_hour - LOOKS_MOST) / SELDOM);
        assert!(looks(rounds_of_an_hour));
    }
}
