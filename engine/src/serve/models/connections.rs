//! The models in which a thread holds a connection until it closes, as small servers do: a new thread for each
//! connection, or a pool whose tasks are connections (a keep-alive connection then pins its thread, and connections
//! beyond the pool wait unserved). One acceptor thread; all sockets block.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::listener::accept_each;
use crate::serve::pool::{Pool, Rules, STACK_BYTES, Submitted};
use crate::serve::request::http::LAST_ANSWER;
use crate::serve::request::service::{Service, Socket, Step};
use crate::sys::{self, Epoll};

const READ_BYTES: usize = 16 << 10; // on the stack of each thread, within STACK_BYTES

/// Starts a thread for each connection.
pub fn start_threads(service: Arc<Service>, listener: OwnedFd) -> io::Result<()> {
    let mut started = 0u64;
    admit_each(Arc::clone(&service), listener, move |socket| {
        started += 1;
        let builder = std::thread::Builder::new().name(format!("connection-{started}")).stack_size(STACK_BYTES);
        let its_service = Arc::clone(&service);
        if let Err(error) = builder.spawn(move || serve(&its_service, &socket)) {
            // The closure for this connection is dropped, which closes the connection.
            // `eprintln!` would panic if nobody reads the other end any more.
            let _ = writeln!(io::stderr(), "powerband-engine serve: the system refuses another thread: {error}");
        }
    })
}

/// Hands each connection to a pool.
pub fn start_pool(service: Arc<Service>, listener: OwnedFd, rules: Rules) -> io::Result<()> {
    let in_pool = Arc::clone(&service);
    let pool = Pool::new(rules, "pool", move |_, socket: Socket| serve(&in_pool, &socket));
    service.metrics.watch_pool(&pool);
    let limbo = Limbo::start()?;
    admit_each(Arc::clone(&service), listener, move |socket| match pool.execute(socket) {
        Submitted::Accepted => {}
        Submitted::AcceptedInsteadOf(socket) | Submitted::Discarded(socket) => limbo.keep(socket),
        Submitted::RunInCaller(socket) => serve(&service, &socket),
        // Closing the connection at once, with its request unread, would reset it, and the client might never see the
        // 503.
        Submitted::Aborted(socket) => {
            if service.refuse(socket.fd(), LAST_ANSWER).is_ok() {
                sys::shut_down_writing(socket.fd());
                limbo.keep(socket);
            }
        }
    })
}

fn admit_each(
    service: Arc<Service>,
    listener: OwnedFd,
    mut handle: impl FnMut(Socket) + Send + 'static,
) -> io::Result<()> {
    accept_each("acceptor-1", listener, false, service.accept_delay_ns, move |fd| {
        service.work.gate();
        handle(service.admit(fd));
    })
}

/// Serves a connection until either side closes it.
fn serve(service: &Service, socket: &Socket) {
    let mut input = Vec::new();
    let mut buffer = [0u8; READ_BYTES];
    while let Ok(n @ 1..) = sys::read(socket.fd(), &mut buffer) {
        service.work.gate();
        input.extend_from_slice(&buffer[..n]);
        match serve_input(service, socket, &input) {
            Some(taken) => drop(input.drain(..taken)),
            None => return,
        }
    }
}

/// Serves the complete requests in `input`, in order. Returns the number of bytes used; None if the connection has to
/// end.
fn serve_input(service: &Service, socket: &Socket, input: &[u8]) -> Option<usize> {
    let mut taken = 0;
    loop {
        let mut out = Vec::new();
        let Some((length, step)) = service.read(&input[taken..], &mut out) else { return Some(taken) };
        taken += length;
        let keep_alive = match step {
            Step::Answered { keep_alive } => keep_alive,
            Step::Work(job) => {
                service.serve(&job, socket.fd()).ok()?;
                job.keep_alive()
            }
        };
        sys::write_all(socket.fd(), &out).ok()?;
        if !keep_alive {
            return None;
        }
    }
}

/// Keeps connections that are not served until their clients close them.
struct Limbo {
    epoll: Arc<Epoll>,
}

impl Limbo {
    fn start() -> io::Result<Limbo> {
        let epoll = Arc::new(Epoll::new()?);
        let watched = Arc::clone(&epoll);
        std::thread::Builder::new().name("limbo-1".into()).spawn(move || {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
            loop {
                let n = watched.wait(&mut events, None);
                for event in &events[..n] {
                    // SAFETY: the pointer was made by `keep`; being one-shot, its only event is this one.
                    drop(unsafe { Box::from_raw(event.u64 as *mut Socket) });
                }
            }
        })?;
        Ok(Limbo { epoll })
    }

    fn keep(&self, socket: Socket) {
        let fd = socket.fd();
        let data = Box::into_raw(Box::new(socket)) as u64;
        if self.epoll.add(fd, libc::EPOLLRDHUP | libc::EPOLLONESHOT, data).is_err() {
            // SAFETY: the kernel did not take the pointer, so it is still ours alone.
            drop(unsafe { Box::from_raw(data as *mut Socket) });
        }
    }
}
