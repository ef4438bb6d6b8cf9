//! Reads lines from the controller on stdin, without blocking, and without the library's buffer, of which poll would
//! not know. The caller sleeps until there is something to read.

use std::os::fd::RawFd;

use crate::sys;

pub const STDIN: RawFd = 0;
/// A longer line is no spec: reading on would only fill memory.
const LINE_MAX: usize = 16 << 20;

#[derive(Default)]
pub struct Lines {
    unread: Vec<u8>,
    ended: bool,
}

pub enum Line {
    Text(Vec<u8>),
    /// No complete line at the moment.
    None,
    /// The controller has gone.
    Ended,
}

impl Lines {
    /// The next complete line, blank ones skipped.
    pub fn next(&mut self) -> Line {
        while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                return Line::Text(line);
            }
        }
        if self.ended { Line::Ended } else { Line::None }
    }

    /// Reads once. Call it when poll says that this does not block.
    pub fn fill(&mut self) {
        let mut chunk = [0u8; 16 * 1024];
        match sys::read(STDIN, &mut chunk) {
            Ok(length @ 1..) if self.unread.len() < LINE_MAX => self.unread.extend_from_slice(&chunk[..length]),
            _ => self.ended = true,
        }
    }
}
