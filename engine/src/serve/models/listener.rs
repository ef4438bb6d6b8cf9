//! Accepts connections: `accept_each` on a thread that blocks, `Listener` through an epoll. Both can be slowed down on
//! purpose. When there are no descriptors left, both pause, because trying again at once would only burn CPU;
//! connections then wait in the accept queue.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::clock::now_ns;
use crate::serve::timing::wait_from;
use crate::sys::{self, Epoll, sleep_until};

/// Length of the pause when there are no descriptors left.
const PAUSE_NS: u64 = 10_000_000; // arbitrary: connections wait this long for another one to close

/// Starts a thread that accepts connections, one after the other, and hands each to `handle`.
pub fn accept_each(
    thread_name: &str,
    listener: OwnedFd,
    nonblocking: bool,
    delay_ns: u64,
    mut handle: impl FnMut(OwnedFd) + Send + 'static,
) -> io::Result<()> {
    std::thread::Builder::new().name(thread_name.into()).spawn(move || {
        loop {
            handle(accept(&listener, nonblocking, delay_ns));
        }
    })?;
    Ok(())
}

/// Blocks until there is a connection. `nonblocking` applies to the connection, not to the listening socket.
fn accept(listener: &OwnedFd, nonblocking: bool, delay_ns: u64) -> OwnedFd {
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
pub struct Listener {
    socket: OwnedFd,
    data: u64,
    delay_ns: u64,
    /// While this is set, the epoll does not watch the socket.
    paused_until_ns: Option<u64>,
}

impl Listener {
    /// `data`: the epoll data of the socket's events.
    pub fn open(socket: OwnedFd, epoll: &Epoll, data: u64, delay_ns: u64) -> io::Result<Listener> {
        sys::set_nonblocking(&socket)?;
        epoll.add(socket.as_raw_fd(), libc::EPOLLIN, data)?;
        Ok(Listener { socket, data, delay_ns, paused_until_ns: None })
    }

    /// Accepts all waiting connections and hands each, nonblocking, to `admit`. With a planted delay it accepts only
    /// one, so that requests of other connections get their turn.
    pub fn accept_all(&mut self, epoll: &Epoll, mut admit: impl FnMut(OwnedFd)) {
        loop {
            match sys::accept(&self.socket, true) {
                Ok(socket) => {
                    wait_from(now_ns(), self.delay_ns);
                    admit(socket);
                    if self.delay_ns > 0 {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    if epoll.modify(self.socket.as_raw_fd(), 0, self.data).is_ok() {
                        self.paused_until_ns = Some(now_ns() + PAUSE_NS);
                    }
                    return;
                }
            }
        }
    }

    /// How long the epoll may sleep before the pause ends; None if there is no pause. Ends a pause that is over.
    pub fn paused_for_ns(&mut self, epoll: &Epoll) -> Option<u64> {
        let left_ns = self.paused_until_ns?.saturating_sub(now_ns());
        if left_ns > 0 {
            return Some(left_ns);
        }
        if epoll.modify(self.socket.as_raw_fd(), libc::EPOLLIN, self.data).is_ok() {
            self.paused_until_ns = None;
        }
        None
    }
}
