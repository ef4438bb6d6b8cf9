//! System calls that only the load engine makes, behind safe functions. Errors are raw errno values, because the event
//! loop decides by them. No policy here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

pub use crate::sys::{Bell, Epoll, least_timer_slack, sleep_until};
use crate::sys::{bind, checked, poll, raw_address, set_option, socket_option, tcp_socket};

pub type Errno = i32;

fn errno() -> Errno {
    code(io::Error::last_os_error())
}

pub fn code(error: io::Error) -> Errno {
    error.raw_os_error().unwrap_or(0)
}

/// A non-blocking TCP socket that has begun to connect.
///
/// # Errors
/// The errno of the first call that failed; EINPROGRESS is success.
pub fn connect(to: &SocketAddr, from: Option<IpAddr>) -> Result<i32, Errno> {
    begin_connect(to, from).map(IntoRawFd::into_raw_fd).map_err(code)
}

fn begin_connect(to: &SocketAddr, from: Option<IpAddr>) -> io::Result<OwnedFd> {
    let socket = tcp_socket(to, libc::SOCK_NONBLOCK)?;
    if let Some(source) = from {
        // The port is then chosen at connect() time, when only the whole tuple must be free.
        set_option(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        bind(&socket, &SocketAddr::new(source, 0))?;
    }
    let (address, length) = raw_address(to);
    // SAFETY: `address` holds a socket address of `length` bytes.
    match checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) }) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Err(error),
        _ => Ok(socket),
    }
}

/// True once an attempt to connect is over, whether the connection stands or not.
pub fn connect_is_over(fd: i32) -> bool {
    poll(&mut [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }], Some(0)) > 0
}

/// Returns the pending error of a socket (0: none), and clears it.
pub fn socket_error(fd: i32) -> Errno {
    let mut pending = [0u32];
    socket_option(fd, libc::SO_ERROR, &mut pending).map_or_else(code, |_| pending[0] as Errno)
}

/// The bytes written to a TCP socket whose arrival the peer's kernel has not confirmed (`SIOCOUTQ`, tcp(7)); 0 if it is
/// not known.
pub fn unacknowledged(fd: i32) -> i32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the number is valid during the call.
    match unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) } {
        0 => bytes,
        _ => 0,
    }
}

/// Sends the acknowledgement that the kernel holds back for a connection, if there is one. If it cannot be sent early,
/// the kernel sends it later.
pub fn acknowledge(fd: i32) {
    let _ = set_option(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1);
}

#[inline]
pub fn read(fd: i32, into: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the buffer is writable for its whole length.
    let count = unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), 0) };
    if count < 0 { Err(errno()) } else { Ok(count as usize) }
}

/// Asks the kernel to time-stamp arrivals on this socket, for `read_stamped`.
pub fn stamp_arrivals(fd: i32) -> Result<(), Errno> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).map_err(code)
}

/// Reads, and returns the number of bytes and the instant at which the last of them arrived in the kernel (wall clock,
/// ns), if known.
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

pub type Event = libc::epoll_event;

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
pub const PEER_CLOSED: u32 = libc::EPOLLRDHUP as u32;
pub const FAILED: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

/// Sockets are registered once, edge-triggered and for all events, and never changed again.
pub const EVERYTHING: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;

/// The number of open descriptors of this process.
pub fn descriptors_open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map(|entries| entries.count() as u64).unwrap_or(16)
}

/// Asks the kernel for SIGHUP when the thread that started this process ends.
pub fn hang_up_with_parent() {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGHUP as u64, 0u64, 0u64, 0u64) };
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
