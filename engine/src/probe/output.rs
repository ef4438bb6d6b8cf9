//! Writes events to stdout, one JSON line each, without ever hanging: while the pipe is full, the probe keeps checking
//! for the end of the controller, so that a controller that stopped reading and died is still noticed.

use std::io;

use super::signals::Signals;
use crate::contract::events::ProbeEvent;
use crate::sys;

/// The controller has gone, or requested the end by signal: kill everything and exit.
#[derive(Debug)]
pub struct Gone;

pub struct Output {
    buffer: Vec<u8>,
    /// The descriptor whose hang-up means that the controller has gone; -1: none.
    control_fd: i32,
}

/// A write of at most this (PIPE_BUF) does not block on a pipe that poll calls writable.
const CHUNK: usize = 4096;

impl Output {
    pub fn new(control_fd: i32) -> Output {
        Output { buffer: Vec::with_capacity(16 * 1024), control_fd }
    }

    pub fn emit(&mut self, event: &ProbeEvent, signals: &Signals) -> Result<(), Gone> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, event).expect("an event is always valid JSON");
        self.buffer.push(b'\n');
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            wait_writable(signals, self.control_fd)?;
            let chunk = &rest[..rest.len().min(CHUNK)];
            // SAFETY: the chunk is valid for reads of its length.
            let n = unsafe { libc::write(1, chunk.as_ptr().cast(), chunk.len()) };
            if n >= 0 {
                rest = &rest[n as usize..];
            } else if !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                return Err(Gone);
            }
        }
        Ok(())
    }
}

fn wait_writable(signals: &Signals, control_fd: i32) -> Result<(), Gone> {
    loop {
        let mut polled = [
            libc::pollfd { fd: 1, events: libc::POLLOUT, revents: 0 },
            sys::readable(signals.ending_fd()),
            // No events requested: only the hang-up of the controller's end is reported.
            libc::pollfd { fd: control_fd, events: 0, revents: 0 },
        ];
        sys::poll(&mut polled, None);
        if polled[0].revents & libc::POLLOUT != 0 {
            return Ok(());
        }
        let ended = polled[1].revents != 0 && signals.must_end();
        if ended || polled[0].revents != 0 || polled[2].revents & libc::POLLHUP != 0 {
            return Err(Gone);
        }
    }
}
