//! Servers that are bad on purpose, to test that the bench names the fault and leaves nothing behind. `garbage` and
//! `silent` still answer `/health` and `/metrics`, so that a bench passes its readiness check and meets the fault under
//! load.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::listener::accept_each;
use crate::serve::options::config::Misbehave;
use crate::serve::pool::STACK_BYTES;
use crate::serve::request::http::{self, Parsed};
use crate::serve::request::service::Service;
use crate::sys;

const GARBAGE: &[u8] = b"\x16\x03\x01\xffthis is not the protocol you are looking for\r\n\r\n";
/// The process that `fork-escape` leaves behind ends by itself after this time.
const ESCAPED_SECONDS: libc::c_uint = 600; // longer than any test that looks for it

/// Serves connections in the given bad way, with one thread each.
pub fn start(service: Arc<Service>, listener: OwnedFd, how: Misbehave) -> io::Result<()> {
    accept_each("acceptor-1", listener, false, 0, move |socket| {
        if how == Misbehave::Close {
            return;
        }
        let service = Arc::clone(&service);
        let builder = std::thread::Builder::new().name("connection-1".into()).stack_size(STACK_BYTES);
        // Without a thread the connection is closed, which is bad as well.
        let _ = builder.spawn(move || serve(&service, &socket, how));
    })
}

fn serve(service: &Service, socket: &OwnedFd, how: Misbehave) {
    let mut input = Vec::new();
    let mut buffer = [0u8; 4096];
    while let Ok(n @ 1..) = sys::read(socket.as_raw_fd(), &mut buffer) {
        input.extend_from_slice(&buffer[..n]);
        loop {
            let (request, length) = match http::parse(&input) {
                Parsed::Complete(request, length) => (request, length),
                Parsed::Partial => break,
                Parsed::Bad(_) => return,
            };
            let mut out = Vec::new();
            match request.path {
                "/health" | "/metrics" => service.status_page(request.path, request.reply, &mut out),
                _ if how == Misbehave::Garbage => out.extend_from_slice(GARBAGE),
                _ => {}
            }
            let last = !out.is_empty() && !request.reply.keep_alive;
            input.drain(..length);
            if sys::write_all(socket.as_raw_fd(), &out).is_err() || last {
                return;
            }
        }
    }
}

/// Starts a process that is no descendant of this one and is in another session. Returns its pid. Must be called before
/// any thread is started.
pub fn escape() -> io::Result<libc::pid_t> {
    let (reader, mut writer) = io::pipe()?;
    // SAFETY: only this thread exists, so the children may do anything.
    unsafe {
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                libc::setsid();
                if libc::fork() != 0 {
                    libc::_exit(0);
                }
                let _ = io::Write::write_all(&mut writer, &libc::getpid().to_ne_bytes());
                live_on();
            }
            child => libc::waitpid(child, std::ptr::null_mut(), 0),
        };
    }
    drop(writer);
    let mut pid = [0; size_of::<libc::pid_t>()];
    io::Read::read_exact(&mut { reader }, &mut pid)?;
    Ok(libc::pid_t::from_ne_bytes(pid))
}

/// Closes the descriptors below 64, and sleeps.
fn live_on() -> ! {
    // SAFETY: nothing in this process uses a descriptor any more.
    unsafe {
        for fd in 0..64 {
            libc::close(fd);
        }
        libc::sleep(ESCAPED_SECONDS);
        libc::_exit(0)
    }
}
