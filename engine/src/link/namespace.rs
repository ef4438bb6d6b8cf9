//! Network namespaces without names: they exist as long as a process is in them or holds a descriptor of them, so a
//! kill leaves nothing behind. Entering one changes the network of the calling thread's sockets, devices and child
//! processes.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};

use crate::sys::checked;

/// The link's device in each namespace.
pub const DEVICE: &str = "link0";
/// Like an Ethernet.
pub const MTU_BYTES: usize = 1500;
/// From 198.18.0.0/15, which is reserved for measurements (RFC 2544): no other network of a machine should use it, and
/// these namespaces have no other network.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// Packets that a device holds until they are read: several ms of the fastest link.
const DEVICE_QUEUE_PACKETS: u32 = 4096;

pub struct Namespace(File);

impl Namespace {
    /// A new namespace, which the calling thread enters.
    pub fn create() -> io::Result<Namespace> {
        // SAFETY: unshare takes no pointers.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        Ok(Namespace(File::open("/proc/thread-self/ns/net")?))
    }

    /// The calling thread enters the namespace.
    pub fn enter(&self) -> Result<(), String> {
        // SAFETY: setns takes no pointers, and the descriptor is open.
        checked(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) })
            .map(drop)
            .map_err(|error| format!("cannot enter a network namespace: {error}"))
    }

    /// A path by which others can enter, as long as this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Brings loopback up, and the link's device with the address of end `end`. The device must exist.
    pub fn set_up(&self, end: usize) -> Result<(), String> {
        self.enter()?;
        // Only the traffic of the two processes may use the link. A kernel without IPv6 has no such file.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6"), "1");
        let (own, other) = (ADDRESSES[end], ADDRESSES[1 - end]);
        ip(&[
            "link set lo up".to_owned(),
            format!("address add {own} peer {other} dev {DEVICE}"),
            format!("link set {DEVICE} mtu {MTU_BYTES} txqueuelen {DEVICE_QUEUE_PACKETS} up"),
        ])
    }

    /// Packets that the link's device dropped instead of sending them on; None where the kernel does not show it.
    pub fn device_drops(&self) -> Option<u64> {
        self.enter().ok()?;
        drops_of(&std::fs::read_to_string("/proc/thread-self/net/dev").ok()?, DEVICE)
    }
}

/// Runs commands of iproute2's `ip` in the namespace of the calling thread.
pub fn ip(commands: &[String]) -> Result<(), String> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_run("ip", &error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it ended early, stderr has the reason.
        let _ = stdin.write_all((commands.join("\n") + "\n").as_bytes());
    }
    let done = child.wait_with_output().map_err(|error| not_run("ip", &error))?;
    if done.status.success() { Ok(()) } else { Err(format!("`ip` refused: {}", words_of(&done))) }
}

/// The reason why a program of iproute2 did not run.
pub fn not_run(program: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no program `{program}`: install iproute2"),
        _ => format!("cannot run `{program}`: {error}"),
    }
}

/// The stderr of a program, on one line.
pub fn words_of(done: &Output) -> String {
    let text = String::from_utf8_lossy(&done.stderr);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The transmit drops of a device, from the text of /proc/net/dev.
fn drops_of(text: &str, device: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    // Eight columns for receiving, then bytes, packets, errors and drops for sending.
    line.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_off_the_line_of_the_device() {
        let text = "Inter-|   Receive                      |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n    \
                    lo:       1       2    3    4    5     6          7         8        9       10   11   12   13     14\n \
                    link0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        assert_eq!(drops_of(text, DEVICE), Some(32));
        assert_eq!(drops_of(text, "lo"), Some(12));
        assert_eq!(drops_of(text, "eth0"), None);
    }
}
