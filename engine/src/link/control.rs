//! The controller's side of a link: lines on stdin, whose end means that the controller has gone. The process sleeps
//! only here.

use std::fs::File;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};

use crate::clock::now_ns;
use crate::contract::spec::Command;
use crate::sys;

const STDIN: RawFd = 0;
/// A longer line is no spec: reading on would only fill the memory.
const LINE_MAX: usize = 1 << 20;

#[derive(Default)]
pub struct Control {
    unread: Vec<u8>,
}

impl Control {
    /// The first line; None: stdin has ended without one.
    pub fn first_line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(line) = self.take_line() {
                return Some(line);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Sleeps until a descriptor can be read, the time `until_ns` (None: without limit) or input from the controller.
    /// True: the link is to end.
    pub fn wait(&mut self, fds: &[RawFd], until_ns: Option<u64>) -> Result<bool, String> {
        if self.is_over()? {
            return Ok(true);
        }
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> = std::iter::once(STDIN).chain(fds.iter().copied()).map(readable).collect();
        let left_ns = until_ns.map(|until_ns| until_ns.saturating_sub(now_ns()));
        sys::poll(&mut polled, left_ns);
        if polled[0].revents == 0 { Ok(false) } else { Ok(!self.fill() || self.is_over()?) }
    }

    /// True if a received line contains `stop`.
    fn is_over(&mut self) -> Result<bool, String> {
        let Some(line) = self.take_line() else { return Ok(false) };
        match serde_json::from_slice(&line) {
            Ok(Command::Stop) => Ok(true),
            Ok(_) => Err("a link knows one command: {\"type\": \"stop\"}".to_owned()),
            Err(error) => Err(format!("a line on stdin is no valid command: {error}")),
        }
    }

    /// A complete line, blank ones skipped.
    fn take_line(&mut self) -> Option<Vec<u8>> {
        while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
        None
    }

    /// Reads available bytes directly, without a buffer of the library, which poll would not know of. False: stdin has
    /// ended.
    fn fill(&mut self) -> bool {
        // SAFETY: the descriptor is open for as long as the process lives, and is not closed here.
        let mut stdin = ManuallyDrop::new(unsafe { File::from_raw_fd(STDIN) });
        let mut chunk = [0u8; 4096];
        match stdin.read(&mut chunk) {
            Ok(length) if length > 0 && self.unread.len() < LINE_MAX => {
                self.unread.extend_from_slice(&chunk[..length]);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
            Ok(_) => false,
        }
    }
}
