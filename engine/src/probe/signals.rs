//! Signals as descriptors. SIGTERM asks the probe to end, SIGHUP (which it sets as its parent-death signal) shows the
//! death of its parent, SIGCHLD that of its children. Ctrl-C and Ctrl-\ reach the whole foreground group, but the
//! controller decides when to end: both are ignored.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::parent_id;

use crate::sys::{block_signals, ignore};

pub struct Signals {
    /// SIGTERM and, with a parent, SIGHUP.
    ending: OwnedFd,
    /// SIGCHLD.
    children: OwnedFd,
    parent: Option<i32>,
}

impl Signals {
    /// Blocks the signals and opens their descriptors. `parent`: the process whose death ends the probe; None: there is
    /// none, and a terminal that is closed ends the probe by default.
    pub fn install(parent: Option<i32>) -> io::Result<Signals> {
        ignore_terminal();
        let ending = [libc::SIGTERM, libc::SIGHUP];
        Ok(Signals {
            ending: descriptor(if parent.is_some() { &ending } else { &ending[..1] })?,
            children: descriptor(&[libc::SIGCHLD])?,
            parent,
        })
    }

    pub fn ending_fd(&self) -> i32 {
        self.ending.as_raw_fd()
    }

    pub fn children_fd(&self) -> i32 {
        self.children.as_raw_fd()
    }

    /// True if the pending signals ask the probe to end. A SIGHUP counts only if the parent has really gone: the kernel
    /// also sends it when merely the parent's *thread* that forked us ends, and a terminal may.
    pub fn must_end(&self) -> bool {
        let mut must = false;
        while let Some(signal) = take(&self.ending) {
            must |= signal == libc::SIGTERM || self.parent != Some(parent_id() as i32);
        }
        must
    }

    pub fn clear_children(&self) {
        while take(&self.children).is_some() {}
    }
}

/// Ignores Ctrl-C and Ctrl-\, which the controller handles.
pub fn ignore_terminal() {
    ignore(libc::SIGINT);
    ignore(libc::SIGQUIT);
}

/// Blocks the signals, which can then be taken from the descriptor.
pub fn descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = block_signals(signals);
    // SAFETY: the set is initialised; the descriptor returned is ours alone.
    unsafe {
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// The next pending signal.
pub fn take(fd: &OwnedFd) -> Option<i32> {
    // SAFETY: an all-zero siginfo is valid, and read writes at most its size.
    unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        let size = std::mem::size_of_val(&info);
        let n = libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size);
        (n == size as isize).then_some(info.ssi_signo as i32)
    }
}
