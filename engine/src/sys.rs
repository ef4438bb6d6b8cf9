//! System calls that std does not offer, each wrapped once: sockets with a backlog, polling, epoll, exact sleeping,
//! limits and signals. No policy here: callers decide what an error means. `load::sys` has those that only the load
//! engine calls.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::now_ns;

/// The longest time for which `write_all` waits for a peer.
const WRITE_NS_MAX: u64 = 5_000_000_000; // arbitrary: a client that reads nothing for so long has gone

/// Turns the -1 of a system call into `errno`.
pub fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

// ---------------------------------------------------------------------------------------------------------- sockets

/// A listening TCP socket. `TCP_NODELAY` is set here because accepted sockets inherit it, which saves a call each.
///
/// Errors: those of socket, bind and listen, `AddrInUse` among them.
pub fn listen(host: IpAddr, port: u16, backlog: u32, share_port: bool) -> io::Result<OwnedFd> {
    let address = SocketAddr::new(host, port);
    let socket = tcp_socket(&address, 0)?;
    set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if share_port {
        set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    bind(&socket, &address)?;
    // SAFETY: listen takes no pointers.
    checked(unsafe { libc::listen(socket.as_raw_fd(), backlog.min(i32::MAX as u32) as i32) })?;
    Ok(socket)
}

/// A TCP socket with `TCP_NODELAY` for addresses of this family; `flags`: SOCK_NONBLOCK, or 0.
pub fn tcp_socket(address: &SocketAddr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: socket takes no pointers; the descriptor is owned from here on.
    let socket = unsafe {
        OwnedFd::from_raw_fd(checked(libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0))?)
    };
    set_option(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    Ok(socket)
}

pub fn bind(socket: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    let (address, length) = raw_address(address);
    // SAFETY: `address` holds a socket address of `length` bytes.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(())
}

pub fn set_option(fd: RawFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value outlives the call and its size is passed.
    checked(unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) })?;
    Ok(())
}

/// Reads an option of the level SOL_SOCKET; returns the number of bytes written.
pub fn socket_option(fd: RawFd, option: libc::c_int, value: &mut [u32]) -> io::Result<usize> {
    let mut length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the slice, and any bytes are a number.
    checked(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, option, value.as_mut_ptr().cast(), &raw mut length) })?;
    Ok(length as usize)
}

/// A socket address as the kernel takes it, and its length.
pub fn raw_address(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: `sockaddr_storage` is plain data for which all zeroes is a valid value.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is large and aligned enough for every address family.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

/// The address a listening socket is bound to (the port that the kernel chose for port 0).
pub fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    std::net::TcpListener::from(socket.try_clone()?).local_addr()
}

/// Makes `accept` on this socket return `WouldBlock` instead of blocking.
pub fn set_nonblocking(socket: &OwnedFd) -> io::Result<()> {
    std::net::TcpListener::from(socket.try_clone()?).set_nonblocking(true)
}

/// Accepts the next connection; `nonblocking`: the mode of the connection. Skips connections that were reset while they
/// waited.
pub fn accept(listener: &OwnedFd, nonblocking: bool) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    loop {
        // SAFETY: null address pointers are allowed; the returned descriptor is owned by nobody else.
        let result = unsafe {
            checked(libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags))
                .map(|fd| OwnedFd::from_raw_fd(fd))
        };
        match result {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => continue,
            other => return other,
        }
    }
}

/// Repeats a `read` or `send` that a signal interrupts.
#[inline]
fn transfer(call: impl Fn() -> isize) -> io::Result<usize> {
    loop {
        let n = call();
        if n >= 0 {
            return Ok(n as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Calls `read` once. Returns 0 if the peer has closed its side.
pub fn read(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (start, length) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the buffer is valid for its length.
    transfer(|| unsafe { libc::read(fd, start.cast(), length) })
}

/// Calls `send` once, without ever raising SIGPIPE.
pub fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are valid for their length.
    transfer(|| unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) })
}

/// Waits until the socket is readable; false at the timeout.
pub fn wait_readable(socket: &OwnedFd, timeout_ns: u64) -> bool {
    poll(&mut [readable(socket.as_raw_fd())], Some(timeout_ns)) > 0
}

/// Closes the writing side of a connection.
pub fn shut_down_writing(fd: RawFd) {
    // SAFETY: shutdown takes no pointers. It fails only if the peer has gone, which is no problem.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Writes everything in one `send`. Errors: `WouldBlock` if the socket is nonblocking and its peer does not read.
pub fn write_at_once(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    if write(fd, bytes)? < bytes.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
}

/// Writes everything, even to a nonblocking socket. Errors: the peer reads nothing for `WRITE_NS_MAX`.
pub fn write_all(fd: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let writable = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
                if poll(&mut [writable], Some(WRITE_NS_MAX)) == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

// ----------------------------------------------------------------------------------------------------------- events

/// A descriptor for `poll`, to be watched for input; -1: none.
pub fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until a descriptor is ready, at most `timeout_ns` (None: without limit). Returns the number of ready
/// descriptors; 0 at the timeout; -1 after a signal.
pub fn poll(polled: &mut [libc::pollfd], timeout_ns: Option<u64>) -> libc::c_int {
    let timeout = timeout_ns.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: slice and timespec are valid during the call; no signal mask is passed.
    unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout, std::ptr::null()) }
}

/// An epoll instance. Its user decides on the `data` of each registration.
pub struct Epoll {
    fd: OwnedFd,
    /// True once `epoll_pwait2` was refused.
    refused: AtomicBool,
}

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointers; the descriptor is owned from here on.
        let fd = unsafe { OwnedFd::from_raw_fd(checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Epoll { fd, refused: AtomicBool::new(false) })
    }

    pub fn add(&self, fd: RawFd, events: libc::c_int, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    pub fn modify(&self, fd: RawFd, events: libc::c_int, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, data)
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, events: libc::c_int, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: the event is valid during the call.
        checked(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &mut event) }).map(|_| ())
    }

    /// Waits for events, at most `timeout_ns` (None: without limit). Returns the number of `events` filled, which is 0
    /// also after a signal. The timeout is exact to the timer slack, by `epoll_pwait2`; on kernels before 5.11, and in
    /// containers whose seccomp filter does not know that call (EPERM), by `poll`, since `epoll_wait` counts milliseconds.
    #[inline]
    pub fn wait(&self, events: &mut [libc::epoll_event], timeout_ns: Option<u64>) -> usize {
        let (fd, start, length) = (self.fd.as_raw_fd(), events.as_mut_ptr(), events.len() as libc::c_int);
        if !self.refused.load(Ordering::Relaxed) {
            let timeout = timeout_ns.map(timespec);
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let no_mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: slice and timespec are valid during the call; no signal mask is passed.
            let n = unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, start, length, timeout, no_mask, 0usize) };
            if n >= 0 || !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
                return n.max(0) as usize;
            }
            self.refused.store(true, Ordering::Relaxed);
        }
        poll(&mut [readable(fd)], timeout_ns);
        // SAFETY: the event slice is valid for its length.
        unsafe { libc::epoll_wait(fd, start, length, 0) }.max(0) as usize
    }
}

/// A descriptor that wakes an epoll loop from another thread.
pub struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Bell> {
        // SAFETY: takes no pointers; the descriptor is owned from here on.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(checked(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC))?) }))
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn ring(&self) {
        let one = 1u64;
        // A full counter (EAGAIN) means that the bell is ringing already.
        // SAFETY: eight bytes are valid at `one`.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    pub fn silence(&self) {
        // EAGAIN means that the bell was not ringing.
        let _ = read(self.fd(), &mut [0u8; 8]);
    }
}

// ------------------------------------------------------------------------------------------------------------- time

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as libc::c_long }
}

/// Sleeps until a CLOCK_MONOTONIC instant. Wakes late by the machine's wake-up time, never early.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = timespec(deadline_ns);
    // SAFETY: `deadline` is valid during the call; with TIMER_ABSTIME no remainder is written.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &deadline, std::ptr::null_mut()) }
        == libc::EINTR
    {}
}

/// Reduces the timer slack of the calling thread, and of all threads that it starts, from the usual 50 us to 1 ns.
pub fn least_timer_slack() {
    // SAFETY: this prctl takes an integer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0u64, 0u64, 0u64) };
}

// ---------------------------------------------------------------------------------------------------------- process

/// The soft and the hard limit on this process's descriptors.
pub fn descriptor_limits() -> (u64, u64) {
    let mut limits = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: the structure is valid during the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    (limits.rlim_cur, limits.rlim_max)
}

/// Sets the soft limit on this process's descriptors. Errors: the limit exceeds the hard one.
pub fn limit_descriptors(limit: u64) -> io::Result<()> {
    let limits = libc::rlimit { rlim_cur: limit, rlim_max: descriptor_limits().1 };
    // SAFETY: the structure is valid during the call.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) })?;
    Ok(())
}

/// Raises the soft limit on descriptors to the hard one. Returns the soft limits before and after.
pub fn raise_descriptor_limit() -> (u64, u64) {
    let (before, most) = descriptor_limits();
    (before, if limit_descriptors(most).is_ok() { most } else { before })
}

/// The set of these CPUs; None (no restriction) for an empty list.
pub fn cpu_set(cpus: &[u32]) -> Result<Option<libc::cpu_set_t>, String> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as u32 {
            return Err(format!("there is no CPU {cpu}"));
        }
        // SAFETY: the index is within the set.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    Ok((!cpus.is_empty()).then_some(set))
}

/// Binds the calling thread, and everything that it starts later, to these CPUs.
pub fn run_on(cpus: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: a valid set of the given size.
    checked(unsafe { libc::sched_setaffinity(0, size_of_val(cpus), cpus) })?;
    Ok(())
}

/// Words of a set of CPUs, a bit for each: room for as many as Linux can have.
pub const CPU_WORDS: usize = 128;

/// The CPUs that a thread may run on; None if it has gone, or if the kernel does not tell.
pub fn affinity(tid: i32) -> Option<[u64; CPU_WORDS]> {
    let mut cpus = [0; CPU_WORDS];
    // SAFETY: the kernel writes no more than the given size.
    let written = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&cpus), cpus.as_mut_ptr()) };
    (written > 0).then_some(cpus)
}

/// Maps memory, writes to each of its 4 KiB pages (huge pages are turned off), and unmaps it: one page fault per page.
/// Does nothing if the system has no memory for it.
pub fn touch_memory(bytes: usize) {
    const PAGE_BYTES: usize = 4096;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice, written within its length and unmapped once.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return;
        }
        libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
        for offset in (0..bytes).step_by(PAGE_BYTES) {
            start.cast::<u8>().add(offset).write_volatile(1);
        }
        libc::munmap(start, bytes);
    }
}

/// Makes the process ignore a signal.
pub fn ignore(signal: libc::c_int) {
    // SAFETY: SIG_IGN is a valid disposition for any signal that may be ignored.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Blocks the signals in the calling thread and in all threads that it starts later; returns their set.
pub fn block_signals(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: a sigset_t is plain memory, emptied before use; the calls write to it alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

/// Signals that are blocked in every thread and taken by one.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks the signals, as `block_signals` does.
    pub fn block(signals: &[libc::c_int]) -> Signals {
        Signals(block_signals(signals))
    }

    /// Waits for one of the signals, at most `timeout_ns`. Returns the signal, or `None` at the timeout.
    pub fn wait(&self, timeout_ns: Option<u64>) -> Option<libc::c_int> {
        let deadline_ns = timeout_ns.map(|ns| now_ns() + ns);
        loop {
            let left = deadline_ns.map(|deadline| timespec(deadline.saturating_sub(now_ns())));
            let timeout = left.as_ref().map_or(std::ptr::null(), |left| left as *const _);
            // SAFETY: set and timeout are valid during the call; a null siginfo is allowed.
            let signal = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), timeout) };
            if signal > 0 {
                return Some(signal);
            }
            if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_epoll_pwait2_is_replaced_by_a_wait_that_is_as_exact() {
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let (load, equals, end) =
            (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
        let step = |code: u32, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        // The number of the call comes first in what the filter sees.
        let mut filter = [
            step(load, 0, 0),
            step(equals, libc::SYS_epoll_pwait2 as u32, 1),
            step(end, refuse, 0),
            step(end, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let wait = move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: the program is valid during the call; it binds this thread alone.
            unsafe {
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
            }
            let (epoll, bell) = (Epoll::new().unwrap(), Bell::new().unwrap());
            epoll.add(bell.fd(), libc::EPOLLIN, 7).unwrap();
            let mut events = [libc::epoll_event { events: 0, u64: 0 }];
            // Of many waits, since this thread may be held up in some of them.
            let shortest_ns = (0..50)
                .map(|_| {
                    let begun_ns = now_ns();
                    assert_eq!(epoll.wait(&mut events, Some(100_000)), 0);
                    now_ns() - begun_ns
                })
                .min();
            bell.ring();
            (shortest_ns.unwrap(), epoll.wait(&mut events, Some(0)), epoll.wait(&mut events, None))
        };
        let (shortest_ns, at_once, without_limit) = std::thread::spawn(wait).join().unwrap();
        assert_eq!((at_once, without_limit), (1, 1));
        assert!((100_000..900_000).contains(&shortest_ns), "{shortest_ns} ns");
    }
}
