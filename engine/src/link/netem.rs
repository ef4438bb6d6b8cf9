//! The link in the kernel: a veth pair with netem's delay and rate on both ends. Only runs `ip` and `tc` and reads
//! their output; this process merely holds the namespaces.

use std::process::Command;

use super::lane::{ETHERNET_HEADER_BYTES, sent_bytes};
use super::namespace::{ADDRESSES, DEVICE, MTU_BYTES, Namespace, ip, not_run, words_of};
use crate::contract::link::{Carried, LinkSpec};

/// Fixed addresses avoid address resolution over the link: the first packet takes as long as any other.
const HARDWARE_ADDRESSES: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

/// The reason why the kernel has no netem, or `tc` cannot show its counts; None: neither. The calling thread is in a
/// namespace of its own.
pub fn missing() -> Option<String> {
    tc("qdisc add dev lo root netem delay 1ms")
        .and_then(|_| {
            let shown = counts("lo");
            tc("qdisc del dev lo root").and(shown)
        })
        .err()
}

/// Joins the namespaces.
pub fn join(namespaces: &[Namespace; 2], spec: &LinkSpec, queue_bytes: u64) -> Result<(), String> {
    namespaces[0].enter()?;
    let [here, there] = HARDWARE_ADDRESSES;
    let peer = format!("peer name {DEVICE} address {there} netns {}", namespaces[1].path());
    ip(&[format!("link add {DEVICE} address {here} type veth {peer}")])?;
    for (end, namespace) in namespaces.iter().enumerate() {
        namespace.enter()?;
        // Send each packet by itself, without segmentation offload, for which there is no hardware.
        ip(&[format!("link set {DEVICE} gso_max_segs 1")])?;
        tc(&qdisc(spec, queue_bytes))?;
        namespace.set_up(end)?;
        let (other, hardware) = (ADDRESSES[1 - end], HARDWARE_ADDRESSES[1 - end]);
        ip(&[format!("neighbour add {other} lladdr {hardware} dev {DEVICE} nud permanent")])?;
    }
    Ok(())
}

/// The traffic sent at each end.
pub fn carried(namespaces: &[Namespace; 2]) -> Result<[Carried; 2], String> {
    let sent = |from: usize| {
        namespaces[from].enter()?;
        counts(DEVICE)
    };
    Ok([sent(0)?, sent(1)?])
}

/// The packets that netem has sent from a device of the calling thread's namespace.
fn counts(device: &str) -> Result<Carried, String> {
    counted(&tc(&format!("-s -j qdisc show dev {device} root"))?)
}

/// The words of the command that delays packets and limits their rate.
fn qdisc(spec: &LinkSpec, queue_bytes: u64) -> String {
    let (limit, delay_us) = (limit_packets(spec, queue_bytes), spec.delay_ns as f64 / 1e3);
    let rate = spec.rate_bits_per_s.map_or(String::new(), |rate| format!(" rate {rate}bit"));
    format!("qdisc add dev {DEVICE} root netem limit {limit} delay {delay_us}us{rate}")
}

/// netem limits packets, including those in transit: the number of full-size ones that the queue and the wire hold. More,
/// for small packets, would lengthen the queue of full-size ones. (A `tbf` below netem limits bytes, but sends bursts
/// early.)
fn limit_packets(spec: &LinkSpec, queue_bytes: u64) -> u64 {
    let under_way = spec.rate_bits_per_s.map_or(0, |rate| sent_bytes(spec.delay_ns, rate));
    (queue_bytes + under_way).div_ceil(MTU_BYTES as u64 + ETHERNET_HEADER_BYTES).max(1)
}

/// Parses the output of `tc -s -j`.
fn counted(json: &str) -> Result<Carried, String> {
    let read = || {
        let shown: serde_json::Value = serde_json::from_str(json).ok()?;
        let netem = shown.as_array()?.iter().find(|qdisc| qdisc["kind"] == "netem")?;
        let count = |name: &str| netem[name].as_u64();
        Some(Carried { packets: count("packets")?, bytes: count("bytes")?, dropped: count("drops")?, missed: 0 })
    };
    read().ok_or_else(|| format!("`tc` shows no counts of netem: {json:?}"))
}

/// Runs `tc` in the namespace of the calling thread; returns its output.
fn tc(words: &str) -> Result<String, String> {
    let done = Command::new("tc").args(words.split(' ')).output().map_err(|error| not_run("tc", &error))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!("`tc {words}` failed: {}", words_of(&done)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::link::WantedForm;

    fn spec(delay_ns: u64, rate_bits_per_s: Option<u64>) -> LinkSpec {
        LinkSpec { protocol: 1, delay_ns, rate_bits_per_s, queue_bytes: None, form: WantedForm::Netem }
    }

    #[test]
    fn netem_is_told_the_delay_the_rate_and_a_limit_that_holds_queue_and_wire() {
        // 100 Mbit/s for 2.5 ms are 31,250 bytes under way; with 15,000 queued that is 30.5 packets of 1,514.
        let words = qdisc(&spec(2_500_000, Some(100_000_000)), 15_000);
        assert_eq!(words, "qdisc add dev link0 root netem limit 31 delay 2500us rate 100000000bit");
        let words = qdisc(&spec(1_500, None), 1_514);
        assert_eq!(words, "qdisc add dev link0 root netem limit 1 delay 1.5us");
    }

    #[test]
    fn what_netem_carried_is_read_off_its_statistics() {
        let json = r#"[{"kind":"netem","handle":"8001:","root":true,"bytes":9000,"packets":7,"drops":2,"backlog":0}]"#;
        assert_eq!(counted(json), Ok(Carried { packets: 7, bytes: 9000, dropped: 2, missed: 0 }));
        for other in [r#"[{"kind":"noqueue"}]"#, ""] {
            assert!(counted(other).unwrap_err().contains("no counts of netem"), "{other}");
        }
    }
}
