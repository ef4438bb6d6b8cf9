//! One direction of a link, as a pure schedule: packets enter with their arrival time, and leave when they are due. In
//! between are a queue, bounded in bytes, a transmitter that sends one packet at a time at the link's rate, and the
//! delay of the wire. No clock and no device here: the caller passes the time.

use std::collections::VecDeque;

/// Added to the IP length of each packet on the wire.
pub const ETHERNET_HEADER_BYTES: u64 = 14;
/// The minimum size of the queue unless the spec sets it.
const QUEUE_BYTES_MIN: u64 = 512 * 1024; // arbitrary: some 350 full packets
/// For a link without a rate limit, where nothing waits for the transmitter: the most bytes in transit.
const UNDER_WAY_BYTES: u64 = 64 * 1024 * 1024; // arbitrary: 5 Gbit/s over 100 ms; it is memory of this process

const SECOND_NS: u128 = 1_000_000_000;

pub struct Lane {
    rate_bits_per_s: Option<u64>,
    delay_ns: u64,
    queue_bytes: u64,
    /// The time at which the transmitter has sent everything in its queue.
    free_at_ns: u64,
    held: VecDeque<Held>,
    held_bytes: u64,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
}

struct Held {
    due_ns: u64,
    packet: Vec<u8>,
}

impl Lane {
    pub fn new(rate_bits_per_s: Option<u64>, delay_ns: u64, queue_bytes: u64) -> Lane {
        Lane {
            rate_bits_per_s,
            delay_ns,
            queue_bytes,
            free_at_ns: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            spare: Vec::new(),
            packets: 0,
            bytes: 0,
            dropped: 0,
        }
    }

    /// Takes a packet that arrived at `now_ns`, or drops it if the queue is full. `now_ns` never goes back.
    pub fn push(&mut self, now_ns: u64, packet: Vec<u8>) {
        let size = wire_bytes(&packet);
        if self.waiting_bytes(now_ns) + size > self.queue_bytes {
            self.dropped += 1;
            self.spare.push(packet);
            return;
        }
        let begins_ns = self.free_at_ns.max(now_ns);
        self.free_at_ns = begins_ns + self.rate_bits_per_s.map_or(0, |rate| sending_ns(size, rate));
        self.held_bytes += size;
        self.held.push_back(Held { due_ns: self.free_at_ns + self.delay_ns, packet });
    }

    /// The time at which the next packet arrives at the other end.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.held.front().map(|held| held.due_ns)
    }

    /// The next packet that is due by now, with its due time. Pass the buffer to `reuse` afterwards.
    pub fn pop(&mut self, now_ns: u64) -> Option<(u64, Vec<u8>)> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let held = self.held.pop_front()?;
        let size = wire_bytes(&held.packet);
        self.held_bytes -= size;
        self.packets += 1;
        self.bytes += size;
        Some((held.due_ns, held.packet))
    }

    /// Takes a packet that was popped, but could not be delivered, out of the counts.
    pub fn uncount(&mut self, packet: &[u8]) {
        self.packets -= 1;
        self.bytes -= wire_bytes(packet);
    }

    /// An empty buffer, or a used one with its old content.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub fn reuse(&mut self, buffer: Vec<u8>) {
        self.spare.push(buffer);
    }

    /// Bytes queued for the transmitter; for a link without a rate limit, bytes in transit.
    fn waiting_bytes(&self, now_ns: u64) -> u64 {
        match self.rate_bits_per_s {
            None => self.held_bytes,
            Some(rate) => sent_bytes(self.free_at_ns.saturating_sub(now_ns), rate),
        }
    }
}

/// The bound of a lane's queue if the spec sets none: for one TCP stream to fill the link, it must hold the bytes sent
/// in a round trip.
pub fn usual_queue_bytes(rate_bits_per_s: Option<u64>, delay_ns: u64) -> u64 {
    match rate_bits_per_s {
        None => UNDER_WAY_BYTES,
        Some(rate) => sent_bytes(2 * delay_ns, rate).max(QUEUE_BYTES_MIN),
    }
}

/// The bytes sent in a time at a rate.
pub fn sent_bytes(time_ns: u64, rate_bits_per_s: u64) -> u64 {
    u64::try_from(u128::from(time_ns) * u128::from(rate_bits_per_s) / (8 * SECOND_NS)).unwrap_or(u64::MAX)
}

/// Transmission time of one packet, rounded up, so that the rate is never exceeded.
fn sending_ns(bytes: u64, rate_bits_per_s: u64) -> u64 {
    u64::try_from((u128::from(bytes) * 8 * SECOND_NS).div_ceil(u128::from(rate_bits_per_s))).unwrap_or(u64::MAX)
}

fn wire_bytes(packet: &[u8]) -> u64 {
    packet.len() as u64 + ETHERNET_HEADER_BYTES
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
