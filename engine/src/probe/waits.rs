//! Finds the cause of a thread's blocking, from its current system call (`/proc/PID/task/TID/syscall`) or, if that is
//! not permitted, from its wait channel, the kernel function in which it sleeps. `threads` decides when a thread is
//! read.

use crate::contract::events::WaitKind;

/// The text of a thread's `syscall` file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call {
    /// It is on a CPU or waits for one.
    Running,
    /// It sleeps outside of any system call: nearly always a page fault.
    Outside,
    /// Number and first two arguments.
    In(i64, [u64; 2]),
}

/// Parses the text of a `syscall` file. None for an invalid text (a kernel without the file, a thread that has gone).
pub fn parse_call(text: &[u8]) -> Option<Call> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number = match words.next()? {
        "running" => return Some(Call::Running),
        "-1" => return Some(Call::Outside),
        number => number.parse().ok()?,
    };
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    Some(Call::In(number, [argument()?, argument()?]))
}

/// Properties of the thread's process, used only if the call alone does not show the cause.
pub trait Surroundings {
    /// True if a descriptor is a socket.
    fn is_socket(&self, descriptor: i32) -> bool;
    /// The first descriptor in a list for `poll` at this address.
    fn first_polled(&self, address: u64) -> Option<i32>;
}

/// The cause by system call; None for a thread that is not blocked. `state`: the kernel's letter.
pub fn kind_of_call(call: Call, state: u8, process: &impl Surroundings) -> Option<WaitKind> {
    let (number, arguments) = match call {
        Call::Running => return None,
        Call::Outside => return Some(WaitKind::Memory),
        Call::In(number, arguments) => (number, arguments),
    };
    let kind = match number {
        // `fcntl` waits only for the lock of a file.
        libc::SYS_futex | SYS_FUTEX_WAITV | libc::SYS_flock | libc::SYS_fcntl => WaitKind::Lock,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => WaitKind::Sleep,
        libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg | libc::SYS_accept | libc::SYS_accept4 => {
            WaitKind::Socket
        }
        libc::SYS_connect | libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => WaitKind::Socket,
        libc::SYS_epoll_pwait | SYS_EPOLL_PWAIT2 | libc::SYS_io_uring_enter => WaitKind::Poll,
        // Polling no descriptor is an old way to sleep.
        libc::SYS_ppoll => kind_of_poll(arguments, process),
        libc::SYS_pselect6 if arguments[0] == 0 => WaitKind::Sleep,
        libc::SYS_pselect6 => WaitKind::Poll,
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mremap | libc::SYS_mprotect | libc::SYS_madvise => {
            WaitKind::Memory
        }
        libc::SYS_brk => WaitKind::Memory,
        libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev
            if process.is_socket(arguments[0] as i32) =>
        {
            WaitKind::Socket
        }
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_pread64 | libc::SYS_pwrite64 => WaitKind::Disk,
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_wait4 | libc::SYS_waitid => WaitKind::Other,
        number => kind_of_old_call(number, arguments, process).unwrap_or(match state {
            b'D' => WaitKind::Disk,
            _ => WaitKind::Other,
        }),
    };
    Some(kind)
}

// This constant is missing in some versions of the libc crate; the number is the same on every architecture.
const SYS_EPOLL_PWAIT2: i64 = 441;
const SYS_FUTEX_WAITV: i64 = 449;

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
fn kind_of_old_call(number: i64, arguments: [u64; 2], process: &impl Surroundings) -> Option<WaitKind> {
    match number {
        libc::SYS_poll => Some(kind_of_poll(arguments, process)),
        libc::SYS_select if arguments[0] == 0 => Some(WaitKind::Sleep),
        libc::SYS_epoll_wait | libc::SYS_select => Some(WaitKind::Poll),
        libc::SYS_vfork | libc::SYS_fork => Some(WaitKind::Other),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kind_of_old_call(_number: i64, _arguments: [u64; 2], _process: &impl Surroundings) -> Option<WaitKind> {
    None
}

/// Polling one socket is how clients with a timeout read from it (JDBC drivers, libpq, Python).
fn kind_of_poll([address, count]: [u64; 2], process: &impl Surroundings) -> WaitKind {
    match count {
        0 => WaitKind::Sleep,
        1 if process.first_polled(address).is_some_and(|fd| process.is_socket(fd)) => WaitKind::Socket,
        _ => WaitKind::Poll,
    }
}

/// The cause by kernel function. Names differ between kernels, so lasting parts of them are matched. None if the
/// channel is empty (unreadable, or the thread runs).
pub fn kind_of_channel(channel: &[u8], state: u8) -> Option<WaitKind> {
    // TCP sleeps in `wait_woken`; hardly anything else sleeps there for long.
    const PARTS: [(WaitKind, &[&str]); 6] = [
        (WaitKind::Lock, &["futex", "lock_inode", "lock_file_wait", "fcntl_setlk"]),
        (WaitKind::Sleep, &["nanosleep"]),
        (
            WaitKind::Poll,
            &["epoll", "ep_poll", "poll_schedule", "do_poll", "do_sys_poll", "do_select", "io_cqring_wait"],
        ),
        (WaitKind::Socket, &["inet_", "tcp_", "unix_", "skb_", "sk_wait", "sk_stream", "wait_woken"]),
        (WaitKind::Memory, &["userfault", "rwsem_", "swap"]),
        (WaitKind::Other, &["do_wait", "pipe_", "sigtimedwait", "sigsuspend", "vfork"]),
    ];
    let name = std::str::from_utf8(channel).ok().filter(|name| !name.is_empty())?;
    let known = PARTS.iter().find(|(_, parts)| parts.iter().any(|part| name.contains(part))).map(|&(kind, _)| kind);
    Some(known.unwrap_or(if state == b'D' { WaitKind::Disk } else { WaitKind::Other }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose only socket is descriptor 3, the first in the list at address 0x30.
    struct Process;

    impl Surroundings for Process {
        fn is_socket(&self, descriptor: i32) -> bool {
            descriptor == 3
        }

        fn first_polled(&self, address: u64) -> Option<i32> {
            (address != 0).then_some(if address == 0x30 { 3 } else { 8 })
        }
    }

    fn kind(text: &[u8]) -> Option<WaitKind> {
        kind_of_call(parse_call(text).unwrap(), b'S', &Process)
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_system_call_tells_what_is_waited_for() {
        for (text, expected) in [
            (&b"202 0x55f132c73360 0x189 0x0 0x0 0x0 0xffffffff 0x7f90b624c950 0x7f90b78a3f16\n"[..], WaitKind::Lock),
            (b"73 0x3 0x2 0x0 0x0 0x0 0x0 0x7ffcbc187490 0x7f90b78ed545\n", WaitKind::Lock),
            (b"72 0x3 0x7 0x7ffcbc1874d0 0x0 0x0 0x0 0x7ffcbc187490 0x7f90b78ed545\n", WaitKind::Lock),
            (b"230 0x1 0x1 0x7ffcbc1874d0 0x0 0x0 0x0 0x7ffcbc187490 0x7f90b78ed545\n", WaitKind::Sleep),
            (b"45 0x3 0x7f90b73031a0 0x1 0x0 0x0 0x0 0x7f90b6a4da10 0x7f90b7928974\n", WaitKind::Socket),
            (b"288 0x5 0x7f90b5a47980 0x7f90b5a47974 0x80000 0x0 0x0 0x7f90b5a47920 0x7f\n", WaitKind::Socket),
            (b"0 0x3 0x7f90b7334350 0x1 0x0 0x0 0x0 0x7f909fffea30 0x7f90b79162ec\n", WaitKind::Socket),
            (b"0 0x8 0x7f90b7303e00 0x1 0x0 0x0 0x0 0x7f909fffea30 0x7f90b79162ec\n", WaitKind::Other),
            (b"232 0x6 0x7f90a4000ba0 0x3ff 0xffffffff 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Poll),
            (b"7 0x7f90a4000ba0 0x2 0xffffffff 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Poll),
            (b"7 0x30 0x1 0x3e8 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Socket),
            (b"271 0x30 0x1 0x0 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Socket),
            (b"7 0x40 0x1 0x3e8 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Poll),
            (b"7 0x30 0x2 0x3e8 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Poll),
            (b"7 0x0 0x0 0x3e8 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Sleep),
            (b"270 0x0 0x0 0x0 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Sleep),
            (b"11 0x7f90a4000000 0x100000 0x0 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Memory),
            (b"-1 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Memory),
            (b"61 0xffffffff 0x7ffd 0x0 0x0 0x0 0x0 0x7f90b5242bc0 0x7f90b7926f36\n", WaitKind::Other),
        ] {
            assert_eq!(kind(text), Some(expected), "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(kind(b"running\n"), None);
    }

    #[test]
    fn an_uninterruptible_file_call_waits_for_a_disk() {
        let read = Call::In(libc::SYS_read, [9, 0]);
        assert_eq!(kind_of_call(read, b'D', &Process), Some(WaitKind::Disk));
        assert_eq!(kind_of_call(Call::In(libc::SYS_fsync, [9, 0]), b'S', &Process), Some(WaitKind::Disk));
        let lock = Call::In(libc::SYS_futex, [9, 0]);
        assert_eq!(kind_of_call(lock, b'D', &Process), Some(WaitKind::Lock));
    }

    #[test]
    fn what_is_no_call_is_not_taken_for_one() {
        for text in [&b""[..], b"0\n", b"5 0x1\n", b"x 0x1 0x2\n", b"\xff\xfe"] {
            assert_eq!(parse_call(text), None);
        }
    }

    #[test]
    fn wait_channels_of_old_and_new_kernels_are_known() {
        for (channel, expected) in [
            ("futex_do_wait", WaitKind::Lock),
            ("futex_wait_queue_me", WaitKind::Lock),
            ("locks_lock_inode_wait", WaitKind::Lock),
            ("hrtimer_nanosleep", WaitKind::Sleep),
            ("do_epoll_wait", WaitKind::Poll),
            ("poll_schedule_timeout.constprop.0", WaitKind::Poll),
            ("inet_csk_accept", WaitKind::Socket),
            ("unix_stream_read_generic", WaitKind::Socket),
            ("wait_woken", WaitKind::Socket),
            ("anon_pipe_read", WaitKind::Other),
            ("do_wait", WaitKind::Other),
            ("something_new", WaitKind::Other),
        ] {
            assert_eq!(kind_of_channel(channel.as_bytes(), b'S'), Some(expected), "{channel}");
        }
        assert_eq!(kind_of_channel(b"jbd2_log_wait_commit", b'D'), Some(WaitKind::Disk));
        assert_eq!(kind_of_channel(b"rwsem_down_read_slowpath", b'D'), Some(WaitKind::Memory));
        assert_eq!(kind_of_channel(b"", b'S'), None);
    }
}
