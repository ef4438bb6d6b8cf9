//! What a client says, as text. Messages of steps are made once, when a plan is made: they may hold the tokens `{id}`,
//! `{stamp}` and `{user}`, which whoever sends them fills in. The rest is appended to the text of one message.

use std::io::Write;

use super::{HANDSHAKE_ID, Version};

/// Stands for the number of a call: the caller puts it in, as in every other message.
const ID_TOKEN: &str = "{id}";

/// An event without an answer by number. `data`: JSON, or empty for an event without data.
pub fn event(name: &str, data: &str) -> String {
    packet(name, data, false)
}

/// A call: the server answers with the number that stands where `{id}` does.
pub fn call(name: &str, data: &str) -> String {
    packet(name, data, true)
}

/// To a channel. `answered`: the server confirms it, like a call.
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

/// What answers a heartbeat: a whole message, and for version 20 an empty one.
pub fn heartbeat_answer(version: Version) -> &'static str {
    match version {
        Version::V14 => "#2",
        Version::V20 => "",
    }
}

/// Appends the answer, without data, to a call of the server's.
pub fn write_answer(out: &mut Vec<u8>, cid: u64) {
    let _ = write!(out, r#"{{"rid":{cid}}}"#);
}

/// The message that comes before a close frame with code 1000, where there is one.
pub fn disconnect(version: Version) -> Option<&'static str> {
    match version {
        Version::V14 => Some(r##"{"event":"#disconnect","data":{"code":1000}}"##),
        Version::V20 => None,
    }
}

/// In the order in which SocketCluster's own client writes the keys.
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
