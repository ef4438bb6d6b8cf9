//! Writes the texts of a client. Messages of steps are made once, with the plan; they may contain the tokens `{id}`,
//! `{stamp}` and `{user}`, which the sender replaces. The other functions append to the text of one message.

use std::io::Write;

use super::{HANDSHAKE_ID, Version};

/// The placeholder for the number of a call, which the caller fills in, as in every other message.
const ID_TOKEN: &str = "{id}";

/// An event without a numbered answer. `data`: JSON, or empty for an event without data.
pub fn event(name: &str, data: &str) -> String {
    packet(name, data, false)
}

/// A call: the server answers with the number inserted for `{id}`.
pub fn call(name: &str, data: &str) -> String {
    packet(name, data, true)
}

/// A message to a channel. `answered`: the server confirms it, like a call.
pub fn publish(channel: &str, data: &str, answered: bool) -> String {
    packet("#publish", &channel_data(channel, data), answered)
}

/// Appends the first message of every connection: call `HANDSHAKE_ID`, without a token of authentication.
pub fn write_handshake(out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, r##"{{"event":"#handshake","data":{{"authToken":null}},"cid":{HANDSHAKE_ID}}}"##);
}

/// Appends the call that joins a channel.
pub fn write_subscribe(out: &mut Vec<u8>, channel: &str, id: u64) {
    let _ = write!(out, r##"{{"event":"#subscribe","data":{},"cid":{id}}}"##, channel_data(channel, ""));
}

/// The answer to a heartbeat: a whole message, which is empty for version 20.
pub fn heartbeat_answer(version: Version) -> &'static str {
    match version {
        Version::V14 => "#2",
        Version::V20 => "",
    }
}

/// Appends the answer, without data, to a call from the server.
pub fn write_answer(out: &mut Vec<u8>, cid: u64) {
    let _ = write!(out, r#"{{"rid":{cid}}}"#);
}

/// The message before a close frame with code 1000, if the version has one.
pub fn disconnect(version: Version) -> Option<&'static str> {
    match version {
        Version::V14 => Some(r##"{"event":"#disconnect","data":{"code":1000}}"##),
        Version::V20 => None,
    }
}

/// A packet with its keys in the order of SocketCluster's own client.
fn packet(event: &str, data: &str, answered: bool) -> String {
    let mut text = format!(r#"{{"event":{}"#, quoted(event));
    if !data.is_empty() {
        text += r#","data":"#;
        text += data;
    }
    if answered {
        text += r#","cid":"#;
        text += ID_TOKEN;
    }
    text + "}"
}

fn channel_data(channel: &str, data: &str) -> String {
    match data {
        "" => format!(r#"{{"channel":{}}}"#, quoted(channel)),
        data => format!(r#"{{"channel":{},"data":{data}}}"#, quoted(channel)),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
