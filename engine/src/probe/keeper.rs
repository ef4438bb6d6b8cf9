//! Leaves no process behind, even when the probe itself is killed with SIGKILL: the probe runs as the child of a keeper
//! that only waits. Both are subreapers. If the probe dies, its descendants are reparented to the keeper, which kills
//! them; if the keeper dies, the probe notices (parent-death signal) and does the same. A probe that is stuck and does
//! not end when it must is killed. Also here: finding and killing every descendant of the calling process.

use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::procfs::{Stat, processes};
use super::signals;
use crate::clock::now_ns;
use crate::sys;

/// Killing gives up after this long (a process in uninterruptible sleep cannot be killed).
const KILL_TIMEOUT: Duration = Duration::from_secs(10); // arbitrary: any other is gone within ms

/// The longest time that the probe may take to end once the controller has gone or SIGTERM came; it kills at once what
/// it has started.
const PATIENCE_NS: u64 = 3_000_000_000; // arbitrary: it takes some ms, longer on a busy machine

/// Runs `probe` in a guarded child and returns its exit code once every descendant has gone. `probe` gets the pid of
/// the keeper. Must be called while the process has a single thread.
pub fn guarded(probe: fn(i32) -> ExitCode) -> ExitCode {
    // SAFETY: plain calls; the process has one thread, so the child may go on running any code after fork.
    unsafe {
        let keeper = libc::getpid();
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        signals::ignore_terminal();
        // An ignored SIGCHLD is inherited; then the end of a child would neither be signalled nor wait to be reaped.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let child = libc::fork();
        match child {
            -1 => {
                eprintln!("powerband-engine: cannot fork: {}", std::io::Error::last_os_error());
                ExitCode::FAILURE
            }
            0 => {
                libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGHUP, 0, 0, 0);
                if libc::getppid() != keeper {
                    return ExitCode::FAILURE;
                }
                probe(keeper)
            }
            _ => keep(child),
        }
    }
}

/// Waits for the probe and passes SIGTERM on to it. Kills it if it does not end in time, and kills the processes that
/// it leaves.
fn keep(probe: i32) -> ExitCode {
    // SAFETY: nothing here uses stdout. Only the probe holds it, so that the controller sees its end when the probe
    // goes.
    unsafe { libc::close(1) };
    let (mut controller, mut deadline_ns) = (0, None);
    let signals = signals::descriptor(&[libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD]);
    let watched = signals.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    loop {
        let mut status = 0;
        // SAFETY: waits for our own child, which stays a zombie until it is reaped here.
        let ended = unsafe { libc::waitpid(probe, &mut status, libc::WNOHANG) };
        if ended != 0 {
            kill_descendants(|_| ());
            // It cannot be waited for: it has gone, and its status is unknown.
            return if ended == probe { exit_code(status) } else { ExitCode::FAILURE };
        }
        let left_ns = deadline_ns.map(|deadline: u64| deadline.saturating_sub(now_ns()));
        // Only the end of stdin is polled for: the probe reads it.
        let mut polled =
            [(controller, 0), (watched, libc::POLLIN)].map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
        sys::poll(&mut polled, left_ns);
        let mut must_end = polled[0].revents != 0;
        if must_end {
            controller = -1;
        }
        while let Some(signal) = signals.as_ref().ok().and_then(signals::take) {
            if signal == libc::SIGTERM {
                must_end = true;
                // SAFETY: kill has no memory effects; the child has not been reaped.
                unsafe { libc::kill(probe, libc::SIGTERM) };
            }
        }
        if must_end && deadline_ns.is_none() {
            deadline_ns = Some(now_ns() + PATIENCE_NS);
        }
        if deadline_ns.is_some_and(|deadline| deadline <= now_ns()) {
            // SAFETY: as above.
            unsafe { libc::kill(probe, libc::SIGKILL) };
            deadline_ns = Some(now_ns() + PATIENCE_NS);
        }
    }
}

fn exit_code(status: i32) -> ExitCode {
    if libc::WIFEXITED(status) {
        return ExitCode::from(libc::WEXITSTATUS(status) as u8);
    }
    eprintln!(
        "powerband-engine: the probe was ended by signal {}; all it had started was killed",
        libc::WTERMSIG(status)
    );
    ExitCode::FAILURE
}

/// Kills and reaps every descendant of this process, repeatedly until none is left: a process that forks while it is
/// being killed leaves a child that is reparented to us, the subreaper. Returns the number of living processes killed.
pub fn kill_descendants(mut on_reaped: impl FnMut(Reaped)) -> u32 {
    let deadline = Instant::now() + KILL_TIMEOUT;
    let mut killed = std::collections::HashSet::new();
    loop {
        for (pid, stat) in living_descendants() {
            // SAFETY: the pid is a descendant's. Were it reaped and used again in between, the new process would have
            // to take it within microseconds of pids being handed out in ascending order.
            if unsafe { libc::kill(pid, libc::SIGKILL) } == 0 {
                killed.insert((pid, stat.start_ticks));
            }
        }
        if !reap_all(&mut on_reaped) {
            return killed.len() as u32;
        }
        if Instant::now() > deadline {
            let left: Vec<i32> = living_descendants().into_iter().map(|(pid, _)| pid).collect();
            eprintln!("powerband-engine: some processes cannot be killed: {left:?}");
            return killed.len() as u32;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A child that has ended and was reaped.
pub struct Reaped {
    pub pid: i32,
    /// The status that wait(2) returns.
    pub status: i32,
    /// Usage of the child and all children that it had waited for.
    pub usage: libc::rusage,
}

/// Reaps every child that has ended. False when no child is left, and therefore no descendant either: an orphan is
/// reparented to the nearest subreaper, which is this process.
pub fn reap_all(on_reaped: &mut impl FnMut(Reaped)) -> bool {
    loop {
        let mut status = 0;
        // SAFETY: an all-zero rusage is valid; wait4 writes to both.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage), usage)
        };
        match pid {
            0 => return true,
            -1 => return false,
            _ => on_reaped(Reaped { pid, status, usage }),
        }
    }
}

/// Pid and stat of every descendant that has not ended.
pub fn living_descendants() -> Vec<(i32, Stat)> {
    let mut others = processes();
    let mut family = vec![std::process::id() as i32];
    let mut next = 0;
    let mut found = Vec::new();
    while next < family.len() {
        let parent = family[next];
        let (children, rest) = others.into_iter().partition::<Vec<_>, _>(|(_, stat)| stat.parent == parent);
        others = rest;
        family.extend(children.iter().map(|(pid, _)| pid));
        found.extend(children.into_iter().filter(|(_, stat)| !stat.is_dead()));
        next += 1;
    }
    found
}
