//! Reads lines from the controller, and is the only place where the probe sleeps. The end of stdin means that the
//! controller has ended.

use super::signals::Signals;
use crate::clock::now_ns;
use crate::lines::{Line, Lines, STDIN};
use crate::sys;

pub struct Input {
    /// None: no controller.
    lines: Option<Lines>,
    /// Without a controller: the time to stop.
    until_ns: Option<u64>,
}

impl Input {
    pub fn stdin() -> Input {
        Input { lines: Some(Lines::default()), until_ns: None }
    }

    /// No controller: runs until a given time, or without end.
    pub fn none(until_ns: Option<u64>) -> Input {
        Input { lines: None, until_ns }
    }

    pub fn is_alone(&self) -> bool {
        self.lines.is_none()
    }

    /// True if the time set beforehand has passed.
    pub fn is_over(&self) -> bool {
        self.until_ns.is_some_and(|until| now_ns() >= until)
    }

    /// The next complete line, blank ones skipped. Does not block.
    pub fn next_line(&mut self) -> Line {
        self.lines.as_mut().map_or(Line::None, Lines::next)
    }

    /// Sleeps until there is input, a signal, or the time `until_ns`.
    pub fn wait(&mut self, signals: &Signals, until_ns: Option<u64>) {
        let stdin = if self.is_alone() { -1 } else { STDIN };
        let mut polled = [stdin, signals.ending_fd(), signals.children_fd()].map(sys::readable);
        let until_ns = until_ns.into_iter().chain(self.until_ns).min();
        let left_ns = until_ns.map(|until| until.saturating_sub(now_ns()));
        sys::poll(&mut polled, left_ns);
        if polled[0].revents != 0 {
            self.lines.iter_mut().for_each(Lines::fill);
        }
    }
}
