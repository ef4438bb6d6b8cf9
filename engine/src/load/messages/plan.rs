//! The parts that all WebSockets of a load share: the opening handshake, each step's message ready to be written, and
//! the texts by which messages from the server are told apart. Made from a checked spec.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::contract::spec::{Dialect, Duration, LoadSpec, Matching, Message, Model, Step};
use crate::load::messages::template::Template;
use crate::scan::{Mark, Tally};
use crate::socketcluster::{Version, outgoing};
use crate::websocket::frame::Opcode;
use crate::websocket::opening::Opening;
use crate::websocket::reader::Rules;

pub struct MessagesPlan {
    pub rules: Rules,
    target: String,
    host: String,
    protocols: String,
    headers: Vec<(String, String)>,
    /// SocketCluster's version; None for plain messages.
    pub version: Option<Version>,
    pub subscribe: Vec<String>,
    pub greetings: Vec<Template>,
    pub steps: Vec<MessagePlan>,
    /// The text before the id in an answer; None if answers come in order.
    pub id_after: Option<Mark>,
    pub unsolicited: Vec<Mark>,
    pub stamp_after: Option<Mark>,
    pub tally: Option<Tally>,
    /// The time between a user's sends; None if users pause after answers.
    pub pace: Option<Duration>,
    /// The pause with which a user begins.
    pub think: Duration,
    pub rejoin_after_ns: Option<u64>,
    /// True if users leave by themselves; the run then ends with the last one.
    pub work_ends: bool,
}

/// One step's message.
pub struct MessagePlan {
    pub opcode: Opcode,
    pub text: Template,
    pub answered: bool,
    /// True if the message contains the instant at which it is sent.
    pub stamped: bool,
    /// The name of the event that answers the message; None if it is answered by number or in order.
    pub answer: Option<String>,
    /// Texts that must all occur in the answer.
    pub expects: Vec<Mark>,
}

impl MessagesPlan {
    /// `host`: host and port as written in the URL. Returns None if users hold no WebSockets.
    pub fn new(spec: &LoadSpec, host: &str) -> Option<MessagesPlan> {
        let websocket = spec.connection.websocket.as_ref()?;
        let Model::Closed { think, pace, requests_per_user, .. } = spec.model else { return None };
        let mark = |text: &String| Mark::new(text);
        let version = match websocket.dialect {
            Dialect::Plain => None,
            Dialect::Socketcluster14 => Some(Version::V14),
            Dialect::Socketcluster20 => Some(Version::V20),
        };
        Some(MessagesPlan {
            rules: Rules { peer_masks: false, message_bytes_max: websocket.message_bytes_max as usize },
            target: websocket.path.clone(),
            host: host.into(),
            protocols: websocket.subprotocols.join(", "),
            headers: websocket.headers.clone(),
            version,
            subscribe: websocket.subscribe.clone(),
            greetings: websocket.greetings.iter().map(|text| Template::new(text)).collect(),
            steps: spec.scenario.iter().filter_map(MessagePlan::new).collect(),
            id_after: match &websocket.matching {
                Matching::Order => None,
                Matching::Id { after } => Some(mark(after)),
            },
            unsolicited: websocket.unsolicited.iter().map(mark).collect(),
            stamp_after: websocket.stamp_after.as_ref().map(mark),
            tally: websocket.tally.as_ref().map(|tally| Tally::new(tally.label_after.as_deref(), &tally.count_after)),
            pace,
            think,
            rejoin_after_ns: websocket.rejoin_after_ns,
            work_ends: requests_per_user.is_some(),
        })
    }

    /// Calls `use_it` with the opening handshake that every connection begins with.
    pub fn with_opening<R>(&self, use_it: impl FnOnce(&Opening<'_>) -> R) -> R {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        use_it(&Opening { target: &self.target, host: &self.host, protocols: &self.protocols, headers: &headers })
    }
}

impl MessagePlan {
    fn new(step: &Step) -> Option<MessagePlan> {
        let (opcode, text) = match step.message.as_ref()? {
            Message::Text { text } => (Opcode::Text, Template::new(text)),
            Message::Binary { base64 } => (Opcode::Binary, Template::of_bytes(BASE64.decode(base64).ok()?)),
            Message::Event { event, data, .. } => (Opcode::Text, Template::new(&outgoing::event(event, data))),
            Message::Call { event, data } => (Opcode::Text, Template::new(&outgoing::call(event, data))),
            Message::Publish { channel, data } => {
                (Opcode::Text, Template::new(&outgoing::publish(channel, data, step.answered)))
            }
        };
        let answer = match &step.message {
            Some(Message::Event { answer, .. }) => answer.clone(),
            _ => None,
        };
        let expects = step.checks.body_contains.iter().map(|text| Mark::new(text)).collect();
        Some(MessagePlan { opcode, stamped: text.is_stamped(), text, answered: step.answered, answer, expects })
    }
}
