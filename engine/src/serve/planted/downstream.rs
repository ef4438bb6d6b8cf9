//! The blocking client of a downstream behind TCP. The threads of the server call it over loopback and share a pool of
//! kept connections. The other end is `serve::database`.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::permits::Permits;
use crate::sys;

/// Length of the body of every answer.
pub const BODY_BYTES: usize = 64;
/// Delay before the next attempt when no connection can be opened (no descriptors left).
const PAUSE: Duration = Duration::from_millis(10); // arbitrary

pub struct Remote {
    address: SocketAddr,
    /// Limits the open connections; None: each calling thread may have one.
    connections: Option<Permits>,
    idle: Mutex<Vec<OwnedFd>>,
    /// The permits of the database, for the metrics page.
    permits: Arc<Permits>,
}

impl Remote {
    /// `connections`: the most connections; 0: no limit.
    pub fn new(address: SocketAddr, connections: usize, permits: Arc<Permits>) -> Remote {
        let connections = (connections > 0).then(|| Permits::new(connections));
        Remote { address, connections, idle: Mutex::default(), permits }
    }

    /// Blocks until a connection is free, then sends a request with this wait and blocks until it is answered.
    pub fn call(&self, wait_ns: u64) {
        if let Some(connections) = &self.connections {
            connections.acquire();
        }
        let request = format!("GET /?downstream-wait={wait_ns}ns HTTP/1.1\r\n\r\n");
        let connection = loop {
            match self.connection().and_then(|connection| exchange(connection, request.as_bytes())) {
                Ok(connection) => break connection,
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        self.idle.lock().expect("nothing panics with it").push(connection);
        if let Some(connections) = &self.connections {
            connections.release();
        }
    }

    /// The permits of the database, for the numbers that exist, are in use and are waited for.
    pub fn permits(&self) -> &Permits {
        &self.permits
    }

    /// The connection used last, or a new one.
    fn connection(&self) -> io::Result<OwnedFd> {
        let idle = self.idle.lock().expect("nothing panics with it").pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream.into())
    }
}

/// Sends one request and reads its whole answer. Returns the connection for the next one.
fn exchange(connection: OwnedFd, request: &[u8]) -> io::Result<OwnedFd> {
    sys::write_all(connection.as_raw_fd(), request)?;
    let mut buffer = [0u8; 1024];
    let mut length = 0;
    while !is_whole(&buffer[..length]) {
        match sys::read(connection.as_raw_fd(), &mut buffer[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => length += n,
        }
    }
    Ok(connection)
}

fn is_whole(answer: &[u8]) -> bool {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    match httparse::Response::new(&mut headers).parse(answer) {
        Ok(httparse::Status::Complete(head)) => answer.len() >= head + BODY_BYTES,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n";
        let answer = [&head[..], &[b'x'; BODY_BYTES]].concat();
        assert!(is_whole(&answer));
        for end in 0..answer.len() {
            assert!(!is_whole(&answer[..end]), "{end}");
        }
    }
}
