//! Properties of a lane for any arrivals, on a clock of the test's own.

use proptest::prelude::*;

use super::*;

/// Time since the previous packet, and length.
type Arrival = (u64, usize);

/// Arrival, due time, and length on the wire of each packet that came out, in that order, at punctual polls.
fn carried(lane: &mut Lane, arrivals: &[Arrival]) -> Vec<(u64, u64, u64)> {
    let mut now_ns = 0;
    let mut came = Vec::new();
    let mut out = Vec::new();
    for (number, &(gap_ns, length)) in arrivals.iter().enumerate() {
        now_ns += gap_ns;
        take(lane, now_ns, &came, &mut out);
        let mut packet = vec![0; length];
        packet[..4].copy_from_slice(&(number as u32).to_be_bytes());
        came.push(now_ns);
        lane.push(now_ns, packet);
    }
    take(lane, u64::MAX, &came, &mut out);
    out
}

fn take(lane: &mut Lane, now_ns: u64, came: &[u64], out: &mut Vec<(u64, u64, u64)>) {
    while let Some((due_ns, packet)) = lane.pop(now_ns) {
        let number = u32::from_be_bytes(packet[..4].try_into().unwrap()) as usize;
        out.push((came[number], due_ns, packet.len() as u64 + ETHERNET_HEADER_BYTES));
        lane.reuse(packet);
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    prop::collection::vec((0..200_000u64, 4..1500usize), 1..200)
}

proptest! {
    #[test]
    fn no_packet_is_early_and_none_overtakes(
        came in arrivals(), rate in 1_000_000..10_000_000_000u64, delay_ns in 0..50_000_000u64,
    ) {
        let out = carried(&mut Lane::new(Some(rate), delay_ns, 1 << 20), &came);
        for &(arrival_ns, due_ns, bytes) in &out {
            prop_assert!(due_ns >= arrival_ns + delay_ns + bytes * 8_000_000_000 / rate);
        }
        prop_assert!(out.is_sorted_by_key(|&(arrival_ns, ..)| arrival_ns));
        prop_assert!(out.is_sorted_by_key(|&(_, due_ns, _)| due_ns));
    }

    #[test]
    fn over_no_window_does_more_come_out_than_the_rate_and_one_packet(
        came in arrivals(), rate in 1_000_000..10_000_000_000u64, delay_ns in 0..50_000_000u64,
    ) {
        let out = carried(&mut Lane::new(Some(rate), delay_ns, 1 << 20), &came);
        for first in 0..out.len() {
            let mut bytes = 0u128;
            for later in first + 1..out.len() {
                bytes += u128::from(out[later].2);
                let window_ns = u128::from(out[later].1 - out[first].1);
                prop_assert!(bytes * 8 * SECOND_NS <= u128::from(rate) * window_ns);
            }
        }
    }

    #[test]
    fn every_packet_is_delivered_or_dropped_and_no_more_waits_than_the_queue_holds(
        came in arrivals(), rate in 1_000_000..1_000_000_000u64, queue_bytes in 1514..100_000u64,
    ) {
        let delay_ns = 1_000_000;
        let mut lane = Lane::new(Some(rate), delay_ns, queue_bytes);
        let out = carried(&mut lane, &came);
        prop_assert_eq!(out.len() as u64 + lane.dropped, came.len() as u64);
        prop_assert_eq!(lane.packets, out.len() as u64);
        prop_assert_eq!(lane.bytes, out.iter().map(|&(.., bytes)| bytes).sum::<u64>());
        let longest_ns = delay_ns + sending_ns(queue_bytes + 1, rate) + 1; // whole bytes and whole ns
        prop_assert!(out.iter().all(|&(arrival_ns, due_ns, _)| due_ns - arrival_ns <= longest_ns));
    }

    #[test]
    fn without_a_rate_everything_takes_the_delay_and_nothing_else(came in arrivals(), delay_ns in 0..50_000_000u64) {
        let mut lane = Lane::new(None, delay_ns, 1 << 20);
        let out = carried(&mut lane, &came);
        prop_assert!(out.iter().all(|&(arrival_ns, due_ns, _)| due_ns == arrival_ns + delay_ns));
        prop_assert_eq!(lane.held_bytes, 0);
    }
}

#[test]
fn a_packet_on_an_idle_link_takes_its_sending_and_the_delay() {
    let mut lane = Lane::new(Some(100_000_000), 1_000_000, 1 << 20);
    lane.push(5_000, vec![0; 1486]); // 1,500 bytes on the wire: 120 us at 100 Mbit/s
    assert_eq!(lane.next_due_ns(), Some(5_000 + 120_000 + 1_000_000));
    assert!(lane.pop(1_124_999).is_none());
    assert!(lane.pop(1_125_000).is_some());
    lane.push(50_000_000, vec![0; 1486]); // idle time is not credited
    assert_eq!(lane.next_due_ns(), Some(50_000_000 + 120_000 + 1_000_000));
}

#[test]
fn a_burst_leaves_at_the_rate_and_what_does_not_fit_is_dropped() {
    let mut lane = Lane::new(Some(8_000_000), 0, 3_000); // 1 byte a us
    for _ in 0..5 {
        lane.push(0, vec![0; 986]); // 1,000 on the wire
    }
    let due: Vec<u64> = std::iter::from_fn(|| lane.pop(u64::MAX)).map(|(due_ns, _)| due_ns).collect();
    assert_eq!(due, [1_000_000, 2_000_000, 3_000_000]);
    assert_eq!(lane.dropped, 2);
}

#[test]
fn the_queue_holds_what_a_round_trip_sends() {
    assert_eq!(usual_queue_bytes(Some(1_000_000_000), 10_000_000), 2_500_000);
    assert_eq!(usual_queue_bytes(Some(1_000_000), 10_000_000), QUEUE_BYTES_MIN);
    assert_eq!(usual_queue_bytes(None, 10_000_000), UNDER_WAY_BYTES);
}
