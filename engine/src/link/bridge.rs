//! The link in user space: a TUN device in each namespace and one thread that carries packets between them, when their
//! lane schedules it. The lateness of every packet is recorded.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use hdrhistogram::Histogram;

use super::control::Control;
use super::lane::Lane;
use super::namespace::{DEVICE, MTU_BYTES, Namespace};
use crate::clock::now_ns;
use crate::contract::link::{Carried, LinkSpec};
use crate::sys::least_timer_slack;

/// Packets read from one device before due packets are checked again.
const READ_AT_ONCE: usize = 32; // arbitrary: at 1 Gbit/s 0.4 ms of full packets
/// Lateness beyond a minute is recorded as a minute.
const LATE_NS_MAX: u64 = 60_000_000_000;

pub struct Bridge {
    namespaces: [Namespace; 2],
    devices: [File; 2],
    /// From end 0 to end 1, and back.
    lanes: [Lane; 2],
    /// Packets that the receiving side could not take.
    refused: [u64; 2],
    late_ns: Histogram<u64>,
}

impl Bridge {
    pub fn new(namespaces: [Namespace; 2], spec: &LinkSpec, queue_bytes: u64) -> Result<Bridge, String> {
        let device = |end: usize| {
            namespaces[end].enter()?;
            let device = open_device().map_err(|error| {
                format!(
                    "cannot make a TUN device ({error}): the kernel has none, /dev/net/tun is missing or may not be used; \
                     in a container pass it in (--device /dev/net/tun)"
                )
            })?;
            namespaces[end].set_up(end)?;
            Ok::<File, String>(device)
        };
        let devices = [device(0)?, device(1)?];
        let lane = || Lane::new(spec.rate_bits_per_s, spec.delay_ns, queue_bytes);
        let late_ns = Histogram::new_with_max(LATE_NS_MAX, 3).expect("bounds and digits are allowed");
        Ok(Bridge { namespaces, devices, lanes: [lane(), lane()], refused: [0; 2], late_ns })
    }

    pub fn namespaces(&self) -> &[Namespace; 2] {
        &self.namespaces
    }

    /// Carries packets until the controller ends the link.
    pub fn run(&mut self, control: &mut Control) -> Result<(), String> {
        least_timer_slack();
        let fds = [self.devices[0].as_raw_fd(), self.devices[1].as_raw_fd()];
        loop {
            let more = self.turn().map_err(|error| format!("the device {DEVICE} is gone or refuses: {error}"))?;
            let until_ns = if more { Some(0) } else { self.lanes.iter().filter_map(Lane::next_due_ns).min() };
            if control.wait(&fds, until_ns)? {
                return Ok(());
            }
        }
    }

    /// The traffic from end 0 to end 1, and back.
    pub fn carried(&self) -> [Carried; 2] {
        [0, 1].map(|from| Carried {
            packets: self.lanes[from].packets,
            bytes: self.lanes[from].bytes,
            dropped: self.lanes[from].dropped,
            missed: self.namespaces[from].device_drops().unwrap_or(0) + self.refused[from],
        })
    }

    /// The lateness of packets, at a quantile; None without packets.
    pub fn late_ns(&self, quantile: f64) -> Option<u64> {
        (!self.late_ns.is_empty()).then(|| self.late_ns.value_at_quantile(quantile))
    }

    /// Sends due packets and reads new ones. True: there may be more.
    fn turn(&mut self) -> io::Result<bool> {
        let mut more = false;
        for from in [0, 1] {
            self.let_go(from)?;
            more |= self.take_in(from)?;
        }
        Ok(more)
    }

    fn let_go(&mut self, from: usize) -> io::Result<()> {
        while let Some((due_ns, packet)) = self.lanes[from].pop(now_ns()) {
            self.late_ns.saturating_record(now_ns() - due_ns);
            match self.devices[1 - from].write(&packet) {
                Ok(_) => (),
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)) => {
                    self.refused[from] += 1;
                    self.lanes[from].uncount(&packet);
                }
                Err(error) => return Err(error),
            }
            self.lanes[from].reuse(packet);
        }
        Ok(())
    }

    fn take_in(&mut self, from: usize) -> io::Result<bool> {
        for _ in 0..READ_AT_ONCE {
            let mut packet = self.lanes[from].buffer();
            packet.resize(MTU_BYTES, 0);
            match self.devices[from].read(&mut packet) {
                Ok(length) => {
                    packet.truncate(length);
                    self.lanes[from].push(now_ns(), packet);
                }
                Err(error) => {
                    self.lanes[from].reuse(packet);
                    return if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) };
                }
            }
        }
        Ok(true)
    }
}

/// Makes the device in the namespace of the calling thread. Closing the file removes it.
fn open_device() -> io::Result<File> {
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let name = CString::new(DEVICE)?;
    // SAFETY: an all-zero ifreq is valid; the name fits into it; the kernel reads and writes one ifreq.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        std::ptr::copy_nonoverlapping(name.as_ptr(), request.ifr_name.as_mut_ptr(), name.as_bytes_with_nul().len());
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(device) }
}
