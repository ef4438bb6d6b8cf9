//! The load engine's users in the dialects of SocketCluster, against scripted servers: how they join, which message
//! answers which, what is delivered, and what keeps or ends a connection.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::load_support::{MS, histogram, number, sum};
use crate::websocket_support::*;
use serde_json::{Value, json};

const DIALECTS: [&str; 2] = ["socketcluster14", "socketcluster20"];
const HANDSHAKE: &str = r##"{"event":"#handshake","data":{"authToken":null},"cid":1}"##;
const ACCEPTED: &str = r#"{"rid":1,"data":{"id":"x-1","pingTimeout":20000,"isAuthenticated":false}}"#;
const CLOSE_1000: &[u8] = b"\x03\xe8";

/// A server on whose connections SocketCluster's handshake is done before the script begins.
fn serve_joined(script: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    serve_opened(move |mut peer| {
        if let Some(text) = peer.text() {
            assert_eq!(text, HANDSHAKE);
            peer.say(ACCEPTED);
            script(peer);
        }
    })
}

/// A channel from scripts to the test.
fn told<T: Send>() -> (Arc<Mutex<Sender<T>>>, Receiver<T>) {
    let (sender, receiver) = channel();
    (Arc::new(Mutex::new(sender)), receiver)
}

fn next<T>(told: &Receiver<T>) -> T {
    told.recv_timeout(Duration::from_secs(10)).expect("the script says it")
}

fn ping() -> Value {
    json!({"name": "ping", "message": {"kind": "event", "event": "ping", "data": "{\"n\":{id}}", "answer": "pong"}})
}

fn call() -> Value {
    json!({"name": "add", "message": {"kind": "call", "event": "add", "data": "[{user},2]"}, "checks": {"body_contains": ["sum"]}})
}

/// Two users of a dialect with pings.
fn pinging(address: SocketAddr, dialect: &str) -> Value {
    let mut spec = spec(address, json!({"dialect": dialect}));
    spec["scenario"] = json!([ping()]);
    spec
}

#[test]
fn events_are_answered_by_name_and_calls_by_number() {
    for dialect in DIALECTS {
        let (sender, farewells) = told();
        let heartbeat = if dialect == "socketcluster14" { ("#1", "#2") } else { ("", "") };
        let address = serve_joined(move |mut peer| {
            let (mut count, mut beats) = (0, 0);
            let last = loop {
                let Some((first, payload)) = peer.frame() else { panic!("users take their leave") };
                if first == CLOSE {
                    break (payload, beats);
                }
                let text = String::from_utf8(payload).unwrap();
                if text == heartbeat.1 {
                    beats += 1;
                    continue;
                }
                let packet: Value = serde_json::from_str(&text).unwrap();
                match packet["event"].as_str().unwrap() {
                    "ping" => {
                        assert!(packet.get("cid").is_none() && packet["data"]["n"].is_u64(), "{text}");
                        count += 1;
                        peer.say(heartbeat.0);
                        peer.say(&format!(r#"{{"data":{{"count":{count},"pid":7}},"event":"p\u006fng"}}"#));
                    }
                    "add" => {
                        // The wrong number comes first, then another event, then the answer.
                        let cid = packet["cid"].as_u64().unwrap();
                        peer.say(r#"[{"rid":777},{"event":"tick","data":{"rid":1}}]"#);
                        peer.say(&format!(r#"{{"rid":{cid},"data":{{"sum":2}}}}"#));
                    }
                    "#disconnect" => assert!(dialect == "socketcluster14" && packet["data"]["code"] == 1000),
                    other => panic!("{other}"),
                }
            };
            sender.lock().unwrap().send(last).unwrap();
        });
        let tally = json!({"label_after": "\"pid\":", "count_after": "\"count\":"});
        let mut spec = spec(address, json!({"dialect": dialect, "tally": tally}));
        spec["model"]["requests_per_user"] = json!(6);
        spec["scenario"] = json!([ping(), call()]);
        let summary = run(&spec);
        assert_eq!(summary["total"]["outcomes"], json!({"ok": 12}), "{dialect}");
        let websocket = &summary["websocket"];
        assert_eq!((&websocket["tallies"], number(&websocket["unmatched"])), (&json!({"7": 3}), 12), "{websocket}");
        for _ in 0..2 {
            assert_eq!(next(&farewells), (CLOSE_1000.to_vec(), 3), "{dialect}");
        }
    }
}

#[test]
fn users_subscribe_before_their_first_step_and_hear_what_is_published() {
    for dialect in DIALECTS {
        let everyone = Arc::new(Mutex::new(Vec::new()));
        let address = serve_joined(move |mut peer| {
            let asked: Vec<Value> = (0..2).map(|_| serde_json::from_str(&peer.text().unwrap()).unwrap()).collect();
            for (packet, channel) in asked.iter().zip(["news", "more \"news\""]) {
                assert_eq!(packet, &json!({"event": "#subscribe", "data": {"channel": channel}, "cid": packet["cid"]}));
            }
            // No other message may come before both are confirmed. They may be confirmed together.
            pause(20);
            peer.say(&format!(r#"[{{"rid":{}}},{{"rid":{}}}]"#, asked[1]["cid"], asked[0]["cid"]));
            everyone.lock().unwrap().push(peer.stream.try_clone().unwrap());
            while let Some(text) = peer.text() {
                let packet: Value = serde_json::from_str(&text).unwrap();
                if packet["event"] != "#publish" {
                    continue;
                }
                let delivery = json!({"event": "#publish", "data": packet["data"]}).to_string();
                for stream in everyone.lock().unwrap().iter_mut() {
                    let _ = std::io::Write::write_all(stream, &frame(TEXT, delivery.as_bytes()));
                }
                peer.say(&format!(r#"{{"rid":{}}}"#, packet["cid"]));
            }
            pause(300);
        });
        let websocket = json!({"dialect": dialect, "subscribe": ["news", "more \"news\""], "stamp_after": "\"at\":"});
        let mut spec = timed(address, websocket, 1_000);
        spec["model"] = json!({"kind": "closed", "users": 3, "pace": {"kind": "constant", "ns": 50 * MS}});
        let publish = json!({"kind": "publish", "channel": "news", "data": "{\"at\":{stamp}}"});
        spec["scenario"] = json!([{"name": "publish", "message": publish}]);
        spec["phases"]["warmup_ns"] = json!(500 * MS);
        let summary = run(&spec);
        let websocket = &summary["websocket"];
        let get = |field: &str| number(&websocket[field]);
        assert_eq!(summary["total"]["outcomes"], json!({"ok": get("published")}), "{dialect}");
        assert!(get("published_in_window") >= 10, "{websocket}");
        assert_eq!(get("delivered_in_window"), 3 * get("published_in_window"), "{websocket}");
        assert!(histogram(&websocket["join_time_ns"]).min() >= 20 * MS, "subscribing is a part of joining");
        assert_eq!((get("unmatched"), get("unsolicited")), (0, 0));
    }
}

#[test]
fn who_is_refused_sends_nothing() {
    type Script = fn(Peer);
    let refused: [(&str, Script, &str); 5] = [
        (
            "socketcluster14",
            |mut peer| {
                peer.say(r##"{"rid":1,"error":{"message":"full"},"data":{"code":4501}}"##);
                peer.say(r##"{"event":"#disconnect","data":{"code":4501}}"##);
                peer.send(&frame(CLOSE, b"\x11\x95"));
                peer.hold();
            },
            "handshake_refused",
        ),
        (
            "socketcluster20",
            |mut peer| {
                peer.say(r#"{"rid":1,"error":{"message":"full","statusCode":4501}}"#);
                peer.send(&frame(CLOSE, b"\x11\x95full"));
                peer.hold();
            },
            "handshake_refused",
        ),
        (
            "socketcluster20",
            |mut peer| {
                peer.say(ACCEPTED);
                let packet: Value = serde_json::from_str(&peer.text().unwrap()).unwrap();
                peer.say(&format!(r#"{{"rid":{},"error":{{"name":"JoinError"}}}}"#, packet["cid"]));
                peer.hold();
            },
            "handshake_refused",
        ),
        // Neither a heartbeat nor another answer is taken for the answer to the handshake.
        (
            "socketcluster20",
            |mut peer| {
                peer.say("");
                peer.say(r#"{"rid":2,"data":{"pingTimeout":5000}}"#);
                peer.hold();
            },
            "connect_timeout",
        ),
        ("socketcluster14", |mut peer| _ = peer.send(&frame(CLOSE, b"\x0f\xa8")), "handshake_refused"),
    ];
    for (dialect, script, outcome) in refused {
        let address = serve_opened(move |mut peer| {
            if peer.text().is_some() {
                script(peer);
            }
        });
        let mut spec = pinging(address, dialect);
        spec["connection"]["websocket"]["subscribe"] = json!(["news"]);
        spec["timeouts"]["connect_ns"] = json!(1_000 * MS);
        let summary = run(&spec);
        assert_eq!(summary["websocket"]["joins_failed"], json!({outcome: 2}), "{dialect}");
        assert_eq!((number(&summary["total"]["scheduled"]), &summary["ended_by"]), (0, &json!("work")));
    }
}

#[test]
fn a_token_that_is_refused_is_no_refusal() {
    let address = serve_opened(|mut peer| {
        peer.text();
        peer.say(r##"{"event":"#removeAuthToken","data":null}"##);
        peer.say(r#"{"rid":1,"data":{"pingTimeout":5000,"authError":{"name":"AuthTokenInvalidError"}}}"#);
        while peer.text().is_some_and(|text| text.contains("ping")) {
            peer.say(r#"{"event":"pong"}"#);
        }
    });
    let summary = run(&pinging(address, "socketcluster14"));
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 6}));
    assert_eq!(number(&summary["websocket"]["unsolicited"]), 2);
}

#[test]
fn what_a_server_says_of_its_own_accord_answers_nothing_and_its_calls_are_answered() {
    let (sender, answers) = told();
    let address = serve_joined(move |mut peer| {
        while let Some(text) = peer.text() {
            if !text.contains("\"ping\"") {
                sender.lock().unwrap().send(text).unwrap();
                continue;
            }
            for own in [
                r##"{"event":"#setAuthToken","data":{"token":"t"},"cid":5}"##,
                r##"{"event":"#kickOut","data":{"channel":"news","message":"pong"}}"##,
                r#"{"event":"ask","cid":6,"data":"\"event\":\"pong\""}"#,
                r##"{"event":"#publish","data":{"channel":"c","data":{"event":"pong"}}}"##,
                r#"{"event":"pong""#,
                r#"{"event":"pong"}"#,
            ] {
                peer.say(own);
            }
        }
    });
    let mut spec = pinging(address, "socketcluster20");
    spec["model"] = json!({"kind": "closed", "users": 1, "requests_per_user": 3});
    let summary = run(&spec);
    assert_eq!(summary["total"]["outcomes"], json!({"ok": 3}));
    let websocket = &summary["websocket"];
    // The event that nobody waits for, and the text that is no packet.
    assert_eq!((number(&websocket["unsolicited"]), number(&websocket["unmatched"])), (9, 6), "{websocket}");
    let answers: Vec<String> = (0..6).map(|_| next(&answers)).collect();
    assert_eq!(answers, [r#"{"rid":5}"#, r#"{"rid":6}"#].repeat(3));
}

#[test]
fn an_error_fails_the_check_of_a_call() {
    let address = serve_joined(|mut peer| {
        while let Some(text) = peer.text() {
            let packet: Value = serde_json::from_str(&text).unwrap();
            if packet["event"] == "add" {
                peer.say(&format!(r#"{{"rid":{},"error":{{"message":"no sum"}}}}"#, packet["cid"]));
            }
        }
    });
    let mut spec = pinging(address, "socketcluster20");
    spec["scenario"] = json!([call()]);
    assert_eq!(run(&spec)["total"]["outcomes"], json!({"check_failed": 6}));
}

#[test]
fn silence_ends_a_user_and_heartbeats_keep_it() {
    for (dialect, heartbeat, answer) in [("socketcluster14", "#1", "#2"), ("socketcluster20", "", "")] {
        for beats in [true, false] {
            let address = serve_opened(move |mut peer| {
                peer.text();
                peer.say(r#"{"rid":1,"data":{"pingTimeout":600}}"#);
                if !beats {
                    return peer.hold();
                }
                pause(50);
                while peer.say(heartbeat) && peer.text().as_deref() == Some(answer) {
                    pause(50);
                }
            });
            let mut spec = timed(address, json!({"dialect": dialect}), 1_200);
            let think = json!({"kind": "constant", "ns": 60_000 * MS});
            spec["scenario"] = json!([ping()]);
            spec["model"] = json!({"kind": "closed", "users": 2, "think": think});
            spec["phases"]["drain_ns"] = json!(0);
            let summary = run(&spec);
            let websocket = &summary["websocket"];
            assert_eq!(number(&websocket["joined"]), 2);
            let dropped = if beats { json!({}) } else { json!({"heartbeat": 2}) };
            assert_eq!(websocket["drops"], dropped, "{dialect}, heartbeats: {beats}");
        }
    }
}

#[test]
fn a_server_that_disconnects_tells_why() {
    let address = serve_joined(|mut peer| {
        peer.text();
        peer.say(r##"{"event":"#disconnect","data":{"code":4200,"data":"enough"}}"##);
        peer.send(&frame(CLOSE, b"\x10\x68"));
        peer.hold();
    });
    let summary = run(&pinging(address, "socketcluster14"));
    let websocket = &summary["websocket"];
    assert_eq!((&websocket["drops"], &websocket["close_codes"]), (&json!({"closed": 2}), &json!({"4200": 2})));
    assert_eq!(summary["total"]["outcomes"], json!({"closed_early": 2}));
    assert_eq!(sum(&websocket["joins_failed"]), 0);
}
