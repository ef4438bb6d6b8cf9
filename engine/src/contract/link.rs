//! The input and output of `powerband-engine link`: a `LinkSpec` on the first line of stdin, `LinkEvent`s on stdout.
//! Later lines on stdin are `Command`s, of which only `stop` is used. All times are integer ns.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contract::events::ErrorEvent;

/// A link to make between two new network namespaces, the same in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    pub protocol: u32,
    /// One-way delay, from the sending of a packet's last bit to its arrival.
    pub delay_ns: u64,
    /// Rate of each direction, in bits of IP packets and their Ethernet headers; absent: no limit.
    pub rate_bits_per_s: Option<u64>,
    /// Most bytes that may wait for the transmitter of one direction; packets beyond it are dropped. Absent: 512 KiB,
    /// or what the rate sends in a round trip if that is more; 64 MiB without a rate, where it bounds the bytes in
    /// transit. At least a full packet, 1,514. Netem counts packets, and drops small ones early: queue and wire together
    /// hold as many as if all were full.
    pub queue_bytes: Option<u64>,
    #[serde(default)]
    pub form: WantedForm,
}

/// The means of delaying packets: netem in the kernel, or a bridge in user space, which is this process between two TUN
/// devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WantedForm {
    /// Netem if the kernel has it, otherwise a bridge.
    #[default]
    Auto,
    Netem,
    Bridge,
}

/// The means of delaying packets: netem in the kernel, or a bridge in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    Netem,
    Bridge,
}

/// A line that `powerband-engine link` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum LinkEvent {
    /// The link is up: both ends can be used until the engine ends. `queue_bytes`: the most bytes that may wait in one
    /// direction.
    Up { at_ns: u64, pid: u32, form: Form, queue_bytes: u64, a: End, b: End },
    /// The last line: the traffic of the whole run.
    Summary(Summary),
    /// The link could not be made, or has failed. Nothing follows.
    Error(ErrorEvent),
}

/// One end of the link: a network namespace with loopback and the device `link0`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Path of the network namespace, for `nsenter --net=`.
    pub namespace: String,
    pub address: Ipv4Addr,
}

/// The traffic of the whole run, by direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub at_ns: u64,
    pub a_to_b: Carried,
    pub b_to_a: Carried,
    /// Median lateness of packets: how much later than planned they left the bridge. Absent with netem, and if there
    /// were no packets.
    pub late_ns_p50: Option<u64>,
    /// 99th percentile of the lateness of packets; absent as `late_ns_p50` is.
    pub late_ns_p99: Option<u64>,
    /// Largest lateness of a packet; absent as `late_ns_p50` is.
    pub late_ns_max: Option<u64>,
    /// CPU time that this process used.
    pub cpu_ns: u64,
}

/// The traffic in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes of the packets that arrived, Ethernet headers included.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped: u64,
    /// Packets that the kernel dropped on either side of a bridge that was too slow; 0 with netem.
    pub missed: u64,
}
