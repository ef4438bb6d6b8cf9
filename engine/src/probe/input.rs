//! Reads lines from the controller, and is the only place where the probe sleeps. The end of stdin means that the
//! controller has ended.

use super::signals::Signals;
use crate::clock::now_ns;
use crate::sys;

/// A longer line is no spec: reading on would only fill the memory.
const LINE_MAX: usize = 16 * 1024 * 1024;

pub struct Input {
    /// -1: no controller.
    fd: i32,
    buffer: Vec<u8>,
    ended: bool,
    /// Without a controller: the time to stop.
    until_ns: Option<u64>,
}

pub enum Line {
    Text(Vec<u8>),
    /// No complete line at the moment.
    None,
    Ended,
}

impl Input {
    pub fn stdin() -> Input {
        Input { fd: 0, buffer: Vec::new(), ended: false, until_ns: None }
    }

    /// No controller: runs until a given time, or without end.
    pub fn none(until_ns: Option<u64>) -> Input {
        Input { fd: -1, buffer: Vec::new(), ended: false, until_ns }
    }

    pub fn is_alone(&self) -> bool {
        self.fd < 0
    }

    /// True if the time set beforehand has passed.
    pub fn is_over(&self) -> bool {
        self.until_ns.is_some_and(|until| now_ns() >= until)
    }

    /// The next complete line, blank ones skipped. Does not block.
    pub fn next_line(&mut self) -> Line {
        while let Some(end) = self.buffer.iter().position(|&b| b == b'\n') {
            let rest = self.buffer.split_off(end + 1);
            let line = std::mem::replace(&mut self.buffer, rest);
            if !line.trim_ascii().is_empty() {
                return Line::Text(line);
            }
        }
        if self.ended { Line::Ended } else { Line::None }
    }

    /// Sleeps until there is input, a signal, or the time `until_ns`.
    pub fn wait(&mut self, signals: &Signals, until_ns: Option<u64>) {
        let mut polled = [self.fd, signals.ending_fd(), signals.children_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let until_ns = until_ns.into_iter().chain(self.until_ns).min();
        let left_ns = until_ns.map(|until| until.saturating_sub(now_ns()));
        sys::poll(&mut polled, left_ns);
        if polled[0].revents != 0 {
            self.fill();
        }
    }

    fn fill(&mut self) {
        let mut chunk = [0u8; 16 * 1024];
        // SAFETY: the buffer is valid for writes of its length. poll said that this does not block.
        let n = unsafe { libc::read(self.fd, chunk.as_mut_ptr().cast(), chunk.len()) };
        if n > 0 && self.buffer.len() < LINE_MAX {
            self.buffer.extend_from_slice(&chunk[..n as usize]);
        } else {
            self.ended = true;
        }
    }
}
