//! The state of an event loop that every protocol works with: slots and their sockets, timers, arrivals, the clock,
//! counts. Independent of the bytes that are sent.

use std::io;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::open_model::OpenModel;
use super::share::Share;
use super::slot::{Slot, State};
use crate::clock::{now_ns, wall_ns};
use crate::contract::events::Phase;
use crate::contract::outcome::Outcome;
use crate::contract::spec::Model;
use crate::load::arrivals::shift;
use crate::load::input::{Report, Reports};
use crate::load::phases::Edges;
use crate::load::plan::Plan;
use crate::load::recorder::Recorder;
use crate::load::recorder::users::Users;
use crate::load::sys::{self, Epoll, Errno};
use crate::load::timers::{Timer, Timers};

pub const READ_BUFFER_BYTES: usize = 64 * 1024; // arbitrary: one per thread; during a longer read, other sockets wait
/// If the wall clock moves by more than this against the monotonic clock from batch to batch, it was set: time stamps
/// are then not used.
const STEADY_NS: u64 = 1_000_000;

pub struct Core {
    pub plan: Arc<Plan>,
    pub edges: Arc<Edges>,
    pub epoll: Epoll,
    pub slots: Vec<Slot>,
    pub timers: Timers,
    /// The open model's arrivals; None in the closed model.
    pub open: Option<OpenModel>,
    pub recorder: Recorder,
    pub rng: SmallRng,
    /// The clock when it was last read.
    pub now_ns: u64,
    /// The instant of the event being handled: `now_ns`, or the kernel's time stamp of the bytes that were read.
    pub done_ns: u64,
    /// True if the kernel time-stamps arrivals, so that a nap during an arrival does not make its time less exact.
    pub stamped: bool,
    /// True if a send may follow an answer at once, or nearly so.
    pub follows: bool,
    /// True if the end of a connection has completed a response: the kernel stamps bytes, and no end.
    pub until_close: bool,
    /// No timer, arrival or sweep is due before this instant.
    pub due_ns: u64,
    pub sweep_ns: u64,
    pub draining: bool,
    share: Share,
    reports: Reports,
    /// Wall clock minus monotonic clock at this batch of events.
    wall_offset_ns: u64,
    wall_steady: bool,
    /// Numbers the connections of the whole engine, to deal them to addresses.
    dealt: u64,
    /// Closed model: number of users that have not started yet.
    pub to_start: usize,
    all_left: bool,
}

impl Core {
    pub fn new(plan: Arc<Plan>, share: Share, edges: Arc<Edges>, reports: Reports) -> io::Result<Core> {
        let spec = &plan.spec;
        let seed = mix(spec.seed ^ mix(spec.first_user ^ mix(u64::from(share.thread))));
        let mut slots = Vec::new();
        if let Model::Closed { users, requests_per_user, .. } = spec.model {
            let requests_left = requests_per_user.map_or(u32::MAX, |most| most as u32);
            let users = share.of(users) as usize;
            slots.reserve_exact(users);
            slots.resize_with(users, || Slot::new(requests_left));
        }
        Ok(Core {
            epoll: Epoll::new()?,
            slots,
            timers: Timers::default(),
            open: None,
            recorder: recorder(&plan, &edges, 0, 0),
            rng: SmallRng::seed_from_u64(seed),
            now_ns: 0,
            done_ns: 0,
            stamped: plan.schedules() && spec.precision_ns > 0,
            follows: plan.follows_within(spec.precision_ns.saturating_mul(2)),
            until_close: false,
            due_ns: 0,
            sweep_ns: 0,
            draining: false,
            share,
            reports,
            wall_offset_ns: 0,
            wall_steady: false,
            dealt: u64::from(share.thread),
            to_start: 0,
            all_left: false,
            edges,
            plan,
        })
    }

    /// Schedules the starts of the users, or the arrivals.
    pub fn start(&mut self, go_ns: u64) {
        // In the open model there are no slots yet.
        self.recorder = recorder(&self.plan, &self.edges, go_ns, self.slots.len());
        let spec = &self.plan.spec;
        match &spec.model {
            Model::Closed { users, ramp_ns, .. } => {
                for slot in 0..self.slots.len() {
                    let user = slot as u64 * u64::from(self.share.threads) + u64::from(self.share.thread);
                    let due_ns = go_ns + start_after_ns(user, *users, *ramp_ns, spec.first_user);
                    self.timers.push(Timer { due_ns, pause_ns: 0, slot: slot as u32, step: 0, arrives: true, life: 0 });
                }
                self.to_start = self.slots.len();
                self.all_left = self.slots.is_empty();
                if self.all_left {
                    self.reports.send(Report::AllLeft(go_ns));
                }
            }
            Model::Open { .. } => {
                let seed = rand::Rng::random(&mut self.rng);
                self.open = OpenModel::new(spec, self.share, go_ns, seed);
            }
        }
        self.sweep_ns = go_ns;
    }

    /// The intended instant of the next arrival; `u64::MAX` if there is none.
    #[inline]
    pub fn next_arrival_ns(&self) -> u64 {
        self.open.as_ref().map_or(u64::MAX, |open| open.next_ns)
    }

    pub fn set_timer(&mut self, timer: Timer) {
        self.due_ns = self.due_ns.min(timer.due_ns);
        self.timers.push(timer);
    }

    /// Makes the next sweep for timeouts begin no later than this.
    pub fn sweep_by(&mut self, at_ns: u64) {
        self.sweep_ns = self.sweep_ns.min(at_ns);
        self.due_ns = self.due_ns.min(at_ns);
    }

    /// The index in the fleet of this slot's user.
    pub fn user(&self, index: usize) -> u64 {
        self.plan.spec.first_user + index as u64 * u64::from(self.share.threads) + u64::from(self.share.thread)
    }

    /// Reads the clock, and first closes intervals and phases that have ended, so that nothing is recorded in the wrong
    /// one.
    #[inline]
    pub fn read_clock(&mut self) -> u64 {
        self.now_ns = now_ns();
        self.pass_edges();
        self.now_ns
    }

    /// Reads the clock after bytes that arrived at this instant of the wall clock. Edges are passed only up to the
    /// arrival: the bytes belong to the interval in which they arrived.
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

    /// Updates the difference between the wall clock, which stamps arrivals, and the monotonic clock.
    pub fn compare_clocks(&mut self) {
        let offset_ns = wall_ns().wrapping_sub(now_ns());
        self.wall_steady = offset_ns.abs_diff(self.wall_offset_ns) < STEADY_NS;
        self.wall_offset_ns = offset_ns;
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
        self.recorder.late_for_edge(self.now_ns);
        let phase_ended = self.recorder.pass(self.done_ns);
        for snapshot in self.recorder.take_snapshots() {
            self.reports.send(Report::Interval(Box::new(snapshot)));
        }
        if phase_ended && !self.draining && matches!(self.recorder.phase(), Some(Phase::Drain) | None) {
            self.draining = true;
            self.due_ns = 0;
        }
    }

    /// Starts to open a slot's connection. The first event on it shows whether that succeeded.
    ///
    /// # Errors
    /// The outcome of everything that was to be sent on it.
    pub fn connect(&mut self, index: usize) -> Result<(), Outcome> {
        let target = &self.plan.spec.target;
        let turn = self.dealt as usize;
        self.dealt += u64::from(self.share.threads);
        let address = &self.plan.addresses[turn % self.plan.addresses.len()];
        let sources = &target.source_addresses;
        // The source changes once all addresses have been dealt, so that every pair occurs.
        let source = (!sources.is_empty()).then(|| sources[turn / self.plan.addresses.len() % sources.len()]);
        let tls = self.plan.tls.as_ref().map(|tls| tls.connection()).transpose();
        let fd = sys::connect(address, source).map_err(connect_outcome)?;
        let Ok(tls) = tls else {
            sys::close(fd);
            return Err(Outcome::TlsFailed);
        };
        let slot = &mut self.slots[index];
        slot.fd = fd;
        slot.state = State::Connecting;
        slot.stamp_us = (self.now_ns / 1_000) as u32;
        if tls.is_some() {
            slot.extra.get_or_insert_default().tls = tls;
        }
        if self.stamped {
            // If the kernel refuses, reads carry no time stamp, and the clock is read instead.
            let _ = sys::stamp_arrivals(fd);
        }
        let token = index as u64 | u64::from(slot.generation) << 32;
        self.recorder.connections_changed(1);
        self.epoll.add(fd, sys::EVERYTHING, token).map_err(|_| Outcome::NoDescriptors)
    }

    /// The outcome if the attempt to connect has failed. It has not if the peer has reset the connection since, as the
    /// first write shows: an attempt that meets a reset is refused (tcp_reset in the kernel's net/ipv4/tcp_input.c).
    pub fn connect_error(&self, index: usize) -> Option<Outcome> {
        let code = sys::socket_error(self.slots[index].fd);
        (!matches!(code, 0 | libc::ECONNRESET | libc::EPIPE)).then(|| connect_outcome(code))
    }

    /// Counts an open connection (TCP, and TLS if used).
    pub fn connection_stands(&mut self, index: usize) {
        let took_ns = now_ns().max(self.now_ns).saturating_sub(self.began_ns(index));
        self.recorder.connections.opened += 1;
        self.recorder.connections.connect_time.record(took_ns);
    }

    /// The instant at which a slot began to connect or to close, from its stamp in us. Wraps after 71 minutes, longer
    /// than either takes.
    pub fn began_ns(&self, index: usize) -> u64 {
        let now_us = now_ns().max(self.now_ns) / 1_000;
        let ago_us = (now_us as u32).wrapping_sub(self.slots[index].stamp_us);
        (now_us - u64::from(ago_us)) * 1_000
    }

    /// True while the TLS handshake of a connection is under way.
    pub fn is_in_handshake(&mut self, index: usize) -> bool {
        self.slots[index].tls().is_some_and(|tls| tls.handshaking())
    }

    /// Reads once from the socket, and then the clock.
    #[inline]
    pub fn read_socket(&mut self, index: usize, buffer: &mut [u8]) -> Result<usize, Errno> {
        let fd = self.slots[index].fd;
        if self.stamped {
            let read = sys::read_stamped(fd, buffer);
            self.read_clock_for(read.ok().and_then(|(_, stamp_ns)| stamp_ns));
            read.map(|(count, _)| count)
        } else {
            let read = sys::read(fd, buffer);
            self.read_clock();
            read
        }
    }

    /// True if what was just read is known to have arrived after this instant: the kernel has stamped it.
    #[inline]
    pub fn arrived_after(&self, until_ns: u64) -> bool {
        self.done_ns > until_ns && self.done_ns < self.now_ns
    }

    pub fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        sys::close(slot.fd);
        slot.reset();
        self.recorder.connections_changed(-1);
    }

    /// Reports once that every user has left, unless the run already drains.
    pub fn report_if_all_left(&mut self) {
        if self.recorder.users() == 0 && self.to_start == 0 && !self.all_left && !self.draining {
            self.all_left = true;
            self.reports.send(Report::AllLeft(self.now_ns));
        }
    }

    /// Closes the counts and reports them.
    pub fn finish(self, end_ns: u64) {
        let (snapshots, report) = self.recorder.finish(end_ns);
        for snapshot in snapshots {
            self.reports.send(Report::Interval(Box::new(snapshot)));
        }
        self.reports.send(Report::Final(Box::new(report)));
    }
}

/// `users`: number of users in the closed model; 0 in the open model.
fn recorder(plan: &Plan, edges: &Arc<Edges>, go_ns: u64, users: usize) -> Recorder {
    let spec = &plan.spec;
    let users = Users::new(users, spec.connection.pipeline);
    Recorder::new(edges.clone(), go_ns, spec.interval_ns, spec.histogram_every, spec.scenario.len(), users)
}

/// The time from `go` to the start of a user of this engine: its users start evenly over the ramp. An engine of a
/// fleet is shifted by a fraction of the time from one start to the next, so that the engines do not start their users
/// together.
pub fn start_after_ns(user: u64, users: u32, ramp_ns: u64, first_user: u64) -> u64 {
    let evenly_ns = (u128::from(ramp_ns) * u128::from(user) / u128::from(users)) as u64;
    // The number of the engine if all have as many users.
    let engine = first_user as f64 / f64::from(users);
    evenly_ns + (ramp_ns as f64 / f64::from(users) * shift(engine)) as u64
}

fn connect_outcome(code: Errno) -> Outcome {
    match code {
        libc::ECONNREFUSED => Outcome::ConnectRefused,
        libc::ETIMEDOUT => Outcome::ConnectTimeout,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => Outcome::NoDescriptors,
        libc::EADDRNOTAVAIL => Outcome::NoPorts,
        _ => Outcome::ConnectFailed,
    }
}

/// Spreads nearby seeds (SplitMix64's finaliser, Steele et al. 2014).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
