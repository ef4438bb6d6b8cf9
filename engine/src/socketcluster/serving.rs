//! A minimal server: it only answers single messages of a client. It has no heartbeats, channels or authentication;
//! versions 14 and 20 get equal answers.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::incoming::object;

/// Accepts a handshake, answers a call with its own data, and returns any other message unchanged.
pub fn answer(message: &[u8]) -> Cow<'_, [u8]> {
    let Some(Call { event, cid, data }) = object(message) else { return Cow::Borrowed(message) };
    let data = match (&*event, data) {
        // Without `pingTimeout` a client waits for no heartbeat.
        ("#handshake", _) => r#"{"id":"reference","isAuthenticated":false}"#,
        (_, Some(data)) => data.get(),
        (_, None) => return Cow::Owned(format!(r#"{{"rid":{cid}}}"#).into_bytes()),
    };
    Cow::Owned(format!(r#"{{"rid":{cid},"data":{data}}}"#).into_bytes())
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    cid: u64,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::super::incoming::{HandshakeAnswer, Incoming, classify, handshake_answer};
    use super::super::{HANDSHAKE_ID, Version, outgoing};
    use super::*;

    fn text(message: &str) -> String {
        String::from_utf8(answer(message.as_bytes()).into_owned()).expect("is text")
    }

    #[test]
    fn the_handshake_is_accepted_and_no_heartbeat_promised() {
        let mut hello = Vec::new();
        outgoing::write_handshake(&mut hello);
        let accepted = Some(HandshakeAnswer::Accepted { ping_timeout_ns: None });
        assert_eq!(handshake_answer(&answer(&hello)), accepted);
        assert_eq!(HANDSHAKE_ID, 1);
    }

    #[test]
    fn calls_are_answered_by_their_number_with_their_data() {
        let call = outgoing::call("add", "[1,2]").replace("{id}", "7");
        assert_eq!(text(&call), r#"{"rid":7,"data":[1,2]}"#);
        let mut subscribe = Vec::new();
        outgoing::write_subscribe(&mut subscribe, "news", 3);
        assert_eq!(classify(Version::V20, &answer(&subscribe)), Incoming::Reply { rid: 3, failed: false });
        assert_eq!(text(&outgoing::call("noop", "").replace("{id}", "8")), r#"{"rid":8}"#);
    }

    #[test]
    fn what_is_no_call_comes_back_as_it_is() {
        let event = outgoing::event("ping", r#"{"hello":1}"#);
        for message in [&event, "#2", "", "[1]", r#"["add",7,[1]]"#, "{", r#"{"event":7,"cid":1}"#] {
            assert_eq!(text(message), *message, "{message}");
        }
    }
}
