//! A pool whose tasks are requests, as in Tomcat's NIO connector. One poller thread accepts connections and reads whole
//! requests from them. It hands each request to the pool, whose thread does the work, writes the answer and gives the
//! connection back. Idle connections cost no thread. The poller itself answers `/health` and `/metrics`.
//!
//! A connection has one owner at a time: the kernel's epoll while it is idle (one-shot, with its pointer in the event's
//! data), the poller while it is read, a task while it is served.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::listener::Listener;
use crate::serve::pool::{Pool, Rules, Submitted};
use crate::serve::request::service::{Job, Service, Socket, Step};
use crate::sys::{self, Epoll};

/// Event data of the listening socket, which no pointer equals: none is null.
const LISTENER: u64 = 0;
const READ_BYTES: usize = 64 << 10; // arbitrary: for the poller alone; bytes left in the socket cause another event

struct Connection {
    socket: Socket,
    /// Bytes read and not yet served.
    input: Vec<u8>,
    /// True if a request was discarded: later ones are not answered either, so that no answer can be mistaken for its
    /// answer.
    silenced: bool,
}

struct Task {
    connection: Box<Connection>,
    job: Job,
}

struct Front {
    service: Arc<Service>,
    epoll: Epoll,
}

/// Starts the poller; the pool starts its threads as tasks arrive.
pub fn start(service: Arc<Service>, listener: OwnedFd, rules: Rules) -> io::Result<()> {
    let front = Arc::new(Front { service: Arc::clone(&service), epoll: Epoll::new()? });
    let listener = Listener::open(listener, &front.epoll, LISTENER, service.accept_delay_ns)?;
    let in_pool = Arc::clone(&front);
    let pool = Pool::new(rules, "pool", move |pool, task| in_pool.run(pool, task));
    service.metrics.watch_pool(&pool);
    std::thread::Builder::new().name("poller-1".into()).spawn(move || front.poll(listener, &pool))?;
    Ok(())
}

impl Front {
    fn poll(&self, mut listener: Listener, pool: &Arc<Pool<Task>>) {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
        let mut buffer = vec![0u8; READ_BYTES];
        loop {
            let timeout_ns = listener.paused_for_ns(&self.epoll);
            let n = self.epoll.wait(&mut events, timeout_ns);
            self.service.work.gate();
            for event in &events[..n] {
                if event.u64 == LISTENER {
                    listener.accept_all(&self.epoll, |fd| self.accept(fd));
                } else {
                    // SAFETY: the pointer was made by `arm` from a box; its event is one-shot, so it comes once per
                    // arming.
                    let connection = unsafe { Box::from_raw(event.u64 as *mut Connection) };
                    self.read(connection, &mut buffer, pool);
                }
            }
        }
    }

    fn accept(&self, fd: OwnedFd) {
        let socket = self.service.admit(fd);
        self.arm(Box::new(Connection { socket, input: Vec::new(), silenced: false }), libc::EPOLL_CTL_ADD);
    }

    /// Hands an idle connection to the kernel until it is readable.
    fn arm(&self, connection: Box<Connection>, operation: libc::c_int) {
        let interest = if connection.silenced { libc::EPOLLRDHUP } else { libc::EPOLLIN | libc::EPOLLRDHUP };
        let (events, fd) = (interest | libc::EPOLLONESHOT, connection.socket.fd());
        let data = Box::into_raw(connection) as u64;
        let result = match operation {
            libc::EPOLL_CTL_ADD => self.epoll.add(fd, events, data),
            _ => self.epoll.modify(fd, events, data),
        };
        if result.is_err() {
            // SAFETY: the kernel did not take the pointer, so it is still ours alone.
            drop(unsafe { Box::from_raw(data as *mut Connection) });
        }
    }

    /// Reads once. If bytes stay in the socket, the next arming fires again.
    fn read(&self, mut connection: Box<Connection>, buffer: &mut [u8], pool: &Arc<Pool<Task>>) {
        if connection.silenced {
            return;
        }
        match sys::read(connection.socket.fd(), buffer) {
            Ok(0) => {}
            Ok(n) => {
                connection.input.extend_from_slice(&buffer[..n]);
                self.advance(connection, pool);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.arm(connection, libc::EPOLL_CTL_MOD),
            Err(_) => {}
        }
    }

    /// Runs a task on a thread of the pool.
    fn run(&self, pool: &Arc<Pool<Task>>, task: Task) {
        if let Some(connection) = self.serve(task) {
            self.advance(connection, pool);
        }
    }

    /// Serves one request. Returns the connection if it continues.
    fn serve(&self, task: Task) -> Option<Box<Connection>> {
        let served = self.service.serve(&task.job, task.connection.socket.fd());
        (served.is_ok() && task.job.keep_alive()).then_some(task.connection)
    }

    /// Hands the next complete request of a connection to the pool, or gives the connection back to the kernel.
    /// Each pipelined request is a task of its own, one after the other, so answers keep their order.
    fn advance(&self, mut connection: Box<Connection>, pool: &Arc<Pool<Task>>) {
        loop {
            let Some(job) = self.next_job(&mut connection) else { return };
            let Some(job) = job else { return self.arm(connection, libc::EPOLL_CTL_MOD) };
            connection = match pool.execute(Task { connection, job }) {
                Submitted::Accepted => return,
                Submitted::AcceptedInsteadOf(oldest) => return self.silence(oldest.connection),
                Submitted::Discarded(task) => return self.silence(task.connection),
                Submitted::RunInCaller(task) => match self.serve(task) {
                    Some(connection) => connection,
                    None => return,
                },
                Submitted::Aborted(task) => {
                    let refused = self.service.refuse(task.connection.socket.fd(), task.job.reply);
                    if refused.is_err() || !task.job.keep_alive() {
                        return;
                    }
                    task.connection
                }
            };
        }
    }

    /// The next job in a connection's input, after the answers to requests that need no work. `Some(None)` if more has
    /// to be read first; None if the connection is to be closed.
    fn next_job(&self, connection: &mut Connection) -> Option<Option<Job>> {
        let mut out = Vec::new();
        let mut taken = 0;
        let next = loop {
            let Some((length, step)) = self.service.read(&connection.input[taken..], &mut out) else {
                break Some(None);
            };
            taken += length;
            match step {
                Step::Work(job) => break Some(Some(job)),
                Step::Answered { keep_alive: true } => {}
                Step::Answered { keep_alive: false } => break None,
            }
        };
        connection.input.drain(..taken);
        // The poller must not wait: a client whose unread pages fill the socket is disconnected.
        if !out.is_empty() && sys::write_at_once(connection.socket.fd(), &out).is_err() {
            return None;
        }
        next
    }

    /// Keeps a connection open without ever answering it, until its client gives up.
    fn silence(&self, mut connection: Box<Connection>) {
        connection.silenced = true;
        self.arm(connection, libc::EPOLL_CTL_MOD);
    }
}
