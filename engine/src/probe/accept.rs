//! Accept queues of listening TCP ports, read from the kernel through sock_diag. Only listening sockets are listed, so
//! the cost does not grow with the number of connections (reading /proc/net/tcp would).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const STATES_LISTEN: u32 = 1 << 10;
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;

pub struct AcceptQueues {
    ports: Vec<u16>,
    socket: Option<OwnedFd>,
    buffer: Vec<u8>,
}

impl AcceptQueues {
    pub fn new(ports: &[u16]) -> AcceptQueues {
        let socket = if ports.is_empty() { None } else { open() };
        AcceptQueues { ports: ports.to_vec(), socket, buffer: vec![0; 32 * 1024] }
    }

    /// Connections waiting to be accepted on the watched ports, and the limit of their queues, summed over all their
    /// sockets.
    pub fn read(&mut self) -> (u32, u32) {
        let mut sum = (0, 0);
        for family in [libc::AF_INET, libc::AF_INET6] {
            if let Some(socket) = &self.socket {
                dump(socket, family as u8, &mut self.buffer, |port, waiting, limit| {
                    if self.ports.contains(&port) {
                        sum = (sum.0 + waiting, sum.1 + limit);
                    }
                });
            }
        }
        sum
    }
}

fn open() -> Option<OwnedFd> {
    // SAFETY: the descriptor returned is ours alone.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// Calls `found(port, rqueue, wqueue)` for each listening socket: rqueue is the length of its accept queue, wqueue the
/// limit.
fn dump(socket: &OwnedFd, family: u8, buffer: &mut [u8], mut found: impl FnMut(u16, u32, u32)) {
    let request = request(family);
    // SAFETY: sends and receives within buffers of the given lengths.
    let send = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if send != request.len() as isize {
        return;
    }
    loop {
        // SAFETY: as above.
        let n = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if n <= 0 || parse(&buffer[..n as usize], &mut found) {
            return;
        }
    }
}

/// The request for all listening TCP sockets of a family, no extensions: nlmsghdr and inet_diag_req_v2.
fn request(family: u8) -> [u8; REQUEST] {
    let mut request = [0u8; REQUEST];
    request[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    request[HEADER] = family;
    request[HEADER + 1] = libc::IPPROTO_TCP as u8;
    request[HEADER + 4..HEADER + 8].copy_from_slice(&STATES_LISTEN.to_ne_bytes());
    request
}

/// Parses the messages of one datagram; true when the answer is complete (or refused).
fn parse(mut bytes: &[u8], found: &mut impl FnMut(u16, u32, u32)) -> bool {
    while bytes.len() >= HEADER {
        let length = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
        if kind != SOCK_DIAG_BY_FAMILY || length < HEADER || length > bytes.len() {
            return true;
        }
        // inet_diag_msg: 4 bytes, then the socket id (48, its local port first), expires, rqueue, wqueue.
        let body = &bytes[HEADER..length];
        if body.len() >= 64 {
            let word = |at: usize| u32::from_ne_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
            found(u16::from_be_bytes([body[4], body[5]]), word(56), word(60));
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    false
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_that_nobody_accepts_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut queues = AcceptQueues::new(&[address.port()]);
        let (waiting, limit) = queues.read();
        assert_eq!(waiting, 0);
        assert!(limit > 0);
        let _connections: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(queues.read(), (3, limit));
    }

    #[test]
    fn no_ports_no_queues() {
        assert_eq!(AcceptQueues::new(&[]).read(), (0, 0));
    }
}
