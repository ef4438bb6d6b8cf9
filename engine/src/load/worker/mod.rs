//! One event loop: an engine thread's users or arrivals, their connections, timers and counts, shared with nobody. It learns of
//! edges through `Edges` and is woken through an eventfd; it reports through a channel at every edge.
//! `wire` moves bytes, `users` decides what is sent next and when; `messages`, `members` and `paces` do the same for users
//! that hold a WebSocket each. This file is the loop itself.

mod member;
mod members;
mod messages;
mod paces;
mod slot;
mod users;
mod wire;

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::clock::{now_ns, wall_ns};
use crate::contract::events::Phase;
use crate::load::http1::parse::{HeadCache, Partial};
use crate::load::input::{Input, Report, Reports};
use crate::load::phases::Edges;
use crate::load::plan::Plan;
use crate::load::recorder::Recorder;
use crate::load::sys::{self, Epoll, Event, WRITABLE, Wake};
use crate::load::timers::Timers;
use member::Web;
use slot::{Slot, State};
use users::Open;

/// Events taken per wait: few enough that what falls due meanwhile does not wait long.
const EVENTS: usize = 256;
const READ_BUFFER_BYTES: usize = 64 * 1024;
const WAKE_TOKEN: u64 = u64::MAX;
/// With a precision of 0, the stretch before a scheduled send that is spun.
const SPIN_NS: u64 = 200_000;
/// If the wall clock moves more than this against the monotonic one from batch to batch it was set: stamps are not believed.
const STEADY_NS: u64 = 1_000_000;
/// The longest nap through events.
const NAP_NS: u64 = 5_000_000;
/// Sweeps for timeouts come no closer than this: a timeout is found at most so late.
const SWEEP_NS: u64 = 1_000_000;

/// A thread's share of the load.
#[derive(Clone, Copy)]
pub struct Share {
    pub thread: u32,
    pub threads: u32,
}

impl Share {
    /// This thread's part of `whole` things dealt in turn.
    pub fn of(self, whole: u32) -> u32 {
        whole / self.threads + u32::from(self.thread < whole % self.threads)
    }
}

pub struct Worker {
    plan: Arc<Plan>,
    share: Share,
    edges: Arc<Edges>,
    reports: Reports,
    epoll: Epoll,
    wake: Arc<Wake>,
    slots: Vec<Slot>,
    timers: Timers,
    open: Option<Open>,
    recorder: Recorder,
    rng: SmallRng,
    cache: HeadCache,
    /// For the response being parsed, unless its connection has one of its own.
    partial: Partial,
    /// Requests gathered for one write; plain bytes out of TLS records.
    gather: Vec<u8>,
    plain: Vec<u8>,
    /// Users with WebSockets; empty where there are none.
    web: Web,
    /// The last reading of the clock.
    now_ns: u64,
    /// When what is being handled happened: `now_ns`, or the kernel's stamp of the bytes that were read.
    done_ns: u64,
    /// The kernel stamps what arrives, so that a nap through its arrival costs no exactness.
    stamped: bool,
    /// Connections on which the server waits for the engine: through these no nap is taken.
    pressing: u32,
    /// Responses are larger than what the kernel takes in while nobody reads: no nap is taken through any request.
    large: bool,
    /// More is due than was sent at once, or more events are waiting than were taken.
    behind: bool,
    crowded: bool,
    /// Wall clock minus monotonic clock, of this batch of events.
    wall_offset_ns: u64,
    wall_steady: bool,
    /// How late naps end, smoothed over some 16 of them.
    overslept_ns: u64,
    /// No timer, arrival or sweep is due before this.
    due_ns: u64,
    sweep_ns: u64,
    /// Connections opened so far: deals them to addresses.
    dealt: u64,
    draining: bool,
    all_left: bool,
}

impl Worker {
    /// Everything a thread needs, allocated before the run; nothing is sent yet.
    ///
    /// # Errors
    /// The errno of epoll or eventfd.
    pub fn new(
        plan: Arc<Plan>,
        share: Share,
        edges: Arc<Edges>,
        wake: Arc<Wake>,
        reports: Reports,
    ) -> Result<Worker, sys::Errno> {
        let epoll = Epoll::new()?;
        epoll.add_level(wake.fd(), WAKE_TOKEN)?;
        let spec = &plan.spec;
        let recorder = Recorder::new(edges.clone(), 0, spec.interval_ns, spec.histogram_every, plan.steps.len());
        let seed = mix(spec.seed ^ mix(spec.first_user ^ mix(u64::from(share.thread))));
        let mut worker = Worker {
            share,
            edges,
            reports,
            epoll,
            wake,
            slots: Vec::new(),
            timers: Timers::default(),
            open: None,
            recorder,
            rng: SmallRng::seed_from_u64(seed),
            cache: HeadCache::default(),
            partial: Partial::default(),
            gather: Vec::new(),
            plain: Vec::new(),
            web: Web::default(),
            now_ns: 0,
            done_ns: 0,
            stamped: false,
            pressing: 0,
            large: false,
            behind: false,
            crowded: false,
            wall_offset_ns: 0,
            wall_steady: false,
            overslept_ns: 0,
            due_ns: 0,
            sweep_ns: 0,
            dealt: u64::from(share.thread),
            draining: false,
            all_left: false,
            plan,
        };
        worker.make_slots();
        worker.stamped = worker.plan.schedules() && worker.plan.spec.precision_ns > 0;
        Ok(worker)
    }

    /// Runs from `go_ns` to the end, and reports.
    pub fn run(mut self, go_ns: u64) {
        sys::least_timer_slack();
        let mut buffer = vec![0u8; READ_BUFFER_BYTES].into_boxed_slice();
        let mut events = [Event { events: 0, u64: 0 }; EVENTS];
        let spec = &self.plan.spec;
        self.recorder =
            Recorder::new(self.edges.clone(), go_ns, spec.interval_ns, spec.histogram_every, self.plan.steps.len());
        self.start(go_ns);
        self.now_ns = now_ns();
        self.pass_edges();
        while !self.over() {
            if self.now_ns >= self.due_ns {
                self.run_due();
            }
            let count = self.wait(&mut events);
            if count == 0 {
                self.now_ns = now_ns();
                self.pass_edges();
            }
            for at in 0..count {
                if let Some(next) = events.get(at + 1).filter(|_| at + 1 < count) {
                    self.prefetch(next.u64);
                }
                let event = events[at];
                self.handle(event.u64, event.events, &mut buffer);
                if self.now_ns >= self.due_ns {
                    self.run_due();
                }
            }
            self.read_on(&mut buffer);
        }
        self.finish();
    }

    /// The run is over, or drains and has nothing left to wait for.
    fn over(&self) -> bool {
        let nothing_left =
            self.recorder.in_flight() == 0 && self.timers.is_empty() && self.next_arrival_ns() == u64::MAX;
        self.recorder.phase().is_none() || (self.draining && nothing_left && !self.web.stays())
    }

    /// Waits for events until something is due, plus what `precision` allows a send to be late.
    ///
    /// Wake-ups cost an open load most: one for each response, besides those for sends. So while the next send is near the
    /// worker naps until then, and takes the responses of that time together; the kernel has stamped their arrival. It never
    /// naps while a server waits for the engine: that wait would be counted as the server's.
    fn wait(&mut self, events: &mut [Event]) -> usize {
        let precision_ns = self.plan.spec.precision_ns;
        let scheduled_ns = self.timers.next_ns().min(self.next_arrival_ns());
        let wake_ns = match precision_ns {
            0 if scheduled_ns <= self.now_ns.saturating_add(SPIN_NS) => self.now_ns,
            0 => scheduled_ns - SPIN_NS,
            // A sleeper wakes late by some 30 to 100 us; what it was late by of late is part of the allowance.
            _ => scheduled_ns.saturating_add(precision_ns - self.overslept_ns.min(precision_ns / 2)),
        };
        let wake_ns = wake_ns.min(self.recorder.next_edge_ns()).min(self.sweep_ns);
        let near_ns = precision_ns.saturating_mul(2).min(NAP_NS);
        let mut wait_ns =
            if self.behind || !self.web.unread.is_empty() { 0 } else { wake_ns.saturating_sub(self.now_ns) };
        if wait_ns > 0 && self.may_nap() && scheduled_ns <= self.now_ns.saturating_add(near_ns) {
            let wake_ns = wake_ns.min(self.now_ns + NAP_NS);
            sys::sleep_until(wake_ns);
            let late_ns = now_ns().saturating_sub(wake_ns);
            self.overslept_ns = self.overslept_ns - self.overslept_ns / 16 + late_ns.min(NAP_NS) / 16;
            wait_ns = 0;
        }
        let count = self.epoll.wait(events, wait_ns);
        self.crowded = count == events.len();
        if self.stamped && count > 0 {
            let offset_ns = wall_ns().wrapping_sub(now_ns());
            self.wall_steady = offset_ns.abs_diff(self.wall_offset_ns) < STEADY_NS;
            self.wall_offset_ns = offset_ns;
        }
        count
    }

    /// Whether nobody waits for the engine.
    fn may_nap(&self) -> bool {
        self.stamped && self.pressing == 0 && !self.crowded && !(self.large && self.recorder.in_flight() > 0)
    }

    /// Keeps `pressing` up to date after whatever was done to a slot; `before`: whether it was pressing before that.
    #[inline]
    fn weigh(&mut self, index: usize, before: bool) {
        if self.stamped {
            let now = self.slots[index].is_pressing();
            self.pressing = self.pressing + u32::from(now) - u32::from(before);
        }
    }

    #[inline]
    fn prefetch(&self, token: u64) {
        let index = token as u32 as usize;
        if index < self.slots.len() {
            sys::prefetch(&raw const self.slots[index]);
        }
    }

    #[inline]
    fn handle(&mut self, token: u64, flags: u32, buffer: &mut [u8]) {
        if token == WAKE_TOKEN {
            self.wake.clear();
            self.read_clock();
            return;
        }
        let index = token as u32 as usize;
        let slot = &self.slots[index];
        if slot.generation != (token >> 32) as u16 || slot.state == State::Closed {
            return;
        }
        let pressing = self.stamped && slot.is_pressing();
        match slot.state {
            State::Connecting => {
                let generation = slot.generation;
                self.connected(index, flags);
                // An edge tells only once: what came along with the connection is taken now.
                let slot = &self.slots[index];
                if flags & !WRITABLE != 0 && slot.generation == generation && slot.state != State::Closed {
                    match slot.state {
                        State::Joining => self.exchange_messages(index, flags & !WRITABLE, buffer),
                        _ => self.exchange(index, flags & !WRITABLE, buffer),
                    }
                }
            }
            State::Joining | State::Joined | State::Closing => self.exchange_messages(index, flags, buffer),
            _ => self.exchange(index, flags, buffer),
        }
        self.weigh(index, pressing);
    }

    /// Reads the clock, and closes intervals and phases that have ended: before anything is recorded at that instant.
    #[inline]
    fn read_clock(&mut self) -> u64 {
        self.now_ns = now_ns();
        self.pass_edges();
        self.now_ns
    }

    /// Reads the clock for bytes that arrived at this instant of the wall clock. Edges are passed up to their arrival: they
    /// belong to the interval in which they came.
    #[inline]
    fn read_clock_for(&mut self, stamp_ns: Option<u64>) {
        self.now_ns = now_ns();
        self.done_ns = self.now_ns;
        if let Some(stamp_ns) = stamp_ns.filter(|_| self.wall_steady) {
            self.done_ns = stamp_ns.wrapping_sub(self.wall_offset_ns).min(self.now_ns);
        }
        if self.done_ns >= self.recorder.next_edge_ns() {
            self.close_intervals();
        }
    }

    #[inline]
    fn pass_edges(&mut self) {
        self.done_ns = self.now_ns;
        if self.now_ns >= self.recorder.next_edge_ns() {
            self.close_intervals();
        }
    }

    #[cold]
    fn close_intervals(&mut self) {
        let phase_ended = self.recorder.pass(self.done_ns);
        for snapshot in self.recorder.take_snapshots() {
            // The coordinator outlives its workers; if it has gone, the process is ending.
            let _ = self.reports.send(Input::Report(self.share.thread as usize, Report::Interval(Box::new(snapshot))));
        }
        if phase_ended && !self.draining && matches!(self.recorder.phase(), Some(Phase::Drain) | None) {
            self.draining = true;
            self.due_ns = 0;
        }
    }

    /// Ends all that is still in flight, and reports.
    fn finish(mut self) {
        let end_ns = if self.recorder.phase().is_none() { self.edges.over().min(self.now_ns) } else { self.now_ns };
        self.abandon(end_ns);
        self.recorder.websocket.tallies = std::mem::take(&mut self.web.desk.tallies);
        let (snapshots, report) = self.recorder.finish(end_ns);
        for snapshot in snapshots {
            let _ = self.reports.send(Input::Report(self.share.thread as usize, Report::Interval(Box::new(snapshot))));
        }
        let _ = self.reports.send(Input::Report(self.share.thread as usize, Report::Final(Box::new(report))));
    }
}

/// Spreads nearby seeds (SplitMix64's finaliser, Steele et al. 2014).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
