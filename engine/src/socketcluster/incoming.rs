//! Parses messages of a server: the text is split into packets (`packets`), and each is classified by its keys
//! (`classify`). `data` is read only in the answer to the handshake (`handshake_answer`).
//!
//! serde_json does the parsing, into borrowed keys and without a tree: 0.11 us for a packet of 40 bytes, where a
//! message costs 5 us in all, so a scanner of our own would not pay. It checks the whole packet, so broken JSON matches
//! nothing. Packets that SocketCluster's own client would not understand either are `Unknown`, never an error.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{HANDSHAKE_ID, Version};

/// One packet, as far as a load needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// A heartbeat, to be answered with `heartbeat_answer`.
    Heartbeat,
    /// The answer to call `rid`; `failed`: it contains an error.
    Reply {
        rid: u64,
        failed: bool,
    },
    /// A message published to a channel.
    Delivery,
    /// Any other event; with a `cid`, the server waits for `write_answer`.
    Event {
        name: Cow<'a, str>,
        cid: Option<u64>,
    },
    /// The server has removed a subscription.
    KickOut,
    /// Version 14: the server is about to close the connection.
    Disconnect,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeAnswer {
    /// The server has accepted the handshake. It sends a heartbeat or any other message within this time, if it is set.
    Accepted {
        ping_timeout_ns: Option<u64>,
    },
    Refused,
}

/// The packets of one message: its text itself, or the elements of an array, which servers send when they batch. A
/// broken array is one unknown packet. `text` is UTF-8, like WebSocket's text.
pub fn packets(text: &[u8]) -> Packets<'_> {
    if text.trim_ascii_start().first() == Some(&b'[')
        && let Ok(batch) = serde_json::from_slice::<Vec<&RawValue>>(text)
    {
        return Packets::Batch(batch.into_iter());
    }
    Packets::One(Some(text))
}

pub enum Packets<'a> {
    One(Option<&'a [u8]>),
    Batch(std::vec::IntoIter<&'a RawValue>),
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Packets::One(text) => text.take(),
            Packets::Batch(batch) => batch.next().map(|packet| packet.get().as_bytes()),
        }
    }
}

/// Classifies one packet.
#[inline]
pub fn classify(version: Version, packet: &[u8]) -> Incoming<'_> {
    match (version, packet) {
        (Version::V14, b"#1") | (Version::V20, b"") => return Incoming::Heartbeat,
        _ => {}
    }
    let Some(keys) = object::<Keys>(packet) else { return Incoming::Unknown };
    match (keys.event, keys.rid) {
        (Some(Text(name)), _) => match &*name {
            "#publish" => Incoming::Delivery,
            "#kickOut" => Incoming::KickOut,
            "#disconnect" if version == Version::V14 => Incoming::Disconnect,
            _ => Incoming::Event { name, cid: keys.cid.map(|Number(cid)| cid) },
        },
        (None, Some(Number(rid))) => Incoming::Reply { rid, failed: keys.error.is_some() },
        (None, None) => Incoming::Unknown,
    }
}

/// The content of the answer to the handshake, if this packet is that answer. A refused authentication token does not
/// end the connection, so it is not treated as a refusal.
pub fn handshake_answer(packet: &[u8]) -> Option<HandshakeAnswer> {
    let Answer { event, rid: Number(rid), error, data } = object(packet)?;
    if rid != HANDSHAKE_ID || event.is_some() {
        return None;
    }
    if error.is_some() {
        return Some(HandshakeAnswer::Refused);
    }
    let ping_timeout_ms = data.and_then(|data| object::<Status>(data.get().as_bytes())?.ping_timeout_ms);
    // Casting saturates; a value below a nanosecond, or no number, counts as no time.
    let ping_timeout_ns = ping_timeout_ms.map(|ms| (ms * 1e6) as u64).filter(|ns| *ns > 0);
    Some(HandshakeAnswer::Accepted { ping_timeout_ns })
}

/// The keys that classify a packet. A repeated key makes it unknown.
#[derive(Deserialize)]
struct Keys<'a> {
    #[serde(borrow)]
    event: Option<Text<'a>>,
    cid: Option<Number>,
    rid: Option<Number>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    event: Option<IgnoredAny>,
    rid: Number,
    error: Option<IgnoredAny>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(rename = "pingTimeout")]
    ping_timeout_ms: Option<f64>,
}

/// Borrowed unless it contains escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The number of a call: a JSON number, or a string of its digits.
struct Number(u64);

/// Accepts objects only. serde also reads arrays as structs, in the order of their fields; SocketCluster does not.
pub(super) fn object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<T> {
    let is_object = text.trim_ascii_start().first() == Some(&b'{');
    serde_json::from_slice(text).ok().filter(|_| is_object)
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = Number;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("the number of a call")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|_| digits).map(Number).ok_or_else(|| E::custom("no number"))
            }
        }

        deserializer.deserialize_any(Digits)
    }
}
