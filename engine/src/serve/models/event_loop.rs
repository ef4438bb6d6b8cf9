//! N event loops, one thread each. CPU work and the lock run on the loop and delay everything else on it, as in any
//! event-loop framework; waits and the downstream are timers and queues, which delay only their own connection. Each
//! request costs one read and one write; pipelined answers share a write. The requests of a connection are served one
//! after the other: while one waits, the rest stay unread. A WebSocket message is a request like any other.
//!
//! Connections reach the loops in one of two ways. An acceptor thread deals them in turn, straight into a loop's epoll
//! (without a wake-up: the first event is the first request); or the kernel hashes them over one listening socket per
//! loop. A single loop accepts its connections itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::listener::{Listener, accept_each};
use super::loop_connection::{Connection, Pending};
use crate::clock::now_ns;
use crate::serve::metrics::LoopGauges;
use crate::serve::request::echo::{self, Heard, Opened};
use crate::serve::request::http::{self, Parsed, Request};
use crate::serve::request::service::{Job, Service, Step};
use crate::serve::timing::{note_lateness, wake_early_ns};
use crate::sys::{self, Bell, Epoll};

/// The data of an event is a descriptor, or one of these two numbers.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
const READ_BYTES: usize = 64 << 10; // arbitrary: many pipelined requests per read; one buffer for each loop
const EVENTS: usize = 512; // arbitrary: per wait; timers that fall due meanwhile wait for all of them
/// Most reads of one connection in one turn of the loop; then all others have their turn.
const READS_PER_TURN: usize = 4; // arbitrary: 256 KiB
/// Answers are written once they have reached this size, so that deep pipelines of large bodies need little memory.
const WRITE_BYTES: usize = 64 << 10;
const READABLE: i32 = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
const CLOSING: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// Starts the loops: one for each listener, or, with a single listener, `instances` that are dealt its connections.
/// Their threads are called `name-N`.
pub fn start(service: &Arc<Service>, mut listeners: Vec<OwnedFd>, instances: usize, name: &str) -> io::Result<()> {
    let mut epolls = Vec::new();
    let dealt = listeners.len() < instances;
    let dealer = if dealt { listeners.pop() } else { None };
    for index in 0..instances {
        let listener = if dealt { None } else { listeners.pop() };
        let mut event_loop = EventLoop::new(Arc::clone(service), index, listener)?;
        epolls.push(Arc::clone(&event_loop.epoll));
        std::thread::Builder::new().name(format!("{name}-{index}")).spawn(move || event_loop.run())?;
    }
    match dealer {
        Some(listener) => deal(Arc::clone(service), listener, epolls),
        None => Ok(()),
    }
}

fn deal(service: Arc<Service>, listener: OwnedFd, epolls: Vec<Arc<Epoll>>) -> io::Result<()> {
    let mut next = 0;
    accept_each("acceptor-1", listener, true, service.accept_delay_ns, move |socket| {
        hand_over(&service, socket, next, &epolls[next]);
        next = (next + 1) % epolls.len();
    })
}

/// Adds a new connection to a loop's epoll. The loop first sees the descriptor at its first event.
fn hand_over(service: &Arc<Service>, socket: OwnedFd, index: usize, epoll: &Epoll) {
    // Count first: once the descriptor is added, the loop may serve and close it at any moment.
    service.count_in();
    let gauge = &service.metrics.loops[index].connections;
    gauge.fetch_add(1, Relaxed);
    let fd = socket.into_raw_fd();
    if epoll.add(fd, READABLE, fd as u64).is_err() {
        gauge.fetch_sub(1, Relaxed);
        // SAFETY: no loop knows this descriptor, so it is still ours alone; dropping it counts it out.
        drop(service.adopt(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
}

/// Connections of this loop that were given a permit of the downstream, with the instants at which they got it.
type Grants = Mutex<Vec<(RawFd, u64)>>;

struct EventLoop {
    service: Arc<Service>,
    index: usize,
    /// True if the whole work of a request blocks the loop.
    blocks: bool,
    epoll: Arc<Epoll>,
    listener: Option<Listener>,
    bell: Arc<Bell>,
    grants: Arc<Grants>,
    /// Connections by descriptor.
    connections: Vec<Option<Box<Connection>>>,
    /// Timers as (due, descriptor). A connection has at most one timer, and is not closed while it has one.
    timers: BinaryHeap<Reverse<(u64, RawFd)>>,
    buffer: Vec<u8>,
    /// Answers of the connection that is being served.
    out: Vec<u8>,
}

impl EventLoop {
    fn new(service: Arc<Service>, index: usize, listener: Option<OwnedFd>) -> io::Result<EventLoop> {
        let epoll = Arc::new(Epoll::new()?);
        let bell = Arc::new(Bell::new()?);
        epoll.add(bell.fd(), libc::EPOLLIN, BELL)?;
        let listener =
            listener.map(|socket| Listener::open(socket, &epoll, LISTENER, service.accept_delay_ns)).transpose()?;
        Ok(EventLoop {
            blocks: service.loop_blocks,
            service,
            index,
            epoll,
            listener,
            bell,
            grants: Arc::default(),
            connections: Vec::new(),
            timers: BinaryHeap::new(),
            buffer: vec![0; READ_BYTES],
            out: Vec::with_capacity(2 * WRITE_BYTES),
        })
    }

    fn run(&mut self) {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        loop {
            let timer_ns = self.timers.peek().map(|Reverse((due_ns, _))| due_ns.saturating_sub(now_ns()));
            let paused_ns = self.listener.as_mut().and_then(|listener| listener.paused_for_ns(&self.epoll));
            let timeout_ns = timer_ns.into_iter().chain(paused_ns).min();
            let n = self.epoll.wait(&mut events, timeout_ns);
            let turn_start_ns = now_ns();
            self.service.work.gate();
            let mut granted = false;
            for event in &events[..n] {
                match event.u64 {
                    LISTENER => self.accept(),
                    BELL => granted = true,
                    fd => self.on_event(fd as RawFd, event.events),
                }
            }
            // Comes after the events, because permits and timers may close a connection that has an event in this
            // batch.
            if granted {
                self.take_grants();
            }
            self.fire_timers(n == 0 && timer_ns == timeout_ns && timer_ns > Some(0));
            self.gauges().note_turn(now_ns() - turn_start_ns);
        }
    }

    fn gauges(&self) -> &LoopGauges {
        &self.service.metrics.loops[self.index]
    }

    fn accept(&mut self) {
        let listener = self.listener.as_mut().expect("only a loop with a listener hears of it");
        listener.accept_all(&self.epoll, |socket| hand_over(&self.service, socket, self.index, &self.epoll));
    }

    fn on_event(&mut self, fd: RawFd, events: u32) {
        let mut connection = self.check_out(fd);
        if connection.broken {
            return self.check_in(connection);
        }
        connection.readable |= events & (libc::EPOLLIN as u32 | CLOSING) != 0;
        connection.closing |= events & CLOSING != 0;
        if events & libc::EPOLLOUT as u32 != 0 && !self.write_rest(&mut connection) {
            return self.close(connection);
        }
        self.drive(connection);
    }

    /// Takes the connection of a descriptor out of the table, or makes it at its first event. It must be checked in
    /// again, or closed.
    fn check_out(&mut self, fd: RawFd) -> Box<Connection> {
        let index = fd as usize;
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index].take().unwrap_or_else(|| {
            // SAFETY: this loop's epoll holds the descriptor, which nobody else owns: a connection is closed by its own
            // event, which is its only one in a batch, or when all events of a batch have been handled.
            let socket = self.service.adopt(unsafe { OwnedFd::from_raw_fd(fd) });
            Box::new(Connection::new(socket))
        })
    }

    fn check_in(&mut self, connection: Box<Connection>) {
        let index = connection.socket.fd() as usize;
        self.connections[index] = Some(connection);
    }

    /// Closes a connection at once, or, while its descriptor has a timer or waits for a permit, once that has come.
    fn close(&mut self, mut connection: Box<Connection>) {
        if connection.pending.is_some() {
            connection.broken = true;
            (connection.input, connection.output) = (Vec::new(), Vec::new());
            return self.check_in(connection);
        }
        self.gauges().connections.fetch_sub(1, Relaxed);
        if connection.echo.is_some() {
            self.gauges().websockets.fetch_sub(1, Relaxed);
        }
        drop(connection);
    }

    /// Serves a connection as far as possible without waiting.
    fn drive(&mut self, mut connection: Box<Connection>) {
        let mut reads = 0;
        while connection.readable && connection.pending.is_none() && connection.output.is_empty() && !connection.ending
        {
            reads += 1;
            if reads > READS_PER_TURN {
                // The kernel checks again, and reports an event for the bytes that are left.
                let fd = connection.socket.fd();
                if self.epoll.modify(fd, READABLE, fd as u64).is_err() {
                    return self.close(connection);
                }
                break;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let result = sys::read(connection.socket.fd(), &mut buffer);
            let alive = match result {
                Ok(0) => false,
                Ok(n) => {
                    // A short read has emptied the socket; bytes that arrive later cause a new edge.
                    connection.readable = n == buffer.len() || connection.closing;
                    self.feed(&mut connection, &mut buffer[..n])
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    connection.readable = false;
                    true
                }
                Err(_) => false,
            };
            self.buffer = buffer;
            if !alive {
                return self.close(connection);
            }
        }
        self.check_in(connection);
    }

    /// Serves new bytes and writes the answers. Returns false if the connection is to be closed.
    fn feed(&mut self, connection: &mut Connection, bytes: &mut [u8]) -> bool {
        if connection.input.is_empty() {
            let taken = self.serve(connection, bytes);
            connection.input.extend_from_slice(&bytes[taken..]);
        } else {
            connection.input.extend_from_slice(bytes);
            self.serve_input(connection);
        }
        self.flush(connection)
    }

    /// Serves bytes that were read earlier.
    fn serve_input(&mut self, connection: &mut Connection) {
        let mut input = std::mem::take(&mut connection.input);
        let taken = self.serve(connection, &mut input);
        input.drain(..taken);
        if !input.is_empty() {
            connection.input = input;
        }
    }

    /// Serves complete requests until one has to wait, or the socket does not take an answer. Returns the number of
    /// bytes used.
    fn serve(&mut self, connection: &mut Connection, bytes: &mut [u8]) -> usize {
        let mut taken = 0;
        while connection.pending.is_none() && connection.output.is_empty() && !connection.ending && taken < bytes.len()
        {
            if connection.echo.is_some() {
                taken += self.serve_message(connection, &mut bytes[taken..]);
            } else {
                match http::parse(&bytes[taken..]) {
                    Parsed::Partial => break,
                    Parsed::Bad(status) => {
                        self.service.reject_unreadable(status, &mut self.out);
                        connection.ending = true;
                    }
                    Parsed::Complete(request, length) => {
                        self.serve_request(connection, &request, &bytes[taken..taken + length]);
                        taken += length;
                    }
                }
            }
            if self.out.len() >= WRITE_BYTES && !self.flush(connection) {
                break;
            }
        }
        taken
    }

    fn serve_request(&mut self, connection: &mut Connection, request: &Request<'_>, bytes: &[u8]) {
        if let Some(dialect) = self.service.websocket {
            match echo::open(&self.service, dialect, request, bytes, &mut self.out) {
                Opened::Answered { keep_alive } => connection.ending = !keep_alive,
                Opened::Echo(echo) => {
                    connection.echo = Some(echo);
                    self.gauges().websockets.fetch_add(1, Relaxed);
                }
            }
            return;
        }
        match self.service.step(request, &mut self.out) {
            Step::Answered { keep_alive } => connection.ending = !keep_alive,
            Step::Work(job) => self.begin(connection, job),
        }
    }

    /// Serves one message. Returns the number of bytes used, which is all of them if no message is complete.
    fn serve_message(&mut self, connection: &mut Connection, bytes: &mut [u8]) -> usize {
        if connection.draining {
            return bytes.len();
        }
        let echo = connection.echo.as_mut().expect("only a WebSocket has messages");
        let job = echo.job(&self.service);
        let waits = !self.blocks && (self.service.work.downstream.is_some() || job.plan.wait.mean_ns > 0);
        match echo.hear(bytes, waits, &mut self.out) {
            Heard::Message(taken) => {
                self.begin(connection, job);
                return taken;
            }
            Heard::Nothing => {}
            Heard::Closed => connection.ending = true,
            Heard::Violated => connection.draining = true,
        }
        bytes.len()
    }

    fn begin(&mut self, connection: &mut Connection, job: Job) {
        if self.blocks {
            self.service.work.all(&job.plan);
            return self.finish(connection, &job);
        }
        self.service.work.cpu_and_lock(&job.plan);
        let Some(downstream) = &self.service.work.downstream else { return self.begin_wait(connection, job) };
        let fd = connection.socket.fd();
        let (bell, grants) = (Arc::clone(&self.bell), Arc::clone(&self.grants));
        let at_once = downstream.acquire_or_queue(move |granted_ns| {
            grants.lock().expect("nothing panics with it").push((fd, granted_ns));
            bell.ring();
        });
        self.gauges().pending.fetch_add(1, Relaxed);
        connection.pending = Some(match at_once {
            Some(granted_ns) => {
                self.set_timer(fd, granted_ns, job.plan.downstream_ns);
                Pending::AtDownstream(job)
            }
            None => Pending::ForDownstream(job),
        });
    }

    fn begin_wait(&mut self, connection: &mut Connection, job: Job) {
        let wait_ns = self.service.work.draw(job.plan.wait);
        if wait_ns == 0 {
            return self.finish(connection, &job);
        }
        self.gauges().pending.fetch_add(1, Relaxed);
        self.set_timer(connection.socket.fd(), now_ns(), wait_ns);
        connection.pending = Some(Pending::Wait(job));
    }

    fn finish(&mut self, connection: &mut Connection, job: &Job) {
        match &mut connection.echo {
            Some(echo) => echo.release(&mut self.out),
            None => self.service.answer(job, &mut self.out),
        }
        self.gauges().count_request();
        connection.ending = !job.keep_alive();
    }

    fn set_timer(&mut self, fd: RawFd, from_ns: u64, wait_ns: u64) {
        self.timers.push(Reverse((from_ns + wait_ns - wake_early_ns(wait_ns), fd)));
    }

    fn take_grants(&mut self) {
        self.bell.silence();
        let grants = std::mem::take(&mut *self.grants.lock().expect("nothing panics with it"));
        for (fd, granted_ns) in grants {
            let mut connection = self.check_out(fd);
            let Some(Pending::ForDownstream(job)) = connection.pending.take() else {
                unreachable!("a connection that waits for a permit stays until it has it");
            };
            if connection.broken {
                self.gauges().pending.fetch_sub(1, Relaxed);
                self.release_downstream();
                self.close(connection);
                continue;
            }
            self.set_timer(fd, granted_ns, job.plan.downstream_ns);
            connection.pending = Some(Pending::AtDownstream(job));
            self.check_in(connection);
        }
    }

    /// Handles all due timers. `woken_for_it`: true if the loop slept until the first timer was due, so that its
    /// lateness is the machine's wake-up time.
    fn fire_timers(&mut self, mut woken_for_it: bool) {
        // Timers set from here on wait for the next turn.
        let now_ns = now_ns();
        while let Some(Reverse((due_ns, fd))) = self.timers.peek().copied() {
            if due_ns > now_ns {
                return;
            }
            if std::mem::take(&mut woken_for_it) {
                note_lateness(now_ns - due_ns);
            }
            self.timers.pop();
            self.on_timer(fd);
        }
    }

    fn on_timer(&mut self, fd: RawFd) {
        self.service.work.gate();
        let mut connection = self.check_out(fd);
        self.gauges().pending.fetch_sub(1, Relaxed);
        match connection.pending.take() {
            Some(Pending::AtDownstream(job)) => {
                self.release_downstream();
                if !connection.broken {
                    self.begin_wait(&mut connection, job);
                }
            }
            Some(Pending::Wait(_)) if connection.broken => {}
            Some(Pending::Wait(job)) => self.finish(&mut connection, &job),
            Some(Pending::ForDownstream(_)) | None => unreachable!("a timer belongs to a request that waits for it"),
        }
        if connection.broken {
            return self.close(connection);
        }
        self.serve_input(&mut connection);
        if self.flush(&mut connection) {
            self.drive(connection);
        } else {
            self.close(connection);
        }
    }

    fn release_downstream(&self) {
        self.service.work.downstream.as_ref().expect("it gave a permit").release();
    }

    /// Writes the answers, and keeps the bytes that the socket does not take. Returns false if the connection is to be
    /// closed.
    fn flush(&mut self, connection: &mut Connection) -> bool {
        if !connection.output.is_empty() {
            connection.output.append(&mut self.out);
            return true;
        }
        if self.out.is_empty() {
            return !connection.ending;
        }
        self.service.work.gate();
        let fd = connection.socket.fd();
        let written = match sys::write(fd, &self.out) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.out.clear();
                connection.ending = true;
                return false;
            }
        };
        if written < self.out.len() {
            connection.output.extend_from_slice(&self.out[written..]);
            self.out.clear();
            return self.epoll.modify(fd, READABLE | libc::EPOLLOUT, fd as u64).is_ok();
        }
        self.out.clear();
        if connection.draining {
            sys::shut_down_writing(fd);
        }
        !connection.ending
    }

    /// Writes the bytes that the socket did not take before, then serves bytes that were read meanwhile.
    fn write_rest(&mut self, connection: &mut Connection) -> bool {
        let fd = connection.socket.fd();
        while !connection.output.is_empty() {
            match sys::write(fd, &connection.output) {
                Ok(n) => drop(connection.output.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        if connection.ending || self.epoll.modify(fd, READABLE, fd as u64).is_err() {
            return false;
        }
        // Most connections never need this buffer again.
        connection.output = Vec::new();
        if connection.draining {
            sys::shut_down_writing(fd);
        }
        self.serve_input(connection);
        self.flush(connection)
    }
}
