//! The controller's side of a link: lines on stdin, whose end means that the controller has gone. The process sleeps
//! only here.

use std::os::fd::RawFd;

use crate::clock::now_ns;
use crate::contract::spec::Command;
use crate::lines::{Line, Lines, STDIN};
use crate::sys;

#[derive(Default)]
pub struct Control {
    lines: Lines,
}

impl Control {
    /// The first line; None: stdin has ended without one.
    pub fn first_line(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.lines.next() {
                Line::Text(line) => return Some(line),
                Line::Ended => return None,
                Line::None => self.lines.fill(),
            }
        }
    }

    /// Sleeps until a descriptor can be read, the time `until_ns` (None: without limit) or input from the controller.
    /// True: the link is to end.
    pub fn wait(&mut self, fds: &[RawFd], until_ns: Option<u64>) -> Result<bool, String> {
        if self.is_over()? {
            return Ok(true);
        }
        let mut polled: Vec<_> = std::iter::once(STDIN).chain(fds.iter().copied()).map(sys::readable).collect();
        sys::poll(&mut polled, until_ns.map(|until_ns| until_ns.saturating_sub(now_ns())));
        if polled[0].revents != 0 {
            self.lines.fill();
        }
        self.is_over()
    }

    /// True if stdin has ended, or a received line contains `stop`.
    fn is_over(&mut self) -> Result<bool, String> {
        let line = match self.lines.next() {
            Line::Text(line) => line,
            Line::None => return Ok(false),
            Line::Ended => return Ok(true),
        };
        match serde_json::from_slice(&line) {
            Ok(Command::Stop) => Ok(true),
            Ok(_) => Err("a link knows one command: {\"type\": \"stop\"}".to_owned()),
            Err(error) => Err(format!("a line on stdin is no valid command: {error}")),
        }
    }
}
