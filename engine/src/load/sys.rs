//! The system calls of the load engine behind safe functions: sockets, epoll, eventfd, limits, timer slack, CPU
//! affinity. Errors leave as raw errno values, because the event loop decides by them. No policy here.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::sys::raw_address;
pub use crate::sys::{block_signals, least_timer_slack, sleep_until};

pub type Errno = i32;

fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A non-blocking TCP socket that has begun to connect.
///
/// # Errors
/// The errno of the first call that failed; EINPROGRESS is success.
pub fn connect(to: &SocketAddr, from: Option<IpAddr>) -> Result<i32, Errno> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(errno());
    }
    begin_connect(fd, to, from).map(|()| fd).inspect_err(|_| close(fd))
}

fn begin_connect(fd: i32, to: &SocketAddr, from: Option<IpAddr>) -> Result<(), Errno> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    if let Some(source) = from {
        // The port is then chosen at connect() time, where only the whole tuple must be free.
        set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        let (address, length) = raw_address(&SocketAddr::new(source, 0));
        // SAFETY: `address` holds a socket address of `length` bytes.
        if unsafe { libc::bind(fd, (&raw const address).cast(), length) } < 0 {
            return Err(errno());
        }
    }
    let (address, length) = raw_address(to);
    // SAFETY: as above.
    if unsafe { libc::connect(fd, (&raw const address).cast(), length) } < 0 {
        let code = errno();
        if code != libc::EINPROGRESS && code != libc::EINTR {
            return Err(code);
        }
    }
    Ok(())
}

fn set_option(fd: i32, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    // SAFETY: the value lives through the call and its size is given.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size_of::<i32>() as u32) };
    if done < 0 { Err(errno()) } else { Ok(()) }
}

/// The pending error of a socket (0: none), and clears it.
pub fn socket_error(fd: i32) -> Errno {
    let mut code = 0i32;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: both pointers are to live values of the sizes given.
    let done =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut code).cast(), &raw mut length) };
    if done < 0 { errno() } else { code }
}

#[inline]
pub fn read(fd: i32, into: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is writable for its whole length.
    let count = unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), 0) };
    if count < 0 { Err(errno()) } else { Ok(count as usize) }
}

/// Asks the kernel to stamp what arrives on this socket, for `read_stamped`.
pub fn stamp_arrivals(fd: i32) -> Result<(), Errno> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Reads, and tells when the last of these bytes arrived in the kernel (wall clock, ns), where the kernel says so.
pub fn read_stamped(fd: i32, into: &mut [u8]) -> Result<(usize, Option<u64>), Errno> {
    // Room for one control message with a timespec, aligned as its header must be.
    let mut control = [0u64; 8];
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: `msghdr` is plain data for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: every pointer in the message is to live memory of the length given.
    let count = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    if count < 0 {
        return Err(errno());
    }
    // SAFETY: the kernel filled in the control messages and their length.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let stamp = first.filter(|head| head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_TIMESTAMPNS);
    let stamp_ns = stamp.map(|head| {
        // SAFETY: a message of this type carries a timespec; the read needs no alignment.
        let time = unsafe { libc::CMSG_DATA(head).cast::<libc::timespec>().read_unaligned() };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    });
    Ok((count as usize, stamp_ns))
}

#[inline]
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is readable for its whole length.
    let count = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    if count < 0 { Err(errno()) } else { Ok(count as usize) }
}

pub fn close(fd: i32) {
    // SAFETY: the caller owns the descriptor.
    unsafe { libc::close(fd) };
}

/// An epoll instance; sockets are watched edge-triggered for everything, once, and never touched again.
pub struct Epoll {
    fd: i32,
}

pub type Event = libc::epoll_event;

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
pub const PEER_CLOSED: u32 = libc::EPOLLRDHUP as u32;
pub const FAILED: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl Epoll {
    pub fn new() -> Result<Epoll, Errno> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 { Err(errno()) } else { Ok(Epoll { fd }) }
    }

    pub fn add(&self, fd: i32, token: u64) -> Result<(), Errno> {
        let events = READABLE | WRITABLE | PEER_CLOSED | libc::EPOLLET as u32;
        self.control(fd, events, token)
    }

    /// Watches a descriptor for reading only, level-triggered.
    pub fn add_level(&self, fd: i32, token: u64) -> Result<(), Errno> {
        self.control(fd, READABLE, token)
    }

    fn control(&self, fd: i32, events: u32, token: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: the event lives through the call.
        let done = unsafe { libc::epoll_ctl(self.fd, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if done < 0 { Err(errno()) } else { Ok(()) }
    }

    /// Waits for events at most `wait_ns` and returns their number; an interrupted wait returns 0.
    pub fn wait(&self, events: &mut [Event], wait_ns: u64) -> usize {
        let time = libc::timespec {
            tv_sec: (wait_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (wait_ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the event buffer is writable for its whole length; time lives through the call; no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd,
                events.as_mut_ptr(),
                events.len() as i32,
                &raw const time,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if count >= 0 {
            return count as usize;
        }
        if errno() == libc::ENOSYS {
            return self.wait_ms(events, wait_ns.div_ceil(1_000_000));
        }
        0
    }

    /// Kernels before 5.11 have no epoll_pwait2.
    fn wait_ms(&self, events: &mut [Event], wait_ms: u64) -> usize {
        let wait_ms = wait_ms.min(i32::MAX as u64) as i32;
        // SAFETY: the event buffer is writable for its whole length.
        let count = unsafe { libc::epoll_wait(self.fd, events.as_mut_ptr(), events.len() as i32, wait_ms) };
        count.max(0) as usize
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        close(self.fd);
    }
}

/// Wakes an event loop from another thread.
pub struct Wake {
    fd: i32,
}

impl Wake {
    pub fn new() -> Result<Wake, Errno> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 { Err(errno()) } else { Ok(Wake { fd }) }
    }

    pub fn fd(&self) -> i32 {
        self.fd
    }

    pub fn wake(&self) {
        // SAFETY: eight readable bytes, as eventfd asks.
        unsafe { libc::write(self.fd, 1u64.to_ne_bytes().as_ptr().cast(), 8) };
    }

    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes.
        unsafe { libc::read(self.fd, count.as_mut_ptr().cast(), 8) };
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        close(self.fd);
    }
}

/// Descriptors open in this process now.
pub fn descriptors_open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map(|entries| entries.count() as u64).unwrap_or(16)
}

/// Binds the calling thread to these CPUs; no CPUs: leaves it free.
pub fn pin(cpus: &[u32]) -> Result<(), Errno> {
    if cpus.is_empty() {
        return Ok(());
    }
    // SAFETY: `cpu_set_t` is plain data for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu as usize >= libc::CPU_SETSIZE as usize {
            return Err(libc::EINVAL);
        }
        // SAFETY: the index is within the set.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: the set lives through the call and its size is given.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if done < 0 { Err(errno()) } else { Ok(()) }
}

/// Asks the kernel for SIGHUP when the thread that started this process ends.
pub fn hang_up_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGHUP as u64, 0u64, 0u64, 0u64) };
}

pub fn parent_id() -> i32 {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::getppid() }
}

/// Waits for the next of the blocked signals.
pub fn next_signal(set: &libc::sigset_t) -> i32 {
    let mut signal = 0;
    // SAFETY: both pointers are to live values.
    while unsafe { libc::sigwait(set, &raw mut signal) } != 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    signal
}

/// Starts loading the cache line at this address.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that a program can see, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
