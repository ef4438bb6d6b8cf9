use super::*;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

/// Starts threads that wait until the sender is dropped. All have started and have their names when this returns.
fn waiting_threads(count: usize, name: &str) -> (mpsc::Sender<()>, Vec<thread::JoinHandle<()>>) {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Arc::new(Mutex::new(receiver));
    let begun = Arc::new(Barrier::new(count + 1));
    let start = |i| {
        let (receiver, begun) = (receiver.clone(), begun.clone());
        let wait = move || {
            begun.wait();
            drop(receiver.lock().map(|receiver| receiver.recv()));
        };
        thread::Builder::new().name(format!("{name}-{i}")).spawn(wait).expect("starts")
    };
    let threads = (0..count).map(start).collect();
    begun.wait();
    (sender, threads)
}

#[test]
fn a_few_of_many_new_threads_stand_for_all_and_those_that_stay_are_met_at_the_next_reading() {
    let mut process = Process::open(std::process::id() as i32).expect("of ourselves");
    let (sender, threads) = waiting_threads(100, "newcomer");
    let mut table = ThreadTable::default();
    let mut counts = Vec::new();
    for _ in 0..2 {
        process.list_threads();
        table.scan(&[&process], 20);
        let pools = table.tell_pools();
        let pool = pools.iter().find(|pool| pool.pool == "newcomer").expect("met");
        let met = table.threads.values().filter(|thread| thread.name.starts_with(b"newcomer")).count();
        counts.push((pool.threads_now, pool.states_now.values().sum::<u32>(), met));
    }
    drop(sender);
    threads.into_iter().for_each(|thread| thread.join().expect("ends"));
    let (threads_now, states, met) = counts[0];
    assert!(met <= 20 && threads_now == states, "{counts:?}");
    assert!((80..=120).contains(&threads_now), "{counts:?}");
    assert_eq!(counts[1], (100, 100, 100));
}

#[test]
fn a_thread_that_was_left_out_waited_no_longer_than_since_the_scan_before() {
    let mut process = Process::open(std::process::id() as i32).expect("of ourselves");
    let (sender, threads) = waiting_threads(100, "leftout");
    thread::sleep(std::time::Duration::from_millis(300));
    let mut table = ThreadTable::default();
    let mut blocked_ns = Vec::new();
    for _ in 0..2 {
        process.list_threads();
        let at_ns = clock_ns(libc::CLOCK_BOOTTIME).expect("a clock");
        table.scan(&[&process], 20);
        let pools = table.tell_pools();
        blocked_ns.push((at_ns, pools.iter().find(|pool| pool.pool == "leftout").expect("met").blocked_ns));
    }
    drop(sender);
    threads.into_iter().for_each(|thread| thread.join().expect("ends"));
    let (passed_ns, gained_ns) = (blocked_ns[1].0 - blocked_ns[0].0, blocked_ns[1].1 - blocked_ns[0].1);
    // Each of the first twenty waited slightly longer than the time between the two scans: by a tick and the scan
    // itself.
    assert!(gained_ns <= 100 * (2 * passed_ns + 50_000_000), "{gained_ns} in {passed_ns}");
}

#[test]
fn pools_are_names_without_their_numbers() {
    for (name, pool) in [
        ("pool-1-thread-12", "pool-1-thread"),
        ("vert.x-eventloo", "vert.x-eventloo"),
        ("GC Thread#0", "GC Thread"),
        ("worker 3", "worker"),
        ("pool-10-thread-", "pool-10-thread"),
        ("java", "java"),
        ("C2 Com..hread4", "C2 Com..d"),
        ("http-n..exec-1", "http-n..c"),
        ("http-n..xec-12", "http-n..c"),
        ("http-n..Poller", "http-n..r"),
        ("a..b", "a..b"),
        ("Thread-7 (proce", "Thread"),
        ("Thread-12 (proc", "Thread"),
        ("Thread-123456 (", "Thread"),
        ("reader (idle)", "reader (idle)"),
        ("42", "42"),
        ("12_scheduler", "scheduler"),
        ("2_dirty_cpu_sch", "dirty_cpu_sch"),
        ("4_2", "4_2"),
    ] {
        assert_eq!(*pool_name(name.as_bytes()), *pool.as_bytes(), "{name}");
    }
}

#[test]
fn the_threads_of_a_user_in_hundreds_of_groups_are_read() {
    use std::os::unix::process::CommandExt;
    let groups: Vec<libc::gid_t> = (1_000_000_000..1_000_000_300).collect();
    let mut command = std::process::Command::new("sleep");
    // SAFETY: a plain system call between fork and exec.
    unsafe {
        command.arg("600").pre_exec(move || match libc::setgroups(groups.len(), groups.as_ptr()) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let Ok(mut child) = command.spawn() else { return }; // takes root
    let mut process = Process::open(child.id() as i32).expect("just started");
    let mut table = ThreadTable::default();
    process.list_threads();
    table.scan(&[&process], 20);
    let pools = table.tell_pools();
    child.kill().expect("lives");
    child.wait().expect("is ours");
    assert_eq!(pools.iter().map(|pool| pool.threads_now).sum::<u32>(), 1);
}
