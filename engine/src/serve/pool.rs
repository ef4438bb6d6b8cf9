//! A thread pool with exactly the rules of `java.util.concurrent.ThreadPoolExecutor` (JDK 17, `allowCoreThreadTimeOut`
//! off). `execute` takes a task, and returns what the caller must do if the pool refuses it. The pool does not know
//! what a task is.
//!
//! The rules for a new task: (1) if there are fewer threads than `core`, start one for it, even if others are idle; (2)
//! else queue it; (3) if the queue refuses it and there are fewer threads than `max`, start one for it; (4) else the
//! policy decides. A thread that finds no task for `keep_alive` ends if there are more than `core`. There are no "core
//! threads": any thread may be the one that ends. A queue of length 0 is a `SynchronousQueue`: it takes a task only if
//! a thread waits for one.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use clap::ValueEnum;

/// Address space of a thread's stack; only the pages that it touches take memory.
pub const STACK_BYTES: usize = 256 << 10; // an eighth of the default: ten thousand threads reserve 2.5 GB

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub core: usize,
    /// At least 1 and at least `core`.
    pub max: usize,
    /// Length of the queue. None: no limit. 0: tasks are handed to a waiting thread, never queued.
    pub queue_limit: Option<usize>,
    pub keep_alive: Duration,
    pub policy: Policy,
}

impl Rules {
    /// `Executors.newFixedThreadPool`.
    pub fn fixed(threads: usize) -> Rules {
        Rules { core: threads, max: threads, queue_limit: None, keep_alive: Duration::ZERO, policy: Policy::Abort }
    }

    /// `Executors.newCachedThreadPool`, where `keep_alive` is 60 s.
    pub fn cached(keep_alive: Duration) -> Rules {
        Rules { core: 0, max: i32::MAX as usize, queue_limit: Some(0), keep_alive, policy: Policy::Abort }
    }
}

/// The fate of a task that the pool refuses, named as in the options of `serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Answer 503
    Abort,
    /// Let the thread that reads requests do it (nothing is read meanwhile)
    CallerRuns,
    /// Never answer it
    Discard,
    // Needs a queue of at least 1 (the original overflows its stack without one).
    /// Never answer the one that has queued longest, and queue this one
    DiscardOldest,
}

/// The outcome of `execute`: whether the pool took the task, and what the caller has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Submitted<T> {
    Accepted,
    /// Accepted; this older task was thrown out of the queue.
    AcceptedInsteadOf(T),
    /// The caller has to run it.
    RunInCaller(T),
    /// Refused; the client should get an error.
    Aborted(T),
    /// Refused; the client gets no answer.
    Discarded(T),
}

/// The state of a pool at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub threads: usize,
    /// Threads that run a task.
    pub active: usize,
    pub largest: usize,
    pub queued: usize,
    pub completed: u64,
    /// Number of tasks that the policy handled, in any of its ways.
    pub rejected: u64,
}

pub struct Pool<T> {
    pub rules: Rules,
    thread_name: &'static str,
    run: Box<Run<T>>,
    state: Mutex<State<T>>,
}

type Run<T> = dyn Fn(&Arc<Pool<T>>, T) + Send + Sync;

struct State<T> {
    /// The current state, without `queued`, which is the length of the queue.
    now: Snapshot,
    /// Number of threads ever started, from which their names are made.
    started: u64,
    queue: VecDeque<T>,
    /// Threads that wait for a task, the longest waiting first.
    idle: VecDeque<Arc<Seat<T>>>,
}

/// The place where one thread waits.
struct Seat<T> {
    bell: Condvar,
    /// A task handed to this thread: its first one, or one passed on without a queue.
    handed: Mutex<Option<T>>,
    /// True while `State::idle` contains this seat. Changed only under the state's lock.
    seated: AtomicBool,
}

impl<T> Seat<T> {
    /// Takes the task that was handed to this thread, if there is one. The lock is released before this returns.
    fn take(&self) -> Option<T> {
        self.handed.lock().expect("no thread panics with it").take()
    }
}

impl<T: Send + 'static> Pool<T> {
    /// A pool without threads. The thread that has a task calls `run` with it; `run` must not panic.
    pub fn new(
        rules: Rules,
        thread_name: &'static str,
        run: impl Fn(&Arc<Pool<T>>, T) + Send + Sync + 'static,
    ) -> Arc<Pool<T>> {
        assert!(rules.max >= 1 && rules.max >= rules.core, "checked when the options are resolved");
        assert!(rules.policy != Policy::DiscardOldest || rules.queue_limit != Some(0), "ditto");
        let state = State { now: Snapshot::default(), started: 0, queue: VecDeque::new(), idle: VecDeque::new() };
        Arc::new(Pool { rules, thread_name, run: Box::new(run), state: Mutex::new(state) })
    }

    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        Snapshot { queued: state.queue.len(), ..state.now }
    }

    /// `ThreadPoolExecutor.execute`. Blocks only on the pool's own short lock.
    pub fn execute(self: &Arc<Self>, task: T) -> Submitted<T> {
        let mut state = self.lock();
        if state.now.threads < self.rules.core {
            return self.start_thread(state, Some(task));
        }
        match self.offer(&mut state, task) {
            // With a core of 0, a queued task may find no thread at all.
            Ok(_) if state.now.threads == 0 => self.start_thread(state, None),
            Ok(waiter) => {
                drop(state);
                if let Some(seat) = waiter {
                    seat.bell.notify_one();
                }
                Submitted::Accepted
            }
            Err(task) if state.now.threads < self.rules.max => self.start_thread(state, Some(task)),
            Err(task) => self.reject(state, task),
        }
    }

    /// `queue.offer`. If the queue takes the task, returns the waiting thread to wake, if any; else returns the task.
    fn offer(&self, state: &mut State<T>, task: T) -> Result<Option<Arc<Seat<T>>>, T> {
        if self.rules.queue_limit == Some(0) {
            // A SynchronousQueue is a stack of waiting threads: the last thread to come gets the first task, so that
            // under a falling load the others stay idle long enough to end.
            let Some(seat) = state.idle.pop_back() else { return Err(task) };
            seat.seated.store(false, Relaxed);
            *seat.handed.lock().expect("no thread panics with it") = Some(task);
            return Ok(Some(seat));
        }
        if self.rules.queue_limit.is_some_and(|limit| state.queue.len() >= limit) {
            return Err(task);
        }
        state.queue.push_back(task);
        // A LinkedBlockingQueue wakes the thread that has waited longest; one that has just finished may still be
        // faster.
        let waiter = state.idle.pop_front();
        if let Some(seat) = &waiter {
            seat.seated.store(false, Relaxed);
        }
        Ok(waiter)
    }

    fn reject(&self, mut state: MutexGuard<'_, State<T>>, task: T) -> Submitted<T> {
        state.now.rejected += 1;
        match self.rules.policy {
            Policy::Abort => Submitted::Aborted(task),
            Policy::CallerRuns => Submitted::RunInCaller(task),
            Policy::Discard => Submitted::Discarded(task),
            Policy::DiscardOldest => {
                let oldest = state.queue.pop_front().expect("a queue that refuses a task is full, and not of length 0");
                state.queue.push_back(task);
                Submitted::AcceptedInsteadOf(oldest)
            }
        }
    }

    /// Counts a new thread, then starts it outside the lock. If the system refuses a thread, the task is aborted.
    fn start_thread(self: &Arc<Self>, mut state: MutexGuard<'_, State<T>>, first: Option<T>) -> Submitted<T> {
        state.now.threads += 1;
        state.started += 1;
        state.now.active += usize::from(first.is_some());
        state.now.largest = state.now.largest.max(state.now.threads);
        let has_first = first.is_some();
        let name = format!("{}-{}", self.thread_name, state.started);
        drop(state);
        let seat = Arc::new(Seat { bell: Condvar::new(), handed: Mutex::new(first), seated: AtomicBool::new(false) });
        let (pool, its_seat) = (Arc::clone(self), Arc::clone(&seat));
        match std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || pool.work(&its_seat)) {
            Ok(_) => Submitted::Accepted,
            Err(error) => self.thread_refused(&error, &seat, has_first),
        }
    }

    fn thread_refused(&self, error: &io::Error, seat: &Seat<T>, has_first: bool) -> Submitted<T> {
        let mut state = self.lock();
        state.now.threads -= 1;
        state.now.active -= usize::from(has_first);
        state.now.rejected += 1;
        let task = seat.take().or_else(|| state.queue.pop_back());
        let number = state.now.threads + 1;
        drop(state);
        // `eprintln!` would panic if nobody reads the other end any more.
        let _ = writeln!(io::stderr(), "powerband-engine serve: the system refuses thread number {number}: {error}");
        task.map_or(Submitted::Accepted, Submitted::Aborted)
    }

    /// The main loop of a worker thread.
    fn work(self: Arc<Self>, seat: &Arc<Seat<T>>) {
        let first = seat.take();
        let mut task = first.or_else(|| self.next(seat, false));
        while let Some(current) = task {
            (self.run)(&self, current);
            task = self.next(seat, true);
        }
    }

    /// `getTask`: the next task; None if this thread has to end (it is then no longer counted).
    fn next(&self, seat: &Arc<Seat<T>>, finished_one: bool) -> Option<T> {
        let mut state = self.lock();
        state.now.active -= usize::from(finished_one);
        state.now.completed += u64::from(finished_one);
        let mut timed_out = false;
        loop {
            let timed = state.now.threads > self.rules.core;
            if timed && timed_out && (state.now.threads > 1 || state.queue.is_empty()) {
                // The original may have to replace a thread that ends while tasks are queued; under a single lock this
                // never happens.
                state.now.threads -= 1;
                return None;
            }
            let (back, task) = self.poll(state, seat, timed.then_some(self.rules.keep_alive));
            state = back;
            if task.is_some() {
                state.now.active += 1;
                return task;
            }
            timed_out = true;
        }
    }

    /// `queue.poll(timeout)`, or `queue.take()` without one.
    fn poll<'a>(
        &self,
        mut state: MutexGuard<'a, State<T>>,
        seat: &Arc<Seat<T>>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, State<T>>, Option<T>) {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(task) = seat.take().or_else(|| state.queue.pop_front()) {
                stand_up(&mut state, seat);
                return (state, Some(task));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                stand_up(&mut state, seat);
                return (state, None);
            }
            if !seat.seated.swap(true, Relaxed) {
                state.idle.push_back(Arc::clone(seat));
            }
            state = match left {
                Some(left) => seat.bell.wait_timeout(state, left).expect("no thread panics with it").0,
                None => seat.bell.wait(state).expect("no thread panics with it"),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no thread panics while it holds the pool")
    }
}

/// Removes a thread from the list of waiting threads, if it is there.
fn stand_up<T>(state: &mut State<T>, seat: &Arc<Seat<T>>) {
    if seat.seated.swap(false, Relaxed) {
        state.idle.retain(|other| !Arc::ptr_eq(other, seat));
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
