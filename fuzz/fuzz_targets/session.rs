//! Fuzzes a whole WebSocket session of the load engine, in each dialect. The result must not depend on how the server's
//! bytes are cut; each request is answered at most once; nothing is heard after the end; and a server can read
//! everything that the session writes.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use powerband_fuzz::load::flight::Flight;
use powerband_fuzz::load::messages::plan::MessagesPlan;
use powerband_fuzz::load::messages::session::{Desk, Heard, Session};
use powerband_fuzz::contract::spec::LoadSpec;
use powerband_fuzz::websocket::frame::{Opcode, write_frame};
use powerband_fuzz::websocket::handshake;
use powerband_fuzz::websocket::reader::{Reader, Rules};
use serde_json::{Value, json};

const REQUESTS: u64 = 8;

fuzz_target!(|input: &[u8]| {
    // The first byte chooses the dialect, and whether frames or lines of text messages follow; the second says how the
    // bytes are cut.
    let [how, piece, said @ ..] = input else { return };
    let plan = plan(usize::from(how & 3));
    let stream = if how & 4 == 4 { said.to_vec() } else { frames(said) };
    let whole = hear(plan, &stream, stream.len());
    assert_eq!(hear(plan, &stream, usize::from(*piece)), whole);
    check(&whole);
});

fn plan(nth: usize) -> &'static MessagesPlan {
    static PLANS: [OnceLock<MessagesPlan>; 4] = [const { OnceLock::new() }; 4];
    PLANS[nth].get_or_init(|| {
        let tally = json!({"label_after": "\"pid\":", "count_after": "\"count\":"});
        let mut websocket =
            json!({"unsolicited": ["news"], "stamp_after": "\"at\":", "tally": tally, "message_bytes_max": 500});
        let text = json!([{"kind": "text", "text": "{\"rid\":{id}}"}]);
        let own = json!([
            {"kind": "event", "event": "ping", "data": "{stamp}", "answer": "pong"},
            {"kind": "call", "event": "add", "data": "[{user}]"},
            {"kind": "publish", "channel": "c", "data": "{\"at\":{stamp}}"},
        ]);
        let messages = match nth {
            0 => text,
            1 => {
                websocket["matching"] = json!({"kind": "id", "after": "\"rid\":"});
                text
            }
            _ => {
                websocket["dialect"] = json!(if nth == 2 { "socketcluster14" } else { "socketcluster20" });
                websocket["subscribe"] = json!(["a", "b"]);
                own
            }
        };
        let step = |message: &Value| json!({"name": "s", "message": message, "checks": {"body_contains": ["o"]}});
        let scenario: Vec<Value> = messages.as_array().into_iter().flatten().map(step).collect();
        let spec = json!({
            "protocol": 1, "target": {"url": "http://a:1"}, "scenario": scenario,
            "model": {"kind": "closed", "users": 1}, "connection": {"websocket": websocket},
            "phases": {"drain_ns": 0, "deadline_ns": 1}
        });
        let spec: LoadSpec = serde_json::from_value(spec).expect("a spec");
        MessagesPlan::new(&spec, "a:1").expect("WebSockets")
    })
}

/// Makes a text message of each line.
fn frames(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        write_frame(&mut out, Opcode::Text, None, line);
    }
    out
}

/// Returns everything heard from a server that accepts the connection and then sends these bytes while requests wait
/// for their answers, and the number of requests left without an answer.
fn hear(plan: &MessagesPlan, stream: &[u8], piece: usize) -> (Vec<Heard>, usize) {
    let (mut session, mut desk) = (Session::default(), Desk::default());
    session.open(plan, &mut desk);
    let accept = handshake::accept(&desk.out).expect("a request");
    desk.out.clear();
    let mut answer = Vec::new();
    handshake::write_answer(&mut answer, &accept);
    for piece in answer.chunks_mut(piece.max(1)) {
        session.hear(plan, piece, &mut desk);
    }
    for nth in 0..REQUESTS {
        let flight = Flight { intended_ns: nth, sent_ns: nth, step: (nth % plan.steps.len() as u64) as u16 };
        session.say(&plan.steps[usize::from(flight.step)], flight, 0, &mut desk);
    }
    let mut stream = stream.to_vec();
    for piece in stream.chunks_mut(piece.max(1)) {
        session.hear(plan, piece, &mut desk);
        if ends(desk.heard.last()) {
            break;
        }
    }
    can_be_read(&mut desk.out);
    (desk.heard, session.unanswered())
}

fn ends(heard: Option<&Heard>) -> bool {
    matches!(heard, Some(Heard::Closed { .. } | Heard::Refused { .. } | Heard::Violated))
}

fn can_be_read(mut bytes: &mut [u8]) {
    let (mut reader, rules) = (Reader::default(), Rules { peer_masks: true, message_bytes_max: 1 << 20 });
    while !bytes.is_empty() {
        let (used, event) = reader.read(&rules, bytes).expect("no violation of ours");
        assert!(event.is_some(), "whole frames are written");
        bytes = &mut bytes[used..];
    }
}

fn check((heard, unanswered): &(Vec<Heard>, usize)) {
    let mut answered: Vec<u64> = heard
        .iter()
        .filter_map(|heard| if let Heard::Answer { flight, .. } = heard { Some(flight.intended_ns) } else { None })
        .collect();
    assert_eq!(answered.len() + unanswered, REQUESTS as usize);
    answered.sort_unstable();
    answered.dedup();
    assert_eq!(answered.len() + unanswered, REQUESTS as usize, "each is answered once");
    let before = heard.split_last().map_or(&[][..], |(_, before)| before);
    assert!(!before.iter().any(|heard| ends(Some(heard))), "nothing follows the end");
    assert!(heard.iter().filter(|heard| **heard == Heard::Joined).count() <= 1);
}
