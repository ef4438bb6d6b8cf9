//! The input and output of `powerband-engine link`: a `LinkSpec` on the first line of stdin, `LinkEvent`s on stdout.
//! Later lines on stdin are `Command`s, of which only `stop` is used. All times are integer ns.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contract::events::ErrorEvent;

/// Two new network namespaces and the link that joins them, alike in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    pub protocol: u32,
    /// One way, from the last bit sent to its arrival.
    pub delay_ns: u64,
    /// What goes over the wire each second, IP packets and their Ethernet headers; absent: without limit.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait for the transmitter of one direction, what comes then is dropped; absent: 512 KiB, or what the rate
    /// sends in a round trip if that is more.
    pub queue_bytes: Option<u64>,
    #[serde(default)]
    pub form: WantedForm,
}

/// Who holds packets back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WantedForm {
    /// The kernel where it can, else this process.
    #[default]
    Auto,
    Netem,
    Bridge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    Netem,
    Bridge,
}

/// A line of `powerband-engine link`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum LinkEvent {
    /// Both ends can be used until the engine ends.
    Up { at_ns: u64, pid: u32, form: Form, queue_bytes: u64, a: End, b: End },
    /// The last line.
    Summary(Summary),
    /// The link is not there, or no longer; nothing follows.
    Error(ErrorEvent),
}

/// One end of the link: a network namespace with loopback and the device `link0`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// A path for `nsenter --net=`.
    pub namespace: String,
    pub address: Ipv4Addr,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub at_ns: u64,
    pub a_to_b: Carried,
    pub b_to_a: Carried,
    /// How much later than planned packets left; absent where the kernel carried them, and where there were none.
    pub late_ns_p50: Option<u64>,
    pub late_ns_p99: Option<u64>,
    pub late_ns_max: Option<u64>,
    /// CPU that this process used.
    pub cpu_ns: u64,
}

/// What went in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Those that arrived.
    pub packets: u64,
    /// Theirs, Ethernet headers included.
    pub bytes: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that the kernel threw away on either side of a bridge that was too slow.
    pub missed: u64,
}
