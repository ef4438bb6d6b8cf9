//! Adds up the counts of all threads: the intervals in their order, and the summary of the run. Counts are summed and
//! histograms merged; nothing is averaged.

use std::collections::{BTreeMap, VecDeque};

use crate::contract::events::{self, Interval, LoadEvent, StepSummary, Summary, Times, Window};
use crate::load::recorder::counts::{
    Carried, Cohort, ConnectionCounts, Counts, OUTCOMES, StepTimes, add_outcomes, outcomes, sum,
};
use crate::load::recorder::histogram::Histogram;
use crate::load::recorder::users::Unserved;
use crate::load::recorder::websocket::WebSocketCounts;
use crate::load::recorder::{Final, Snapshot};

/// Adds up the intervals of the threads. An interval is complete when every thread that still runs has reported its
/// own.
pub struct Intervals {
    /// Number of intervals reported, by thread; `u64::MAX` once the thread has ended.
    told: Vec<u64>,
    /// Number of the first waiting interval.
    first: u64,
    waiting: VecDeque<Pending>,
    last_cpu_ns: u64,
    /// True if events carry the counts that only users with WebSockets have.
    websocket: bool,
}

struct Pending {
    sum: Snapshot,
    histogram: Option<Histogram>,
}

impl Intervals {
    pub fn new(threads: usize, websocket: bool) -> Intervals {
        Intervals { told: vec![0; threads], first: 0, waiting: VecDeque::new(), last_cpu_ns: 0, websocket }
    }

    /// Begins the run. `cpu_ns`: CPU time that the process has used so far.
    pub fn begin(&mut self, cpu_ns: u64) {
        self.last_cpu_ns = cpu_ns;
    }

    pub fn add(&mut self, thread: usize, snapshot: Snapshot) {
        let place = (self.told[thread] - self.first) as usize;
        self.told[thread] += 1;
        let histogram = snapshot.response_time.as_ref().map(|buckets| {
            let mut histogram = Histogram::default();
            histogram.add_sparse(buckets);
            histogram
        });
        match self.waiting.get_mut(place) {
            None => self.waiting.push_back(Pending { sum: snapshot, histogram }),
            Some(pending) => pending.add(snapshot, histogram),
        }
    }

    pub fn thread_ended(&mut self, thread: usize) {
        self.told[thread] = u64::MAX;
    }

    /// Removes and returns the complete events. Intervals of length 0 are left out: a phase may be empty.
    pub fn take(&mut self) -> Vec<LoadEvent> {
        let mut complete = Vec::new();
        let told = self.told.iter().copied().min().unwrap_or(u64::MAX);
        while self.first < told
            && let Some(pending) = self.waiting.pop_front()
        {
            self.first += 1;
            let next_phase = pending.sum.next_phase.map(|phase| (phase, pending.sum.end_ns));
            if pending.sum.end_ns > pending.sum.start_ns {
                complete.push(LoadEvent::Interval(self.event(pending)));
            }
            complete.extend(next_phase.map(|(phase, at_ns)| LoadEvent::Phase { phase, at_ns }));
        }
        complete
    }

    fn event(&mut self, Pending { sum, histogram }: Pending) -> Interval {
        let cpu_ns = sum.process.cpu_ns();
        let used_ns = cpu_ns.saturating_sub(self.last_cpu_ns);
        self.last_cpu_ns = cpu_ns;
        let Counts { scheduled, sent, dropped, .. } = sum.counts;
        Interval {
            start_ns: sum.start_ns,
            end_ns: sum.end_ns,
            phase: sum.phase,
            scheduled,
            sent,
            dropped,
            outcomes: outcomes(&sum.counts.outcomes),
            in_flight_now: sum.levels.in_flight,
            connections_now: sum.levels.connections,
            users_now: sum.levels.users,
            response_time_ns_sum: sum.counts.response_time_ns_sum,
            response_time_ns_max: sum.counts.response_time_ns_max,
            service_time_ns_sum: sum.counts.service_time_ns_sum,
            send_lag_ns_max: sum.counts.send_lag_ns_max,
            cpu_ns: used_ns,
            response_time_ns: histogram.map(|histogram| histogram.encode()),
            joined_now: self.websocket.then_some(sum.levels.joined),
            drops: self.websocket.then_some(sum.counts.drops),
            joins_failed: self.websocket.then_some(sum.counts.joins_failed),
            delivered: self.websocket.then_some(sum.counts.delivered),
        }
    }
}

impl Pending {
    fn add(&mut self, other: Snapshot, histogram: Option<Histogram>) {
        self.sum.end_ns = self.sum.end_ns.max(other.end_ns);
        self.sum.counts.add(&other.counts);
        self.sum.levels.add(&other.levels);
        if other.process.cpu_ns() > self.sum.process.cpu_ns() {
            self.sum.process = other.process;
        }
        if let Some(theirs) = histogram {
            self.histogram.get_or_insert_default().add(&theirs);
        }
    }
}

/// The instants of a run.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub go_ns: u64,
    pub measure_start_ns: u64,
    pub measure_end_ns: u64,
}

/// Sums the whole run. `with_websocket`: whether to include the counts that only users with WebSockets have.
pub fn summary(span: Span, names: &[String], threads: &[Final], ended_by: &str, with_websocket: bool) -> Summary {
    let (mut total, mut window) = (Counts::default(), Counts::default());
    let mut cohort = Cohort { steps: vec![StepTimes::default(); names.len()], ..Cohort::default() };
    let (mut carried, mut connections) = (Carried::default(), ConnectionCounts::default());
    let mut unserved = Unserved::default();
    let mut rejected = BTreeMap::new();
    let mut websocket = with_websocket.then(WebSocketCounts::default);
    for thread in threads {
        total.add(&thread.total);
        window.add(&thread.window);
        cohort.add(&thread.cohort);
        carried.add(&thread.carried);
        unserved.add(&thread.unserved);
        connections.add(&thread.connections);
        for (&status, count) in &thread.rejected {
            *rejected.entry(status).or_default() += count;
        }
        if let Some(websocket) = &mut websocket {
            websocket.add(&thread.websocket);
        }
    }
    // Each thread read the CPU clock of the process when it passed the edges: the pair that spans most covers the
    // window.
    let cpu = |of: fn(&crate::clock::ProcessUse) -> u64| {
        let start = threads.iter().map(|thread| of(&thread.process_at_start)).min().unwrap_or(0);
        let end = threads.iter().map(|thread| of(&thread.process_at_end)).max().unwrap_or(0);
        end.saturating_sub(start)
    };
    Summary {
        go_ns: span.go_ns,
        measure_start_ns: span.measure_start_ns,
        measure_end_ns: span.measure_end_ns,
        end_ns: threads.iter().map(|thread| thread.end_ns).max().unwrap_or(span.measure_end_ns),
        total: events::Counts {
            scheduled: total.scheduled,
            sent: total.sent,
            dropped: total.dropped,
            outcomes: outcomes(&total.outcomes),
        },
        cohort: cohort.counts(),
        cohort_times: cohort.times(),
        steps: names.iter().zip(&cohort.steps).map(|(name, step)| step.summary(name)).collect(),
        window: Window {
            outcomes: outcomes(&window.outcomes),
            bytes_received: window.bytes_received,
            bytes_sent: window.bytes_sent,
            time_in_system_ns_sum: window.time_in_system_ns_sum,
            think_ns_sum: window.think_ns_sum,
            user_ns: window.user_ns,
            carried_in_ns_sum: carried.in_ns_sum,
            carried_out_ns_sum: carried.out_ns_sum,
            unanswered: carried.unanswered,
            users_unserved: Some(unserved.users),
            users_unserved_requests: Some(unserved.requests),
            users_unserved_away_ns: Some(unserved.away_ns),
            late_ns_max: threads.iter().map(|thread| thread.late_ns_max).max(),
        },
        connections: events::Connections {
            opened: connections.opened,
            failed: connections.failed,
            closed_by_peer: connections.closed_by_peer,
            open_max: connections.open_max,
            connect_time_ns: connections.connect_time.encode(),
        },
        cpu_user_ns: cpu(|process| process.cpu_user_ns),
        cpu_system_ns: cpu(|process| process.cpu_system_ns),
        thread_cpu_ns: threads.iter().map(|thread| thread.thread_cpu_ns).collect(),
        max_rss_bytes: crate::clock::max_rss_bytes(),
        rejected_statuses: rejected
            .into_iter()
            .map(|(status, count): (u16, u64)| (status.to_string(), count))
            .collect(),
        redirects: threads.iter().map(|thread| thread.redirects).sum(),
        ended_by: ended_by.into(),
        websocket: websocket.map(WebSocketCounts::summary),
    }
}

impl Cohort {
    fn add(&mut self, other: &Cohort) {
        sum!(self += other: scheduled, sent, dropped);
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            add_outcomes(&mut mine.outcomes, &theirs.outcomes);
            mine.response_time.add(&theirs.response_time);
            mine.service_time.add(&theirs.service_time);
        }
        self.failed_time.add(&other.failed_time);
        self.send_lag.add(&other.send_lag);
        self.dropped_wait.add(&other.dropped_wait);
    }

    fn counts(&self) -> events::Counts {
        let mut sum = [0; OUTCOMES];
        self.steps.iter().for_each(|step| add_outcomes(&mut sum, &step.outcomes));
        events::Counts { scheduled: self.scheduled, sent: self.sent, dropped: self.dropped, outcomes: outcomes(&sum) }
    }

    fn times(&self) -> Times {
        let all = |of: fn(&StepTimes) -> &Histogram| {
            let mut sum = Histogram::default();
            self.steps.iter().for_each(|step| sum.add(of(step)));
            sum.encode()
        };
        Times {
            response_time_ns: all(|step| &step.response_time),
            service_time_ns: all(|step| &step.service_time),
            failed_time_ns: self.failed_time.encode(),
            send_lag_ns: self.send_lag.encode(),
            dropped_wait_ns: self.dropped_wait.encode(),
        }
    }
}

impl StepTimes {
    fn summary(&self, name: &str) -> StepSummary {
        StepSummary {
            name: name.into(),
            outcomes: outcomes(&self.outcomes),
            response_time_ns: self.response_time.encode(),
            service_time_ns: self.service_time.encode(),
        }
    }
}

impl ConnectionCounts {
    /// Sums `open_max` over the threads, which is exact for one thread and an upper bound for several.
    fn add(&mut self, other: &ConnectionCounts) {
        sum!(self += other: opened, failed, closed_by_peer, open_max);
        self.connect_time.add(&other.connect_time);
    }
}
