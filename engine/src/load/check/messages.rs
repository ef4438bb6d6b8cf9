//! Checks the WebSocket part of a spec: messages, matching of answers, pace, handshake. In: the spec. Out: the first
//! problem.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::IgnoredAny;

use crate::contract::spec::{Checks, Dialect, Duration, LoadSpec, Matching, Message, Model, Step, WebSocket};
use crate::load::check::fields::{Checked, DAY_NS, at_most, between, check_headers, check_path, is_name, wrong};
use crate::load::messages::template::{self, ID};

/// The shortest accepted pace: a shorter one must be a mistake.
const LEAST_PACE_NS: u64 = 1_000;
const LEAST_REJOIN_NS: u64 = 1_000_000; // arbitrary: joining more often would hammer a server that refuses
const MOST_MESSAGE_BYTES: u64 = 1 << 30; // arbitrary: each user may hold a whole message in memory
/// Headers that the engine itself writes in the opening handshake.
const OWN_HEADERS: [&str; 3] = ["host", "upgrade", "connection"];

/// Checks one step and its message.
pub fn check_message(path: &str, websocket: Option<&WebSocket>, step: &Step) -> Checked {
    let at = format!("{path}.message");
    match (websocket, &step.message) {
        (None, None) if step.answered => Ok(()),
        (None, None) => {
            wrong(&format!("{path}.answered"), "a request always has an answer; only messages may have none")
        }
        (None, Some(_)) => wrong(&at, "is sent over a WebSocket; say in connection.websocket how users join"),
        (Some(_), None) => wrong(&at, "is missing; with connection.websocket each step sends a message"),
        (Some(websocket), Some(message)) => {
            check_nothing_of_http(path, step)?;
            check_dialect(&at, websocket.dialect, message)?;
            check_text(&at, message, step.answered)?;
            check_answer(path, websocket, message, step)
        }
    }
}

fn check_nothing_of_http(path: &str, step: &Step) -> Checked {
    let request = step.method != "GET" || step.path != "/" || !step.headers.is_empty() || step.body.is_some();
    if request || !step.checks.status.is_empty() {
        return wrong(path, "a message has no method, path, headers, body or status; leave them out");
    }
    Ok(())
}

fn check_dialect(at: &str, dialect: Dialect, message: &Message) -> Checked {
    let plain = matches!(message, Message::Text { .. } | Message::Binary { .. });
    match (plain, dialect) {
        (false, Dialect::Plain) => wrong(
            at,
            "is one of SocketCluster's; set connection.websocket.dialect to socketcluster14 or socketcluster20",
        ),
        (true, Dialect::Socketcluster14 | Dialect::Socketcluster20) => wrong(
            at,
            "is none of SocketCluster's; send an event, a call or a publish, or set connection.websocket.dialect to plain",
        ),
        _ => Ok(()),
    }
}

fn check_text(at: &str, message: &Message, answered: bool) -> Checked {
    match message {
        Message::Text { .. } => Ok(()),
        Message::Binary { base64 } => match BASE64.decode(base64) {
            Ok(_) => Ok(()),
            Err(error) => wrong(&format!("{at}.base64"), error),
        },
        Message::Event { event, data, answer } => {
            check_name(&format!("{at}.event"), event)?;
            match answer {
                Some(_) if !answered => {
                    wrong(&format!("{at}.answer"), "the step says that it has none (answered: false)")
                }
                None if answered => {
                    wrong(&format!("{at}.answer"), "name the event that answers it, or set answered to false")
                }
                Some(answer) => check_name(&format!("{at}.answer"), answer),
                None => Ok(()),
            }?;
            check_json(&format!("{at}.data"), data)
        }
        Message::Call { event, data } => {
            check_name(&format!("{at}.event"), event)?;
            check_json(&format!("{at}.data"), data)
        }
        Message::Publish { channel, data } => {
            check_name(&format!("{at}.channel"), channel)?;
            check_json(&format!("{at}.data"), data)
        }
    }
}

fn check_name(at: &str, name: &str) -> Checked {
    if name.is_empty() { wrong(at, "is empty") } else { Ok(()) }
}

/// Checks that the text is JSON once numbers stand in place of its tokens.
fn check_json(at: &str, data: &str) -> Checked {
    match serde_json::from_str::<IgnoredAny>(&template::with_zeros(data)) {
        Ok(_) => Ok(()),
        Err(error) => wrong(at, format!("{data} is no JSON: {error}")),
    }
}

/// Checks that the answer of a step can be recognised, and that the step's checks apply to something.
fn check_answer(path: &str, websocket: &WebSocket, message: &Message, step: &Step) -> Checked {
    if !step.answered {
        let unchecked = step.checks == Checks::default();
        return if unchecked { Ok(()) } else { wrong(&format!("{path}.checks"), "nothing answers this message") };
    }
    let by_id = websocket.dialect == Dialect::Plain && websocket.matching != Matching::Order;
    let has_id = matches!(message, Message::Text { text } if text.contains(ID));
    if by_id && !has_id {
        return wrong(
            &format!("{path}.message"),
            "holds no {id}, so no answer could be matched to it; put {id} into its text, set answered to false, or match in order",
        );
    }
    Ok(())
}

/// Checks the WebSocket settings that are not part of a step.
pub fn check_messages(spec: &LoadSpec) -> Checked {
    let (pace, think) = match &spec.model {
        Model::Closed { pace, think, .. } => (pace.as_ref(), *think),
        Model::Open { think, .. } => (None, *think),
    };
    let Some(websocket) = &spec.connection.websocket else {
        return if pace.is_some() {
            wrong("model.pace", "only messages have one; see connection.websocket")
        } else {
            Ok(())
        };
    };
    if matches!(spec.model, Model::Open { .. }) {
        return wrong(
            "model.kind",
            "connection.websocket needs users that stay: the closed model, if need be with a pace",
        );
    }
    if !spec.connection.keep_alive {
        return wrong("connection.keep_alive", "a WebSocket is kept; leave this out, or set it to true");
    }
    if let Some(pace) = pace {
        check_pace(pace, think, &spec.scenario)?;
    }
    check_websocket(websocket)
}

fn check_pace(pace: &Duration, think: Duration, scenario: &[Step]) -> Checked {
    let mean_ns = match *pace {
        Duration::Constant { ns } => ns,
        Duration::Uniform { min_ns, max_ns } => min_ns.midpoint(max_ns),
        Duration::Exponential { mean_ns } => mean_ns,
    };
    if mean_ns < LEAST_PACE_NS {
        return wrong(
            "model.pace",
            format!("{mean_ns} ns is too short; it must be at least {LEAST_PACE_NS} ns in the mean"),
        );
    }
    if think != Duration::default() {
        return wrong("model.pace", "excludes model.think: it is the time from send to send, pauses included");
    }
    match scenario.iter().position(|step| step.think.is_some()) {
        Some(i) => wrong(&format!("scenario[{i}].think"), "is excluded by model.pace, the time from send to send"),
        None => Ok(()),
    }
}

fn check_websocket(websocket: &WebSocket) -> Checked {
    const AT: &str = "connection.websocket";
    check_path(&format!("{AT}.path"), &websocket.path)?;
    check_headers(&format!("{AT}.headers"), &websocket.headers)?;
    for (i, (name, _)) in websocket.headers.iter().enumerate() {
        let name = name.to_ascii_lowercase();
        if OWN_HEADERS.contains(&name.as_str()) || name.starts_with("sec-websocket-") {
            return wrong(&format!("{AT}.headers[{i}]"), format!("{name} is the engine's own business; leave it out"));
        }
    }
    if let Some(i) = websocket.subprotocols.iter().position(|name| !is_name(name)) {
        let name = &websocket.subprotocols[i];
        return wrong(&format!("{AT}.subprotocols[{i}]"), format!("{name:?} is no name of a subprotocol"));
    }
    if websocket.dialect == Dialect::Plain && !websocket.subscribe.is_empty() {
        return wrong(
            &format!("{AT}.subscribe"),
            "channels are SocketCluster's; send a greeting instead, or set the dialect",
        );
    }
    let tally = websocket.tally.as_ref();
    let after = match &websocket.matching {
        Matching::Order => None,
        Matching::Id { after } => Some(after),
    };
    for (field, text) in [
        ("matching.after", after),
        ("stamp_after", websocket.stamp_after.as_ref()),
        ("tally.count_after", tally.map(|tally| &tally.count_after)),
        ("tally.label_after", tally.and_then(|tally| tally.label_after.as_ref())),
    ]
    .into_iter()
    .chain(websocket.unsolicited.iter().map(|text| ("unsolicited", Some(text))))
    .chain(websocket.subscribe.iter().map(|text| ("subscribe", Some(text))))
    {
        if text.is_some_and(String::is_empty) {
            return wrong(&format!("{AT}.{field}"), "holds an empty text");
        }
    }
    between(1, MOST_MESSAGE_BYTES, &format!("{AT}.message_bytes_max"), websocket.message_bytes_max)?;
    let rejoin_ns = websocket.rejoin_after_ns.unwrap_or(LEAST_REJOIN_NS);
    if rejoin_ns < LEAST_REJOIN_NS {
        return wrong(
            &format!("{AT}.rejoin_after_ns"),
            format!("{rejoin_ns} would hammer a server that refuses; it must be at least {LEAST_REJOIN_NS}"),
        );
    }
    at_most(DAY_NS, &format!("{AT}.rejoin_after_ns"), rejoin_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec() -> Value {
        json!({
            "protocol": 1, "target": {"url": "http://127.0.0.1:1"},
            "scenario": [{"name": "a", "message": {"kind": "text", "text": "hello {id}"}}],
            "model": {"kind": "closed", "users": 1}, "connection": {"websocket": {}},
            "phases": {"drain_ns": 0, "deadline_ns": 1}
        })
    }

    fn checked(spec: Value) -> Result<(), String> {
        let spec: LoadSpec = serde_json::from_value(spec).unwrap();
        let websocket = spec.connection.websocket.as_ref();
        let steps = || spec.scenario.iter().try_for_each(|step| check_message("scenario[0]", websocket, step));
        steps().and_then(|()| check_messages(&spec)).map_err(|problem| problem.message)
    }

    /// Checks a valid spec in which the values at these JSON pointers are replaced; a pointer without a slash is
    /// relative to the WebSocket.
    fn with(changes: &[(&str, Value)]) -> Result<(), String> {
        let mut spec = spec();
        for (pointer, value) in changes {
            let (parent, key) = pointer.rsplit_once('/').unwrap_or(("/connection/websocket", pointer));
            spec.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        checked(spec)
    }

    const MESSAGE: &str = "/scenario/0/message";
    const ANSWERED: &str = "/scenario/0/answered";

    #[test]
    fn sound_specs_pass() {
        assert_eq!(checked(spec()), Ok(()));
        let event = json!({"kind": "event", "event": "ping", "data": "{\"n\":{id}}", "answer": "pong"});
        for changes in [
            &[("matching", json!({"kind": "id", "after": "\"rid\":"}))][..],
            &[("/model/pace", json!({"kind": "exponential", "mean_ns": 1000}))],
            &[(MESSAGE, event), ("dialect", json!("socketcluster14"))],
            &[(MESSAGE, json!({"kind": "binary", "base64": "AAH/"})), (ANSWERED, json!(false))],
        ] {
            assert_eq!(with(changes), Ok(()), "{changes:?}");
        }
    }

    #[test]
    fn each_problem_names_its_field_and_says_what_to_do() {
        let one = |pointer, value: Value| vec![(pointer, value)];
        let sc = |message: Value| vec![("dialect", json!("socketcluster20")), (MESSAGE, message)];
        let open = json!({"kind": "open", "arrivals": "constant", "rate_per_s": 1.0, "max_in_flight": 1});
        let think = json!({"kind": "constant", "ns": 5000});
        let http = [("/connection/websocket", Value::Null), (MESSAGE, Value::Null), (ANSWERED, json!(false))];
        let event = json!({"kind": "event", "event": "e", "data": "1", "answer": "f"});
        let body = json!({"body_contains": ["a"]});
        let by_id = json!({"kind": "id", "after": "id:"});
        for (changes, starts) in [
            (one("/connection/websocket", Value::Null), "scenario[0].message: is sent over a WebSocket"),
            (one(MESSAGE, Value::Null), "scenario[0].message: is missing"),
            (http.into(), "scenario[0].answered: a request always"),
            (one("/scenario/0/path", json!("/a")), "scenario[0]: a message has no method"),
            (one("/scenario/0/checks", json!({"status": [200]})), "scenario[0]: a message has no method"),
            (one("dialect", json!("socketcluster20")), "scenario[0].message: is none of SocketCluster's"),
            (
                one(MESSAGE, json!({"kind": "call", "event": "e", "data": "1"})),
                "scenario[0].message: is one of SocketCluster's",
            ),
            (one(MESSAGE, json!({"kind": "binary", "base64": "?"})), "scenario[0].message.base64: "),
            (sc(json!({"kind": "event", "event": "e", "data": "1"})), "scenario[0].message.answer: name the event"),
            ([sc(event), one(ANSWERED, json!(false))].concat(), "scenario[0].message.answer: the step says"),
            (sc(json!({"kind": "call", "event": "e", "data": "{"})), "scenario[0].message.data: { is no JSON"),
            (sc(json!({"kind": "publish", "channel": "", "data": "1"})), "scenario[0].message.channel: is empty"),
            (vec![(ANSWERED, json!(false)), ("/scenario/0/checks", body)], "scenario[0].checks: nothing answers"),
            (
                vec![("matching", by_id), ("/scenario/0/message/text", json!("no token"))],
                "scenario[0].message: holds no {id}",
            ),
            (one("/model", open), "model.kind: "),
            (one("/connection/keep_alive", json!(false)), "connection.keep_alive: "),
            (one("/model/pace", json!({"kind": "constant", "ns": 999})), "model.pace: 999 ns is too short"),
            (vec![("/model/pace", think.clone()), ("/model/think", think.clone())], "model.pace: excludes"),
            (vec![("/model/pace", think.clone()), ("/scenario/0/think", think)], "scenario[0].think: is excluded"),
            (one("path", json!("chat")), "connection.websocket.path: \"chat\" must start"),
            (
                one("headers", json!([["Sec-WebSocket-Key", "a"]])),
                "connection.websocket.headers[0]: sec-websocket-key is the engine's",
            ),
            (one("headers", json!([["a", "b\r\n"]])), "connection.websocket.headers[0]: the value"),
            (one("subprotocols", json!(["a", "b c"])), "connection.websocket.subprotocols[1]: "),
            (one("subscribe", json!(["a"])), "connection.websocket.subscribe: channels"),
            (one("stamp_after", json!("")), "connection.websocket.stamp_after: holds an empty"),
            (one("unsolicited", json!([""])), "connection.websocket.unsolicited: holds an empty"),
            (one("message_bytes_max", json!(0)), "connection.websocket.message_bytes_max: 0"),
            (one("rejoin_after_ns", json!(5)), "connection.websocket.rejoin_after_ns: 5 would"),
        ] {
            let message = with(&changes).unwrap_err();
            assert!(message.starts_with(starts), "{message} for {changes:?}");
        }
        let mut paced = spec();
        paced["connection"] = json!({});
        paced["scenario"][0]["message"] = Value::Null;
        paced["model"]["pace"] = json!({"kind": "constant", "ns": 5000});
        assert!(checked(paced).unwrap_err().starts_with("model.pace: only messages"));
    }
}
