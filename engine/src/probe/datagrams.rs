//! Sockets that read many datagrams per call, with the kernel's count of dropped ones. In: an address. Out: bytes,
//! uninterpreted.
//!
//! A UDP socket's buffer is made large; when it is full, the kernel drops datagrams and counts them. A Unix socket
//! drops nothing: its queue is short (`net.unix.max_dgram_qlen`), and when it is full the sender waits or is refused.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::sys::{set_option, socket_option};

/// The requested size; the kernel doubles it for its own book-keeping. Only waiting datagrams use memory.
const BUFFER_BYTES: libc::c_int = 32 << 20;
/// Enough for the largest UDP datagram; larger ones from a Unix socket are truncated.
const DATAGRAM_MAX: usize = 1 << 16;
/// The most that one system call reads.
const BATCH: usize = 64;
/// Slightly more than a power of two: at equal page offsets the buffers would share a few cache lines.
const STRIDE: usize = DATAGRAM_MAX + 1_536;

pub struct Socket {
    fd: OwnedFd,
    /// Size of the socket's buffer as the kernel counts it; 0 for a Unix socket, which has other limits.
    pub buffer_bytes: u64,
    /// The kernel's 32-bit counter when last read.
    dropped_seen: u32,
    dropped: u64,
    /// The file of a Unix socket, removed with the socket.
    file: Option<PathBuf>,
}

impl Socket {
    pub fn udp(address: SocketAddr) -> Result<Socket, String> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another process listens at udp {address}: choose another port, or end it (`ss -lunp` shows which it is)"
            ),
            _ => format!("cannot listen at udp {address}: {error}"),
        };
        let socket = UdpSocket::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let mut socket = Socket { fd: socket.into(), buffer_bytes: 0, dropped_seen: 0, dropped: 0, file: None };
        socket.buffer_bytes = enlarge_buffer(socket.fd());
        let told = drops(socket.fd());
        socket.dropped_seen = told.map_err(|error| format!("the kernel does not tell what it drops: {error}"))?;
        Ok(socket)
    }

    pub fn unix(path: &Path) -> Result<Socket, String> {
        let failed = |error: io::Error| format!("cannot listen at the Unix socket {}: {error}", path.display());
        let socket = match UnixDatagram::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_if_stale(path)?;
                UnixDatagram::bind(path)
            }
            bound => bound,
        };
        let socket = socket.map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let file = Some(path.to_owned());
        Ok(Socket { fd: socket.into(), buffer_bytes: 0, dropped_seen: 0, dropped: 0, file })
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Number of datagrams that the kernel has dropped since the socket was opened. Always up to date, unlike the
    /// control message `SO_RXQ_OVFL`: that one comes with a datagram, must be read from every datagram, and counts the
    /// drops up to the moment when this datagram was queued, so it never shows drops after the last datagram.
    pub fn dropped(&mut self) -> u64 {
        if self.file.is_none()
            && let Ok(now) = drops(self.fd())
        {
            self.dropped += u64::from(now.wrapping_sub(self.dropped_seen));
            self.dropped_seen = now;
        }
        self.dropped
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Fails if somebody has removed it already, which is fine.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Removes the file that a killed process left behind: a socket on which no process listens.
fn remove_if_stale(path: &Path) -> Result<(), String> {
    let refused = |why: &str| Err(format!("cannot listen at the Unix socket {}: {why}", path.display()));
    if !path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket()) {
        return refused("there is a file already that is no socket; choose another path");
    }
    let asked = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    match asked {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).or_else(|error| refused(&format!("a stale one is in the way: {error}")))
        }
        _ => refused("another process listens there; choose another path, or end it (`ss -lxp` shows which it is)"),
    }
}

/// Enlarges the socket's buffer. Returns the resulting size, which without privileges is limited by
/// `net.core.rmem_max`.
fn enlarge_buffer(fd: RawFd) -> u64 {
    let enlarge = |option| set_option(fd, libc::SOL_SOCKET, option, BUFFER_BYTES);
    let _ = enlarge(libc::SO_RCVBUFFORCE).or_else(|_| enlarge(libc::SO_RCVBUF));
    let mut bytes = [0u32];
    socket_option(fd, libc::SO_RCVBUF, &mut bytes).map_or(0, |_| bytes[0].into())
}

/// The kernel's counter of dropped datagrams (Linux 4.12).
fn drops(fd: RawFd) -> io::Result<u32> {
    /// SK_MEMINFO_DROPS of linux/sock_diag.h.
    const DROPS: usize = 8;
    let mut figures = [0u32; 16];
    match socket_option(fd, libc::SO_MEMINFO, &mut figures)? {
        length if length > DROPS * size_of::<u32>() => Ok(figures[DROPS]),
        _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Buffers for the datagrams of one call. Pages are allocated when first used.
pub struct Batch {
    buffers: Vec<u8>,
    headers: Vec<libc::mmsghdr>,
    /// The targets of the headers' pointers.
    _pieces: Vec<libc::iovec>,
}

impl Batch {
    pub const SIZE: usize = BATCH;

    pub fn new() -> Batch {
        let mut buffers = vec![0; BATCH * STRIDE];
        let base = buffers.as_mut_ptr();
        let piece = |nth: usize| libc::iovec {
            // SAFETY: within the buffers.
            iov_base: unsafe { base.add(nth * STRIDE) }.cast(),
            iov_len: DATAGRAM_MAX,
        };
        let mut pieces: Vec<libc::iovec> = (0..BATCH).map(piece).collect();
        let header = |piece: &mut libc::iovec| {
            // SAFETY: an all-zero header is valid: no name, no control message.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = pieces.iter_mut().map(header).collect();
        Batch { buffers, headers, _pieces: pieces }
    }

    /// The datagrams waiting in the socket, up to `SIZE`: the bytes of each, and true if they are complete. Does not
    /// block.
    pub fn receive(&mut self, socket: &Socket) -> impl Iterator<Item = (&[u8], bool)> + use<'_> {
        // SAFETY: the headers point to pieces, and these to buffers, which live as long and are not moved; nothing else
        // reads the buffers during the call.
        let received = unsafe {
            let (headers, flags) = (self.headers.as_mut_ptr(), libc::MSG_DONTWAIT as _);
            libc::recvmmsg(socket.fd(), headers, BATCH as u32, flags, std::ptr::null_mut())
        };
        // An error means no datagrams for now: the socket is read again later, whatever the error.
        let received = usize::try_from(received).unwrap_or(0);
        self.headers[..received].iter().enumerate().map(|(nth, header)| {
            let start = nth * STRIDE;
            let bytes = &self.buffers[start..start + (header.msg_len as usize).min(DATAGRAM_MAX)];
            (bytes, header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of its own in the temporary folder.
    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("powerband-datagrams-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn received(batch: &mut Batch, socket: &Socket) -> Vec<(Vec<u8>, bool)> {
        batch.receive(socket).map(|(bytes, whole)| (bytes.to_vec(), whole)).collect()
    }

    #[test]
    fn datagrams_of_any_size_come_as_they_were_sent() {
        let path = path("sizes");
        let socket = Socket::unix(&path).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let mut batch = Batch::new();
        assert!(received(&mut batch, &socket).is_empty());
        for size in [0, 1, 1_400, DATAGRAM_MAX, DATAGRAM_MAX + 1] {
            let sent: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            sender.send_to(&sent, &path).unwrap();
            let expected = (sent[..size.min(DATAGRAM_MAX)].to_vec(), size <= DATAGRAM_MAX);
            assert_eq!(received(&mut batch, &socket), [expected], "{size}");
        }
    }

    #[test]
    fn more_than_a_batch_comes_in_several() {
        let socket = Socket::udp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = UdpSocket::from(socket.fd.try_clone().unwrap()).local_addr().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..BATCH + 3 {
            sender.send_to(number.to_string().as_bytes(), address).unwrap();
        }
        let mut batch = Batch::new();
        let first = received(&mut batch, &socket);
        let second = received(&mut batch, &socket);
        assert_eq!((first.len(), second.len()), (BATCH, 3));
        let numbers = first.iter().chain(&second).map(|(bytes, _)| String::from_utf8_lossy(bytes).into_owned());
        assert!(numbers.eq((0..BATCH + 3).map(|number| number.to_string())));
    }

    #[test]
    fn what_the_kernel_drops_is_told_even_if_nothing_comes_after_it() {
        let mut socket = Socket::udp("127.0.0.1:0".parse().unwrap()).unwrap();
        set_option(socket.fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 1).unwrap();
        let address = UdpSocket::from(socket.fd.try_clone().unwrap()).local_addr().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(b"a:1|c", address).unwrap();
        }
        let mut batch = Batch::new();
        let kept = received(&mut batch, &socket).len();
        assert!(kept < 100, "the buffer holds them all");
        assert_eq!(kept as u64 + socket.dropped(), 100);
        assert_eq!(kept as u64 + socket.dropped(), 100, "asked again");
    }

    #[test]
    fn a_unix_socket_takes_the_place_of_a_dead_one_only() {
        let path = path("stale");
        drop(UnixDatagram::bind(&path).unwrap());
        assert!(path.exists(), "the file outlives its socket");
        let socket = Socket::unix(&path).unwrap();
        let Err(error) = Socket::unix(&path) else { panic!("two listen at one path") };
        assert!(error.contains("another process listens there"), "{error}");
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        let Err(error) = Socket::unix(&path) else { panic!("a file was taken for a socket") };
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        assert!(Socket::unix(Path::new("/no/such/folder/socket")).is_err());
        assert!(Socket::unix(&path.with_file_name("x".repeat(200))).is_err());
    }
}
