//! How connections come in: by a thread that blocks in `accept`, or by an epoll that tells when some wait. Either may be
//! slowed down on purpose, and either leaves the queue alone for a while when descriptors have run out, as one that tries
//! again at once would only burn its CPU. Connections then wait in the accept queue.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::clock::now_ns;
use crate::serve::timing::wait_from;
use crate::sys::{self, Epoll, sleep_until};

/// How long the queue is left alone.
const PAUSE_NS: u64 = 10_000_000;

/// The next connection of a blocking socket, however long it takes; `nonblocking`: what the connection itself is to be.
pub fn accept(listener: &OwnedFd, nonblocking: bool, delay_ns: u64) -> OwnedFd {
    loop {
        match sys::accept(listener, nonblocking) {
            Ok(socket) => {
                wait_from(now_ns(), delay_ns);
                return socket;
            }
            Err(_) => sleep_until(now_ns() + PAUSE_NS),
        }
    }
}

/// A listening socket watched by an epoll.
pub struct Door {
    listener: OwnedFd,
    data: u64,
    delay_ns: u64,
    /// Not watched until then.
    shut_until_ns: Option<u64>,
}

impl Door {
    /// `data`: what the epoll's events of it say.
    pub fn open(listener: OwnedFd, epoll: &Epoll, data: u64, delay_ns: u64) -> io::Result<Door> {
        sys::set_nonblocking(&listener)?;
        epoll.add(listener.as_raw_fd(), libc::EPOLLIN, data)?;
        Ok(Door { listener, data, delay_ns, shut_until_ns: None })
    }

    /// Hands over all connections that wait, nonblocking; where each takes its time, only one, so that the requests of others
    /// get their turn.
    pub fn accept_all(&mut self, epoll: &Epoll, mut admit: impl FnMut(OwnedFd)) {
        loop {
            match sys::accept(&self.listener, true) {
                Ok(socket) => {
                    wait_from(now_ns(), self.delay_ns);
                    admit(socket);
                    if self.delay_ns > 0 {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    if epoll.modify(self.listener.as_raw_fd(), 0, self.data).is_ok() {
                        self.shut_until_ns = Some(now_ns() + PAUSE_NS);
                    }
                    return;
                }
            }
        }
    }

    /// How long the epoll may sleep before the socket is to be watched again; none: for good. Watches it when due.
    pub fn shut_for_ns(&mut self, epoll: &Epoll) -> Option<u64> {
        let left_ns = self.shut_until_ns?.saturating_sub(now_ns());
        if left_ns > 0 {
            return Some(left_ns);
        }
        if epoll.modify(self.listener.as_raw_fd(), libc::EPOLLIN, self.data).is_ok() {
            self.shut_until_ns = None;
        }
        None
    }
}
