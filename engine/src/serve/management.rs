//! `/health` and `/metrics` on a port and a thread of their own, so that they can be read while every other thread is
//! busy or the server is frozen. One connection at a time, one answer for each connection: a scraper needs no more.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::models::listener::accept_each;
use super::request::http::{self, LAST_ANSWER, Parsed, ReplyForm};
use super::request::service::Service;
use crate::clock::now_ns;
use crate::sys;

/// A client that has not sent its request after this time is disconnected.
const PATIENCE_NS: u64 = 1_000_000_000; // clients are served one at a time: the others wait this long

pub fn start(service: Arc<Service>, listener: OwnedFd) -> io::Result<()> {
    accept_each("management-1", listener, true, 0, move |socket| answer(&service, &socket))
}

fn answer(service: &Service, socket: &OwnedFd) {
    let mut input = Vec::new();
    let mut buffer = [0u8; 4096];
    let mut out = Vec::new();
    let deadline_ns = now_ns() + PATIENCE_NS;
    while out.is_empty() && sys::wait_readable(socket, deadline_ns.saturating_sub(now_ns())) {
        let Ok(n @ 1..) = sys::read(socket.as_raw_fd(), &mut buffer) else { return };
        input.extend_from_slice(&buffer[..n]);
        match http::parse(&input) {
            Parsed::Partial => {}
            Parsed::Bad(status) => service.reject_unreadable(status, &mut out),
            Parsed::Complete(request, _) => {
                let reply = ReplyForm { head_only: request.reply.head_only, ..LAST_ANSWER };
                service.status_page(request.path, reply, &mut out);
            }
        }
    }
    // A write error needs no handling: the scraper will ask again.
    let _ = sys::write_all(socket.as_raw_fd(), &out);
}
