use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::Version::{V14, V20};
use super::incoming::{HandshakeAnswer, Incoming, classify, handshake_answer, packets};
use super::oracle::by_tree;
use super::{HANDSHAKE_ID, Version, outgoing};

fn event(name: &str) -> Incoming<'_> {
    Incoming::Event { name: name.into(), cid: None }
}

fn reply(rid: u64) -> Incoming<'static> {
    Incoming::Reply { rid, failed: false }
}

/// Messages of real servers (`testdata`): a version, the meaning, and the text, one per line.
#[test]
fn what_real_servers_say_is_understood() {
    let mut lines = 0;
    for line in include_str!("testdata/servers.txt").lines().filter(|line| !line.starts_with('#')) {
        let (version, rest) = line.split_once(' ').expect("a version");
        let (meaning, text) = rest.split_once(" | ").expect("a meaning and a text");
        let version = if version == "14" { V14 } else { V20 };
        let found: Vec<_> = packets(text.as_bytes()).map(|packet| classify(version, packet)).collect();
        assert_eq!(found.iter().map(name_of).collect::<Vec<_>>().join(" "), meaning, "{line}");
        lines += 1;
    }
    assert!(lines > 20);
}

fn name_of(incoming: &Incoming) -> String {
    match incoming {
        Incoming::Reply { rid, failed: false } => format!("reply:{rid}"),
        Incoming::Reply { rid, failed: true } => format!("error:{rid}"),
        Incoming::Event { name, cid: None } => format!("event:{}", name.escape_debug()),
        Incoming::Event { name, cid: Some(cid) } => format!("event:{}:{cid}", name.escape_debug()),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[test]
fn keys_may_come_in_any_order_and_hold_escapes_and_spaces() {
    for text in [
        r#"{"event":"pong","data":{"count":1}}"#,
        r#"{"data":{"event":"other","rid":3},"event":"pong"}"#,
        r#" { "event" : "p\u006fng" , "data" : "\"rid\":1" } "#,
        r#"{"\u0065vent":"pong","extra":[{"rid":1}]}"#,
        r#"{"event":"pong","rid":1}"#,
    ] {
        assert_eq!(classify(V20, text.as_bytes()), event("pong"), "{text}");
    }
    let strange = r#"{"event":"a \"b\" \\ \n é \ud83d\ude00"}"#;
    assert_eq!(classify(V14, strange.as_bytes()), event("a \"b\" \\ \n é 😀"));
    for text in [r#"{"rid":7}"#, r#"{"data":{"rid":1},"rid":7,"error":null}"#, r#"{"rid":"7"}"#, "{\"rid\"\n:\t7}"] {
        assert_eq!(classify(V20, text.as_bytes()), reply(7), "{text}");
    }
    let failed = Incoming::Reply { rid: 7, failed: true };
    for text in [r#"{"rid":7,"error":{"name":"E"}}"#, r#"{"error":"no","rid":7}"#, r#"{"rid":7,"error":false}"#] {
        assert_eq!(classify(V14, text.as_bytes()), failed, "{text}");
    }
}

#[test]
fn each_version_has_its_own_heartbeat_and_farewell() {
    for (version, text, expected) in [
        (V14, "#1", Incoming::Heartbeat),
        (V14, "", Incoming::Unknown),
        (V20, "", Incoming::Heartbeat),
        (V20, "#1", Incoming::Unknown),
        (V14, r##"{"event":"#disconnect","data":{"code":1000}}"##, Incoming::Disconnect),
        (V20, r##"{"event":"#disconnect"}"##, event("#disconnect")),
        (V14, r##"{"event":"#kickOut","data":{"channel":"c"}}"##, Incoming::KickOut),
        (V20, r##"{"event":"#publish","data":{"channel":"c","data":1}}"##, Incoming::Delivery),
    ] {
        assert_eq!(classify(version, text.as_bytes()), expected, "{version:?} {text}");
    }
    let asked = classify(V14, br##"{"event":"#setAuthToken","data":{"token":"t"},"cid":1}"##);
    assert_eq!(asked, Incoming::Event { name: "#setAuthToken".into(), cid: Some(1) });
}

#[test]
fn what_is_no_packet_is_unknown() {
    for text in [
        "{",
        "{}",
        "[]",
        "null",
        "1",
        "\"event\"",
        "#2",
        "hello",
        "{\"event\":\"pong\"",
        "{\"event\":\"pong\"}}",
        "{\"event\":\"pong\"} x",
        "{event:\"pong\"}",
        "{'event':'pong'}",
        "{\"event\":\"po\nng\"}",
        "{\"rid\":01}",
        "{\"rid\":-1}",
        "{\"rid\":1.5}",
        "{\"rid\":\"+1\"}",
        "{\"rid\":\"\"}",
        "{\"rid\":true}",
        "{\"rid\":{}}",
        "{\"rid\":18446744073709551616}",
        "{\"event\":5}",
        "{\"event\":null}",
        "{\"rid\":1,\"rid\":2}",
        "{\"event\":\"pong\",\"data\":tru}",
        "{\"event\":\"pong\",\"data\":{]}}",
        "{\"Event\":\"pong\"}",
        "[\"pong\",1,2,null]",
        "[{\"event\":\"pong\"}",
        "{\"data\":{\"event\":\"pong\"}}",
    ] {
        for packet in packets(text.as_bytes()) {
            assert_eq!(classify(V20, packet), Incoming::Unknown, "{text}");
        }
    }
}

#[test]
fn a_batch_is_its_packets() {
    let text = r##" [{"event":"pong","data":[1,"]"]}, {"rid":2 },7,[{"rid":3}],{"event":"#publish"},""] "##;
    let parts: Vec<_> = packets(text.as_bytes()).collect();
    assert_eq!(parts[0], br#"{"event":"pong","data":[1,"]"]}"#, "each has its own text");
    let found: Vec<_> = parts.into_iter().map(|packet| classify(V20, packet)).collect();
    let unknown = Incoming::Unknown;
    assert_eq!(found, [event("pong"), reply(2), unknown.clone(), unknown.clone(), Incoming::Delivery, unknown]);
    assert_eq!(packets(b"[]").count(), 0);
    assert_eq!(packets(b"[1").collect::<Vec<_>>(), [b"[1"]);
    assert_eq!(packets(b"").collect::<Vec<_>>(), [b""], "the heartbeat of version 20");
}

#[test]
fn the_answer_to_the_handshake_says_how_long_silence_may_last() {
    let accepted = |ping_timeout_ns| Some(HandshakeAnswer::Accepted { ping_timeout_ns });
    for (text, expected) in [
        (r#"{"rid":1,"data":{"id":"x","pingTimeout":20000,"isAuthenticated":false}}"#, accepted(Some(20_000_000_000))),
        (r#"{"data":{"pingTimeout":0.5},"rid":1}"#, accepted(Some(500_000))),
        (
            r#"{"rid":1,"data":{"pingTimeout":5,"authError":{"name":"AuthTokenExpiredError"}}}"#,
            accepted(Some(5_000_000)),
        ),
        (r#"{"rid":1,"data":{"pingTimeout":1e300}}"#, accepted(Some(u64::MAX))),
        (r#"{"rid":1,"data":{"pingTimeout":-5}}"#, accepted(None)),
        (r#"{"rid":1,"data":{"pingTimeout":"soon"}}"#, accepted(None)),
        (r#"{"rid":1,"data":{}}"#, accepted(None)),
        (r#"{"rid":1,"data":[20000]}"#, accepted(None)),
        (r#"{"rid":1,"data":null}"#, accepted(None)),
        (r#"{"rid":1}"#, accepted(None)),
        (r#"{"rid":1,"error":{"name":"E"},"data":{"code":4008}}"#, Some(HandshakeAnswer::Refused)),
        (r#"{"rid":2,"data":{"pingTimeout":5}}"#, None),
        (r##"{"event":"#removeAuthToken"}"##, None),
        (r#"{"event":"pong","rid":1}"#, None),
        (r#"[1,null,{"pingTimeout":5}]"#, None),
        ("", None),
    ] {
        assert_eq!(handshake_answer(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn messages_are_written_as_the_own_client_writes_them() {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("text")
    };
    let handshake = written(&outgoing::write_handshake);
    assert_eq!(handshake, r##"{"event":"#handshake","data":{"authToken":null},"cid":1}"##);
    let subscribe = written(&|out| outgoing::write_subscribe(out, "news \"1\"", 2));
    assert_eq!(subscribe, r##"{"event":"#subscribe","data":{"channel":"news \"1\""},"cid":2}"##);
    assert_eq!(written(&|out| outgoing::write_answer(out, 3)), r#"{"rid":3}"#);
    assert_eq!(outgoing::event("ping", r#"{"n":{id}}"#), r#"{"event":"ping","data":{"n":{id}}}"#);
    assert_eq!(outgoing::event("pi\"ng", ""), r#"{"event":"pi\"ng"}"#);
    assert_eq!(outgoing::call("add", "[1]"), r#"{"event":"add","data":[1],"cid":{id}}"#);
    let publish = outgoing::publish("c", "{stamp}", true);
    assert_eq!(publish, r##"{"event":"#publish","data":{"channel":"c","data":{stamp}},"cid":{id}}"##);
    assert_eq!(outgoing::publish("c", "1", false), r##"{"event":"#publish","data":{"channel":"c","data":1}}"##);
    assert_eq!(outgoing::heartbeat_answer(V14), "#2");
    assert_eq!(outgoing::heartbeat_answer(V20), "");
    assert_eq!(outgoing::disconnect(V14), Some(r##"{"event":"#disconnect","data":{"code":1000}}"##));
    assert_eq!(outgoing::disconnect(V20), None);
}

/// Texts that look like a part of a packet, used where they are none.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        prop::sample::select(vec![
            "pong",
            "#publish",
            "#kickOut",
            "#disconnect",
            "#removeAuthToken",
            "\"rid\":1",
            "\"event\":\"pong\"",
            "}",
            "]",
            "\\",
            "\"",
            "\u{0}",
            "{\"rid\":1}",
        ])
        .prop_map(str::to_owned),
    ]
}

fn data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let keys = prop_oneof![texts(), prop::sample::select(vec!["rid", "event", "cid"]).prop_map(str::to_owned)];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4).prop_map(|keys| Value::Object(keys.into_iter().collect())),
        ]
    })
}

/// Packets as servers send them, with keys in any order.
fn texts_of_packets() -> impl Strategy<Value = String> {
    let events = (texts(), data(), prop::option::of(0..u64::MAX)).prop_map(|(name, data, cid)| {
        let mut keys = vec![("event", json!(name)), ("data", data)];
        keys.extend(cid.map(|cid| ("cid", json!(cid))));
        keys
    });
    let replies = (any::<u64>(), prop::option::of(data()), prop::option::of(data())).prop_map(|(rid, data, error)| {
        let mut keys = vec![("rid", json!(rid))];
        keys.extend(data.map(|data| ("data", data)));
        keys.extend(error.map(|error| ("error", error)));
        keys
    });
    let ordered = prop_oneof![events, replies].prop_shuffle();
    ordered.prop_map(|keys| {
        let parts: Vec<String> = keys.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", parts.join(","))
    })
}

fn versions() -> impl Strategy<Value = Version> {
    prop::sample::select(vec![V14, V20])
}

proptest! {
    #[test]
    fn it_agrees_with_a_tree(version in versions(), text in texts_of_packets()) {
        prop_assert_eq!(classify(version, text.as_bytes()), by_tree(version, text.as_bytes()));
    }

    #[test]
    fn a_packet_cut_short_is_unknown(version in versions(), text in texts_of_packets(), cut: prop::sample::Index) {
        let part = &text.as_bytes()[..cut.index(text.len() - 1) + 1];
        prop_assert_eq!(classify(version, part), Incoming::Unknown);
        prop_assert_eq!(handshake_answer(part), None);
    }

    #[test]
    fn a_changed_packet_is_what_it_has_become_or_unknown(
        version in versions(),
        text in texts_of_packets(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..0x80u8), 1..4),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // Other bytes are no text message.
        prop_assume!(std::str::from_utf8(&bytes).is_ok());
        let found = classify(version, &bytes);
        // A tree takes the last of two equal keys.
        prop_assert!(found == Incoming::Unknown || found == by_tree(version, &bytes), "{found:?}");
    }

    #[test]
    fn a_batch_is_what_its_packets_are(version in versions(), texts in prop::collection::vec(texts_of_packets(), 0..5)) {
        let batch = format!("[{}]", texts.join(" ,\n"));
        let parts: Vec<&[u8]> = packets(batch.as_bytes()).collect();
        prop_assert_eq!(&parts, &texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>());
        for (part, text) in parts.iter().zip(&texts) {
            prop_assert_eq!(classify(version, part), by_tree(version, text.as_bytes()));
        }
    }

    #[test]
    fn what_is_written_is_json_that_says_what_was_meant(name in texts(), channel in texts(), data in data(), id in 2..u64::MAX) {
        let parsed = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
        let data_text = data.to_string();
        prop_assert_eq!(parsed(&outgoing::event(&name, &data_text)), json!({"event": name, "data": data}));
        let publish = parsed(&outgoing::publish(&channel, &data_text, false));
        prop_assert_eq!(publish, json!({"event": "#publish", "data": {"channel": channel, "data": data}}));
        let mut subscribe = Vec::new();
        outgoing::write_subscribe(&mut subscribe, &channel, id);
        let expected = json!({"event": "#subscribe", "data": {"channel": channel}, "cid": id});
        prop_assert_eq!(serde_json::from_slice::<Value>(&subscribe).expect("JSON"), expected);
    }

    #[test]
    fn no_bytes_make_it_panic(version in versions(), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for packet in packets(&bytes) {
            classify(version, packet);
            handshake_answer(packet);
        }
    }

    #[test]
    fn the_handshake_is_answered_by_its_number_alone(rid in any::<u64>(), data in data()) {
        let mut answer = Map::new();
        answer.insert("rid".to_owned(), json!(rid));
        answer.insert("data".to_owned(), data);
        let text = Value::Object(answer).to_string();
        prop_assert_eq!(handshake_answer(text.as_bytes()).is_some(), rid == HANDSHAKE_ID);
    }
}
