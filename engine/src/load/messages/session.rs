//! One WebSocket from its opening handshake on: interprets bytes from the server (`Heard`) and writes messages as
//! bytes. Keeps the requests without an answer, and answers pings, heartbeats and closes. No sockets and no time.

use std::collections::{BTreeMap, VecDeque};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::contract::outcome::Outcome;
use crate::load::flight::Flight;
use crate::load::messages::plan::{MessagePlan, MessagesPlan};
use crate::load::messages::template::{Template, Values};
use crate::scan::Tally;
use crate::socketcluster::incoming::{HandshakeAnswer, Incoming, classify, handshake_answer, packets};
use crate::socketcluster::{HANDSHAKE_ID, Version, outgoing};
use crate::websocket::Violation;
use crate::websocket::frame::{MaskKey, Opcode, write_close, write_frame};
use crate::websocket::opening::{Key, Rejected, is_worth_a_check};
use crate::websocket::reader::{Event, Reader};

const NORMAL_CLOSURE: u16 = 1000;
/// No more replies are written once those to one read have reached this size.
const REPLIES_BYTES_MAX: usize = 64 << 10; // arbitrary: as much as one read; a peer that does not read gets no more

/// Most labels of a tally, and most bytes of one label. Labels name the server's workers.
const LABELS_MAX: usize = 10_000;
const LABEL_BYTES_MAX: usize = 256; // with LABELS_MAX 2.5 MB, whatever labels a server makes up

/// The meaning of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The last step of joining is done.
    Joined,
    Answer {
        flight: Flight,
        /// True if the answer meets the expectations of its step.
        ok: bool,
    },
    Delivery {
        stamp_ns: u64,
    },
    Unsolicited,
    /// A message that answers no request.
    Unmatched,
    /// The server has closed, and its close frame has been answered. Nothing follows.
    Closed {
        code: Option<u16>,
    },
    /// Joining has failed, with the status that the server gave, if any. Nothing follows.
    Refused {
        outcome: Outcome,
        status: Option<u16>,
    },
    /// The server broke the protocol; a close frame that says so has been written. Nothing follows.
    Violated,
}

/// Buffers of the sessions: one set for all connections of a thread.
pub struct Desk {
    /// Frames to be written on the current connection.
    pub out: Vec<u8>,
    /// Everything heard on the current connection.
    pub heard: Vec<Heard>,
    /// True if so many bytes already wait to be written that pings are not answered: a peer that does not read needs no
    /// pongs.
    pub crowded: bool,
    /// The highest count of any answer, by label.
    pub tallies: BTreeMap<String, u64>,
    /// The message that is being built.
    scratch: Vec<u8>,
    /// Draws mask keys and nonces. Seeded by the system, so that no peer can predict them.
    masks: SmallRng,
}

impl Default for Desk {
    fn default() -> Self {
        Desk {
            out: Vec::new(),
            heard: Vec::new(),
            crowded: false,
            tallies: BTreeMap::new(),
            scratch: Vec::new(),
            masks: SmallRng::from_os_rng(),
        }
    }
}

#[derive(Default)]
pub struct Session {
    reader: Reader,
    talk: Talk,
}

/// The state of a session apart from the frame reader.
#[derive(Default)]
struct Talk {
    /// The current step of joining; None once the user has joined.
    joining: Option<Box<Joining>>,
    /// Requests without an answer, oldest first.
    asked: VecDeque<Asked>,
    last_id: u64,
    /// The longest time that the server may be silent; 0: no limit.
    silence_ns_max: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    flight: Flight,
    id: u64,
}

enum Joining {
    /// The answer to the opening handshake is incomplete.
    Opening { key: Key, answer: Vec<u8> },
    /// SocketCluster's handshake has no answer yet.
    Handshake,
    /// The numbers of the subscriptions that are not confirmed yet.
    Subscribing { waiting: Vec<u64> },
}

impl Session {
    /// Begins the opening handshake of a new connection.
    pub fn open(&mut self, plan: &MessagesPlan, desk: &mut Desk) {
        let key = Key::new(desk.masks.random());
        plan.with_opening(|opening| opening.write(&key, &mut desk.out));
        self.reader = Reader::default();
        self.talk.joining = Some(Box::new(Joining::Opening { key, answer: Vec::new() }));
        self.talk.last_id = 0;
        self.talk.silence_ns_max = 0;
    }

    /// Appends the meaning of bytes from the server to `heard`, and writes the replies that they require.
    pub fn hear(&mut self, plan: &MessagesPlan, bytes: &mut [u8], desk: &mut Desk) {
        let mut rest = bytes;
        if let Some(Joining::Opening { .. }) = self.talk.joining.as_deref() {
            let Some(used) = self.talk.hear_opening(plan, rest, desk) else { return };
            rest = &mut rest[used..];
        }
        while !rest.is_empty() {
            let (used, event) = match self.reader.read(&plan.rules, rest) {
                Ok(read) => read,
                Err(violation) => return desk.refute(violation),
            };
            match event {
                Some(Event::Text(text)) => self.talk.hear_text(plan, text, desk),
                Some(Event::Binary(bytes)) => self.talk.hear_message(plan, bytes, desk),
                Some(Event::Ping(payload)) => desk.reply(Opcode::Pong, payload),
                Some(Event::Close { code, .. }) => {
                    let key = desk.mask();
                    write_close(&mut desk.out, Some(key), code, "");
                    return desk.heard.push(Heard::Closed { code });
                }
                Some(Event::Pong(_)) | None => {}
            }
            if desk.is_over() {
                return;
            }
            rest = &mut rest[used..];
        }
    }

    /// Writes a step's message. If it has an answer, `flight` waits for it.
    #[inline]
    pub fn say(&mut self, step: &MessagePlan, flight: Flight, user: u64, desk: &mut Desk) {
        self.talk.last_id += 1;
        let id = self.talk.last_id;
        desk.write(step.opcode, &step.text, &Values { id, stamp_ns: flight.sent_ns, user });
        if step.answered {
            self.talk.asked.push_back(Asked { flight, id });
        }
    }

    pub fn greet(&mut self, greeting: &Template, stamp_ns: u64, user: u64, desk: &mut Desk) {
        self.talk.last_id += 1;
        desk.write(Opcode::Text, greeting, &Values { id: self.talk.last_id, stamp_ns, user });
    }

    /// Writes the messages that end a connection properly.
    pub fn take_leave(&mut self, plan: &MessagesPlan, desk: &mut Desk) {
        if let Some(farewell) = plan.version.and_then(outgoing::disconnect) {
            let key = desk.mask();
            write_frame(&mut desk.out, Opcode::Text, Some(key), farewell.as_bytes());
        }
        let key = desk.mask();
        write_close(&mut desk.out, Some(key), Some(NORMAL_CLOSURE), "");
    }

    pub fn unanswered(&self) -> usize {
        self.talk.asked.len()
    }

    /// The instant at which the oldest request without an answer was sent.
    pub fn oldest_sent_ns(&self) -> Option<u64> {
        self.talk.asked.front().map(|asked| asked.flight.sent_ns)
    }

    /// Removes and returns the oldest request without an answer.
    pub fn give_up(&mut self) -> Option<Flight> {
        self.talk.asked.pop_front().map(|asked| asked.flight)
    }

    /// The longest time that the server may be silent, if the server has set one.
    pub fn silence_ns_max(&self) -> Option<u64> {
        (self.talk.silence_ns_max > 0).then_some(self.talk.silence_ns_max)
    }

    /// True if a message has arrived in part: the server may be waiting for room for the rest.
    #[inline]
    pub fn is_within_message(&self) -> bool {
        !self.reader.is_between_messages()
    }
}

impl Talk {
    /// Returns the number of bytes that belong to the answer of the opening handshake; None if the answer is incomplete
    /// or a refusal.
    fn hear_opening(&mut self, plan: &MessagesPlan, bytes: &[u8], desk: &mut Desk) -> Option<usize> {
        let Some(Joining::Opening { key, answer }) = self.joining.as_deref_mut() else { return None };
        let before = answer.len();
        if before > 0 {
            answer.extend_from_slice(bytes);
            if !is_worth_a_check(answer, before) {
                return None;
            }
        }
        let checked = plan.with_opening(|opening| opening.check(key, if before > 0 { answer } else { bytes }));
        match checked {
            Ok(Some(length)) => {
                self.opened(plan, desk);
                Some(length - before)
            }
            Ok(None) => {
                if before == 0 {
                    answer.extend_from_slice(bytes);
                }
                None
            }
            Err(rejected) => {
                let status = if let Rejected::Status(status) = rejected { Some(status) } else { None };
                let outcome = match rejected {
                    Rejected::NotHttp | Rejected::TooLong => Outcome::BadResponse,
                    _ => Outcome::HandshakeRefused,
                };
                desk.heard.push(Heard::Refused { outcome, status });
                None
            }
        }
    }

    /// The opening handshake is complete: continues with the dialect's own.
    fn opened(&mut self, plan: &MessagesPlan, desk: &mut Desk) {
        if plan.version.is_none() {
            return self.joined(desk);
        }
        desk.scratch.clear();
        outgoing::write_handshake(&mut desk.scratch);
        desk.write_scratch();
        self.last_id = HANDSHAKE_ID;
        self.joining = Some(Box::new(Joining::Handshake));
    }

    fn joined(&mut self, desk: &mut Desk) {
        self.joining = None;
        desk.heard.push(Heard::Joined);
    }

    fn hear_text(&mut self, plan: &MessagesPlan, text: &[u8], desk: &mut Desk) {
        match plan.version {
            None => self.hear_message(plan, text, desk),
            Some(version) => {
                for packet in packets(text) {
                    self.hear_packet(plan, version, packet, desk);
                    if desk.is_over() {
                        return;
                    }
                }
            }
        }
    }

    /// Interprets a message of the plain dialect, or a binary one.
    #[inline]
    fn hear_message(&mut self, plan: &MessagesPlan, bytes: &[u8], desk: &mut Desk) {
        let heard = if let Some(stamp_ns) = stamp(plan, bytes) {
            Heard::Delivery { stamp_ns }
        } else if plan.version.is_some() || plan.unsolicited.iter().any(|text| text.is_in(bytes)) {
            Heard::Unsolicited
        } else {
            let place = match &plan.id_after {
                None => (!self.asked.is_empty()).then_some(0),
                Some(after) => after.number_after(bytes).and_then(|id| self.place_of(id)),
            };
            self.answer(plan, place, true, bytes, desk)
        };
        desk.heard.push(heard);
    }

    fn hear_packet(&mut self, plan: &MessagesPlan, version: Version, packet: &[u8], desk: &mut Desk) {
        let heard = match classify(version, packet) {
            Incoming::Heartbeat => return desk.reply(Opcode::Text, outgoing::heartbeat_answer(version).as_bytes()),
            Incoming::Reply { rid, failed } if self.joining.is_some() => {
                return self.join_on(plan, rid, failed, packet, desk);
            }
            Incoming::Reply { rid, failed } => {
                let place = self.place_of(rid);
                self.answer(plan, place, !failed, packet, desk)
            }
            Incoming::Event { name, cid } => {
                if let Some(cid) = cid {
                    let mut answer = Vec::new();
                    outgoing::write_answer(&mut answer, cid);
                    desk.reply(Opcode::Text, &answer);
                }
                self.hear_event(plan, &name, packet, desk)
            }
            Incoming::Delivery => match stamp(plan, packet) {
                Some(stamp_ns) => Heard::Delivery { stamp_ns },
                None => Heard::Unsolicited,
            },
            Incoming::KickOut | Incoming::Disconnect => Heard::Unsolicited,
            Incoming::Unknown => Heard::Unmatched,
        };
        desk.heard.push(heard);
    }

    fn hear_event(&mut self, plan: &MessagesPlan, name: &str, packet: &[u8], desk: &mut Desk) -> Heard {
        if let Some(stamp_ns) = stamp(plan, packet) {
            return Heard::Delivery { stamp_ns };
        }
        let answers = |asked: &Asked| plan.steps[step_of(asked)].answer.as_deref() == Some(name);
        match self.asked.iter().position(answers) {
            _ if plan.unsolicited.iter().any(|text| text.is_in(packet)) => Heard::Unsolicited,
            // The names of SocketCluster's own events begin so.
            None if name.starts_with('#') => Heard::Unsolicited,
            place => self.answer(plan, place, true, packet, desk),
        }
    }

    /// Interprets the answer to a SocketCluster call that is part of joining.
    fn join_on(&mut self, plan: &MessagesPlan, rid: u64, failed: bool, packet: &[u8], desk: &mut Desk) {
        const REFUSED: Heard = Heard::Refused { outcome: Outcome::HandshakeRefused, status: None };
        match self.joining.as_deref_mut() {
            Some(Joining::Handshake) => match handshake_answer(packet) {
                Some(HandshakeAnswer::Accepted { ping_timeout_ns }) => {
                    self.silence_ns_max = ping_timeout_ns.unwrap_or(0);
                    self.subscribe(plan, desk);
                }
                Some(HandshakeAnswer::Refused) => desk.heard.push(REFUSED),
                None => desk.heard.push(Heard::Unmatched),
            },
            Some(Joining::Subscribing { .. }) if failed => desk.heard.push(REFUSED),
            Some(Joining::Subscribing { waiting }) => match waiting.iter().position(|id| *id == rid) {
                Some(place) => {
                    waiting.swap_remove(place);
                    if waiting.is_empty() {
                        self.joined(desk);
                    }
                }
                None => desk.heard.push(Heard::Unmatched),
            },
            Some(Joining::Opening { .. }) | None => desk.heard.push(Heard::Unmatched),
        }
    }

    fn subscribe(&mut self, plan: &MessagesPlan, desk: &mut Desk) {
        let mut waiting = Vec::with_capacity(plan.subscribe.len());
        for channel in &plan.subscribe {
            self.last_id += 1;
            waiting.push(self.last_id);
            desk.scratch.clear();
            outgoing::write_subscribe(&mut desk.scratch, channel, self.last_id);
            desk.write_scratch();
        }
        if waiting.is_empty() {
            self.joined(desk);
        } else {
            self.joining = Some(Box::new(Joining::Subscribing { waiting }));
        }
    }

    /// The position of the request with this number among those without an answer.
    #[inline]
    fn place_of(&self, id: u64) -> Option<usize> {
        self.asked.iter().position(|asked| asked.id == id)
    }

    /// Ends the request at this position, which this message answers.
    #[inline]
    fn answer(&mut self, plan: &MessagesPlan, place: Option<usize>, ok: bool, bytes: &[u8], desk: &mut Desk) -> Heard {
        let Some(asked) = place.and_then(|place| self.asked.remove(place)) else { return Heard::Unmatched };
        if let Some(tally) = &plan.tally {
            count(tally, bytes, &mut desk.tallies);
        }
        let ok = ok && plan.steps[step_of(&asked)].expects.iter().all(|text| text.is_in(bytes));
        Heard::Answer { flight: asked.flight, ok }
    }
}

fn step_of(asked: &Asked) -> usize {
    usize::from(asked.flight.step_index())
}

#[inline]
fn stamp(plan: &MessagesPlan, bytes: &[u8]) -> Option<u64> {
    plan.stamp_after.as_ref()?.number_after(bytes)
}

/// Keeps the highest count of each label. Labels beyond the limits are not counted.
fn count(tally: &Tally, answer: &[u8], tallies: &mut BTreeMap<String, u64>) {
    let Some((label, count)) = tally.read(answer).filter(|(label, _)| label.len() <= LABEL_BYTES_MAX) else { return };
    let label = String::from_utf8_lossy(label);
    if let Some(highest) = tallies.get_mut(&*label) {
        *highest = count.max(*highest);
    } else if tallies.len() < LABELS_MAX {
        tallies.insert(label.into_owned(), count);
    }
}

impl Desk {
    #[inline]
    fn mask(&mut self) -> MaskKey {
        self.masks.random()
    }

    #[inline]
    fn write(&mut self, opcode: Opcode, text: &Template, values: &Values) {
        let key = Some(self.mask());
        match text.constant() {
            Some(bytes) => write_frame(&mut self.out, opcode, key, bytes),
            None => {
                self.scratch.clear();
                text.write(values, &mut self.scratch);
                write_frame(&mut self.out, opcode, key, &self.scratch);
            }
        }
    }

    /// Writes the content of `scratch` as a text message.
    fn write_scratch(&mut self) {
        let key = Some(self.mask());
        write_frame(&mut self.out, Opcode::Text, key, &self.scratch);
    }

    /// True if nothing can follow the last thing heard.
    fn is_over(&self) -> bool {
        matches!(self.heard.last(), Some(Heard::Refused { .. } | Heard::Violated))
    }

    /// Answers a ping, heartbeat or call, unless too much already waits to be written.
    fn reply(&mut self, opcode: Opcode, payload: &[u8]) {
        if !self.crowded && self.out.len() < REPLIES_BYTES_MAX {
            let key = Some(self.mask());
            write_frame(&mut self.out, opcode, key, payload);
        }
    }

    /// Tells the server which rule it broke, by a close frame.
    fn refute(&mut self, violation: Violation) {
        let key = Some(self.mask());
        write_close(&mut self.out, key, Some(violation.close_code()), violation.text());
        self.heard.push(Heard::Violated);
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
