//! Classifies a packet in a slow and simple way: puts all keys into a map, then applies the rules of SocketCluster's
//! client one by one. Tests and fuzz targets compare `classify` with it.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::socketcluster::Version;
use crate::socketcluster::incoming::Incoming;

/// If keys are equal, the last one counts, as in JavaScript.
pub fn by_tree(version: Version, packet: &[u8]) -> Incoming<'static> {
    match (version, packet) {
        (Version::V14, b"#1") | (Version::V20, b"") => return Incoming::Heartbeat,
        _ => {}
    }
    let Ok(keys) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(packet) else { return Incoming::Unknown };
    let value = |key: &str| serde_json::from_str::<Value>(keys.get(key)?.get()).ok();
    let number = |key: &str| match value(key)? {
        Value::String(digits) => digits.parse().ok(),
        value => value.as_u64(),
    };
    let failed = keys.get("error").is_some_and(|error| error.get() != "null");
    match (value("event").as_ref().and_then(Value::as_str), number("rid")) {
        (Some("#publish"), _) => Incoming::Delivery,
        (Some("#kickOut"), _) => Incoming::KickOut,
        (Some("#disconnect"), _) if version == Version::V14 => Incoming::Disconnect,
        (Some(name), _) => Incoming::Event { name: name.to_owned().into(), cid: number("cid") },
        (None, Some(rid)) => Incoming::Reply { rid, failed },
        (None, None) => Incoming::Unknown,
    }
}
