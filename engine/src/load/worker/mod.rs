//! One event loop: an engine thread's users or arrivals with their connections, timers and counts, shared with no other
//! thread. It reads the phases' ends from `Edges`, is woken through an eventfd, and reports through a channel at every
//! edge. `core` holds the state that all protocols share; a `Protocol` decides which bytes are sent when. This file is
//! the loop itself.

mod core;
mod http1;
mod lanes;
mod messages;
mod open_model;
mod protocol;
mod share;
mod slot;

use std::io;
use std::sync::Arc;

use self::core::{Core, READ_BUFFER_BYTES};
use crate::clock::now_ns;
use crate::contract::outcome::Outcome;
use crate::load::input::Reports;
use crate::load::phases::Edges;
use crate::load::plan::{Plan, ProtocolPlan};
use crate::load::sys::{self, Bell, Event, FAILED, PEER_CLOSED, READABLE, WRITABLE};
use crate::load::timers::Timer;
use crate::load::tls::TlsError;
use http1::Http1;
use messages::Messages;
use protocol::Protocol;
pub use share::Share;
use slot::State;

/// Events taken per wait: few enough that sends falling due meanwhile do not wait long.
const EVENTS: usize = 256;
const WAKE_TOKEN: u64 = u64::MAX;
/// With a precision of 0: for this long before a scheduled send, the loop spins.
const SPIN_NS: u64 = 200_000;
/// The longest nap during which events are left waiting.
const NAP_NS: u64 = 5_000_000;
/// The shortest time between two sweeps for timeouts: a timeout is found at most this late.
const SWEEP_NS: u64 = 1_000_000;
/// Most due sends before the loop looks at events again.
const DUE_AT_ONCE: usize = 64;
/// A read of this size comes close to what the kernel initially buffers for a connection (half of 128 KiB by default).
const LARGE_BYTES: usize = 32 * 1024;

/// Runs a worker from the given instant to the end.
pub type Run = Box<dyn FnOnce(u64) + Send>;

/// Prepares a thread's worker: allocates everything that the run needs, and sends nothing. The plan decides the
/// protocol.
pub fn prepare(plan: Arc<Plan>, share: Share, edges: Arc<Edges>, bell: Arc<Bell>, reports: Reports) -> io::Result<Run> {
    let core = Core::new(plan.clone(), share, edges, reports)?;
    let users = core.slots.len();
    match &plan.protocol {
        ProtocolPlan::Http1(steps) => Worker::boxed(core, bell, Http1::new(steps.clone())),
        ProtocolPlan::Messages(messages) => Worker::boxed(core, bell, Messages::new(messages.clone(), users)),
    }
}

struct Worker<P> {
    core: Core,
    protocol: P,
    bell: Arc<Bell>,
    /// Buffer for the plain bytes from TLS records.
    plain: Vec<u8>,
    /// Connections whose socket may hold more bytes than were read at once.
    unread: Vec<u32>,
    /// Number of connections on which the server waits for the engine: while there are any, the worker takes no nap.
    pressing: u32,
    /// True if responses exceed what the kernel buffers while nobody reads: the worker then takes no nap while a
    /// request is in flight.
    large: bool,
    /// True if more was due than was sent at once, or if the end of the window is still to be handled.
    behind: bool,
    crowded: bool,
    /// How late naps end: a mean smoothed over some 16 of them.
    overslept_ns: u64,
}

impl<P: Protocol> Worker<P> {
    fn new(core: Core, bell: Arc<Bell>, protocol: P) -> io::Result<Worker<P>> {
        core.epoll.add(bell.fd(), READABLE as i32, WAKE_TOKEN)?;
        Ok(Worker {
            core,
            protocol,
            bell,
            plain: Vec::new(),
            unread: Vec::new(),
            pressing: 0,
            large: false,
            behind: false,
            crowded: false,
            overslept_ns: 0,
        })
    }

    fn boxed(core: Core, bell: Arc<Bell>, protocol: P) -> io::Result<Run> {
        let worker = Worker::new(core, bell, protocol)?;
        Ok(Box::new(move |go_ns| worker.run(go_ns)))
    }

    /// Runs from `go_ns` to the end, and reports.
    fn run(mut self, go_ns: u64) {
        sys::least_timer_slack();
        let mut buffer = vec![0u8; READ_BUFFER_BYTES].into_boxed_slice();
        let mut events = [Event { events: 0, u64: 0 }; EVENTS];
        self.core.start(go_ns);
        self.core.read_clock();
        while !self.is_over() {
            if self.core.now_ns >= self.core.due_ns {
                self.run_due(&mut buffer);
            }
            let count = self.wait(&mut events);
            if count == 0 {
                self.core.read_clock();
            }
            for at in 0..count {
                if let Some(next) = events.get(at + 1).filter(|_| at + 1 < count) {
                    self.prefetch(next.u64);
                }
                let event = events[at];
                self.handle(event.u64, event.events, &mut buffer);
                if self.core.now_ns >= self.core.due_ns {
                    self.run_due(&mut buffer);
                }
            }
            self.read_on(&mut buffer);
        }
        self.finish();
    }

    /// True if the run is over, or if it drains and has nothing left to wait for.
    fn is_over(&self) -> bool {
        let core = &self.core;
        let nothing_left =
            core.recorder.in_flight() == 0 && core.timers.is_empty() && core.next_arrival_ns() == u64::MAX;
        core.recorder.phase().is_none() || (core.draining && nothing_left && !self.protocol.stays())
    }

    /// Waits for events until something is due, plus the delay of a send that `precision` allows.
    ///
    /// Wake-ups are the main cost of an open load: one for each response, in addition to those for sends. Therefore,
    /// while the next send is near, the worker naps until then and handles the responses of that time together; the
    /// kernel has stamped their arrival. If another send follows a response at once, the nap is no longer than that send
    /// may be late. The worker never naps while a server waits for the engine: that wait would be counted as the
    /// server's.
    fn wait(&mut self, events: &mut [Event]) -> usize {
        let precision_ns = self.core.plan.spec.precision_ns;
        // A sleeper wakes some 30 to 100 us late; the mean lateness of recent naps is part of the allowance.
        let allowed_ns = precision_ns - self.overslept_ns.min(precision_ns / 2);
        let scheduled_ns = self.core.timers.next_ns().min(self.core.next_arrival_ns());
        let wake_ns = match precision_ns {
            0 if scheduled_ns <= self.core.now_ns.saturating_add(SPIN_NS) => self.core.now_ns,
            0 => scheduled_ns - SPIN_NS,
            _ => scheduled_ns.saturating_add(allowed_ns),
        };
        let wake_ns = wake_ns.min(self.core.recorder.next_edge_ns()).min(self.core.sweep_ns);
        let follows = self.core.follows;
        let near_ns = NAP_NS.min(if follows { allowed_ns } else { precision_ns.saturating_mul(2) });
        let mut wait_ns =
            if self.behind || !self.unread.is_empty() { 0 } else { wake_ns.saturating_sub(self.core.now_ns) };
        if wait_ns > 0 && self.may_nap() && scheduled_ns <= self.core.now_ns.saturating_add(near_ns) {
            let wake_ns = wake_ns.min(self.core.now_ns + if follows { near_ns } else { NAP_NS });
            sys::sleep_until(wake_ns);
            let late_ns = now_ns().saturating_sub(wake_ns);
            self.overslept_ns = self.overslept_ns - self.overslept_ns / 16 + late_ns.min(NAP_NS) / 16;
            wait_ns = 0;
        }
        let count = self.core.epoll.wait(events, Some(wait_ns));
        self.crowded = count == events.len();
        if self.core.stamped && count > 0 {
            self.core.compare_clocks();
        }
        count
    }

    /// True if no server waits for the engine, and no response in flight is timed by when it is read.
    fn may_nap(&self) -> bool {
        let timed_by_reads = self.large || self.core.until_close;
        let unhurried = !timed_by_reads || self.core.recorder.in_flight() == 0;
        self.core.stamped && self.pressing == 0 && !self.crowded && unhurried
    }

    /// Updates `pressing` after a change of a slot; `before`: whether the slot was pressing before it.
    #[inline]
    fn weigh(&mut self, index: usize, before: bool) {
        if self.core.stamped {
            let now = self.core.slots[index].is_pressing();
            self.pressing = self.pressing + u32::from(now) - u32::from(before);
        }
    }

    #[inline]
    fn prefetch(&self, token: u64) {
        let index = token as u32 as usize;
        if index < self.core.slots.len() {
            sys::prefetch(&raw const self.core.slots[index]);
        }
    }

    #[inline]
    fn handle(&mut self, token: u64, flags: u32, buffer: &mut [u8]) {
        if token == WAKE_TOKEN {
            self.bell.silence();
            self.core.read_clock();
            return;
        }
        let index = token as u32 as usize;
        let slot = &self.core.slots[index];
        if slot.generation != (token >> 32) as u16 || slot.state == State::Closed {
            return;
        }
        let pressing = self.core.stamped && slot.is_pressing();
        if slot.state == State::Connecting {
            let generation = slot.generation;
            self.connected(index, flags);
            // An edge is reported only once: handle now what was reported together with the connection.
            let slot = &self.core.slots[index];
            if flags & !WRITABLE != 0 && slot.generation == generation && slot.state != State::Closed {
                self.exchange(index, flags & !WRITABLE, buffer);
            }
        } else {
            self.exchange(index, flags, buffer);
        }
        self.weigh(index, pressing);
    }

    /// Handles the first event of a connecting socket.
    fn connected(&mut self, index: usize, flags: u32) {
        self.core.read_clock();
        if flags & FAILED != 0
            && let Some(outcome) = self.core.connect_error(index)
        {
            return self.protocol.connect_failed(&mut self.core, index, outcome);
        }
        self.protocol.connected(&mut self.core, index);
    }

    /// Handles an event on an open connection, or on one in its TLS handshake.
    #[inline]
    fn exchange(&mut self, index: usize, flags: u32, buffer: &mut [u8]) {
        let generation = self.core.slots[index].generation;
        if flags & (PEER_CLOSED | FAILED) != 0 {
            self.core.slots[index].peer_closed = true;
        }
        if flags & (READABLE | PEER_CLOSED | FAILED) != 0 {
            self.read(index, u64::MAX, buffer);
        }
        let slot = &self.core.slots[index];
        if flags & WRITABLE != 0 && slot.generation == generation && slot.state != State::Closed {
            self.protocol.writable(&mut self.core, index);
        }
    }

    /// Reads what has come, and handles it. What the first read yields is thrown away if it came after `until_ns`.
    #[inline]
    fn read(&mut self, index: usize, mut until_ns: u64, buffer: &mut [u8]) {
        let generation = self.core.slots[index].generation;
        for _ in 0..P::READS_AT_ONCE {
            match self.core.read_socket(index, buffer) {
                Ok(0) => return self.end_of_stream(index),
                Ok(_) if self.core.arrived_after(until_ns) => return,
                Ok(count) => {
                    until_ns = u64::MAX;
                    self.core.recorder.received(count);
                    self.large |= count >= LARGE_BYTES;
                    if self.core.plan.tls.is_some() {
                        self.receive_records(index, &buffer[..count]);
                    } else {
                        self.protocol.receive(&mut self.core, index, &mut buffer[..count]);
                        self.protocol.flush(&mut self.core, index);
                    }
                    let slot = &self.core.slots[index];
                    if slot.generation != generation || (count < buffer.len() && !slot.peer_closed) {
                        return;
                    }
                }
                Err(libc::EAGAIN) => return,
                Err(libc::EINTR) => {}
                Err(_) => {
                    let shakes = self.core.is_in_handshake(index);
                    return self.lose(index, shakes, Outcome::Reset);
                }
            }
        }
        self.unread.push(index as u32);
    }

    /// Continues with connections that had more bytes than were read at once.
    #[inline]
    fn read_on(&mut self, buffer: &mut [u8]) {
        for index in std::mem::take(&mut self.unread) {
            let index = index as usize;
            if !matches!(self.core.slots[index].state, State::Closed | State::Connecting) {
                let pressing = self.core.slots[index].is_pressing();
                self.read(index, u64::MAX, buffer);
                self.weigh(index, pressing);
            }
        }
    }

    fn end_of_stream(&mut self, index: usize) {
        if self.core.is_in_handshake(index) {
            self.protocol.connect_failed(&mut self.core, index, Outcome::TlsFailed);
        } else {
            self.protocol.end_of_stream(&mut self.core, index);
        }
    }

    /// Decrypts TLS records and hands on the plain bytes.
    fn receive_records(&mut self, index: usize, records: &[u8]) {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let slot = &mut self.core.slots[index];
        let generation = slot.generation;
        let (mut shakes, mut shook) = (false, false);
        let received = slot.tls().map_or(Err(TlsError::Broken), |tls| {
            shakes = tls.handshaking();
            let received = tls.receive(records, &mut plain);
            shook = shakes && !tls.handshaking();
            received
        });
        slot.peer_closed |= received == Ok(true);
        if shook {
            self.protocol.secured(&mut self.core, index);
        }
        if !plain.is_empty() {
            self.protocol.receive(&mut self.core, index, &mut plain);
        }
        self.plain = plain;
        if self.core.slots[index].generation != generation {
            return;
        }
        match received {
            Ok(ended) => {
                self.protocol.flush(&mut self.core, index);
                if ended && self.core.slots[index].generation == generation {
                    self.end_of_stream(index);
                }
            }
            Err(_) => self.lose(index, shakes, Outcome::TlsFailed),
        }
    }

    /// Handles a connection that cannot be used any more. `shakes`: its TLS handshake was under way.
    fn lose(&mut self, index: usize, shakes: bool, outcome: Outcome) {
        if shakes {
            self.protocol.connect_failed(&mut self.core, index, Outcome::TlsFailed);
        } else {
            self.protocol.broken(&mut self.core, index, outcome);
        }
    }

    /// Does everything that is due now: user starts, requests after a pause, arrivals, timeouts, the end of the window.
    #[cold]
    fn run_due(&mut self, buffer: &mut [u8]) {
        // The sends below may read the clock and pass the end of the window. Requests due before that end are still
        // sent, in the next turn; only then is the rest called off.
        let draining = self.core.draining;
        let end_ns = self.core.edges.measure_end();
        let until_ns = self.core.now_ns.saturating_add(1).min(end_ns);
        for _ in 0..DUE_AT_ONCE {
            if let Some(timer) = self.core.timers.pop_before(until_ns) {
                self.fire(timer);
            } else if self.core.next_arrival_ns() < until_ns {
                self.arrive();
            } else {
                if draining {
                    self.call_off(end_ns);
                }
                break;
            }
        }
        if self.core.now_ns >= self.core.sweep_ns {
            self.sweep(buffer);
        }
        let scheduled_ns = self.core.timers.next_ns().min(self.core.next_arrival_ns());
        self.behind = scheduled_ns < until_ns || self.core.draining != draining;
        self.core.due_ns = if self.behind { 0 } else { scheduled_ns.min(self.core.sweep_ns) };
    }

    fn fire(&mut self, timer: Timer) {
        let index = timer.slot as usize;
        let pressing = self.core.slots[index].is_pressing();
        self.protocol.fire(&mut self.core, timer);
        self.weigh(index, pressing);
    }

    /// Takes the next arrival off the schedule and begins it, or drops it if there is no room.
    fn arrive(&mut self) {
        let now_ns = self.core.read_clock();
        let core = &mut self.core;
        let Some(open) = &mut core.open else { return };
        let intended_ns = open.take();
        let Some(index) = open.begin(&mut core.slots) else { return core.recorder.dropped(intended_ns, now_ns) };
        let slot = &mut core.slots[index];
        let pressing = slot.is_pressing();
        slot.lanes += 1;
        core.recorder.users_changed(1, now_ns);
        self.protocol.arrive(core, index, intended_ns);
        self.weigh(index, pressing);
    }

    /// Stops scheduling.
    fn call_off(&mut self, end_ns: u64) {
        if let Some(open) = &mut self.core.open {
            open.next_ns = u64::MAX;
        }
        self.protocol.call_off(&mut self.core, end_ns);
    }

    /// Finds requests and connections whose time is up. The next sweep is due when the first of those now in flight
    /// could time out: anything sent in the meantime has more time.
    fn sweep(&mut self, buffer: &mut [u8]) {
        let timeouts = &self.core.plan.spec.timeouts;
        let mut next_ns = self.core.now_ns + timeouts.connect_ns.min(timeouts.request_ns);
        for index in 0..self.core.slots.len() {
            let Some((mut until_ns, _)) = self.protocol.waits_until(&self.core, index) else { continue };
            if until_ns <= self.core.now_ns {
                let pressing = self.core.slots[index].is_pressing();
                until_ns = self.time_out(index, until_ns, buffer);
                self.weigh(index, pressing);
            }
            next_ns = next_ns.min(until_ns);
        }
        let next_ns = self.protocol.swept(&mut self.core, next_ns);
        self.core.sweep_ns = next_ns.max(self.core.now_ns + SWEEP_NS);
    }

    /// Gives up what a slot has waited for until this instant. Its socket is looked at once more before that: the
    /// answer, or the connection, may have come in time and have waited for this thread. Returns the instant up to
    /// which the slot may wait for what is in flight then.
    fn time_out(&mut self, index: usize, until_ns: u64, buffer: &mut [u8]) -> u64 {
        match self.core.slots[index].state {
            State::Closed => {}
            State::Connecting if sys::connect_is_over(self.core.slots[index].fd) => self.connected(index, FAILED),
            State::Connecting => {}
            _ => self.read(index, until_ns, buffer),
        }
        let now_ns = self.core.read_clock();
        match self.protocol.waits_until(&self.core, index) {
            Some((until_ns, outcome)) if until_ns <= now_ns => {
                self.protocol.time_is_up(&mut self.core, index, outcome);
                u64::MAX
            }
            waits => waits.map_or(u64::MAX, |(until_ns, _)| until_ns),
        }
    }

    /// Ends everything still in flight, drops arrivals that were due and never sent, and reports.
    fn finish(mut self) {
        let core = &mut self.core;
        let end_ns = if core.recorder.phase().is_none() { core.edges.over().min(core.now_ns) } else { core.now_ns };
        core.draining = true;
        core.now_ns = end_ns;
        core.done_ns = end_ns;
        let window_end_ns = core.edges.measure_end().min(end_ns);
        while let Some(open) = core.open.as_mut().filter(|open| open.next_ns < window_end_ns) {
            core.recorder.dropped(open.take(), end_ns);
        }
        self.call_off(window_end_ns);
        self.protocol.abandon(&mut self.core);
        self.core.finish(end_ns);
    }
}

#[cfg(test)]
mod tests;
