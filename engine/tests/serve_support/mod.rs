//! A running `powerband-engine serve` for tests, and an HTTP client that sees every byte. The server ends when its
//! value is dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step of a test takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Server {
    pub child: Child,
    pub address: SocketAddr,
    pub management: SocketAddr,
    /// The pid that `fork-escape` printed.
    pub escaped: Option<i32>,
}

/// Raises this process's soft descriptor limit to the hard one, for tests of many connections. Returns the new limit.
pub fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid during both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    limit.rlim_max as usize
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_powerband-engine"));
    command.arg("serve").args(args).stdin(Stdio::null());
    command
}

impl Server {
    /// Starts a server on free ports and waits until it listens.
    pub fn start(args: &[&str]) -> Server {
        Server::start_with(args, |_| ())
    }

    /// Like `start`, but `change` may modify the command first.
    pub fn start_with(args: &[&str], change: impl FnOnce(&mut Command)) -> Server {
        let mut all = vec!["--port", "0", "--management-port", "0"];
        all.extend(args);
        let mut command = command(&all);
        change(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the engine starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut next = || lines.next().expect("a line on stdout");
        let mut line = next();
        let escaped = line.strip_prefix("escaped process ").map(|pid| pid.parse().unwrap());
        if escaped.is_some() {
            line = next();
        }
        let address = line.strip_prefix("listening on ").expect("the address").parse().unwrap();
        let management = next().strip_prefix("management on ").expect("the address").parse().unwrap();
        Server { child, address, management, escaped }
    }

    pub fn connect(&self) -> Client {
        Client::new(self.address)
    }

    /// Sends a request on a new connection; returns status and body.
    pub fn get(&self, path: &str) -> (u16, Vec<u8>) {
        self.connect().get(path)
    }

    /// A metric without labels, read through the management port.
    pub fn metric(&self, name: &str) -> f64 {
        let (status, page) = Client::new(self.management).get("/metrics");
        assert_eq!(status, 200);
        let page = String::from_utf8(page).unwrap();
        let line = page.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{page}")).split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn wait_for_metric(&self, name: &str, expected: f64) {
        wait_until(&format!("{name} is {expected}"), || self.metric(name) == expected);
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the pid is that of our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, unread: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn ask(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    }

    pub fn get(&mut self, path: &str) -> (u16, Vec<u8>) {
        self.ask(path);
        let (status, _, body) = self.answer();
        (status, body)
    }

    /// The status, head and body of the next response, which has a content length or is chunked.
    pub fn answer(&mut self) -> (u16, String, Vec<u8>) {
        let head = self.head();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let lower = head.to_ascii_lowercase();
        if let Some((_, rest)) = lower.split_once("content-length: ") {
            let body = self.take(rest.split("\r\n").next().unwrap().parse().unwrap());
            return (status, head, body);
        }
        assert!(lower.contains("transfer-encoding: chunked\r\n"), "{head}");
        (status, head, self.chunks())
    }

    /// The head of the next response.
    pub fn head(&mut self) -> String {
        let end = self.read_until(b"\r\n\r\n");
        String::from_utf8(self.unread.drain(..end).collect()).unwrap()
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = self.read_until(b"\r\n");
            let line = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let chunk = self.take(size + 2);
            assert!(chunk.ends_with(b"\r\n"));
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    pub fn take(&mut self, n: usize) -> Vec<u8> {
        while self.unread.len() < n {
            self.fill();
        }
        self.unread.drain(..n).collect()
    }

    fn read_until(&mut self, mark: &[u8]) -> usize {
        loop {
            if let Some(at) = self.unread.windows(mark.len()).position(|window| window == mark) {
                return at + mark.len();
            }
            self.fill();
        }
    }

    fn fill(&mut self) {
        let mut buffer = [0; 16 << 10];
        let n = self.stream.read(&mut buffer).expect("an answer in time");
        assert_ne!(n, 0, "the connection ended with {:?}", String::from_utf8_lossy(&self.unread));
        self.unread.extend_from_slice(&buffer[..n]);
    }

    /// Waits for the server to close the connection. True if it does so, or resets it.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 1]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Closes at once with a reset: the server's later writes fail.
    pub fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = size_of_val(&linger) as libc::socklen_t;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&self.stream);
        // SAFETY: the option is valid during the call and its size is passed.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size) };
        assert_eq!(set, 0);
    }

    /// True if nothing comes for a while.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
        let result = self.stream.read(&mut [0; 1]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!(result, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}
