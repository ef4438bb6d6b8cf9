use proptest::prelude::*;

use super::*;
use crate::contract::spec::LoadSpec;
use crate::load::flight::COHORT;
use crate::websocket::handshake;
use crate::websocket::reader::Rules;
use serde_json::{Value, json};

/// A session with its plan, and the server's end of its connection.
struct Pair {
    plan: MessagesPlan,
    session: Session,
    desk: Desk,
    server: Reader,
}

const CLIENTS: Rules = Rules { peer_masks: true, message_bytes_max: 1 << 20 };

impl Pair {
    fn new(websocket: Value, scenario: Value) -> Pair {
        let json = json!({
            "protocol": 1, "target": {"url": "http://a:1"}, "scenario": scenario,
            "model": {"kind": "closed", "users": 1}, "connection": {"websocket": websocket},
            "phases": {"drain_ns": 0, "deadline_ns": 1}
        });
        let spec: LoadSpec = serde_json::from_value(json).unwrap();
        crate::load::check::check(&spec).unwrap();
        let plan = MessagesPlan::new(&spec, "a:1").unwrap();
        Pair { plan, session: Session::default(), desk: Desk::default(), server: Reader::default() }
    }

    /// A pair of the plain dialect whose user has joined and sends these texts.
    fn joined(websocket: Value, texts: &[&str]) -> Pair {
        let step = |text: &&str| json!({"name": "s", "message": {"kind": "text", "text": text}});
        let mut pair = Pair::new(websocket, texts.iter().map(step).collect());
        pair.accept();
        assert_eq!(pair.heard(), [Heard::Joined]);
        pair
    }

    /// Opens the session, and answers as a server does.
    fn accept(&mut self) {
        self.session.open(&self.plan, &mut self.desk);
        let request = std::mem::take(&mut self.desk.out);
        let mut answer = Vec::new();
        handshake::write_answer(&mut answer, &handshake::accept(&request).unwrap());
        self.receive(&answer);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.session.hear(&self.plan, &mut bytes.to_vec(), &mut self.desk);
    }

    fn receive_text(&mut self, text: &str) {
        let mut frame = Vec::new();
        write_frame(&mut frame, Opcode::Text, None, text.as_bytes());
        self.receive(&frame);
    }

    fn heard(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.desk.heard)
    }

    fn say(&mut self, step: u16) -> Flight {
        let flight = Flight { intended_ns: 5, sent_ns: 7, step: step | COHORT };
        self.session.say(&self.plan.steps[usize::from(step)], flight, 3, &mut self.desk);
        flight
    }

    /// The messages that the server receives: texts, and other frames as opcode and payload.
    fn sent(&mut self) -> Vec<String> {
        let mut out = std::mem::take(&mut self.desk.out);
        let (mut rest, mut sent) = (&mut out[..], Vec::new());
        while !rest.is_empty() {
            let (used, event) = self.server.read(&CLIENTS, rest).unwrap();
            sent.push(match event.unwrap() {
                Event::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                other => format!("{other:?}"),
            });
            rest = &mut rest[used..];
        }
        sent
    }
}

fn answer(flight: Flight, ok: bool) -> Heard {
    Heard::Answer { flight, ok }
}

#[test]
fn answers_come_in_order_and_may_be_what_is_expected() {
    let mut pair = Pair::joined(json!({"unsolicited": ["news"]}), &["one", "u{user} n{id} at {stamp}"]);
    pair.plan.steps[1].expects = vec![crate::scan::Mark::new("good")];
    let flights = [pair.say(0), pair.say(1), pair.say(1)];
    assert_eq!(pair.sent(), ["one", "u3 n2 at 7", "u3 n3 at 7"]);
    for text in ["first", "news", "no g o o d", "all good", "too much"] {
        pair.receive_text(text);
    }
    let expected = [answer(flights[0], true), Heard::Unsolicited, answer(flights[1], false), answer(flights[2], true)];
    assert_eq!(pair.heard(), [&expected[..], &[Heard::Unmatched]].concat());
    assert_eq!(pair.session.unanswered(), 0);
}

#[test]
fn numbers_tell_which_request_an_answer_belongs_to() {
    let mut pair = Pair::joined(json!({"matching": {"kind": "id", "after": "re:"}}), &["{id}"]);
    let flights = [pair.say(0), pair.say(0), pair.say(0)];
    for text in ["re:2", "re:2", "re:9", "no number", "re:3", "re:1"] {
        pair.receive_text(text);
    }
    let unmatched = [Heard::Unmatched; 3];
    let [one, two, three] = flights.map(|flight| answer(flight, true));
    assert_eq!(pair.heard(), [&[two][..], &unmatched, &[three, one]].concat());
}

#[test]
fn deliveries_answer_nothing_and_counts_are_kept() {
    let tally = json!({"label_after": "w:", "count_after": "n:"});
    let mut pair = Pair::joined(json!({"stamp_after": "at:", "tally": tally}), &["x"]);
    let flights = [pair.say(0), pair.say(0), pair.say(0)];
    for text in ["at:77 n:5", "w:a n:5", "w:a n:4", "w:b,n:1", "at:x"] {
        pair.receive_text(text);
    }
    let [one, two, three] = flights.map(|flight| answer(flight, true));
    assert_eq!(pair.heard(), [Heard::Delivery { stamp_ns: 77 }, one, two, three, Heard::Unmatched]);
    let tallies = pair.desk.tallies.iter().map(|(label, count)| (label.as_str(), *count));
    assert_eq!(tallies.collect::<Vec<_>>(), [("a", 5), ("b", 1)]);
}

#[test]
fn the_opening_handshake_may_come_in_pieces_and_with_frames_behind_it() {
    let mut pair = Pair::new(json!({}), json!([{"name": "s", "message": {"kind": "text", "text": "x"}}]));
    pair.session.open(&pair.plan, &mut pair.desk);
    let request = std::mem::take(&mut pair.desk.out);
    let mut bytes = Vec::new();
    handshake::write_answer(&mut bytes, &handshake::accept(&request).unwrap());
    write_frame(&mut bytes, Opcode::Text, None, b"hello");
    for piece in bytes.chunks(7) {
        pair.receive(piece);
    }
    assert_eq!(pair.heard(), [Heard::Joined, Heard::Unmatched]);
}

#[test]
fn answers_that_open_nothing_are_told_apart() {
    for (text, outcome, status) in [
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", Outcome::HandshakeRefused, Some(503)),
        ("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", Outcome::HandshakeRefused, None),
        ("SSH-2.0-OpenSSH\r\n", Outcome::BadResponse, None),
    ] {
        let mut pair = Pair::new(json!({}), json!([{"name": "s", "message": {"kind": "text", "text": "x"}}]));
        pair.session.open(&pair.plan, &mut pair.desk);
        pair.receive(text.as_bytes());
        assert_eq!(pair.heard(), [Heard::Refused { outcome, status }]);
    }
}

#[test]
fn pings_and_closes_are_answered_and_what_is_wrong_is_told() {
    let mut pair = Pair::joined(json!({}), &["x"]);
    pair.receive(b"\x89\x02hi\x8a\x00");
    assert_eq!(pair.sent(), ["Pong([104, 105])"]);
    pair.desk.crowded = true;
    pair.receive(b"\x89\x02hi");
    assert!(pair.sent().is_empty(), "who does not read gets no pongs");
    pair.receive(b"\x81\x01a\x88\x02\x03\xe9\x81\x01b");
    assert_eq!(pair.heard(), [Heard::Unmatched, Heard::Closed { code: Some(1001) }], "nothing follows a close");
    assert_eq!(pair.sent(), ["Close { code: Some(1001), reason: \"\" }"]);
    let mut pair = Pair::joined(json!({}), &["x"]);
    pair.receive(b"\x81\x81kkkk\x01");
    assert_eq!(pair.heard(), [Heard::Violated]);
    assert!(pair.sent()[0].starts_with("Close { code: Some(1002), reason: \"a server's frame with a mask"));
}

#[test]
fn masks_differ_from_frame_to_frame() {
    let mut pair = Pair::joined(json!({}), &["x"]);
    let mut keys: Vec<Vec<u8>> = (0..50)
        .map(|_| {
            pair.say(0);
            std::mem::take(&mut pair.desk.out)[2..6].to_vec()
        })
        .collect();
    keys.sort();
    keys.dedup();
    assert!(keys.len() > 45);
}

fn socketcluster(version: u8, scenario: Value) -> Pair {
    let dialect = format!("socketcluster{version}");
    Pair::new(json!({"dialect": dialect, "subscribe": ["a", "b"], "stamp_after": "\"at\":"}), scenario)
}

#[test]
fn socketcluster_users_join_in_steps() {
    let ping = json!([{"name": "s", "message": {"kind": "event", "event": "ping", "data": "1", "answer": "pong"}}]);
    let mut pair = socketcluster(20, ping.clone());
    pair.accept();
    assert_eq!(pair.sent(), [r##"{"event":"#handshake","data":{"authToken":null},"cid":1}"##]);
    pair.receive_text("");
    assert_eq!(pair.sent(), [""], "heartbeats are answered at once");
    pair.receive_text(r#"{"rid":1,"data":{"pingTimeout":20000}}"#);
    assert_eq!(pair.session.silence_ns_max(), Some(20_000_000_000));
    let subscribe =
        |channel: &str, id| format!(r##"{{"event":"#subscribe","data":{{"channel":"{channel}"}},"cid":{id}}}"##);
    assert_eq!(pair.sent(), [subscribe("a", 2), subscribe("b", 3)]);
    pair.receive_text(r#"{"rid":2}"#);
    assert_eq!(pair.heard(), []);
    pair.receive_text(r#"{"rid":2}"#);
    assert_eq!(pair.heard(), [Heard::Unmatched], "the second answer to one subscription confirms no other");
    pair.receive_text(r#"{"rid":3}"#);
    assert_eq!(pair.heard(), [Heard::Joined]);
    for refusing in [r#"{"rid":1,"error":{"name":"No"}}"#, r#"{"rid":1}|{"rid":2,"error":{}}"#] {
        let mut pair = socketcluster(14, ping.clone());
        pair.accept();
        refusing.split('|').for_each(|text| pair.receive_text(text));
        assert_eq!(pair.heard(), [Heard::Refused { outcome: Outcome::HandshakeRefused, status: None }]);
    }
}

#[test]
fn socketcluster_matches_events_by_name_and_calls_by_number() {
    let scenario = json!([
        {"name": "ping", "message": {"kind": "event", "event": "ping", "data": "1", "answer": "pong"}},
        {"name": "call", "message": {"kind": "call", "event": "add", "data": "[{id}]"}},
        {"name": "publish", "message": {"kind": "publish", "channel": "a", "data": "{\"at\":{stamp}}"}},
    ]);
    let mut pair = socketcluster(14, scenario);
    pair.accept();
    for text in [r#"{"rid":1}"#, r#"{"rid":2}"#, r#"{"rid":3}"#] {
        pair.receive_text(text);
    }
    assert_eq!(pair.heard(), [Heard::Joined]);
    pair.sent();
    let flights = [pair.say(0), pair.say(1), pair.say(1), pair.say(2)];
    assert_eq!(pair.sent()[1], r#"{"event":"add","data":[5],"cid":5}"#);
    pair.receive_text(r##"[{"rid":7},{"event":"pong","data":1},{"event":"pong"},{"rid":6,"error":1}]"##);
    pair.receive_text(r##"{"event":"#publish","data":{"channel":"a","data":{"at":7}}}"##);
    pair.receive_text(r##"{"event":"#setAuthToken","data":{},"cid":9}"##);
    pair.receive_text(r#"{"rid":5}"#);
    let [ping, call, wrong, publish] = flights;
    let expected = [
        answer(publish, true),
        answer(ping, true),
        Heard::Unmatched,
        answer(wrong, false),
        Heard::Delivery { stamp_ns: 7 },
        Heard::Unsolicited,
        answer(call, true),
    ];
    assert_eq!(pair.heard(), expected);
    assert_eq!(pair.sent(), [r#"{"rid":9}"#]);
    pair.receive_text("#1");
    assert_eq!(pair.sent(), ["#2"]);
    pair.session.take_leave(&pair.plan, &mut pair.desk);
    let farewell = [r##"{"event":"#disconnect","data":{"code":1000}}"##, "Close { code: Some(1000), reason: \"\" }"];
    assert_eq!(pair.sent(), farewell);
}

/// Frames of a server, valid and invalid ones.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let frame = (prop::sample::select(vec![0x81u8, 0x01, 0x80, 0x82, 0x89, 0x8a]), "[a-z:0-9\\[\\]]{0,12}");
    prop::collection::vec(frame, 0..20).prop_map(|frames| {
        let bytes = frames.into_iter().flat_map(|(first, text)| [&[first, text.len() as u8], text.as_bytes()].concat());
        bytes.collect()
    })
}

proptest! {
    #[test]
    fn a_stream_cut_anywhere_means_the_same(bytes in frames(), cuts in prop::collection::vec(1usize..40, 1..30)) {
        let websocket = json!({"matching": {"kind": "id", "after": "a"}, "unsolicited": ["b"], "stamp_after": "c"});
        let mut whole = Pair::joined(websocket.clone(), &["{id}"]);
        let mut pieces = Pair::joined(websocket, &["{id}"]);
        for pair in [&mut whole, &mut pieces] {
            (0..9).for_each(|_| _ = pair.say(0));
        }
        whole.receive(&bytes);
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() || matches!(pieces.desk.heard.last(), Some(Heard::Violated)) {
                break;
            }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.receive(piece);
            rest = after;
        }
        prop_assert_eq!(whole.heard(), pieces.heard());
        prop_assert_eq!(whole.session.unanswered(), pieces.session.unanswered());
        prop_assert_eq!(whole.desk.out.len(), pieces.desk.out.len());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), joined: bool, version in 0usize..3) {
        let dialect = ["plain", "socketcluster14", "socketcluster20"][version];
        let message = if version == 0 {
            json!({"kind": "text", "text": "{id}"})
        } else {
            json!({"kind": "call", "event": "e", "data": "1"})
        };
        let mut pair = Pair::new(json!({"dialect": dialect}), json!([{"name": "s", "message": message}]));
        if joined {
            pair.accept();
            pair.receive_text(r#"{"rid":1}"#);
            pair.say(0);
        } else {
            pair.session.open(&pair.plan, &mut pair.desk);
        }
        pair.receive(&bytes);
    }
}
