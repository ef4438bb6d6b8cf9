//! A fair semaphore of K permits. It serves as the downstream that handles K requests at a time, like a database's
//! connection pool, and, with K = 1, as the global lock. A released permit goes to the request that has waited longest,
//! whether in a blocked thread or in an event loop. The holder decides how long it keeps a permit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

use crate::clock::now_ns;

pub struct Permits {
    limit: usize,
    state: Mutex<State>,
}

struct State {
    in_use: usize,
    waiting: VecDeque<Grant>,
}

/// Called with the instant at which a waiter gets its permit. The holding time counts from that instant, not from the
/// waiter's wake-up: K permits held for t each then serve K / t requests per second, whatever the machine's wake-up
/// time.
type Grant = Box<dyn FnOnce(u64) + Send>;

impl Permits {
    pub fn new(limit: usize) -> Permits {
        Permits { limit, state: Mutex::new(State { in_use: 0, waiting: VecDeque::new() }) }
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn in_use(&self) -> usize {
        self.lock().in_use
    }

    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Takes a permit at once and returns the instant (monotonic ns), or queues and returns None. In the latter case
    /// `grant` is called later, by the thread that gives a permit back.
    pub fn acquire_or_queue(&self, grant: impl FnOnce(u64) + Send + 'static) -> Option<u64> {
        let mut state = self.lock();
        if state.in_use < self.limit {
            state.in_use += 1;
            return Some(now_ns());
        }
        state.waiting.push_back(Box::new(grant));
        None
    }

    /// Blocks until it has a permit. Returns the instant (monotonic ns) since which it has held it.
    pub fn acquire(&self) -> u64 {
        let granted: Arc<Mutex<Option<u64>>> = Arc::default();
        let (slot, waiter): (_, Thread) = (Arc::clone(&granted), std::thread::current());
        let at_once = self.acquire_or_queue(move |at_ns| {
            *slot.lock().expect("nothing panics with it") = Some(at_ns);
            waiter.unpark();
        });
        if let Some(at_ns) = at_once {
            return at_ns;
        }
        loop {
            std::thread::park();
            if let Some(at_ns) = granted.lock().expect("nothing panics with it").take() {
                return at_ns;
            }
        }
    }

    /// Gives a permit back, to the request that has waited longest, if any.
    pub fn release(&self) {
        let mut state = self.lock();
        match state.waiting.pop_front() {
            Some(grant) => {
                drop(state);
                grant(now_ns());
            }
            None => state.in_use -= 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn permits_are_limited_and_handed_on_in_order() {
        let permits = Permits::new(2);
        let (sender, receiver) = mpsc::channel();
        for i in 0..5 {
            let sender = sender.clone();
            if permits.acquire_or_queue(move |_| sender.send(i).unwrap()).is_some() {
                assert!(i < 2);
            }
        }
        assert_eq!((permits.in_use(), permits.waiting()), (2, 3));
        for expected in 2..5 {
            permits.release();
            assert_eq!(receiver.recv(), Ok(expected));
            assert_eq!(permits.in_use(), 2);
        }
        permits.release();
        permits.release();
        assert_eq!((permits.in_use(), permits.waiting()), (0, 0));
    }

    #[test]
    fn a_blocked_thread_gets_the_permit_that_another_gives_up() {
        let permits = Permits::new(1);
        let first_ns = permits.acquire();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| permits.acquire());
            while permits.waiting() == 0 {
                std::thread::yield_now();
            }
            permits.release();
            assert!(second.join().unwrap() >= first_ns);
        });
        assert_eq!(permits.in_use(), 1);
    }
}
