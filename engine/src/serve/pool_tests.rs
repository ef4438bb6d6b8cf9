//! Compares the pool with the real `ThreadPoolExecutor` (recorded traces) and with a small model of its rules (random
//! sequences). Tasks are gated, so that the pool comes to rest after every step: nothing here depends on speed.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

/// The tasks that run, and those that may end.
#[derive(Default)]
struct Board {
    running: Mutex<BTreeSet<u32>>,
    released: Mutex<BTreeSet<u32>>,
    change: Condvar,
}

impl Board {
    fn run(&self, id: u32) {
        self.running.lock().unwrap().insert(id);
        let mut released = self.released.lock().unwrap();
        while !released.contains(&id) {
            released = self.change.wait(released).unwrap();
        }
        self.running.lock().unwrap().remove(&id);
    }

    fn release(&self, id: u32) {
        self.released.lock().unwrap().insert(id);
        self.change.notify_all();
    }
}

fn gated(rules: Rules) -> (Arc<Pool<u32>>, Arc<Board>) {
    let board = Arc::new(Board::default());
    let in_pool = Arc::clone(&board);
    (Pool::new(rules, "test", move |_, id| in_pool.run(id)), board)
}

/// Waits until the pool is in the expected state; fails if it is not within ten seconds.
fn expect_rest(pool: &Pool<u32>, board: &Board, state: Snapshot, running: &BTreeSet<u32>, step: &str) {
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        let now = (pool.snapshot(), board.running.lock().unwrap().clone());
        if now == (state, running.clone()) {
            return;
        }
        assert!(Instant::now() < give_up, "after `{step}`: {now:?} instead of {:?}", (state, running));
        std::thread::sleep(Duration::from_micros(50));
    }
}

// ------------------------------------------------------------------------------------------------ the original's traces

#[test]
fn it_does_what_the_thread_pool_executor_of_the_jdk_did() {
    let mut current = None;
    let mut rejected = 0;
    let mut steps = 0;
    for line in include_str!("testdata/thread_pool_traces.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(rules) = line.strip_prefix("pool ") {
            current = Some(gated(parse_rules(rules)));
            rejected = 0;
            continue;
        }
        let (pool, board) = current.as_ref().expect("a trace begins with its pool");
        let (action, state) = line.split_once(" | ").expect("an action and a state");
        match action.split(' ').collect::<Vec<_>>()[..] {
            ["submit", id, outcome] => {
                assert_eq!(describe(pool.execute(id.parse().unwrap())), outcome, "{line}");
                rejected += u64::from(outcome != "accepted");
            }
            ["finish", id] => board.release(id.parse().unwrap()),
            _ => panic!("{line}"),
        }
        let (mut expected, running) = parse_state(state);
        expected.rejected = rejected;
        expect_rest(pool, board, expected, &running, line);
        steps += 1;
    }
    assert_eq!(steps, 96 * 30);
}

fn parse_rules(text: &str) -> Rules {
    let [core, max, queue, keep_alive, policy] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    Rules {
        core: core.parse().unwrap(),
        max: max.parse().unwrap(),
        queue_limit: queue.parse().ok(),
        keep_alive: if keep_alive == "0" { Duration::ZERO } else { LONG },
        policy: Policy::from_str(policy, false).unwrap(),
    }
}

fn parse_state(text: &str) -> (Snapshot, BTreeSet<u32>) {
    let (counts, running) = text.split_once(" :").expect("counts and ids");
    let [threads, active, largest, queued, completed] =
        counts.split(' ').map(|n| n.parse().unwrap()).collect::<Vec<usize>>()[..]
    else {
        panic!("{text}")
    };
    let snapshot = Snapshot { threads, active, largest, queued, completed: completed as u64, rejected: 0 };
    (snapshot, running.split_whitespace().map(|id| id.parse().unwrap()).collect())
}

fn describe(submitted: Submitted<u32>) -> String {
    match submitted {
        Submitted::Accepted => "accepted".into(),
        Submitted::AcceptedInsteadOf(oldest) => format!("instead-of:{oldest}"),
        Submitted::RunInCaller(_) => "caller".into(),
        Submitted::Aborted(_) => "aborted".into(),
        Submitted::Discarded(_) => "discarded".into(),
    }
}

// ------------------------------------------------------------------------------------------------ a model of the rules

/// A model of the pool at rest, by the rules in the documentation of `ThreadPoolExecutor`.
struct Model {
    rules: Rules,
    now: Snapshot,
    running: BTreeSet<u32>,
    queue: VecDeque<u32>,
}

impl Model {
    fn submit(&mut self, id: u32) -> Submitted<u32> {
        let idle = self.now.threads - self.running.len();
        let limit = self.rules.queue_limit.unwrap_or(usize::MAX);
        if self.now.threads < self.rules.core {
            self.start(id);
        } else if idle > 0 {
            self.running.insert(id);
        } else if self.queue.len() < limit && self.now.threads > 0 {
            self.queue.push_back(id);
        } else if self.now.threads < self.rules.max {
            self.start(id);
        } else {
            self.now.rejected += 1;
            match self.rules.policy {
                Policy::Abort => return Submitted::Aborted(id),
                Policy::CallerRuns => return Submitted::RunInCaller(id),
                Policy::Discard => return Submitted::Discarded(id),
                Policy::DiscardOldest => {
                    self.queue.push_back(id);
                    return Submitted::AcceptedInsteadOf(self.queue.pop_front().unwrap());
                }
            }
        }
        Submitted::Accepted
    }

    fn start(&mut self, id: u32) {
        self.now.threads += 1;
        self.now.largest = self.now.largest.max(self.now.threads);
        self.running.insert(id);
    }

    fn finish(&mut self, id: u32) {
        self.running.remove(&id);
        self.now.completed += 1;
        match self.queue.pop_front() {
            Some(next) => drop(self.running.insert(next)),
            None if self.rules.keep_alive.is_zero() && self.now.threads > self.rules.core => self.now.threads -= 1,
            None => {}
        }
    }

    fn state(&self) -> Snapshot {
        Snapshot { active: self.running.len(), queued: self.queue.len(), ..self.now }
    }
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let policy =
        prop_oneof![Just(Policy::Abort), Just(Policy::CallerRuns), Just(Policy::Discard), Just(Policy::DiscardOldest)];
    (0..4usize, 0..3usize, prop_oneof![Just(None), (0..4usize).prop_map(Some)], any::<bool>(), policy).prop_map(
        |(core, more, queue_limit, ends_at_once, policy)| Rules {
            core,
            max: (core + more).max(1),
            queue_limit: if policy == Policy::DiscardOldest && queue_limit == Some(0) { Some(1) } else { queue_limit },
            keep_alive: if ends_at_once { Duration::ZERO } else { LONG },
            policy,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each step submits a task (`None`) or ends one of the running ones.
    #[test]
    fn it_follows_the_rules(rules in any_rules(), steps in prop::collection::vec(prop::option::of(0..8usize), 1..60)) {
        let (pool, board) = gated(rules.clone());
        let mut model = Model { rules, now: Snapshot::default(), running: BTreeSet::new(), queue: VecDeque::new() };
        for (id, step) in steps.iter().enumerate() {
            match step {
                Some(choice) if !model.running.is_empty() => {
                    let id = *model.running.iter().nth(choice % model.running.len()).unwrap();
                    model.finish(id);
                    board.release(id);
                }
                _ => prop_assert_eq!(pool.execute(id as u32), model.submit(id as u32)),
            }
            expect_rest(&pool, &board, model.state(), &model.running, &format!("{step:?}"));
        }
    }
}

// ----------------------------------------------------------------------------------------------------- one at a time

#[test]
fn threads_beyond_the_core_end_when_idle_and_the_core_stays() {
    let keep_alive = Duration::from_millis(20);
    let (pool, board) = gated(Rules { core: 2, max: 5, queue_limit: Some(0), keep_alive, policy: Policy::Abort });
    for id in 0..5 {
        assert_eq!(pool.execute(id), Submitted::Accepted);
    }
    (0..5).for_each(|id| board.release(id));
    let rest = Snapshot { threads: 2, active: 0, largest: 5, queued: 0, completed: 5, rejected: 0 };
    expect_rest(&pool, &board, rest, &BTreeSet::new(), "all released");
    std::thread::sleep(4 * keep_alive);
    assert_eq!(pool.snapshot().threads, 2);
}

#[test]
fn a_cached_pool_serves_the_next_task_with_the_thread_that_came_free_last() {
    let served_by = Arc::new(Mutex::new(Vec::new()));
    let (record, board) = (Arc::clone(&served_by), Arc::new(Board::default()));
    let in_pool = Arc::clone(&board);
    let pool = Pool::new(Rules::cached(LONG), "test", move |_, id| {
        record.lock().unwrap().push((id, std::thread::current().name().unwrap().to_owned()));
        in_pool.run(id);
    });
    let rest = |threads, active: &[u32], completed| {
        let running: BTreeSet<u32> = active.iter().copied().collect();
        let state = Snapshot { threads, active: running.len(), largest: 2, queued: 0, completed, rejected: 0 };
        expect_rest(&pool, &board, state, &running, "a step");
    };
    pool.execute(1);
    pool.execute(2);
    rest(2, &[1, 2], 0);
    board.release(1);
    rest(2, &[2], 1);
    board.release(2);
    rest(2, &[], 2);
    pool.execute(3);
    rest(2, &[3], 2);
    let served_by = served_by.lock().unwrap();
    let thread_of = |id| &served_by.iter().find(|(task, _)| *task == id).unwrap().1;
    assert_eq!(thread_of(3), thread_of(2));
    board.release(3);
}

#[test]
fn no_task_is_lost_between_many_submitters_and_ending_threads() {
    let keep_alive = Duration::from_micros(50);
    let sum = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let in_pool = Arc::clone(&sum);
    let rules = Rules { core: 0, max: 4, queue_limit: Some(3), keep_alive, policy: Policy::CallerRuns };
    let pool = Pool::new(rules, "test", move |_, n: u64| {
        in_pool.fetch_add(n, Relaxed);
    });
    let by_callers = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 1..=2000 {
                    if let Submitted::RunInCaller(n) = pool.execute(n) {
                        by_callers.fetch_add(n, Relaxed);
                    }
                    if n % 100 == 0 {
                        std::thread::sleep(keep_alive);
                    }
                }
            });
        }
    });
    let give_up = Instant::now() + Duration::from_secs(10);
    while pool.snapshot().threads > 0 {
        assert!(Instant::now() < give_up, "{:?}", pool.snapshot());
        std::thread::sleep(Duration::from_millis(1));
    }
    let end = pool.snapshot();
    assert_eq!((end.completed + end.rejected, end.queued, end.active), (8000, 0, 0));
    assert_eq!(sum.load(Relaxed) + by_callers.load(Relaxed), 4 * 2000 * 2001 / 2);
}
